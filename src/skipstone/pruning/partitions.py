"""Hive-style partition values as evidence: ``…/dt=2024-01-01/p=a%2Fb/part-0.parquet``.

The values come from the path alone, so they hold for files without facts too, and they are exact:
every row of the file has the value. Names and texts are unescaped as Spark does (``%XX`` is the
character of that number, not a byte of UTF-8), and ``__HIVE_DEFAULT_PARTITION__`` is NULL.

**Types** are those of Spark's ``PartitioningUtils``. It takes the first type that reads a value as
it is written in the path, before unescaping:

    int, bigint     Integer.parseInt, Long.parseLong: digits of any script
    decimal(p, 0)   new BigDecimal, if no digit is left after the point: 1e3, 10., 1.5e1; p <= 38
    double          Double.parseDouble: blanks around it, 1d, 0x1p3, NaN, Infinity
    timestamp       yyyy-MM-dd HH:mm:ss, with a point and one digit or without, unescaped
    date            yyyy-MM-dd
    time            HH:mm:ss, with up to six digits after a point, unescaped (from Spark 4.1 on)
    string          everything else

and then the widest type of all values of a column: int, bigint and decimal widen in this order; int
and double are double; date and timestamp are timestamp; every other mixture is a string (bigint
with double is one: 1, 2.5 and 1e3 too). The value of a timestamp depends on the session's zone, and
a time on Spark's version, so such a column says nothing here. A column that is NULL everywhere is a
string here, and void in Spark.

**Which files are part of a table** depends on its folders, too (``files_of_table``). Spark goes up
from each folder with files, and takes ``name=value`` folders until it meets another folder above
one of them, or the root. There the partition folders of the table begin, for all files at the same
place and with the same columns. If any folder is a partition folder, files outside of them are not
part of the table; if none is, files below the root's own are not. ``recursiveFileLookup`` takes all
files, and no folder for a partition.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, validity
from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.human import plural
from skipstone.predicate.literals import order_keys
from skipstone.predicate.zones import civil_day
from skipstone.storage.listing import Folders

from . import Answer, BaseEvidence, Cause, Fetched, Level, Units
from .interval import Intervals, interval_bounds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.storage import Listing


NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
#: the option of Spark's readers for all files below, without partition columns
RECURSIVE: Final = "recursiveFileLookup"
#: the same as an argument of ``Table`` and on the command line
READ_ALL: Final = "recursive_file_lookup=True (--recursive-file-lookup)"
# Java's Integer and BigDecimal take the digits of all scripts, its Double and its dates do not.
_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?(\d*)|\.(\d+))(?:[eE]([+-]?\d+))?")
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?"
)
_DATE = re.compile(r"([0-9]{4}|\+[0-9]{5,6}|-(?!0000)[0-9]{4,6})-([0-9]{2})-([0-9]{2})")
_HOURS = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_TIMESTAMP = re.compile(f"(.+) {_HOURS}(?:\\.[0-9])?", re.DOTALL)
_TIME = re.compile(f"{_HOURS}(?:\\.[0-9]{{1,6}})?")
_PLAIN_DATE = re.compile(r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}")
# Digits of numbers that surely fit 32 bits.
_SMALL = 9
_BLANK = "".join(map(chr, range(0x21)))
# Years whose microseconds fit 64 bits.
_LAST_YEAR = 294_246


@dataclass(frozen=True, slots=True, eq=False)
class PartitionColumns:
    """The partition columns of a listing: ``values`` is one Arrow array ``(files,)`` per column."""

    values: Mapping[str, pa.Array]

    @classmethod
    def of(cls, listing: Listing) -> PartitionColumns:
        """The partition columns of the files of a table (``files_of_table``)."""
        if listing.folder_values is not None:
            return cls(listing.folder_values)
        return cls({}) if listing.recursive else cls._of(listing.folders, {})

    @classmethod
    def of_values(
        cls,
        texts: Mapping[str, Sequence[str | None]],
        types: Mapping[str, pa.DataType],
        of_file: NDArray[np.int64],
    ) -> PartitionColumns:
        """Columns by the values of some partitions, as a catalog has them, in the types ``types``;
        ``of_file`` is the ordinal of each file's partition."""
        escaped = {
            name: [None if text is None else text.replace("%", "%25") for text in values]
            for name, values in texts.items()
        }
        return cls({name: _typed(escaped[name], types[name]).take(of_file) for name in texts})

    @classmethod
    def of_paths(
        cls, root: str, paths: Sequence[str], types: Mapping[str, pa.DataType] | None = None
    ) -> PartitionColumns:
        """The partition columns of the folders between ``root`` and each of ``paths``.

        ``types`` are the known types of partition columns (Spark's partition schema); others are
        inferred. If the paths have different columns, there are no partition columns.
        """
        return cls._of(Folders.of(root, paths), types or {})

    @classmethod
    def _of(cls, folders: Folders, types: Mapping[str, pa.DataType]) -> PartitionColumns:
        parsed = (
            [_pairs(name)[1] for name in folders.names] if "=" in "".join(folders.names) else []
        )
        if not parsed or any(each.keys() != parsed[0].keys() for each in parsed):
            return cls({})
        names = {name.lower(): name for name in types}
        columns = {}
        for key, (spelled, _) in parsed[0].items():
            texts = [None if each[key][1] == NULL_VALUE else each[key][1] for each in parsed]
            name = names.get(key, spelled)
            columns[name] = _typed(texts, types.get(name)).take(folders.of_file)
        return cls(columns)

    def added_to(self, schema: pa.Schema) -> pa.Schema:
        """``schema`` of the files with these columns, in Spark's order: a column that the files
        have too is in its place there, with the folders' type and values; the others are last."""
        if not self.values:
            return schema.remove_metadata()
        folders = {
            name.lower(): pa.field(name, values.type) for name, values in self.values.items()
        }
        names = [field.name.lower() for field in schema]
        placed = {names.index(name): field for name, field in folders.items() if name in names}
        fields = [
            placed.get(at, field)
            for at, (name, field) in enumerate(zip(names, schema, strict=True))
            if at in placed or name not in folders
        ]
        return pa.schema([*fields, *(each for name, each in folders.items() if name not in names)])

    def evidence(self, columns: frozenset[str]) -> list[PartitionValues]:
        """Evidence for those of ``columns`` that are partition columns."""
        return [
            PartitionValues(name, values) for name, values in self.values.items() if name in columns
        ]


