"""What commands leave that are cut off or whose disk is full, and what removes it.

``tests/faults`` ends every verb at each of its steps.
"""

from __future__ import annotations

import errno
import fcntl
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile, Table, write_table
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.facts.parts import Part
from skipstone.rewrite import retrofit, split_columns
from skipstone.storage import LocalStorage
from tests.faults.cases import outside
from tests.faults.file_cases import with_kms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def lay_out(home: Path) -> Table:
    (home / "t").mkdir(parents=True)
    for at in range(2):
        path = home / "t" / f"p{at}.parquet"
        rows = {"id": [at * 100 + i for i in range(100)], "s": [f"v{i % 9}" for i in range(100)]}
        pq.write_table(pa.table(rows), path)
        os.utime(path, (1_600_000_000, 1_600_000_000))
    table = Table(str(home / "t"))
    for index in ("id:minmax", "s:bitmap"):
        table.build(None, [index])
    return table


def left(home: Path) -> list[str]:
    return [str(each.relative_to(home)) for each in home.rglob("_tmp-*")]


def test_vacuum_spares_what_somebody_is_writing_and_what_others_made(tmp_path: Path) -> None:
    table = lay_out(tmp_path)
    root = tmp_path / "t"
    busy, draft = root / f"_tmp-a.parquet-{1:032x}", root / "_tmp-draft"
    busy.write_bytes(b"half")
    draft.write_bytes(b"precious")
    with busy.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert table.vacuum(timedelta(0)).removed == ()
    assert table.vacuum(timedelta(1)).removed == ()
    assert table.vacuum(timedelta(0)).removed == (str(busy),)
    assert draft.exists()


def full_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """The disk is full after this many writes."""
    write, done = os.writev, 0

    def writev(descriptor: int, pieces: list[bytes]) -> int:
        nonlocal done
        done += 1
        if done > writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, pieces)

    monkeypatch.setattr(os, "writev", writev)


