"""The page in a real browser: opened, hovered, toggled, searched, clicked, by keyboard alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile, report
from skipstone.planning.explain import Explanation
from skipstone.storage import Listing
from tests.report.browser import Browser, Page, chromium
from tests.report.layered import WHERE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from skipstone import Table
    from skipstone.pruning.plan import Plan

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no chromium here: the page is not opened in a browser"
)

EVIL = "<b>x<script>document.title='owned'<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


@pytest.fixture
def plan(table: Table) -> Plan:
    return table.plan(WHERE)


@pytest.fixture
def page(browser: Browser, plan: Plan, tmp_path: Path) -> Iterator[Page]:
    """The report of the layered table, which may complain of nothing."""
    report.write(plan, tmp_path / "report.html")
    found = browser.open(tmp_path / "report.html")
    yield found
    assert found.complaints == []


def said(page: Page) -> str:
    """What the focused cell says of itself."""
    found = page.js("document.activeElement.getAttribute('aria-label')")
    assert isinstance(found, str)
    return found


def cell(page: Page, at: int, grid: str = "#grid") -> tuple[float, float]:
    """The middle of a cell of the grid of files, which are laid from left to right in rows."""
    box = page.box(f"{grid} canvas")
    columns = page.js(f"Number(document.querySelector('{grid} .cells').ariaColCount)")
    side = page.js(f"parseFloat(document.querySelector('{grid} .cell').style.width)")
    step = side + (2 if side > 10 else 1)
    return box["x"] + (at % columns + 0.5) * step, box["y"] + (at // columns + 0.5) * step


def pixel(page: Page, x: float, y: float) -> list[int]:
    """Red, green and blue of the canvas of files there."""
    box = page.box("#grid canvas")
    found = page.js(
        "[...document.querySelector('#grid canvas').getContext('2d')"
        f".getImageData({x - box['x']}, {y - box['y']}, 1, 1).data].slice(0, 3)"
    )
    assert isinstance(found, list)
    return found


def shade(page: Page, name: str) -> list[int]:
    text = page.js(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}')")
    return list(bytes.fromhex(str(text).strip()[1:]))


def test_it_opens_with_counts_and_the_plan_in_words(page: Page, plan: Plan) -> None:
    headline = page.text("#headline")
    assert f"ead {plan.files_kept} of {plan.files_total} files" in headline
    legend = page.text("#legend")
    for part in ("Read", "Skipped by file", "row groups", "pages", "rows", "Not indexed yet"):
        assert part in legend
    assert f"{plan.files_kept} of {plan.files_total} files" in legend
    assert page.text("#predicate") == WHERE
    assert page.js("document.querySelector('#explain').textContent") == str(Explanation(plan))
    assert "3 of 3 files to read" in page.text("#notes")


def test_cells_have_the_colour_of_what_skipped_them(page: Page, plan: Plan) -> None:
    """Letters of the names: a by file, b by row groups, c by pages, d by rows; e is read."""
    names = ["s1", "s2", "s3", "s4", "read"]
    for at in range(5):
        assert pixel(page, *cell(page, at)) == shade(page, names[at])


def test_few_elements_however_many_files(page: Page) -> None:
    assert page.js("document.querySelectorAll('#grid *').length") <= 4


def test_hovering_says_what_a_file_is(page: Page, plan: Plan) -> None:
    assert page.js("document.querySelector('#tip').hidden")
    page.mouse(*cell(page, 1))
    tip = page.text("#tip")
    assert plan.listing.paths[1].rpartition("/")[2] in tip
    assert "Skipped by row groups" in tip
    assert "file 2 of 12 files" in tip
    assert "0 of 4,000 rows to read" in tip
    page.mouse(2, 2)
    assert page.js("document.querySelector('#tip').hidden")


def test_light_and_dark(page: Page) -> None:
    before = pixel(page, *cell(page, 0))
    ground = page.js("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.js("document.documentElement.dataset.theme") == "dark"
    assert page.js("document.querySelector('#theme').ariaPressed") == "true"
    assert page.js("getComputedStyle(document.body).backgroundColor") != ground
    assert pixel(page, *cell(page, 0)) == shade(page, "s1") != before
    page.click("#theme")
    assert pixel(page, *cell(page, 0)) == before


def test_the_system_decides_first(table: Table, tmp_path: Path) -> None:
    report.write(table.plan(WHERE), tmp_path / "report.html")
    with Browser(dark=True) as dark:
        assert dark.open(tmp_path / "report.html").js("document.documentElement.dataset.theme") == (
            "dark"
        )


def test_searching_by_name(page: Page) -> None:
    faded = cell(page, 0)
    full = pixel(page, *faded)
    page.click("#search")
    page.type("-E.par")
    assert page.text("#found") == "3 of 12 files"
    assert pixel(page, *faded) != full
    assert pixel(page, *cell(page, 4)) == shade(page, "read")
    page.key("Enter")
    assert "part-0004-e.parquet" in said(page)
    page.click("#search")
    page.key("Escape")
    assert page.text("#found") == ""
    assert pixel(page, *faded) == full


def test_the_legend_shows_one_level_alone(page: Page) -> None:
    full = pixel(page, *cell(page, 0))
    page.click("#legend button:nth-child(3)")
    assert page.js("document.querySelector('#legend button:nth-child(3)').ariaPressed") == "true"
    assert pixel(page, *cell(page, 0)) != full
    assert pixel(page, *cell(page, 1)) == shade(page, "s2")
    page.click("#legend button:nth-child(3)")
    assert pixel(page, *cell(page, 0)) == full


def test_clicking_opens_and_closes_a_file(page: Page, plan: Plan) -> None:
    page.mouse(*cell(page, 4), click=True)
    assert page.text("#sheet-title") == "part-0004-e.parquet"
    assert page.js("document.querySelector('#main').inert")
    sheet = page.text("#sheet")
    kept = len(plan.details[4].rows or ())
    assert f"{kept} of 4,000 rows to read" in " ".join(sheet.split())
    for column in ("t", "k", "x", "s"):
        assert f"\n{column}" in sheet
    assert "sorted, ascending" in sheet
    assert "unsorted" in sheet
    page.click("#close")
    assert page.js("document.querySelector('#sheet').hidden")
    assert not page.js("document.querySelector('#main').inert")
    assert "part-0004-e.parquet" in said(page)


def test_a_skipped_file_says_why_it_has_no_inside(page: Page) -> None:
    page.mouse(*cell(page, 0), click=True)
    assert "Skipped by file" in page.text("#sheet")
    assert "need not be opened" in page.text("#sheet")
    page.key("Escape")
    assert page.js("document.querySelector('#sheet').hidden")


def test_by_keyboard_alone(page: Page) -> None:
    """Tab to the grid, arrows to a file, Enter to its row groups and pages, Escape back out."""
    for _ in range(12):
        page.key("Tab")
        if page.js("document.activeElement.className") == "cell":
            break
    assert "part-0004-e.parquet" in said(page)
    assert page.js("document.querySelectorAll('#grid [tabindex=\"0\"]').length") == 1
    assert page.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert not page.js("document.querySelector('#tip').hidden")
    page.key("ArrowLeft")
    assert "part-0003-d.parquet; Skipped by rows" in said(page)
    assert page.text("#said") == said(page)
    page.key("Home")
    assert "part-0000-a" in said(page)
    page.key("ArrowLeft")
    assert "part-0000-a" in said(page)
    page.key("End")
    assert "part-0011-e" in said(page)
    assert "Not indexed yet" in said(page)
    page.key("ArrowLeft")
    assert "Changed since indexed" in said(page)
    page.key("Enter")
    assert page.text("#sheet-title") == "part-0010-e.parquet"
    assert said(page).startswith("k, row group 1 of 2 row groups")
    page.key("ArrowRight")
    assert said(page).startswith("k, row group 2 of 2 row groups")
    page.key("ArrowDown")
    page.key("ArrowDown")
    assert said(page).startswith("s, row group 2 of 2")
    assert "% of " in said(page)
    assert "bits are set" in said(page)
    page.key("Enter")
    assert said(page).startswith("s, page 1 of 4 pages of row group 2")
    assert "encoding PLAIN" in said(page)
    page.key("ArrowRight")
    page.key("ArrowUp")
    assert said(page).startswith("x, page 2 of 4 pages")
    assert "values are null" in said(page)
    page.key("Escape")
    assert "row group 2 of 2" in said(page)
    page.key("Escape")
    assert page.js("document.querySelector('#sheet').hidden")
    assert "part-0010-e.parquet" in said(page)


def test_the_focus_stays_in_the_sheet(page: Page) -> None:
    page.mouse(*cell(page, 4), click=True)
    for shift in (False, True):
        for _ in range(4):
            page.key("Tab", shift=shift)
            assert page.js("document.querySelector('#sheet').contains(document.activeElement)")
    page.key("Escape")


def test_pages_are_hovered_with_their_denominators(page: Page) -> None:
    page.mouse(*cell(page, 4), click=True)
    box = page.box("#sheet canvas")
    page.mouse(box["x"] + box["width"] * 0.2, box["y"] + 40, click=True)
    assert "Row group 1 of 2 row groups" in page.text(".crumb")
    page.mouse(box["x"] + box["width"] * 0.9, box["y"] + 40)
    tip = page.text("#tip")
    assert tip.startswith("t, page 4 of 4 pages of row group 1")
    assert "of 500 rows to read" in tip
    assert "of the column chunk" in tip
    page.click(".back")
    assert "All row groups" not in page.text("#sheet")
    page.key("Escape")


def test_one_file(browser: Browser, plan: Plan, tmp_path: Path) -> None:
    report.write_file(plan.paths[0], tmp_path / "file.html", WHERE)
    page = browser.open(tmp_path / "file.html")
    assert page.js("document.querySelector('#overview').hidden")
    assert "of 4,000 rows to read" in " ".join(page.text("#alone").split())
    page.js("document.querySelector('#alone .cell').focus()")
    assert said(page).startswith("k, row group")
    page.key("Enter")
    assert "page 1 of 4 pages" in said(page)
    page.key("Escape")
    assert "row group 1 of 2" in said(page)
    assert page.complaints == []


def test_hostile_names_are_shown_and_do_nothing(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / f"{EVIL}.parquet"
    pq.write_table(pa.table({EVIL: [EVIL, "</script>"]}), path)
    report.write_file(ParquetFile(path), tmp_path / "file.html", f"`{EVIL}` = '</script><b>'")
    page = browser.open(tmp_path / "file.html")
    assert EVIL in page.text("#table")
    assert EVIL in page.text(".names")
    assert "</script><b>" in page.text("#predicate")
    assert "owned" not in page.js("document.title").replace(EVIL, "")
    assert page.js("document.querySelectorAll('main b b, main img, main script').length") == 0
    assert page.complaints == []


def many(table: Table, count: int) -> Plan:
    """The plan of the layered table, its files over and over."""
    plan = table.plan(WHERE)
    turn = np.arange(count) % plan.files_total
    listing = plan.listing

    def over(values: Any) -> Any:
        return None if values is None else values[turn]

    return replace(
        plan,
        listing=Listing(
            root=listing.root,
            paths=[f"{listing.root}/day=2026-06-01/part-{at:05d}.parquet" for at in range(count)],
            sizes=listing.sizes[turn],
            mtimes=listing.mtimes[turn],
        ),
        keep=over(plan.keep),
        must=over(plan.must),
        row_counts=over(plan.row_counts),
        dropped=over(plan.dropped),
        stale=over(plan.stale),
        missing=over(plan.missing),
        details={},
    )


def test_ten_thousand_files_open_and_answer(
    browser: Browser, table: Table, tmp_path: Path, record_property: Any
) -> None:
    """What opening, a click and a search take is noted, and not held against a clock here."""
    report.write(many(table, 10_000), tmp_path / "report.html")
    page = browser.open(tmp_path / "report.html")
    assert "10,000 files" in page.text("#files-title")
    assert page.js("document.querySelectorAll('#main *').length") < 400
    opening = page.js("performance.getEntriesByType('navigation')[0].domComplete")
    found = json.loads(
        page.js(
            """(async () => {
              const frame = () => new Promise(
                (done) => requestAnimationFrame(() => setTimeout(done)));
              const cell = document.querySelector('.cell');
              const search = document.querySelector('#search');
              cell.focus();
              await frame();
              let then = performance.now();
              cell.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}));
              await frame();
              const click = performance.now() - then;
              const title = document.querySelector('#sheet-title').textContent;
              document.querySelector('#close').click();
              then = performance.now();
              search.value = '0999';
              search.dispatchEvent(new Event('input'));
              await frame();
              return JSON.stringify({click, title, search: performance.now() - then});
            })()"""
        )
    )
    record_property("opening_ms", opening)
    record_property("click_ms", found["click"])
    record_property("search_ms", found["search"])
    print(f"10,000 files: open {opening:.0f} ms, {found}")
    assert found["title"] == "day=2026-06-01/part-00004.parquet"
    assert page.text("#found") == "11 of 10,000 files"
    assert page.complaints == []
