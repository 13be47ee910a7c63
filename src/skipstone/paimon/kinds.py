"""``bitmap``, ``rangebitmap`` and ``bsi``: which rows hold which values; Paimon's options.

Stored value: ``struct<start: int32, length: int32, crc: int64, sums: binary, distinct: int32,
min: T, max: T>``. ``start`` and ``length`` place the blob in the container of the file; ``crc`` is
its CRC-32 and ``sums`` has the checksums of its blocks (``base``; values without this field are
still read). ``distinct`` counts distinct values; ``min`` and ``max`` are bounds as in ``minmax``.
The bounds answer at the object level without a read. The rows are separate evidence, one for each
file (``row_evidence``).

``FileIndexOptions`` parses Paimon's options into definitions; the parameters of the kinds are the
options of a column:

| option | default | meaning |
|---|---|---|
| ``file-index.<kind>.columns`` | | columns with an index of this kind, separated by commas |
| ``file-index.bloom-filter.<column>.items`` | 1000000 | distinct values expected per file |
| ``file-index.bloom-filter.<column>.fpp`` | 0.1 | share of false positives, between 0 and 1 |
| ``file-index.bitmap.<column>.version`` | 2 | 1 or 2 |
| ``file-index.bitmap.<column>.index-block-size`` | 16kb | bytes of a block of the dictionary |
| ``file-index.range-bitmap.<column>.chunk-size`` | 16kb | bytes of a chunk of the dictionary; 0b \
for boolean, tinyint and smallint |
| ``file-index.in-manifest-threshold`` | unchanged, else 500 b | containers up to this lie in the \
fact row |
| ``file-index.read.enabled`` | true | whether readers use file indexes |

Kinds are ``bloom-filter``, ``bitmap``, ``bsi`` and ``range-bitmap``; sizes are ``500 b``, ``16kb``,
``1 mb``, units of 1,024. ``m[k]`` is the value of key ``k`` of a map; options of ``m`` hold for it
too, unless it has its own. Unlike in Paimon a column may have dots in its name, an option is
refused unless its column is listed for its kind, and every value is checked before anything is
built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from skipstone.errors import UnsupportedError
from skipstone.predicate.tree import Op
from skipstone.predicate.types import MapKey, column_name, column_path
from skipstone.pruning.file_bounds import intervals_of
from skipstone.pruning.interval import interval_bounds
from skipstone.pruning.kind import PerFile, Rows

from .base import PaimonIndex, memory_size, place_fields
from .bloom import PaimonBloom
from .container_builder import RowsBuilder
from .format import bitmap, bsi, range_bitmap
from .format.bitmap import BLOCK_SIZE
from .index_blob import SMALL
from .row_evidence import FileRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray, Bounds
    from skipstone.pruning.kind import Builder, Index

    from .format.column_keys import CodedColumn
    from .format.keys import PaimonType


class RowIndex(PerFile, PaimonIndex):
    """Base of the kinds that answer at the row level; see the module."""

    ops = frozenset(Op) - {Op.IS_NULL, Op.NOT_NULL, Op.NOT_LIKE}
    sweeps = True

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        self.paimon_type(type)
        numbers = [*place_fields(), pa.field("distinct", pa.int32())]
        return pa.struct([*numbers, pa.field("min", type), pa.field("max", type)])

    def write(self) -> Callable[[CodedColumn], bytes]:
        """The function that writes the blob of a column."""
        raise NotImplementedError

    def build(self, type: pa.DataType, budget: int) -> Builder:
        """Holds the codes of all rows."""
        stored = self.stored_type(type)
        paimon = self.paimon_type(type)
        return RowsBuilder(type, paimon, stored, self.write(), budget)

    def bounds_of(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """Bounds of whole files, from least and greatest values."""
        intervals = intervals_of(rows.stored)
        return interval_bounds(leaf, intervals if rows.at is None else intervals.where(rows.at))

    def of_file(self, file: int, shared: dict[Any, Any] | None = None) -> FileRows | None:
        """Evidence about the rows of one file; ``None`` if this index was not built for it.

        ``shared`` holds what all files of one index share; pass the same mapping for all.
        """
        stored = self.stored
        if stored is None:
            return None
        row = int(stored.row_of_file[file])
        if row < 0 or not self.known(stored)[row]:
            return None
        shared = {} if shared is None else shared
        if "type" not in shared:
            shared["type"] = self.paimon_type(stored.type)
        return FileRows(
            index=self,
            type=shared["type"],
            blob=self.blob(row),
            rows=int(stored.rows[row]),
            nulls=int(stored.nulls[row]),
            fact=row,
            shared=shared,
        )


class IndexedRows:
    """The row level source of the read indexes that answer for rows."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        self.indexes = [index for index in indexes if isinstance(index, RowIndex)]
        self._shared: list[dict[Any, Any]] = [{} for _ in self.indexes]

    def __bool__(self) -> bool:
        return bool(self.indexes)

    def evidence(self, file: int, columns: frozenset[str]) -> list[FileRows]:
        """The evidence about the rows of one file."""
        found = [
            index.of_file(file, shared)
            for index, shared in zip(self.indexes, self._shared, strict=True)
            if index.column in columns
        ]
        return [each for each in found if each is not None]


