"""Local storage: what is listed, what is read, and what a crash leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from skipstone.errors import SkipstoneError, StaleError
from skipstone.identity import ObjectId
from skipstone.storage import (
    ByteRange,
    LocalStorage,
    atomic_replace,
    list_files,
    local,
    open_storage,
    table_format,
)
from skipstone.storage.atomic_replace import new_directory
from skipstone.storage.base import metered
from tests.processes import environment

if TYPE_CHECKING:
    from collections.abc import Callable

ODD_NAMES = ["a b.parquet", "é.parquet", "%.parquet", "a%2Fb", "x=y", "new\nline", "日本", "'\"\\"]


def fill(root: Path, *names: str, data: bytes = b"data") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def inside(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def names(root: Path) -> list[str]:
    return [path.removeprefix(f"{root}/") for path in list_files(str(root)).paths]


# -- listing ---------------------------------------------------------------------------------------


def test_data_files_are_listed_and_others_hidden(tmp_path: Path) -> None:
    """Three data files at two depths; markers, checksums, copies and hidden folders beside them."""
    fill(tmp_path, "part-1", "p=1/part-0", "_q=2/part-0")
    fill(tmp_path, "_SUCCESS", "_metadata", ".part-1.crc", "x._COPYING_", "_delta/part-9", ".s/p")
    (tmp_path / "empty").touch()
    assert names(tmp_path) == ["_q=2/part-0", "p=1/part-0", "part-1"]


def test_odd_names_stay_raw(tmp_path: Path) -> None:
    fill(tmp_path, *ODD_NAMES)
    assert names(tmp_path) == sorted(ODD_NAMES)


def test_undecodable_names_are_listed(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.parquet"))).write_bytes(b"data")
    (path,) = list_files(str(tmp_path)).paths
    assert os.fsencode(path).endswith(b"/\xff.parquet")


def test_identities_are_those_of_stat(tmp_path: Path) -> None:
    fill(tmp_path, "a", data=b"12345")
    files = list_files(str(tmp_path))
    status = (tmp_path / "a").stat()
    assert files.unit == "ns"
    assert files.object_id(0) == ObjectId.of_local(str(tmp_path / "a"), status)
    assert LocalStorage().stat(str(tmp_path / "a")) == files.object_id(0)


def test_a_replacement_of_equal_size_and_restored_mtime_has_another_etag(tmp_path: Path) -> None:
    fill(tmp_path, "a", data=b"old")
    before = list_files(str(tmp_path)).object_id(0)
    status = (tmp_path / "a").stat()
    (tmp_path / "b").write_bytes(b"new")
    (tmp_path / "b").rename(tmp_path / "a")
    os.utime(tmp_path / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
    after = list_files(str(tmp_path)).object_id(0)
    assert (before.size, before.mtime) == (after.size, after.mtime)
    assert not before.same_version(after)


@pytest.mark.parametrize("way", ["read_ranges", "read_into", "read_tail"])
def test_a_file_that_is_rewritten_between_two_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """In place, with the same size, and with its mtime set back: the bytes are of two versions."""
    path = tmp_path / "a"
    fill(tmp_path, "a", data=b"1" * 100_000)
    storage, version, reads = LocalStorage(), LocalStorage().stat(str(path)), 0

    def reading(call: Callable[..., Any]) -> Callable[..., Any]:
        def read(*arguments: Any) -> Any:
            nonlocal reads
            reads += 1
            found = call(*arguments)
            if reads == 1:
                with path.open("r+b") as file:
                    file.write(b"2" * 100_000)
                os.utime(path, ns=(version.mtime, version.mtime))
            return found

        return read

    monkeypatch.setattr(os, "pread", reading(os.pread))
    monkeypatch.setattr(os, "preadv", reading(os.preadv))
    places = [0, 90_000]
    if way == "read_ranges":
        ranges = [ByteRange(str(path), at, 1_000) for at in places]
        assert storage.read_ranges(ranges, {version.path: version}) == {}
        assert reads == 2
    elif way == "read_into":
        views = [memoryview(bytearray(1_000)) for _ in places]
        assert not storage.read_into(str(path), places, views, version)
        assert reads == 2
    else:
        found, data = storage.read_tail(str(path), 10)
        assert bytes(data) == b"2" * 10
        assert found == storage.stat(str(path))


def test_times_beyond_64_bits_of_nanoseconds_are_clamped(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    os.utime(tmp_path / "a", (10**10, 10**10))  # the year 2286
    status = (tmp_path / "a").stat()
    if status.st_mtime_ns < 2**63:
        pytest.skip("this file system keeps no such time")
    assert list_files(str(tmp_path)).mtimes.tolist() == [2**63 - 1]


def test_one_file_is_a_listing_of_one(tmp_path: Path) -> None:
    fill(tmp_path, "a b")
    assert list_files(str(tmp_path / "a b")).paths == [str(tmp_path / "a b")]


def test_a_directory_without_data_is_an_empty_listing(tmp_path: Path) -> None:
    assert len(list_files(str(tmp_path))) == 0


def test_no_such_directory_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SkipstoneError, match=r"no such file or directory: .*nowhere") as error:
        list_files(str(tmp_path / "nowhere"))
    assert "spelling" in error.value.hint


def test_the_root_may_have_a_hidden_name_and_any_spelling(tmp_path: Path) -> None:
    fill(tmp_path, "_t/a")
    for spelling in (f"{tmp_path}/_t/", f"file://{tmp_path}/_t", f"file:{tmp_path}//_t"):
        assert list_files(spelling).paths == [f"{tmp_path}/_t/a"]


def test_links_are_followed_under_their_own_names(tmp_path: Path) -> None:
    """``t`` holds a link to a file, one to a directory beside it, and one that leads nowhere."""
    fill(tmp_path, "other/x", "t/a")
    (tmp_path / "t" / "file").symlink_to(tmp_path / "other" / "x")
    (tmp_path / "t" / "dir").symlink_to(tmp_path / "other")
    (tmp_path / "t" / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "t" / "itself").symlink_to(tmp_path / "t" / "itself")
    assert names(tmp_path / "t") == ["a", "dir/x", "file"]


@pytest.mark.parametrize("target", [".", "..", "/"])
def test_a_link_back_is_an_error(tmp_path: Path, target: str) -> None:
    fill(tmp_path, "t/d/a")
    (tmp_path / "t" / "d" / "loop").symlink_to(target)
    with pytest.raises(
        SkipstoneError, match="loop is a symbolic link to a directory that contains it"
    ):
        list_files(str(tmp_path / "t"))


def test_two_links_into_each_other_are_an_error(tmp_path: Path) -> None:
    fill(tmp_path, "a/x", "b/x")
    (tmp_path / "a" / "to_b").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "to_a").symlink_to(tmp_path / "a")
    with pytest.raises(SkipstoneError, match="symbolic link"):
        list_files(str(tmp_path / "a"))


def test_two_links_to_one_directory_are_fine(tmp_path: Path) -> None:
    fill(tmp_path, "other/x")
    (tmp_path / "t").mkdir()
    for name in ("one", "two"):
        (tmp_path / "t" / name).symlink_to(tmp_path / "other")
    assert names(tmp_path / "t") == ["one/x", "two/x"]


def test_a_directory_without_permission_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "open/a", "closed/b")
    scandir = os.scandir

    def refusing(path: Any) -> Any:  # root may read everything, so the refusal is played
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(SkipstoneError, match=r"cannot list .*closed: Permission denied") as error:
        list_files(str(tmp_path))
    assert "read access" in error.value.hint


def test_list_all_shows_what_spark_hides(tmp_path: Path) -> None:
    fill(tmp_path, "part", "_tmp-1", ".x")
    (tmp_path / "empty").touch()
    found = LocalStorage().list_all(str(tmp_path))
    assert [Path(path).name for path in found.paths] == [".x", "_tmp-1", "empty", "part"]
    assert len(LocalStorage().list_all(str(tmp_path / "nowhere"))) == 0


# -- reading ---------------------------------------------------------------------------------------


def test_neighbouring_ranges_take_one_read(tmp_path: Path) -> None:
    fill(tmp_path, "a", data=bytes(range(200)))
    storage, path = LocalStorage(gap=10), str(tmp_path / "a")
    ranges = [ByteRange(path, 0, 5), ByteRange(path, 10, 5), ByteRange(path, 150, 2)]
    fetched = storage.read_ranges(ranges)
    assert {key.offset: bytes(value) for key, value in fetched.items()} == {
        0: bytes(range(5)),
        10: bytes(range(10, 15)),
        150: bytes([150, 151]),
    }
    assert storage.requests == 3  # one open, two reads


def test_ranges_that_cannot_be_read_whole_are_left_out(tmp_path: Path) -> None:
    fill(tmp_path, "a", data=b"0123456789")
    path = str(tmp_path / "a")
    good = ByteRange(path, 8, 2)
    bad = [
        ByteRange(path, 8, 3),
        ByteRange(path, 11, 1),
        ByteRange(path, 0, 1 << 60),  # a damaged length must not become an allocation
        ByteRange(str(tmp_path / "gone"), 0, 1),
        ByteRange(str(tmp_path), 0, 1),
    ]
    assert {k: bytes(v) for k, v in LocalStorage().read_ranges([*bad, good]).items()} == {
        good: b"89"
    }


def test_empty_ranges_are_served(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    nothing = ByteRange(str(tmp_path / "a"), 2, 0)
    assert bytes(LocalStorage().read_ranges([nothing])[nothing]) == b""
    assert LocalStorage().read_ranges([]) == {}


def test_another_version_is_not_read(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    path, storage = str(tmp_path / "a"), LocalStorage()
    version = storage.stat(path)
    wanted = ByteRange(path, 0, 4)
    assert storage.read_ranges([wanted], {path: version}).keys() == {wanted}
    with storage.open(path, version) as file:
        assert file.read() == b"data"
    fill(tmp_path, "a", data=b"other")
    assert storage.read_ranges([wanted], {path: version}) == {}
    with pytest.raises(StaleError, match="not the version that was listed"):
        storage.open(path, version)


def test_views_are_filled_by_one_open_file(tmp_path: Path) -> None:
    fill(tmp_path, "a", data=bytes(range(100)))
    path, storage = str(tmp_path / "a"), LocalStorage()
    version, into = storage.stat(path), bytearray(12)
    views = [memoryview(into)[:4], memoryview(into)[4:4], memoryview(into)[4:10]]
    before = storage.requests
    assert storage.read_into(path, [90, 3, 0], views, version)
    assert bytes(into) == bytes([90, 91, 92, 93, 0, 1, 2, 3, 4, 5, 0, 0])
    assert storage.requests == before + 4  # one open, three reads
    views = [memoryview(into)[8:], memoryview(into)[:6], memoryview(into)[6:8]]
    assert storage.read_into(path, [18, 10, 16], views, version)
    assert bytes(into) == bytes(range(10, 22))
    assert storage.requests == before + 6  # ranges that follow one another are one read


def test_views_are_not_filled_from_another_version_nor_beyond_the_end(tmp_path: Path) -> None:
    fill(tmp_path, "a", data=b"0123456789")
    path, storage = str(tmp_path / "a"), LocalStorage()
    version, view = storage.stat(path), memoryview(bytearray(4))
    assert not storage.read_into(path, [7], [view], version)
    assert not storage.read_into(str(tmp_path), [0], [view], version)
    fill(tmp_path, "a", data=b"another one")
    assert not storage.read_into(path, [0], [view], version)
    (tmp_path / "a").unlink()
    assert not storage.read_into(path, [0], [view], version)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``read_files`` of versions, by ranges for each, in compiled code."""
    monkeypatch.setattr(local.COMPILED, "least", 0)
    local.COMPILED.load()

    def read(
        storage: LocalStorage,
        versions: list[ObjectId],
        ranges: list[list[tuple[int, int, int]]],
        size: int,
    ) -> tuple[list[bool], bytes]:
        first = np.cumsum([0, *map(len, ranges)])
        every = np.array([one for mine in ranges for one in mine], np.int64).reshape(-1, 3)
        into = np.zeros(size, np.uint8)
        found = storage.read_files(versions, first, every, into)
        assert found is not None
        return found.tolist(), into.tobytes()

    return read


