"""Index kinds: classes that build from Arrow columns, and answer predicates when read back.

One class serves both sides. A *definition* is an instance with a column and parameters
(``Bloom("user_id", fpp=0.01)``); ``build`` gives a ``Builder`` for one file's column. *Read
back*, the same instance carries ``stored``, the values of all files of the table as one Arrow
array, and is ``Evidence`` (``needs``, ``answer``).

A third-party kind subclasses ``Index``, sets ``name``, and registers by an entry point of the group
``skipstone.indexes`` (name = the kind's name, value = the class). A kind that is not installed says
nothing; its stored column survives refresh and compact byte for byte.

``PerFile`` is the base of the kinds whose stored values lie in memory, one per fact row. Its
``answer`` does what all of them share. It finds the fact row of each unit, and restates the leaf in
the type that the column had when it was indexed. It calls ``bounds_of`` for the rows that have a
value, and counts the other files, for which it proves nothing. A new kind at this level only
implements ``bounds_of``.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, validity
from skipstone._dataclasses import dataclass
from skipstone.errors import PredicateError, UnsupportedError
from skipstone.human import some_of
from skipstone.predicate.tree import Const, Op, is_expression
from skipstone.predicate.types import indexable
from skipstone.storage import ByteRange

from .._arrays import ordinals
from . import Answer, BaseEvidence, BoolArray, Bounds, Cause, Fetched, Level, Reason, Units
from .column_types import restate
from .interval import null_bounds
from .table_schema import find_field

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.indexed import Expression
    from skipstone.predicate.tree import Leaf


T = TypeVar("T")


class Chunk:
    """A run of one column's values, shared by all builders of that column.

    Values that several kinds derive from it (such as the distinct values) are computed once.
    """

    def __init__(self, values: pa.Array) -> None:
        self.values = values
        self._derived: dict[Hashable, Any] = {}

    def once(self, key: Hashable, derive: Callable[[], T]) -> T:
        """The result of ``derive``, which is called at most once per ``key`` for all builders."""
        if key not in self._derived:
            self._derived[key] = derive()
        found: T = self._derived[key]
        return found

    @cached_property
    def null_count(self) -> int:
        """Nulls among the values."""
        return int(self.values.null_count)

    @cached_property
    def distinct(self) -> pa.Array:
        """The distinct non-null values, in any order; both zeros, and several NaNs, may occur."""
        values = self.values
        if pa.types.is_dictionary(values.type):
            used = pc.drop_null(pc.unique(values.indices))
            return pc.unique(pc.drop_null(values.dictionary.take(used)))
        return pc.drop_null(pc.unique(values))


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a builder for one file's column.

    ``value`` is an Arrow array of length 1 and of the kind's ``stored_type``; ``None`` when the
    index was left out for this file, with the ``reason``. ``blob`` is this index's part of the
    file's sidecar, for a kind that has one. ``row_groups`` are the filters of the row groups, and
    the length of their head, for a kind that has them besides the ``value``.
    """

    value: pa.Array | None
    reason: str | None = None
    blob: bytes | None = None
    row_groups: tuple[bytes, int] | None = None


