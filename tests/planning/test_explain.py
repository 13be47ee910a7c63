"""What a plan says of itself: levels, costs, what is left, what reading will take, what it took.

The table of the tests: four files of 1,000 rows in row groups of 250 and pages of 50,
``id`` ascending through all of them, ``code`` 0 … 9 in turns, ``text`` of 40 letters.
"""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import skipstone
from skipstone.cli.verbs import cli
from skipstone.planning.forecast import Amount, Forecast
from skipstone.pruning import Cause, Level, Reason
from skipstone.pruning import costs as cost
from skipstone.pruning.plan import Plan, Step
from skipstone.storage.base import carried, count_read, metered
from tests.pruning.test_plan import plan as small_plan

if TYPE_CHECKING:
    from pathlib import Path

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
    it = small_plan(
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
        "  pages       id  page index  8 -> 2 pages       2.0 kB in 1 request, 1.3 ms",
        "  left: 2 of 4 files",
    ]
    html = it._repr_html_()
    assert "<td>row groups</td>" in html
    assert "<td>2.0 kB in 1 request, 1.3 ms</td>" in html


def test_files_without_a_page_index_are_told_from_nothing_left() -> None:
    lacking = step(Level.PAGE, "page index", 0, 0, used=False)
    assert "not used: what is left has no page index" in str(small_plan(steps=(lacking,)))
    asked = step(Level.PAGE, "search", 3, 0)
    assert "not used: nothing left to ask about" in str(small_plan(steps=(asked, lacking)))


def test_new_files_whose_footers_were_asked_are_not_read_in_full() -> None:
    looked = step(Level.ROW_GROUP, "statistics", 8, 4)
    text = str(small_plan(facts_fresh=3, facts_missing=1, steps=(looked,)))
    assert "1 new: nothing is known but what they say themselves, run `refresh`" in text


def test_that_tiny_files_were_not_opened_is_said_to_programs_only() -> None:
    passed = Reason(
        cause=Cause.COSTLY, subject="row groups", text="not looked at in 2 of 2 files, which …"
    )
    tiny = small_plan(reasons=(passed,))
    assert "not looked at" not in str(tiny)
    assert "not looked at" not in tiny._repr_html_()
    assert tiny.to_dict()["reasons"] == [str(passed)]
    larger = small_plan(reasons=(passed,))
    larger.listing.sizes[:] = 10_000_000
    assert "note: row groups: not looked at in 2 of 2 files" in str(larger)


def test_files_that_were_not_opened_are_counted_as_files(home: Path) -> None:
    """Four files of some 60 kB: to open one would take longer than to read it."""
    it = skipstone.Table(str(home)).plan("code = 3")
    assert [str(each) for each in it.reasons if each.cause is Cause.COSTLY] == [
        "row groups: not looked at in 4 of 4 files, which take less to read"
    ]


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
    """The page of ``id`` first, then, in one request, those of the two others."""
    done = table.explain("id = 1234").analyze()
    forecast = done.plan.foreseen
    assert forecast is not None
    assert forecast.certain.requests == 1
    assert forecast.possible.requests == 1
    assert done.read == forecast.total
    assert (done.rows, done.files_read) == (1, 1)
    assert done.plan.bytes_kept == forecast.total.bytes
    assert done.plan.requests == 2
    (file,) = done.plan.files
    assert file.detail.byte_ranges is not None
    assert sum(each.length for each in file.detail.byte_ranges) == forecast.total.bytes
    assert {each.path for each in file.detail.byte_ranges} == {file.path}


def test_columns_that_are_not_asked_for_are_not_counted(table: skipstone.Table) -> None:
    alone = table.explain("id = 1234", columns=["id"]).foreseen
    assert alone is not None
    assert alone.possible == Amount()
    done = table.explain("id = 1234", columns=["id"]).analyze()
    assert done.read == alone.certain
    assert "where rows match" not in str(done)


@pytest.mark.parametrize(
    "where", ["code = 3 AND id < 700", "id < 700", "id >= 0", "text LIKE '%7'", "code = 77"]
)
def test_never_more_is_read_than_was_planned(table: skipstone.Table, where: str) -> None:
    done = table.explain(where).analyze()
    forecast = done.plan.foreseen
    assert forecast is not None
    assert not forecast.about
    assert forecast.certain.bytes <= done.read.bytes <= forecast.total.bytes
    assert forecast.certain.requests <= done.read.requests <= forecast.total.requests
    assert done.rows == table.count(where)


def test_where_all_rows_match_for_sure_nothing_is_decided(table: skipstone.Table) -> None:
    """Files 1 to 3 match whole: all of their bytes are certain."""
    it = table.explain("id >= 1000")
    assert it.residual is None
    assert it.foreseen is not None
    assert it.foreseen.possible == Amount()
    assert it.analyze().read == it.foreseen.certain