_Pairs: TypeAlias = "dict[str, tuple[str, str]]"


def _pairs(folder: str, *, strict: bool = False) -> tuple[str, _Pairs]:
    """Where the partition folders above and in ``folder`` begin, and from there the spelling and
    the value of each partition column, by its name in lower case.

    As in Spark, the search starts at the bottom and ends at a folder without ``=``: folders above
    that are not partition columns. With ``strict`` a folder that Spark refuses is a ``ValueError``.
    """
    found: list[tuple[str, tuple[str, str]]] = []
    above = folder.strip("/")
    while above:
        rest, _, segment = above.rpartition("/")
        escaped, equals, value = segment.partition("=")
        if strict and equals and not (escaped and value):
            what = "value after" if escaped else "name before"
            raise ValueError(f"there is no {what} '=' in {segment!r}")
        if equals and escaped:
            name = _unescaped(escaped)
            found.append((name.lower(), (name, value)))
        elif found:
            break
        above = rest
    pairs = dict(reversed(found))
    if strict and len(pairs) < len(found):
        raise ValueError("two of its levels are the same column")
    return above if found else folder.strip("/"), pairs


def folder_columns(root: str, paths: Sequence[str]) -> list[frozenset[str]]:
    """For each file the names, in lower case, of the partition columns of its folders."""
    folders = Folders.of(root, paths)
    names = [frozenset(_pairs(folder)[1]) for folder in folders.names]
    return [names[at] for at in folders.of_file.tolist()]


def lookup_of(options: Mapping[str, str]) -> bool | None:
    """The value of ``recursiveFileLookup`` in a reader's ``options``; ``None`` if it is not set."""
    said = {key.lower(): value for key, value in options.items()}.get(RECURSIVE.lower())
    return None if said is None else str(said).strip().lower() == "true"


