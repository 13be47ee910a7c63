"""What indexes would save is what they save: tried on a sample, held against a real build.

Layouts are drawn so that one answer is right.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.advisor import Savings, parse_queries
from skipstone.errors import PredicateError, SkipstoneError
from skipstone.execution.forecast import io_forecast

if TYPE_CHECKING:
    from pathlib import Path

FILES, ROWS, PAGE = 24, 6_000, 500


def tables(root: Path, files: int = FILES) -> skipstone.Table:
    """``files`` files of 6,000 rows in pages of 500, under awkward names:

    - ``id``: random, all different, spread over all files: only its values tell files apart;
    - ``n``: ascending over the table: the page index alone finds a range of it;
    - ``a``, ``b``: 0 to 39 at random, so that every page has rows of each value of each, and only
      one row in 1,600 has a pair of them: one row index alone spares no page, two spare most;
    - ``x``: doubles at random, with NaN and null;
    - ``pad``: 64 random digits, so that a page is more than what is read over between two others.
    """
    root.mkdir(parents=True)
    rng = np.random.default_rng(7)
    ids = rng.permutation(files * ROWS * 7)[: files * ROWS]
    for i in range(files):
        x = rng.random(ROWS)
        x[::97] = np.nan
        table = pa.table(
            {
                "id": ids[i * ROWS : (i + 1) * ROWS],
                "n": np.arange(i * ROWS, (i + 1) * ROWS),
                "a": rng.integers(0, 40, ROWS).astype(np.int32),
                "b": rng.integers(0, 40, ROWS).astype(np.int32),
                "x": pa.array(x, mask=rng.random(ROWS) < 0.1),
                "pad": [rng.bytes(32).hex() for _ in range(ROWS)],
            }
        )
        path = root / f"é {i:02d}%=.parquet"
        pq.write_table(
            table,
            path,
            max_rows_per_page=PAGE,
            write_batch_size=PAGE,
            write_page_index=True,
            use_dictionary=False,
        )
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return skipstone.Table(str(root))


def tried(table: skipstone.Table, *queries: Any, sample: int = 12) -> Savings:
    found = table.advise(sample=sample, queries=queries)
    assert isinstance(found, Savings)
    return found


def reads(table: skipstone.Table, where: str) -> int:
    """Bytes of the pages that a plan leaves."""
    scan = table.scan(where)
    assert scan.query is not None
    reader = scan.query.reader()
    reader.footers.open(range(scan.plan.files_total))
    return io_forecast(reader, scan.plan, look=True).total.bytes


def test_the_known_answer_is_found(tmp_path: Path) -> None:
    """A Bloom filter for the random key; nothing for what the page index finds by itself, and
    nothing for a range of a column without order."""
    table = tables(tmp_path / "t")
    found = tried(table, (30, "id = 12345"), "n BETWEEN 100 AND 120", "x > 0.5")
    assert [name.partition("(")[0] for name in found.indexes] == ["id:bloomfilter"]
    needle, span, spread = found.queries
    assert (needle.files_before, needle.files_after) == (FILES, 0)
    assert needle.bytes_after <= needle.bytes_before / 100
    assert span.bytes_before == span.bytes_after <= found.bytes_data / 20
    assert spread.bytes_before == spread.bytes_after
    assert found.bytes_data * 0.9 <= spread.bytes_before <= found.bytes_data
    by_name = {each.index.partition("(")[0]: each for each in found.candidates}
    assert by_name["n:minmax"].why == "saves nothing"
    assert by_name["id:rangebitmap"].order is None
    assert by_name["id:bloomfilter"].adds == by_name["id:bloomfilter"].saves > 0


def test_two_row_indexes_that_save_nothing_alone_are_found_together(tmp_path: Path) -> None:
    """Of 12 pages of a file each has some a = 3, and 4 or fewer have a row with b = 5, too."""
    table = tables(tmp_path / "t")
    found = tried(table, (10, "a = 3 AND b = 5"))
    kinds = {name.partition(":")[0]: name.partition(":")[2] for name in found.indexes}
    assert set(kinds) == {"a", "b"}
    assert set(kinds.values()) <= {"bitmap", "rangebitmap"}
    assert [each.order for each in found.candidates[:3]] == [1, 2, None]
    alone = {each.index: each.saves for each in found.candidates}
    assert all(alone[name] <= found.bytes_before / 100 for name in found.indexes)
    assert found.bytes_after < found.bytes_before / 2


@pytest.mark.parametrize("where", ["id = 12345", "a = 3 AND b = 5", "id = 12345 OR n < 500"])
def test_a_real_build_saves_what_was_promised(tmp_path: Path, where: str) -> None:
    """From half of the files: within a factor of 1.5, in bytes saved and in bytes of index."""
    table = tables(tmp_path / "t")
    found = tried(table, (100, where))
    assert found.indexes
    before = reads(table, where)
    report = table.build(indexes=found.indexes, pm="none")
    saved = before - reads(table, where)
    (promised,) = ((q.bytes_before - q.bytes_after) for q in found.queries)
    assert saved / 1.5 <= promised <= saved * 1.5
    assert report.bytes_index / 1.5 <= found.bytes_estimate <= report.bytes_index * 1.5


def test_large_files_are_measured_in_parts_and_without_compiled_code(tmp_path: Path) -> None:
    """Files of 300,000 rows: keys of four rows each, one value in seven, dates and texts at random.
    Sizes are within a factor of 1.5."""
    root = tmp_path / "t"
    root.mkdir()
    rng, rows = np.random.default_rng(7), 300_000
    for i in range(2):
        table = pa.table(
            {
                "of 4": np.arange(i * rows, (i + 1) * rows) // 4,
                "k": rng.integers(0, 40_000, rows),
                "d": pa.array(rng.integers(0, 2_500, rows).astype(np.int32), pa.date32()),
                "s": pa.array([f"word {n}" for n in range(7)]).take(rng.integers(0, 7, rows)),
            }
        )
        pq.write_table(table, root / f"{i}.parquet")
    queries = ["`of 4` = 5", "k = 7", "d = DATE '1971-02-03'", "s IN ('word 2', 'word 3')"]
    code = (
        "import json, sys, skipstone\n"
        "print(json.dumps(skipstone.Table(sys.argv[1]).advise(queries=sys.argv[2:]).to_dict()))\n"
        "assert 'numba' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root), *queries], capture_output=True, check=True
    )
    told = {each["index"]: each["bytes"] for each in json.loads(done.stdout)["candidates"]}
    kinds = ("bloomfilter", "bitmap", "rangebitmap")
    tried = [name for name in told if name.rpartition(":")[2].partition("(")[0] in kinds]
    assert len(tried) == len(queries) * len(kinds)
    table = skipstone.Table(str(root))
    table.build(indexes=tried, pm="none")
    for each in table.describe().indexes:
        if each.kind in kinds[1:]:
            name = f"{each.column}:{each.kind}"
            assert each.bytes / 1.5 <= told[name] <= each.bytes * 1.5, name


def test_patterns_get_an_index_of_text(tmp_path: Path) -> None:
    """Messages differ within a file, and one of file 5 says what no other does."""
    root = tmp_path / "t"
    root.mkdir()
    for part in range(12):
        lines = [f"request {part * 2_000 + row} took {row * 37 % 997} ms" for row in range(2_000)]
        lines[9] = "connection refused" if part == 5 else lines[9]
        pq.write_table(pa.table({"m": lines}), root / f"{part}.parquet")
    table = skipstone.Table(str(root))
    where = "m LIKE '%refused%'"
    found = tried(table, (10, where), "m ILIKE '%Connection%'", sample=12)
    assert found.indexes == ("m:ngram(n=3)",)
    equal = tried(table, "m = 'connection refused'", sample=12)
    assert {each.index.partition("(")[0] for each in equal.candidates}.isdisjoint(
        {"m:ngram", "m:tokens"}
    )
    assert [(each.files_before, each.files_after) for each in found.queries] == [(12, 1)] * 2
    table.build(indexes=found.indexes)
    assert table.plan(where).files_kept == 1


def test_what_is_said(tmp_path: Path) -> None:
    table = tables(tmp_path / "it's", 6)
    found = tried(table, (3, "id = 4"), sample=4)
    lines = str(found).splitlines()
    assert "sampled 4 of 6 files" in lines[0]
    assert "scaled up" in lines[0]
    assert lines[-1] == found.command
    assert shlex.split(lines[-1])[:4] == ["skipstone", "build", table.path, "-c"]
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (told["sampled"], told["files_total"]) == (4, 6)
    assert told["queries"][0]["weight"] == 3
    assert [each["order"] for each in told["candidates"]][:2] == [1, None]
    assert "id:bloomfilter" in found._repr_html_()
    whole = tried(table, "x > 2", sample=50)
    assert "scaled up" not in str(whole)
    assert str(whole).splitlines()[-1] == "no index would save more than it takes"
    assert whole.command is None


def test_nothing_is_left_behind_and_damage_is_passed_over(tmp_path: Path) -> None:
    table = tables(tmp_path / "t", 4)
    (tmp_path / "t" / "é 01%=.parquet").write_bytes(b"PAR1 no PAR1")
    found = tried(table, "id = 4")
    assert (found.sampled, found.files_total) == (3, 4)
    assert any("é 01%=.parquet" in note for note in found.notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]


def test_partition_columns_are_no_candidates(tmp_path: Path) -> None:
    root = tmp_path / "t"
    for day in range(3):
        folder = root / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [day, None]}), folder / "a b.parquet")
        os.utime(folder / "a b.parquet", (1_700_000_000, 1_700_000_000))
    found = tried(skipstone.Table(str(root)), "day = 1 AND id IS NOT NULL")
    assert {each.index.partition(":")[0] for each in found.candidates} == {"id"}
    assert found.queries[0].files_before == 1
    empty = tmp_path / "empty"
    empty.mkdir()
    assert tried(skipstone.Table(str(empty)), "id = 1").notes == ("the table has no files",)


def test_queries_of_a_file() -> None:
    lines = parse_queries("\ufeff# first\n\nid = 1\r\n2.5\t s = 'a\tb'  \n  # more\n-3 < n\n")
    assert [(q.where, q.weight, q.place) for q in lines] == [
        ("id = 1", 1.0, "line 3"),
        ("s = 'a\tb'", 2.5, "line 4"),
        ("-3 < n", 1.0, "line 6"),
    ]
    listed = parse_queries('["id = 1", [4, "n = 2"], {"where": "n = 3", "weight": 2}]')
    assert [(q.where, q.weight) for q in listed] == [("id = 1", 1), ("n = 2", 4), ("n = 3", 2)]


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("id = 1\n0\tid = 2", "line 2: '0' is not a weight"),
        ("1e999\tid = 2", "line 1: '1e999' is not a weight"),
        ("3\t  ", "line 1: '  ' is not a predicate"),
        ("# nothing\n", "no query"),
        ('["id = 1",\n 7]', "element 2: 7 is not a predicate"),
        ('["id = 1",\n', "line 2: queries begin like JSON"),
        ('[[true, "id = 1"]]', "element 1: True is not a weight"),
    ],
)
def test_a_wrong_file_says_where(text: str, complaint: str) -> None:
    with pytest.raises(SkipstoneError, match=complaint):
        parse_queries(text)


@pytest.mark.parametrize(
    "text, complaint", [("id = 1\nid ==== 2", "line 2: "), ("\nidd = 1", "line 2: no column idd")]
)
def test_a_wrong_predicate_says_where(tmp_path: Path, text: str, complaint: str) -> None:
    table = tables(tmp_path / "t", 1)
    with pytest.raises(PredicateError, match=complaint):
        table.advise(queries=parse_queries(text))


def test_one_text_is_no_list(tmp_path: Path) -> None:
    with pytest.raises(SkipstoneError, match="one text"):
        tables(tmp_path / "t", 1).advise(queries="id = 1")
