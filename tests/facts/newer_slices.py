"""Slices as a later version would write them."""

from __future__ import annotations

import zlib

from skipstone.indexes.bloom_slices import MAGIC, TAIL


def newer(data: bytes) -> bytes:
    """The same object with the next version in its directory."""
    length = TAIL.unpack(data[-TAIL.size :])[0]
    start = len(data) - TAIL.size - length
    text = data[start : start + length].replace(b'{"version": 1,', b'{"version": 2,')
    return data[:start] + text + TAIL.pack(len(text), zlib.crc32(text), MAGIC)
