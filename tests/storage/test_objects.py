"""Object stores, against an S3 server on loopback: listing, ranged reads, conditions, clocks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.errors import SkipstoneError, StaleError, UnsupportedError
from skipstone.questdb import is_txn_table
from skipstone.storage import ByteRange, list_files, open_storage, table_format
from skipstone.storage.objects import ObjectStorage
from tests.processes import environment

if TYPE_CHECKING:
    from tests.s3 import S3

ODD_NAMES = [
    "a b",
    "é",
    "%",
    "p=a%2Fb%3Dc/x",
    "{x}[y]#~",
    "plus+and&?",
    "back\\slash",
    "日本",
    "'\"",
]


def test_listing_hides_like_spark_and_has_etags(s3: S3) -> None:
    """Two data files; a marker, a checksum, an empty "directory" object and a neighbour's key."""
    s3.fill("t/part-0", "t/p=1/part-1", "t/_SUCCESS", "t/.crc", "t/_tmp/part-9", "t2/part-0")
    s3.fill("t/dir/", data=b"")
    files = list_files(f"{s3.base}/t", s3.options)
    assert files.paths == [f"{s3.base}/t/p=1/part-1", f"{s3.base}/t/part-0"]
    assert files.unit == "s"
    assert files.etags is not None
    assert all(files.etags)
    assert files.object_id(0) == s3.storage().stat(files.paths[0])


