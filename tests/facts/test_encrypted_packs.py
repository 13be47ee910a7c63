"""Sealed packs: any range of the plaintext comes back exactly, or nothing does."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.facts.encrypted_packs import (
    FRAME,
    EncryptedPack,
    EncryptedPacks,
    Segment,
    encrypt_pack,
)
from skipstone.facts.location import Location
from skipstone.parquet.encryption.master_keys import LabelledKeys
from skipstone.pruning import Cause
from skipstone.storage import ByteRange, LocalStorage

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {"kf": b"f" * 16, "k1": b"1" * 24, "k2": b"2" * 32}
NAME = "0b7e1b0e-9c1d-4f7e-8f0a-2f0f5a3c9d11.pack"
LENGTHS = (5, 0, FRAME, FRAME + 1, 3 * FRAME - 7, 40)
LABELS = ("kf", "k1", "k2", "k1", "k2", "kf")


def plain(length: int = sum(LENGTHS)) -> bytes:
    return random.Random(7).randbytes(length)


def segments() -> list[Segment]:
    return [
        Segment(length, label, f"{at}/é({label})")
        for at, (length, label) in enumerate(zip(LENGTHS, LABELS, strict=True))
    ]


def store(home: Path, data: bytes, keys: dict[str, bytes] | None = None) -> EncryptedPacks:
    location = Location(str(home))
    LocalStorage().put(location.pack(NAME), data)
    return EncryptedPacks(LocalStorage(), LabelledKeys(keys or KEYS))


def encrypted() -> bytes:
    return encrypt_pack(NAME, plain(), segments(), "kf", LabelledKeys(KEYS))


def place(home: Path, offset: int, length: int) -> ByteRange:
    return ByteRange(Location(str(home)).pack(NAME), offset, length)


def test_every_range_is_that_of_the_plaintext(tmp_path: Path) -> None:
    data, whole = encrypted(), plain()
    reader = store(tmp_path, data)
    borders = [0, 4, 5, 6, FRAME, FRAME + 5, 2 * FRAME + 5, 2 * FRAME + 6, len(whole)]
    ranges = [place(tmp_path, a, b - a) for a in borders for b in borders if a <= b]
    found = reader.read_ranges(ranges)
    assert {r: bytes(v) for r, v in found.items()} == {
        r: whole[r.offset : r.offset + r.length] for r in ranges
    }
    assert reader.read_ranges([place(tmp_path, len(whole), 1)]) == {}
    assert reader.read_ranges([place(tmp_path, 0, len(whole) + 1)]) == {}
    assert not reader.reasons
    assert reader.damage(ranges[0].path) is None
    for piece in range(0, len(whole) - 64, 997):
        assert whole[piece : piece + 16] not in data


@given(st.lists(st.tuples(st.integers(0, 9 * FRAME), st.integers(0, 3 * FRAME)), max_size=8))
def test_ranges_drawn_at_random(tmp_path_factory: pytest.TempPathFactory, drawn: list) -> None:  # type: ignore[type-arg]
    home = tmp_path_factory.mktemp("pack")
    whole = plain()
    reader = store(home, encrypted())
    ranges = [place(home, offset, length) for offset, length in drawn]
    found = reader.read_ranges(ranges)
    for each in ranges:
        stop = each.offset + each.length
        if stop <= len(whole):
            assert bytes(found[each]) == whole[each.offset : stop]
        else:
            assert each not in found


def test_a_missing_key_closes_its_own_segments_only(tmp_path: Path) -> None:
    whole = plain()
    reader = store(tmp_path, encrypted(), {"kf": KEYS["kf"], "k1": KEYS["k1"]})
    starts = [sum(LENGTHS[:at]) for at in range(len(LENGTHS))]
    for start, length, label in zip(starts, LENGTHS, LABELS, strict=True):
        wanted = place(tmp_path, start, length)
        found = reader.read_ranges([wanted])
        if label == "k2" and length:
            assert found == {}
        else:
            assert bytes(found[wanted]) == whole[start : start + length]
    assert {r.cause for r in reader.reasons} == {Cause.UNDECRYPTABLE}
    assert all("'k2'" in r.text for r in reader.reasons)


@pytest.mark.parametrize("keys", [{"k1": b"1" * 24}, {**KEYS, "kf": b"x" * 16}])
def test_without_the_footer_key_nothing_is_read(tmp_path: Path, keys: dict[str, bytes]) -> None:
    reader = store(tmp_path, encrypted(), keys)
    assert reader.read_ranges([place(tmp_path, 0, 5)]) == {}
    [reason] = reader.reasons
    assert reason.cause is Cause.UNDECRYPTABLE
    assert "'kf'" in reason.text


def test_a_frame_of_another_place_does_not_authenticate(tmp_path: Path) -> None:
    """Two frames of one key, of equal length, change places; so do two whole packs."""
    data = bytearray(encrypted())
    size = FRAME + 28
    first = 5 + 28 + size  # the frames of segment 3: one whole, one of a byte
    fourth = first + size + 29  # those of segment 4 have the key of segment 2
    second = 5 + 28
    data[second : second + size], data[fourth : fourth + size] = (
        data[fourth : fourth + size],
        data[second : second + size],
    )
    reader = store(tmp_path, bytes(data))
    assert reader.read_ranges([place(tmp_path, 5, 10)]) == {}
    assert [r.cause for r in reader.reasons] == [Cause.CORRUPT]
    assert "does not authenticate" in next(iter(reader.reasons)).text
    other = encrypt_pack("other.pack", plain(), segments(), "kf", LabelledKeys(KEYS))
    reader = store(tmp_path / "swapped", other)
    assert reader.read_ranges([place(tmp_path / "swapped", 0, 5)]) == {}
    assert "directory" in next(iter(reader.reasons)).text


def test_a_pack_in_the_clear_is_not_believed(tmp_path: Path) -> None:
    reader = store(tmp_path, plain())
    assert reader.read_ranges([place(tmp_path, 0, 5)]) == {}
    assert "not encrypted" in next(iter(reader.reasons)).text


def test_every_flipped_byte_is_seen(tmp_path: Path) -> None:
    """Over a small pack, byte by byte: the wrong plaintext never comes out."""
    small = [Segment(30, "k1", "0/a"), Segment(20, "kf", "0/b")]
    data = encrypt_pack(NAME, plain(50), small, "kf", LabelledKeys(KEYS))
    whole, keys = plain(50), LabelledKeys(KEYS)
    path = Location(str(tmp_path)).pack(NAME)
    refused = 0
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << (at % 8)
        try:
            pack = EncryptedPack.open(path, len(bad), memoryview(bad), keys)
            got = b"".join(
                pack.plain(s, f, memoryview(bad)[r.offset : r.offset + r.length], keys)
                for s, f, r in pack.frames(0, 50) or ()
            )
        except (FormatError, UnsupportedError, KeyUnavailableError):
            refused += 1
        else:
            # Bytes of the JSON around the keys may change without a difference; never the data.
            assert got == whole
    assert refused >= len(data) - 4


@given(data=st.binary(max_size=300), tail=st.integers(0, 300))
def test_hostile_packs_end_in_an_error(data: bytes, tail: int) -> None:
    whole = sealed_small()
    for bad in (data, whole[: len(whole) - tail], data + whole[-200:], whole[:-16] + data[:16]):
        try:
            EncryptedPack.open(f"/p/{NAME}", len(bad), memoryview(bad), LabelledKeys(KEYS))
        except (FormatError, UnsupportedError, KeyUnavailableError):
            continue
        assert bad.endswith(whole[-200:])


_SMALL: list[bytes] = []


def sealed_small() -> bytes:
    if not _SMALL:
        _SMALL.append(
            encrypt_pack(NAME, plain(50), [Segment(50, "k1", "0/a")], "kf", LabelledKeys(KEYS))
        )
    return _SMALL[0]
