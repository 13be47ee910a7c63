"""Files that cannot be read: remembered with their reason, shown, tried again when they change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import skipstone
from skipstone.cli import cli
from skipstone.errors import FormatError, SkipstoneError

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

FILES, ROWS = 4, 100


def write(path: Path, first: int, age: int = 0) -> None:
    rows = pa.table({"id": range(first, first + ROWS), "name": [f"n{i}" for i in range(ROWS)]})
    pq.write_table(rows, path, compression="snappy", use_dictionary=False)
    os.utime(path, (1_700_000_000 + age, 1_700_000_000 + age))


def damage(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.utime(path, (1_700_000_000, 1_700_000_000))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Four files; the second was cut off, the third has bytes in a page that are not its own."""
    root = tmp_path / "lake"
    root.mkdir()
    for part in range(FILES):
        write(root / f"part-{part}.parquet", part * ROWS)
    cut, torn = root / "part-1.parquet", root / "part-2.parquet"
    damage(cut, cut.read_bytes()[:-30])
    damage(torn, b"PAR1" + b"\xff" * 300 + torn.read_bytes()[304:])
    return root


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments])


def parts(root: Path) -> list[Path]:
    return sorted((root.parent / f"_{root.name}.skipstone" / "facts").glob("part-*"))


def test_they_are_remembered_and_shown_and_not_tried_again(lake: Path) -> None:
    table = skipstone.Table(str(lake))
    built = table.build(indexes=["id:minmax"])
    assert [path for path, _ in built.files_failed] == [
        str(lake / "part-1.parquet"),
        str(lake / "part-2.parquet"),
    ]
    found = table.describe()
    assert (found.fresh, found.missing, found.stale) == (2, 0, 0)
    assert [path for path, _ in found.unreadable] == [path for path, _ in built.files_failed]
    assert "no Parquet magic" in found.unreadable[0][1]
    assert "run `refresh`" not in str(found)
    assert "2 unreadable" in str(found)

    before = parts(lake)
    again = table.refresh()
    assert not again.ok
    assert (again.files_built, again.files_already, len(again.files_failed)) == (0, 2, 2)
    assert "not tried again" in again.files_failed[0][1]
    assert parts(lake) == before
    assert len(table.describe().unreadable) == 2
    table.compact()
    assert len(table.describe().unreadable) == 2


def test_they_are_tried_again_once_they_change(lake: Path) -> None:
    table = skipstone.Table(str(lake))
    table.build(indexes=["id:minmax"])
    write(lake / "part-1.parquet", ROWS, age=10)
    report = table.refresh()
    assert (report.files_built, report.files_already, len(report.files_failed)) == (1, 2, 1)
    found = table.describe()
    assert (found.fresh, len(found.unreadable)) == (3, 1)
    assert table.plan("id = 150", inside=False).files_kept == 2  # its file, and the unreadable one


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_tried_by_each_refresh(lake: Path) -> None:
    closed = lake / "part-0.parquet"
    closed.chmod(0)
    table = skipstone.Table(str(lake))
    table.build(indexes=["id:minmax"])
    assert str(closed) in dict(table.describe().unreadable)
    closed.chmod(0o644)
    assert table.refresh().files_built == 1
    assert str(closed) not in dict(table.describe().unreadable)


def test_the_verbs_end_with_3(lake: Path) -> None:
    assert run("build", lake, "-c", "id:minmax").exit_code == 3
    assert run("refresh", lake).exit_code == 3
    checked = run("check", lake, "--json")
    assert checked.exit_code == 3
    assert len(json.loads(checked.stdout)["unreadable"]) == 2
    assert json.loads(checked.stdout)["missing"] == 0
    assert run("describe", lake).exit_code == 0


def test_check_repairs_a_part_that_is_corrupt(lake: Path) -> None:
    for part in (1, 2):
        write(lake / f"part-{part}.parquet", part * ROWS)
    for name in ("id", "name"):
        assert run("build", lake, "-c", f"{name}:minmax").exit_code == 0
    whole = parts(lake)
    whole[0].write_bytes(whole[0].read_bytes()[:-40])
    found = run("check", lake)
    assert found.exit_code == 3
    assert "run `check --repair`" in found.stdout
    assert run("refresh", lake).exit_code == 0
    assert run("check", lake).exit_code == 3
    mended = run("check", lake, "--repair", "--json")
    assert mended.exit_code == 0, mended.output
    report = json.loads(mended.stdout)
    assert report["repair"]["removed"] == [f"fact part {whole[0].name}"]
    assert report["corrupt"] == []
    assert skipstone.Table(str(lake)).plan("id = 150", inside=False).files_kept == 1
    assert json.loads(run("check", lake, "--repair", "--json").stdout)["repair"]["removed"] == []


