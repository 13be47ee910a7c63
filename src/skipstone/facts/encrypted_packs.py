"""The format of the packs of an encrypted index, and how ranges of their plaintext are read.

The plaintext of an encrypted pack is exactly a pack (``encode.py``). Offsets and lengths in fact
rows are of the plaintext, so sidecars are read in the same way as from a plaintext pack. The
plaintext is cut into segments, each encrypted with the data key of one label: the blob of an index
in a Paimon container has the index's label; everything else (a container's head, a ``_pm``) has the
footer's. A segment is cut into frames of up to 16 KiB. Each frame is encrypted by itself, so that a
few bytes can be read without the rest::

    frames     per segment: per frame  nonce 12 | ciphertext | tag 16
    directory  module of AES-GCM (length u32 | nonce 12 | ciphertext | tag 16), footer's data key
    keys       JSON: {"keys": [key material as in Parquet's footers, …]}, the first the footer's
    tail       directory length u32 | keys length u32 | version u32 = 1 | magic "SKSP"

    directory  frame size u32 | segments u32 | per segment:
               plaintext length u64 | key u32 | length of the name u32 | name, UTF-8

Numbers are little endian. The name says what a segment is: ``<n>/bitmap(city)``, ``<n>/pm``, n
counting the sidecars of the pack. AAD of a frame: ``SKSP frame`` NUL, the pack's file name, NUL,
segment u32, frame u32, last frame (1 byte), the segment's name; of the directory ``SKSP directory``
NUL, the file name, NUL, and the SHA-256 of ``keys``. So no frame, segment or pack can replace
another, and none can be cut short. A fact names the pack and the offset, and is itself
authenticated, so it gets its own sidecar or none.

Data keys are random, and each is used for one pack only. Nonces are random and counted, and never
repeat for one key (2^32 frames are 64 TiB). Ranges that do not authenticate are left out of the
result, so they prove nothing to any reader, and the reason is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
from dataclasses import field
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.parquet.encryption.key_material import (
    KeyMaterial,
    read_key_metadata,
    unwrap_dek,
    wrap_dek,
)
from skipstone.parquet.encryption.modules import (
    GCM_OVERHEAD,
    NONCE_LENGTH,
    TAG_LENGTH,
    Cipher,
    CountedCipher,
)
from skipstone.pruning import Reason
from skipstone.storage import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage


MAGIC: Final = b"SKSP"
VERSION: Final = 1
FRAME: Final = 16 * 1024
_TAIL: Final = struct.Struct("<III4s")
_HEAD: Final = struct.Struct("<II")
_SEGMENT: Final = struct.Struct("<QII")
_PLACE: Final = struct.Struct("<IIB")
_OVERHEAD: Final = NONCE_LENGTH + TAG_LENGTH
# Bytes at the end of a pack that are read first.
_GUESS: Final = 32 * 1024
# The most bytes of directory and keys together.
_LONGEST = 256 * 2**20
# No pack of Skipstone comes near these limits; a larger number is damage.
_MOST, _LARGEST_FRAME = 1 << 40, 1 << 24


@dataclass(frozen=True, slots=True)
class Segment:
    """``length`` bytes of plaintext under one label; ``name`` describes them."""

    length: int
    label: str
    name: str


def _frame_aad(pack: str, segment: int, frame: int, last: bool, name: str) -> bytes:
    place = _PLACE.pack(segment, frame, last)
    return b"SKSP frame\0" + pack.encode() + b"\0" + place + name.encode()


def _directory_aad(pack: str, keys: bytes) -> bytes:
    return b"SKSP directory\0" + pack.encode() + b"\0" + hashlib.sha256(keys).digest()


def encrypt_pack(
    name: str, plain: bytes, segments: Sequence[Segment], footer_key: str, keys: LabelledKeys
) -> bytes:
    """The encrypted pack ``name`` of this plaintext; the segments cover it, one after another.

    ``KeyUnavailableError`` where a label has no key.
    """
    if sum(segment.length for segment in segments) != len(plain):
        raise ValueError("the segments do not cover the plaintext")
    ciphers: dict[str, CountedCipher] = {}
    materials: list[str] = []
    for label in dict.fromkeys((footer_key, *(segment.label for segment in segments))):
        key = os.urandom(16)
        material = wrap_dek(key, label, keys, double_wrapping=False)
        materials.append(material.to_json().decode())
        ciphers[label] = CountedCipher(key)
    order = list(ciphers)
    view, at = memoryview(plain), 0
    frames: list[bytes] = []
    directory = [_HEAD.pack(FRAME, len(segments))]
    for number, segment in enumerate(segments):
        count = -(-segment.length // FRAME)
        for frame in range(count):
            start = at + frame * FRAME
            stop = min(start + FRAME, at + segment.length)
            aad = _frame_aad(name, number, frame, frame == count - 1, segment.name)
            frames.append(ciphers[segment.label].seal(view[start:stop], aad))
        text = segment.name.encode()
        directory.append(_SEGMENT.pack(segment.length, order.index(segment.label), len(text)))
        directory.append(text)
        at += segment.length
    known = json.dumps({"keys": materials}, separators=(",", ":")).encode()
    module = ciphers[footer_key].encrypt_module(b"".join(directory), _directory_aad(name, known))
    tail = _TAIL.pack(len(module), len(known), VERSION, MAGIC)
    return b"".join([*frames, module, known, tail])


@dataclass(eq=False)
class EncryptedPack:
    """The decrypted directory of an encrypted pack. ``starts`` are where segments begin in the
    plaintext, ``places`` where in the pack; each ends with the end of the last segment."""

    path: str
    frame: int
    names: tuple[str, ...]
    key: tuple[int, ...]
    starts: np.ndarray[tuple[int], np.dtype[np.int64]]
    places: np.ndarray[tuple[int], np.dtype[np.int64]]
    materials: tuple[KeyMaterial, ...]
    ciphers: dict[int, Cipher] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: str, size: int, tail: memoryview, keys: LabelledKeys) -> EncryptedPack:
        """From ``tail``, the last ``pack_end`` bytes of the pack at ``path`` of ``size`` bytes.

        ``FormatError`` for anything but this encrypted pack; ``KeyUnavailableError``.
        """
        name = path.rpartition("/")[2]
        length, known_length = _lengths(tail, size, path)
        if len(tail) < pack_end(tail, size, path):
            raise FormatError("the end of an encrypted pack is cut short", file=path, got=len(tail))
        end = len(tail) - _TAIL.size
        known = bytes(tail[end - known_length : end])
        materials = _materials(known, path)
        footer = unwrap_dek(materials[0], keys, {})
        plain, stop = footer.decrypt_module(
            tail[end - known_length - length : end - known_length],
            _directory_aad(name, known),
            file=path,
            what="the directory of an encrypted pack",
        )
        if stop != length:
            raise FormatError(
                "the directory of an encrypted pack", file=path, expected=length, got=stop
            )
        found = cls._parse(path, plain, materials, size - _TAIL.size - known_length - length)
        found.ciphers[0] = footer
        return found

    @classmethod
    def _parse(
        cls, path: str, plain: bytes, materials: tuple[KeyMaterial, ...], room: int
    ) -> EncryptedPack:
        def wrong(what: str) -> FormatError:
            return FormatError(f"{what} of an encrypted pack", file=path)

        if len(plain) < _HEAD.size:
            raise wrong("the directory")
        frame, count = _HEAD.unpack_from(plain)
        if not 0 < frame <= _LARGEST_FRAME or count * _SEGMENT.size > len(plain):
            raise wrong("frame size or number of segments")
        at, starts, places = _HEAD.size, [0], [0]
        names: list[str] = []
        key: list[int] = []
        for _ in range(count):
            if at + _SEGMENT.size > len(plain):
                raise wrong("a segment")
            length, number, text = _SEGMENT.unpack_from(plain, at)
            at += _SEGMENT.size
            if length > _MOST or number >= len(materials) or text > len(plain) - at:
                raise wrong("a segment")
            names.append(plain[at : at + text].decode("utf-8", "replace"))
            key.append(number)
            at += text
            starts.append(starts[-1] + length)
            places.append(places[-1] + length + -(-length // frame) * _OVERHEAD)
        if at != len(plain) or places[-1] != room:
            raise wrong("the size of the frames")
        return cls(
            path,
            frame,
            tuple(names),
            tuple(key),
            np.array(starts, np.int64),
            np.array(places, np.int64),
            materials,
        )

    def label(self, segment: int) -> str:
        """The label of the key of a segment."""
        return self.materials[self.key[segment]].master_key_id

    def frames(self, offset: int, length: int) -> list[tuple[int, int, ByteRange]] | None:
        """The frames that hold a range of the plaintext, as segment, frame, and place; ``None``
        where the range is not completely within the pack."""
        stop = offset + length
        if offset < 0 or length < 0 or stop > self.starts[-1]:
            return None
        found = []
        segment = int(np.searchsorted(self.starts, offset, "right")) - 1
        while segment < len(self.key) and self.starts[segment] < stop:
            first, end = int(self.starts[segment]), int(self.starts[segment + 1])
            low = max(offset - first, 0) // self.frame
            high = -(-(min(stop, end) - first) // self.frame)
            for frame in range(low, high):
                held = min(self.frame, end - first - frame * self.frame) + _OVERHEAD
                at = int(self.places[segment]) + frame * (self.frame + _OVERHEAD)
                found.append((segment, frame, ByteRange(self.path, at, held)))
            segment += 1
        return found

    def plain(self, segment: int, frame: int, encrypted: memoryview, keys: LabelledKeys) -> bytes:
        """The plaintext of a frame. ``AuthenticationError``, ``KeyUnavailableError``."""
        number = self.key[segment]
        cipher = self.ciphers.get(number)
        if cipher is None:
            cipher = self.ciphers[number] = unwrap_dek(self.materials[number], keys, {})
        length = int(self.starts[segment + 1] - self.starts[segment])
        last = (frame + 1) * self.frame >= length
        name = self.path.rpartition("/")[2]
        return cipher.open(
            encrypted[:NONCE_LENGTH],
            encrypted[NONCE_LENGTH:],
            _frame_aad(name, segment, frame, last, self.names[segment]),
            file=self.path,
            what=f"frame {frame} of {self.names[segment]} (key label {self.label(segment)!r})",
        )


def _lengths(tail: memoryview, size: int, path: str) -> tuple[int, int]:
    """Lengths of directory and keys, from the end of a pack."""
    if len(tail) < _TAIL.size:
        raise FormatError("too short for an encrypted pack", file=path, got=size)
    length, known, version, magic = _TAIL.unpack(tail[-_TAIL.size :])
    if magic != MAGIC:
        raise FormatError("the pack is not encrypted, and the index is", file=path, expected=MAGIC)
    if version != VERSION:
        raise UnsupportedError(f"{path} is an encrypted pack of version {version}: 1 is the newest")
    if length < GCM_OVERHEAD or length + known + _TAIL.size > min(size, _LONGEST):
        raise FormatError(
            "the lengths at the end of an encrypted pack", file=path, got=length + known
        )
    return length, known


def pack_end(tail: memoryview, size: int, path: str) -> int:
    """How many bytes at the end of a pack of ``size`` bytes ``EncryptedPack.open`` takes; ``tail``
    are its last bytes. ``FormatError`` for what is not an encrypted pack."""
    return sum(_lengths(tail, size, path)) + _TAIL.size


def pack_labels(tail: memoryview, size: int, path: str) -> tuple[str, ...]:
    """The labels of the keys of a pack, the footer's first; ``tail``: its last ``pack_end`` bytes.

    No key is needed; the labels are not authenticated. ``FormatError`` for what is not an encrypted
    pack."""
    _, known = _lengths(tail, size, path)
    end = len(tail) - _TAIL.size
    found = _materials(bytes(tail[max(0, end - known) : end]), path)
    return tuple([each.master_key_id for each in found])


def _materials(known: bytes, path: str) -> tuple[KeyMaterial, ...]:
    try:
        texts = json.loads(known)["keys"]
        found = [read_key_metadata(text.encode()) for text in texts]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FormatError("the keys of an encrypted pack are not key material", file=path) from None
    kept = tuple(each for each in found if isinstance(each, KeyMaterial))
    if not kept or len(kept) != len(found):
        raise FormatError("the keys of an encrypted pack are not key material", file=path)
    return kept


class EncryptedPacks:
    """The packs of an encrypted index in ``storage``: ranges of their plaintext.

    ``reasons`` are why ranges could not be read; ``warn`` is called with each of them.
    """

    def __init__(
        self,
        storage: Storage,
        keys: LabelledKeys,
        warn: Callable[[Reason], None] = lambda reason: None,
    ) -> None:
        self.storage, self.keys = storage, keys
        self.reasons: dict[Reason, None] = {}
        self._warn = warn
        self._packs: dict[str, EncryptedPack | Reason] = {}
        self._lock = threading.Lock()

    def read_ranges(self, ranges: Sequence[ByteRange]) -> dict[ByteRange, memoryview]:
        """The ranges of plaintext that could be read completely, as ``Storage.read_ranges``."""
        found: dict[ByteRange, memoryview] = {}
        wanted: dict[ByteRange, tuple[EncryptedPack, list[tuple[int, int, ByteRange]]]] = {}
        for each in dict.fromkeys(ranges):
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
