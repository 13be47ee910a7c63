"""Java-serialised filters: golden blobs byte for byte, and hostile ones."""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from skipstone.errors import FormatError
from skipstone.xskipper.format.java_bloom import (
    METADATA,
    BloomFilterMetaData,
    JavaClass,
    JavaField,
    block_data,
    header,
    impl_class,
    parse_header,
)
from skipstone.xskipper.format.part import read_part
from skipstone.xskipper.format.sketch import SketchFilter
from tests.xskipper.format.golden import golden_blobs, golden_parts
from tests.xskipper.format.reference_bloom import LEGACY_METADATA, SketchBuilder

if TYPE_CHECKING:
    from pathlib import Path


def blob(words: int = 5, version: int = 1) -> bytes:
    built = SketchBuilder(words=words, num_hash_functions=3, version=version).build()
    return BloomFilterMetaData.of(built).to_bytes()


def test_every_golden_blob_parses_and_comes_back_byte_for_byte(golden: Path) -> None:
    seen: Counter[tuple[str, int, int]] = Counter()
    for written in golden_blobs(golden):
        parsed = BloomFilterMetaData.from_bytes(written)
        assert parsed.to_bytes() == written
        assert parsed.outer is not None
        assert parsed.outer.superclass is not None
        seen[parsed.outer.name, parsed.outer.superclass.suid, parsed.inner.suid] += 1
    # com.ibm by Spark 3.0.1; io.xskipper by Spark 3.0.1 and Scala 2.12, by Spark 4.0.0 and 2.13.
    assert sorted(seen.values()) == [24, 24, 42]


def test_golden_bare_filters_come_back_byte_for_byte(golden: Path) -> None:
    for version in (1, 2):
        path = golden / "xskipper" / "bloom" / f"javaser_bare_v{version}_spark430.bin"
        parsed = BloomFilterMetaData.from_bytes(path.read_bytes())
        assert (parsed.outer, parsed.filter.version) == (None, version)
        assert parsed.inner.fields == ()
        assert parsed.to_bytes() == path.read_bytes()


def test_what_is_written_has_the_descriptors_of_spark_3_0_1(golden: Path) -> None:
    for path in golden_parts(golden, version=4):
        for written in read_part(path.read_bytes()).table.column(-1).to_pylist():
            if not isinstance(written, bytes):
                continue
            parsed = BloomFilterMetaData.from_bytes(written)
            again = BloomFilterMetaData.of(parsed.filter).to_bytes()
            fixture = "testID" in str(path)
            assert (again == written) is fixture


@pytest.mark.parametrize("words", [1, 30, 31, 32, 126, 127, 128, 129, 254, 255, 1_000])
@pytest.mark.parametrize("version", [1, 2])
def test_every_length_of_the_last_block(words: int, version: int) -> None:
    written = blob(words, version)
    parsed = BloomFilterMetaData.from_bytes(written)
    assert len(parsed.filter.words) == words
    assert parsed.to_bytes() == written


def test_blocks_cut_otherwise_are_read_too() -> None:
    payload = SketchBuilder(words=300, num_hash_functions=3).build().to_bytes()
    blocks = b"".join(
        struct.pack(">BB", 0x77, len(part)) + part
        for part in (payload[at : at + 7] for at in range(0, len(payload), 7))
    )
    parsed = BloomFilterMetaData.from_bytes(header(METADATA, impl_class(1)) + blocks + b"\x78")
    assert parsed.filter.to_bytes() == payload


def test_signatures_by_reference() -> None:
    signature = "Lorg/apache/spark/util/sketch/BloomFilter;"
    inner = JavaClass(
        name=impl_class(1).name,
        suid=7,
        flags=3,
        fields=(
            JavaField(code="L", name="same", signature=signature),
            JavaField(code="[", name="other", signature="[J"),
            JavaField(code="[", name="again", signature="[J"),
            JavaField(code="Z", name="flag"),
        ),
    )
    filter_ = SketchBuilder(words=1, num_hash_functions=1).build()
    written = BloomFilterMetaData(filter=filter_, outer=METADATA, inner=inner).to_bytes()
    assert written.count(signature.encode()) == 1
    assert written.count(b"\x71\x00\x7e\x00") == 2
    parsed = BloomFilterMetaData.from_bytes(written)
    assert parsed.inner == inner
    assert parsed.to_bytes() == written


def test_any_serial_version_id_is_read() -> None:
    written = header(LEGACY_METADATA, impl_class(1))
    for at in range(len(written)):
        if written[at : at + 8] == struct.pack(">q", impl_class(1).suid):
            changed = written[:at] + bytes(8) + written[at + 8 :]
            assert parse_header(changed)[1].suid == 0


ROTTEN = {
    "nothing": b"",
    "magic": b"\xac\xed\x00\x06" + blob()[4:],
    "a null filter": header(METADATA, impl_class(1))[: len(header(None, METADATA))] + b"\x70",
    "a foreign class": header(None, JavaClass(name="java.util.HashMap", suid=1, flags=3)),
    "a filter of version 2 as version 1": header(METADATA, impl_class(1))
    + block_data(SketchBuilder(words=1, num_hash_functions=1, version=2).build().to_bytes()),
    "more after the end": blob() + b"\x00",
    "no end": blob()[:-1],
    "a block of negative length": header(METADATA, impl_class(1)) + b"\x7a\xff\xff\xff\xff",
    "a block of two gigabytes": header(METADATA, impl_class(1)) + b"\x7a\x7f\xff\xff\xff",
    "many superclasses": b"\xac\xed\x00\x05\x73"
    + b"\x72\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x78" * 50_000,
    "many fields": b"\xac\xed\x00\x05\x73\x72\x00\x01a" + bytes(8) + b"\x02\xff\xff" + bytes(999),
    "a handle of a class": b"\xac\xed\x00\x05\x73\x72\x00\x01a"
    + bytes(8)
    + b"\x02\x00\x01L\x00\x01f\x71\x00\x7e\x00\x00\x78\x70",
    "a name that is not ASCII": b"\xac\xed\x00\x05\x73\x72\x00\x02\xc3\xa9" + bytes(30),
}


@pytest.mark.parametrize("name", ROTTEN)
def test_hostile_streams(name: str) -> None:
    with pytest.raises(FormatError):
        BloomFilterMetaData.from_bytes(ROTTEN[name])


def test_errors_say_where() -> None:
    damaged = blob().replace(b"\x73", b"\x74", 1)
    with pytest.raises(FormatError, match=r"f\.parquet: at byte 104: .*expected 73, got 74"):
        BloomFilterMetaData.from_bytes(damaged, file="f.parquet", offset=100)


def test_a_filter_of_a_gigabyte_is_not_believed() -> None:
    head = struct.pack(">iii", 1, 3, 1 << 27)
    with pytest.raises(FormatError, match="length of a Bloom filter"):
        SketchFilter.from_bytes(head + bytes(64))
