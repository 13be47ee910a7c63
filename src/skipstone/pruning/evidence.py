"""``Evidence``: anything that can prove something about a leaf, at any level, without I/O.

The planner calls it in two phases, so that the planner alone decides what is fetched and when:

1. ``needs(leaves, units, have)`` names the byte ranges of an answer. The planner collects the needs
   of all evidence of a level, and fetches them as one coalesced wave. It repeats this until nothing
   more is needed (a file index takes a head, then a dictionary block, then bitmaps).
2. ``answer(leaves, units, have)`` gives one ``Answer`` per leaf: ``Bounds`` over the units, or
   ``None`` when it proves nothing, with the ``Reason``.

An evidence that cannot use a leaf, lacks bytes, or finds them damaged answers ``None`` with a
reason. It never raises for what it reads; the planner treats an exception as "says nothing" all
the same.

The units of the object level are all files of the listing. A ``Source`` splits units that are still
undecided into finer ones (row groups, pages) and gives the evidence about them. A ``RowSource``
gives the evidence about the rows of one file. A unit that a source cannot split (no footer, no
fact) stays whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    SkipstoneError,
    UnsupportedError,
    in_words,
)
from skipstone.predicate.tree import Joint
from skipstone.storage import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf

    from .bounds import Bounds
    from .row_set import RowSet


IntArray: TypeAlias = "NDArray[np.int64]"


class Level(IntEnum):
    """The four levels of the funnel, from coarse to fine."""

    OBJECT = 0
    ROW_GROUP = 1
    PAGE = 2
    ROW = 3

    @property
    def unit(self) -> str:
        """The plural name of the level's unit, for people."""
        return ("files", "row groups", "pages", "rows")[self]


class Cause(StrEnum):
    """Why an index says nothing. All of them read more, none is an error."""

    ABSENT = "absent"  # not built, or no fact for the file
    STALE = "stale"  # the file has changed since
    CORRUPT = "corrupt"  # bytes are not what the format says
    UNREADABLE = "unreadable"  # the store did not give the bytes
    UNDECRYPTABLE = "undecryptable"  # a key is missing or wrong
    UNSUPPORTED = "unsupported"  # unknown version, kind or type
    NOT_APPLICABLE = "not applicable"  # this kind cannot answer such a predicate
    OVER_LIMIT = "over limit"  # left out at build because it did not fit
    COSTLY = "costly"  # evaluating it would cost more than it saves


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why something was not used: ``subject`` (an index, a leaf, a file), ``cause``, and words.

    ``units`` says how many units it concerns, ``None`` where that has no meaning.
    """

    cause: Cause
    subject: str
    text: str
    units: int | None = None

    @classmethod
    def of_error(cls, subject: str, error: Exception) -> Reason:
        """Why ``subject`` says nothing, from the error that reading it raised."""
        if isinstance(error, KeyUnavailableError):
            cause = Cause.UNDECRYPTABLE
        elif isinstance(error, UnsupportedError):
            cause = Cause.UNSUPPORTED
        elif isinstance(error, FormatError) or not isinstance(error, OSError | SkipstoneError):
            cause = Cause.CORRUPT
        else:
            cause = Cause.UNREADABLE
        return cls(cause=cause, subject=subject, text=in_words(error))

    def __str__(self) -> str:
        count = "" if self.units is None else f" ({self.units:,})"
        return f"{self.subject}: {self.text}{count}"


Fetched: TypeAlias = Mapping[ByteRange, "bytes | memoryview"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Units:
    """The units of one level that are still alive, as parallel arrays of length ``n``.

    - ``file``: ordinal of the unit's file in the plan's listing;
    - ``ordinal``: position inside the file: 0 at the object level, else the row group that the unit
      lies in (a page unit is a run of rows between page boundaries of any predicate column);
    - ``first_row``: the unit's first row, counted from the start of its file;
    - ``rows``: its row count, -1 where unknown.
    """

    level: Level
    file: IntArray
    ordinal: IntArray
    first_row: IntArray
    rows: IntArray

    def __len__(self) -> int:
        return len(self.file)

    @classmethod
    def objects(cls, file: IntArray, rows: IntArray) -> Units:
        """Units of the object level: whole files with these ordinals and row counts."""
        zero = np.zeros(len(file), dtype=np.int64)
        return cls(level=Level.OBJECT, file=file, ordinal=zero, first_row=zero, rows=rows)

    def with_finer(self, finer: Units) -> Units:
        """These units, and after them ``finer`` ones, in whose level all are then."""
        return Units(
            level=finer.level,
            file=np.concatenate((self.file, finer.file)),
            ordinal=np.concatenate((self.ordinal, finer.ordinal)),
            first_row=np.concatenate((self.first_row, finer.first_row)),
            rows=np.concatenate((self.rows, finer.rows)),
        )

    def where(self, keep: NDArray[np.bool_] | IntArray) -> Units:
        """The units that ``keep`` (mask or positions) selects."""
        if keep.dtype == np.bool_:
            keep = keep.nonzero()[0]  # one pass over the mask instead of four
        if self.level is Level.OBJECT:
            return Units.objects(self.file[keep], self.rows[keep])
        return Units(
            level=self.level,
            file=self.file[keep],
            ordinal=self.ordinal[keep],
            first_row=self.first_row[keep],
            rows=self.rows[keep],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer for one leaf: ``bounds`` over the given units, or ``None``: it says nothing.

    ``reasons`` explain why, for all units or for some (then ``bounds`` has those in ``may``).
    """

    bounds: Bounds[Any] | None
    reasons: tuple[Reason, ...] = ()

    @classmethod
    def silent(cls, cause: Cause, subject: str, text: str, units: int | None = None) -> Answer:
        """Says nothing, because of ``cause``."""
        return cls(
            bounds=None,
            reasons=(Reason(cause=cause, subject=subject, text=text, units=units),),
        )