class Bitmap(RowIndex):
    """A Roaring bitmap for each distinct value; see the module."""

    name = "bitmap"
    paimon = "bitmap"
    parameters = ("version", "index-block-size")
    instead = ("rangebitmap", "paimonbloom", "bsi")
    cost = 1.1
    row_cost = 1.0

    def __init__(self, column: str, version: int = 2, index_block_size: int = BLOCK_SIZE) -> None:
        super().__init__(column)
        if version not in (1, 2):
            raise ValueError(f"version is 1 or 2, not {version}")
        if index_block_size < 0:
            raise ValueError("index-block-size is a number of bytes, 0 or more")
        self.version, self.index_block_size = version, index_block_size

    @property
    def params(self) -> Mapping[str, str]:
        found = {} if self.version == 2 else {"version": str(self.version)}
        if self.index_block_size != BLOCK_SIZE:
            found["index-block-size"] = str(self.index_block_size)
        return found

    @classmethod
    def from_params(cls, column: str, params: Mapping[str, str]) -> Self:
        size = memory_size(params["index-block-size"]) if "index-block-size" in params else None
        return cls(column, int(params.get("version", 2)), BLOCK_SIZE if size is None else size)

    def check(self, type: PaimonType) -> None:
        """All but decimals and binary."""
        bitmap.check_type(type)

    def write(self) -> Callable[[CodedColumn], bytes]:
        """By version and block size."""
        return partial(bitmap.write_bitmap, version=self.version, block_size=self.index_block_size)


class RangeBitmap(RowIndex):
    """A dictionary of the distinct values and bit slices of their codes; see the module."""

    name = "rangebitmap"
    aliases = ("range-bitmap", "range_bitmap")
    paimon = "range-bitmap"
    block = SMALL
    parameters = ("chunk-size",)
    instead = ("paimonbloom", "bsi")
    cost = 1.2
    row_cost = 5.0

    def __init__(self, column: str, chunk_size: int | None = None) -> None:
        super().__init__(column)
        if chunk_size is not None and not 0 <= chunk_size < 2**31:
            raise ValueError("chunk-size is a number of bytes below 2 gb")
        self.chunk_size = chunk_size

    @property
    def params(self) -> Mapping[str, str]:
        """``chunk-size``, if it was set."""
        return {} if self.chunk_size is None else {"chunk-size": str(self.chunk_size)}

    @classmethod
    def from_params(cls, column: str, params: Mapping[str, str]) -> Self:
        return cls(column, memory_size(params["chunk-size"]) if "chunk-size" in params else None)

    def check(self, type: PaimonType) -> None:
        """All but binary and decimals above 18 digits."""
        range_bitmap.check_type(type)

    def write(self) -> Callable[[CodedColumn], bytes]:
        """By chunk size."""
        return partial(range_bitmap.write_range_bitmap, chunk_size=self.chunk_size)


class Bsi(RowIndex):
    """Bit slices of the numbers themselves; deprecated by Paimon in favour of range-bitmap."""

    name = "bsi"
    paimon = "bsi"
    block = SMALL
    instead = ("rangebitmap", "bitmap", "paimonbloom")
    cost = 1.3
    row_cost = 6.0

    def check(self, type: PaimonType) -> None:
        """Integers, decimals, dates and timestamps; a file with a decimal that does not fit 64 bits
        is left out."""
        bsi.check_type(type)
        if not type.exact:
            raise UnsupportedError(f"a bsi index does not support a column of {type}")

    def write(self) -> Callable[[CodedColumn], bytes]:
        """A bsi has no parameters."""
        return bsi.write_bsi


PREFIX = "file-index."