def test_ranges_of_many_files_are_read_by_one_call(tmp_path: Path, together: Any) -> None:
    fill(tmp_path, "a", "b \u00e9", data=bytes(range(100)))
    storage = LocalStorage()
    versions = [storage.stat(str(tmp_path / name)) for name in ("a", "b \u00e9", "a")]
    before = storage.requests
    with metered() as meter:
        done, found = together(
            storage, versions, [[(0, 3, 4), (3, 2, 0), (50, 1, 3)], [], [(90, 4, 7)]], 11
        )
    assert done == [True, True, True]
    assert found == bytes([3, 4, 0, 50, 0, 1, 2, 90, 91, 92, 93])
    assert storage.requests == before + 6  # three files; ranges that follow one another are one
    assert (meter.requests, meter.bytes_read) == (3, 10)
    assert meter.paths == {versions[0].path}


def test_of_many_files_other_versions_are_not_read(tmp_path: Path, together: Any) -> None:
    names = ["same", "longer", "touched", "replaced", "mode", "gone", "folder", "short", "pipe"]
    fill(tmp_path, *names, data=b"0123456789")
    storage = LocalStorage()
    versions = [storage.stat(str(tmp_path / name)) for name in names]
    fill(tmp_path, "longer", data=b"0123456789x")
    os.utime(tmp_path / "touched", ns=(0, 0))
    same = (tmp_path / "replaced").stat()
    fill(tmp_path, "new", data=b"9876543210")
    os.utime(tmp_path / "new", ns=(same.st_atime_ns, same.st_mtime_ns))
    (tmp_path / "new").rename(tmp_path / "replaced")
    (tmp_path / "mode").chmod(0o400)  # only its change time is another
    for name in ("gone", "folder", "pipe"):
        (tmp_path / name).unlink()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    ranges = [[(5, 4, 4 * at)] for at in range(len(names))]
    ranges[names.index("short")] = [(0, 2, 28), (8, 4, 28)]
    done, found = together(storage, versions, ranges, 4 * len(names))
    assert done == [name == "same" for name in names]
    assert found[:4] == b"5678"


