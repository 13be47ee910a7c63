"""The rows of one file as one index knows them: evidence of the row level.

A leaf becomes questions to the blob (``formats/paimon/asks``), and the answers sets of rows:

| leaf | questions | rows that may match, must |
|---|---|---|
| ``= IN < <= > >=``, starts with | one | the answer, all of it if exact |
| ``<> NOT IN``, not starts with | that, and "not null" | not null without the answer, both ways |
| ``NOT <=>`` | ``=`` | all rows without the answer |
| ``IS [NOT] NULL`` | one | the answer |
| ``LIKE`` | starts with its literal prefix | the answer, none |
| ``NOT LIKE`` | that, and "not null" | not null, not null without the answer |

A column that is known to have no nulls is not asked about them. A blob is read in rounds: its head,
then blocks or chunks of its dictionary, then bitmaps; a small one at once. Whatever is wrong with
it makes the index say nothing, and a warning says so once. A blob that is at hand whole is held
against its checksum; of others only what does not fit together is noticed.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from pyroaring import BitMap

from skipstone.bounds import Answer, Bounds, ByteRange, Cause, Level, RowSet
from skipstone.errors import FormatError, UnsupportedError
from skipstone.formats.paimon import reading
from skipstone.formats.paimon.asks import In, Null, Range, prefix
from skipstone.formats.paimon.columns import key_of
from skipstone.formats.paimon.pieces import MissingBytes, Pieces
from skipstone.predicate.literals import order_key
from skipstone.predicate.tree import Const, Leaf, Op

from ..localise import localise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from skipstone.bounds import Fetched, Units
    from skipstone.formats.paimon.asks import Ask
    from skipstone.formats.paimon.keys import Key
    from skipstone.formats.paimon.types import PaimonType
    from skipstone.predicate.tree import Value

    from ..kind import Blob
    from .kinds import RowIndex

__all__ = ["FileRows", "IndexedRows", "asks_of", "bounds_of", "rows_of_file"]

log = logging.getLogger("skipstone")

# A blob of up to so many bytes is read whole: less than one more request costs.
_SMALL = 32 * 1024
# Bytes between two spans that are read along rather than apart.
_GAP = 256
# Rounds after which readers take more at a time than they ask for: strings in version 1 of a
# bitmap do not say how long they are.
_PATIENCE = 3

Find: TypeAlias = "Callable[[Ask], reading.Rows]"

_NOT_NULL = Range()
_NEGATED = (Op.NE, Op.NOT_IN, Op.NOT_STARTS_WITH, Op.NOT_LIKE)


def rows_of_file(index: RowIndex, file: int) -> FileRows | None:
    """The evidence of ``index`` about the rows of a file; ``None`` where it was not built."""
    stored = index.stored
    if stored is None:
        return None
    row = int(stored.row_of_file[file])
    if row < 0 or not index.known(stored)[row]:
        return None
    return FileRows(
        index=index,
        type=index.paimon_type(stored.type),
        blob=index.blob(row),
        crc=index.crc(row),
        rows=int(stored.rows[row]),
        nulls=int(stored.nulls[row]),
    )


class IndexedRows:
    """A source of the row level over indexes that were read back; others are passed over."""

    def __init__(self, indexes: Sequence[Any]) -> None:
        self.indexes = [index for index in indexes if hasattr(index, "of_file")]

    def __bool__(self) -> bool:
        return bool(self.indexes)

    def evidence(self, file: int, columns: frozenset[str]) -> list[FileRows]:
        """What can be asked about the rows of one file."""
        found = [i.of_file(file) for i in self.indexes if i.column in columns]
        return [each for each in found if each is not None]


@dataclass(slots=True, eq=False, kw_only=True)
class FileRows:
    """See the module. ``rows`` and ``nulls`` are the counts of the file's fact, ``crc`` is the
    checksum of the blob; -1 unknown."""

    index: RowIndex
    type: PaimonType
    blob: Blob | None
    rows: int
    nulls: int
    crc: int = -1
    _asked: dict[ByteRange, int] = field(default_factory=dict)
    _pieces: Pieces | None = None
    _rounds: int = 0
    _silence: Answer | None = None

    @property
    def name(self) -> str:
        """The kind."""
        return self.index.name

    @property
    def column(self) -> str:
        """The column."""
        return self.index.column

    @property
    def level(self) -> Level:
        """Rows."""
        return Level.ROW

    @property
    def cost(self) -> float:
        """Bitmaps before bit slices."""
        return self.index.row_cost

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """What is still missing for any of the leaves."""
        try:
            return self._needs(leaves, have)
        except Exception as error:  # whatever is wrong with a blob, the query goes on
            self._fail(error)
            return ()

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """Bounds over the rows of the file, or why nothing is said."""
        try:
            self._take(have)
            return [self._answer(leaf) for leaf in leaves]
        except Exception as error:  # as above
            return [self._fail(error)] * len(leaves)

    def _needs(self, leaves: Sequence[Leaf], have: Fetched) -> Sequence[ByteRange]:
        if self._silence is not None or self.blob is None:
            return ()
        pieces = self._take(have)
        wanted: set[tuple[int, int]] = set()
        for leaf in leaves:
            for ask in self._asks(leaf) or ():
                wanted.update(self._missing(ask, pieces))
        if not wanted:
            return ()
        self._rounds += 1
        if self._rounds == 1 and pieces.length <= _SMALL:
            wanted = {(0, pieces.length)}
        elif self._rounds > _PATIENCE:
            more = 8 ** (self._rounds - _PATIENCE)
            wanted = {(at, min(size * more, pieces.length - at)) for at, size in wanted}
        ranges = {self.blob.span(at, size): at for at, size in _joined(wanted)}
        self._asked.update(ranges)
        return list(ranges)

    def _take(self, have: Fetched) -> Pieces:
        """The blob as far as it is at hand."""
        assert self.blob is not None or self._silence is not None or self._pieces is None
        if self._pieces is None:
            blob = self.blob
            length = 0 if blob is None else blob.length
            inline = None if blob is None else blob.inline
            if inline is not None:
                self._verify(inline)
            self._pieces = Pieces(length, [] if inline is None else [(0, inline)])
        arrived = [wanted for wanted in self._asked if wanted in have]
        if arrived:
            for wanted in arrived:
                if wanted.length == self._pieces.length:
                    self._verify(have[wanted])
            self._pieces.add([(self._asked.pop(wanted), have[wanted]) for wanted in arrived])
        return self._pieces

    def _verify(self, whole: bytes | memoryview) -> None:
        if self.crc >= 0 and (got := zlib.crc32(whole)) != self.crc:
            raise FormatError("an index with another checksum", expected=self.crc, got=got)

    def _missing(self, ask: Ask, pieces: Pieces) -> Sequence[tuple[int, int]]:
        return reading.needs(self.index.paimon, self.type, ask, pieces)

    def _asks(self, leaf: Leaf) -> tuple[Ask, ...] | None:
        local = self._local(leaf)
        if local is None or isinstance(local, Const):
            return None
        asks = asks_of(local, self.type)
        if asks is not None and self.nulls == 0:
            asks = tuple(ask for ask in asks if ask != _NOT_NULL and not isinstance(ask, Null))
        return asks

    def _local(self, leaf: Leaf) -> Leaf | Const | None:
        assert self.index.stored is not None
        return localise(leaf, self.index.stored.type)

    def _answer(self, leaf: Leaf) -> Answer:
        if self._silence is not None:
            return self._silence
        if self.blob is None:
            return self._fail(FormatError("the index lies nowhere, or outside its container"))
        local = self._local(leaf)
        if isinstance(local, Const):
            every, none = RowSet.all(self.rows), RowSet()
            rows = every if local.value else none
            return Answer(bounds=Bounds(rows, rows))
        bounds = None if local is None else bounds_of(local, self.type, self._find, self.rows)
        if bounds is None:
            text = f"says nothing of {leaf.op} over a column that was {self.type} when indexed"
            return Answer.silent(Cause.NOT_APPLICABLE, self._subject, text)
        return Answer(bounds=bounds)

    def _find(self, ask: Ask) -> reading.Rows:
        """The answer of the blob, or of the null count."""
        if self.nulls == 0 and (ask == _NOT_NULL or isinstance(ask, Null)):
            found = BitMap()
            if ask == _NOT_NULL:
                found.add_range(0, self.rows)
            return reading.Rows(found, True, self.rows)
        assert self._pieces is not None
        rows = reading.answer(self.index.paimon, self.type, ask, self._pieces)
        if rows.row_count != self.rows:
            raise FormatError(
                "the index is of another file", expected=f"{self.rows} rows", got=rows.row_count
            )
        return rows

    def _fail(self, error: Exception) -> Answer:
        """From now on nothing is said, because of ``error``; a warning says so once."""
        if self._silence is None:
            text = getattr(error, "message", "") or str(error) or type(error).__name__
            text = getattr(error, "about", "") or text  # the same for all files
            if isinstance(error, UnsupportedError):
                cause = Cause.UNSUPPORTED
            elif isinstance(error, MissingBytes):
                cause, text = Cause.UNREADABLE, "bytes of it did not arrive"
            else:
                cause = Cause.CORRUPT
            self._silence = Answer.silent(cause, self._subject, text, 1)
            assert self.index.stored is not None
            warned = self.index.stored.cache.setdefault("warned", set())
            if text not in warned:
                warned.add(text)
                log.warning("%s: %s (it says nothing; data is read)", self._subject, text)
        return self._silence

    @property
    def _subject(self) -> str:
        return f"{self.index.name}({self.index.column})"


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offsets and lengths, with those that nearly touch as one: a range bitmap's slices follow each
    other, and so do the bitmaps of neighbouring values."""
    found: list[tuple[int, int]] = []
    for at, size in sorted(spans):
        if found and at <= found[-1][0] + found[-1][1] + _GAP:
            start, length = found[-1]
            found[-1] = (start, max(length, at + size - start))
        else:
            found.append((at, size))
    return found


