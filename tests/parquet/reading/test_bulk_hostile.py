"""Pages that lie, decoded together with pages that do not: no crash, and no harm to the others."""

from __future__ import annotations

import struct
import tempfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from skipstone.parquet.format.enums import CompressionCodec, Encoding, Type
from skipstone.parquet.reading.bulk_chunks import BulkKind
from skipstone.parquet.reading.bulk_columns import BulkColumns, FilePart, read_bulk
from skipstone.parquet.reading.few_rows import FewRows, chunk_entries, read_few_rows
from skipstone.parquet.reading.pinned_file import PinnedReader
from skipstone.storage.local import LocalStorage
from tests.parquet.reading.bulk import COMPILED, part

ROWS = 40
_V1, _DICTIONARY, _V2 = 5, 7, 8  # fields of a page header
_TYPE_OF = {_V1: 0, _DICTIONARY: 2, _V2: 3}


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return _varint((value << 1 ^ value >> 63) & (1 << 64) - 1)


def _struct(fields: dict[int, int | bool | bytes]) -> bytes:
    """Thrift's compact form: integers, booleans, and structs as bytes."""
    out, before = b"", 0
    for id, value in sorted(fields.items()):
        delta, before = id - before << 4, id
        if isinstance(value, bool):
            out += bytes([delta | (1 if value else 2)])
        elif isinstance(value, int):
            out += bytes([delta | 5]) + _zigzag(value)
        else:
            out += bytes([delta | 12]) + value
    return out + b"\0"


@dataclass(frozen=True)
class Page:
    """A page; ``None`` are sizes as they are."""

    form: int
    values: int
    encoding: int
    body: bytes
    levels: bytes = b""
    codec: int = CompressionCodec.UNCOMPRESSED
    size: int | None = None
    stored: int | None = None
    level_length: int | None = None
    type: int | None = None
    twice: bool = False
    packed: bytes | None = None
    stated: bool | None = None  # whether a v2 page is compressed

    @property
    def bytes(self) -> bytes:
        whole = self.body if self.form == _V2 else self.levels + self.body
        if self.form == _V1 and self.levels:
            whole = struct.pack("<I", len(self.levels)) + whole
        packed: Any = whole
        if self.stated is False:
            pass
        elif self.codec == CompressionCodec.SNAPPY:
            packed = bytes(cramjam.snappy.compress_raw(whole))
        elif self.codec == CompressionCodec.GZIP:
            packed = zlib.compress(whole, wbits=31)
        size = len(whole)
        if self.form == _V2:
            packed, size = self.levels + packed, len(self.levels) + size
        packed = packed if self.packed is None else self.packed
        inner: dict[int, int | bool | bytes] = {1: self.values}
        if self.form == _V1:
            inner |= {2: self.encoding, 3: 3, 4: 3}
        elif self.form == _DICTIONARY:
            inner |= {2: self.encoding}
        else:
            length = len(self.levels) if self.level_length is None else self.level_length
            inner |= {2: 0, 3: self.values, 4: self.encoding, 5: length, 6: 0}
            inner |= {} if self.stated is None else {7: self.stated}
        fields: dict[int, int | bool | bytes] = {
            1: _TYPE_OF[self.form] if self.type is None else self.type,
            2: size if self.size is None else self.size,
            3: len(packed) if self.stored is None else self.stored,
            self.form: _struct(inner),
        }
        if self.twice:
            fields[{_V1: _V2, _V2: _V1}.get(self.form, _V1)] = _struct({1: 3, 2: 0, 4: 0})
        return bytes(_struct(fields) + packed)


def _strings(words: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(word)) + word for word in words)


WORDS = [b"alpha", b"", b"be", b"x" * 30]
NUMBERS = np.arange(ROWS, dtype=np.int64) * 1000


