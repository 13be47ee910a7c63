"""Identities across units, and paths in the spellings of users, listings and Spark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import SkipstoneError
from skipstone.identity import (
    UNITS_PER_SECOND,
    ObjectId,
    TimeUnit,
    canonical_path,
    decode_uri,
    encode_uri,
    local_etag,
    same_instant,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

units = st.sampled_from(list(UNITS_PER_SECOND))

# File names and what `_metadata.file_path` prints of them: PySpark 4.1.4 and 4.3.0, Java 17.
PRINTED = {
    "plain-0_1.2": "plain-0_1.2",
    "a b": "a%20b",
    "50%": "50%25",
    "%20": "%2520",
    "a%2Fb": "a%252Fb",
    "é": "é",
    "e\u0301": "e\u0301",
    "漢": "漢",
    "\U0001f600": "\U0001f600",
    "k=v": "k=v",
    "h#1": "h%231",
    "w?x": "w%3Fx",
    "p+q": "p+q",
    "it's": "it's",
    'qu"ote': "qu%22ote",
    "br[ack]": "br%5Back%5D",
    "cur{ly}": "cur%7Bly%7D",
    "pa(ren)": "pa(ren)",
    "car^et": "car%5Eet",
    "pi|pe": "pi%7Cpe",
    "back\\slash": "back%5Cslash",
    "gr`ave": "gr%60ave",
    "lt<gt>": "lt%3Cgt%3E",
    "at@ am& do$ ex! st* co, se; ti~": "at@%20am&%20do$%20ex!%20st*%20co,%20se;%20ti~",
    "tab\tx": "tab%09x",
    "nl\nx": "nl%0Ax",
    "del\x7fx": "del%7Fx",
    "c1\x85x": "c1%C2%85x",
    "nb\u00a0sp": "nb%C2%A0sp",
    "em\u3000sp": "em%E3%80%80sp",
    "ls\u2028": "ls%E2%80%A8",
    "zw\u200b": "zw\u200b",
    "soft\u00adx": "soft\u00adx",
    "bom\ufeffx": "bom\ufeffx",
}
# Legal in an object store's keys and in directories; Spark opens no local *file* named like that.
COLON = {"co:lon": "co:lon", "s3:": "s3:"}


# -- paths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PRINTED, *COLON])
def test_uris_are_those_that_spark_prints(name: str) -> None:
    printed = {**PRINTED, **COLON}[name]
    for root in ("/data", "/da ta/p=1"):
        uri = f"file:{root.replace(' ', '%20')}/{printed}.parquet"
        raw = f"{root}/{name}.parquet"
        assert encode_uri(raw) == encode_uri(f"file:{raw}") == encode_uri(f"file://{raw}") == uri
        assert decode_uri(uri) == raw
        assert decode_uri(uri.replace("file:", "file://")) == raw, "as input_file_name() prints it"
    for scheme in ("s3", "s3a", "gs", "abfss"):
        assert encode_uri(f"{scheme}://bucket/{name}") == f"{scheme}://bucket/{printed}"
        assert decode_uri(f"{scheme}://bucket/{printed}") == f"{scheme}://bucket/{name}"


@pytest.mark.spark
def test_spark_prints_these_uris_itself(spark: SparkSession, tmp_path: Path) -> None:
    for number, name in enumerate(PRINTED):
        pq.write_table(pa.table({"i": [number]}), tmp_path / f"{name}.parquet")
    (tmp_path / "d:x").mkdir()
    pq.write_table(pa.table({"i": [len(PRINTED)]}), tmp_path / "d:x" / "f.parquet")
    frames = [spark.read.parquet(str(tmp_path)), spark.read.parquet(f"file://{tmp_path}/d:x")]
    printed: dict[int, str] = {}
    for frame in frames:
        printed.update({r[0]: r[1] for r in frame.select("i", "_metadata.file_path").collect()})
    raw = [str(tmp_path / f"{name}.parquet") for name in PRINTED]
    raw.append(str(tmp_path / "d:x" / "f.parquet"))
    assert [printed[i] for i in range(len(raw))] == [encode_uri(path) for path in raw]
    assert [decode_uri(printed[i]) for i in range(len(raw))] == raw


@pytest.mark.spark
@pytest.mark.parametrize("name", [*PRINTED, *COLON])
def test_hadoop_prints_these_uris_of_objects(spark: SparkSession, name: str) -> None:
    jvm = spark._jvm
    assert jvm is not None
    raw = f"s3a://bucket/dir/{name}"
    printed = jvm.org.apache.hadoop.fs.Path(raw).toUri().toString()
    assert printed == encode_uri(raw)
    assert decode_uri(printed) == raw


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_every_path_comes_back_from_its_uri(text: str) -> None:
    for raw in (f"/data/{text}", f"s3://bucket/{text}", f"s3a://{text}"):
        uri = encode_uri(raw)
        assert decode_uri(uri) == raw
        assert not set(uri) & set(' \t\n"#<>?[]^`{|}\\')


@pytest.mark.parametrize(
    "spelling, canonical",
    [
        ("/data/t", "/data/t"),
        ("/data/t/", "/data/t"),
        ("//data//t", "/data/t"),
        ("/data/./x/../t", "/data/t"),
        ("file:/data/t", "/data/t"),
        ("file:///data/t/", "/data/t"),
        ("/data/50%25 é=#?", "/data/50%25 é=#?"),
        ("/data/s3:/x", "/data/s3:/x"),
        ("/", "/"),
        ("file:/", "/"),
        ("s3://b/k", "s3://b/k"),
        ("s3a://b/k/", "s3://b/k"),
        ("S3N://b/k", "s3://b/k"),
        ("s3://b/k//x", "s3://b/k//x"),
        ("s3://b", "s3://b"),
        ("gs://b/k", "gs://b/k"),
        ("abfss://c@a.host/k", "abfs://c@a.host/k"),
        ("hdfs://name:8020/k", "hdfs://name:8020/k"),
    ],
)
def test_canonical_paths(spelling: str, canonical: str) -> None:
    assert canonical_path(spelling) == canonical
    assert canonical_path(canonical) == canonical


def test_relative_paths_are_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = os.getcwd()  # noqa: PTH109
    assert canonical_path("t/x") == f"{here}/t/x"
    assert canonical_path("a:b/x") == f"{here}/a:b/x", "no scheme: no slash follows the colon"
    assert canonical_path("file:t") == f"{here}/file:t"


def test_a_link_is_a_path_of_its_own(tmp_path: Path) -> None:
    """Spark lists what is below a link under the link's name."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert canonical_path(str(tmp_path / "link" / "f")) == str(tmp_path / "link" / "f")


