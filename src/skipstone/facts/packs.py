"""Packs: many sidecars in one object, back to back.

    packs/<uuid>.pack:  | sidecar 0 | sidecar 1 | … |      no header, no padding, no footer

Each sidecar is byte for byte a standard file (a Paimon index container, a QuestDB ``_pm``); the
fact row of its data file says where it lies. A sidecar of at most 500 bytes (or the build's
``inline_limit``) lies in the fact row itself: a request of its own would cost more than it carries.

An encrypted index has encrypted packs (``encrypted_packs.py``), and no sidecar in a fact row: there
it would have the footer's key, whatever key its index has.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.storage import Storage

    from .encrypted_packs import Segment
    from .index_encryption import WriteEncryption
    from .location import Location


INLINE_LIMIT = 500


class SidecarPlace(NamedTuple):
    """Where a sidecar lies: ``length`` bytes from ``offset`` of ``pack``, or ``inline``. The order
    is that of ``place_columns``."""

    pack: str | None = None
    offset: int | None = None
    length: int | None = None
    inline: bytes | None = None


class PackWriter:
    """Collects sidecars and writes them as one object; nothing exists before ``close``."""

    def __init__(
        self,
        location: Location,
        storage: Storage,
        inline_limit: int = INLINE_LIMIT,
        encryption: WriteEncryption | None = None,
    ) -> None:
        self.location, self.storage, self.inline_limit = location, storage, inline_limit
        self.encryption = encryption
        self.name = f"{uuid.uuid4()}.pack"
        self._segments: list[Segment] = []
        self._sidecars: list[bytes] = []
        self._length = 0

    @property
    def count(self) -> int:
        """Sidecars in the pack so far."""
        return len(self._sidecars)

    def add(self, sidecar: bytes, segments: Sequence[Segment] = ()) -> SidecarPlace:
        """Take in one sidecar and return where it will lie; ``segments`` say how to encrypt it."""
        if self.encryption is not None:
            self._segments += segments
        elif len(sidecar) <= self.inline_limit:
            return SidecarPlace(inline=sidecar)
        place = SidecarPlace(self.name, self._length, len(sidecar))
        self._sidecars.append(sidecar)
        self._length += len(sidecar)
        return place

    def close(self) -> None:
        """Write the pack if it has any sidecar; call this before the part that names it appears."""
        if not self._sidecars:
            return
        data = b"".join(self._sidecars)
        if self.encryption is not None:
            from .encrypted_packs import encrypt_pack

            footer, keys = self.encryption.encryption.footer_key, self.encryption.keys
            data = encrypt_pack(self.name, data, self._segments, footer, keys)
        self.storage.put(self.location.pack(self.name), data)
