"""Compression of pages: each codec both ways, and never more bytes than the page header declares.

A page is compressed as a whole. Its header states both sizes, so the size of the result is known:

=============  ==================================================================================
UNCOMPRESSED   the bytes themselves
SNAPPY         one raw Snappy block; its own length must be the declared one
GZIP           RFC 1952, one or more members (zlib's own framing is accepted too)
BROTLI         RFC 7932
ZSTD           RFC 8878, one or more frames
LZ4_RAW        one LZ4 block
LZ4            three framings, see below
LZO            not supported
=============  ==================================================================================

``LZ4`` (deprecated) is tried as the LZ4 frame format if the frame magic ``04 22 4D 18`` leads, then
as Hadoop's framing, then as one LZ4 block. An LZ4 block cannot begin with that magic: its first
match would refer to bytes before the block. Hadoop's framing, integers big-endian, is::

    (uint32 size  (uint32 compressed size, LZ4 block)+)+      # blocks of the group yield `size`

It is accepted only if all lengths match the end of the data and the declared size exactly. An empty
group (``size`` 0) may follow, and ends the data.

The format of each codec limits the ratio of output to input. A larger declared size is wrong, and
is refused before any memory is allocated.
"""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import CompressionCodec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _typeshed import ReadableBuffer


#: Sizes in a page header are signed 32-bit integers.
MAX_PAGE_SIZE: Final = (1 << 31) - 1

# Bytes that one compressed byte can represent, rounded up: Snappy copies 64 bytes by 3; deflate 258
# by 2 bits; an LZ4 length byte adds 255; a Zstandard block yields 128 KiB from 4 bytes; a Brotli
# meta-block 16 MiB from about 4.
_RATIO: Final[Mapping[CompressionCodec, int]] = {
    CompressionCodec.SNAPPY: 32,
    CompressionCodec.GZIP: 1_100,
    CompressionCodec.BROTLI: 1 << 22,
    CompressionCodec.ZSTD: 1 << 16,
    CompressionCodec.LZ4: 256,
    CompressionCodec.LZ4_RAW: 256,
}
_FRAME_MAGIC: Final = b"\x04\x22\x4d\x18"
_TWO: Final = struct.Struct(">II")
_ONE: Final = struct.Struct(">I")


class _BadError(ValueError):
    """The error of a codec for bytes that it cannot decode."""


def decompress(codec: int, data: ReadableBuffer, uncompressed_size: int) -> memoryview:
    """The ``uncompressed_size`` bytes that ``data`` stands for.

    Without compression these are the bytes given, not a copy. FormatError where the data are
    damaged or yield another number of bytes, UnsupportedError for LZO and unknown codecs.
    """
    known = _known(codec)
    view = memoryview(data).cast("B")
    if not 0 <= uncompressed_size <= MAX_PAGE_SIZE:
        raise FormatError(
            "uncompressed size of a page",
            expected=f"0 to {MAX_PAGE_SIZE} bytes",
            got=uncompressed_size,
        )
    if known is CompressionCodec.UNCOMPRESSED:
        if len(view) != uncompressed_size:
            raise FormatError(
                "size of an uncompressed page", expected=uncompressed_size, got=len(view)
            )
        return view
    if not len(view) and not uncompressed_size:
        return view  # an empty page that the writer did not compress
    most = len(view) * _RATIO[known]
    if uncompressed_size > most:
        raise FormatError(
            f"{len(view)} bytes of {known.name} cannot hold the declared size",
            offset=0,
            expected=f"at most {most} bytes",
            got=uncompressed_size,
        )
    try:
        made = _decompressed(known, view, uncompressed_size)
    except _BadError as error:
        raise FormatError(
            f"{known.name} data are damaged ({error})",
            offset=0,
            expected=f"{uncompressed_size} bytes from {len(view)}",
        ) from None
    if len(made) != uncompressed_size:
        raise FormatError(
            f"size of {known.name} data", offset=0, expected=uncompressed_size, got=len(made)
        )
    return made


def compress(codec: int, data: ReadableBuffer) -> bytes:
    """``data`` as one compressed page. LZ4 gets Hadoop's framing, in one block."""
    known = _known(codec)
    data = bytes(data)
    import cramjam

    match known:
        case CompressionCodec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(data))
        case CompressionCodec.GZIP:
            packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
            return packer.compress(data) + packer.flush()
        case CompressionCodec.BROTLI:
            return bytes(cramjam.brotli.compress(data, 5))
        case CompressionCodec.ZSTD:
            return bytes(cramjam.zstd.compress(data, 3))
        case CompressionCodec.LZ4 | CompressionCodec.LZ4_RAW:
            block = bytes(cramjam.lz4.compress_block(data, store_size=False))
            hadoop = known is CompressionCodec.LZ4
            return _TWO.pack(len(data), len(block)) + block if hadoop else block
    return data