def test_two_buckets_with_equal_paths_do_not_meet() -> None:
    assert canonical_path("s3a://one/t/f") != canonical_path("s3a://two/t/f")


# -- instants --------------------------------------------------------------------------------------


@given(st.integers(-(10**18), 10**18), units, units)
def test_an_instant_is_itself_in_every_unit(ns: int, a: str, b: str) -> None:
    """Truncation to either unit, as a file system and a listing would do it."""
    in_a, in_b = (ns // (10**9 // UNITS_PER_SECOND[unit]) for unit in (a, b))
    assert same_instant(in_a, a, in_b, b)
    assert same_instant(in_b, b, in_a, a)


@pytest.mark.parametrize("unit, mtime", [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_a_time_in_nanoseconds(unit: TimeUnit, mtime: int) -> None:
    assert oid(mtime=-7 * mtime, unit=unit).mtime_ns == -7 * 10**9


@given(st.integers(-(10**12), 10**12), st.integers(-3, 3), units, units)
def test_the_next_tick_of_the_coarser_unit_is_another_instant(
    value: int, ticks: int, a: str, b: str
) -> None:
    coarse, fine = sorted((a, b), key=UNITS_PER_SECOND.__getitem__)
    ratio = UNITS_PER_SECOND[fine] // UNITS_PER_SECOND[coarse]
    assert same_instant(value, coarse, (value + ticks) * ratio + ratio - 1, fine) == (ticks == 0)


def oid(**changes: object) -> ObjectId:
    fields: dict[str, object] = {
        "path": "/t/f",
        "size": 10,
        "mtime": 1_700_000_000_123_456_789,
        "unit": "ns",
        "etag": "7-8",
    }
    return ObjectId(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "unit, mtime",
    [
        ("s", 1_700_000_000),
        ("ms", 1_700_000_000_123),
        ("us", 1_700_000_000_123_456),
        ("ns", 1_700_000_000_123_456_789),
    ],
)
def test_the_same_version_in_any_unit(unit: TimeUnit, mtime: int) -> None:
    other = oid(unit=unit, mtime=mtime)
    assert oid().same_version(other)
    assert other.same_version(oid())
    for off in (-1, 1):
        late = oid(unit=unit, mtime=mtime + off)
        assert not oid().same_version(late)
        assert not late.same_version(oid())


@pytest.mark.parametrize("field, value", [("path", "/t/g"), ("size", 11), ("etag", "7-9")])
def test_any_difference_that_both_sides_know_is_another_version(field: str, value: object) -> None:
    assert not oid().same_version(oid(**{field: value}))
    assert not oid(**{field: value}).same_version(oid())


@pytest.mark.parametrize("field", ["size", "etag"])
def test_what_one_side_does_not_know_decides_nothing(field: str) -> None:
    assert oid().same_version(oid(**{field: None}))
    assert oid(**{field: None}).same_version(oid())


def test_a_size_of_zero_is_known() -> None:
    assert not oid(size=0).same_version(oid())


def test_a_local_file_replaced_with_size_and_mtime_restored(tmp_path: Path) -> None:
    path = tmp_path / "a b é.parquet"
    path.write_bytes(b"12345")
    before = path.stat()
    first = ObjectId.of_local(str(path), before)
    assert first.same_version(ObjectId.of_local(f"file://{path}", path.stat()))
    assert (first.path, first.size, first.unit) == (str(path), 5, "ns")
    assert first.etag == local_etag(before) == f"{before.st_ino}-{before.st_ctime_ns}"

    twin = tmp_path / "twin"
    twin.write_bytes(b"54321")
    os.utime(twin, ns=(before.st_atime_ns, before.st_mtime_ns))
    twin.replace(path)
    second = ObjectId.of_local(str(path), path.stat())
    assert (first.size, first.mtime) == (second.size, second.mtime)
    assert not first.same_version(second)


def test_a_path_with_a_nul_is_refused_in_words() -> None:
    for path in ("/t\0x", "s3://b/t\0x", "\0"):
        with pytest.raises(SkipstoneError, match="no path"):
            canonical_path(path)
