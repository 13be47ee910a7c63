"""A listing of a directory that has not changed is the one there was; any change makes another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from skipstone.errors import SkipstoneError
from skipstone.storage import listing as directory
from skipstone.storage.listing import COMPILED, Names
from skipstone.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True, params=["one by one", "all at once"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the files of a directory are looked at the second time."""
    way: str = request.param
    if way == "all at once":
        monkeypatch.setattr(directory, "_MANY", 1)
        monkeypatch.setattr(COMPILED, "spent", 0.5)
    else:
        monkeypatch.setattr(COMPILED, "disabled", True)
    return way


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """``a=1/x``, ``a=1/é %``, ``a=2/y``, a hidden file and a link."""
    for name in ("a=1/x", "a=1/é %", "a=2/y", "_hidden"):
        file = tmp_path / "t" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"data")
    (tmp_path / "elsewhere").write_bytes(b"linked")
    (tmp_path / "t" / "link").symlink_to(tmp_path / "elsewhere")
    return tmp_path / "t"


def test_nothing_changed(table: Path) -> None:
    storage = LocalStorage()
    first = storage.list_files(str(table))
    assert [path.removeprefix(f"{table}/") for path in first.paths] == [
        "a=1/x", "a=1/é %", "a=2/y", "link",
    ]  # fmt: skip
    assert storage.list_files(str(table)) is first


def _replaced(table: Path) -> None:
    """Equal name, size and mtime: the inode tells."""
    file, other = table / "a=1" / "x", table.parent / "other"
    was = file.stat()
    other.write_bytes(b"DATA")
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    other.replace(file)


def _directory_for_file(table: Path) -> None:
    (table / "a=2" / "y").unlink()
    (table / "a=2" / "y").mkdir()
    (table / "a=2" / "y" / "z").write_bytes(b"data")


@pytest.mark.parametrize(
    "change",
    [
        _replaced,
        _directory_for_file,
        lambda table: (table / "a=1" / "new").write_bytes(b"data"),
        lambda table: (table / "a=1" / "x").unlink(),
        lambda table: (table / "a=1" / "x").rename(table / "a=2" / "x"),
        lambda table: (table / "a=1" / "x").write_bytes(b""),
        lambda table: (table.parent / "elsewhere").write_bytes(b"linked anew"),
        lambda table: (table / "_hidden").unlink(),
        lambda table: (table.parent / "elsewhere").unlink(),
    ],
)
def test_any_change_is_listed(table: Path, change: Callable[[Path], object]) -> None:
    storage = LocalStorage()
    before = storage.list_files(str(table))
    change(table)
    after, anew = storage.list_files(str(table)), LocalStorage().list_files(str(table))
    assert after is not before
    assert after.same_files(anew)
    assert storage.list_files(str(table)).same_files(anew)


def test_a_file_of_before_times_that_fit(table: Path) -> None:
    """An mtime beyond int64 nanoseconds is clamped, as in the listing."""
    try:
        os.utime(table / "a=1" / "x", (2**34, 2**34))
    except OSError:
        pytest.skip("this file system has no such times")
    storage = LocalStorage()
    assert storage.list_files(str(table)).same_files(storage.list_files(str(table)))


def test_gone(table: Path) -> None:
    storage = LocalStorage()
    storage.list_files(str(table))
    table.rename(table.parent / "moved")
    with pytest.raises(SkipstoneError, match="no such file or directory"):
        storage.list_files(str(table))


def test_other_tables_are_forgotten_not_mixed_up(tmp_path: Path) -> None:
    storage = LocalStorage()
    for turn in range(2):
        for number in range(6):
            folder = tmp_path / str(number)
            folder.mkdir(exist_ok=True)
            (folder / str(turn)).write_bytes(b"data")
            assert len(storage.list_files(str(folder))) == turn + 1


def test_many_files_by_several_threads(tmp_path: Path) -> None:
    """1,000 files, of which the last one changes; what is told of each is what ``stat`` tells."""
    for number in range(1000):
        (tmp_path / f"é {number}").write_bytes(b"x" * (number % 7 + 1))
    storage = LocalStorage()
    before = storage.list_files(str(tmp_path))
    assert storage.list_files(str(tmp_path)) is before
    os.utime(tmp_path / "é 999", ns=(1, 1_000_000_000_000_000_007))
    after = storage.list_files(str(tmp_path))
    assert after.same_files(LocalStorage().list_files(str(tmp_path)))
    assert not after.same_files(before)
    assert len(after) == 1000


def test_statx_and_stat_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMPILED, "disabled", False)
    call = COMPILED.for_work(0.5)
    if call is None:
        pytest.skip("this system has no statx")
    names = ["a", "link", "folder", "b ü"]
    (tmp_path / "a").write_bytes(b"123")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "folder").mkdir()
    (tmp_path / "b ü").touch()
    os.utime(tmp_path / "b ü", ns=(0, -3_000_000_001))
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        found = Names.of(names).look(descriptor, call)
        gone = Names.of([*names, "gone"]).look(descriptor, call)
    finally:
        os.close(descriptor)
    assert gone is None
    assert found is not None
    for at, name in enumerate(names):
        told = (tmp_path / name).stat()
        assert found[:, at].tolist() == [
            told.st_mode, told.st_size, told.st_mtime_ns, told.st_ino, told.st_ctime_ns,
        ]  # fmt: skip
