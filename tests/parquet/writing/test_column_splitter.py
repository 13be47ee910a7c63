"""Columns of one file in several others: written, read page by page, and never taken for others.

``split`` has 1,000 rows in row groups of 300 and pages of 50, ``id`` ascending, and three files:
``x`` with id and f, and one each for s, l and n.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone import Encryption, ParquetFile, Table
from skipstone.errors import FormatError, SkipstoneError, StaleError, UnsupportedError
from skipstone.parquet.format.column_files import KEY, ColumnFile, column_files, note_of
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.thrift.compact import BINARY, LIST, ListOf, Struct, read_struct, write_struct
from skipstone.rewrite import encrypt, retrofit, split_columns
from skipstone.storage.atomic_replace import left_overs
from skipstone.storage.base import metered
from tests.processes import environment
from tests.rewrite.lakes import looked, rows
from tests.s3 import S3, s3, s3_server

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["s3", "s3_server"]  # fixtures

OPTIONS: dict[str, Any] = {
    "row_group_size": 300,
    "max_rows_per_page": 50,
    "write_batch_size": 50,
    "bloom_filter_options": {"id": {"ndv": 300}, "s": {"ndv": 300}},
}
NAME = "k=1 é%.parquet"


def same(found: pa.Table, data: pa.Table) -> None:
    assert found.schema.equals(data.schema)
    assert repr(found.to_pydict()) == repr(data.to_pydict())


@pytest.fixture
def split(tmp_path: Path) -> Path:
    path = tmp_path / "t" / NAME
    path.parent.mkdir()
    split_columns(rows(0, 1_000), path, {"x": ["f", "id"]}, **OPTIONS)
    return path


def sides(path: Path) -> dict[str, Path]:
    """The other files by the last part of their name."""
    return {each.name.rpartition(".")[2]: each for each in path.parent.glob("_*")}


def test_rows_are_read_from_all_of_them(split: Path) -> None:
    data = rows(0, 1_000)
    assert sorted(sides(split)) == ["l", "n", "s", "x"]
    file = ParquetFile(split)
    same(file.read_rows(), data)
    same(file.read_rows(["l", "id"], [(290, 310)]), data.select(["l", "id"]).slice(290, 20))
    same(file.query("id = 555"), data.slice(555, 1))
    assert file.count("s IS NULL") == 334
    assert file.count("f = 'NaN'") == 143
    report = file.verify()
    assert report.ok, str(report)
    assert report.checked["offset index"] == report.checked["column index"] == 20
    assert report.checked["bloom filter"] == 8
    assert file.offset_index(0, "id") is not None
    assert file.bloom_filter(0, "s") is not None
    assert file.pages(["id"]).num_rows >= 20


def test_pages_are_chosen_by_the_indexes_beside_them(split: Path) -> None:
    file = ParquetFile(split)
    plan = file.plan("id = 555")
    assert plan.rows_kept == 50
    assert file.plan("s = 'é99'").rows_kept == 0
    with metered() as meter:
        file.query("id = 555", ["s"])
    assert {each.rpartition(".")[2] for each in meter.paths} == {"x", "s"}


def test_each_is_a_file_of_its_columns(split: Path) -> None:
    data = rows(0, 1_000)
    for name, columns in {"x": ["id", "f"], "s": ["s"], "l": ["l"], "n": ["n"]}.items():
        path = sides(split)[name]
        own = pq.read_table(path)
        assert repr(own.to_pydict()) == repr(data.select(columns).to_pydict())
        if name != "n":
            assert repr(polars.read_parquet(path)[columns[0]].to_list()) == repr(
                data[columns[0]].to_pylist()
            )
        found = ParquetFile(path)
        assert found.verify().ok
        if name == "x":
            assert found.query("id = 555")["id"].to_pylist() == [555]
            assert found.bloom_filter(0, "id") is not None


def test_a_table_reads_it_and_lists_nothing_else(split: Path) -> None:
    table = Table(str(split.parent))
    assert [each.rpartition("/")[2] for each in table.listing().paths] == [NAME]
    same(table.query("id = 555"), rows(0, 1_000).slice(555, 1))
    scan, paths, _ = looked(split.parent, "id = 555")
    kept = scan.plan.files[0].detail.rows
    assert kept is not None
    assert len(kept) == 50
    assert {each.rpartition(".")[2] for each in paths} == {"parquet", "x"}
    assert scan.to_arrow()["s"].to_pylist() == rows(555, 1)["s"].to_pylist()
    assert table.count("f = 0.0") == pa.compute.sum(
        pa.compute.equal(rows(0, 1_000)["f"], 0.0)
    ).as_py()  # fmt: skip


def test_what_others_would_misread_is_not_handed_to_them(split: Path) -> None:
    table = Table(str(split.parent))
    for hand in ("to_pyarrow", "to_polars", "to_duckdb"):
        with pytest.raises(UnsupportedError, match="lie in other files"):
            getattr(table.scan("id = 555"), hand)()
    report = table.build(indexes=["id:minmax"])
    assert "its columns lie in other files" in str(report.to_dict()["files_failed"])
    assert Table(str(split.parent)).count("id = 555") == 1
    with pytest.raises(UnsupportedError, match="are in other files already"):
        table.write_metadata()
    with pytest.raises(UnsupportedError):
        retrofit(split)
    with pytest.raises(SkipstoneError):
        encrypt(split, encryption=Encryption(footer_key=bytes(16)))
    with pytest.raises(UnsupportedError, match="already"):
        split_columns(split, split.with_name("again.parquet"))
    assert ParquetFile(split).verify().ok


def test_a_file_is_split_as_it_is(tmp_path: Path) -> None:
    data = rows(0, 1_000)
    whole = tmp_path / "whole.parquet"
    pq.write_table(data, whole, **OPTIONS, write_page_index=True, sorting_columns=None)
    report = split_columns(whole, tmp_path / "out.parquet", {"a": ["id"], "b": ["s", "l"]})
    assert sorted(map(sorted, report.columns.values())) == [["f"], ["id"], ["l", "s"], ["n"]]
    assert str(report).startswith(f"wrote {tmp_path}/out.parquet: 1,000 rows in 4 row groups")
    assert sum(report.to_dict()["files"].values()) > 5_000
    file, old = ParquetFile(tmp_path / "out.parquet"), ParquetFile(whole)
    same(file.read_rows(), data)
    for r in range(4):
        for leaf in ("id", "s", "l.list.element"):
            mine, theirs = (each.page_headers(r, leaf) for each in (file, old))
            assert [each.to_bytes() for each in mine] == [each.to_bytes() for each in theirs]
            assert file.column_index(r, leaf) is not None
    with pytest.raises(ValueError, match="column 'x' does not exist"):
        split_columns(whole, tmp_path / "no.parquet", {"a": ["x"]})
    with pytest.raises(ValueError, match="named twice"):
        split_columns(whole, tmp_path / "no.parquet", {"a": ["id"], "b": ["id"]})
    with pytest.raises(ValueError, match="not to files"):
        split_columns(whole, tmp_path / "no.parquet", compression="zstd")
    assert not (tmp_path / "no.parquet").exists()


def test_golden_files_are_split_and_read_equal(
    tmp_path: Path, golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # no power is cut here
    done = 0
    for path in sorted((golden / "parquet-testing/data").glob("*.parquet")):
        if path.stat().st_size > 60_000 or "large_string" in path.name:  # 2 GB of text, packed well
            continue
        out = tmp_path / path.name
        try:
            whole = ParquetFile(path)
            expected = whole.read_rows()
        except (SkipstoneError, pa.ArrowException):
            continue
        if whole.footer.encryption_algorithm is not None:
            continue
        names = list(dict.fromkeys(each.name for each in whole.footer.schema.root.children))
        half = len(names) // 2
        split_columns(path, out, {"a": names[:half], "b": names[half:]} if half else None)
        found = ParquetFile(out)
        try:
            assert repr(found.read_rows().to_pydict()) == repr(expected.to_pydict()), path.name
        except OverflowError:  # an instant beyond Python's
            assert found.read_rows().equals(expected), path.name
        if whole.num_rows < 100 and whole.footer.num_leaves < 30:
            assert found.verify().ok == whole.verify().ok, path.name
        for name in found.column_files:
            assert ParquetFile(tmp_path / name).num_rows == whole.num_rows
        done += 1
    assert done > 30


@given(data=st.data())
def test_any_table_split_anyhow(data: st.DataObject, tmp_path_factory: Any) -> None:
    from tests.strategies import tables

    table = data.draw(tables(max_rows=9))
    names = list(dict.fromkeys(table.column_names))
    cut = data.draw(st.integers(0, len(names)))
    files = {"é /=%": names[:cut]} if cut else None
    root = tmp_path_factory.mktemp("split")
    whole, out = root / "whole.parquet", root / "out.parquet"
    pq.write_table(table, whole, row_group_size=data.draw(st.integers(1, 5)))
    with mock.patch("os.fsync"):
        split_columns(whole, out, files)
    expected, found = ParquetFile(whole).read_rows(), ParquetFile(out).read_rows()
    assert repr(found.to_pydict()) == repr(expected.to_pydict())
    assert ParquetFile(out).verify().ok


def test_it_is_read_from_an_object_store(s3: S3, split: Path) -> None:
    for path in split.parent.iterdir():
        s3.client.put_object(Bucket=s3.bucket, Key=f"t/{path.name}", Body=path.read_bytes())
    file = ParquetFile(f"{s3.base}/t/{NAME}", storage_options=s3.options)
    same(file.query("id = 555"), rows(0, 1_000).slice(555, 1))
    gone = next(each for each in s3.keys("t/_") if each.endswith(".s"))
    s3.client.delete_object(Bucket=s3.bucket, Key=gone)
    file = ParquetFile(f"{s3.base}/t/{NAME}", storage_options=s3.options)
    assert file.query("id = 555", ["l"]).num_rows == 1
    with pytest.raises(StaleError, match="which is not there"):
        file.query("id = 555", ["s"])


# -- files that are gone, or others ---------------------------------------------------------------


def test_a_file_that_is_gone_costs_its_columns_alone(split: Path) -> None:
    sides(split)["s"].unlink()
    file = ParquetFile(split)
    assert file.query("id = 555", ["id", "l"]).num_rows == 1
    assert file.plan("s = 'é3'").rows_kept > 0
    with pytest.raises(StaleError, match=r"has columns in .*\.s, which is not there.*hint"):
        file.read_rows(["s"])
    with pytest.raises(StaleError):
        file.query("s = 'é3'", ["id"])
    report = file.verify()
    assert not report.ok
    assert "which is not there" in str(report)
    with pytest.raises(StaleError):
        Table(str(split.parent)).query("id = 555")
    assert Table(str(split.parent)).query("id = 555", ["f"]).num_rows == 1


def test_another_file_in_its_place_is_not_read(split: Path, tmp_path: Path) -> None:
    again = tmp_path / "u" / NAME
    again.parent.mkdir()
    split_columns(rows(0, 1_000), again, {"x": ["f", "id"]}, **OPTIONS)
    # Of the same rows and size, but of another writing.
    assert sides(split)["x"].stat().st_size == sides(again)["x"].stat().st_size
    shutil.copy(sides(again)["x"], sides(split)["x"])
    with pytest.raises(StaleError, match="not the file that was written with it"):
        ParquetFile(split).read_rows(["id"])
    assert ParquetFile(split).read_rows(["s"]).num_rows == 1_000
    with sides(split)["s"].open("ab") as file:
        file.write(b"more")
    with pytest.raises(StaleError, match="not the file that was written with it"):
        ParquetFile(split).read_rows(["s"])


def test_a_file_that_changes_while_it_is_open_is_noticed(split: Path) -> None:
    file, table = ParquetFile(split), Table(str(split.parent))
    assert file.count("id = 555") == table.count("id = 555") == 1
    path = sides(split)["x"]
    held = path.read_bytes()
    path.unlink()
    path.write_bytes(held[:4] + bytes(len(held) - 4))
    with pytest.raises(StaleError, match="changed since it was opened"):
        file.read_rows(["id"])
    with pytest.raises(StaleError):
        table.query("id = 700", ["id"])


# -- hostile ones --------------------------------------------------------------------------------


def with_note(path: Path, note: bytes | None, file_path: bytes | None = None) -> Path:
    """A copy with another note, and its first chunk in another file."""
    data = path.read_bytes()
    tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    top = read_struct(data[tail.offset : -TAIL_LENGTH])[0]
    pairs = top.get(5)
    assert isinstance(pairs, ListOf)
    kept = [each for each in pairs.values if each.get(1) != KEY.encode()]
    if note is not None:
        kept.append(Struct(()).replace(1, BINARY, KEY.encode()).replace(2, BINARY, note))
    top = top.replace(5, LIST, ListOf(12, tuple(kept)))
    if file_path is not None:
        groups = top.get(4)
        assert isinstance(groups, ListOf)
        columns = groups.values[0].get(1)
        chunk = columns.values[0].replace(1, BINARY, file_path)
        first = groups.values[0].replace(1, LIST, ListOf(12, (chunk, *columns.values[1:])))
        top = top.replace(4, LIST, ListOf(12, (first, *groups.values[1:])))
    footer = write_struct(top)
    out = path.with_name("evil.parquet")
    out.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    return out


@pytest.mark.parametrize(
    "place", ["../x", "/etc/passwd", "a/../../x", "s3://bucket/x", "", "x\0", "..", "file:///x"]
)
def test_no_path_leads_out(split: Path, place: str) -> None:
    evil = with_note(split, None, place.encode())
    with pytest.raises(FormatError, match="leaves the directory") as caught:
        ParquetFile(evil).read_rows(["id"])
    assert "hint" in str(caught.value)
    assert ParquetFile(evil).read_rows(["s"]).num_rows == 1_000
    noted = note_of({place: ColumnFile(size=100, tail=10, crc32=1)}).encode()
    with pytest.raises(FormatError, match="leaves the directory"):
        ParquetFile(with_note(split, noted))


def test_without_a_note_it_is_read_as_it_is(split: Path) -> None:
    bare = with_note(split, None)
    file = ParquetFile(bare)
    same(file.read_rows(), rows(0, 1_000))
    assert file.plan("id = 555").rows_kept == 300  # statistics are the footer's own
    sides(split)["s"].unlink()
    with pytest.raises(FileNotFoundError):
        ParquetFile(bare).read_rows(["s"])


@settings(max_examples=120)
@given(
    note=st.one_of(
        st.binary(max_size=30),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=4),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                st.sampled_from(["version", "files", "size", "tail", "crc32", "a"]), inner
            ),
            max_leaves=9,
        ).map(lambda value: json.dumps(value).encode()),
        st.dictionaries(
            st.text(max_size=4),
            st.fixed_dictionaries(
                {name: st.integers(-5, 2**64) for name in ("size", "tail", "crc32")}
            ),
            max_size=7,
        ).map(lambda files: json.dumps({"version": 1, "files": files}).encode()),
    )
)  # fmt: skip
def test_hostile_notes_are_a_format_error(note: bytes) -> None:
    footer = FooterArrays.scan(_FOOTER.replace(_HELD, note.ljust(len(_HELD))[: len(_HELD)]))
    try:
        found = column_files(footer)
    except (FormatError, UnsupportedError):
        return
    for each in found.values():
        assert 0 < each.tail <= min(each.size, 64 * 1024)


def _held() -> tuple[bytes, bytes]:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "x.parquet"
        split_columns(pa.table({c: [1] for c in "abcdef"}), path)
        data = path.read_bytes()
    tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    footer = data[tail.offset : -TAIL_LENGTH]
    noted = next(
        e.value for e in FooterArrays.scan(footer).key_value_metadata or () if e.key == KEY
    )
    return footer, (noted or "").encode()


_FOOTER, _HELD = _held()


@given(data=st.data())
def test_damage_of_the_first_file_is_an_error_or_is_read(
    data: st.DataObject, tmp_path_factory: Any
) -> None:
    root = tmp_path_factory.mktemp("hurt")
    path = root / "x.parquet"
    with mock.patch("os.fsync"):
        split_columns(rows(0, 40), path, row_group_size=20)
    held = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = int(data.draw(st.floats(0, 1, exclude_max=True)) * len(held))
        held[at] = data.draw(st.integers(0, 255))
    path.write_bytes(held)
    with contextlib.suppress(SkipstoneError, FileNotFoundError):
        ParquetFile(path).read_rows()  # no other error: a footer has no checksum
    assert len(list(root.iterdir())) == 6


# -- writers that are killed -----------------------------------------------------------------------

_WRITER = """
import sys
from skipstone.rewrite import split_columns
from tests.rewrite.lakes import rows
data = [rows(0, 1_000), rows(5_000, 1_000)]
print("go", flush=True)
at = 0
while True:
    split_columns(data[at % 2], sys.argv[1], row_group_size=300)
    at += 1