def _indices() -> bytes:
    """Two bits each: 0 1 2 3 0 1 2 3 …"""
    return bytes([2, (ROWS // 8) << 1 | 1]) + bytes([0b11100100]) * (ROWS // 4)


def chunk(physical: Type, coded: bool, form: int, optional: bool, codec: int) -> list[Page]:
    """The pages of a sound chunk of ``ROWS`` values."""
    levels = bytes([ROWS << 1, 1]) if optional else b""
    pages = []
    if coded:
        plain = _strings(WORDS) if physical is Type.BYTE_ARRAY else NUMBERS[:4].tobytes()
        pages.append(Page(_DICTIONARY, 4, Encoding.PLAIN, plain, codec=codec))
        body, encoding = _indices(), Encoding.RLE_DICTIONARY
    else:
        words = [WORDS[at % 4] for at in range(ROWS)]
        body = _strings(words) if physical is Type.BYTE_ARRAY else NUMBERS.tobytes()
        encoding = Encoding.PLAIN
    return [*pages, Page(form, ROWS, encoding, body, levels, codec)]


def wanted(physical: Type, coded: bool) -> list[Any]:
    if physical is Type.BYTE_ARRAY:
        return [WORDS[at % 4] for at in range(ROWS)]
    return [int(NUMBERS[at % 4 if coded else at]) for at in range(ROWS)]


def read(
    folder: Path,
    chunks: list[bytes],
    physical: Type,
    optional: bool,
    codec: int,
    kernels: Any = COMPILED,
    **options: Any,
) -> BulkColumns:
    """Each of ``chunks`` is a file."""
    type = pa.binary() if physical is Type.BYTE_ARRAY else pa.int64()
    parts = []
    for number, data in enumerate(chunks):
        path = folder / str(number)
        path.write_bytes(data)
        storage = LocalStorage()
        reader = PinnedReader(storage)
        reader.pin(storage.stat(str(path)))
        span = np.array([(0, len(data), ROWS, codec, len(data))])
        parts.append(FilePart(str(path), reader, (span,)))
    found = read_bulk(parts, [BulkKind(type, physical, optional)], kernels, **options)
    for array in found.arrays if not options.get("lazy") else ():
        array.validate(full=True)
    return found


_EXTREME = st.sampled_from(
    [-1, 0, 1, 2, ROWS - 1, ROWS + 1, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 31, 1 << 32,
     1 << 60, 1 << 61, 1 << 62, (1 << 63) - 1]
)  # fmt: skip
_FORMS = st.tuples(
    st.sampled_from([Type.BYTE_ARRAY, Type.INT64]), st.booleans(), st.sampled_from([_V1, _V2]),
    st.booleans(), st.sampled_from([CompressionCodec.UNCOMPRESSED, CompressionCodec.SNAPPY,
                                    CompressionCodec.GZIP]),
)  # fmt: skip


@pytest.mark.parametrize("physical", [Type.BYTE_ARRAY, Type.INT64])
@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("form", [_V1, _V2])
@pytest.mark.parametrize("optional", [True, False])
def test_the_sound_chunks_are_read(
    tmp_path: Path, physical: Type, coded: bool, form: int, optional: bool
) -> None:
    for codec in (0, CompressionCodec.SNAPPY, CompressionCodec.GZIP):
        data = b"".join(page.bytes for page in chunk(physical, coded, form, optional, codec))
        for kernels in (COMPILED, None):
            found = read(tmp_path, [data] * 3, physical, optional, codec, kernels)
            assert found.done.all()
            assert part(found, 0, 2).to_pylist() == wanted(physical, coded)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[tuple[Any, ...], list[bytes]]:
    """The form of sound chunks, and some that lie."""
    form = draw(_FORMS)
    return form, [draw(_lying(form)) for _ in range(draw(st.integers(1, 4)))]


@st.composite
def _lying(draw: st.DrawFn, form: tuple[Any, ...]) -> bytes:
    pages = chunk(*form)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(pages) - 1))
        page, what = pages[at], draw(st.sampled_from(sorted(_LIES)))
        if what == "doubled":
            pages.insert(at, page)
        elif what == "twice":
            pages[at] = replace(page, twice=True)
        elif what in ("body", "levels", "packed"):
            raw = bytearray(page.levels if what == "levels" else page.body)
            for _ in range(draw(st.integers(1, 3))):
                if raw:
                    raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
            raw = raw[: draw(st.integers(0, len(raw)))] if draw(st.booleans()) else raw
            changed: dict[str, Any] = {what: bytes(raw)}
            pages[at] = replace(page, **changed)
        else:
            claimed: dict[str, Any] = {what: draw(_EXTREME)}
            pages[at] = replace(page, **claimed)
    data = bytearray(b"".join(page.bytes for page in pages))
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 5)) == 0 else data)


