"""Comparisons of two columns: the rows are those of brute force, and bounds of both columns leave
out files, row groups and pages."""

from __future__ import annotations

import math
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skipstone
from skipstone.pruning import Level, costs

if TYPE_CHECKING:
    from pathlib import Path

FILES, GROUPS, EACH = 6, 4, 50_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In even files b is above a in all rows, in file 5 it is null; in file 3 its last row group is
    above."""
    folder = tmp_path_factory.mktemp("pairs") / "t"
    folder.mkdir()
    for part in range(FILES):
        a = [part * 10**7 + n for n in range(GROUPS * EACH)]
        moved = [10**6 * (1 if part % 2 == 0 else -1)] * (GROUPS * EACH)
        if part == 3:
            moved[-EACH:] = [10**6] * EACH
        b = [x + m for x, m in zip(a, moved, strict=True)]
        table = pa.table(
            {
                "id": pa.array(range(part * len(a), part * len(a) + len(a)), pa.int64()),
                "a": pa.array(a, pa.int32()),
                "b": pa.array([None] * len(b) if part == 5 else b, pa.int64()),
            }
        )
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=EACH)
    return folder


CASES = [
    ("a < b", [0, 2, 3, 4], 13),
    ("b > a", [0, 2, 3, 4], 13),
    ("a >= b", [1, 3], 7),
    ("NOT (a < b)", [1, 3], 7),
    ("a = b AND id < 600000", [], 0),
    ("a <= b AND id < 100", [0], 1),
    ("a < b OR id = 200001", [0, 1, 2, 3, 4], 14),
    ("b IS NULL AND NOT (a <=> b)", [5], 4),
]


@pytest.mark.parametrize("where, kept, groups", CASES, ids=[case[0] for case in CASES])
def test_bounds_of_both_columns_leave_out_files_and_row_groups(
    root: Path, tmp_path: Path, where: str, kept: list[int], groups: int
) -> None:
    bare = skipstone.Table(root)
    indexed = skipstone.Table(root, index_location=tmp_path / "some")
    indexed.build(indexes=["a:minmax", "b:minmax", "id:minmax"], pm="none")
    every = pa.concat_tables([pq.read_table(root / f"{n}.parquet") for n in range(FILES)])
    expected = _brute(every, where)
    for table in (bare, indexed):
        found = table.query(where, columns=["id"]).column("id")
        assert set(found.to_pylist()) == expected
        plan = table.plan(where)
        read = sum(
            GROUPS
            if (detail := plan.details.get(at)) is None or detail.row_groups is None
            else len(detail.row_groups)
            for at, keep in enumerate(plan.keep)
            if keep
        )
        assert (plan.files_kept, read) == (len(kept), groups)
    files = indexed.plan(where, inside=False)
    assert [at for at, keep in enumerate(files.keep) if keep] == kept


@pytest.mark.parametrize("where", ["a < b", "b > a", "NOT (a >= b)", "a <= b AND id > 5"])
def test_bounds_of_both_columns_leave_out_pages(tmp_path: Path, where: str) -> None:
    """A page of a has 2,048 rows, one of b 1,024; b is above a in rows 123,000 to 123,099."""
    a = range(200_000)
    table = pa.table(
        {
            "id": pa.array(a, pa.int64()),
            "a": pa.array(a, pa.int32()),
            "b": pa.array([n + (50 if 123_000 <= n < 123_100 else -9_000) for n in a], pa.int64()),
            "body": [f"{n * 2_654_435_761 % 2**64:x}" for n in a],
        }
    )
    options = {"use_dictionary": False, "write_page_index": True, "data_page_size": 8_192}
    pq.write_table(table, tmp_path / "0.parquet", row_group_size=100_000, **options)
    plan = skipstone.Table(tmp_path).plan(where)
    (step,) = [s for s in plan.steps if s.level is Level.PAGE and s.column.startswith("(")]
    assert step.kept <= 3 < 90 < step.considered
    found = skipstone.Table(tmp_path).query(where, columns=["id"]).column("id").to_pylist()
    assert found == list(range(123_000, 123_100))


def _brute(every: pa.Table, where: str) -> set[int]:
    from skipstone.predicate.binding import bind
    from skipstone.predicate.sql import parse_sql
    from skipstone.pruning.residual import matching

    tree = bind(parse_sql(where), every.schema)
    columns = {name: every.column(name) for name in every.column_names}
    flags = matching(tree, columns, len(every))
    return set(every.column("id").filter(pa.array(flags)).to_pylist())


VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "tiny": (pa.int8(), st.integers(-3, 3)),
    "int": (pa.int32(), st.integers(-3, 3)),
    "long": (pa.int64(), st.integers(-3, 3)),
    "unsigned": (pa.uint32(), st.integers(0, 3)),
    "float": (pa.float32(), st.sampled_from([-0.0, 0.0, 1.5, math.nan, math.inf, -1.0])),
    "double": (pa.float64(), st.sampled_from([-0.0, 0.0, 1.5, math.nan, math.inf, -1.0])),
    "dec": (pa.decimal128(5, 2), st.integers(-3, 3).map(lambda n: Decimal(n) / 2)),
    "wide": (pa.decimal128(9, 3), st.integers(-3, 3).map(lambda n: Decimal(n) / 2)),
    "text": (pa.string(), st.sampled_from(["", "a", "b", "é", "z" * 70, "z" * 69 + "a"])),
    "day": (pa.date32(), st.integers(0, 3).map(lambda n: date(2026, 1, 1) + timedelta(n))),
    "flag": (pa.bool_(), st.booleans()),
}


@given(data=st.data())
def test_rows_are_those_of_brute_force(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Pages of the two columns begin at other rows, as their values have other widths."""
    folder = tmp_path_factory.mktemp("random") / "t"
    folder.mkdir()
    first = data.draw(st.sampled_from(sorted(VALUES)))
    numbers = ("tiny", "int", "long", "unsigned", "float", "double", "dec", "wide")
    second = data.draw(st.sampled_from(numbers if first in numbers else (first,)))
    parts = []
    for part in range(3):
        count = data.draw(st.integers(0, 6))
        columns: dict[str, Any] = {"id": pa.array(range(part * 10, part * 10 + count), pa.int64())}
        for name, kind in (("a", first), ("b", second)):
            type, values = VALUES[kind]
            drawn = [data.draw(st.none() | values) for _ in range(count)]
            columns[name] = pa.array(drawn, type)
        parts.append(pa.table(columns))
        pq.write_table(
            parts[-1],
            folder / f"{part}.parquet",
            row_group_size=data.draw(st.sampled_from([2, 4, 10])),
            write_page_index=data.draw(st.booleans()),
            use_dictionary=False,
            write_batch_size=1,
            data_page_size=data.draw(st.sampled_from([1, 6, 16])),
        )
    table = skipstone.Table(folder)
    kinds = data.draw(st.sampled_from([[], ["a:minmax", "b:minmax"], ["a:minmax"]]))
    if kinds:
        table.build(indexes=kinds)
    every = pa.concat_tables(parts)
    for op in ("<", "<=", ">", ">=", "=", "<>", "<=>"):
        where = data.draw(st.sampled_from([f"a {op} b", f"NOT (a {op} b)", f"b {op} a OR id = 3"]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("skipstone.table.planning.LOCAL", costs.FREE)
            found = skipstone.Table(folder).query(where, columns=["id"]).column("id").to_pylist()
        assert set(found) == _brute(every, where), where
