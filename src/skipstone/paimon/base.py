"""The base of Paimon's index kinds: names, types, and the place of a blob in its container."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import UnsupportedError
from skipstone.predicate.types import MapKey, column_path
from skipstone.pruning.column_types import atomic, refuse
from skipstone.pruning.kind import Blob, Index

from .format.column_keys import type_of
from .verified_blob import LEAST, SMALL, BlockSums, Kept, VerifiedBlob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .format.types import PaimonType


# Blobs of which the first bytes are kept between plans.
_KEPT = 64
_SIZE = re.compile(r"(\d+)\s*(b|bytes|k|kb|kibibytes?|m|mb|mebibytes?|g|gb|gibibytes?)?", re.I)
_FACTORS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def memory_size(text: str) -> int:
    """A size in Paimon's spelling: ``16kb``, ``1 mb``, a bare number; units are powers of 1024.

    ``ValueError`` for anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size; 500 b, 16kb and 1 mb are")
    return int(match[1]) * _FACTORS[(match[2] or "")[:1].lower()]


def paimon_column(column: str) -> str:
    """The name of a column in a container: the parts of its path with dots between, and ``m[k]``
    for the key of a map."""
    found = ""
    for part in column_path(column):
        found += f"[{part}]" if isinstance(part, MapKey) else ("." if found else "") + part
    return found


class PaimonIndex(Index):
    """Base of the kinds; see the module."""

    sidecar = "container"
    #: Paimon's name of the kind: ``range-bitmap``
    paimon: ClassVar[str]
    #: bytes of a block of the blob that has a checksum, at least
    block: ClassVar[int] = LEAST
    #: kinds to use for types that this one does not support
    instead: ClassVar[tuple[str, ...]] = ()
    #: cost of asking about the rows of one file; Bloom filters come first, they may spare the rest
    row_cost: ClassVar[float] = 0.5

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

    def former_types(self, type: pa.DataType) -> Sequence[pa.DataType]:
        """Values from before there were checksums of blocks."""
        now = self.stored_type(type)
        return (pa.struct([field for field in now if field.name != "sums"]),)

    def crc(self, row: int) -> int:
        """The checksum of the blob of one fact row, -1 where there is none."""
        return int(self._numbers()["crc"][row])

    def sums(self, row: int) -> BlockSums | None:
        """The checksums of the blob's blocks, ``None`` if the fact has none. ``FormatError``."""
        assert self.stored is not None
        cache, values = self.stored.cache, self.stored.values
        if "sums" not in cache:
            has_sums = values.type.get_field_index("sums") >= 0
            cache["sums"] = pc.struct_field(values, "sums") if has_sums else None
        if cache["sums"] is None or not (found := cache["sums"][row]).is_valid:
            return None
        return BlockSums.from_bytes(
            memoryview(found.as_buffer()), int(self._numbers()["length"][row])
        )

    def verified(self, row: int, blob: Blob) -> VerifiedBlob:
        """A reader of ``blob``, the blob of one fact row, that checks every byte. ``FormatError``
        if the blob is inline and damaged."""
        assert self.stored is not None
        kept: dict[int, Kept] = self.stored.cache.setdefault("kept", {})
        if row not in kept and len(kept) < _KEPT and blob.length > SMALL:
            kept[row] = Kept()
        return VerifiedBlob(blob, self.sums(row), self.crc(row), kept.get(row))

    def blob(self, row: int) -> Blob | None:
        """Where the blob of one fact row lies; ``None`` if it has no place."""
        assert self.stored is not None
        if self.stored.places is None:
            return None
        place = self.stored.places.at(row)
        numbers = self._numbers()
        start, length = int(numbers["start"][row]), int(numbers["length"][row])
        return None if place is None else place.part(start, length)

    def _numbers(self) -> dict[str, NDArray[np.int64]]:
        """Start, length and checksum of the blobs of all fact rows; start and length are 0 if
        there is no blob."""
        assert self.stored is not None
        found: dict[str, NDArray[np.int64]] | None = self.stored.cache.get("numbers")
        if found is None:
            found = self.stored.cache["numbers"] = {
                name: integers_of(self.stored.values, name, unknown)
                for name, unknown in (("start", 0), ("length", 0), ("crc", -1))
            }
        return found


#: The first fields of every stored value: where the blob lies in its container, its CRC-32, and
#: checksums of its blocks (``verified_blob``).
PLACE: dict[str, pa.DataType] = {
    "start": pa.int32(),
    "length": pa.int32(),
    "crc": pa.int64(),
    "sums": pa.binary(),
}


def place_fields() -> list[pa.Field]:
    """The fields of ``PLACE``."""
    return [pa.field(name, type) for name, type in PLACE.items()]


def no_place() -> list[pa.Array]:
    """One value of each field of ``PLACE`` before the container is written."""
    return [pa.nulls(1, type) for type in PLACE.values()]


def integers_of(values: pa.Array, name: str, unknown: int) -> NDArray[np.int64]:
    """A field of stored values, ``unknown`` for null."""
    return np.asarray(pc.fill_null(pc.struct_field(values, name), unknown), np.int64)