@pytest.mark.parametrize("how", ["gone", "short"])
def test_check_repairs_facts_whose_pack_is_lost(lake: Path, how: str) -> None:
    for part in (1, 2):
        write(lake / f"part-{part}.parquet", part * ROWS)
    assert run("build", lake, "-c", "name:bitmap").exit_code == 0
    (first, *_) = sorted((lake.parent / "_lake.skipstone" / "packs").glob("*.pack"))
    if how == "gone":
        first.unlink()
        words = f"pack {first.name} is gone"
    else:
        first.write_bytes(first.read_bytes()[:100])
        words = f"pack {first.name}: it has 100 bytes, and facts name "
    table = skipstone.Table(str(lake))
    assert table.count("name = 'n7'") == FILES  # the data is read
    found = run("check", lake)
    assert (found.exit_code, words in found.stdout) == (3, True)
    mended = json.loads(run("check", lake, "--repair", "--json").stdout)
    assert mended["corrupt"] == []
    assert any(each.startswith("fact part ") for each in mended["repair"]["removed"])
    assert table.check(deep=True).ok
    assert skipstone.Table(str(lake)).count("name = 'n7'") == FILES


def test_a_repair_that_was_interrupted_is_finished_by_the_next(lake: Path) -> None:
    for part in (1, 2):
        write(lake / f"part-{part}.parquet", part * ROWS)
    assert run("build", lake, "-c", "id:minmax").exit_code == 0
    one = parts(lake)
    write(lake / "part-4.parquet", 4 * ROWS)
    assert run("refresh", lake).exit_code == 0
    for old in one:
        old.write_bytes(old.read_bytes()[:-40])

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        skipstone.Table(lake).repair(progress=interrupt)
    assert skipstone.Table(lake).check().missing
    mended = run("check", lake, "--repair")
    assert mended.exit_code == 0, mended.output
    assert "nothing was corrupt" in mended.stdout
    assert "all is well" in mended.stdout
    assert skipstone.Table(lake).plan("id = 150", inside=False).files_kept == 1
    again = skipstone.Table(lake).repair()
    assert (again.removed, again.built) == ((), None)


def test_a_repair_does_not_guess_the_indexes(lake: Path) -> None:
    table = skipstone.Table(str(lake))
    table.build(indexes=["id:minmax"])
    for part in parts(lake):
        part.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(SkipstoneError, match="no part of the index can be read"):
        skipstone.Table(str(lake)).repair()
    assert parts(lake) == []


def test_a_query_reads_the_others_where_it_is_told_to(lake: Path) -> None:
    with pytest.raises(FormatError):
        skipstone.Table(str(lake)).query("id >= 0")
    assert run("query", lake, "id >= 0").exit_code == 1
    done = run("query", lake, "id >= 0", "--skip-unreadable", "--json")
    assert done.exit_code == 3
    found = json.loads(done.stdout)
    assert [row[0] for row in found["rows"]] == [*range(ROWS), *range(3 * ROWS, 4 * ROWS)]
    assert [path for path, _ in found["unreadable"]] == [
        str(lake / "part-1.parquet"),
        str(lake / "part-2.parquet"),
    ]
    assert done.stderr.startswith("missing: the result lacks the rows of 2 of 4 files:")
    table = skipstone.Table(str(lake))
    rows = table.query_readable(lambda scan: scan.to_arrow(), "id = 5")
    assert rows.num_rows == 1


def test_a_query_of_whole_files_lacks_nothing(lake: Path) -> None:
    for part in (1, 2):
        write(lake / f"part-{part}.parquet", part * ROWS)
    done = run("query", lake, "id = 150", "--skip-unreadable", "--csv")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "id,name\n150,n50\n", "")


def test_each_build_says_what_it_wrote_also_where_it_merges_parts(tmp_path: Path) -> None:
    root, merged = tmp_path / "t", 0
    root.mkdir()
    for part in range(10):
        write(root / f"part-{part}.parquet", part * ROWS)
        report = skipstone.Table(root).build(indexes=["id:minmax"])
        assert report.bytes_index > 1_000, part
        merged += report.merged
    assert merged


def test_an_index_that_may_not_be_read_is_not_one_that_is_not_there(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    write(root / "a.parquet", 0)
    skipstone.Table(root).build(indexes=["id:minmax"])
    facts = parts(root)[0].parent
    command = [sys.executable, "-m", "skipstone", "refresh", str(root)]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read everything")
        rights = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", *command]
    facts.chmod(0)
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    finally:
        facts.chmod(0o755)
    assert done.returncode == 1
    assert f"error: cannot list {facts}: Permission denied" in done.stderr