"""


def test_a_writer_that_is_killed_leaves_a_whole_file(split: Path) -> None:
    for at in range(5):
        command = [sys.executable, "-c", _WRITER, str(split)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"go\n"
        deadline = time.monotonic() + 0.03 + 0.017 * at
        while time.monotonic() < deadline:
            pass
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        found = ParquetFile(split).read_rows()
        assert any(
            repr(found.to_pydict()) == repr(rows(first, 1_000).to_pydict()) for first in (0, 5_000)
        )
        assert len(Table(str(split.parent)).listing()) == 1
    split_columns(rows(0, 10), split)
    assert ParquetFile(split).num_rows == 10


def test_what_was_there_is_removed_when_it_is_replaced(split: Path) -> None:
    other = split.with_name("_other")
    other.write_bytes(b"not ours")
    split_columns(rows(0, 10), split, {"all": rows(0, 1).column_names})
    assert sorted(each.name.rpartition(".")[2] for each in split.parent.iterdir()) == [
        "_other", "all", "parquet",
    ]  # fmt: skip
    before = {each.name for each in split.parent.iterdir()}
    with pytest.raises(FormatError):
        split_columns(other, split)
    assert {each.name for each in split.parent.iterdir()} == before


def test_the_temporary_file_of_a_table_is_a_left_over_once_its_writer_is_dead(
    tmp_path: Path,
) -> None:
    code = """
import os, signal, sys
import pyarrow as pa, pyarrow.parquet as pq
from skipstone.rewrite import split_columns
from skipstone.storage.atomic_replace import left_overs
write = pq.write_table
def killed(*args, **options):
    write(*args, **options)
    print(len(os.listdir(sys.argv[1])), left_overs(sys.argv[1]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
pq.write_table = killed
split_columns(pa.table({"a": [1], "b": [2]}), sys.argv[1] + "/t.parquet")
"""
    given = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(given, capture_output=True, text=True, check=False, env=environment())
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "1 {}\n"), done.stderr
    assert left_overs(tmp_path) == dict.fromkeys(tmp_path.iterdir())
    split_columns(pa.table({"a": [1], "b": [2]}), tmp_path / "t.parquet")
    assert left_overs(tmp_path) == {}
