"""Packs: many sidecars in one object, back to back.

    packs/<uuid>.pack:  | sidecar 0 | sidecar 1 | … |      no header, no padding, no footer

Each sidecar is byte for byte a standard file (a Paimon index container, a QuestDB ``_pm``); the
fact row of its data file says where it lies. One of at most 500 bytes, or as many as the build was
told, lies in the fact row itself: a request of its own would cost more than it carries.

Of an encrypted index packs are sealed (``sealed_packs.py``), and nothing lies in the fact row:
there it would have the footer's key, whatever its index has.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skipstone.storage import ByteRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.storage import Storage

    from .encrypted_packs import Segment
    from .index_encryption import Sealing
    from .location import Location

__all__ = ["INLINE_LIMIT", "PackWriter", "Place"]

INLINE_LIMIT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a sidecar lies: ``inline`` bytes, or ``length`` bytes from ``offset`` of ``pack``."""

    pack: str | None = None
    offset: int = 0
    length: int = 0
    inline: bytes | None = None

    def byte_range(self, location: Location) -> ByteRange | None:
        """The range to read; ``None`` when the bytes are at hand, or the place is no place."""
        if self.pack is None or "/" in self.pack or self.offset < 0 or self.length < 0:
            return None
        return ByteRange(location.pack(self.pack), self.offset, self.length)

    def read(self, location: Location, storage: Storage) -> bytes | None:
        """The sidecar; ``None`` when its pack is gone or too short: then there is no fact."""
        wanted = self.byte_range(location)
        if wanted is None:
            return self.inline
        found = storage.read_ranges([wanted]).get(wanted)
        return None if found is None else bytes(found)


class PackWriter:
    """Collects sidecars and writes them as one object; nothing exists before ``close``."""

    def __init__(
        self,
        location: Location,
        storage: Storage,
        inline_limit: int = INLINE_LIMIT,
        sealing: Sealing | None = None,
    ) -> None:
        self.location, self.storage, self.inline_limit = location, storage, inline_limit
        self.sealing = sealing
        self._segments: list[Segment] = []
        self.name = f"{uuid.uuid4()}.pack"
        self._pieces: list[bytes] = []
        self._length = 0

    @property
    def count(self) -> int:
        """Sidecars that the pack has so far."""
        return len(self._pieces)

    def add(self, sidecar: bytes, segments: Sequence[Segment] = ()) -> Place:
        """Take in one sidecar and say where it will lie; sealed by ``segments``, all of it."""
        if self.sealing is not None:
            self._segments += segments
        elif len(sidecar) <= self.inline_limit:
            return Place(inline=sidecar)
        place = Place(pack=self.name, offset=self._length, length=len(sidecar))
        self._pieces.append(sidecar)
        self._length += len(sidecar)
        return place

    def close(self) -> None:
        """Write the pack, if anything is in it: before the part that names it."""
        if not self._pieces:
            return
        data = b"".join(self._pieces)
        if self.sealing is not None:
            from .encrypted_packs import seal_pack

            footer, keys = self.sealing.encryption.footer_key, self.sealing.keys
            data = seal_pack(self.name, data, self._segments, footer, keys)
        self.storage.put(self.location.pack(self.name), data)