_LIES = {
    "values", "encoding", "size", "stored", "level_length", "type", "twice", "doubled", "body",
    "levels", "packed",
}  # fmt: skip


@settings(max_examples=5 * settings().max_examples)
@given(damaged(), st.sampled_from([None, 1 << 20]))
def test_chunks_that_lie_harm_no_other(
    drawn: tuple[tuple[Any, ...], list[bytes]], memory: int | None
) -> None:
    form, lies = drawn
    physical, coded, _, optional, codec = form
    sound = b"".join(page.bytes for page in chunk(*form))
    files = [sound, *(each for lie in lies for each in (lie, sound))]
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder), files, physical, optional, codec, memory=memory)
        # Where the claims of some take too much memory together, none is done.
        for number in range(0, len(files), 2):
            assert found.done[number] or not found.done.any()
            if found.done[number]:
                assert part(found, 0, number).to_pylist() == wanted(physical, coded)
        for number in range(1, len(files), 2):
            if found.done[number]:
                assert len(part(found, 0, number)) == ROWS


@settings(max_examples=5 * settings().max_examples)
@given(damaged(), st.sampled_from([None, 1 << 20]))
def test_chunks_that_lie_to_arrow(
    drawn: tuple[tuple[Any, ...], list[bytes]], memory: int | None
) -> None:
    """Arrow decodes all or none, and the values of a lie get into no other chunk."""
    form, lies = drawn
    physical, coded, _, optional, codec = form
    sound = b"".join(page.bytes for page in chunk(*form))
    files = [sound, *(each for lie in lies for each in (lie, sound))]
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder), files, physical, optional, codec, None, memory=memory)
        event("all" if found.done.all() else "none")
        assert found.done.all() or not found.done.any()
        for number in range(len(files) if found.done.all() else 0):
            values = part(found, 0, number).to_pylist()
            assert len(values) == ROWS
            assert number % 2 or values == wanted(physical, coded)


@settings(max_examples=5 * settings().max_examples)
@given(damaged(), st.sets(st.integers(0, ROWS - 1), min_size=1), st.sampled_from([None, 1 << 20]))
def test_a_few_rows_of_chunks_that_lie(
    drawn: tuple[tuple[Any, ...], list[bytes]], rows: set[int], memory: int | None
) -> None:
    form, lies = drawn
    physical, coded, _, optional, codec = form
    sound = b"".join(page.bytes for page in chunk(*form))
    at = sorted(rows)
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate([sound, *lies]):
            path = Path(folder) / str(number)
            found = few_rows(path, data, at, physical, optional, codec, memory)
            if found is None:
                assert number
                continue
            found.validate(full=True)
            assert len(found) == len(at)
            assert number or found.to_pylist() == [wanted(physical, coded)[row] for row in at]


def few_rows(
    path: Path,
    data: bytes,
    rows: list[int],
    physical: Type,
    optional: bool,
    codec: int,
    memory: int | None,
) -> pa.Array | None:
    type = pa.binary() if physical is Type.BYTE_ARRAY else pa.int64()
    path.write_bytes(data)
    storage = LocalStorage()
    reader = PinnedReader(storage)
    reader.pin(storage.stat(str(path)))
    entries = chunk_entries(None, np.array((0, len(data), ROWS, codec)))
    wanted_rows = FewRows(str(path), reader, (entries,), np.array(rows))
    kind = BulkKind(type, physical, optional)
    found = read_few_rows([wanted_rows] * 2, [kind], COMPILED, memory=memory)
    if found is None:
        return None
    assert found[0][: len(rows)].equals(found[0][len(rows) :])
    return found[0][: len(rows)]


def _one(tmp_path: Path, pages: list[Page], physical: Type, optional: bool = False) -> bool:
    codec = pages[0].codec
    sound = chunk(physical, True, _V1, optional, codec)
    data = [b"".join(page.bytes for page in each) for each in (sound, pages, sound)]
    found = read(tmp_path, data, physical, optional, codec)
    assert found.done[[0, 2]].all()
    assert part(found, 0, 2).to_pylist() == wanted(physical, True)
    return bool(found.done[1])