LeafT = TypeVar("LeafT", contravariant=True)


class _Named(Protocol):
    @property
    def name(self) -> str:
        """The name in ``explain``: the kind, ``minmax``, ``bloomfilter``, ``page index`` …"""

    @property
    def column(self) -> str:
        """The column of the evidence, as a dotted path; the planner routes leaves by it."""


class Evidence(_Named, Protocol[LeafT]):
    """See the module. ``LeafT`` is the predicate leaf (``skipstone.predicate.Leaf``)."""

    @property
    def level(self) -> Level:
        """The level of its units."""

    @property
    def cost(self) -> float:
        """Cost of one unit, relative to others of the level; the cheapest evidence comes first."""

    @property
    def joined(self) -> int:
        """The rows of single values that were joined for the answers so far; 0 where an answer is
        stored as a whole."""

    @property
    def tolerates_loss(self) -> bool:
        """Whether it still answers for other units where the bytes of some are lost."""

    @property
    def asks_jointly(self) -> bool:
        """Whether it answers a ``Joint``: it knows which values a unit has."""

    def decides(self, leaf: LeafT) -> bool:
        """Whether it will decide ``leaf`` for each row; known before it reads anything."""

    def needs(self, leaves: Sequence[LeafT], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """The byte ranges still missing for an answer; empty when ``answer`` can be called."""

    def answer(self, leaves: Sequence[LeafT], units: Units, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf, in order, each over exactly these units."""


def answerable(item: Evidence[Leaf], leaves: Sequence[Leaf]) -> Sequence[Leaf]:
    """The leaves on its column that evidence may answer."""
    if any(isinstance(leaf, Joint) for leaf in leaves) and not item.asks_jointly:
        return [leaf for leaf in leaves if not isinstance(leaf, Joint)]
    return leaves


class BaseEvidence:
    """Members that most kinds of evidence share."""

    __slots__ = ()

    tolerates_loss: ClassVar[bool] = False
    asks_jointly: ClassVar[bool] = False

    @property
    def joined(self) -> int:
        """0: answers are stored as a whole."""
        return 0

    @property
    def subject(self: _Named) -> str:
        """What its reasons are about: ``minmax(ts)``."""
        return f"{self.name}({self.column})"

    def silent(self: _Named, leaf: Leaf) -> Answer:
        """The answer to a leaf that it never decides."""
        subject, text = f"{self.name}({self.column})", f"says nothing about {leaf.op}"
        return Answer.silent(Cause.NOT_APPLICABLE, subject, text)

    def decides(self, leaf: Leaf) -> bool:
        """False: the answer may leave rows undecided."""
        return False

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """Nothing: it is in memory."""
        return ()


class Source(ABC):
    """Units and evidence of the row group or the page level; see the module.

    ``split`` and ``evidence`` are what a source must have. The planner calls ``observe`` once per
    plan, then ``split``, and reads ``spent`` and ``reasons`` after that. Where units are many, it
    calls ``split`` and ``evidence`` for a sample, then ``stored``, then for the others.
    """

    __slots__ = ()

    #: ``ROW_GROUP`` or ``PAGE``
    level: Level
    #: True where ``split`` limits its own cost: the planner's ``CostGate`` passes every unit
    limits_cost: ClassVar[bool] = False

    @property
    def spent(self) -> tuple[int, int]:
        """Bytes and requests that ``split`` took."""
        return 0, 0

    @property
    def reasons(self) -> Sequence[Reason]:
        """Why some units were not evaluated."""
        return ()

    def stored(self, units: Units, columns: frozenset[str]) -> IntArray | None:
        """The stored bytes of these columns in each unit, as far as known without a read; -1 or
        ``None`` where they are not."""
        return None

    def decoded(self, index: str, column: str, units: Units) -> int:
        """The bytes that evidence called ``index`` decodes for these units, read or cached."""
        return 0

    def observe(self, alive: Units) -> None:  # noqa: B027 - most sources ignore it
        """Takes all units that may hold a match, the decided ones included."""

    @abstractmethod
    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, NDArray[np.int64]]:
        """The finer units, and for each the position in ``units`` of the one it lies in.

        The parts of a unit cover all its rows; a unit that cannot be split has no parts.
        """

    @abstractmethod
    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """The evidence about these units."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KnownRows:
    """Exact answers to one leaf: ``bounds`` by the fact of a file. ``facts``, int64 (files,), is
    the fact of each file of the listing, -1 for none. ``joins``: each answer is joined from the
    rows of several values. ``bytes_read``, ``requests`` and ``milliseconds`` are what the answers
    took that earlier plans had not made."""

    leaf: Leaf
    index: str
    cost: float
    facts: NDArray[np.int64]
    bounds: Mapping[int, Bounds[RowSet]]
    joins: bool = False
    bytes_read: int = 0
    requests: int = 0
    milliseconds: float = 0.0


class RowSource(Protocol):
    """Evidence of the row level, file by file."""

    def evidence(self, file: int, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """The evidence about the rows of one file; may be empty."""

    def known(
        self,
        leaves: Sequence[Leaf],
        files: NDArray[np.int64],
        fetch: Callable[[Sequence[ByteRange]], Fetched],
    ) -> Sequence[KnownRows]:
        """Answers for each of the leaves, in their order; empty where a leaf has none. Where it is
        cheaper to ask many of ``files`` together, this asks them."""

    def stored(self, files: NDArray[np.int64], column: str) -> NDArray[np.int64]:
        """An upper estimate of the bytes of ``column`` in each of the files, from what its indexes
        know of its values; -1 where they know nothing."""
