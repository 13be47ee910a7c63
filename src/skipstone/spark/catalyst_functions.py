"""Translates Catalyst's functions.

``FUNCTIONS`` has those with the same arguments as the SQL function; the methods of
``FunctionReader`` translate the others. The result of an overflow depends on ANSI mode, which an
expression keeps from its analysis. A sum is read as one that may wrap around; a product is read
only if it fails.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.predicate.functions import BY_SPARK
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import (
    Call,
    Cast,
    ColumnRef,
    Comparison,
    Literal,
    Opaque,
    Operand,
    mapped,
)
from skipstone.predicate.typed import INTERVAL_TYPE, Interval
from skipstone.predicate.zones import DAY

from .literals import REPLACED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .session import JavaObject


# Catalyst's classes, each with the function's name in the predicate tree. Sums wrap around or fail:
# a range that wraps is correct for both.
_NAMES = """
Add:wrapping + Subtract:wrapping - UnaryMinus:wrapping negate Divide:/ Year:year TruncDate:trunc
TruncTimestamp:date_trunc DateAdd:date_add DateSub:date_sub AddMonths:add_months
UnixSeconds:unix_seconds UnixMillis:unix_millis UnixMicros:unix_micros UnixDate:unix_date
Substring:substr Upper:upper Lower:lower Concat:concat Coalesce:coalesce If:if Least:least
Greatest:greatest RLike:rlike Length:length StringTrim:trim StringTrimLeft:ltrim
StringTrimRight:rtrim Abs:abs Remainder:% Pmod:pmod IntegralDivide:div Quarter:quarter Month:month
DayOfMonth:day DayOfYear:dayofyear DayOfWeek:dayofweek WeekDay:weekday Hour:hour Minute:minute
Second:second DateDiff:datediff GetJsonObject:get_json_object RegExpExtract:regexp_extract
RegExpReplace:regexp_replace DateFormatClass:date_format InitCap:initcap Reverse:reverse
StringReplace:replace StringTranslate:translate SubstringIndex:substring_index StringLPad:lpad
StringRPad:rpad Md5:md5 Sha1:sha1 Sha2:sha2 Crc32:crc32
"""
FUNCTIONS = dict(each.split(":") for each in re.findall(r"\w+:(?:wrapping )?\S+", _NAMES))
_OF_TEXT = """
substr upper lower concat trim ltrim rtrim get_json_object regexp_extract regexp_replace date_format
initcap reverse replace translate substring_index lpad rpad md5 sha1 sha2
"""
_TEXTS = frozenset(_OF_TEXT.split())
# Functions whose meaning depends on a setting, and the values of the setting with the meaning of an
# index. Versions without the setting have another meaning.
_BY_SETTING = {
    "date_format": ("spark.sql.legacy.timeParserPolicy", ("corrected", "exception")),
    "initcap": ("spark.sql.icu.caseMappings.enabled", ("true",)),
}
# These depend on the setting of ``initcap`` too, in values that Spark computes; this engine does
# not decide texts with the letters concerned.
_CASES = frozenset({"upper", "lower"})


@dataclass(slots=True)
class Attribute:
    """An attribute or a field of it; ``type`` as in Spark's JSON."""

    path: tuple[str, ...]
    type: Any


@dataclass(slots=True)
class FunctionValue:
    """A function; ``type``, if known, is that of its value, or of the elements of a list."""

    call: Call
    type: pa.DataType | None


def _names(call: Call) -> set[str]:
    """The functions in a call."""
    found: set[str] = set()

    def note(operand: Operand) -> Operand:
        if isinstance(operand, Call):
            found.add(operand.name)
        return operand

    mapped(call, note)
    return found


class UnusableOperand(ValueError):
    """An operand that no index can use; its text is the reason."""