# -- leaves and questions --------------------------------------------------------------------------


def asks_of(leaf: Leaf, type: PaimonType) -> tuple[Ask, ...] | None:
    """The questions behind a leaf, the one about values first; ``None`` where there are none."""
    op = leaf.op
    if op is Op.IS_NULL:
        return (Null(),)
    if op is Op.NOT_NULL:
        return (_NOT_NULL,)
    ask = _value_ask(leaf, type)
    if ask is None:
        return None
    return (ask, _NOT_NULL) if op in _NEGATED else (ask,)


def bounds_of(leaf: Leaf, type: PaimonType, find: Find, rows: int) -> Bounds[RowSet] | None:
    """What the answers that ``find`` gives say of the leaf over ``rows`` rows."""
    asks = asks_of(leaf, type)
    if asks is None:
        return None
    found = find(asks[0])
    if found.may is None:
        return None
    hit, op = found.may, leaf.op
    if op in _NEGATED or op is Op.NE_OR_NULL:
        if op is Op.NE_OR_NULL:
            domain = BitMap()
            domain.add_range(0, rows)
        else:
            values = find(_NOT_NULL).may
            if values is None:
                return None
            domain = values
        # Whatever is outside `hit` surely matches; inside, a row does only where nobody knows.
        must = domain - hit
        may = must if found.exact and op is not Op.NOT_LIKE else domain
    else:
        may = hit
        must = hit if found.exact and op is not Op.LIKE else BitMap()
    if must is may:
        both = RowSet.of_bitmap(may)
        return Bounds(both, both)
    return Bounds(RowSet.of_bitmap(must), RowSet.of_bitmap(may))