class Builder(ABC):
    """Builds one index over one file's column, chunk by chunk, within a memory budget."""

    def cut(self, rows: Sequence[int]) -> None:  # noqa: B027 - most kinds are about whole files
        """Takes the rows of each row group, before the first chunk; not called where a row does not
        give one value."""

    @abstractmethod
    def add(self, chunk: Chunk) -> None:
        """Adds the next values, in file order."""

    @abstractmethod
    def finish(self) -> Built:
        """The index value; called once, after the last chunk (an empty file has no chunk)."""

    @property
    def nbytes(self) -> int:
        """Bytes that the builder holds in memory."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """The place of some bytes: in memory as ``inline``, or ``length`` bytes at ``offset`` of
    ``path``."""

    path: str = ""
    offset: int = 0
    length: int = 0
    inline: memoryview | None = None

    def part(self, start: int, length: int) -> Blob | None:
        """``length`` bytes at ``start`` of these; ``None`` if they reach beyond them."""
        if start < 0 or length <= 0 or start + length > self.length:
            return None
        if self.inline is not None:
            return Blob(length=length, inline=self.inline[start : start + length])
        return Blob(path=self.path, offset=self.offset + start, length=length)

    def span(self, offset: int, length: int) -> ByteRange:
        """The byte range of ``length`` bytes at ``offset`` of the blob."""
        return ByteRange(self.path, self.offset + offset, length)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Places:
    """The place of the sidecar of each of ``n`` fact rows.

    - ``packs``: paths of the objects; ``pack``: int64 ``(n,)``, which of them, -1 for none;
    - ``offset``, ``length``: int64 ``(n,)``, where in it;
    - ``inline``: ``large_binary`` ``(n,)``, the sidecar itself, null where it is in a pack.
    """

    packs: Sequence[str]
    pack: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    inline: pa.Array

    def at(self, row: int) -> Blob | None:
        """The place of one fact row's sidecar; ``None`` if it has none."""
        inline = self.inline[row]
        if inline.is_valid:
            data = memoryview(inline.as_buffer())
            return Blob(length=len(data), inline=data)
        pack, offset, length = int(self.pack[row]), int(self.offset[row]), int(self.length[row])
        if pack < 0 or offset < 0 or length < 0:
            return None
        return Blob(path=self.packs[pack], offset=offset, length=length)

    def of_rows(self, at: NDArray[np.int64]) -> Places:
        """The places of some fact rows."""
        inline = pc.take(self.inline, arrow(at))
        pack, offset, length = self.pack[at], self.offset[at], self.length[at]
        return Places(packs=self.packs, pack=pack, offset=offset, length=length, inline=inline)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Stored:
    """One index as read back: parallel arrays over ``n`` fact rows, and the row of each file.

    - ``type``: Arrow type of the indexed column when it was built;
    - ``values``: Arrow array ``(n,)`` of the kind's ``stored_type``; null = not built for that
      file;
    - ``rows``, ``nulls``: int64 ``(n,)``, row count and the column's null count, -1 unknown;
    - ``row_of_file``: int64 ``(files,)``, fact row of each file of the listing, -1 for none;
    - ``places``: of the kind's sidecar, for a kind that has one.

    ``cache`` keeps what a kind derives from ``values`` (order keys, parsed headers) for as long
    as the snapshot lives; keys are the kind's own.
    """

    type: pa.DataType
    values: pa.Array
    rows: NDArray[np.int64]
    nulls: NDArray[np.int64]
    row_of_file: NDArray[np.int64]
    cache: dict[str, Any] = field(default_factory=dict)
    places: Places | None = None


