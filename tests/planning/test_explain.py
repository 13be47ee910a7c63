"""What a plan says of itself: levels, costs, what is left, what reading will take, what it took.

The table of the tests: four files of 1,000 rows in row groups of 250 and pages of 50,
``id`` ascending through all of them, ``code`` 0 … 9 in turns, ``text`` of 40 letters.
"""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import skipstone
from skipstone.cli import cli
from skipstone.planning.explain import Amount, Explanation, Forecast
from skipstone.pruning import Cause, Level, Reason, RowSet
from skipstone.pruning import costs as cost
from skipstone.pruning.plan import FileDetail, Step
from skipstone.storage.base import carried, count_read, metered
from tests.pruning.test_plan import BLOOM, IDLE, MINMAX
from tests.pruning.test_plan import plan as small_plan

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.execution import TableScan

ROWS = 1_000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    root = tmp_path / "t é%"
    root.mkdir()
    for number in range(4):
        ids = np.arange(ROWS) + number * ROWS
        rows = pa.table({"id": ids, "code": ids % 10, "text": [f"{at:040}" for at in ids.tolist()]})
        path = root / f"{number}.parquet"
        pq.write_table(
            rows,
            path,
            row_group_size=250,
            max_rows_per_page=50,
            write_batch_size=1,
            write_page_index=True,
            use_dictionary=False,
            compression="none",
        )
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return root


@pytest.fixture
def table(home: Path, monkeypatch: pytest.MonkeyPatch) -> skipstone.Table:
    """Its files are looked into, small as they are."""
    monkeypatch.setattr("skipstone.table.planning.LOCAL", cost.FREE)
    found = skipstone.Table(str(home))
    found.build(indexes=["id:minmax"])
    return found


def explained(keep: str = "0110", must: str = "0000", **more: Any) -> Explanation:
    return Explanation(small_plan(keep, must, **more))


# -- in words -------------------------------------------------------------------------------------


def test_a_plan_of_the_inside_of_one_file_is_about_its_rows() -> None:
    """Facts were not asked, so nothing is said of them; bytes depend on the columns."""
    rows = FileDetail(rows=RowSet.all(4))
    inside = explained("1", "0", facts_fresh=0, details={0: rows}, table="/t/0 é.parquet")
    assert str(inside).splitlines()[0] == "file /t/0 é.parquet   1.0 kB   10 rows"
    assert str(inside).endswith("read 4 of 10 rows (60 % skipped), planned in 2.2 ms")
    assert "10 rows" in inside._repr_html_()
    of_table = explained("1", "0", facts_fresh=1)
    assert str(of_table).startswith("table events   1 file   1.0 kB   index covers 1 of 1 files")


def test_explain_says_used_or_not_and_because_of_what() -> None:
    it = explained(steps=(MINMAX, BLOOM, IDLE), milliseconds={"listing": 30.0, "evaluation": 8.0})
    assert str(it) == (
        "table events   4 files   15.0 kB   index covers 4 of 4 files (fresh)\n"
        "where id = 5 AND ts > 3\n"
        "  ts       minmax       4 -> 3 files\n"
        "  id       bloomfilter  3 -> 2 files  64 B in 2 requests, 0.1 ms  left out\n"
        "  country  valuelist                                              "
        "not used: no predicate on country\n"
        "  still to be checked row by row: id = 5 AND ts > 3\n"
        "read 2 of 4 files, 6.0 kB of 15.0 kB (60 % skipped), planned in 38 ms"
    )


def test_explain_names_what_is_stale_and_new() -> None:
    text = str(explained(facts_fresh=1, facts_stale=2, facts_missing=1))
    assert (
        "index covers 1 of 4 files; 1 new and 2 changed since: read in full, run `refresh`" in text
    )
    assert "; 3 new: read" in str(explained(facts_fresh=1, facts_missing=3))
    assert "; 3 changed since: read" in str(explained(facts_fresh=1, facts_stale=3))


def test_explain_notes_what_no_index_can_use() -> None:
    note = Reason(cause=Cause.NOT_APPLICABLE, subject="f(x)", text="no index knows f")
    assert "\n  note: f(x): no index knows f\n" in str(explained(reasons=(note,)))


def test_explain_of_a_plan_that_reads_nothing_leaves_nothing_to_check() -> None:
    text = str(explained("0000"))
    assert "still to be checked" not in text
    assert "read 0 of 4 files, 0 B of 15.0 kB (100 % skipped)" in text


def test_explain_of_an_empty_table() -> None:
    text = str(explained("", residual=None))
    assert "table events   0 files   0 B   index covers 0 of 0 files (fresh)" in text
    assert "read 0 of 0 files, 0 B of 0 B (0 % skipped)" in text


