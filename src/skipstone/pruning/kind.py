"""What an index kind is: a class that builds from Arrow columns and answers when read back.

One class serves both ends. A *definition* is an instance with a column and parameters
(``Bloom("user_id", fpp=0.01)``); ``build`` gives a ``Builder`` for one file's column. *Read
back*, the same instance carries ``stored``, the values of all files of the table as one Arrow
array, and is ``Evidence`` (``needs``, ``answer``).

Own kinds subclass ``Index``, set ``name``, and are registered by an entry point of the group
``skipstone.indexes`` (name = the kind's name, value = the class). A kind that is not known here
says nothing; its stored column survives refresh and compact byte for byte.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from skipstone.storage import ByteRange

from . import Answer, BaseEvidence, Fetched, Level, Units

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf

__all__ = ["Blob", "Builder", "Built", "Chunk", "Index", "Places", "Stored"]

T = TypeVar("T")


class Chunk:
    """A run of one column's values, as handed to every builder of that column.

    What several kinds derive from it (its distinct values) is computed once.
    """

    def __init__(self, values: pa.Array) -> None:
        self.values = values
        self._derived: dict[Hashable, Any] = {}

    def once(self, key: Hashable, derive: Callable[[], T]) -> T:
        """What ``derive`` gave, called at most once for ``key`` whichever builder asks."""
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
        """The distinct non-null values, in any order; -0.0 and 0.0, and all NaNs, may still
        differ."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = self.values
        if pa.types.is_dictionary(values.type):
            used = pc.drop_null(pc.unique(values.indices))
            return pc.unique(pc.drop_null(values.dictionary.take(used)))
        return pc.drop_null(pc.unique(values))


@dataclass(frozen=True, slots=True)
class Built:
    """What a builder made of one file's column.

    ``value`` is an Arrow array of length 1 and of the kind's ``stored_type``; ``None`` when the
    index was left out for this file, and then ``reason`` says why. ``blob`` is this index's share
    of the file's sidecar, for a kind that has one.
    """

    value: pa.Array | None
    reason: str | None = None
    blob: bytes | None = None


class Builder(ABC):
    """Builds one index over one file's column, chunk by chunk, within a memory budget."""

    @abstractmethod
    def add(self, chunk: Chunk) -> None:
        """Take in the next values, in file order."""

    @abstractmethod
    def finish(self) -> Built:
        """The index value; called once, after the last chunk (also after none: an empty file)."""

    @property
    def nbytes(self) -> int:
        """Bytes that the builder holds now."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Where some bytes lie: at hand as ``inline``, or ``length`` bytes from ``offset`` of
    ``path``."""

    path: str = ""
    offset: int = 0
    length: int = 0
    inline: memoryview | None = None

    def part(self, start: int, length: int) -> Blob | None:
        """``length`` bytes from ``start`` of these; ``None`` where they are not all in them."""
        if start < 0 or length <= 0 or start + length > self.length:
            return None
        if self.inline is not None:
            return Blob(length=length, inline=self.inline[start : start + length])
        return Blob(path=self.path, offset=self.offset + start, length=length)

    def span(self, offset: int, length: int) -> ByteRange:
        """These bytes of it, as what a store is asked for."""
        return ByteRange(self.path, self.offset + offset, length)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Places:
    """Where the sidecar of each of ``n`` fact rows lies.

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
        """The place of one fact row's sidecar; ``None`` where it has none."""
        inline = self.inline[row]
        if inline.is_valid:
            data = memoryview(inline.as_buffer())
            return Blob(length=len(data), inline=data)
        pack, offset, length = int(self.pack[row]), int(self.offset[row]), int(self.length[row])
        if pack < 0 or offset < 0 or length < 0:
            return None
        return Blob(path=self.packs[pack], offset=offset, length=length)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Stored:
    """One index as read back: parallel arrays over ``n`` fact rows, and where each file's row is.

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
    name: ClassVar[str]
    #: names a user may type instead: ``("bloom",)``
    aliases: ClassVar[tuple[str, ...]] = ()
    #: names of the parameters that a user may write: ``("fpp",)``
    parameters: ClassVar[tuple[str, ...]] = ()
    level: ClassVar[Level] = Level.OBJECT
    #: cost of asking about one unit, relative to the other kinds of its level
    cost: ClassVar[float] = 1.0
    #: the sidecar of each data file that it lies in, if in one: ``container``
    sidecar: ClassVar[str | None] = None

    def __init__(self, column: str) -> None:
        self.column = column
        self.stored: Stored | None = None

    @property
    def params(self) -> Mapping[str, str]:
        """The parameters as the store keeps them, strings both sides."""
        return {}

    @classmethod
    def from_params(cls, column: str, params: Mapping[str, str]) -> Self:
        """The definition that ``params`` came from; unknown parameters are ignored."""
        return cls(column)

    @abstractmethod
    def stored_type(self, type: pa.DataType) -> pa.DataType:
        """Arrow type of one stored value for a column of ``type``.

        Raises ``UnsupportedError`` where the kind cannot index that type.
        """

    def former_types(self, type: pa.DataType) -> Sequence[pa.DataType]:
        """Types of stored values that earlier versions of the kind wrote for a column of ``type``,
        and that can still be read back."""
        return ()

    def in_xskipper(self, type: pa.DataType) -> bool:
        """True when Xskipper itself has this kind for a column of ``type``: it can be published."""
        return False

    @abstractmethod
    def build(self, type: pa.DataType, budget: int) -> Builder:
        """A builder for one file's column of ``type`` that holds at most ``budget`` bytes."""

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """Nothing: object-level indexes are held in memory by the snapshot."""
        return ()

    @abstractmethod
    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf, over exactly these units. Reads ``self.stored``."""

    def read_back(self, stored: Stored) -> Self:
        """The same definition as evidence over ``stored``."""
        other = copy.copy(self)
        other.stored = stored
        return other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Index):
            return NotImplemented
        return (self.name, self.column, dict(self.params)) == (
            other.name,
            other.column,
            dict(other.params),
        )

    def __hash__(self) -> int:
        return hash((self.name, self.column, tuple(sorted(self.params.items()))))

    def __repr__(self) -> str:
        shown = "".join(f", {key}={value}" for key, value in self.params.items())
        return f"{self.name}({self.column}{shown})"
