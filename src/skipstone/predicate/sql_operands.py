"""Parses the operands of ``sql.py``: columns, literals, casts, arithmetic, CASE and the functions
in ``functions.py``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import PredicateError

from .lexer import Token, TokenKind, UnknownFormError, number, tokenize, typed_literal
from .tree import Call, Cast, ColumnRef, Comparison, Literal, Truth
from .types import MapKey, parse_type
from .zones import DAY, HOUR, SECOND

if TYPE_CHECKING:
    from .tree import Expr, Operand


_GRAMMAR = """
AND ANY AS BETWEEN CASE DISTINCT ELSE END ESCAPE EXISTS FALSE FROM ILIKE IN INTERVAL IS LIKE NOT
NULL OR REGEXP RLIKE SELECT THEN TRUE WHEN WHERE
"""
#: words that are columns only in backquotes
NOT_COLUMNS = frozenset(_GRAMMAR.split())
_TYPES = """
BIGINT BINARY BOOLEAN DATE DOUBLE FLOAT INT SMALLINT STRING TIMESTAMP TINYINT
"""
_CAST_FUNCTIONS = frozenset(_TYPES.split())
DEEPEST = 64
# How tightly operators bind.
_LEVELS = {"+": 0, "-": 0, "||": 0, "*": 1, "/": 1, "%": 1, "DIV": 1}
_INTERVAL = re.compile(r"\s*([+-]?\d{1,9})(?:\.(\d{1,6}))?\s*", re.ASCII)
# Months, or microseconds.
_UNITS = {
    "YEAR": 12,
    "MONTH": 1,
    "WEEK": 7 * DAY,
    "DAY": DAY,
    "HOUR": HOUR,
    "MINUTE": 60 * SECOND,
    "SECOND": SECOND,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}
# Spark's other functions: their names, then beginnings of names.
_OF_SPARK = """
acos acosh aes_decrypt aes_encrypt aggregate all any_value array array_agg array_append
array_compact array_distinct array_except array_insert array_intersect array_join array_max
array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union
arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh avg base64 bin bit_and
bit_count bit_get bit_length bit_or bit_xor bool_and bool_or bround cast cbrt ceil ceiling char chr
collate collation collations collect_list collect_set collect_union concat_ws conv convert_timezone
corr cos cosh cot count count_if count_min_sketch counter_diff covar_pop covar_samp crc32 csc
cume_dist curdate current_catalog current_database current_date current_path current_schema
current_time current_timestamp current_timezone current_user date_format date_from_unix_date
date_part datepart dayname decimal decode degrees dense_rank e elt encode equal_null every exp
explode explode_outer expm1 extract factorial filter find_in_set first first_value flatten floor
forall format_number format_string from_avro from_base32 from_csv from_json from_protobuf
from_unixtime from_utc_timestamp from_xml get get_json_object getbit grouping grouping_id hash hex
histogram_numeric hmac hypot identifier initcap inline inline_outer input_file_block_length
input_file_block_start input_file_name instr is_valid_utf8 is_valid_variant is_variant_null
jaro_winkler_similarity java_method json_array_length json_object_keys json_tuple kurtosis lag last
last_day last_value lead levenshtein listagg ln localtime localtimestamp locate log log10 log1p log2
lpad luhn_check make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz
make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries
map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with mask max max_by md5
mean measure median min min_by mode monotonically_increasing_id monthname months_between
named_struct nanvl next_day now nth_value ntile nullifzero octet_length overlay parse_json parse_url
percent_rank percentile pi posexplode posexplode_outer position positive pow power printf
python_worker_logs quote radians raise_error rand randn random randstr range rank reduce reflect
regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr repeat
replace reverse rint round row_number rpad schema_of_avro schema_of_csv schema_of_json
schema_of_variant schema_of_variant_agg schema_of_xml sec sentences sequence session_user
session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned shuffle sign signum sin sinh
skewness slice some sort_array soundex space spark_partition_id split split_part sql_keywords sqrt
stack std stddev stddev_pop stddev_samp str_to_map string_agg struct substring_index sum tan tanh
time time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros
time_to_millis time_to_seconds time_trunc timestamp_micros timestamp_millis timestamp_nanos
timestamp_seconds timestampadd timestampdiff to_avro to_base32 to_binary to_char to_csv to_json
to_number to_protobuf to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
to_utc_timestamp to_varchar to_variant_object to_xml transform transform_keys transform_values
translate try_add try_aes_decrypt try_avg try_cast try_divide try_element_at try_make_interval
try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json
try_parse_url try_reflect try_subtract try_sum try_to_binary try_to_date try_to_number try_to_time
try_to_timestamp try_url_decode try_validate_utf8 try_variant_array_append try_variant_get
try_variant_insert try_variant_set typeof unbase64 unhex uniform unix_nanos unnest url_decode
url_encode user uuid validate_utf8 values var_pop var_samp variance version weekofyear width_bucket
window window_time xxhash64 zeroifnull zip_with
"""
_FAMILIES = (
    *("approx_", "bitmap_", "hll_", "kll_", "percentile_", "regr_", "st_", "theta_", "tuple_"),
    *("variant_", "vector_", "xpath"),
)


class OperandParser:
    """Tokens, and the operands among them."""

    def __init__(self, text: str, any_function: bool) -> None:
        self.text, self.tokens, self.at = text, tokenize(text), 0
        self.any_function = any_function
        self.depth = 0
        # The words that end the present condition, besides AND, OR and a closing parenthesis.
        self.stops: list[frozenset[str]] = [frozenset()]

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
        """The next string, in places where Spark joins no neighbours."""
        if self.peek(1).kind is TokenKind.STRING:
            raise UnknownFormError("several strings where Spark takes one")
        return self.string()

    def at_end(self) -> bool:
        """True where a predicate ends: at AND, OR, a closing parenthesis, or the text's end."""
        token = self.peek()
        if token.kind is TokenKind.NAME:
            return token.text in ("AND", "OR") or token.text in self.stops[-1]
        return token.kind is TokenKind.END or (
            token.kind is TokenKind.SYMBOL and (token.text == ")" or token.text in self.stops[-1])
        )

    # -- operands ---------------------------------------------------------------------------------

    def condition(self) -> Expr:
        raise NotImplementedError

    def value(self, *stops: str) -> Operand:
        """An operand or a condition, up to one of ``stops``."""
        if self.depth >= DEEPEST:
            raise UnknownFormError("nested too deeply")
        self.depth += 1
        self.stops.append(frozenset(stops))
        try:
            found = self.condition()
        finally:
            self.depth -= 1
            self.stops.pop()
        return found.operand if isinstance(found, Truth) else found

    def operand(self, level: int = 0) -> Operand:
        """An operand whose operators bind as tightly as ``level`` at least."""
        found = self.unary()
        while True:
            token = self.peek()
            if token.kind is not TokenKind.SYMBOL and token.text != "DIV":
                return found
            mine = _LEVELS.get(token.text, -1)
            if mine < level:
                return found
            self.at += 1
            name = "concat" if token.text == "||" else token.text.lower()
            found = Call(name, (found, self.operand(mine + 1)))

    def unary(self) -> Operand:
        signs = 0
        while (
            self.peek().kind is TokenKind.SYMBOL
            and self.peek().text in ("-", "+")
            and self.peek(1).kind is not TokenKind.NUMBER
        ):
            signs += self.next().text == "-"
            if signs > DEEPEST:
                raise UnknownFormError("nested too deeply")
        found = self.primary()
        while self.symbol("::"):
            found = Cast(found, self.type_name())
        for _ in range(signs):
            found = Call("negate", (found,))
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
                return self.number(self.next(), negative=token.text == "-")
            case TokenKind.SYMBOL if token.text == "(":
                found = self.value()
                self.expect(")")
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
            case "CAST" | "TRY_CAST" if self.symbol("("):
                found = self.value("AS")
                if not self.word("AS"):
                    raise UnknownFormError("CAST of an expression")
                target = self.type_name()
                self.expect(")")
                return Cast(found, target, token.text == "TRY_CAST")
            case "CASE":
                return self.case()
            case "INTERVAL" if after.kind in (TokenKind.STRING, TokenKind.NUMBER) or (
                after.text == "-"
            ):
                return self.interval()
            case "EXTRACT" if self.symbol("("):
                field = self.next()
                if not self.word("FROM"):
                    raise UnknownFormError("EXTRACT of something else than a field")
                found = self.value()
                self.expect(")")
                return self.call(field, (found,))
            case "DATE" | "TIMESTAMP" | "TIMESTAMP_LTZ" | "TIMESTAMP_NTZ" | "X" if (
                after.kind is TokenKind.STRING
            ):
                return typed_literal(token.text, self.single_string())
            case name if name in _CAST_FUNCTIONS and self.symbol("("):
                found = self.value()
                self.expect(")")
                return Cast(found, parse_type(name))
            case name if name in NOT_COLUMNS and after.text != "(":
                raise UnknownFormError(f"{token.value} starts an expression that no index supports")
        return self.column(token)

    def column(self, token: Token) -> Operand:
        path = [token.value]
        while self.peek().text == "." and self.peek(1).kind in (TokenKind.NAME, TokenKind.QUOTED):
            self.at += 1
            path.append(self.next().value)
        if self.peek().text == "[" and self.peek(1).kind is TokenKind.STRING and path:
            self.at += 1
            path.append(MapKey(self.string()))
            self.expect("]")
        elif self.symbol("["):
            found = ColumnRef(tuple(path), token.start)
            key = self.value("]")
            self.expect("]")
            return Call("subscript", (found, key))
        after = self.peek()
        if after.text == "(" and len(path) == 1 and token.kind is TokenKind.NAME:
            return self.call(token, None)
        if after.kind is TokenKind.SYMBOL and after.text in ("(", ".", "["):
            what = f"function {'.'.join(path)}" if after.text == "(" else "an element of a column"
            raise UnknownFormError(f"{what} is left to Spark")
        if after.kind is TokenKind.STRING:
            raise UnknownFormError(f"a literal of type {path[0]}")
        return ColumnRef(tuple(path), token.start)

    def call(self, token: Token, args: tuple[Operand, ...] | None) -> Operand:
        """A function; with ``args`` ``None``, these follow in parentheses."""
        from .functions import FUNCTIONS, WRITTEN_OTHERWISE

        name = token.text.lower()
        if name == "exists" and any(each.text == "->" for each in self.tokens[self.at :]):
            return self.exists()
        if name not in FUNCTIONS or name in WRITTEN_OTHERWISE:
            raise self.unknown(token, sorted({*FUNCTIONS} - WRITTEN_OTHERWISE), args is None)
        if args is None:
            found: list[Operand] = []
            self.expect("(")
            while not self.symbol(")"):
                if found:
                    self.expect(",")
                found.append(self.value(","))
            args = tuple(found)
        if name in ("like", "ilike") and len(args) == 2:
            args += (Literal("\\", pa.string()),)
        return Call(name, args)

    def exists(self) -> Operand:
        """``exists(list, x -> x = value)``, which is ``array_contains(list, value)``."""
        self.expect("(")
        lists = self.value(",")
        self.expect(",")
        variable = self.next().value.lower()
        self.expect("->")
        test = self.condition()
        self.expect(")")
        match test:
            case Comparison("=" | "==", ColumnRef((name,)), Literal() as value) | Comparison(
                "=" | "==", Literal() as value, ColumnRef((name,))
            ) if name.lower() == variable and value.value is not None:
                return Call("array_contains", (lists, value))
            case _:
                raise UnknownFormError("only Spark computes exists of another test than x = value")

    def unknown(self, token: Token, ours: list[str], called: bool) -> Exception:
        """The error for a function that is not in ``functions.py``."""
        name = token.text.lower()
        theirs = sorted({*_OF_SPARK.split(), *(type.lower() for type in _CAST_FUNCTIONS)})
        is_word = token.text in NOT_COLUMNS or not called
        if name in theirs or name.startswith(_FAMILIES) or is_word:
            return UnknownFormError(
                f"only Spark computes {name} (see the documentation, on expressions)"
            )
        if self.any_function:
            return UnknownFormError(f"{name} is not a function of Spark; the session may define it")
        from difflib import get_close_matches

        near = next(filter(None, (get_close_matches(name, x, 1, 0.7) for x in (ours, theirs))), [])
        return PredicateError(
            f"no function {name}",
            text=self.text,
            position=token.start,
            nearest=near[0] if near else None,
            hint=None
            if near
            else "the documentation, on expressions, lists the functions; those of a session are"
            " Spark's alone: Table.read(spark, where)",
        )

    def case(self) -> Operand:
        """CASE, after the word."""
        subject = None if self.word("WHEN") else self.value("WHEN")
        if subject is not None and not self.word("WHEN"):
            raise UnknownFormError("CASE without WHEN")
        args: list[Operand] = []
        while True:
            asked = self.value("THEN")
            if not self.word("THEN"):
                raise UnknownFormError("WHEN without THEN")
            args.append(asked if subject is None else Comparison("=", subject, asked))
            args.append(self.value("WHEN", "ELSE", "END"))
            if not self.word("WHEN"):
                break
        args.append(self.value("END") if self.word("ELSE") else Literal(None))
        if not self.word("END"):
            raise UnknownFormError("CASE without END")
        return Call("case", tuple(args))

    def interval(self) -> Operand:
        """An interval literal, after the word: numbers with units."""
        from .typed import INTERVAL_TYPE, Interval

        months, micros, dates, units = 0, 0, True, 0
        while True:
            sign = -1 if self.symbol("-") else 1
            token = self.peek()
            if units and token.kind not in (TokenKind.NUMBER, TokenKind.STRING):
                break
            number = _INTERVAL.fullmatch(self.next().value)
            unit = self.next().text.removesuffix("S")
            size = _UNITS.get(unit)
            if number is None or size is None or (number[2] and unit != "SECOND"):
                raise UnknownFormError("an interval that is not a number with a unit")
            count = sign * int(number[1] + (number[2] or "").ljust(6, "0") * (unit == "SECOND"))
            units += 1
            if unit in ("YEAR", "MONTH"):
                months += count * size
            else:
                micros += count * (1 if unit == "SECOND" else size)
                dates &= unit in ("DAY", "WEEK")
        if self.peek().text == "TO" or (months and micros):
            raise UnknownFormError("an interval of several kinds of units")
        days, micros = divmod(micros, DAY) if micros >= 0 else (0, micros)
        if micros < 0:
            days, micros = -(-micros // DAY), -(-micros % DAY)
        return Literal(Interval(months, days, micros, dates), INTERVAL_TYPE)

    def type_name(self) -> pa.DataType | None:
        """The type that is named next; ``None`` for a type that no index supports."""
        first = self.next()
        if first.kind is not TokenKind.NAME:
            raise UnknownFormError("a type is expected")
        if self.symbol("("):
            while not self.symbol(")"):
                if self.peek().kind not in (TokenKind.NUMBER, TokenKind.SYMBOL):
                    raise UnknownFormError(f"a cast to {first.value}(…)")
                self.at += 1
        last = self.tokens[self.at - 1]
        if self.peek().kind is TokenKind.NAME and self.peek().text == "COLLATE":
            raise UnknownFormError("a cast to a string with a collation")
        return parse_type(self.text[first.start : last.end])