def test_an_index_that_was_not_asked_says_so() -> None:
    nothing_left = replace(IDLE, reasons=(), considered=0, kept=0)
    assert "not used: nothing left to ask about" in str(explained(steps=(nothing_left,)))


def test_notebooks_get_a_table_and_no_markup_from_data() -> None:
    note = Reason(cause=Cause.NOT_APPLICABLE, subject="<b>", text="&")
    html = explained(
        table="<script>", predicate="a < 'x'", steps=(MINMAX, IDLE), reasons=(note,)
    )._repr_html_()
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert "a &lt; &#x27;x&#x27;" in html
    assert "<td>4 -&gt; 3 files</td>" in html
    assert "<li>&lt;b&gt;: &amp;</li>" in html
    assert "<ul>" not in explained()._repr_html_()


# -- levels and costs ------------------------------------------------------------------------------


def step(level: Level, index: str, considered: int, kept: int, **more: Any) -> Step:
    return Step(
        level=level,
        index=index,
        column="id",
        used=more.pop("used", True),
        considered=considered,
        kept=kept,
        **more,
    )


def test_each_level_has_a_head_and_what_asking_took() -> None:
    it = explained(
        steps=(
            step(Level.PAGE, "page index", 8, 2, bytes_read=2_000, requests=1, milliseconds=1.26),
            step(Level.OBJECT, "minmax", 4, 2, milliseconds=0.01),
            step(Level.ROW_GROUP, "statistics", 8, 4, requests=3),
        ),
        residual=None,
    )
    assert str(it).splitlines()[2:6] == [
        "  files       id  minmax      4 -> 2 files",
        "  row groups  id  statistics  8 -> 4 row groups  0 B in 3 requests",
        "  pages       id  page index  8 -> 2 row ranges  2.0 kB in 1 request, 1.3 ms",
        "  left: 2 of 4 files",
    ]
    html = it._repr_html_()
    assert "<td>row groups</td>" in html
    assert "<td>2.0 kB in 1 request, 1.3 ms</td>" in html


def test_files_without_a_page_index_are_told_from_nothing_left() -> None:
    lacking = step(Level.PAGE, "page index", 0, 0, used=False)
    assert "the remaining row groups have no page index" in str(explained(steps=(lacking,)))
    asked = step(Level.PAGE, "search", 3, 0)
    assert "not used: nothing left to ask about" in str(explained(steps=(asked, lacking)))


def test_new_files_whose_footers_were_asked_are_not_read_in_full() -> None:
    looked = step(Level.ROW_GROUP, "statistics", 8, 4)
    text = str(explained(facts_fresh=3, facts_missing=1, steps=(looked,)))
    assert "1 new: only their own metadata is known, run `refresh`" in text


def test_that_tiny_files_were_not_opened_is_said_to_programs_only() -> None:
    passed = Reason(
        cause=Cause.COSTLY, subject="row groups", text="not looked at in 2 of 2 files, which …"
    )
    tiny = explained(reasons=(passed,))
    assert "not looked at" not in str(tiny)
    assert "not looked at" not in tiny._repr_html_()
    assert tiny.to_dict()["reasons"] == [str(passed)]
    larger = explained(reasons=(passed,))
    larger.plan.listing.sizes[:] = 10_000_000
    assert "note: row groups: not looked at in 2 of 2 files" in str(larger)


def test_files_that_were_not_opened_are_counted_as_files(home: Path) -> None:
    """Four files of some 60 kB: to open one would take longer than to read it."""
    it = skipstone.Table(str(home)).plan("code = 3")
    assert [str(each) for each in it.reasons if each.cause is Cause.COSTLY] == [
        "row groups: not looked at in 4 of 4 files, which take less to read"
    ]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """40 files of 300 kB: ``code`` has all values in each, ``id`` ascends through them."""
    root = tmp_path / "lake"
    root.mkdir()
    for number in range(40):
        ids = np.arange(4_000) + number * 4_000
        rows = pa.table({"id": ids, "code": ids % 10, "text": [f"{at:064}" for at in ids.tolist()]})
        pq.write_table(rows, root / f"{number:02}.parquet", compression="none")
    return root


def test_footers_that_skip_nothing_are_asked_in_a_sample(lake: Path) -> None:
    table = skipstone.Table(str(lake))
    it = table.explain("code = 3")
    assert "\n  note: row groups: asked in 8 of 40 files, where it skipped nothing\n" in str(it)
    groups = next(step for step in it.plan.steps if step.index == "statistics")
    assert (groups.considered, groups.kept) == (8, 8)
    assert it.plan.files_kept == 40
    assert table.query("code = 3").num_rows == table.count("code = 3") == 40 * 400


