"""How ``inspect`` shows a sealed pack: its segments, the labels of their keys, and which open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError

from .found import Found, is_file

if TYPE_CHECKING:
    from skipstone.facts.encrypted_packs import EncryptedPack
    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage

__all__ = ["look"]

_TAIL = 32 * 1024


def look(
    storage: Storage, path: str, rows: int, keys: LabelledKeys | None = None
) -> list[Found] | None:
    """The sealed pack at ``path``; ``FormatError`` for one that is damaged or was altered."""
    if not path.endswith(".pack") or not is_file(storage, path):
        return None
    from skipstone.facts.encrypted_packs import MAGIC, EncryptedPack, pack_end, pack_labels

    id_, tail = storage.read_tail(path, _TAIL)
    if bytes(tail[-len(MAGIC) :]) != MAGIC:
        return None
    size = id_.size or 0
    end = pack_end(tail, size, path)
    if end > len(tail):
        _, tail = storage.read_tail(path, end)
    properties: dict[str, Any] = {
        "bytes": size,
        "key_labels": list(dict.fromkeys(pack_labels(tail, size, path))),
    }
    pack, notes = None, []
    try:
        if keys is None:
            raise KeyUnavailableError("it is encrypted, and no key was given (--index-key)")
        pack = EncryptedPack.open(path, size, tail, keys)
    except KeyUnavailableError as error:
        notes.append(f"the directory cannot be read: {error.message}")
    if pack is None or keys is None:
        return [Found(path=path, format="sealed pack", properties=properties, notes=tuple(notes))]
    properties |= {
        "bytes_of_plaintext": int(pack.starts[-1]),
        "bytes_of_a_frame": pack.frame,
        "segments": len(pack.key),
    }
    columns = tuple(_segment(storage, pack, at, keys) for at in range(len(pack.key)))
    return [Found(path=path, format="sealed pack", properties=properties, columns=columns)]


def _segment(storage: Storage, pack: EncryptedPack, at: int, keys: LabelledKeys) -> dict[str, Any]:
    """One segment, and whether all of it opens."""
    start, stop = int(pack.starts[at]), int(pack.starts[at + 1])
    frames, opens = pack.frames(start, stop - start) or [], "yes"
    try:
        for segment, frame, place in frames:
            data = storage.read_ranges([place]).get(place)
            if data is None:
                raise FormatError("a frame is cut short", file=pack.path)
            pack.plain(segment, frame, data, keys)
    except KeyUnavailableError as error:
        opens = error.message
    except SkipstoneError as error:
        opens = f"no: {error.message}"
    return {
        "name": pack.names[at],
        "key_label": pack.label(at),
        "bytes": stop - start,
        "frames": len(frames),
        "opens": opens,
    }