def test_odd_names_stay_raw(s3: S3) -> None:
    s3.fill(*(f"t/{name}" for name in ODD_NAMES))
    storage = s3.storage()
    files = storage.list_files(f"{s3.base}/t")
    assert files.paths == sorted(f"{s3.base}/t/{name}" for name in ODD_NAMES)
    for path in files.paths:
        assert storage.read(path) == b"data"
    for name in ODD_NAMES:
        storage.put(f"{s3.base}/copy/{name}", b"data")
    assert s3.keys("copy/") == sorted(f"copy/{name}" for name in ODD_NAMES)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_fork_is_refused_once_requests_were_sent(s3: S3) -> None:
    """The client would wait forever there. A fork before the first request sends its own."""
    rows = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2]}), rows)
    s3.fill("t/part-0", data=rows.getvalue().to_pybytes())
    code = """
import json, os, signal, sys
from skipstone import Table
path, options = sys.argv[1], json.loads(sys.argv[2])

def forked(count):
    if not (fork := os.fork()):
        signal.alarm(60)
        try:
            print("fork:", count(), flush=True)
        except NotImplementedError as error:
            print("fork:", error, flush=True)
        os._exit(0)
    os.waitpid(fork, 0)

table = Table(path, storage_options=options)
forked(lambda: Table(path, storage_options=options).count("id = 1"))
print(table.count("id = 1"), flush=True)
forked(lambda: table.count("id = 1"))
forked(lambda: Table(path, storage_options=options).count("id = 1"))
print(table.count("id = 2"), flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, f"{s3.base}/t", json.dumps(s3.options)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    first, own, kept, fresh, again = done.stdout.splitlines()
    assert (first, own, again) == ("fork: 1", "1", "1")
    for told in (kept, fresh):
        assert told.startswith(f"fork: {s3.base}: this process was forked after a request")
        assert "get_context('spawn')" in told


def test_a_long_listing_is_read_to_its_end(s3: S3) -> None:
    s3.fill_many(*(f"t/part-{i:04d}" for i in range(1100)))
    assert len(s3.storage().list_files(f"{s3.base}/t")) == 1100


@pytest.mark.parametrize("spelling", ["s3a", "s3n", "S3"])
def test_the_scheme_family_is_one_path(s3: S3, spelling: str) -> None:
    s3.fill("t/a")
    files = list_files(f"{spelling}://{s3.bucket}/t/", s3.options)
    assert files.paths == [f"{s3.base}/t/a"]


def test_one_object_is_a_listing_of_one_and_none_is_an_error(s3: S3) -> None:
    s3.fill("t/a")
    s3.fill("t/hidden/_x", "t/empty", data=b"")
    storage = s3.storage()
    assert storage.list_files(f"{s3.base}/t/a").paths == [f"{s3.base}/t/a"]
    assert len(storage.list_files(f"{s3.base}/t/hidden")) == 0
    with pytest.raises(SkipstoneError, match="no objects below"):
        storage.list_files(f"{s3.base}/nowhere")


def test_a_whole_bucket_is_a_table_too(s3: S3) -> None:
    s3.fill("only/a")
    assert s3.storage().list_files(s3.base).paths == [f"{s3.base}/only/a"]


def test_neighbouring_ranges_take_one_request(s3: S3) -> None:
    s3.fill("t/a", "t/b", data=bytes(range(250)))
    storage = s3.storage(gap=10)
    a, b = f"{s3.base}/t/a", f"{s3.base}/t/b"
    ranges = [ByteRange(a, 0, 5), ByteRange(a, 10, 5), ByteRange(a, 200, 2), ByteRange(b, 1, 1)]
    before = len(s3.requests())
    fetched = storage.read_ranges(ranges)
    assert {(r.path, r.offset): bytes(data) for r, data in fetched.items()} == {
        (a, 0): bytes(range(5)),
        (a, 10): bytes(range(10, 15)),
        (a, 200): bytes([200, 201]),
        (b, 1): bytes([1]),
    }
    assert len(s3.requests()) - before == 3
    assert storage.requests == 3


def test_ranges_that_cannot_be_read_whole_are_left_out(s3: S3) -> None:
    s3.fill("t/a", data=b"0123456789")
    path = f"{s3.base}/t/a"
    good, empty = ByteRange(path, 8, 2), ByteRange(path, 3, 0)
    bad = [
        ByteRange(path, 8, 3),
        ByteRange(path, 100, 4),
        ByteRange(f"{s3.base}/t/gone", 0, 1),
        ByteRange("s3://elsewhere/x", 0, 1),
    ]
    fetched = s3.storage(gap=0).read_ranges([*bad, good, empty])
    assert {key: bytes(value) for key, value in fetched.items()} == {good: b"89", empty: b""}


def test_views_are_filled_with_the_version_that_was_listed(s3: S3) -> None:
    s3.fill("t/a", data=b"0123456789")
    storage, path = s3.storage(), f"{s3.base}/t/a"
    version, into = storage.stat(path), bytearray(5)
    views = [memoryview(into)[:2], memoryview(into)[2:]]
    assert storage.read_into(path, [8, 0], views, version)
    assert bytes(into) == b"89012"
    assert not storage.read_into(path, [8, 9], views, version)
    s3.fill("t/a", data=b"9876543210")
    assert not storage.read_into(path, [8, 0], views, version)


def test_another_version_is_not_read(s3: S3) -> None:
    s3.fill("t/a", data=b"old")
    storage, path = s3.storage(), f"{s3.base}/t/a"
    version = storage.stat(path)
    wanted = ByteRange(path, 0, 3)
    assert storage.read_ranges([wanted], {path: version}).keys() == {wanted}
    with storage.open(path, version) as file:
        s3.fill("t/a", data=b"new")
        with pytest.raises(StaleError, match="not the version that was listed"):
            file.read()
    assert storage.read_ranges([wanted], {path: version}) == {}


def test_an_open_file_seeks_and_reads_its_end_with_one_request(s3: S3) -> None:
    content = bytes(i % 251 for i in range(200_000))
    s3.fill("t/a", data=content)
    storage, path = s3.storage(), f"{s3.base}/t/a"
    with storage.open(path, storage.stat(path)) as file:
        before = len(s3.requests())
        assert file.seek(-8, 2) == len(content) - 8
        assert file.read(8) == content[-8:]
        file.seek(-60_000, 2)
        assert file.read(60_000) == content[-60_000:]
        assert len(s3.requests()) - before == 1
        file.seek(100)
        assert file.read(50) == content[100:150]
        assert file.tell() == 150
        assert file.read() == content[150:]


def test_put_exists_delete(s3: S3) -> None:
    storage, path = s3.storage(), f"{s3.base}/x/y"
    assert not storage.exists(path)
    storage.put(path, memoryview(b"one"))
    assert storage.exists(path)
    assert storage.read(path) == b"one"
    assert s3.keys("x/") == ["x/y"]  # the final name at once, nothing beside it
    storage.delete(path)
    storage.delete(path)
    with pytest.raises(FileNotFoundError):
        storage.read(path)


def test_what_is_not_there_is_said_in_one_line(s3: S3) -> None:
    storage, path = s3.storage(), f"{s3.base}/x/y"
    with pytest.raises(FileNotFoundError) as caught:
        storage.read_tail(path, 8)
    assert (caught.value.filename, caught.value.strerror) == (path, "no such object")
    elsewhere = ObjectStorage.at("s3://absent-bucket/x", s3.options)
    with pytest.raises(FileNotFoundError) as caught:
        elsewhere.stat("s3://absent-bucket/x")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_environment_may_name_the_endpoint(
    s3: S3, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    s3.fill("t/a")
    options = dict(s3.options)
    monkeypatch.setenv(name, options.pop("endpoint"))
    assert ObjectStorage.at(s3.base, options).stat(f"{s3.base}/t/a").size == 4


def test_an_option_that_is_none_is_named_with_those_that_are(s3: S3) -> None:
    with pytest.raises(UnsupportedError, match="'bogus'") as caught:
        ObjectStorage.at(s3.base, {**s3.options, "bogus": "1"})
    assert "secret_access_key" in caught.value.hint


def test_names_that_no_object_can_have_are_not_there(s3: S3) -> None:
    with pytest.raises(FileNotFoundError):
        s3.storage().stat(f"{s3.base}/t/new\nline")


def test_table_formats_are_known(s3: S3) -> None:
    s3.fill("d/_delta_log/0.json", "d/part-0", "p/part-0")
    assert table_format(f"{s3.base}/d", s3.storage()) == "Delta Lake"
    assert table_format(f"{s3.base}/p", s3.storage()) is None


def test_names_of_options_that_others_use_are_understood(s3: S3) -> None:
    s3.fill("t/a")
    hadoop = {
        "fs.s3a.access.key": "any",
        "fs.s3a.secret.key": "any",
        "fs.s3a.endpoint": s3.options["endpoint"],
        "fs.s3a.endpoint.region": "us-east-1",
    }
    fsspec = {"key": "any", "secret": "any", "endpoint_url": s3.options["endpoint"]}
    for options in (hadoop, {**fsspec, "region": "us-east-1"}):
        assert len(list_files(f"{s3.base}/t", options)) == 1


def test_a_wrong_option_or_scheme_is_an_error_with_a_hint() -> None:
    with pytest.raises(UnsupportedError, match="cannot open s3://b"):
        open_storage("s3://b/t", {"colour": "blue"})
    with pytest.raises(UnsupportedError, match="warp://b"):
        open_storage("warp://b/t")
    with pytest.raises(UnsupportedError, match="oss://"):
        open_storage("oss://b/t")


def test_a_store_that_is_away_is_an_error_in_one_line() -> None:
    storage = ObjectStorage.at(
        "s3://b/t",
        {"endpoint": "http://127.0.0.1:9", "skip_signature": "true", "region": "x"},
        retries=0,
    )
    with pytest.raises(SkipstoneError) as error:
        storage.list_files("s3://b/t")
    assert error.value.message == "cannot list s3://b/t: http://127.0.0.1:9 does not answer"
    with pytest.raises(OSError, match=r"^s3://b/t: http://127\.0\.0\.1:9 does not answer$"):
        is_txn_table("s3://b/t", storage)


def test_a_bucket_that_does_not_exist_is_named(s3: S3) -> None:
    table = Table("s3://no-such-bucket/t", storage_options=s3.options)
    with pytest.raises(SkipstoneError, match="list s3://no-such-bucket/t: there is no such bucket"):
        table.describe()


def test_buffers_of_arrow_are_written(s3: S3) -> None:
    """Their bytes are signed, in the words of Python's buffers."""
    storage = s3.storage()
    storage.put(f"{s3.base}/t/a", memoryview(pa.py_buffer(b"xyz")))
    assert storage.read(f"{s3.base}/t/a") == b"xyz"