def test_footers_that_skip_are_asked_of_all_files(lake: Path) -> None:
    table = skipstone.Table(str(lake))
    plan = table.plan("id = 12345")
    assert plan.files_kept == 1
    assert next(step for step in plan.steps if step.index == "statistics").considered == 40
    assert not [reason for reason in plan.reasons if "asked in" in reason.text]
    assert table.query("id = 12345").num_rows == 1


# -- what is left, and what reading takes ----------------------------------------------------------


def test_every_level_is_counted_with_its_denominator(table: skipstone.Table) -> None:
    """``id = 1234``: file 1, row group 0 of 4, page 4 of 5 in each of three columns."""
    it = table.explain("id = 1234")
    assert "\n  left: 1 of 4 files, 1 of 4 row groups, 3 of 15 pages, 50 of 4,000 rows\n" in str(it)
    found = it.to_dict()["forecast"]
    assert found["row_groups"] == {"kept": 1, "total": 4}
    assert found["pages"] == {"kept": 3, "total": 15}
    assert (found["about"], found["at_most"], found["files_looked_into"]) == (False, False, 1)
    assert it.to_dict()["rows"] == {"kept": 50, "total": 4_000}


def test_what_is_planned_is_what_is_read(table: skipstone.Table) -> None:
    """The page of ``id`` first, then those of the two others, by one request or one each."""
    done = table.scan("id = 1234").analyze()
    forecast = done.explanation.forecast
    assert forecast is not None
    assert forecast.certain.requests == 1
    assert forecast.possible.requests == 2
    assert done.read.bytes == forecast.total.bytes
    assert 2 <= done.read.requests <= forecast.total.requests
    assert (done.rows, done.files_read) == (1, 1)
    assert done.explanation.plan.bytes_kept == forecast.total.bytes
    assert done.explanation.plan.requests == 2
    (file,) = done.explanation.plan.files
    assert file.detail.byte_ranges is not None
    assert sum(each.length for each in file.detail.byte_ranges) == forecast.total.bytes
    assert {each.path for each in file.detail.byte_ranges} == {file.path}


def test_columns_that_are_not_asked_for_are_not_counted(table: skipstone.Table) -> None:
    alone = table.explain("id = 1234", columns=["id"]).forecast
    assert alone is not None
    assert alone.possible == Amount()
    done = table.scan("id = 1234", columns=["id"]).analyze()
    assert done.read == alone.certain
    assert "where rows match" not in str(done)


@pytest.mark.parametrize(
    "where", ["code = 3 AND id < 700", "id < 700", "id >= 0", "text LIKE '%7'", "code = 77"]
)
def test_never_more_is_read_than_was_planned(table: skipstone.Table, where: str) -> None:
    done = table.scan(where).analyze()
    forecast = done.explanation.forecast
    assert forecast is not None
    assert not forecast.unopened
    assert forecast.certain.bytes <= done.read.bytes <= forecast.total.bytes
    assert forecast.certain.requests <= done.read.requests <= forecast.total.requests
    assert done.rows == table.count(where)


def test_where_all_rows_match_for_sure_nothing_is_decided(table: skipstone.Table) -> None:
    """Files 1 to 3 match whole: all of their bytes are certain."""
    scan = table.scan("id >= 1000")
    assert scan.plan.residual is None
    forecast = scan.explain().forecast
    assert forecast is not None
    assert forecast.possible == Amount()
    assert scan.analyze().read == forecast.certain


def test_the_requests_of_unopened_files_are_not_known(home: Path) -> None:
    it = skipstone.Table(str(home)).explain("code = 3", inside=False)
    sizes = sum(path.stat().st_size for path in home.iterdir())
    assert it.forecast == Forecast(certain=Amount(bytes=sizes), unopened=4)
    assert "will read: at most " in str(it)
    assert " in requests for 4 unopened files" in str(it)


def test_a_limit_may_end_it_before(table: skipstone.Table) -> None:
    scan = table.scan("id < 700", limit=3)
    assert "will read: at most " in str(scan.explain())
    done = scan.analyze()
    assert done.rows == 3
    assert done.explanation.forecast is not None
    assert done.read.bytes <= done.explanation.forecast.total.bytes