def files_of_table(listing: Listing) -> Listing:
    """The files of ``listing``, all files below a root, that Spark reads as the table; see above.

    ``outside`` of the result counts the others. ``SkipstoneError`` where Spark reads nothing: for
    folders that contradict each other, and where no file is part of the table.
    """
    folders, root = listing.folders, listing.root
    if folders.names in ([], [""]):
        return listing
    begins: list[str] = []
    parsed: list[_Pairs] = []
    for folder in folders.names:
        try:
            begin, pairs = _pairs(folder, strict=True)
        except ValueError as error:
            raise _refused(f"{root}/{folder} is not a partition folder: {error}") from None
        begins.append(begin.lower())
        parsed.append(pairs)
    below = np.array([bool(pairs) for pairs in parsed])
    if below.any():
        one = int(below.argmax())
        columns = list(parsed[one])
        for other, (begin, pairs) in enumerate(zip(begins, parsed, strict=True)):
            two = f"{root}/{folders.names[one]} and {root}/{folders.names[other]}"
            if begin != begins[one]:
                raise _refused(f"{two} do not agree where the partition folders begin")
            if pairs and list(pairs) != columns:
                both = f"{', '.join(columns)} and {', '.join(pairs)}"
                raise _refused(f"{two} have different partition columns: {both}")
    else:
        below = np.array([not name for name in folders.names])
    if below.all():
        return listing
    keep = below[folders.of_file]
    kept = int(keep.sum())
    if not kept:
        count = plural(len(listing), "file")
        some = f"{root}/{folders.names[0]}".rstrip("/")
        raise SkipstoneError(
            f"{root} has no data files but {count} in folders that are not partitions",
            hint=f"name one of the folders, as {some}, or read all files of them by {READ_ALL}",
        )
    return replace(listing.where(keep), empty=listing.empty, outside=len(listing) - kept)


def _refused(text: str) -> SkipstoneError:
    hint = "Spark refuses it too: move files, or read all of them without partition columns"
    return SkipstoneError(text, hint=f"{hint} by {READ_ALL}")


def _typed(texts: Sequence[str | None], wanted: pa.DataType | None) -> pa.Array:
    """The values as ``wanted``, else as the type that Spark infers; all null if they do not
    convert."""
    present = [text for text in texts if text is not None]
    common = _common_type(present)
    if common is not None and wanted in (None, common):
        try:
            return pc.cast(pa.array(texts, pa.string()), common)
        except pa.ArrowInvalid:
            pass  # such as the 30th of February
    type_ = wanted or inferred_type(set(present))
    values: dict[str | None, object] = {None: None}
    try:
        for text in texts:
            if text not in values:
                values[text] = _value(text or "", type_)
        return pa.array([values[text] for text in texts], type_)
    except (ArithmeticError, ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(texts), pa.null())


def _common_type(texts: Collection[str]) -> pa.DataType | None:
    """The type of small numbers or of plain dates, which Arrow reads as Spark does; fast."""
    joined = "".join(texts)
    if not joined.isascii():
        return None
    if joined.isdigit() and max(map(len, texts)) <= _SMALL:
        return pa.int32() if "" not in texts else None
    if texts and all(map(_PLAIN_DATE.fullmatch, texts)):
        return pa.date32()
    return None


def _unescaped(text: str) -> str:
    return unquote(text, encoding="latin-1")


def _value(text: str, type_: pa.DataType) -> object:
    """A text of a path as a value of ``type_``, by the parser that Spark uses for it."""
    t = pa.types
    if t.is_string(type_):
        return _unescaped(text)
    if t.is_integer(type_) and _INTEGER.fullmatch(text) and _in_basic_plane(text):
        return int(text)
    if t.is_decimal(type_) and _decimal_digits(text) is not None:
        return Decimal(text)
    if t.is_float32(type_):
        return float(np.float32(_double(text)))
    if t.is_float64(type_):
        return _double(text)
    if t.is_boolean(type_) and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if t.is_date32(type_) and (day := _day(text)) is not None:
        return day
    raise ValueError(text)


