"""``parse_sql``: a Spark SQL condition as the tree as written.

This parser reads the boolean skeleton and the forms that an index can use, with Spark's literals
(``lexer.py``) and with every position. Everything else between AND, OR, NOT and parentheses becomes
one ``Opaque`` with its own text. For such a piece ``sqlglot`` checks that it is Spark SQL at all:
functions, CASE, lambdas and subqueries have a grammar far larger than this one, and a misprint in
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

from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import PredicateError

from .lexer import Token, TokenKind, UnknownFormError, fold_casts, number, tokenize, typed_literal
from .tree import (
    And,
    Cast,
    ColumnRef,
    Comparison,
    Expr,
    Literal,
    Membership,
    Not,
    NullTest,
    Opaque,
    Operand,
    Or,
    PatternMatch,
    Truth,
)
from .types import TIMESTAMP, TIMESTAMP_NTZ, MapKey, parse_type
from .zones import parse_local

if TYPE_CHECKING:
    from collections.abc import Callable


_COMPARISONS = frozenset({"=", "<=>", "<>", "<", "<=", ">", ">="})
_GRAMMAR = """
AND ANY AS BETWEEN CASE DISTINCT ELSE END ESCAPE EXISTS FALSE FROM ILIKE IN INTERVAL IS LIKE NOT
NULL OR REGEXP RLIKE SELECT THEN TRUE WHEN WHERE
"""
_NOT_COLUMNS = frozenset(_GRAMMAR.split())
_TYPES = """
BIGINT BINARY BOOLEAN DATE DOUBLE FLOAT INT SMALLINT STRING TIMESTAMP TINYINT
"""
_CAST_FUNCTIONS = frozenset(_TYPES.split())
_DEEPEST = 64


def parse_sql(text: str, *, timestamp_ntz: bool = False) -> Expr:
    """The tree of a condition; ``PredicateError`` with its position if it is not a SQL condition.

    ``timestamp_ntz`` where ``spark.sql.timestampType`` is TIMESTAMP_NTZ. Otherwise the text is read
    as under Spark's defaults (double quotes are strings, backslashes escape).
    """
    parser = _Parser(text, timestamp_ntz)
    try:
        tree = parser.condition(0)
    except NotSqlError as refused:
        raise refused.error from None
    end = parser.peek()
    if end.kind is not TokenKind.END:
        raise PredicateError(f"unexpected {end.value!r}", text=text, position=end.start)
    return tree


class _Parser:
    def __init__(self, text: str, timestamp_ntz: bool) -> None:
        self.text, self.tokens, self.at = text, tokenize(text), 0
        self.timestamp = TIMESTAMP_NTZ if timestamp_ntz else TIMESTAMP
        self.depth = 0

    # -- tokens -----------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    def word(self, *words: str) -> bool:
        """Consume these keywords if they are next."""
        for ahead, word in enumerate(words):
            token = self.peek(ahead)
            if token.kind is not TokenKind.NAME or token.text != word:
                return False
        self.at += len(words)
        return True

    def symbol(self, symbol: str) -> bool:
        """Consume this symbol if it is next."""
        token = self.peek()
        found = token.kind is TokenKind.SYMBOL and token.text == symbol
        self.at += found
        return found

    def expect(self, symbol: str) -> None:
        if not self.symbol(symbol):
            raise UnknownFormError(f"{symbol!r} is expected before {self.peek().value!r}")

    def string(self) -> str:
        """The next string, joined with its neighbours as in Spark."""
        if self.peek().kind is not TokenKind.STRING:
            raise UnknownFormError("a string literal is expected")
        parts = [self.next().value]
        while self.peek().kind is TokenKind.STRING:
            parts.append(self.next().value)
        return "".join(parts)

    def single_string(self) -> str:
        """The next string, where Spark joins no neighbours."""
        if self.peek(1).kind is TokenKind.STRING:
            raise UnknownFormError("several strings where Spark takes one")
        return self.string()

    def at_end(self) -> bool:
        """True where a predicate ends: at AND, OR, a closing parenthesis, or the text's end."""
        token = self.peek()
        if token.kind is TokenKind.NAME:
            return token.text in ("AND", "OR")
        return token.kind is TokenKind.END or (token.kind is TokenKind.SYMBOL and token.text == ")")

    # -- the boolean skeleton ----------------------------------------------------------------------

    def condition(self, depth: int) -> Expr:
        parts = [self.conjunct(depth)]
        while self.word("OR"):
            parts.append(self.conjunct(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def conjunct(self, depth: int) -> Expr:
        parts = [self.factor(depth)]
        while self.word("AND"):
            parts.append(self.factor(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def factor(self, depth: int) -> Expr:
        negated = False
        while self.word("NOT") or self.symbol("!"):
            negated = not negated
        found = self.atom(depth)
        return Not(found) if negated else found

    def atom(self, depth: int) -> Expr:
        start = self.at
        reason = "nested too deeply"
        inner: NotSqlError | None = None
        if depth <= _DEEPEST:
            attempts: list[Callable[[], Expr]] = [self.predicate]
            if self.peek().text == "(" and self.peek().kind is TokenKind.SYMBOL:
                attempts.append(lambda: self.group(depth))
            for attempt in attempts:
                self.at = start
                try:
                    found = attempt()
                    if self.at_end():
                        return found
                    reason = "an expression that no index supports"
                except UnknownFormError as unknown:
                    reason = str(unknown)
                except NotSqlError as refused:
                    inner = refused
        self.at = start
        try:
            return self.opaque(reason)
        except NotSqlError as refused:
            raise inner or refused from None

    def group(self, depth: int) -> Expr:
        self.expect("(")
        found = self.condition(depth + 1)
        self.expect(")")
        return found

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
            elif not nested and text in ("AND", "OR", ")"):
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
        if self.peek().text == "STARTSWITH" and self.peek(1).text == "(":
            return self.starts_with()
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
        elif negated:
            raise UnknownFormError(f"NOT {self.peek().value} is a predicate that no index supports")
        else:
            return Truth(left)
        return Not(found) if negated else found

    def starts_with(self) -> Expr:
        self.at += 2
        operand = self.operand()
        self.expect(",")
        if self.word("NULL"):
            self.expect(")")
            return Truth(Literal(None))
        prefix = self.string()
        self.expect(")")
        return PatternMatch(operand, prefix, prefix_only=True)

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

    def listed(self) -> tuple[Literal, ...]:
        self.expect("(")
        values: list[Literal] = []
        while True:
            values.append(fold_casts(self.operand()))
            if not self.symbol(","):
                break
        self.expect(")")
        return tuple(values)

    def like(self, left: Operand) -> Expr:
        if self.word("NULL"):
            return Truth(Literal(None))
        pattern, escape = self.string(), "\\"
        if self.word("ESCAPE"):
            escape = self.single_string()
            if len(escape) != 1 or ord(escape) > 0xFFFF:
                raise UnknownFormError("an escape that is not one character")
        return PatternMatch(left, pattern, escape)

    # -- operands ---------------------------------------------------------------------------------

    def operand(self) -> Operand:
        found = self.primary()
        while self.symbol("::"):
            found = Cast(found, self.type_name())
        return found

    def primary(self) -> Operand:
        token = self.next()
        match token.kind:
            case TokenKind.STRING:
                self.at -= 1
                return Literal(self.string(), pa.string())
            case TokenKind.NUMBER:
                return self.number(token, negative=False)
            case TokenKind.QUOTED:
                return self.column(token)
            case TokenKind.NAME:
                return self.named(token)
            case TokenKind.SYMBOL if token.text in ("-", "+"):
                if self.peek().kind is TokenKind.NUMBER:
                    return self.number(self.next(), negative=token.text == "-")
            case TokenKind.SYMBOL if token.text == "(" and self.depth < _DEEPEST:
                self.depth += 1
                try:
                    found = self.operand()
                    self.expect(")")
                finally:
                    self.depth -= 1
                return found
            case _:
                pass
        raise UnknownFormError("an expression that no index supports")

    def number(self, token: Token, *, negative: bool) -> Literal:
        found = number(token.text, negative=negative)
        if found is None:
            raise PredicateError(
                f"{token.value} is out of the range of its type",
                text=self.text,
                position=token.start,
            )
        return found

    def named(self, token: Token) -> Operand:
        after = self.peek()
        match token.text:
            case "TRUE" | "FALSE":
                return Literal(token.text == "TRUE", pa.bool_())
            case "NULL":
                return Literal(None)
            case "CAST" if self.symbol("("):
                found = self.operand()
                if not self.word("AS"):
                    raise UnknownFormError("CAST of an expression")
                target = self.type_name()
                self.expect(")")
                return Cast(found, target)
            case "DATE" | "TIMESTAMP" | "TIMESTAMP_LTZ" | "TIMESTAMP_NTZ" | "X" if (
                after.kind is TokenKind.STRING
            ):
                return self.typed_literal(token.text, self.single_string())
            case name if name in _CAST_FUNCTIONS and self.symbol("("):
                found = self.operand()
                self.expect(")")
                return Cast(found, self.timestamp if name == "TIMESTAMP" else parse_type(name))
            case name if name in _NOT_COLUMNS:
                raise UnknownFormError(f"{token.value} starts an expression that no index supports")
        return self.column(token)

    def column(self, token: Token) -> ColumnRef:
        path = [token.value]
        while self.peek().text == "." and self.peek(1).kind in (TokenKind.NAME, TokenKind.QUOTED):
            self.at += 1
            path.append(self.next().value)
        if self.peek().text == "[" and self.peek(1).kind is TokenKind.STRING and path:
            self.at += 1
            path.append(MapKey(self.string()))
            self.expect("]")
        after = self.peek()
        if after.kind is TokenKind.SYMBOL and after.text in ("(", ".", "["):
            what = f"function {'.'.join(path)}" if after.text == "(" else "an element of a column"
            raise UnknownFormError(f"{what} is not supported by any index")
        if after.kind is TokenKind.STRING:
            raise UnknownFormError(f"a literal of type {path[0]}")
        return ColumnRef(tuple(path), token.start)

    def type_name(self) -> pa.DataType | None:
        """The type that is named next; ``None`` for a type that no index supports."""
        first = self.next()
        if first.kind is not TokenKind.NAME:
            raise UnknownFormError("a type is expected")
        last = first
        if self.symbol("("):
            while not self.symbol(")"):
                if self.peek().kind not in (TokenKind.NUMBER, TokenKind.SYMBOL):
                    raise UnknownFormError(f"a cast to {first.value}(…)")
                self.at += 1
        last = self.tokens[self.at - 1]
        if self.peek().kind is TokenKind.NAME and self.peek().text == "COLLATE":
            raise UnknownFormError("a cast to a string with a collation")
        if first is last and first.text == "TIMESTAMP":
            return self.timestamp
        return parse_type(self.text[first.start : last.end])

    def typed_literal(self, name: str, text: str) -> Literal:
        """``name 'text'``; a TIMESTAMP with a zone in the text is always an instant."""
        if name == "TIMESTAMP" and self.timestamp == TIMESTAMP_NTZ:
            local = parse_local(text)
            if local is not None:
                return Literal(local, TIMESTAMP_NTZ)
        return typed_literal(name, text)


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
            said = str(first.get("description") or "").rstrip(".")
            why = "an expression is not complete" if "missing for" in said else said or why
            line, column = int(first.get("line") or 1), int(first.get("col") or 0)
            lines = (_PROBE + piece).splitlines(keepends=True)
            offset = (
                sum(map(len, lines[: line - 1])) + column - len(str(first.get("highlight") or ""))
            )
            position = start + min(max(offset - len(_PROBE), 0), len(piece))
        meant = _meant(text) or _as_a_name(piece)
        refused = PredicateError(why, text=text, position=position, hint=meant)
        raise NotSqlError(refused) from None


def _as_a_name(piece: str) -> str | None:
    """How a column is written whose name is a word of the grammar."""
    first = next(iter(piece.split()), "")
    if first.upper() not in _NOT_COLUMNS - {"CASE", "EXISTS", "NOT"}:
        return None
    return f"{first} is a word of SQL: a column of this name is written `{first}`, in backquotes"


def _meant(text: str) -> str | None:
    """How a text of another language is written as a condition of Spark SQL."""
    if text.lstrip().lower().startswith(("select ", "where ")):
        return "give only the condition that follows WHERE"
    for other, sql in (("&&", "AND"), ("||", "OR"), ("&", "AND"), ("|", "OR")):
        if other in text:
            return f"write {sql} in place of {other}"
    return None
