"""``parse_sql``: a Spark SQL condition as the tree as written.

This parser reads the boolean skeleton and the forms that an index can use, with Spark's literals
(``lexer.py``) and with every position. Everything else between AND, OR, NOT and parentheses becomes
one ``Opaque`` with its own text. For such a piece ``sqlglot`` checks that it is Spark SQL at all:
functions, CASE, lambdas and subqueries have a grammar far larger than this one, and a typo in
them must be an error with a position, not a table read in full. It is loaded only then.

    condition  = conjunct { OR conjunct }            conjunct = factor { AND factor }
    factor     = (NOT | !) factor | "(" condition ")" | predicate
    predicate  = operand [ comparison operand
                         | [NOT] IN "(" literal, … ")"  | [NOT] BETWEEN operand AND operand
                         | [NOT] LIKE string [ESCAPE string]
                         | IS [NOT] (NULL | TRUE | FALSE | UNKNOWN | DISTINCT FROM operand) ]
               | startswith "(" operand "," string ")"
    operand    = literal | name { "." name } | CAST "(" operand AS type ")" | type "(" operand ")"
               | operand "::" type | "(" operand ")"
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import PredicateError

from .lexer import TokenKind, UnknownFormError, fold_casts
from .sql_operands import NOT_COLUMNS, OperandParser
from .tree import (
    CONDITIONS,
    And,
    Call,
    Comparison,
    Expr,
    Literal,
    Membership,
    Not,
    NullTest,
    Opaque,
    Or,
    PatternMatch,
    Truth,
)

if TYPE_CHECKING:
    from .tree import Operand


_COMPARISONS = frozenset({"=", "<=>", "<>", "<", "<=", ">", ">="})


def parse_sql(text: str, *, any_function: bool = False) -> Expr:
    """The tree of a condition; ``PredicateError`` with its position if it is not a SQL condition.

    The text is read as under Spark's defaults (double quotes are strings, backslashes escape, a
    TIMESTAMP is an instant). ``any_function`` where a session decides the rows, which may have
    functions of the user.
    """
    parser = _ConditionParser(text, any_function)
    try:
        tree = parser.condition()
    except NotSqlError as refused:
        raise refused.error from None
    end = parser.peek()
    if end.kind is not TokenKind.END:
        raise PredicateError(f"unexpected {end.value!r}", text=text, position=end.start)
    return tree


class _ConditionParser(OperandParser):
    # -- the boolean skeleton ----------------------------------------------------------------------

    def condition(self) -> Expr:
        parts = [self.conjunct()]
        while self.word("OR"):
            parts.append(self.conjunct())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def conjunct(self) -> Expr:
        parts = [self.factor()]
        while self.word("AND"):
            parts.append(self.factor())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def factor(self) -> Expr:
        negated = False
        while self.word("NOT") or self.symbol("!"):
            negated = not negated
        found = self.atom()
        return Not(found) if negated else found

    def atom(self) -> Expr:
        start, depth = self.at, self.depth
        inner: NotSqlError | None = None
        try:
            found = self.predicate()
            if self.at_end():
                return found
            reason = "an expression that no index supports"
        except UnknownFormError as unknown:
            reason = str(unknown)
        except NotSqlError as refused:
            reason, inner = "an expression that no index supports", refused
        self.at, self.depth = start, depth
        try:
            return self.opaque(reason)
        except NotSqlError as refused:
            raise inner or refused from None

    def opaque(self, reason: str) -> Opaque:
        """All text up to the end of the predicate as one piece."""
        first = self.peek()
        nested: list[str] = []
        while True:
            token = self.peek()
            if token.kind is TokenKind.END:
                break
            plain = token.kind in (TokenKind.NAME, TokenKind.SYMBOL)
            text = token.text if plain else ""
            if text in ("(", "[", "{", "CASE", "BETWEEN"):
                nested.append(text)
            elif (text == "AND" and nested and nested[-1] == "BETWEEN") or (
                text in (")", "]", "}", "END") and nested
            ):
                nested.pop()
            elif not nested and (text in ("AND", "OR", ")") or text in self.stops[-1]):
                break
            self.at += 1
        last = self.tokens[self.at - 1] if self.at else first
        if self.peek() is first:
            raise PredicateError(
                "an expression is expected" + (f" before {first.value!r}" if first.value else ""),
                text=self.text,
                position=first.start,
            )
        piece = self.text[first.start : last.end]
        check_syntax(piece, self.text, first.start)
        return Opaque(piece, reason)

    # -- predicates -------------------------------------------------------------------------------

    def predicate(self) -> Expr:
        left = self.operand()
        token = self.peek()
        if token.kind is TokenKind.SYMBOL and token.text in _COMPARISONS:
            self.at += 1
            return Comparison(token.text, left, self.operand())
        if self.word("IS"):
            return self.is_test(left)
        negated = self.word("NOT")
        found: Expr
        if self.word("IN"):
            found = Membership(left, self.listed())
        elif self.word("BETWEEN"):
            low = self.operand()
            if not self.word("AND"):
                raise UnknownFormError("BETWEEN with an expression")
            found = And((Comparison(">=", left, low), Comparison("<=", left, self.operand())))
        elif self.word("LIKE"):
            found = self.like(left)
        elif self.word("ILIKE"):
            found = self.like(left, ilike=True)
        elif self.word("RLIKE") or self.word("REGEXP"):
            found = Truth(Call("rlike", (left, self.operand())))
        elif negated:
            raise UnknownFormError(f"NOT {self.peek().value} is a predicate that no index supports")
        else:
            return left if isinstance(left, (*CONDITIONS, Opaque)) else Truth(left)
        return Not(found) if negated else found

    def is_test(self, left: Operand) -> Expr:
        negated = self.word("NOT")
        found: Expr
        if self.word("NULL") or self.word("UNKNOWN"):
            found = NullTest(left)
        elif self.word("TRUE"):
            found = Comparison("<=>", left, Literal(True, pa.bool_()))
        elif self.word("FALSE"):
            found = Comparison("<=>", left, Literal(False, pa.bool_()))
        elif self.word("DISTINCT", "FROM"):
            found, negated = Comparison("<=>", left, self.operand()), not negated
        else:
            raise UnknownFormError("IS with something that no index supports")
        return Not(found) if negated else found

    def listed(self) -> tuple[Operand, ...]:
        self.expect("(")
        values: list[Operand] = []
        while True:
            value = self.value(",")
            try:
                value = fold_casts(value)
            except UnknownFormError:
                if isinstance(value, Opaque):
                    raise
            values.append(value)
            if not self.symbol(","):
                break
        self.expect(")")
        return tuple(values)

    def like(self, left: Operand, *, ilike: bool = False) -> Expr:
        if self.word("NULL"):
            return Truth(Literal(None))
        pattern, escape = self.string(), "\\"
        if self.word("ESCAPE"):
            escape = self.single_string()
            if len(escape) != 1 or ord(escape) > 0xFFFF:
                raise UnknownFormError("an escape that is not one character")
        if ilike:
            texts = (Literal(text, pa.string()) for text in (pattern, escape))
            return Truth(Call("ilike", (left, *texts)))
        return PatternMatch(left, pattern, escape)


_PROBE = "SELECT 1 WHERE "


class NotSqlError(Exception):
    """A piece is not SQL; a larger piece may be, as in ``(a, b) IN (…)``."""

    def __init__(self, error: PredicateError) -> None:
        self.error = error


def check_syntax(piece: str, text: str, start: int) -> None:
    """``NotSqlError`` unless sqlglot parses ``piece`` of ``text`` as a condition."""
    if piece.endswith(";"):
        at, hint = start + len(piece) - 1, "a condition has no semicolon at its end"
        raise NotSqlError(PredicateError("unexpected ';'", text=text, position=at, hint=hint))
    import sqlglot
    from sqlglot.errors import ParseError, SqlglotError

    try:
        parsed = sqlglot.parse_one(_PROBE + piece, dialect="spark")
        if {name for name, value in parsed.args.items() if value} - {"expressions", "where"}:
            raise SqlglotError
    except RecursionError:
        return
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # sqlglot raises these for text that it does not expect, such as the number in "1eſ".
        error = PredicateError("this is not Spark SQL", text=text, position=start)
        raise NotSqlError(error) from None
    except SqlglotError as error:
        position, why = start, "this is not Spark SQL"
        if isinstance(error, ParseError) and error.errors:
            first = error.errors[0]
            detail = str(first.get("description") or "").rstrip(".")
            detail = "" if detail.startswith("Invalid expression") else detail
            why = "an expression is not complete" if "missing for" in detail else detail or why
            line, column = int(first.get("line") or 1), int(first.get("col") or 0)
            lines = (_PROBE + piece).splitlines(keepends=True)
            offset = (
                sum(map(len, lines[: line - 1])) + column - len(str(first.get("highlight") or ""))
            )
            position = start + min(max(offset - len(_PROBE), 0), len(piece))
        meant = _meant(text) or _as_a_name(piece)
        refused = PredicateError(why, text=text, position=position, hint=meant)
        raise NotSqlError(refused) from None


_CLAUSES = {"SELECT", "WHERE"}
_AFTER = re.compile(r"\s(LIMIT|ORDER\s+BY)\s+[\w`]", re.IGNORECASE)
# Several words, and what follows a column.
_COMPARED = re.compile(
    r"(?P<name>[^\W\d]\w*(?: +\w+)*?) *(?:[=<>!]|(?:IS|IN|LIKE|BETWEEN)\b)", re.IGNORECASE
)


def _as_a_name(piece: str) -> str | None:
    """A hint for a column whose name is a word of the grammar, or several words."""
    compared = _COMPARED.match(piece)
    name = "" if compared is None else compared["name"]
    if " " in name and not any(word.upper() in NOT_COLUMNS for word in name.split()):
        return f"a column whose name has blanks is written `{name}`, in backquotes"
    first = next(iter(piece.split()), "")
    if first.upper() not in NOT_COLUMNS - {"CASE", "EXISTS", "NOT"} | _CLAUSES:
        return None
    return f"{first} is a word of SQL: a column of this name is written `{first}`, in backquotes"


def _meant(text: str) -> str | None:
    """A hint for text of another language: how Spark SQL writes it."""
    first, compared = next(iter(text.split()), ""), _COMPARED.match(text.lstrip())
    if first.upper() in _CLAUSES and (compared is None or compared["name"] != first):
        return "give only the condition that follows WHERE"
    after = _AFTER.search(text)
    if after is not None:
        word = " ".join(after[1].upper().split())
        return f"{word} is not part of a condition: give order_by=…, limit=… (--order-by, --limit)"
    for other, sql in (("&&", "AND"), ("||", "OR"), ("&", "AND"), ("|", "OR")):
        if other in text:
            return f"write {sql} in place of {other}"
    return None
