"""Is a piece of text a Spark SQL expression at all? ``sqlglot`` judges, and is loaded only then."""

from __future__ import annotations

from skipstone.errors import PredicateError

__all__ = ["NotSql", "judge"]

_PROBE = "SELECT 1 WHERE "


class NotSql(Exception):
    """A piece is no SQL; what is around it may still be, as in ``(a, b) IN (…)``."""

    def __init__(self, error: PredicateError) -> None:
        self.error = error


def judge(piece: str, text: str, start: int) -> None:
    """``NotSql`` unless sqlglot takes ``piece`` of ``text`` for a condition."""
    import sqlglot
    from sqlglot.errors import ParseError, SqlglotError

    try:
        parsed = sqlglot.parse_one(_PROBE + piece, dialect="spark")
        if {name for name, value in parsed.args.items() if value} - {"expressions", "where"}:
            raise SqlglotError
    except RecursionError:
        return
    except SqlglotError as error:
        position, why = start, "this is no Spark SQL"
        if isinstance(error, ParseError) and error.errors:
            first = error.errors[0]
            said = str(first.get("description") or "").rstrip(".")
            why = "an expression is not complete" if "missing for" in said else said or why
            line, column = int(first.get("line") or 1), int(first.get("col") or 0)
            lines = (_PROBE + piece).splitlines(keepends=True)
            offset = (
                sum(map(len, lines[: line - 1])) + column - len(str(first.get("highlight") or ""))
            )
            position = start + min(max(offset - len(_PROBE), 0), len(piece))
        raise NotSql(PredicateError(why, text=text, position=position)) from None
