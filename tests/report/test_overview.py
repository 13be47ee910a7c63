"""What a page says of the files of a plan is what the plan says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from skipstone import Table, report
from skipstone.planning.explain import Explanation
from skipstone.predicate.tree import Const
from skipstone.pruning.planner import ObjectLevel, PlanInput, make_plan
from skipstone.report import html_page
from skipstone.report.html_page import MISSING, SKIPPED, STALE, overview, states
from tests.report.data import parsed
from tests.report.layered import LEVELS, WHERE
from tests.txn_tables import TxnFolder, micros, rows_at

if TYPE_CHECKING:
    import pytest


def letters(table: Table) -> list[str]:
    return [Path(path).stem[-1] for path in table.listing().paths]


def test_every_level_skips_the_files_that_it_should(table: Table) -> None:
    """The layout is that of ``layered``; states are levels and 1, 0 is read."""
    plan = table.plan(WHERE)
    assert states(plan).tolist() == [LEVELS[each] + 1 for each in letters(table)]


def test_the_page_holds_the_plan(table: Table, tmp_path: Path) -> None:
    plan = table.plan(WHERE)
    written = report.write(plan, tmp_path / "report.html")
    found = parsed(tmp_path / "report.html")
    data = found.data
    assert data["kind"] == "table"
    assert data["predicate"] == WHERE
    assert [f"{data['root']}/{name}" for name in data["names"]] == plan.listing.paths
    assert data["sizes"] == plan.listing.sizes.tolist()
    assert data["rows"] == plan.row_counts.tolist()
    assert [each == "0" for each in data["state"]] == plan.keep.tolist()
    for at, detail in plan.details.items():
        assert detail.rows is not None
        assert data["selected"][at] == len(detail.rows)
    assert data["total"] == [plan.files_total, plan.bytes_total, plan.rows_total]
    assert [sum(part) for part in zip(*data["tally"], strict=True)][:2] == data["total"][:2]
    assert data["tally"][0][0] == plan.files_kept == written.files.kept == written.files.opened
    assert data["steps"] == [step.to_dict() for step in plan.steps]
    assert found.texts["explain"] == str(Explanation(plan))
    assert written.bytes == (tmp_path / "report.html").stat().st_size
    assert f"of {plan.files_kept} files to read" in str(written)


def test_files_without_a_fact_that_counts_are_marked(table: Table) -> None:
    """The last file but one was written after the build, under its old name; the last is new."""
    plan = table.plan(WHERE)
    data = overview(Explanation(plan))
    n = plan.files_total
    assert data["mark"] == "0" * (n - 2) + str(STALE) + str(MISSING)
    assert [each[0] for each in data["marks"]] == [
        plan.facts_fresh,
        plan.facts_stale,
        plan.facts_missing,
    ]


def test_a_plan_that_does_not_say_by_what(table: Table) -> None:
    plan = replace(table.plan(WHERE), dropped=None, stale=None, missing=None)
    data = overview(Explanation(plan))
    assert set(data["state"]) == {"0", str(SKIPPED)}
    assert set(data["mark"]) == {"0"}


def test_unknown_row_counts_stay_unknown(table: Table) -> None:
    plan = table.plan(WHERE)
    counts = plan.row_counts.copy()
    counts[0] = -1
    data = overview(Explanation(replace(plan, row_counts=counts)))
    assert data["total"][2] == -1
    assert data["tally"][1][2] == -1
    assert data["tally"][2][2] > 0


def test_past_the_most_files_all_are_counted(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_page, "MOST_FILES", 5)
    plan = table.plan(WHERE)
    data = overview(Explanation(plan))
    assert len(data["names"]) == len(data["state"]) == len(data["sizes"]) == 5
    assert data["total"][0] == data["files_total"] == plan.files_total == 12


def test_the_first_files_to_read_are_opened(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html_page, "MOST_OPENED", 2)
    plan = table.plan(WHERE)
    written = report.write(plan, tmp_path / "report.html")
    data = parsed(tmp_path / "report.html").data
    assert data["opened"] == np.flatnonzero(plan.keep)[:2].tolist()
    assert (written.files.opened, written.files.kept) == (2, 3)


def test_a_table_without_files_or_predicate(tmp_path: Path) -> None:
    from skipstone import ParquetFile
    from skipstone.storage import Listing
    from tests.accept.tables import write

    path = write(tmp_path / "t" / "a.parquet", {"a": [1, 2]})
    plan = ParquetFile(path).plan("a = 1")
    nothing = replace(
        plan,
        listing=plan.listing.where(np.zeros(0, np.int64)),
        keep=np.zeros(0, np.bool_),
        must=np.zeros(0, np.bool_),
        row_counts=np.zeros(0, np.int64),
        dropped=None,
        details={},
    )
    assert isinstance(nothing.listing, Listing)
    assert report.write(nothing, tmp_path / "report.html").files.total == 0
    assert parsed(tmp_path / "report.html").data["names"] == []


def test_a_table_with_a_txn_is_drawn_at_its_snapshot(tmp_path: Path) -> None:
    """Two days; the file of the first has grown by rows that no commit says yet."""
    folder = TxnFolder(tmp_path / "trades")
    for day in range(2):
        folder.add(micros(2026, 6, 1 + day), rows_at(micros(2026, 6, 1 + day), range(10)))
    folder.commit()
    folder.grow(0, rows_at(micros(2026, 6, 1, 5), range(10, 15)))
    scan = Table(str(tmp_path / "trades")).scan("ts < '2026-06-02'")
    written = report.write(scan, tmp_path / "report.html")
    found = parsed(tmp_path / "report.html")
    assert found.data["state"] == "01"
    assert found.inside(0).get("trouble") is None
    assert found.inside(0)["rows"] == 10
    assert (written.files.opened, written.files.total) == (1, 2)


def test_files_of_another_format_have_no_inside(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.csv").write_text("k\n1\n")
    listing = Table(str(tmp_path / "t"), format="csv").listing()
    plan = make_plan(
        PlanInput(
            tree=Const(True),
            listing=listing,
            table=str(tmp_path / "t"),
            predicate="TRUE",
            objects=ObjectLevel(row_counts=np.full(1, -1)),
        )
    )
    written = report.write(plan, tmp_path / "report.html")
    assert parsed(tmp_path / "report.html").inside(0)["trouble"]
    assert (written.files.opened, written.files.kept) == (0, 1)
