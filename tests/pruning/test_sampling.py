"""What skips too little in a sample of the units is not asked of the others, and the plan says so.

Each model has 100 files of some 100 bytes. By the costs of the tests reading one takes about 100
seconds, opening it 60, and a page index, a dictionary or a row index 30.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from skipstone.predicate.tree import And, Op, Or
from skipstone.pruning import Level
from tests.pruning.model import ModelRows, ModelSource, ModelTable, leaf
from tests.pruning.test_planner import FAIR, evidence, pages, plan_of

if TYPE_CHECKING:
    from skipstone.pruning.plan import Plan

FILES = 100
SAMPLE = 12


def asked_files(source: ModelSource) -> int:
    """The number of files that a source was asked to split."""
    return len(np.unique(np.concatenate([units.file for units in source.split_units])))


def kept(plan: Plan) -> int:
    return int(plan.keep.sum())


def many(*groups: list[list[int | None]]) -> ModelTable:
    """100 files that all have these row groups of pages."""
    return ModelTable([pages(*groups)] * FILES)


def test_a_level_that_skips_nothing_is_asked_of_a_sample() -> None:
    table = many([[1, 2]])
    groups = ModelSource(table, Level.ROW_GROUP, [evidence(table, Level.ROW_GROUP, "a")])
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], [groups], costs=FAIR)
    assert kept(plan) == FILES
    assert asked_files(groups) == SAMPLE
    text = "row groups: asked in 12 of 100 files, where it skipped nothing"
    assert [str(reason) for reason in plan.reasons] == [text]
    (step,) = plan.steps
    assert (step.considered, step.kept) == (SAMPLE, SAMPLE)


def test_the_sample_is_spread_over_all_files() -> None:
    table = many([[1, 2]])
    groups = ModelSource(table, Level.ROW_GROUP, [evidence(table, Level.ROW_GROUP, "a")])
    plan_of(table, leaf("a", Op.EQ, 1), [], [groups], costs=FAIR)
    files = groups.split_units[0].file
    assert (files[0], files[-1]) == (0, FILES - 1)
    assert set(np.diff(files)) == {9}


def test_a_level_that_pays_is_asked_of_all() -> None:
    """The value is in one of the 100 files, which is not in the sample."""
    table = ModelTable([pages([[1 if file == 50 else 7]]) for file in range(FILES)])
    groups = ModelSource(table, Level.ROW_GROUP, [evidence(table, Level.ROW_GROUP, "a")])
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], [groups], costs=FAIR)
    assert np.flatnonzero(plan.keep).tolist() == [50]
    assert asked_files(groups) == FILES
    assert plan.reasons == ()
    (step,) = plan.steps
    assert (step.considered, step.kept) == (FILES, 1), "one step for the sample and the others"


def test_pages_that_pay_are_asked_of_all_though_row_groups_skip_nothing() -> None:
    """Each row group has the value, in one of ten pages."""
    table = many([[number] for number in range(10)])
    groups = ModelSource(table, Level.ROW_GROUP, [evidence(table, Level.ROW_GROUP, "a")])
    fine = ModelSource(table, Level.PAGE, [evidence(table, Level.PAGE, "a")])
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], [groups, fine], costs=FAIR)
    assert (asked_files(groups), asked_files(fine)) == (FILES, FILES)
    assert all(len(plan.details[file].rows or ()) == 1 for file in range(FILES))


def test_pages_that_skip_nothing_are_left_out_where_row_groups_pay() -> None:
    table = many([[1, 2], [1, 3]], [[7], [8]])
    groups = ModelSource(table, Level.ROW_GROUP, [evidence(table, Level.ROW_GROUP, "a")])
    fine = ModelSource(table, Level.PAGE, [evidence(table, Level.PAGE, "a")])
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], [groups, fine], costs=FAIR)
    assert (asked_files(groups), asked_files(fine)) == (FILES, SAMPLE)
    assert plan.details[50].row_groups == (0,)
    text = "pages: asked in 12 of 100 files, where it skipped nothing"
    assert [str(reason) for reason in plan.reasons] == [text]


@pytest.mark.parametrize("page", [10.0, 30.0])
def test_evidence_of_a_level_that_skips_nothing_is_left_out_alone(page: float) -> None:
    """Statistics exclude a third of the row groups, which take some 35 seconds each. Dictionaries
    exclude none, and are not even asked in the sample where they cost more than a half of that."""
    table = many([[1, 2]], [[1, 3]], [[7]])
    cheap = evidence(table, Level.ROW_GROUP, "a", name="statistics")
    dear = evidence(table, Level.ROW_GROUP, "b", name="dictionary", cost=20.0)
    groups = ModelSource(table, Level.ROW_GROUP, [cheap, dear])
    both = And((leaf("a", Op.EQ, 1), leaf("b", Op.NE_OR_NULL, 99)))
    plan = plan_of(table, both, [], [groups], costs=replace(FAIR, page=page))
    steps = {step.index: step for step in plan.steps}
    assert steps["statistics"].considered == 3 * FILES
    if page < 30:
        assert steps["dictionary"].considered == 2 * SAMPLE
        text = "dictionary(b): asked in 12 of 100 files, where it skipped nothing"
    else:
        assert "dictionary" not in steps
        text = "dictionary(b): not looked at in 100 of 100 files, which take less to read"
    assert [str(reason) for reason in plan.reasons] == [text]


def test_both_sides_of_an_or_are_asked_where_they_exclude_together() -> None:
    """Neither side excludes a file before the other does."""
    table = many([[7]])
    one = evidence(table, Level.ROW_GROUP, "a", name="bloom filter", cost=5.0)
    other = evidence(table, Level.ROW_GROUP, "b", name="dictionary", cost=20.0)
    groups = ModelSource(table, Level.ROW_GROUP, [one, other])
    either = Or((leaf("a", Op.EQ, 1), leaf("b", Op.EQ, 1)))
    assert kept(plan_of(table, either, [], [groups], costs=FAIR)) == 0


def test_of_one_file_with_many_row_groups_pages_are_asked_in_a_sample() -> None:
    group: list[list[int | None]] = [[1, 2], [1, 3]]
    table = ModelTable([pages(*[group] * FILES)])
    groups = ModelSource(table, Level.ROW_GROUP, [evidence(table, Level.ROW_GROUP, "a")])
    fine = ModelSource(table, Level.PAGE, [evidence(table, Level.PAGE, "a")])
    costs = replace(FAIR, chunk=0.3, read=0.0)
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], [groups, fine], costs=costs)
    assert sum(map(len, fine.split_units)) == SAMPLE
    text = "pages: asked in 12 of 100 row groups, where it skipped nothing"
    assert [str(reason) for reason in plan.reasons] == [text]


@pytest.mark.parametrize("value, asked", [(99, FILES), (1, 8)])
def test_row_indexes_that_decide_every_row_come_first_where_they_pay(
    value: int, asked: int
) -> None:
    """All files have 1: reading their columns takes less than evaluating indexes that are slow. No
    file has 99: then none needs to be opened."""
    table = many([[1, 2]])
    told = {
        file: [evidence(table, Level.ROW, "a", file=file, sure=True, cost=1.9e6)]
        for file in range(FILES)
    }
    groups = ModelSource(table, Level.ROW_GROUP, [evidence(table, Level.ROW_GROUP, "a")])
    costs = replace(FAIR, rows=70.0)
    plan = plan_of(table, leaf("a", Op.EQ, value), [], [groups], ModelRows(told), costs)
    assert sum(len(each.asked) for (each,) in told.values()) == asked
    assert kept(plan) == (FILES if value == 1 else 0)
    if value == 1:
        text = "rows: asked in 8 of 100 files, where it skipped too little"
        assert text in [str(reason) for reason in plan.reasons]


@pytest.mark.parametrize("own, dictionary", [(True, 60), (True, 40), (False, 60)])
def test_dictionaries_that_are_most_of_a_column_are_left_to_the_reader(
    own: bool, dictionary: int
) -> None:
    """The value is in one of four files. A plan that others may read asks."""
    table = ModelTable([pages([[1 if file == 2 else 7]]) for file in range(4)])
    told = evidence(table, Level.ROW_GROUP, "a", name="dictionary", cost=20.0)
    groups = ModelSource(table, Level.ROW_GROUP, [told], chunk=100, dictionary=dictionary)
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], [groups], costs=FAIR, own=own)
    if dictionary > 50 and own:
        assert kept(plan) == 4
        text = "dictionary(a): left to the reader: 240 of the 400 bytes that it reads"
        assert [str(reason) for reason in plan.reasons] == [text]
    else:
        assert np.flatnonzero(plan.keep).tolist() == [2]


@pytest.mark.parametrize("own", [True, False])
def test_pages_of_a_few_row_groups_are_sampled_where_rows_are_read_here(own: bool) -> None:
    table = ModelTable([pages([[1, 2]])] * 10)
    fine = ModelSource(table, Level.PAGE, [evidence(table, Level.PAGE, "a")])
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], [fine], costs=FAIR, own=own)
    assert kept(plan) == 10
    assert asked_files(fine) == (2 if own else 10)
