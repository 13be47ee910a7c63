"""The runner of the acceptance points: it finds them, tries each once, and can fail."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from tests.accept.__main__ import run
from tests.accept.registry import Missing, Registry, find
from tests.accept.workbench import Workshop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench


@pytest.fixture
def points() -> Registry:
    """One promise of each fate."""
    registry = Registry()

    @registry.point("area: this holds")
    def holds(bench: Workbench) -> None:
        (bench.home / "mine").write_text("x")
        assert [f.name for f in bench.home.iterdir()] == ["mine"]

    @registry.point("area: this breaks")
    def breaks(bench: Workbench) -> None:
        kept = 3
        assert kept == 1, f"{kept} of 40 files were read\nand more that nobody needs"

    @registry.point("other: this raises")
    def raises(bench: Workbench) -> None:
        raise LookupError("no such index")

    @registry.point("other: this cannot be tried")
    def untried(bench: Workbench) -> None:
        raise Missing("no golden files")

    return registry


def lines(registry: Registry, *words: str) -> tuple[int, list[str]]:
    out = io.StringIO()
    code = run(registry.select(list(words)), out)
    return code, out.getvalue().splitlines()


def test_each_point_is_one_line_and_a_broken_one_fails_the_run(points: Registry) -> None:
    code, shown = lines(points)
    assert code == 1
    assert shown[:-1] == [
        "ok    area: this holds",
        "FAIL  area: this breaks: 3 of 40 files were read",
        "FAIL  other: this raises: LookupError: no such index",
        "skip  other: this cannot be tried: no golden files",
    ]
    assert shown[-1].startswith("1 of 3 points hold, 1 not tried")


def test_the_run_passes_when_all_that_was_tried_holds(points: Registry) -> None:
    code, shown = lines(points, "HOLDS", "cannot")
    assert code == 0
    assert len(shown) == 3


@pytest.mark.parametrize("word", ["cannot", "no such name"])
def test_a_run_that_tried_nothing_fails(points: Registry, word: str) -> None:
    assert lines(points, word)[0] == 1


def test_a_broken_promise_without_a_text_still_has_a_reason() -> None:
    registry = Registry()

    @registry.point("area: silent")
    def silent(bench: Workbench) -> None:
        raise AssertionError

    assert lines(registry)[1][0] == "FAIL  area: silent: AssertionError without text"


@pytest.mark.parametrize("name", ["", "no area", ": nothing", "area: ", "area: two\nlines"])
def test_a_point_needs_an_area_and_a_promise(name: str) -> None:
    with pytest.raises(ValueError, match="area: what holds"):
        Registry().point(name)


def test_two_points_of_one_name_are_refused(points: Registry) -> None:
    with pytest.raises(ValueError, match="two points"):
        points.point("area: this holds")(lambda bench: None)


def test_the_points_of_the_project_are_found() -> None:
    found = list(find().select([]))
    assert len(found) == len(find())
    assert "setup" in {point.area for point in found}
    for point in found:
        assert point.check.__module__.startswith("tests.accept.points_"), point.name


def test_a_workbench_is_empty_and_gone_afterwards() -> None:
    with Workshop().bench() as bench:
        home: Path = bench.home
        assert list(home.iterdir()) == []
        (home / "left").mkdir()
    assert not home.exists()


def test_the_command_line_of_a_workbench_reports_what_it_left() -> None:
    with Workshop().bench() as bench:
        ran = bench.skipstone("no-such-verb")
    assert ran.code == 2
    assert ran.out == ""
    assert "no-such-verb" in ran.err
