"""Where a retrofit writes: links, permissions, full disks, files that change, other fields."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile
from skipstone.errors import SkipstoneError, StaleError
from skipstone.parquet.format.footer import TAIL_LENGTH
from skipstone.parquet.thrift.compact import BINARY, LIST, STRUCT, ListOf, read_struct, write_struct
from skipstone.rewrite import retrofit
from skipstone.storage.atomic_replace import BufferedFile

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.parquet.thrift.compact import Struct

MAGIC = b"PAR1"


def file(path: Path, rows: int = 3_000) -> Path:
    """Rows in pages of 500; one column of numbers, one of text."""
    data = pa.table({"id": range(rows), "s": [f"value {n % 97}" for n in range(rows)]})
    pq.write_table(data, path, row_group_size=1_500, max_rows_per_page=500)
    return path


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target = file(tmp_path / "there" / "a %é=b.parquet")
    link = tmp_path / "link.parquet"
    link.symlink_to(target)
    report = retrofit(link)
    assert report.outcome == "rewritten"
    assert link.is_symlink()
    assert ParquetFile(str(target)).offset_index(0, "id") is not None
    assert retrofit(target, output=link).outcome == "complete"  # the same file by another name
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("_tmp")] == []


def test_another_name_of_a_file_keeps_what_it_had(tmp_path: Path) -> None:
    path = file(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").hardlink_to(path)
    old = path.read_bytes()
    retrofit(path)
    assert path.read_bytes() != old
    assert (tmp_path / "b.parquet").read_bytes() == old


def test_permissions_owner_and_attributes_are_kept(tmp_path: Path) -> None:
    path = file(tmp_path / "a.parquet")
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 12_345, 54_321)
    named = True
    try:
        os.setxattr(path, "user.origin", b"north")
    except OSError:
        named = False
    before = path.stat()
    retrofit(path)
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o640
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert not named or os.getxattr(path, "user.origin") == b"north"


def test_nobody_else_reads_a_private_file_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path / "a.parquet")
    path.chmod(0o600)
    seen = set()
    real = BufferedFile.write

    def write(self: BufferedFile, piece: bytes | memoryview) -> None:
        seen.add(stat.S_IMODE(os.fstat(self.descriptor).st_mode))
        real(self, piece)

    monkeypatch.setattr(BufferedFile, "write", write)
    retrofit(path)
    assert seen == {0o600}


def test_a_new_output_has_the_usual_permissions(tmp_path: Path) -> None:
    path = file(tmp_path / "a.parquet")
    retrofit(path, output=tmp_path / "b.parquet")
    assert (tmp_path / "b.parquet").stat().st_mode == path.stat().st_mode


@pytest.mark.parametrize("limit", [0, 1_000, 12_000])
def test_a_full_disk_leaves_the_file_and_nothing_else(tmp_path: Path, limit: int) -> None:
    """A process that may write this many bytes to a file stands for the disk."""
    path = file(tmp_path / "a.parquet")
    old = path.read_bytes()
    assert len(old) > limit

    # In the process itself: to do it between fork and exec is not for processes with threads.
    code = (
        "import resource, sys; from skipstone.cli import main\n"
        "limit = int(sys.argv.pop(1)); resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(limit), "retrofit", str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "File too large" in done.stderr
    assert path.read_bytes() == old
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    path = file(tmp_path / "a.parquet")
    code = (
        "import os, sys; from skipstone.rewrite.retrofit_file import retrofit\n"
        "os.setresuid(65534, 65534, 65534)\n"
        "try: retrofit(sys.argv[1])\n"
        "except PermissionError as error: print('refused', error)"
    )
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_uid == 0 and not each.stat().st_mode & stat.S_IXOTH:
            each.chmod(each.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
        if each.name.startswith("pytest-of"):
            break
    old = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("refused"), done.stderr
    assert path.read_bytes() == old


@pytest.mark.parametrize("how", ["longer", "shorter", "replaced", "touched"])
def test_a_file_that_changes_meanwhile_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = file(tmp_path / "a.parquet")
    real = BufferedFile.flush
    steps: list[int] = []

    def flush(self: BufferedFile) -> None:
        if not steps:
            steps.append(1)
            data = path.read_bytes()
            match how:
                case "longer":
                    path.write_bytes(data + b"more")
                case "shorter":
                    path.write_bytes(data[:-20])
                case "replaced":
                    (tmp_path / "b").write_bytes(data)
                    (tmp_path / "b").rename(path)
                case _:
                    os.utime(path, ns=(1, 1))
        real(self)

    monkeypatch.setattr(BufferedFile, "flush", flush)
    with pytest.raises(StaleError):
        retrofit(path)
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("page_rows", [None, 100])
def test_the_promised_size_is_the_size(tmp_path: Path, page_rows: int | None) -> None:
    path = file(tmp_path / "a.parquet")
    options: dict[str, Any] = {"bloom": {"s": 0.001}, "page_rows": page_rows, "sorting": ["id"]}
    planned = retrofit(path, dry_run=True, **options)
    done = retrofit(path, **options)
    assert planned.bytes_after == done.bytes_after == path.stat().st_size
    assert planned.bytes_of == done.bytes_of
    assert planned.sorted_groups == done.sorted_groups == 2


def test_fields_that_nobody_knows_are_carried_over(tmp_path: Path) -> None:
    """Field 32,767 of the footer, of a row group, of a chunk and of its metadata."""
    path = file(tmp_path / "a.parquet")
    whole = path.read_bytes()
    length = int.from_bytes(whole[-TAIL_LENGTH:-4], "little")
    start = len(whole) - TAIL_LENGTH - length
    top = read_struct(whole[start:-TAIL_LENGTH])[0]

    def marked(struct: Struct, name: bytes) -> Struct:
        return struct.replace(32_767, BINARY, b"unknown of " + name)

    groups = []
    for group in top.get(4).values:
        chunks = []
        for chunk in group.get(1).values:
            changed = chunk.replace(3, STRUCT, marked(chunk.get(3), b"metadata"))
            chunks.append(marked(changed, b"a chunk"))
        groups.append(marked(group.replace(1, LIST, ListOf(STRUCT, tuple(chunks))), b"a group"))
    footer = write_struct(
        marked(top.replace(4, LIST, ListOf(STRUCT, tuple(groups))), b"the footer")
    )
    path.write_bytes(whole[:start] + footer + len(footer).to_bytes(4, "little") + MAGIC)
    assert retrofit(path).outcome == "rewritten"
    after = path.read_bytes()
    for name, count in ((b"metadata", 4), (b"a chunk", 4), (b"a group", 2), (b"the footer", 1)):
        assert after.count(b"unknown of " + name) == count
    assert pq.read_table(path).num_rows == 3_000


def test_what_cannot_be_meant_is_said_before_anything_is_written(tmp_path: Path) -> None:
    path = file(tmp_path / "a.parquet")
    (tmp_path / "d").mkdir()
    with pytest.raises(SkipstoneError, match="is a directory"):
        retrofit(path, output=tmp_path / "d")
    for fpp in (0.0, 1.0, 2.0, float("nan")):
        with pytest.raises(SkipstoneError, match="not a probability"):
            retrofit(path, bloom={"id": fpp})
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.parquet", "d"]
