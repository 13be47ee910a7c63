"""Every codec both ways, what the wild calls LZ4, and nothing beyond the declared size."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import TYPE_CHECKING

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encodings.codecs import MAX_PAGE_SIZE, compress, decompress
from skipstone.parquet.format.enums import CompressionCodec as Codec

if TYPE_CHECKING:
    from collections.abc import Callable

CODECS = [codec for codec in Codec if codec is not Codec.LZO]
PACKED = [codec for codec in CODECS if codec is not Codec.UNCOMPRESSED]
ARROW = {
    Codec.SNAPPY: "snappy",
    Codec.GZIP: "gzip",
    Codec.BROTLI: "brotli",
    Codec.ZSTD: "zstd",
    Codec.LZ4_RAW: "lz4_raw",
}
TEXT = b"a stone skips over the water, a stone skips, " * 200
pages = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda part, times: part * times, st.binary(max_size=9), st.integers(0, 4_000)),
)


def raw_block(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress_block(data, store_size=False))


def hadoop(*groups: list[bytes]) -> bytes:
    """Hadoop's framing: each group one size, then its blocks, each with its compressed length."""
    made = b""
    for group in groups:
        made += struct.pack(">I", sum(map(len, group)))
        for part in group:
            block = raw_block(part)
            made += struct.pack(">I", len(block)) + block
    return made


@given(st.sampled_from(CODECS), pages)
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@given(st.sampled_from(sorted(ARROW)), pages)
def test_both_directions_against_arrow(codec: Codec, data: bytes) -> None:
    theirs = pa.Codec(ARROW[codec])
    assert decompress(codec, theirs.compress(data), len(data)) == data
    assert theirs.decompress(compress(codec, data), len(data), asbytes=True) == data


def test_uncompressed_is_no_copy() -> None:
    data = bytearray(b"abc")
    view = decompress(Codec.UNCOMPRESSED, data, 3)
    data[0] = ord("z")
    assert bytes(view) == b"zbc"
    with pytest.raises(FormatError, match="expected 4, got 3"):
        decompress(Codec.UNCOMPRESSED, data, 4)


@pytest.mark.parametrize("codec", PACKED)
def test_an_empty_page_need_not_be_compressed(codec: Codec) -> None:
    assert len(decompress(codec, b"", 0)) == 0
    with pytest.raises(FormatError, match="cannot hold"):
        decompress(codec, b"", 1)


@pytest.mark.parametrize("framing", ["gzip", "zlib"])
def test_gzip_may_have_several_members(framing: str) -> None:
    if framing == "zlib":
        assert decompress(Codec.GZIP, zlib.compress(TEXT), len(TEXT)) == TEXT
        return
    members = gzip.compress(TEXT) + gzip.compress(b"") + gzip.compress(b"end")
    assert decompress(Codec.GZIP, members, len(TEXT) + 3) == TEXT + b"end"
    with pytest.raises(FormatError, match="damaged"):
        decompress(Codec.GZIP, members, len(TEXT))


def test_many_members_are_not_quadratic() -> None:
    members = gzip.compress(b"x") * 200_000
    assert decompress(Codec.GZIP, members, 200_000) == b"x" * 200_000


def test_zstd_may_have_several_frames() -> None:
    frames = compress(Codec.ZSTD, TEXT) + compress(Codec.ZSTD, b"end")
    assert decompress(Codec.ZSTD, frames, len(TEXT) + 3) == TEXT + b"end"


@pytest.mark.parametrize(
    "packed",
    [
        hadoop([TEXT]),
        hadoop([TEXT[:100]], [TEXT[100:]]),
        hadoop([TEXT[:100], TEXT[100:4_000]], [TEXT[4_000:]]),
        hadoop([TEXT]) + bytes(4),
        hadoop([], [TEXT]),
        bytes(cramjam.lz4.compress(TEXT)),
        raw_block(TEXT),
    ],
    ids=["hadoop", "groups", "blocks", "empty end", "empty start", "frame", "raw"],
)
def test_what_the_wild_calls_lz4(packed: bytes) -> None:
    assert decompress(Codec.LZ4, packed, len(TEXT)) == TEXT
    with pytest.raises(FormatError):
        decompress(Codec.LZ4, packed, len(TEXT) + 1)
    with pytest.raises(FormatError):
        decompress(Codec.LZ4, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda packed: (packed, len(TEXT) - 1),
        lambda packed: (packed, len(TEXT) + 1),
        lambda packed: (packed[:-3], len(TEXT)),
        lambda packed: (b"\xff" * len(packed), len(TEXT)),
        lambda packed: (packed, MAX_PAGE_SIZE),
        lambda packed: (packed, MAX_PAGE_SIZE + 1),
        lambda packed: (packed, -1),
    ],
    ids=["longer", "shorter", "cut", "noise", "2 GB", "beyond 2 GB", "negative"],
)
def test_another_size_or_other_bytes_are_refused(
    codec: Codec, spoil: Callable[[bytes], tuple[bytes, int]]
) -> None:
    data, size = spoil(compress(codec, TEXT))
    with pytest.raises(FormatError):
        decompress(codec, data, size)


@given(st.sampled_from(PACKED), st.binary(max_size=60), st.integers(0, 500))
def test_any_bytes_give_their_size_or_an_error(codec: Codec, data: bytes, size: int) -> None:
    try:
        made = decompress(codec, data, size)
    except FormatError:
        return
    assert len(made) == size


@pytest.mark.fuzz
@given(st.sampled_from(PACKED), st.data())
def test_damaged_bytes_give_their_size_or_an_error(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, TEXT))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        made = decompress(codec, packed, len(TEXT))
    except FormatError:
        return
    assert len(made) == len(TEXT)


@pytest.mark.parametrize("codec", [Codec.LZO, 8, -1])
def test_other_codecs_are_not_supported(codec: int) -> None:
    with pytest.raises(UnsupportedError, match="compression codec"):
        decompress(codec, b"", 0)
    with pytest.raises(UnsupportedError, match="compression codec"):
        compress(codec, b"")
