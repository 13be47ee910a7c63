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
from typing import TYPE_CHECKING, Any, ClassVar, Self

from skipstone.bounds import Answer, ByteRange, Fetched, Level, Units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf

__all__ = ["Builder", "Built", "Chunk", "Index", "Stored"]


class Chunk:
    """A run of one column's values, as handed to every builder of that column.

    What several kinds derive from it (its distinct values) is computed once.
    """

    def __init__(self, values: pa.Array) -> None:
        self.values = values

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
    index was left out for this file, and then ``reason`` says why.
    """

    value: pa.Array | None
    reason: str | None = None


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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Stored:
    """One index as read back: parallel arrays over ``n`` fact rows, and where each file's row is.

    - ``type``: Arrow type of the indexed column when it was built;
    - ``values``: Arrow array ``(n,)`` of the kind's ``stored_type``; null = not built for that
      file;
    - ``rows``, ``nulls``: int64 ``(n,)``, row count and the column's null count, -1 unknown;
    - ``row_of_file``: int64 ``(files,)``, fact row of each file of the listing, -1 for none.

    ``cache`` keeps what a kind derives from ``values`` (order keys, parsed headers) for as long
    as the snapshot lives; keys are the kind's own.
    """

    type: pa.DataType
    values: pa.Array
    rows: NDArray[np.int64]
    nulls: NDArray[np.int64]
    row_of_file: NDArray[np.int64]
    cache: dict[str, Any] = field(default_factory=dict)


class Index(ABC):
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