def test_a_plan_reads_nothing_more_to_say_what_it_will_read(table: skipstone.Table) -> None:
    """Without the look that ``explain`` takes, chunks whose pages nobody knows count whole."""
    made = table.scan("id = 1234")
    with metered() as meter:
        found = made.explain(look=False)
        text = str(found)
    assert meter.requests == 0
    assert "at most" in text
    looked = table.explain("id = 1234")
    assert looked.plan.bytes_kept < found.plan.bytes_kept


def test_nothing_left_is_nothing_to_read(table: skipstone.Table) -> None:
    done = table.scan("id = 9999").analyze()
    assert (done.rows, done.files_read, done.read) == (0, 0, Amount())
    assert "will read" not in str(done.explanation)
    assert "read 0 of 4 files, 0 B of" in str(done)


def test_a_run_says_what_came_of_the_plan(table: skipstone.Table) -> None:
    done = table.scan("id = 1234").analyze()
    text = str(done)
    assert "ran: 1 of 50 rows left returned, in " in text
    assert "in 2 requests, from 1 of 1 planned files; planned: " in text
    assert done.to_dict()["analyzed"].keys() == {
        "rows", "files_read", "bytes", "requests", "milliseconds",
    }  # fmt: skip
    assert done.to_dict()["files"] == {"kept": 1, "total": 4}
    assert "ran: 1 of 50 rows" in done._repr_html_()


def test_queries_beside_each_other_are_counted_apart(table: skipstone.Table) -> None:
    scans = [table.scan(f"id = {at}") for at in (34, 1234, 2234, 3234) * 4]
    alone = [each.analyze().read for each in scans[:4]] * 4
    start = threading.Barrier(4)

    def run(each: TableScan) -> Amount:
        start.wait()
        return each.analyze().read

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, scans)) == alone


def test_work_that_is_handed_to_threads_counts_for_who_gave_it() -> None:
    with ThreadPoolExecutor(2) as pool, metered() as meter:
        list(pool.map(carried(lambda at: count_read(f"f{at % 3}", 0, at)), range(10)))
        list(pool.map(lambda at: count_read("another", 0, at), range(10)))
    assert (meter.requests, meter.bytes_read) == (10, 45)
    assert meter.paths == {"f0", "f1", "f2"}
    count_read("after", 0, 1)
    assert meter.requests == 10


# -- files of which there is no fact ---------------------------------------------------------------


def test_files_without_facts_are_cut_by_their_own_footers(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has counted their rows: each is split into its row groups all the same, and none of
    its pages are taken for those of another row group."""
    monkeypatch.setattr("skipstone.table.planning.LOCAL", cost.FREE)
    table = skipstone.Table(str(home))
    for at in (0, 249, 250, 999, 1000, 1790, 3999):
        scan = table.scan(f"id = {at}")
        assert scan.plan.files_kept == 1
        forecast = scan.explain().forecast
        assert forecast is not None
        assert forecast.row_groups == (1, 4)
        assert forecast.pages == (3, 15)
        assert scan.to_arrow().column("id").to_pylist() == [at]


# -- the command line ------------------------------------------------------------------------------


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["explain", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_planning_that_reads_what_it_saves_is_said() -> None:
    plan = explained().plan
    saved = plan.bytes_total - plan.bytes_kept
    for read, said in ((saved, True), (saved - 1, False)):
        found = Explanation(replace(plan, planning=(read, 3)))
        assert ("whose files are too small to skip in" in str(found)) is said


def test_the_command_line_says_the_same(home: Path, table: skipstone.Table) -> None:
    text = run(str(home), "id = 1234", "--columns", "id, text", "--analyze")
    assert "left: 1 of 4 files, 1 of 4 row groups, 2 of 10 pages, 50 of 4,000 rows" in text
    assert "ran: 1 of 50 rows left returned" in text
    found = json.loads(run(str(home), "id = 1234", "--analyze", "--json"))
    assert found["analyzed"]["rows"] == 1
    assert found["analyzed"]["bytes"] == found["bytes"]["kept"]
    assert found["forecast"]["possible"]["requests"] == 2
    ordered = json.loads(run(str(home), "--order-by", "id desc", "--limit", "2", "--json"))
    assert ordered["forecast"]["at_most"] is True
    assert "analyzed" not in ordered


def test_facts_only_looks_into_no_data_file(home: Path, table: skipstone.Table) -> None:
    found = json.loads(run(str(home), "id = 1234", "--facts-only", "--json"))
    assert "page" not in {each["level"] for each in found["steps"]}
    assert found["forecast"]["files_looked_into"] == 0
    finer = json.loads(run(str(home), "id = 1234", "--json"))
    assert {each["level"] for each in finer["steps"]} == {"files", "row groups", "pages"}