class Index(BaseEvidence, ABC):
    """Base of all kinds; see the module. Equal definitions have equal ``name``, ``column``,
    ``params``."""

    #: the kind's name, as in the fact store's column names and in Xskipper's: ``minmax``
    name: str
    #: names of the parameters that a user may write: ``("fpp",)``
    parameters: ClassVar[tuple[str, ...]] = ()
    level: ClassVar[Level] = Level.OBJECT
    #: cost of evaluating one unit, relative to the other kinds of its level
    cost: ClassVar[float] = 1.0
    #: whether ``Stored.values`` of many files may be a ``pa.ChunkedArray``
    joins: ClassVar[bool] = False
    #: the sidecar that holds the index, if any: ``container``
    sidecar: ClassVar[str | None] = None
    #: whether a column of lists may have it: it then indexes the elements of all lists of a file
    of_elements: ClassVar[bool] = False
    #: whether it proves as much about a whole file as its ``_pm``, which is not read then
    like_pm: ClassVar[bool] = False

    #: the indexes of the same column that are asked in the same plan
    same_column: Sequence[Index] = ()

    def __init__(self, column: str) -> None:
        self.column = column
        self.stored: Stored | None = None

    @property
    def params(self) -> Mapping[str, str]:
        """The parameters as the store keeps them: names and values are strings."""
        return {}

    @classmethod
    def from_params(cls, column: str, params: Mapping[str, str]) -> Self:
        """The definition with these ``params``; unknown parameters are ignored."""
        return cls(column)

    @property
    def shown_params(self) -> str:
        """The parameters for people."""
        return ", ".join(f"{key}={value}" for key, value in self.params.items())

    def for_table(self, files: int, existing: Index | None = None) -> Self:
        """The definition that a build for a table of ``files`` files stores; ``existing`` is the
        table's own of this kind and column. A kind may choose parameters here."""
        return self

    def outgrown(self, files: int) -> tuple[str, str] | None:
        """Where parameters that a build chose no longer suit a table of ``files`` files: why, and
        the definition to build instead."""
        return None

    @abstractmethod
    def stored_type(self, type: pa.DataType) -> pa.DataType:
        """Arrow type of one stored value for a column of ``type``.

        Raises ``UnsupportedError`` where the kind cannot index that type.
        """

    def former_types(self, type: pa.DataType) -> Sequence[pa.DataType]:
        """Types of stored values that earlier versions of the kind wrote for a column of ``type``,
        and that can still be read back."""
        return ()

    def of_row_groups(self) -> Index | None:
        """The evidence about row groups that a build makes besides the values, if any. Its stored
        values are places in its sidecar: a struct with ``start`` and ``length``."""
        return None

    @abstractmethod
    def build(self, type: pa.DataType, budget: int) -> Builder:
        """A builder for one file's column of ``type`` that holds at most ``budget`` bytes."""

    @abstractmethod
    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf, over exactly these units. Reads ``self.stored``."""

    def read_back(self, stored: Stored) -> Self:
        """The same definition as evidence over ``stored``."""
        other = copy.copy(self)
        other.stored = stored
        return other

    def _lacking(self, count: int, total: int) -> tuple[Reason, ...]:
        if not count:
            return ()
        text = f"not built for {count:,} of {total:,} files"
        return (Reason(cause=Cause.ABSENT, subject=self.subject, text=text, units=count),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Index):
            return NotImplemented
        return self._definition() == other._definition()

    def __hash__(self) -> int:
        return hash(self._definition())

    def _definition(self) -> tuple[object, ...]:
        return self.name, self.column, tuple(sorted(self.params.items()))

    def __repr__(self) -> str:
        shown = "".join(f", {key}={value}" for key, value in self.params.items())
        return f"{self.name}({self.column}{shown})"


def column_fields(definitions: Iterable[Index], schema: pa.Schema) -> dict[str, pa.Field]:
    """The table's field of each column that has a definition, of canonical type.

    ``UnsupportedError`` for an unknown column, or where a kind cannot index its type.
    """
    fields: dict[str, pa.Field] = {}
    for definition in definitions:
        column = definition.column
        if is_expression(column):
            found = pa.field(column, expression_of(column, schema).typed.type)
        else:
            found = find_field(schema, column)
        if found is None:
            raise UnsupportedError(
                f"there is no column {column!r} outside arrays and maps to index",
                hint=f"the columns are {some_of(schema.names, 20)}",
            )
        type = indexable(found)
        if type is None:
            raise UnsupportedError(
                f"{definition.name} cannot index column {column!r} of type {found.type}",
                hint="indexes take numbers, texts, times and booleans; no char(n), no collation",
            )
        definition.stored_type(type)
        fields[column] = found.with_type(type)
    return fields


def expression_of(column: str, schema: pa.Schema) -> Expression:
    """The expression that an index is built on, over a table's schema; ``UnsupportedError`` if it
    means another expression there."""
    from skipstone.predicate.indexed import read_expression

    try:
        found = read_expression(column, schema)
    except PredicateError as error:
        raise UnsupportedError(f"no index on {column}: {error.message}") from error
    if found.name != column:
        raise UnsupportedError(
            f"the index was built on {column}, and that is {found.name} in this table now",
            hint="build an index on the expression again",
        )
    return found


IntArray: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, eq=False)
class Rows:
    """The fact rows to evaluate: those at ``at``, or all of them in order (``None``)."""

    stored: Stored
    at: IntArray | None = None

    def __len__(self) -> int:
        return len(self.stored.rows) if self.at is None else len(self.at)

    def pick(self, array: NDArray[np.int64]) -> IntArray:
        """The entries of an array over all fact rows."""
        return array if self.at is None else array[self.at]

    @cached_property
    def rows(self) -> IntArray:
        """Row counts, -1 unknown."""
        return self.pick(self.stored.rows)

    @cached_property
    def nulls(self) -> IntArray:
        """Null counts, -1 unknown."""
        return self.pick(self.stored.nulls)

    @cached_property
    def filled(self) -> bool:
        """Whether every file surely has rows, and no null in the column. Then flags of the non-null
        values are those of the files."""
        return bool((self.rows > 0).all() and not self.nulls.any())

    @property
    def values(self) -> pa.Array:
        """The stored values at these rows; null where not built."""
        if self.at is None:
            return self.stored.values
        return self.stored.values.take(arrow(self.at))


class PerFile(Index):
    """Base of the kinds whose evidence is one stored value per file; see the module."""

    #: operators that this kind supports; leaves with others get a silent answer
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    #: evaluating all rows in memory order costs no more than gathering an eighth of them
    sweeps: ClassVar[bool] = False

    @abstractmethod
    def bounds_of(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """Bounds of ``leaf`` over exactly ``rows``; ``None`` if this kind says nothing about it.

        The leaf's type is ``rows.stored.type``. Bounds of rows without a value are ignored.
        """

    def read_back(self, stored: Stored) -> Self:
        """The same definition as evidence over ``stored``."""
        other = super().read_back(stored)
        other.__dict__.pop("_of_every_file", None)  # the cache belongs to the rows of the original
        return other

    def known(self, stored: Stored) -> BoolArray:
        """Flags of the fact rows that have a value."""
        found: BoolArray | None = stored.cache.get("known")
        if found is None:
            found = stored.cache["known"] = validity(stored.values)
        return found

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf; see the module."""
        if self.stored is None:
            return [Answer.silent(Cause.ABSENT, self._subject, "not read back")] * len(leaves)
        if len(units) == len(self.stored.row_of_file) and self._every_file(units.file):
            rows, held = self._of_every_file
        else:
            rows, held = self._rows_of(self.stored.row_of_file[units.file])
        lacking = self._lacking(len(units) - len(rows), len(units))
        found = [self._answer(leaf, rows, lacking) for leaf in leaves]
        if len(held) == len(units):
            return found
        return [
            each
            if each.bounds is None
            else Answer(bounds=Bounds.over(each.bounds, held, len(units)), reasons=each.reasons)
            for each in found
        ]

    @staticmethod
    def _every_file(file: IntArray) -> bool:
        every = ordinals(len(file))
        return file is every or bool(np.array_equal(file, every))

    @cached_property
    def _of_every_file(self) -> tuple[Rows, IntArray]:
        """``_rows_of`` all files: computed once per listing, not per query."""
        assert self.stored is not None
        return self._rows_of(self.stored.row_of_file)

    def _rows_of(self, row: IntArray) -> tuple[Rows, IntArray]:
        """The fact rows to evaluate, and which of ``row`` (fact rows, -1 for none) they are."""
        assert self.stored is not None
        known = self.known(self.stored)
        held = row >= 0
        held[held] = known[row[held]]
        at = row[held]
        whole = len(at) == len(known) and self._every_file(at)
        return Rows(self.stored, None if whole else at), np.flatnonzero(held)

    def _answer(self, leaf: Leaf, rows: Rows, lacking: tuple[Reason, ...]) -> Answer:
        if not len(rows):
            return Answer(bounds=None, reasons=lacking)
        local = restate(leaf, rows.stored.type)
        if local is None:
            text = f"built when the column was {rows.stored.type}: {leaf} has no exact counterpart"
            return Answer.silent(Cause.NOT_APPLICABLE, self._subject, text, len(rows))
        bounds: Bounds[BoolArray] | None
        if isinstance(local, Const):
            bounds = (Bounds.everything if local.value else Bounds.nothing)(len(rows))
        elif local.op in (Op.IS_NULL, Op.NOT_NULL) and local.op is not leaf.op:
            bounds = null_bounds(local.op, rows.rows, rows.nulls)
        elif local.op not in self.ops:
            bounds = None
        elif self.sweeps and rows.at is not None and 8 * len(rows) >= len(rows.stored.rows):
            bounds = self.bounds_of(local, Rows(rows.stored))
            if bounds is not None:
                # An array with one value everywhere need not be gathered.
                count = len(rows)
                may = np.ones(count, np.bool_) if bounds.may.all() else bounds.may[rows.at]
                some = bounds.must.any()
                bounds = Bounds(bounds.must[rows.at] if some else np.zeros(count, np.bool_), may)
        else:
            bounds = self.bounds_of(local, rows)
        if bounds is None:
            return Answer.silent(Cause.NOT_APPLICABLE, self._subject, self.silence(leaf))
        return Answer(bounds=bounds, reasons=lacking)

    def silence(self, leaf: Leaf) -> str:
        """Why the index cannot answer a leaf."""
        return f"says nothing about {leaf.op}"

    @property
    def _subject(self) -> str:
        return f"{self.name}({self.column})"
