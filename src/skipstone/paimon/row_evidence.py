"""The rows of one file according to one index: evidence of the row level.

A leaf becomes questions to the blob (``format/keys``), and the answers are sets of rows:

| leaf | questions | rows that may match, must |
|---|---|---|
| ``= IN < <= > >=``, starts with | one | the answer, all of it if exact |
| ``<> NOT IN``, not starts with | that, and "not null" | not null without the answer, both ways |
| ``NOT <=>`` | ``=`` | all rows without the answer |
| ``IS [NOT] NULL`` | one | the answer |
| ``LIKE`` | starts with its literal prefix | the answer, none |
| ``NOT LIKE`` | that, and "not null" | not null, not null without the answer |

A column known to have no nulls needs no question about nulls. A blob is read in rounds: its
head, then blocks or chunks of its dictionary, then bitmaps; a small blob is read at once. Every
byte is checked against the checksums of the facts (``base``). If anything is wrong with a
blob, the index says nothing, and one warning is logged. Blobs without such checksums, as in
containers of other writers, are trusted where their parts are consistent, and a reason says so.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from pyroaring import BitMap

from skipstone._cache import LruCache
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.predicate.literals import order_key
from skipstone.predicate.tree import POSITIVE, Const, Leaf, Op
from skipstone.pruning import Answer, BaseEvidence, Bounds, Cause, Level, Reason, RowSet
from skipstone.pruning.column_types import restate

from . import index_blob as reading
from .base import VerifiedBlob
from .format.column_keys import key_of
from .format.keys import In, Null, Range, prefix
from .format.partial_blob import MissingBytes
from .index_blob import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from skipstone.predicate.types import Value
    from skipstone.pruning import Fetched, Units
    from skipstone.pruning.kind import Blob
    from skipstone.storage import ByteRange

    from .base import PaimonIndex
    from .format.keys import Ask, Key, PaimonType


# Rounds after which reads grow beyond the requested bytes: strings in version 1 of a bitmap do not
# state their total length.
_PATIENCE = 3
#: the most values of a leaf that is asked: each is an object, and may take a read
MOST_KEYS = 10_000

Find: TypeAlias = "Callable[[Ask], reading.RowAnswer]"

_NOT_NULL = Range()


class _Questions(NamedTuple):
    """The questions of a leaf to blobs of one type. The leaf is kept alive because its address is
    the key of the cache."""

    leaf: Leaf
    local: Leaf | Const | None
    asks: tuple[Ask, ...]


@dataclass(slots=True, eq=False, kw_only=True)
class FileRows(BaseEvidence):
    """See the module. ``rows`` and ``nulls`` are the file's counts in its fact, -1 unknown;
    ``fact`` is the row of the fact. ``shared`` holds what all files of one index share: pass the
    same mapping for all."""

    index: PaimonIndex
    type: PaimonType
    blob: Blob | None
    rows: int
    nulls: int
    fact: int = -1
    shared: dict[Any, Any] = field(default_factory=dict)
    _verified: VerifiedBlob | None = None
    _opened: reading.Index | None = None
    _found: dict[Ask, reading.RowAnswer] = field(default_factory=dict)
    _rounds: int = 0
    _silence: Answer | None = None

    @property
    def name(self) -> str:
        return self.index.name

    @property
    def column(self) -> str:
        return self.index.column

    @property
    def level(self) -> Level:
        return Level.ROW

    @property
    def cost(self) -> float:
        """Bitmaps before bit slices."""
        return self.index.row_cost

    @property
    def joined(self) -> int:
        """The rows of unions of bitmaps."""
        asked = self._found.items() if self.index.paimon == "bitmap" else ()
        return sum(len(answer.may) for ask, answer in asked if answer.may and joins(ask))

    def decides(self, leaf: Leaf) -> bool:
        """Whether the index decides ``leaf`` for each row with few reads.

        A bitmap index answers a range by joining the bitmaps of all values in the range.
        """
        if self._silence is not None or self.blob is None or leaf.op in (Op.LIKE, Op.NOT_LIKE):
            return False
        try:
            _, local, asks = self._asked(leaf)
        except Exception:  # ``answer`` gives the reason
            return False
        if isinstance(local, Const):
            return True
        ranges = any(isinstance(ask, Range) and ask != _NOT_NULL for ask in asks)
        return (
            bool(asks)
            and self.type.exact
            and self.index.paimon != "bloom-filter"
            and not (ranges and self.index.paimon == "bitmap")
        )

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """The bytes that are missing for any of the leaves."""
        try:
            return self._needs(leaves, have)
        except Exception as error:  # whatever is wrong with a blob, the query continues
            self._fail(error)
            return ()

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """Bounds over the rows of the file, or the reason why there are none."""
        try:
            if self._silence is None and self.blob is not None:
                self._bytes().take(have)
            answers = [self._answer(leaf) for leaf in leaves]
            if self.fact >= 0:
                self._remember(leaves, answers)
            return answers
        except Exception as error:  # as above
            return [self._fail(error)] * len(leaves)

    def _remember(self, leaves: Sequence[Leaf], answers: Sequence[Answer]) -> None:
        """Keeps for the next plan the answers that are exact and have no reason. That is safe: a
        blob never changes, because a file that changes gets another fact."""
        for leaf, answer in zip(leaves, answers, strict=True):
            bounds = answer.bounds
            if bounds is None or bounds.must is not bounds.may or answer.reasons:
                continue
            if self.decides(leaf):
                answers_to(self.index, leaf).add(self.fact, bounds)

    def _needs(self, leaves: Sequence[Leaf], have: Fetched) -> Sequence[ByteRange]:
        if self._silence is not None or self.blob is None:
            return ()
        verified = self._bytes()
        verified.take(have)
        if verified.whole:
            return ()
        wanted: set[tuple[int, int]] = set()
        length = self.blob.length
        for leaf in leaves:
            for ask in self._asked(leaf).asks:
                if length <= SMALL:
                    if not self._is_counted(ask):
                        return verified.ask([(0, length)])
                    continue
                try:
                    self._find(ask)
                except MissingBytes as missing:
                    wanted.update(missing.spans)
        if not wanted:
            return ()
        self._rounds += 1
        if self._rounds > _PATIENCE:
            more = 8 ** (self._rounds - _PATIENCE)
            wanted = {(at, min(size * more, length - at)) for at, size in wanted}
        return verified.ask(wanted)

    def _bytes(self) -> VerifiedBlob:
        if self._verified is None:
            assert self.blob is not None
            if self.fact < 0:
                self._verified = VerifiedBlob(self.blob)
            else:
                self._verified = self.index.verified(self.fact, self.blob)
        return self._verified

    def _asked(self, leaf: Leaf) -> _Questions:
        found: _Questions | None = self.shared.get(id(leaf))
        if found is None:
            local = self._local(leaf)
            asks = asks_of(local, self.type) if isinstance(local, Leaf) else None
            found = self.shared[id(leaf)] = _Questions(leaf, local, asks or ())
        return found

    def _local(self, leaf: Leaf) -> Leaf | Const | None:
        assert self.index.stored is not None
        return restate(leaf, self.index.stored.type)

    def _answer(self, leaf: Leaf) -> Answer:
        if self._silence is not None:
            return self._silence
        if self.blob is None:
            return self._fail(FormatError("the index has no place, or one outside its container"))
        _, local, asks = self._asked(leaf)
        if isinstance(local, Const):
            every, none = RowSet.all(self.rows), RowSet()
            rows = every if local.value else none
            return Answer(bounds=Bounds(rows, rows))
        bounds = bounds_of(local, asks, self._find, self.rows) if local and asks else None
        if bounds is None:
            text = f"says nothing about {leaf.op} over a column that was {self.type} when indexed"
            return Answer.silent(Cause.NOT_APPLICABLE, self.index.subject, text)
        if self._verified is not None and self._verified.unsure:
            return Answer(bounds=bounds, reasons=(self._unsure(),))
        return Answer(bounds=bounds)

    def _find(self, ask: Ask) -> reading.RowAnswer:
        """The answer of the blob, or of the null count. ``MissingBytes`` names what it lacks."""
        found = self._found.get(ask)
        if found is not None:
            return found
        if self._is_counted(ask):
            plain = BitMap(range(self.rows if ask == _NOT_NULL else 0))
            found = reading.RowAnswer(plain, True, self.rows)
        else:
            if self._opened is None:
                self._opened = self._bytes().opened(self.index.paimon, self.type)
            found = reading.answer_of(self._opened, self.type, ask)
            self._check(found)
        self._found[ask] = found
        return found

    def _is_counted(self, ask: Ask) -> bool:
        """Whether the null count gives the answer."""
        return self.nulls == 0 and (isinstance(ask, Null) or ask == _NOT_NULL)

    def _check(self, found: reading.RowAnswer) -> None:
        if found.row_count != self.rows:
            raise FormatError(
                "the index is of another file", expected=f"{self.rows} rows", got=found.row_count
            )

    def _unsure(self) -> Reason:
        """The reason that bytes without a checksum were used."""
        reason: Reason | None = self.shared.get("unsure")
        if reason is None:
            what = "containers of others have no" if self.fact < 0 else "built before there were"
            text = f"{what} checksums of its parts: consistent damage is not detected"
            reason = Reason(cause=Cause.ABSENT, subject=self.index.subject, text=text)
            self.shared["unsure"] = reason
        return reason

    def _fail(self, error: Exception) -> Answer:
        """Silences the index because of ``error``, and logs one warning."""
        if self._silence is None:
            text = getattr(error, "message", "") or str(error) or type(error).__name__
            text = getattr(error, "about", "") or text  # the same for all files
            if isinstance(error, UnsupportedError):
                cause = Cause.UNSUPPORTED
            elif isinstance(error, MissingBytes):
                cause, text = Cause.UNREADABLE, "bytes of it could not be read"
            else:
                cause = Cause.CORRUPT
            self._silence = Answer.silent(cause, self.index.subject, text, 1)
            self.index.warn(text)
        return self._silence


# The most leaves whose answers an index remembers, and the most bytes of answers to one leaf.
_LEAVES = 8
_ANSWERS = 8 << 20


@dataclass(slots=True, eq=False)
class Remembered:
    """Exact answers to one leaf, by fact."""

    bounds: dict[int, Bounds[RowSet]] = field(default_factory=dict)
    size: int = 0

    def add(self, fact: int, bounds: Bounds[RowSet]) -> None:
        """Keeps an answer while there is room."""
        # A Roaring bitmap takes two bytes a row at most, besides its containers.
        size = 128 + min(2 * len(bounds.may), 1 << 16)
        if fact not in self.bounds and self.size + size <= _ANSWERS:
            self.size += size
            self.bounds[fact] = bounds


def answers_to(index: PaimonIndex, leaf: Leaf) -> Remembered:
    """The remembered answers to ``leaf``, to which the caller may add."""
    assert index.stored is not None
    known = index.stored.cache.setdefault("answers", LruCache(_LEAVES))
    found: Remembered = known.get(leaf) or known.setdefault(leaf, Remembered())
    return found


def remembered_rows(index: PaimonIndex, leaf: Leaf) -> Mapping[int, Bounds[RowSet]] | None:
    """The exact answers to ``leaf`` that were made so far, by fact; ``None`` for none."""
    answers = None if index.stored is None else index.stored.cache.get("answers")
    found: Remembered | None = None if answers is None else answers.get(leaf)
    return None if found is None else found.bounds


# -- leaves and questions --------------------------------------------------------------------------


def asks_of(leaf: Leaf, type: PaimonType) -> tuple[Ask, ...] | None:
    """The questions of a leaf, the one about values first; ``None`` if there are none."""
    op = leaf.op
    if op is Op.IS_NULL:
        return (Null(),)
    if op is Op.NOT_NULL:
        return (_NOT_NULL,)
    ask = _value_ask(leaf, type)
    if ask is None:
        return None
    return (ask, _NOT_NULL) if op in POSITIVE else (ask,)


def joins(ask: Ask) -> bool:
    """Whether the answer of a bitmap index is the union of several bitmaps."""
    return len(ask.keys) > 1 if isinstance(ask, In) else isinstance(ask, Range) and ask != _NOT_NULL


def bounds_of(leaf: Leaf, asks: tuple[Ask, ...], find: Find, rows: int) -> Bounds[RowSet] | None:
    """Bounds of the leaf over ``rows`` rows, from the answers of ``find`` to ``asks``."""
    found = find(asks[0])
    if found.may is None:
        return None
    hit, op = found.may, leaf.op
    if op in POSITIVE or op is Op.NE_OR_NULL:
        if op is Op.NE_OR_NULL:
            domain = BitMap(range(rows))
        else:
            values = find(_NOT_NULL).may
            if values is None:
                return None
            domain = values
        # Every row outside `hit` matches. Inside, a row may match only if the answer is inexact.
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
    if len(leaf.values) > MOST_KEYS:
        return None
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
    raise TypeError(f"{value!r} is not a prefix of a string")


def _fits(value: float, type: PaimonType) -> bool:
    """False for a double that no float of the column's type equals."""
    with np.errstate(over="ignore"):
        return type.width == 8 or value != value or float(np.float32(value)) == value