def _value_ask(leaf: Leaf, type: PaimonType) -> Ask | None:
    op = leaf.op
    if op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
        return prefix(_bytes(leaf.values[0], leaf))
    if op in (Op.LIKE, Op.NOT_LIKE):
        return prefix(_bytes(leaf.values[2], leaf))
    keys: list[Key] = []
    for value in leaf.values:
        if isinstance(value, float) and not _fits(value, type):
            return None
        keys.append(key_of(type, value))
    match op:
        case Op.EQ | Op.NE | Op.NE_OR_NULL | Op.IN | Op.NOT_IN:
            return In(tuple(keys))
        case Op.LT:
            return Range(hi=keys[0], hi_open=True)
        case Op.LE:
            return Range(hi=keys[0])
        case Op.GT:
            return Range(lo=keys[0], lo_open=True)
        case Op.GE:
            return Range(lo=keys[0])
        case _:
            return None


def _bytes(value: Value, leaf: Leaf) -> bytes:
    key = order_key(value, leaf.type)
    if isinstance(key, bytes):
        return key
    raise TypeError(f"{value!r} is no beginning of a string")


def _fits(value: float, type: PaimonType) -> bool:
    """False for a double that no float of the column's type equals."""
    with np.errstate(over="ignore"):
        return type.width == 8 or value != value or float(np.float32(value)) == value
