"""What the kinds of Paimon's file index share: their names, types and place in the container."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from skipstone.errors import UnsupportedError
from skipstone.formats.paimon.columns import type_of
from skipstone.predicate.types import column_path

from ..kind import Blob, Index
from ..types import atomic, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.formats.paimon.types import PaimonType

__all__ = ["PaimonIndex", "memory_size", "paimon_column"]

_SIZE = re.compile(r"(\d+)\s*(b|bytes|k|kb|kibibytes?|m|mb|mebibytes?|g|gb|gibibytes?)?", re.I)
_FACTORS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def memory_size(text: str) -> int:
    """Bytes as Paimon writes them: ``16kb``, ``1 mb``, a bare number; units are of 1024.

    ``ValueError`` for anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size; 500 b, 16kb and 1 mb are")
    return int(match[1]) * _FACTORS[(match[2] or "")[:1].lower()]


def paimon_column(column: str) -> str:
    """The name of a column in a container: its own, parts of a path with dots between."""
    return ".".join(column_path(column))


class PaimonIndex(Index):
    """Base of the kinds; see the module."""

    sidecar = "container"
    #: the kind as Paimon calls it: ``range-bitmap``
    paimon: ClassVar[str]
    #: kinds that take types which this one does not
    instead: ClassVar[tuple[str, ...]] = ()

    def check(self, type: PaimonType) -> None:
        """``UnsupportedError`` for a type that Paimon's index of this kind does not take."""
        raise NotImplementedError

    def paimon_type(self, type: pa.DataType) -> PaimonType:
        """Paimon's type of a column of canonical ``type``; ``UnsupportedError`` where the kind does
        not take it."""
        try:
            if not atomic(type):
                raise UnsupportedError(f"{type} is no atomic type")
            found = type_of(type)
            self.check(found)
        except UnsupportedError:
            raise refuse(self.name, self.column, type, self.instead) from None
        return found

    def blob(self, row: int) -> Blob | None:
        """Where the blob of one fact row lies; ``None`` where that is nowhere."""
        assert self.stored is not None
        if self.stored.places is None:
            return None
        place = self.stored.places.at(row)
        starts, lengths = self._within()
        return None if place is None else place.part(int(starts[row]), int(lengths[row]))

    def _within(self) -> Sequence[NDArray[np.int64]]:
        """Start and length of each fact row's blob in its container, 0 where there is none."""
        import numpy as np
        import pyarrow.compute as pc

        assert self.stored is not None
        found: list[NDArray[np.int64]] | None = self.stored.cache.get("within")
        if found is None:
            values = self.stored.values
            found = self.stored.cache["within"] = [
                np.asarray(pc.fill_null(pc.struct_field(values, name), 0), np.int64)
                for name in ("start", "length")
            ]
        return found