def inferred_type(texts: Collection[str]) -> pa.DataType:
    """Spark's type of a column with these texts in its paths, none of them NULL; ``null`` where it
    or its values depend on the session."""
    types = {_type_of(text) for text in texts}
    if len(types) == 1 and types != {"decimal"}:
        return _ARROW[types.pop()]
    if types and types <= {"int", "long", "decimal"}:
        if types == {"int", "long"}:
            return pa.int64()
        widest = max(_decimal_digits(text) or 0 for text in texts)
        return pa.decimal128(max(widest, *(_DIGITS[name] for name in types)), 0)
    if types == {"int", "double"}:
        return pa.float64()
    if types == {"date", "timestamp"}:
        return pa.null()
    return pa.string()


# Digits of the decimal that holds all values of a type.
_DIGITS = {"int": 10, "long": 20, "decimal": 1}
_ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.null(),
    "date": pa.date32(),
    "time": pa.null(),
    "string": pa.string(),
}


def _type_of(text: str) -> str:
    """The name of the first type that reads ``text``; see the module."""
    if _INTEGER.fullmatch(text) and _in_basic_plane(text):
        number = int(text)
        if -(2**31) <= number < 2**31:
            return "int"
        if -(2**63) <= number < 2**63:
            return "long"
    if _decimal_digits(text) is not None:
        return "decimal"
    if _DOUBLE.fullmatch(text.strip(_BLANK)) or _HEXADECIMAL.fullmatch(text.strip(_BLANK)):
        return "double"
    plain = _unescaped(text)
    match = _TIMESTAMP.fullmatch(plain)
    if match and _day(match[1]) is not None and abs(int(match[1][:-6])) <= _LAST_YEAR:
        return "timestamp"
    if _day(text) is not None:
        return "date"
    return "time" if _TIME.fullmatch(plain) else "string"


def _in_basic_plane(text: str) -> bool:
    """Java reads digits as UTF-16 units."""
    return text.isascii() or max(text) <= "\uffff"


def _decimal_digits(text: str) -> int | None:
    """The precision of ``text`` as a decimal without a scale; ``None`` if it is not one."""
    match = _DECIMAL.fullmatch(text)
    if match is None or not _in_basic_plane(text):
        return None
    exponent = int(match[3] or 0) - len(match[1] or match[2] or "")
    if not 0 <= exponent <= 38:
        return None
    digits = len(Decimal(text).as_tuple().digits) + exponent
    return digits if digits <= 38 else None


def _double(text: str) -> float:
    """``ValueError`` where Java's ``Double.parseDouble`` refuses ``text``."""
    text = text.strip(_BLANK)
    if _HEXADECIMAL.fullmatch(text):
        return float.fromhex(text.rstrip("fFdD"))
    if not _DOUBLE.fullmatch(text):
        raise ValueError(text)
    return float(text if text.endswith("y") else text.rstrip("fFdD"))


def _day(text: str) -> int | None:
    """Days since 1970 of a date; ``None`` if ``text`` is not one."""
    match = _DATE.fullmatch(text)
    return None if match is None else civil_day(int(match[1]), int(match[2]), int(match[3]))


class PartitionValues(BaseEvidence):
    """Evidence for one partition column over the files of a listing; see the module."""

    name: ClassVar[str] = "partition"
    level: ClassVar[Level] = Level.OBJECT
    cost: ClassVar[float] = 0.1

    def __init__(self, column: str, values: pa.Array) -> None:
        self.column, self.values = column, values

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """Exact bounds per leaf; silent answers where the type depends on the session."""
        type_ = self.values.type
        if pa.types.is_null(type_):
            text = f"values of type {type_} depend on how the session reads them"
            silent = Answer.silent(Cause.NOT_APPLICABLE, self.subject, text)
            return [silent] * len(leaves)
        values = self.values.take(arrow(units.file))
        null = ~validity(values)
        rows = np.where(units.rows < 0, 1, units.rows)
        found = []
        for leaf in leaves:
            if not leaf.type.equals(type_):
                text = f"the path gives {type_}, the table has {leaf.type}"
                found.append(Answer.silent(Cause.UNSUPPORTED, self.subject, text))
                continue
            keys = order_keys(values, leaf.type)
            # Any positive row count distinguishes "all rows are null" from "none is"; -1 does not.
            nulls = np.where(null, rows, 0)
            intervals = Intervals(type=leaf.type, lo=keys, hi=keys, rows=rows, nulls=nulls)
            found.append(Answer(bounds=interval_bounds(leaf, intervals)))
        return found
