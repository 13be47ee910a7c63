"""Row indexes in the long run: builds at once, compaction, what stays inline, and bounded memory.

The layout, where none is named: three files of 600 rows; ``city`` one of three texts or null,
``age`` 0 to 89, ``id`` a number of its own for each row.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile, Table
from skipstone.human import size
from skipstone.paimon import container_builder as building
from skipstone.paimon import container_builder as bundle
from tests.oracle import matching_rows
from tests.processes import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.facts.snapshot import MatchedFacts

OLD = 1_600_000_000
THRESHOLD = "file-index.in-manifest-threshold"
QUESTIONS = [
    "city = 'Oslo'",
    "city IS NULL",
    "age >= 80",
    "city = 'Oslo' AND age < 5",
    "city = 'Bergen' OR age = 77",
    "city <> 'Oslo' AND age IN (1, 2, 1000)",
]


def rows_of(file: int) -> pa.Table:
    n = np.arange(600) + 600 * file
    city = np.array(["Oslo", "Bergen", "Tromsø"], object)[n % 3]
    return pa.table(
        {
            "id": pa.array(n),
            "city": pa.array(city.tolist(), mask=n % 7 == 0),
            "age": pa.array((n * 31 % 90).astype(np.int32), mask=n % 11 == 0),
        }
    )


def write(home: Path, file: int) -> None:
    home.mkdir(exist_ok=True)
    pq.write_table(rows_of(file), home / f"{file} é.parquet", row_group_size=250)
    os.utime(home / f"{file} é.parquet", (OLD, OLD))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for file in range(3):
        write(tmp_path / "t", file)
    return tmp_path / "t"


def assert_exact(table: Table, questions: Sequence[str] = QUESTIONS, files: int = 3) -> None:
    """Every row is decided by the indexes, and as brute force has it."""
    for where in questions:
        plan = table.plan(where)
        truth = [matching_rows(rows_of(file), where) for file in range(files)]
        assert plan.keep.tolist() == [bool(rows) for rows in truth], where
        assert plan.count() == sum(map(len, truth)), where
        for at, detail in plan.details.items():
            if plan.keep[at]:
                assert detail.rows is not None
                assert detail.rows.positions().tolist() == truth[at], where


# -- two builds at once ----------------------------------------------------------------------------


class Late(Table):
    """A table whose build, once it has seen what is there, lets another build run first.

    The build matches facts twice: for the schema, and for what is left to do.
    """

    other: tuple[list[str], dict[str, object]] | None = None
    matches = 0

    def match(self, *arguments: Any, **named: Any) -> MatchedFacts:
        found = super().match(*arguments, **named)
        self.matches += 1
        if self.other is not None and self.matches == 2:
            (indexes, options), self.other = self.other, None
            Table(self.path).build(indexes=indexes, options=options)
        return found


def built_at_once(home: Path, threshold: str) -> Table:
    """Two builds of different indexes, neither of which knows of the other."""
    options: dict[str, object] = {THRESHOLD: threshold}
    late = Late(str(home))
    late.other = ["age:rangebitmap", "id:minmax"], options
    late.build(indexes=["city:bitmap"], options=options)
    return Table(str(home))


@pytest.mark.parametrize("threshold", ["0 b", "1 mb"])
def test_indexes_of_builds_at_once_outlive_compaction(home: Path, threshold: str) -> None:
    table = built_at_once(home, threshold)
    parts = len(table.store.snapshot().parts)
    assert parts >= 2
    assert_exact(table)
    report = table.compact()
    assert (report.parts_before, report.parts_after) == (parts, 1)
    for again in (table, Table(str(home))):
        assert_exact(again)
        assert again.plan("id = 700").keep.tolist() == [False, True, False]
        assert again.top("age DESC", 5).exact
    table.compact()
    assert table.refresh().files_built == 0
    assert_exact(table)
    assert {str(each) for each in Table(str(home)).store.snapshot().definitions} >= {
        "bitmap(city)",
        "rangebitmap(age)",
    }
    deep = table.check(deep=True)
    assert deep.ok, str(deep)
    kept = table.vacuum(older_than=timedelta(seconds=-60))
    assert not kept.removed
    assert_exact(table)


def test_their_sidecars_are_published_as_one(home: Path, tmp_path: Path) -> None:
    table = built_at_once(home, "0 b")
    table.compact()
    assert table.export(str(tmp_path / "out"), kind="paimon").files == 3
    for file in range(3):
        name = f"{file} é.parquet"
        (tmp_path / "b").mkdir(exist_ok=True)
        (tmp_path / "b" / name).write_bytes((home / name).read_bytes())
        (tmp_path / "b" / f"{name}.index").write_bytes(
            (tmp_path / "out" / f"{name}.index").read_bytes()
        )
    assert_exact(Table(str(tmp_path / "b"), sidecars=True))


@pytest.mark.parametrize("how", ["build", "drop"])
def test_a_sidecar_that_has_nothing_of_its_own_goes(home: Path, how: str) -> None:
    """A third build writes all indexes of a file together; a dropped one needs no sidecar."""
    table = built_at_once(home, "0 b")
    assert table.compact().facts_after == 6
    if how == "build":
        assert table.build(indexes=["id:bitmap"], options={THRESHOLD: "0 b"}).files_built == 3
        questions = [*QUESTIONS, "id = 700 AND city IS NOT NULL"]
    else:
        assert table.drop("city:bitmap").dropped
        questions = ["age >= 80", "age = 1000"]
    assert table.compact().facts_after == 3
    removed = table.vacuum(older_than=timedelta(seconds=-60)).removed
    # Of an index that was dropped the pack may stay, for what else lies in it.
    assert how == "drop" or any(path.endswith(".pack") for path in removed)
    assert_exact(table, questions)
    assert table.refresh().files_built == 0


# -- what lies in the facts ------------------------------------------------------------------------


def packs(table: Table) -> int:
    return len(list(Path(table.location.packs).glob("*.pack")))


def test_what_lies_inline_is_remembered(home: Path) -> None:
    """Containers of 1 to 8 kB: in packs by default, in the facts where 1 mb may be."""
    table = Table(str(home))
    table.build(indexes=["city:bitmap"], options={THRESHOLD: "1 mb"})
    assert packs(table) == 0
    for file, upkeep in ((3, False), (4, True)):
        if upkeep:
            table.compact()
        write(home, file)
        assert Table(str(home)).refresh().files_built == 1
        assert packs(table) == 0
    assert_exact(Table(str(home)), QUESTIONS[:2], files=5)
    # Also where another index comes later, and until something else is said.
    Table(str(home)).build(indexes=["age:bitmap"])
    assert packs(table) == 0
    Table(str(home), options={THRESHOLD: "0 b"}).build(indexes=["id:bitmap"])
    assert packs(table) > 0
    before = packs(table)
    table.compact()
    write(home, 5)
    assert Table(str(home)).refresh().files_built == 1
    assert packs(table) == before + 1
    assert_exact(Table(str(home)), files=6)


def test_a_refresh_may_say_it_anew(home: Path) -> None:
    Table(str(home)).build(indexes=["city:bitmap", "age:bitmap"])
    table = Table(str(home), options={THRESHOLD: "1 mb"})
    before = packs(table)
    assert before > 0
    write(home, 3)
    table.refresh()
    write(home, 4)
    Table(str(home)).refresh()
    assert packs(table) == before
    assert_exact(Table(str(home)), files=5)


# -- what does not fit -----------------------------------------------------------------------------

BUILD = """
import re, sys
from pathlib import Path
import pyarrow.parquet, skipstone.paimon.kinds, skipstone.table.build, skipstone.parquet.reading
from skipstone import Table

