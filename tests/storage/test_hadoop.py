"""Hadoop's filesystems without a cluster: how a way to one is found, and what is said without one.

The ways themselves are tested on a real HDFS (``tests/interop/test_hdfs.py``). libhdfs is not part
of any package: what is above Arrow's interface is tested over Arrow's local filesystem.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.storage import ByteRange, needs_session, open_storage
from skipstone.storage.hadoop import HadoopStorage
from skipstone.storage.hadoop_arrow import ArrowFiles
from skipstone.storage.hadoop_files import error_of
from skipstone.storage.webhdfs import WebFiles

if TYPE_CHECKING:
    from pathlib import Path

BASE = "hdfs://node:8020"


@pytest.fixture
def storage(tmp_path: Path) -> HadoopStorage:
    inside = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    return HadoopStorage(BASE, ArrowFiles(BASE, inside))


def test_a_storage_over_a_filesystem_of_arrows(storage: HadoopStorage) -> None:
    storage.put(f"{BASE}/t/k=1/a", b"abcdef")
    storage.put(f"{BASE}/t/_h/b", b"b")
    storage.put(f"{BASE}/t/empty", b"")
    listing = storage.list_files(f"{BASE}/t")
    assert listing.paths == [f"{BASE}/t/k=1/a"]
    assert (listing.unit, listing.empty) == ("s", 1)
    assert set(listing.top or ()) == {"k=1/", "_h/", "empty"}
    version = listing.object_id(0)
    assert storage.stat(version.path).same_version(version)
    middle = ByteRange(version.path, 2, 3)
    assert bytes(storage.read_ranges([middle], {version.path: version})[middle]) == b"cde"
    assert storage.read(version.path) == b"abcdef"
    assert bytes(storage.read_tail(version.path, 2)[1]) == b"ef"
    storage.put(version.path, b"other")
    assert storage.read(version.path) == b"other"
    assert storage.list_all(f"{BASE}/t/k=1").paths == [version.path]
    storage.remove_empty(f"{BASE}/t/k=1")
    storage.delete(version.path, f"{BASE}/t/never")
    assert not storage.exists(version.path)
    storage.remove_empty(f"{BASE}/t/k=1")
    assert not storage.has_children(f"{BASE}/t/k=1")
    with pytest.raises(SkipstoneError, match="no such file or directory"):
        storage.list_files(f"{BASE}/gone")


def test_temporary_files_of_the_last_day_may_be_written_now(
    storage: HadoopStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{BASE}/t/_tmp-part-{'0' * 32}"
    storage.put(f"{BASE}/t/part", b"x")
    storage.files.create(name, memoryview(b"x"), overwrite=False)
    assert storage.left_overs(f"{BASE}/t") == {}
    later = storage.now() + 2 * 86_400 * 10**9
    monkeypatch.setattr(storage, "now", lambda: later)
    assert storage.left_overs(f"{BASE}/t") == {name: None}


@pytest.mark.parametrize(
    "exception, error",
    [
        ("java.io.FileNotFoundException", FileNotFoundError),
        ("org.apache.hadoop.security.AccessControlException", PermissionError),
        ("org.apache.hadoop.fs.FileAlreadyExistsException", FileExistsError),
        ("ParentNotDirectoryException", NotADirectoryError),
        ("java.lang.IllegalStateException", OSError),
    ],
)
def test_exceptions_of_hadoop_are_errors_of_python(exception: str, error: type[OSError]) -> None:
    found = error_of(exception, "what it says\n\tat a.b.C", "hdfs://n/x")
    assert type(found) is error
    assert found.filename == "hdfs://n/x"
    assert str(found.strerror).endswith("what it says")


SCRIPT = """
import sys, skipstone
for path in sys.argv[1:]:
    try:
        skipstone.Table(path).listing()
    except skipstone.SkipstoneError as error:
        print(error)
assert "pyspark" not in sys.modules
"""


def test_without_a_session_each_scheme_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "HADOOP_CONF_DIR", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    paths = ["viewfs://c/t", "dbfs:/t", "ofs://x/t", "hdfs:///t", "hdfs://127.0.0.1:9/t"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *paths], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths), done.stderr
    for path, line in zip(("viewfs://c", "dbfs:", "ofs://x"), lines, strict=False):
        assert line.startswith(f"{path} is read through Hadoop, and this process has no Spark")
        assert "hint: start one first" in line
    assert lines[3].startswith("hdfs:/// names no name node (hint: name the HTTP address")
    assert "WebHDFS at http://127.0.0.1:9870 does not answer" in lines[4]
    assert "webhdfs=http://HOST:9870" in lines[4]


def test_where_webhdfs_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def addresses(base: str, **options: str) -> list[str]:
        return WebFiles.at(base, options)._addresses

    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert addresses("hdfs://n:8020") == ["http://n:9870"]
    assert addresses("webhdfs://n:1") == ["http://n:1"]
    assert addresses("swebhdfs://n:1") == ["https://n:1"]
    assert addresses("hdfs://n", webhdfs="http://a:1/, https://b:2") == [
        "http://a:1",
        "https://b:2",
    ]

    def configure(file: str, **settings: str) -> None:
        properties = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in settings.items()
        )
        (tmp_path / file).write_text(f"<configuration>{properties}</configuration>")

    configure("core-site.xml", **{"fs.defaultFS": "hdfs://cluster"})
    configure(
        "hdfs-site.xml",
        **{
            "dfs.ha.namenodes.cluster": "n1, n2",
            "dfs.namenode.http-address.cluster.n1": "one:5",
            "dfs.namenode.http-address.cluster.n2": "two:6",
        },
    )
    assert addresses("hdfs://cluster") == addresses("hdfs://") == ["http://one:5", "http://two:6"]
    configure("hdfs-site.xml", **{"dfs.namenode.http-address": "0.0.0.0:5"})
    assert addresses("hdfs://n:8020") == ["http://n:5"]
    with pytest.raises(UnsupportedError, match="no address of WebHDFS"):
        addresses("hdfs://n", webhdfs="n:9870")
    with pytest.raises(UnsupportedError, match="no storage option colour"):
        addresses("hdfs://n", colour="blue")


def test_local_paths_and_object_stores_need_no_session() -> None:
    assert not needs_session("/data/t")
    assert not needs_session("s3://b/t")
    assert not needs_session(f"{BASE}/t", {"webhdfs": "http://node:9870"})
    assert open_storage("file:/data").remote is False
