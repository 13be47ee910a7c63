"""Conditions on one column that are asked together, of value lists and of dictionaries.

Most files have values on both sides of a range and none within it: each condition alone keeps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone import Table
from skipstone.indexes.valuelist import ValueList
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import And, Joint, leaves
from skipstone.pruning.pairs import with_joint
from tests.build.built import Indexed
from tests.oracle import matching_rows

if TYPE_CHECKING:
    from pathlib import Path

FILES = 100
WITHIN = range(40, 46)


def write(root: Path) -> None:
    """File f has 10 f and 10 f + 5000 of 0 … 5999, and file 40 to 45 a value about 2,500 too; the
    texts are of the same order. One value in ten is null."""
    root.mkdir()
    for file in range(FILES):
        numbers = [10 * file, 10 * file + 5_000, *([2_500 + file] if file in WITHIN else [])]
        rows: list[int | None] = [numbers[row % len(numbers)] for row in range(60)]
        rows[::10] = [None] * 6
        texts = [None if number is None else f"K{number:04d}" for number in rows]
        tags = [None if number is None else [f"t{number:04d}", "t9"] for number in rows]
        table = pa.table({
            "n": pa.array(rows, pa.int32()), "s": texts, "x": [float(n or 0) for n in rows],
            "tags": pa.array(tags, pa.list_(pa.string())),
        })  # fmt: skip
        pq.write_table(table, root / f"{file:03}.parquet")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    root = tmp_path_factory.mktemp("joint") / "t"
    write(root)
    table = Table(str(root))
    table.build(
        indexes=["n:valuelist", "s:valuelist", "lower(s):valuelist", "explode(tags):valuelist"],
        pm="none",
    )
    return table


@pytest.mark.parametrize(
    "where, kept",
    [
        ("n BETWEEN 2400 AND 2600", 6),
        ("n >= 2400 AND n <= 2600", 6),
        ("n > 2541 AND n < 2544", 2),
        ("2400 < n AND n < 2600 AND s IS NOT NULL", 6),
        ("n BETWEEN 2400 AND 2600 OR n = 30", 7),
        ("NOT (n < 2400 OR n > 2600)", 6),
        ("NOT (n BETWEEN -1 AND 100000)", 0),
        ("n NOT BETWEEN 2400 AND 2600", FILES),
        ("n NOT IN (5000, 5010) AND n BETWEEN 5000 AND 5015", 0),
        ("n > 100 AND n < 50", 0),
        ("CAST(n AS BIGINT) BETWEEN 2400 AND 2600", 6),
        ("n + 1 BETWEEN 2401 AND 2601", 6),
        ("s >= 'K24' AND s < 'K26'", 6),
        ("s LIKE 'K25%' AND s LIKE '%42'", 1),
        ("lower(s) >= 'k24' AND lower(s) < 'k26'", 6),
        ("s BETWEEN 'K24' AND 'K26' AND n BETWEEN 2541 AND 2543", 3),
        # Two elements may match: no value has to match both.
        ("array_contains(tags, 't0100') AND array_contains(tags, 't9')", 1),
    ],
)
def test_files_that_a_range_leaves(table: Table, where: str, kept: int) -> None:
    plan = table.plan(where, inside=False)
    assert plan.files_kept == kept
    run_by_run = table.plan(where, inside=False, memory=0)
    assert run_by_run.keep.tolist() == plan.keep.tolist()


@pytest.mark.parametrize("where", ["n BETWEEN 2400 AND 2600", "n BETWEEN 2400 AND 2600 OR n = 30"])
def test_the_rows_are_those_of_all_files(table: Table, where: str) -> None:
    every = pq.read_table(table.path)
    assert table.count(where) == len(matching_rows(every.select(["n"]), where)) > 0


def test_elements_of_lists_are_not_asked_together(table: Table) -> None:
    # Both are elements of rows of file 10, and no element is both.
    where = "array_contains(tags, 't0100') AND array_contains(tags, 't9')"
    assert table.count(where) == 24


def test_dictionaries_of_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rng = np.random.default_rng(0)
    columns = []
    for group in range(8):
        numbers = rng.choice([group, 1_000 + group, *([500] if group == 3 else [])], 4_000)
        columns.append(pa.table({"n": numbers, "pad": rng.random(4_000)}))
    pq.write_table(pa.concat_tables(columns), path, row_group_size=4_000)
    table = Table(str(path))
    plan = table.plan("n BETWEEN 400 AND 600")
    (detail,) = plan.details.values()
    assert detail.row_groups == (3,)
    assert table.count("n BETWEEN 400 AND 600") == int((columns[3]["n"].to_numpy() == 500).sum())
    assert table.plan("n BETWEEN 400 AND 450").files_kept == 0


# -- against brute force ---------------------------------------------------------------------------

DOUBLES = [float("nan"), -0.0, 0.0, 1.5, -1.5, float("inf"), float("-inf")]
TYPES: list[tuple[pa.DataType, list[Any], list[str]]] = [
    (pa.float64(), DOUBLES, ["double('nan')", "0.0D", "-0.0D", "1.0D", "double('-inf')"]),
    (pa.int8(), [-128, -1, 0, 1, 127], ["0", "-1", "300", "126"]),
    (pa.string(), ["", "a", "ab", "b", "é", "z%"], ["''", "'a'", "'b'", "'é'"]),
    (pa.bool_(), [False, True], ["false", "true"]),
]
OPS = ["<", "<=", ">", ">=", "=", "<>"]


@settings(deadline=None)
@given(st.data())
def test_no_matching_file_is_lost(data: st.DataObject) -> None:
    type, values, literals = data.draw(st.sampled_from(TYPES))
    value = st.one_of(st.none(), st.sampled_from(values))
    files = data.draw(st.lists(st.lists(value, max_size=4), min_size=1, max_size=5))
    parts = data.draw(
        st.lists(
            st.builds("c {} {}".format, st.sampled_from(OPS), st.sampled_from(literals)),
            min_size=2,
            max_size=3,
        )
    )
    where = " AND ".join(parts)
    tree = with_joint(bind(parse_sql(where), pa.schema([("c", type)])))
    arrays = [pa.array(file, type) for file in files]
    indexed = Indexed(ValueList("c"), arrays)
    joint = [each for each in leaves(tree) if isinstance(each, Joint)]
    for each in joint:
        bounds = indexed.ask(each).bounds
        assert bounds is not None
        if len(each.parts) == sum(1 for leaf in leaves(tree) if not isinstance(leaf, Joint)):
            exact = [bool(matching_rows(pa.table({"c": array}), where)) for array in arrays]
            assert bounds.may.tolist() == exact
        else:
            assert isinstance(tree, And)