def peak():  # not ru_maxrss: that begins with what the parent process had
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

before = peak()
report = Table(sys.argv[1]).build(
    indexes=["text:bitmap", "text:rangebitmap", "n:bitmap", "n:rangebitmap", "text:minmax"],
    memory=int(sys.argv[2]),
)
print(peak() - before)
print([str(each) for each in report.left_out])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no peak of memory is told here")
def test_a_column_that_does_not_fit_is_left_out_and_memory_is_bounded(tmp_path: Path) -> None:
    """One file: 300,000 texts of 1,000 bytes, all different, and a small number; 64 MiB to do it.

    The texts take 300 MB, and more as Python's objects.
    """
    (tmp_path / "t").mkdir()
    rows, memory = 300_000, 64 * 2**20
    with pq.ParquetWriter(
        tmp_path / "t" / "big.parquet",
        pa.schema([("text", pa.string()), ("n", pa.int32())]),
        use_dictionary=False,
    ) as writer:
        for start in range(0, rows, 50_000):
            n = np.arange(start, start + 50_000)
            text = [f"{each * 2_654_435_761 % 2**32:01000d}" for each in n.tolist()]
            writer.write_table(pa.table({"text": text, "n": pa.array(n % 100, pa.int32())}))
    os.utime(tmp_path / "t" / "big.parquet", (OLD, OLD))
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path / "t"), str(memory)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    peak, told = done.stdout.splitlines()
    assert int(peak) < 3 * memory
    assert told.count("its share of memory") == 2
    assert "bitmap(text)" in told
    assert "rangebitmap(text)" in told
    assert "(n)" not in told
    table = Table(str(tmp_path / "t"))
    assert table.plan("n = 17").count() == rows // 100
    assert table.plan("n < 10").count() == rows // 10
    assert not table.plan("text > 'x'").keep.any()
    assert table.plan(f"text = '{5 * 2_654_435_761 % 2**32:01000d}'").keep.all()
    assert table.refresh().files_built == 0  # what was left out is not tried again