def _known(codec: int) -> CompressionCodec:
    try:
        known = CompressionCodec(codec)
    except ValueError:
        raise UnsupportedError(f"compression codec {codec} is unknown") from None
    if known is CompressionCodec.LZO:
        raise UnsupportedError("compression codec LZO is not supported")
    return known


def _output(size: int) -> Any:
    import numpy as np

    # Memory that is not touched until a codec writes there; a bytearray would be cleared first. It
    # ends at a multiple of eight bytes: numbers behind levels are aligned, and need no copy.
    return np.empty(size + -size % 8, np.uint8)[-size % 8 :]


def _into(call: Callable[..., int], data: memoryview, size: int) -> memoryview:
    import cramjam

    output = _output(size)
    try:
        written = call(data, output)
    except cramjam.DecompressionError as error:
        raise _BadError(str(error)) from None
    return memoryview(output)[:written]


def _decompressed(codec: CompressionCodec, data: memoryview, size: int) -> memoryview:
    import cramjam

    match codec:
        case CompressionCodec.SNAPPY:
            return _snappy(data, size)
        case CompressionCodec.GZIP:
            return _gzip(data, size)
        case CompressionCodec.BROTLI:
            return _into(cramjam.brotli.decompress_into, data, size)
        case CompressionCodec.ZSTD:
            return _zstd(data, size)
        case CompressionCodec.LZ4 if bytes(data[:4]) == _FRAME_MAGIC:
            return _into(cramjam.lz4.decompress_into, data, size)
        case CompressionCodec.LZ4:
            with suppress(_BadError):
                return _hadoop(data, size)
    if not len(data):
        raise _BadError("it is empty")
    return _into(cramjam.lz4.decompress_block_into, data, size)


def _snappy(data: memoryview, size: int) -> memoryview:
    import cramjam

    try:
        declared = cramjam.snappy.decompress_raw_len(data)
    except cramjam.DecompressionError as error:
        raise _BadError(str(error)) from None
    if declared != size:
        raise _BadError(f"its own length is {declared}")
    return _into(cramjam.snappy.decompress_raw_into, data, size)


def _gzip(data: memoryview, size: int) -> memoryview:
    import cramjam

    member = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        # One byte more than is wanted shows a member that is too long; 0 would mean no limit.
        made = member.decompress(data, size + 1)
    except zlib.error as error:
        raise _BadError(str(error)) from None
    if member.unused_data:
        # zlib copies what follows a member, which takes quadratic time over many members.
        return _into(cramjam.gzip.decompress_into, data, size)
    if not member.eof:
        raise _BadError("it yields more" if len(made) > size else "it ends within a member")
    return memoryview(made)


def _zstd(data: memoryview, size: int) -> memoryview:
    # Arrow's codec decodes in one go, so that it needs no window of a size that the data choose.
    import pyarrow as pa

    try:
        return memoryview(pa.decompress(data, size, codec="zstd")).cast("B")
    except (OSError, pa.ArrowException) as error:
        raise _BadError(str(error)) from None


def _hadoop(data: memoryview, size: int) -> memoryview:
    import cramjam

    output, made, at = _output(size), 0, 0
    while at < len(data):
        if made == size and not any(data[at : at + _ONE.size]):
            break  # an empty last group, with or without an empty block
        if len(data) - at < _TWO.size:
            raise _BadError("it ends within a frame")
        group = made + _ONE.unpack_from(data, at)[0]
        at += _ONE.size
        if group > size:
            raise _BadError("its frames yield more")
        while made < group:
            if len(data) - at < _ONE.size:
                raise _BadError("it ends within a frame")
            length = _ONE.unpack_from(data, at)[0]
            at += _ONE.size
            if not 0 < length <= len(data) - at:
                raise _BadError("a block ends beyond it")
            try:
                written = cramjam.lz4.decompress_block_into(
                    data[at : at + length], output[made:group]
                )
            except cramjam.DecompressionError as error:
                raise _BadError(str(error)) from None
            at, made = at + length, made + written
    if made != size:
        raise _BadError(f"its frames yield {made}")
    return memoryview(output)