class FunctionReader(ABC):
    """The methods of ``catalyst._TreeReader`` for functions, by their class."""

    time_zone: str
    unusable: Mapping[tuple[str, ...], str]

    @abstractmethod
    def opaque(self, index: int, reason: str) -> Opaque: ...

    @abstractmethod
    def node_at(self, index: int) -> JavaObject: ...

    @abstractmethod
    def setting(self, name: str) -> str | None: ...

    @abstractmethod
    def argument(self, node: Any) -> Operand: ...

    @abstractmethod
    def type_of(self, node: Any) -> pa.DataType | None: ...

    @abstractmethod
    def atomic(self, type: Any) -> pa.DataType | None: ...

    def why_unusable(self, node: Attribute) -> str | None:
        paths = (node.path[: depth + 1] for depth in range(len(node.path)))
        return next((reason for path in paths if (reason := self.unusable.get(path))), None)

    def lists(self, node: Any) -> Operand:
        """A column of lists of atomic values, a side of a column of maps, or an array of literals;
        raises ``UnusableOperand``."""
        if isinstance(node, FunctionValue) and node.call.name in (
            "array",
            "map_keys",
            "map_values",
        ):
            return node.call
        if not isinstance(node, Attribute) or self.element_of(node.type) is None:
            raise UnusableOperand("no index can use such a list")
        if reason := self.why_unusable(node):
            raise UnusableOperand(reason)
        return ColumnRef(node.path)

    def element_of(self, type: Any) -> pa.DataType | None:
        """The type of the elements of a list of atomic values."""
        listed = isinstance(type, dict) and type.get("type") == "array"
        return self.atomic(type["elementType"]) if listed else None

    def widens_elements(self, node: Any, into: Any) -> bool:
        """Whether a cast of lists only makes integers wider."""
        have, wide = None, self.element_of(into)
        if isinstance(node, Attribute):
            have = self.element_of(node.type)
        elif isinstance(node, FunctionValue) and node.call.name in ("map_keys", "map_values"):
            have = node.type
        if have is None or wide is None or not pa.types.is_integer(have):
            return False
        return bool(pa.types.is_integer(wide) and have.bit_width <= wide.bit_width)

    def eval_mode(self, index: int) -> str:
        """What node ``index`` does on overflow: ANSI, LEGACY or TRY."""
        try:
            return str(self.node_at(index).evalMode().toString())
        except Exception as error:  # a version of Spark without it
            raise UnusableOperand(f"whether it fails on overflow is not known: {error}") from None

    def function(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        name = FUNCTIONS[str(node["class"]).rsplit(".", 1)[-1]]
        zone = node.get("timeZoneId")
        if zone is not None and zone != self.time_zone:
            return self.opaque(index, f"{name} in time zone {zone}, not the session's")
        call = Call(name, tuple(self.argument(child) for child in children))
        names = _names(call)
        changed = [each for each in (name,) if each in _BY_SETTING]
        if names & _CASES and names & BY_SPARK:
            changed.append("initcap")
        for setting, own in map(_BY_SETTING.__getitem__, changed):
            if (found := self.setting(setting)) not in own:
                return self.opaque(index, f"{setting} is {found or 'not there'}")
        return FunctionValue(call, pa.string() if name in _TEXTS else None)

    def _Multiply(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        if self.eval_mode(index) != "ANSI":
            return self.opaque(index, "without ANSI mode, a product wraps around")
        return FunctionValue(Call("*", tuple(self.argument(child) for child in children)), None)

    def _ArrayContains(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        lists, value = self.lists(children[0]), self.argument(children[1])
        return FunctionValue(Call("array_contains", (lists, value)), pa.bool_())

    def _ArraysOverlap(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        sides = tuple(self.lists(child) for child in children)
        return FunctionValue(Call("arrays_overlap", sides), pa.bool_())

    def _CreateArray(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        values = tuple(self.argument(child) for child in children)
        if not all(isinstance(value, Literal) for value in values):
            return self.opaque(index, "no index can use an array of other values than literals")
        return FunctionValue(Call("array", values), None)

    def literal_array(self, index: int, element: pa.DataType | None) -> Any:
        """An array of literals as its text spells them, each with its type."""
        t = pa.types
        if element is None or not any(
            each(element) for each in (t.is_string, t.is_integer, t.is_boolean, t.is_date)
        ):
            return self.opaque(index, "no index can use an array of such values")
        text = str(self.node_at(index).sql())
        found = getattr(parse_sql(text), "operand", None) if REPLACED not in text else None
        match found:
            case Call("array", values) if all(
                isinstance(value, Literal | Cast) for value in values
            ):
                return FunctionValue(found, None)
        return self.opaque(index, "no index can use such an array")

    def _MapKeys(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        (maps,) = children
        keys = str(node["class"]).endswith("MapKeys")
        if not isinstance(maps, Attribute) or not isinstance(maps.type, dict):
            return self.opaque(index, "no index can use such a map")
        element = self.atomic(maps.type.get("keyType" if keys else "valueType"))
        if element is None:
            return self.opaque(index, "no index can use such a map")
        if reason := self.why_unusable(maps):
            return self.opaque(index, reason)
        name = "map_keys" if keys else "map_values"
        return FunctionValue(Call(name, (ColumnRef(maps.path),)), element)

    _MapValues = _MapKeys

    def _NamedLambdaVariable(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        return Attribute(
            (f"{node['name']} of a lambda", json.dumps(node["exprId"])), node["dataType"]
        )

    def _LambdaFunction(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        return FunctionValue(
            Call("lambda", tuple(self.argument(child) for child in children)), None
        )

    def _ArrayExists(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        """``exists(list, x -> x = value)`` is ``array_contains(list, value)``."""
        lists, function = self.lists(children[0]), children[1]
        match getattr(function, "call", None):
            case Call("lambda", (Comparison("=", left, right), each)) if each in (left, right):
                value = right if left == each else left
            case _:
                return self.opaque(index, "no index can use exists of another test")
        nulls = str(node.get("followThreeValuedLogic")).lower() == "true"
        if not nulls or not isinstance(value, Literal) or value.value is None:
            return self.opaque(index, "no index can use exists of another test")
        return FunctionValue(Call("array_contains", (lists, value)), pa.bool_())

    def _CaseWhen(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        args = tuple(self.argument(child) for child in children)
        return FunctionValue(Call("case", args if len(args) % 2 else (*args, Literal(None))), None)

    def _UnixTimestamp(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        kind = self.type_of(children[0])
        zone = node.get("timeZoneId")
        if kind is None or pa.types.is_string(kind) or zone not in (None, self.time_zone):
            return self.opaque(index, "no index can use unix_timestamp of this")
        return FunctionValue(Call("unix_timestamp", (self.argument(children[0]),)), None)

    def moved(self, index: int, node: dict[str, Any], children: list[Any]) -> Any:
        """A date or timestamp plus an interval."""
        operand, amount = (self.argument(child) for child in children)
        zone = node.get("timeZoneId")
        if not isinstance(amount, Literal) or not isinstance(amount.value, int):
            return self.opaque(index, "an interval that is not a literal")
        if zone is not None and zone != self.time_zone:
            return self.opaque(index, f"a sum in time zone {zone}, not the session's")
        if amount.type == pa.int32():
            interval = Interval(months=amount.value)
        else:
            sign = -1 if amount.value < 0 else 1  # days are cut towards zero, as Java does
            days, micros = divmod(abs(amount.value), DAY)
            interval = Interval(0, sign * days, sign * micros, dates=False)
        return FunctionValue(Call("+", (operand, Literal(interval, INTERVAL_TYPE))), None)

    _DateAddYMInterval = _TimestampAddYMInterval = _TimestampAddInterval = _TimeAdd = moved