def test_what_was_not_looked_into_is_about(home: Path) -> None:
    it = skipstone.Table(str(home)).explain("code = 3", inside=False)
    sizes = sum(path.stat().st_size for path in home.iterdir())
    assert it.foreseen == Forecast(certain=Amount(bytes=sizes, requests=4), about=True)
    assert "will read: about " in str(it)
    assert "at most" not in str(it)


def test_a_limit_may_end_it_before(table: skipstone.Table) -> None:
    it = table.explain("id < 700", limit=3)
    assert "will read: at most " in str(it)
    done = it.analyze()
    assert done.rows == 3
    assert done.plan.foreseen is not None
    assert done.read.bytes <= done.plan.foreseen.total.bytes


def test_a_plan_reads_nothing_more_to_say_what_it_will_read(table: skipstone.Table) -> None:
    """Without the look that ``explain`` takes, chunks whose pages nobody knows count whole."""
    made = table.plan("id = 1234")
    with metered() as meter:
        text = repr(made)
    assert meter.requests == 0
    assert "about" in text
    looked = table.explain("id = 1234")
    assert looked.bytes_kept < made.bytes_kept


def test_nothing_left_is_nothing_to_read(table: skipstone.Table) -> None:
    done = table.explain("id = 9999").analyze()
    assert (done.rows, done.files_read, done.read) == (0, 0, Amount())
    assert "will read" not in str(done.plan)
    assert "read 0 of 4 files, 0 B of" in str(done)


def test_a_run_says_what_came_of_the_plan(table: skipstone.Table) -> None:
    done = table.plan("id = 1234").analyze()
    text = str(done)
    assert "ran: 1 of 50 rows left came out, in " in text
    assert "in 2 requests, from 1 of 1 planned files; planned: " in text
    assert done.to_dict()["analyzed"].keys() == {
        "rows", "files_read", "bytes", "requests", "milliseconds",
    }  # fmt: skip
    assert done.to_dict()["files"] == {"kept": 1, "total": 4}
    assert "ran: 1 of 50 rows" in done._repr_html_()


def test_queries_beside_each_other_are_counted_apart(table: skipstone.Table) -> None:
    plans = [table.explain(f"id = {at}") for at in (34, 1234, 2234, 3234) * 4]
    alone = [each.analyze().read for each in plans[:4]] * 4
    start = threading.Barrier(4)

    def run(each: Plan) -> Amount:
        start.wait()
        return each.analyze().read

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, plans)) == alone


def test_work_that_is_handed_to_threads_counts_for_who_gave_it() -> None:
    with ThreadPoolExecutor(2) as pool, metered() as meter:
        list(pool.map(carried(lambda at: count_read(f"f{at % 3}", at)), range(10)))
        list(pool.map(lambda at: count_read("another", at), range(10)))
    assert (meter.requests, meter.bytes_read) == (10, 45)
    assert meter.paths == {"f0", "f1", "f2"}
    count_read("after", 1)
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
        it = table.explain(f"id = {at}")
        assert it.files_kept == 1
        assert it.foreseen is not None
        assert it.foreseen.row_groups == (1, 4)
        assert it.foreseen.pages == (3, 15)
        assert it.to_arrow().column("id").to_pylist() == [at]


# -- the command line ------------------------------------------------------------------------------


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["explain", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_line_says_the_same(home: Path, table: skipstone.Table) -> None:
    text = run(str(home), "id = 1234", "--columns", "id, text", "--analyze")
    assert "left: 1 of 4 files, 1 of 4 row groups, 2 of 10 pages, 50 of 4,000 rows" in text
    assert "ran: 1 of 50 rows left came out" in text
    found = json.loads(run(str(home), "id = 1234", "--analyze", "--json"))
    assert found["analyzed"]["rows"] == 1
    assert found["analyzed"]["bytes"] == found["bytes"]["kept"]
    assert found["forecast"]["possible"]["requests"] == 1
    ordered = json.loads(run(str(home), "--order-by", "id desc", "--limit", "2", "--json"))
    assert ordered["forecast"]["at_most"] is True
    assert "analyzed" not in ordered


def test_facts_only_looks_into_no_data_file(home: Path, table: skipstone.Table) -> None:
    found = json.loads(run(str(home), "id = 1234", "--facts-only", "--json"))
    assert "page" not in {each["level"] for each in found["steps"]}
    assert found["forecast"]["files_looked_into"] == 0
    finer = json.loads(run(str(home), "id = 1234", "--json"))
    assert {each["level"] for each in finer["steps"]} == {"object", "row_group", "page"}