def test_versions_that_are_not_exact_are_left_to_other_readers(
    tmp_path: Path, together: Any
) -> None:
    fill(tmp_path, "a", data=b"0123456789")
    storage = LocalStorage()
    exact = storage.stat(str(tmp_path / "a"))
    one, into = np.array([(0, 4, 0)], np.int64), np.zeros(4, np.uint8)
    first = np.array([0, 1])
    for other in (
        replace(exact, etag=None),
        replace(exact, etag="x-y"),
        replace(exact, unit="s", mtime=exact.mtime // 10**9),
        replace(exact, size=None),
        replace(exact, mtime=1 << 70),
    ):
        assert storage.read_files([other], first, one, into) is None
    with pytest.raises(ValueError, match="beyond the memory"):
        storage.read_files([exact], first, one + np.array([0, 0, 1]), into)


# -- writing ---------------------------------------------------------------------------------------


def test_put_makes_folders_and_replaces_nothing_in_place(tmp_path: Path) -> None:
    storage, path = LocalStorage(), str(tmp_path / "x" / "y")
    storage.put(path, b"one")
    assert storage.read(path) == b"one"
    with storage.open(path) as before:
        storage.put(path, memoryview(b"two"))
        assert before.read() == b"one"
    assert storage.read(path) == b"two"
    assert inside(tmp_path / "x") == ["y"]


def test_a_put_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        LocalStorage().put(str(tmp_path / "a"), b"data")
    assert inside(tmp_path) == []


@pytest.mark.parametrize("fails", [False, True])
def test_an_error_of_an_early_sync_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The system reports a write error at one sync alone, and here that is not the last one."""
    fill(tmp_path, "a", data=b"old")
    real, calls = os.fsync, list[int]()

    def sync(descriptor: int) -> None:
        calls.append(descriptor)
        if fails and len(calls) == 1:
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(atomic_replace, "_SYNCED", 1)
    if not fails:
        LocalStorage().put(str(tmp_path / "a"), b"new")
        assert len(calls) == 3  # early, at the end, and of the directory
        assert (tmp_path / "a").read_bytes() == b"new"
        return
    with pytest.raises(OSError, match="Input/output") as raised:
        LocalStorage().put(str(tmp_path / "a"), b"new")
    assert raised.value.filename == str(tmp_path / "a")
    assert inside(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_delete_and_exists(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    storage, path = LocalStorage(), str(tmp_path / "a")
    assert storage.exists(path)
    storage.delete(path)
    storage.delete(path)
    assert not storage.exists(path)


def test_only_empty_directories_are_removed(tmp_path: Path) -> None:
    fill(tmp_path, "full/a")
    (tmp_path / "empty").mkdir()
    for name in ("full", "empty", "nowhere"):
        LocalStorage().remove_empty(str(tmp_path / name))
    assert inside(tmp_path) == ["full"]


def test_the_clock_is_that_of_new_files(tmp_path: Path) -> None:
    storage = LocalStorage()
    fill(tmp_path, "a")
    assert abs(storage.now() - storage.stat(str(tmp_path / "a")).mtime) < 60 * 10**9
    assert abs(storage.now() - time.time_ns()) < 60 * 10**9


# -- what else lies in a directory -----------------------------------------------------------------


@pytest.mark.parametrize(
    "files, found",
    [
        (["_delta_log/00000.json", "part-0"], "Delta Lake"),
        ([".hoodie/hoodie.properties", "part-0"], "Apache Hudi"),
        (["metadata/v1.metadata.json", "data/part-0"], "Apache Iceberg"),
        (["metadata/0-a.gz.metadata.json", "data/part-0"], "Apache Iceberg"),
        (["metadata/notes.txt", "data/part-0"], None),
        (["metadata/v1.metadata.json", "part-0"], "Apache Iceberg"),
        (["metadata/v1.metadata.json.gz", "part-0"], "Apache Iceberg"),
        (["metadata/notes.metadata.json", "part-0"], None),
        (["schema/schema-0", "bucket-0/part-0"], "Apache Paimon"),
        (["schema/notes.txt", "part-0"], None),
        (["part-0"], None),
    ],
)
def test_table_formats_are_known_by_their_folders(
    tmp_path: Path, files: list[str], found: str | None
) -> None:
    fill(tmp_path, *files)
    assert table_format(str(tmp_path), open_storage(str(tmp_path))) == found


WRITING = """
import sys, time
from pathlib import Path
from skipstone.storage.atomic_replace import new_directory
with new_directory(Path(sys.argv[1])) as place:
    place.mkdir()
    (place / "rows").write_text("rows")
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_a_new_directory_is_whole_and_the_rest_of_killed_writers_goes(tmp_path: Path) -> None:
    """Two writers; one is killed, and the next removes what it left, and not the other's."""
    target = tmp_path / "new=1"
    with ExitStack() as stack:
        killed, running = (
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", WRITING, str(target)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment(),
                )
            )
            for _ in range(2)
        )
        for each in (killed, running):
            assert each.stdout is not None
            assert each.stdout.readline() == b"writing\n"
        before = set(tmp_path.iterdir())
        assert len(before) == 2
        killed.kill()
        killed.wait()
        with new_directory(target) as place:
            place.mkdir()
            assert len(before & set(tmp_path.iterdir())) == 1
        assert list(target.iterdir()) == []
        assert b"FileExistsError" in running.communicate()[1]
    assert list(tmp_path.iterdir()) == [target]