@pytest.mark.parametrize("writes", [0, 1])
def test_a_build_that_fills_the_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    table = lay_out(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    # A container of more than 500 bytes: it lies in a pack, which is written before the part.
    with monkeypatch.context() as full:
        full_after(full, writes)
        with pytest.raises(OSError, match="No space left") as caught:
            table.build(None, ["s:paimonbloom(items=10000)"])
    assert "_t.skipstone" in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert table.build(None, ["s:paimonbloom(items=10000)"]).files_built == 2
    assert len(list(tmp_path.rglob("*.pack"))) > sum(each.suffix == ".pack" for each in before)


@pytest.mark.parametrize("write", ["retrofit", "write_table"])
def test_a_full_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    lay_out(tmp_path)
    path, new = tmp_path / "t" / "p0.parquet", tmp_path / "new.parquet"
    verbs: dict[str, Callable[[], object]] = {
        "retrofit": lambda: retrofit(path, bloom={"id": 0.01}, output=new),
        "write_table": lambda: write_table(pq.read_table(path), new),
    }
    full_after(monkeypatch, 0)
    with pytest.raises(OSError, match="No space left") as caught:
        verbs[write]()
    assert caught.value.filename == str(new)
    assert not new.exists()
    assert left(tmp_path) == []


def test_a_vacuum_removes_the_directories_of_a_drop_that_was_cut_off(tmp_path: Path) -> None:
    table = lay_out(tmp_path)
    index = tmp_path / "_t.skipstone"
    for each in [*index.glob("facts/*"), *index.glob("packs/*")]:
        each.unlink()
    table.vacuum(timedelta(0), dry_run=True)
    assert index.exists()
    table.vacuum(timedelta(0))
    assert not index.exists()
    assert table.build(None, ["id:minmax"]).files_built == 2


def test_a_vacuum_that_removes_a_broken_part_removes_unnamed_packs_too(tmp_path: Path) -> None:
    table = lay_out(tmp_path)
    index = tmp_path / "_t.skipstone"
    part = next(iter((index / "facts").glob("part-*")))
    broken = part.with_name("part-deadbeef-0000-0000-0000-000000000000")
    broken.write_bytes(part.read_bytes()[:100])
    pack = index / "packs" / "deadbeef-0000-4000-8000-000000000000.pack"
    pack.parent.mkdir(exist_ok=True)
    pack.write_bytes(b"x" * 900)
    report = table.vacuum(timedelta(0))
    assert {str(broken), str(pack)} <= set(report.removed)
    assert report.notes == ()


@pytest.mark.parametrize("verb", ["compact", "drop", "vacuum"])
def test_a_part_that_cannot_be_read_is_not_passed_over_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A drop would leave the index in the part, and say that it is gone."""
    lay_out(tmp_path)
    parts = sorted((tmp_path / "_t.skipstone" / "facts").glob("part-*"))
    read = LocalStorage.open
    failing = OSError(errno.EIO, os.strerror(errno.EIO))

    def opened(self: LocalStorage, path: str, *more: Any) -> Any:
        if path == str(parts[0]):
            raise failing
        return read(self, path, *more)

    with monkeypatch.context() as broken:
        broken.setattr(LocalStorage, "open", opened)
        table = Table(str(tmp_path / "t"))
        if verb == "vacuum":
            [note] = set(table.vacuum(timedelta(0)).notes)
            assert str(parts[0].name) in note
        else:
            with pytest.raises(SkipstoneError, match=parts[0].name):
                table.compact() if verb == "compact" else table.drop("id:minmax")
    assert sorted((tmp_path / "_t.skipstone" / "facts").glob("part-*")) == parts


@pytest.mark.parametrize("verb", ["compact", "drop"])
def test_a_column_that_cannot_be_read_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Whichever read fails: the verb fails, or is whole."""
    for at in range(1000):
        home = tmp_path / str(at)
        lay_out(home)
        left, read = at, Part.read

        def reading(self: Part, *more: Any, real: Any = read) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
            return real(self, *more)

        with monkeypatch.context() as broken:
            broken.setattr(Part, "read", reading)
            table = Table(str(home / "t"))
            try:
                table.compact() if verb == "compact" else table.drop("id:minmax")
                told = ""
            except (SkipstoneError, OSError) as error:
                told = str(error)
        kinds = {each.kind: each.files for each in Table(str(home / "t")).describe().indexes}
        before, done = {"minmax": 2, "bitmap": 2}, {"bitmap": 2}
        after = done if verb == "drop" else before
        assert kinds == after or (kinds == before and "part-" in told)
        if left >= 0:
            break
    assert at > 5


def test_keys_that_a_killed_writer_left_are_written_again(tmp_path: Path) -> None:
    """Without the file that they were for, or where it is in the clear, nobody needs them."""
    path, keys = tmp_path / "a.parquet", tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json"
    rows = pa.table({"id": [1, 2]})
    for before in (False, True):
        if before:
            pq.write_table(rows, path)
        keys.write_text("{}")
        write_table(rows, path, encryption=outside())
        assert ParquetFile(path, decryption=with_kms()).query().num_rows == 2
        with pytest.raises(UnsupportedError, match="may be needed"):
            write_table(rows, path, encryption=outside())
        path.unlink()
        keys.unlink()


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
def test_errors_of_descriptors_name_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1]}), path)

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(OSError, match="Input/output") as caught:
        write_table(pa.table({"id": [2]}), path)
    assert caught.value.filename == str(path)
    assert pq.read_table(path)["id"].to_pylist() == [1]


def test_ctrl_c_while_a_temporary_file_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def interrupted(path: Any, flags: int, *more: Any, **named: Any) -> int:
        descriptor = opened(path, flags, *more, **named)
        if flags & os.O_EXCL:
            os.close(descriptor)
            raise KeyboardInterrupt
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_table(pa.table({"id": [2]}), tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_split_whose_last_step_fails_keeps_the_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file is in its place already when its directory cannot be synced."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2], "s": ["a", "b"]}), path)
    sync, left = os.fsync, 5  # two of each column file, one of the new file

    def fails(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="Input/output"):
            split_columns(path, path)
    assert len(list(tmp_path.glob("_a.parquet.*"))) == 2
    assert ParquetFile(path).query().to_pydict() == {"id": [1, 2], "s": ["a", "b"]}


def test_vacuum_of_a_path_where_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert Table(str(tmp_path / "empty")).vacuum().removed == ()
    with pytest.raises(SkipstoneError, match=r"no such file or directory: .*/nowhere"):
        Table(str(tmp_path / "nowhere")).vacuum()


def test_vacuum_of_an_index_whose_table_is_gone(tmp_path: Path) -> None:
    table = lay_out(tmp_path)
    for each in (tmp_path / "t").iterdir():
        each.unlink()
    (tmp_path / "t").rmdir()
    assert Table(table.path).vacuum(timedelta(0), dry_run=True).removed == ()
