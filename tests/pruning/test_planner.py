"""Plans are right whatever is known: a model of files down to rows, then examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.predicate.tree import And, Bound, Leaf, Op, Opaque, Or
from skipstone.pruning import Level, RowSet, Units
from skipstone.pruning.costs import FREE, Costs
from skipstone.pruning.planner import ObjectLevel, PlanInput, make_plan
from tests.pruning.model import (
    ModelEvidence,
    ModelRows,
    ModelSource,
    ModelTable,
    leaf,
    tables,
    told,
    trees,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.pruning.evidence import Source
    from skipstone.pruning.plan import Plan


def selected(plan: Plan, table: ModelTable, file: int) -> RowSet:
    """The rows of ``file`` that a reader of the plan reads."""
    if not plan.keep[file]:
        return RowSet()
    rows = RowSet.all(len(table.rows(file)))
    detail = plan.details.get(file)
    return rows if detail is None or detail.rows is None else rows & detail.rows


def check(plan: Plan, table: ModelTable, tree: Bound) -> None:
    """Everything that holds of any plan, whatever evidence there was."""
    for file in range(len(table.files)):
        detail = plan.details.get(file)
        assert detail is None or plan.keep[file]
        for opaque in (False, True):
            matching = table.matching(file, tree, opaque)
            kept = selected(plan, table, file)
            assert not matching - kept, f"rows of file {file} are lost"
            if plan.must[file] or (detail is not None and detail.exact):
                assert kept == matching
            if plan.exact:
                assert kept == matching
        if detail is not None and detail.row_groups is not None:
            assert detail.rows is not None
            first = 0
            for ordinal, group in enumerate(table.files[file]):
                count = sum(len(page) for page in group)
                touched = RowSet([first], [first + count]) & detail.rows
                assert bool(touched) == (ordinal in detail.row_groups)
                first += count
    assert not np.any(plan.must & ~plan.keep)
    undecided = np.flatnonzero(plan.keep & ~plan.must).tolist()
    exact = {file for file, detail in plan.details.items() if detail.exact}
    assert (plan.residual is None) == exact.issuperset(undecided)
    assert plan.count() is not None or not plan.exact
    if plan.count() is not None:
        assert plan.count() == sum(len(table.matching(f, tree)) for f in range(len(table.files)))
    assert plan.dropped is not None
    assert np.array_equal(plan.dropped < 0, plan.keep)
    for step in plan.steps:
        assert 0 <= step.kept <= step.considered
        assert step.used or step.reasons or step.considered == step.kept


#: all levels pay, and rows before all others
CHEAP = Costs(file=1e-9, chunk=1e-9, rows=1e-9, bytes_per_second=1.0)
#: a level pays where it skips enough; the files of the model have some 100 bytes
FAIR = Costs(file=60.0, chunk=30.0, rows=30.0, page=30.0, read=1.0, bytes_per_second=1.0)


@given(st.data())
def test_no_plan_loses_a_row_and_exact_is_exact(data: st.DataObject) -> None:
    table = data.draw(tables)
    tree = data.draw(trees)
    count = len(table.files)
    some = st.frozensets(st.integers(0, max(count - 1, 0)))
    row_counts = table.row_counts()
    row_counts[list(data.draw(some) & set(range(count)))] = -1
    finer: list[Source] = [
        ModelSource(
            table=table,
            level=level,
            told=data.draw(told(table, level)),
            closed=data.draw(some),
            uncounted=data.draw(some) if data.draw(st.booleans()) else frozenset(),
        )
        for level in data.draw(st.sets(st.sampled_from([Level.ROW_GROUP, Level.PAGE])))
    ]
    row_level = None
    if data.draw(st.booleans()):
        row_level = ModelRows(
            {f: data.draw(told(table, Level.ROW, f)) for f in data.draw(some) if f < count}
        )
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):  # two files are many, and one of them the sample
            patch.setattr("skipstone.pruning.row_level._WAVE", 1)
            patch.setattr("skipstone.pruning.row_level._MANY", 2)
        if data.draw(st.booleans()):
            patch.setattr("skipstone.pruning.costs.FEW", 1)
        plan = make_plan(
            PlanInput(
                tree=tree,
                listing=table.listing(),
                table="t",
                predicate=str(tree),
                objects=ObjectLevel(
                    row_counts=row_counts,
                    evidence=data.draw(told(table, Level.OBJECT)),
                ),
                finer=finer,
                rows=row_level,
                costs=data.draw(st.sampled_from([FREE, CHEAP, FAIR])),
            )
        )
    check(plan, table, tree)


# -- examples --------------------------------------------------------------------------------------


def pages(*groups: list[list[int | None]]) -> list[list[list[dict[str, int | None]]]]:
    """One file: row groups of pages of values of ``a``; ``b`` is 10 more."""
    return [
        [[{"a": v, "b": None if v is None else v + 10} for v in page] for page in group]
        for group in groups
    ]


def evidence(table: ModelTable, level: Level, column: str, **more: object) -> ModelEvidence:
    return ModelEvidence(table, level, column, **more)  # type: ignore[arg-type]


def plan_of(
    table: ModelTable,
    tree: Bound,
    told: list[ModelEvidence],
    finer: list[ModelSource] | None = None,
    rows: ModelRows | None = None,
    costs: Costs = FREE,
    *,
    shown: bool = True,
    own: bool = False,
) -> Plan:
    plan = make_plan(
        PlanInput(
            tree=tree,
            listing=table.listing(),
            table="t",
            predicate=str(tree),
            objects=ObjectLevel(
                row_counts=table.row_counts(),
                evidence=told,
            ),
            finer=finer or [],
            rows=rows,
            costs=costs,
            shown=shown,
            own=own,
        )
    )
    check(plan, table, tree)
    return plan


def test_each_level_is_asked_only_about_what_survived() -> None:
    """File 0 holds a = 1 in its second row group, file 1 and 2 do not.

    The object level excludes file 1 only (it has no evidence of file 2 beyond "may").
    """
    table = ModelTable(
        [pages([[5, 6]], [[1, 7], [8]]), pages([[9]]), pages([[0, 2], [3]], [[4, 5]])]
    )
    objects = evidence(table, Level.OBJECT, "a")
    groups = evidence(table, Level.ROW_GROUP, "a")
    source = ModelSource(table, Level.ROW_GROUP, [groups])
    plan = plan_of(table, leaf("a", Op.EQ, 1), [objects], [source])
    assert [u.file.tolist() for u in source.split_units] == [[0]]
    assert [u.ordinal.tolist() for u in groups.asked] == [[0, 1]]
    assert plan.keep.tolist() == [True, False, False]
    assert plan.details[0].row_groups == (1,)
    assert plan.details[0].rows == RowSet([2], [5])
    assert not plan.details[0].exact
    assert [(s.level, s.considered, s.kept) for s in plan.steps] == [
        (Level.OBJECT, 3, 1),
        (Level.ROW_GROUP, 2, 1),
    ]


def test_each_file_says_at_which_level_it_went() -> None:
    """a = 1 AND b = 1, of which files know a, row groups b, pages and rows both.

    File 0 has no a = 1, file 1 no b = 1, file 2 both in two pages of a row group, file 3 both in
    two rows of a page, and file 4 in one row.
    """
    no, a, b, both = ({"a": x, "b": y} for x, y in ((0, 0), (1, 0), (0, 1), (1, 1)))
    files: list[Any] = [[[[b]]], [[[no, a]]], [[[a], [b]]], [[[a, b]]], [[[no, both]]]]
    table = ModelTable(files)
    finer = [
        ModelSource(table, Level.ROW_GROUP, [evidence(table, Level.ROW_GROUP, "b")]),
        ModelSource(table, Level.PAGE, [evidence(table, Level.PAGE, each) for each in "ab"]),
    ]
    rows = ModelRows(
        {f: [evidence(table, Level.ROW, each, file=f) for each in "ab"] for f in (3, 4)}
    )
    tree = And((leaf("a", Op.EQ, 1), leaf("b", Op.EQ, 1)))
    plan = plan_of(table, tree, [evidence(table, Level.OBJECT, "a")], finer, rows)
    assert plan.dropped is not None
    assert plan.dropped.tolist() == [Level.OBJECT, Level.ROW_GROUP, Level.PAGE, Level.ROW, -1]


def test_an_or_is_excluded_by_one_index_per_level() -> None:
    """a = 1 OR b = 99: the file level knows only a, the row groups only b; together none is left.

    File 0 holds a = 1 and stays; file 1 has neither.
    """
    table = ModelTable([pages([[1]], [[2]]), pages([[3]], [[4]])])
    tree = Or((leaf("a", Op.EQ, 1), leaf("b", Op.EQ, 99)))
    objects = evidence(table, Level.OBJECT, "a")
    groups = evidence(table, Level.ROW_GROUP, "b")
    plan = plan_of(table, tree, [objects], [ModelSource(table, Level.ROW_GROUP, [groups])])
    assert plan_of(table, tree, [objects]).keep.tolist() == [True, True]
    assert plan.keep.tolist() == [True, False]
    # Of file 0 nothing more is known: a = 1 was said of the file, not of its row groups.
    assert plan.details[0].row_groups == (0, 1)


def test_and_is_decided_by_one_half_per_level() -> None:
    """a < 5 holds for every row of file 0 (file level), b < 13 for its first row group."""
    table = ModelTable([pages([[1, 2]], [[3, 4]])])
    tree = And((leaf("a", Op.LT, 5), leaf("b", Op.LT, 13)))
    groups = evidence(table, Level.ROW_GROUP, "b")
    plan = plan_of(
        table,
        tree,
        [evidence(table, Level.OBJECT, "a")],
        [ModelSource(table, Level.ROW_GROUP, [groups])],
    )
    assert plan.details[0].row_groups == (0,)
    assert plan.details[0].exact
    assert not plan.exact


def test_down_to_rows() -> None:
    """Rows 1 and 4 of file 0 hold a = 1; pages narrow to {0, 1} and {4}, rows to {1, 4}."""
    table = ModelTable([pages([[0, 1], [2, 3]], [[1], [5, 6]]), pages([[7, 8]])])
    tree = leaf("a", Op.EQ, 1)
    coarse = evidence(table, Level.ROW_GROUP, "a")
    fine = evidence(table, Level.PAGE, "a")
    finer = [
        ModelSource(table, Level.PAGE, [fine]),  # given in any order
        ModelSource(table, Level.ROW_GROUP, [coarse]),
    ]
    to_pages = plan_of(table, tree, [], finer)
    assert to_pages.keep.tolist() == [True, False]
    assert to_pages.details[0].rows == RowSet([0, 4], [2, 5])
    assert to_pages.details[0].row_groups == (0, 1)
    assert not to_pages.details[0].exact
    rows = ModelRows({0: [evidence(table, Level.ROW, "a", file=0)]})
    to_rows = plan_of(table, tree, [], finer, rows)
    assert to_rows.details[0].rows == RowSet.of([1, 4])
    assert to_rows.details[0].row_groups == (0, 1)
    assert to_rows.details[0].exact
    assert [s.level for s in to_rows.steps] == [Level.ROW_GROUP, Level.PAGE, Level.ROW]


def test_rows_may_rule_out_a_row_group_and_a_whole_file() -> None:
    """min/max of the row group [0, 9] admits a = 5, its rows do not."""
    table = ModelTable([pages([[0, 9]], [[5, 9]]), pages([[0, 9], [9, 0]])])
    blunt = evidence(table, Level.ROW_GROUP, "a", mode="silent")
    rows = ModelRows({f: [evidence(table, Level.ROW, "a", file=f)] for f in (0, 1)})
    source = ModelSource(table, Level.ROW_GROUP, [blunt])
    plan = plan_of(table, leaf("a", Op.EQ, 5), [], [source], rows)
    assert plan.keep.tolist() == [True, False]
    assert plan.details[0].row_groups == (1,)
    assert plan.details[0].rows == RowSet.of([2])
    assert set(plan.details) == {0}


def test_an_empty_row_group_is_never_named() -> None:
    """Row group 1 has no rows and lies inside the run of matching ones."""
    table = ModelTable([pages([[1]], [], [[1]], [[2]])])
    rows = ModelRows({0: [evidence(table, Level.ROW, "a", file=0)]})
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], [ModelSource(table, Level.ROW_GROUP)], rows)
    assert plan.details[0].row_groups == (0, 2)
    assert plan.details[0].exact


def test_silent_rows_leave_what_the_row_groups_said() -> None:
    table = ModelTable([pages([[1]], [[2]])])
    rows = ModelRows({0: [evidence(table, Level.ROW, "a", file=0, mode="silent")]})
    source = ModelSource(table, Level.ROW_GROUP, [evidence(table, Level.ROW_GROUP, "a")])
    plan = plan_of(table, Or((leaf("a", Op.EQ, 1), leaf("b", Op.EQ, 11))), [], [source], rows)
    assert plan.details[0].rows == RowSet.all(2)
    narrow = And((leaf("a", Op.EQ, 1), leaf("b", Op.EQ, 11)))
    plan = plan_of(table, narrow, [], [source], rows)
    assert plan.details[0].rows == RowSet([0], [1])
    assert plan.details[0].row_groups == (0,)


def test_a_file_that_matches_whole_at_the_row_level_is_exact() -> None:
    table = ModelTable([pages([[1, 1, 1]]), pages([[2]])])
    rows = ModelRows({f: [evidence(table, Level.ROW, "a", file=f)] for f in (0, 1)})
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], rows=rows)
    assert plan.exact
    assert plan.must.tolist() == [True, False]
    assert plan.residual is None


class Counted(ModelRows):
    """Remembers of which files it was asked."""

    def evidence(self, file: int, columns: frozenset[str]) -> Sequence[ModelEvidence]:
        asked.append(file)
        return super().evidence(file, columns)


asked: list[int] = []


def test_rows_of_many_files_are_asked_where_a_sample_says_that_it_pays() -> None:
    """300 files of two rows: a = 1 is in the first of each, and nothing is known of b.

    Rows of a leave one of two out, so all files are asked. That a is not null, and b is 11, leaves
    nothing out and proves nothing, and beyond 64 files, spread over all, none is asked.
    """
    table = ModelTable([pages([[1, 2]]) for _ in range(300)])
    rows = Counted({f: [evidence(table, Level.ROW, "a", file=f)] for f in range(300)})
    asked.clear()
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], rows=rows)
    assert sorted(asked) == list(range(300))
    assert plan.count() == 300
    asked.clear()
    plan = plan_of(table, And((leaf("a", Op.NOT_NULL), leaf("b", Op.EQ, 11))), [], rows=rows)
    assert len(asked) == 64
    assert asked[0] == 0
    assert asked[-1] == 299
    text = "rows: asked in 64 of 300 files, where it skipped too little"
    assert [str(reason) for reason in plan.reasons] == [text]


def test_what_cannot_be_split_is_carried_on_whole() -> None:
    """File 1 has no footer that can be read: it stays, whole; file 0 is cut to one row group."""
    table = ModelTable([pages([[1]], [[2]]), pages([[2]], [[3]])])
    source = ModelSource(
        table,
        Level.ROW_GROUP,
        [evidence(table, Level.ROW_GROUP, "a")],
        closed=frozenset({1}),
    )
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], [source])
    assert plan.keep.tolist() == [True, True]
    assert set(plan.details) == {0}
    assert plan.files[1].detail.rows is None


def test_decided_files_are_not_split_and_parts_find_their_parent() -> None:
    """a = 1: file 0 matches whole and file 1 not at all; only file 2 is split, to its second."""
    table = ModelTable([pages([[1]], [[1]]), pages([[5]]), pages([[0]], [[1]])])
    groups = evidence(table, Level.ROW_GROUP, "a")
    source = ModelSource(table, Level.ROW_GROUP, [groups])
    plan = plan_of(table, leaf("a", Op.EQ, 1), [evidence(table, Level.OBJECT, "a")], [source])
    assert [u.file.tolist() for u in source.split_units] == [[2]]
    assert plan.keep.tolist() == [True, False, True]
    assert plan.must.tolist() == [True, False, False]
    assert set(plan.details) == {2}
    assert plan.details[2].row_groups == (1,)
    assert plan.details[2].exact


def test_carried_files_are_split_by_a_later_level() -> None:
    """What the row group level could not split, the page level still can."""
    table = ModelTable([pages([[1], [2]])])
    finer = [
        ModelSource(table, Level.ROW_GROUP, closed=frozenset({0})),
        ModelSource(table, Level.PAGE, [evidence(table, Level.PAGE, "a")]),
    ]
    plan = plan_of(table, leaf("a", Op.EQ, 2), [], finer)
    assert plan.details[0].rows == RowSet([1], [2])


class Misfit(ModelSource):
    """Row groups that end one row early, as those of a footer older than the file."""

    def split(
        self, units: Units, columns: frozenset[str]
    ) -> tuple[Units, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        parts, parent = super().split(units, columns)
        short = np.where(parts.ordinal == 1, parts.rows - 1, parts.rows)
        return (
            Units(
                level=parts.level,
                file=parts.file,
                ordinal=parts.ordinal,
                first_row=parts.first_row,
                rows=short,
            ),
            parent,
        )


class Broken(ModelSource):
    """Raises where it is asked to split."""

    def split(
        self, units: Units, columns: frozenset[str]
    ) -> tuple[Units, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        raise OSError("footer gone")


class BrokenRows(ModelRows):
    """Raises where it is asked for evidence."""

    def evidence(self, file: int, columns: frozenset[str]) -> list[ModelEvidence]:
        raise OSError("pack gone")


def test_parts_that_do_not_cover_their_unit_are_not_believed() -> None:
    table = ModelTable([pages([[1]], [[2, 3]]), pages([[1]])])
    source = Misfit(table, Level.ROW_GROUP, [evidence(table, Level.ROW_GROUP, "a")])
    plan = plan_of(table, leaf("a", Op.EQ, 3), [], [source])
    assert plan.keep.tolist() == [True, False]
    assert 0 not in plan.details


def test_a_level_that_fails_is_left_out_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    table = ModelTable([pages([[1]], [[2]]), pages([[3]])])
    fine = evidence(table, Level.PAGE, "a")
    plan = plan_of(
        table,
        leaf("a", Op.EQ, 1),
        [evidence(table, Level.OBJECT, "a")],
        [Broken(table, Level.ROW_GROUP), ModelSource(table, Level.PAGE, [fine])],
        BrokenRows({}),
    )
    assert plan.keep.tolist() == [True, False]
    assert plan.details[0].rows == RowSet([0], [1])
    assert [str(r) for r in plan.reasons] == ["row groups: not looked at: OSError: footer gone"]
    assert "footer gone" in caplog.text


def test_rows_that_indexes_decide_are_asked_before_anything_is_opened() -> None:
    """Two files of two row groups. An index decides ``a`` in the first, and none in the second:
    only the second is asked row group by row group. What decides and fails is passed over."""
    table = ModelTable([pages([[1]], [[2]]), pages([[3]], [[1]])])
    for mode, opened in (("exact", [1]), ("raises", [0, 1])):
        sure = evidence(table, Level.ROW, "a", file=0, sure=True, mode=mode)
        groups = ModelSource(table, Level.ROW_GROUP, [evidence(table, Level.ROW_GROUP, "a")])
        plan = plan_of(table, leaf("a", Op.EQ, 1), [], [groups], ModelRows({0: [sure]}), CHEAP)
        # The first file is cut at last, because a row of it is read.
        asked = groups.split_units[0].file.tolist()
        assert asked == opened
        assert (plan.details[0].rows, plan.details[0].row_groups) == (RowSet([0], [1]), (0,))
        assert plan.details[1].row_groups == (1,)
        text = "row groups: not looked at in 1 of 2 files: indexes decide every row"
        assert [str(r) for r in plan.reasons] == ([text] if mode == "exact" else [])


def test_a_file_without_rows_that_match_is_dropped_by_its_rows() -> None:
    table = ModelTable([pages([[1]], [[2]])])
    sure = evidence(table, Level.ROW, "a", file=0, sure=True)
    plan = plan_of(
        table,
        leaf("a", Op.EQ, 7),
        [],
        [ModelSource(table, Level.ROW_GROUP)],
        ModelRows({0: [sure]}),
        CHEAP,
    )
    assert plan.dropped is not None
    assert plan.dropped.tolist() == [Level.ROW]
    assert [step.level for step in plan.steps] == [Level.ROW]


def test_broken_row_evidence_leaves_the_files(caplog: pytest.LogCaptureFixture) -> None:
    table = ModelTable([pages([[1, 2]]), pages([[1, 3]])])
    plan = plan_of(table, leaf("a", Op.EQ, 1), [], rows=BrokenRows({}))
    assert plan.keep.tolist() == [True, True]
    assert [str(r) for r in plan.reasons] == ["rows: not looked at: OSError: pack gone"]
    assert "pack gone" in caplog.text


def test_opaque_parts_are_named_once() -> None:
    table = ModelTable([pages([[1]])])
    opaque = Opaque("upper(c) = 'X'", "upper() keeps no order")
    tree = And((leaf("a", Op.EQ, 1), opaque, Or((opaque, leaf("a", Op.EQ, 2)))))
    plan = plan_of(table, tree, [evidence(table, Level.OBJECT, "a")])
    assert [str(r) for r in plan.reasons] == ["upper(c) = 'X': upper() keeps no order"]
    assert plan.residual == str(tree)


@pytest.mark.parametrize("tree", [leaf("a", Op.EQ, 1), And(()), Or(())])
def test_an_empty_table_is_planned(tree: Leaf | And | Or) -> None:
    table = ModelTable([])
    plan = plan_of(
        table,
        tree,
        [evidence(table, Level.OBJECT, "a")],
        [ModelSource(table, Level.ROW_GROUP), ModelSource(table, Level.PAGE)],
        ModelRows({}),
    )
    assert (plan.files_kept, plan.files_total, plan.exact) == (0, 0, True)


def test_files_without_rows_are_never_read() -> None:
    """File 0 has no row group, file 1 an empty one, of file 2 nobody knows the row count."""
    table = ModelTable([[], [[]], pages([[1]])])
    counts = np.array([0, 0, -1])
    listing = table.listing()
    plan = make_plan(
        PlanInput(
            tree=And(()),
            listing=listing,
            table="t",
            predicate="TRUE",
            objects=ObjectLevel(row_counts=counts),
        )
    )
    assert plan.keep.tolist() == [False, False, True]
    assert plan.residual is None
    assert not plan.exact, "every row matches, but nobody knows how many there are"