def test_files_of_more_rows_than_are_counted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three files of 600 rows one has grown to 1,200, where 1,000 is the most."""
    monkeypatch.setattr(building, "LARGEST_ROW_COUNT", 1_000)
    twice = pa.concat_tables([rows_of(1), rows_of(1)])
    pq.write_table(twice, home / "1 é.parquet", row_group_size=250)
    os.utime(home / "1 é.parquet", (OLD, OLD))
    table = Table(str(home))
    report = table.build(indexes=["age:bitmap", "age:rangebitmap", "id:minmax"])
    assert report.files_built == 3
    assert sorted(each.subject for each in report.left_out) == [
        "bitmap(age)",
        "rangebitmap(age)",
    ]
    assert all("more than 1,000 rows" in each.text for each in report.left_out)
    assert all(each.units == 1 for each in report.left_out)
    decided = table.plan("age = 45").details
    assert decided[0].exact
    assert decided[2].exact
    assert 1 not in decided or not decided[1].exact
    assert table.plan("id = 5").keep.tolist() == [True, False, False]
    plan = table.plan("age >= 80")
    assert plan.count() is None
    assert table.count("age >= 80") == sum(
        len(matching_rows(data, "age >= 80")) for data in (rows_of(0), twice, rows_of(2))
    )


def test_a_container_that_would_be_too_large(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for all but the largest blob, that of ``id``: without it a file fits."""
    monkeypatch.setattr(bundle, "LARGEST", bundle._HEAD + 8_000)
    table = Table(str(home))
    report = table.build(indexes=["city:bitmap", "age:rangebitmap", "id:bitmap", "id:minmax"])
    assert [each.subject for each in report.left_out] == ["bitmap(id)"]
    assert "do not fit a container of 2 GiB" in report.left_out[0].text
    assert report.left_out[0].units == 3
    assert_exact(table)
    plan = table.plan("id = 700")
    assert plan.keep.tolist() == [False, True, False]
    assert ParquetFile(plan.paths[0]).read_rows(["id"], None).num_rows == 600
    assert table.refresh().files_built == 0


def test_describe_counts_a_container_once_and_says_what_no_query_reads(tmp_path: Path) -> None:
    """A second row index of a column writes its containers anew."""
    (tmp_path / "t").mkdir()
    ages = np.random.default_rng(1).integers(0, 90, 40_000)
    pq.write_table(pa.table({"age": ages}), tmp_path / "t" / "0.parquet")
    table = Table(str(tmp_path / "t"))
    table.build(indexes=["age:bitmap"])
    (first,) = table.describe().indexes
    packs = list(Path(table.location.packs).iterdir())
    former = sum(each.stat().st_size for each in packs)
    assert not any("former" in note for note in table.describe().notes)
    table.build(indexes=["age:rangebitmap"])
    bitmap = next(each for each in table.describe().indexes if each.kind == "bitmap")
    assert first.bytes <= bitmap.bytes < 1.5 * first.bytes  # the value of either part, and one map
    for verb in (table.compact, lambda: table.vacuum(timedelta(0))):
        found = table.describe()
        said = f"{size(former)} of {size(found.bytes_index)} are of former indexes or files"
        assert [note for note in found.notes if note.startswith(said)], found.notes
        verb()
    assert not any("former" in note for note in table.describe().notes)
    assert not any(each.exists() for each in packs)
