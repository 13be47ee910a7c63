"""``EncryptedStorage``: the storage of an encrypted index, which decrypts the packs that it reads.

Callers ask for ranges of sidecars by the places in the facts, whether the index is encrypted or
not.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, BinaryIO, Final

from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.pruning import Reason

from .encrypted_packs import EncryptedPack, pack_end

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from skipstone.identity import ObjectId
    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import ByteRange, Listing, Storage

    from .location import Location


# Bytes at the end of a pack that are read first.
_GUESS: Final = 32 * 1024


class EncryptedStorage:
    """The storage of an encrypted index: ranges of packs are ranges of their plaintext.

    All other operations are those of ``storage``. ``reasons`` are why ranges of packs could not be
    read; ``warn`` is called with each of them.
    """

    def __init__(
        self,
        storage: Storage,
        location: Location,
        keys: LabelledKeys,
        warn: Callable[[Reason], None] = lambda reason: None,
    ) -> None:
        self.storage, self.keys, self.remote = storage, keys, storage.remote
        self.reasons: dict[Reason, None] = {}
        self._below, self._warn = f"{location.packs}/", warn
        self._packs: dict[str, EncryptedPack | Reason] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"EncryptedStorage({self.storage!r})"

    @property
    def requests(self) -> int:
        """Requests made so far."""
        return self.storage.requests

    @requests.setter
    def requests(self, count: int) -> None:
        self.storage.requests = count

    # -- encrypted packs ---------------------------------------------------------------------------

    def read_ranges(
        self, ranges: Sequence[ByteRange], versions: Mapping[str, ObjectId] | None = None
    ) -> dict[ByteRange, memoryview]:
        """As ``Storage.read_ranges``; of packs, ranges of the plaintext."""
        in_packs = [each for each in ranges if each.path.startswith(self._below)]
        rest = [each for each in ranges if not each.path.startswith(self._below)]
        found = self.storage.read_ranges(rest, versions) if rest else {}
        wanted: dict[ByteRange, tuple[EncryptedPack, list[tuple[int, int, ByteRange]]]] = {}
        for each in dict.fromkeys(in_packs):
            pack = self.pack(each.path)
            frames = pack.frames(each.offset, each.length) if pack is not None else None
            if pack is not None and frames is not None:
                wanted[each] = pack, frames
        places = {place: None for _, frames in wanted.values() for *_, place in frames}
        got = self.storage.read_ranges(list(places)) if places else {}
        opened: dict[ByteRange, bytes | None] = {}
        for each, (pack, frames) in wanted.items():
            pieces: list[bytes] = []
            for segment, frame, place in frames:
                if place not in opened:
                    data = got.get(place)
                    opened[place] = None if data is None else self._open(pack, segment, frame, data)
                plain = opened[place]
                if plain is None:
                    break
                first = int(pack.starts[segment]) + frame * pack.frame
                pieces.append(
                    plain[max(each.offset - first, 0) : each.offset + each.length - first]
                )
            else:
                found[each] = memoryview(b"".join(pieces))
        return found

    def pack(self, path: str) -> EncryptedPack | None:
        """The encrypted pack at ``path``, opened once; ``None`` where that fails."""
        with self._lock:
            known = self._packs.get(path)
        if known is None:
            try:
                known = self._opened(path)
            except OSError:
                return None  # the pack is gone, or this request failed
            except Exception as error:  # hostile bytes, and the caller's key service
                known = self._why(f"pack {path.rpartition('/')[2]}", error)
            with self._lock:
                self._packs[path] = known
        return known if isinstance(known, EncryptedPack) else None

    def _opened(self, path: str) -> EncryptedPack:
        id_, tail = self.storage.read_tail(path, _GUESS)
        size = id_.size or 0
        end = pack_end(tail, size, path)
        if end > len(tail):
            _, tail = self.storage.read_tail(path, end)
        return EncryptedPack.open(path, size, tail, self.keys)

    def _open(
        self, pack: EncryptedPack, segment: int, frame: int, data: memoryview
    ) -> bytes | None:
        try:
            return pack.plain(segment, frame, data, self.keys)
        except Exception as error:  # as above
            self._why(pack.names[segment].partition("/")[2], error)
            return None

    def _why(self, subject: str, error: Exception) -> Reason:
        reason = Reason.of_error(subject, error)
        with self._lock:
            self.reasons.setdefault(reason)
        self._warn(reason)
        return reason

    def damage(self, path: str) -> str | None:
        """What is wrong with the whole pack at ``path``, frame by frame; ``None`` for nothing.

        Frames whose key is not available are skipped.
        """
        try:
            pack = self._opened(path)
            for segment in range(len(pack.key)):
                start, stop = int(pack.starts[segment]), int(pack.starts[segment + 1])
                for number, frame, place in pack.frames(start, stop - start) or ():
                    got = self.storage.read_ranges([place]).get(place)
                    if got is None:
                        return f"{path} is cut short"
                    pack.plain(number, frame, got, self.keys)
        except KeyUnavailableError:
            return None
        except (FormatError, UnsupportedError) as error:
            return error.message
        except OSError as error:
            return f"{path}: {type(error).__name__}"
        return None

    # -- everything else ---------------------------------------------------------------------------

    def list_all(self, prefix: str) -> Listing:
        return self.storage.list_all(prefix)

    def list_files(self, root: str) -> Listing:
        return self.storage.list_files(root)

    def summary(self, root: str) -> ObjectId | None:
        return self.storage.summary(root)

    def has_children(self, prefix: str) -> bool:
        return self.storage.has_children(prefix)

    def stat(self, path: str) -> ObjectId:
        return self.storage.stat(path)

    def exists(self, path: str) -> bool:
        return self.storage.exists(path)

    def read(self, path: str) -> bytes:
        return self.storage.read(path)

    def read_tail(self, path: str, length: int) -> tuple[ObjectId, memoryview]:
        return self.storage.read_tail(path, length)

    def open(self, path: str, version: ObjectId | None = None) -> BinaryIO:
        return self.storage.open(path, version)

    def put(self, path: str, data: bytes | memoryview) -> None:
        self.storage.put(path, data)

    def delete(self, path: str) -> None:
        self.storage.delete(path)

    def remove_empty(self, prefix: str) -> None:
        self.storage.remove_empty(prefix)

    def now(self) -> int:
        return self.storage.now()