_COLUMNS = "columns"
_THRESHOLD = "in-manifest-threshold"
_ENABLED = "read.enabled"
KINDS: dict[str, type[PaimonIndex]] = {
    each.paimon: each for each in (PaimonBloom, Bitmap, Bsi, RangeBitmap)
}
_MAP_KEY = re.compile(r"([^\[\]]+)\[(.+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIndexOptions:
    """The parsed options: ``indexes`` to build, the largest container that lies in the fact row
    (``None``: not set), and whether readers use the indexes."""

    indexes: tuple[PaimonIndex, ...] = ()
    in_manifest_threshold: int | None = None
    read_enabled: bool = True

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> FileIndexOptions:
        """From Paimon's keys and values, as text or as Python values (``True``, ``0.01``).

        ``ValueError`` with the key for one that Paimon does not know, an option of a column that is
        not listed for the kind, an empty item of a list, and a value that its option cannot have.
        """
        threshold, enabled = None, True
        columns: dict[str, list[str]] = {}
        rest: list[tuple[str, str, str, str]] = []
        for key, given in options.items():
            value = _text(given)
            if not is_option(key):
                raise ValueError(f"{key!r} is not an option of file indexes: they begin {PREFIX!r}")
            name = key[len(PREFIX) :]
            if name == _THRESHOLD:
                threshold = _size(key, value)
            elif name == _ENABLED:
                enabled = _boolean(key, value)
            else:
                kind, _, tail = name.partition(".")
                if kind not in KINDS:
                    raise _unknown(key, kind)
                if tail == _COLUMNS:
                    columns[kind] = _listed(key, value)
                else:
                    rest.append((key, kind, tail, value))
        params = _params(columns, rest)
        indexes = [
            _definition(kind, column, params)
            for kind, listed in columns.items()
            for column in listed
        ]
        return cls(
            indexes=tuple(dict.fromkeys(indexes)),
            in_manifest_threshold=threshold,
            read_enabled=enabled,
        )


def is_option(key: str) -> bool:
    """Whether a key is one of Paimon's for file indexes, known or not."""
    return key.startswith(PREFIX)


def _params(
    columns: Mapping[str, list[str]], options: list[tuple[str, str, str, str]]
) -> dict[tuple[str, str], dict[str, tuple[str, str]]]:
    """By kind and column: option to (key, value)."""
    found: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for key, kind, tail, value in options:
        column, _, option = tail.rpartition(".")
        takes = KINDS[kind].parameters
        if option not in takes or not column:
            known = ", ".join(takes) if takes else "nothing but columns"
            near = get_close_matches(option, [*takes, _COLUMNS], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{key!r}: {option!r} is not an option: {kind} takes {known}{hint}")
        listed = columns.get(kind, [])
        if column not in {each for name in listed for each in (name, _map_of(name))}:
            raise ValueError(
                f"{key!r}: column {column!r} is not listed in {PREFIX}{kind}.{_COLUMNS}"
            )
        found.setdefault((kind, column), {})[option] = (key, value)
    return found


def _definition(
    kind: str, column: str, params: Mapping[tuple[str, str], Mapping[str, tuple[str, str]]]
) -> PaimonIndex:
    base, own = params.get((kind, _map_of(column)), {}), params.get((kind, column), {})
    made = KINDS[kind](_name(column))
    chosen: dict[str, str] = {}
    for option, (key, value) in {**base, **own}.items():
        chosen[option] = value
        try:  # one after the other, so that the error names the key
            made = type(made).from_params(made.column, chosen)
        except ValueError as error:
            raise ValueError(f"{key!r} cannot be {value!r}: {error}") from None
    return made


def _map_of(column: str) -> str:
    """The map of ``m[k]``, the column itself otherwise."""
    match = _MAP_KEY.fullmatch(column)
    return column if match is None else match[1]


def _name(column: str) -> str:
    """A column as definitions spell it: ``m['k']`` for ``m[k]``."""
    match = _MAP_KEY.fullmatch(column)
    if match is None:
        return column
    return column_name((*column_path(match[1]), MapKey(match[2])))


def _listed(key: str, value: str) -> list[str]:
    items = [item.strip() for item in value.split(",")]
    if not all(items):
        raise ValueError(f"{key!r} has an empty item: {value!r}")
    for item in items:
        if ("[" in item or "]" in item) and _MAP_KEY.fullmatch(item) is None:
            raise ValueError(f"{key!r}: {item!r} is not a key of a map: those are written m[k]")
    if len(set(items)) < len(items):
        twice = next(item for item in items if items.count(item) > 1)
        raise ValueError(f"{key!r} names {twice!r} twice")
    return items


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _size(key: str, value: str) -> int:
    try:
        return memory_size(value)
    except ValueError as error:
        raise ValueError(f"{key!r}: {error}") from None


def _boolean(key: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(f"{key!r} is true or false, not {value!r}")
    return value.lower() == "true"


def _unknown(key: str, kind: str) -> ValueError:
    others = [f"{PREFIX}{each}.{_COLUMNS}" for each in KINDS]
    near = get_close_matches(key, [PREFIX + _THRESHOLD, PREFIX + _ENABLED], 1, 0.8)
    near = near or [f"{PREFIX}{each}.…" for each in get_close_matches(kind, KINDS, 1)]
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(others)}"
    return ValueError(f"{key!r} is not an option of file indexes; {hint}")