@pytest.mark.parametrize("physical", [Type.BYTE_ARRAY, Type.INT64])
@pytest.mark.parametrize("entries", [5, 1 << 30, 1 << 31, 1 << 61, 1 << 62, -1])
def test_a_dictionary_with_more_entries_than_bytes(
    tmp_path: Path, physical: Type, entries: int
) -> None:
    """Products and sums of such claims wrap in 64 bits."""
    first, second = chunk(physical, True, _V1, False, 0)
    first = replace(first, values=entries)
    far = bytes([31, ROWS << 1]) + struct.pack("<I", min(abs(entries), 1 << 31) - 1)
    assert not _one(tmp_path, [first, replace(second, body=far)], physical)


@pytest.mark.parametrize("physical", [Type.BYTE_ARRAY, Type.INT64])
def test_two_dictionaries(tmp_path: Path, physical: Type) -> None:
    first, second = chunk(physical, True, _V1, False, 0)
    assert not _one(tmp_path, [first, first, second], physical)


def test_pages_whose_sizes_wrap_in_sum(tmp_path: Path) -> None:
    """Four pages of 2^62 bytes have none together."""
    for codec in (CompressionCodec.GZIP, CompressionCodec.UNCOMPRESSED):
        (page,) = chunk(Type.INT64, False, _V1, False, codec)
        empty = replace(page, values=0, body=b"", size=1 << 62)
        assert not _one(tmp_path, [empty] * 4 + [page], Type.INT64)


def test_a_run_of_nulls_in_a_longer_number_is_no_run_of_values(tmp_path: Path) -> None:
    """The length of the run takes six bytes, of which the last is 1."""
    for form in (_V1, _V2):
        (page,) = chunk(Type.INT64, False, form, True, 0)
        levels = bytes([0x80 | 126, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0])
        data = replace(page, levels=levels, body=b"").bytes
        found = read(tmp_path, [data], Type.INT64, True, 0)
        assert found.done.all()
        assert part(found, 0, 0).null_count == ROWS


@pytest.mark.parametrize("codec", [CompressionCodec.SNAPPY, CompressionCodec.GZIP])
def test_pages_that_are_not_compressed_beside_others(
    tmp_path: Path, codec: CompressionCodec
) -> None:
    """Five values each: what is copied eight bytes at a time goes beyond the page."""
    words = [f"{at}".encode() for at in range(ROWS)]
    pages = [
        Page(_V2, 5, Encoding.PLAIN, _strings(words[at : at + 5]), bytes([5 << 1, 1]), codec,
             stated=at % 2 == 0)
        for at in range(0, ROWS, 5)
    ]  # fmt: skip
    data = b"".join(page.bytes for page in pages)
    found = read(tmp_path, [data] * 3, Type.BYTE_ARRAY, True, codec)
    assert found.done.all()
    for number in range(3):
        assert part(found, 0, number).to_pylist() == words


def test_many_pages_without_values(tmp_path: Path) -> None:
    (page,) = chunk(Type.INT64, False, _V1, False, 0)
    empty = replace(page, values=0, body=b"").bytes
    assert len(empty) < 40
    data = empty * 20_000 + page.bytes
    found = read(tmp_path, [data, page.bytes], Type.INT64, False, 0)
    assert found.done.all()
    assert part(found, 0, 0).to_pylist() == wanted(Type.INT64, False)


def test_a_snappy_block_that_copies_from_before_its_page(tmp_path: Path) -> None:
    first, page = chunk(Type.INT64, True, _V1, False, CompressionCodec.SNAPPY)
    size = len(_indices())
    for block in (
        _varint(size) + bytes([0x01 | (size - 4 & 7) << 2, 1]),
        _varint(size) + bytes([0x02 | (size - 1) << 2, 1, 0]),
        _varint(size) + bytes([0x03 | (size - 1) << 2, 1, 0, 0, 0]),
        _varint(size) + bytes([0x00, 7, 0x02 | (size - 2) << 2, 9, 0]),
        _varint(size) + bytes([60 << 2, 255]),
        _varint(size) + bytes([63 << 2, 255, 255, 255, 255]),
        _varint(1 << 40),
        b"",
    ):
        assert not _one(tmp_path, [first, replace(page, packed=block)], Type.INT64)
