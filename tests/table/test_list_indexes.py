"""Indexes on the elements of lists: the rows are those of brute force, and exactly the files that
hold an element are left. ``tests/spark/test_list_indexes.py`` compares with Spark itself."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skipstone
from skipstone.errors import SkipstoneError

TEXTS = pa.list_(pa.string())
KINDS = ["bloom(fpp=0.0001)", "valuelist", "minmax"]


def write(path: Path, tags: list[object] | None, type: pa.DataType = TEXTS, first: int = 0) -> None:
    rows = 2 if tags is None else len(tags)
    columns = {"id": pa.array(range(first, first + rows), pa.int64())}
    if tags is not None:
        columns["tags"] = pa.array(tags, type)
    pq.write_table(pa.table(columns), path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Files whose lists differ in layout, and in what they hold."""
    folder = tmp_path / "events"
    folder.mkdir()
    write(folder / "0.parquet", [["a", "b"], ["c", None], None, []])
    write(folder / "1.parquet", [["d"], ["x", None]], first=10)
    write(folder / "2.parquet", [None, []], first=20)
    encoded = pa.large_list(pa.dictionary(pa.int32(), pa.string()))
    write(folder / "3.parquet", [["x"], ["a", "x"]], encoded, first=30)
    write(folder / "4.parquet", None, first=40)
    write(folder / "5.parquet", [["y", "a"], None], pa.list_(pa.string(), 2), first=50)
    return folder


def check(root: Path, where: str, rows: list[int], files: list[int]) -> None:
    table = skipstone.Table(root)
    plan = table.plan(where, inside=False)
    kept = [int(Path(plan.listing.paths[at]).stem) for at, keep in enumerate(plan.keep) if keep]
    assert kept == files, where
    assert table.query(where, columns=["id"]).column("id").to_pylist() == rows, where
    assert table.count(where) == len(rows), where


@pytest.mark.parametrize("kind", KINDS)
def test_files_without_the_element_are_skipped(root: Path, kind: str) -> None:
    report = skipstone.Table(root).build(indexes=[f"TAGS:{kind}"], pm="none")
    assert (report.files_built, report.left_out) == (6, ())
    every = [0, 1, 2, 3, 4, 5]
    exact = kind != "minmax"
    check(root, "array_contains(tags, 'x')", [11, 30, 31], [1, 3] if exact else [1, 3, 5])
    check(root, "array_contains(Tags, 'b')", [0], [0] if exact else [0, 3, 5])
    check(root, "array_contains(tags, 'none')", [], [] if exact else [1, 3, 5])
    check(root, "array_contains(tags, 'x') = true", [11, 30, 31], [1, 3] if exact else [1, 3, 5])
    check(root, "array_contains(tags, 'd') OR id = 1", [1, 10], every)
    check(root, "exists(tags, t -> t = 'x')", [11, 30, 31], [1, 3] if exact else [1, 3, 5])
    check(root, "exists(tags, Tag -> 'b' == tag) AND id < 5", [0], [0] if exact else [0, 3, 5])
    check(root, "array_contains(tags, lower('D'))", [10], [1] if exact else [1, 3, 5])
    # A row may hold both, though no value is both.
    both = "array_contains(tags, 'a') AND array_contains(tags, 'b')"
    check(root, both, [0], [0] if exact else [0, 3, 5])
    one_alone = "array_contains(tags, 'x') AND NOT array_contains(tags, 'a')"
    check(root, one_alone, [30], [1, 3] if exact else [1, 3, 5])


@pytest.mark.parametrize("kind", KINDS)
def test_what_elements_do_not_decide_reads_every_file(root: Path, kind: str) -> None:
    skipstone.Table(root).build(indexes=[f"tags:{kind}"], pm="none")
    every = [0, 1, 2, 3, 4, 5]
    # NULL where another element is null: neither it nor its negation.
    check(root, "NOT array_contains(tags, 'x')", [0, 3, 10, 21, 50], every)
    check(root, "array_contains(tags, 'x') IS NULL", [1, 2, 20, 40, 41, 51], every)
    check(root, "(array_contains(tags, 'x')) IS NOT TRUE",
          [0, 1, 2, 3, 10, 20, 21, 40, 41, 50, 51], every)  # fmt: skip
    check(root, "array_contains(tags, 'x') = false", [0, 3, 10, 21, 50], every)
    check(root, "NOT exists(tags, t -> t = 'x')", [0, 3, 10, 21, 50], every)
    check(root, "tags IS NULL", [2, 20, 40, 41, 51], every)
    check(root, "size(tags) = 0", [3, 21], every)
    assert skipstone.Table(root).count("array_contains(tags, NULL)") == 0


def test_the_table_says_what_the_index_holds(root: Path) -> None:
    table = skipstone.Table(root)
    table.build(indexes=["tags:bloom", "explode(tags):valuelist"], pm="none")
    again = skipstone.Table(root).build(indexes=["`Tags`:bloom"], pm="none")
    assert (again.files_built, again.files_already) == (0, 6)
    names = [(each.column, each.kind) for each in skipstone.Table(root).describe().indexes]
    name = "explode(tags) :: string"
    assert sorted(names) == [(name, "bloomfilter"), (name, "valuelist")]
    report = skipstone.Table(root).check(deep=True)
    assert not report.untrue
    assert report.compared > 50
    write(root / "6.parquet", [["new"]], first=60)
    assert skipstone.Table(root).refresh(pm="none").files_built == 1
    check(root, "array_contains(tags, 'new')", [60], [6])
    assert skipstone.Table(root).drop("tags:bloom").dropped
    assert [each.kind for each in skipstone.Table(root).describe().indexes] == ["valuelist"]


def test_integers_of_another_width(tmp_path: Path) -> None:
    root = tmp_path / "events"
    root.mkdir()
    write(root / "0.parquet", [[1, 2], [3]], pa.list_(pa.int16()))
    write(root / "1.parquet", [[70_000, None]], pa.list_(pa.int32()), first=10)
    report = skipstone.Table(root).build(indexes=["tags:valuelist"], pm="none")
    assert report.files_built == 2
    check(root, "array_contains(tags, 3)", [1], [0])
    check(root, "array_contains(tags, 3L)", [1], [0])
    check(root, "array_contains(tags, 70000L)", [10], [1])
    check(root, "array_contains(tags, 5000000000)", [], [])
    check(root, "NOT array_contains(tags, 5000000000)", [0, 1], [0, 1])
    write(root / "2.parquet", [[5_000_000_000]], pa.list_(pa.int64()), first=20)
    check(root, "array_contains(tags, 5000000000)", [20], [0, 1, 2])
    assert "in this session it is explode(tags) :: bigint" in str(
        skipstone.Table(root).explain("array_contains(tags, 3L)")
    )
    skipstone.Table(root).refresh()
    check(root, "array_contains(tags, 5000000000)", [20], [2])
    check(root, "array_contains(tags, 3)", [1], [0])


def test_times_decimals_and_doubles(tmp_path: Path) -> None:
    root = tmp_path / "events"
    root.mkdir()
    for part in range(3):
        day = part * 86_400_000_000
        columns = {
            "id": [part],
            "day": pa.array([[part, None]], pa.list_(pa.date32())),
            "ts": pa.array([[day, day + 1]], pa.list_(pa.timestamp("us", "UTC"))),
            "d": pa.array([[float(part), float("nan") if part else -0.0]]),
            "s": pa.array([{"in": [f"in{part}"]}]),
        }
        pq.write_table(pa.table(columns), root / f"{part}.parquet")
    wanted = ["day:valuelist", "ts:valuelist", "d:valuelist,bloom", "s.in:valuelist"]
    report = skipstone.Table(root).build(indexes=wanted, pm="none")
    assert not report.left_out
    check(root, "array_contains(day, DATE '1970-01-02')", [1], [1])
    check(root, "array_contains(ts, TIMESTAMP '1970-01-03 00:00:00')", [2], [2])
    check(root, "array_contains(d, 0.0D)", [0], [0])
    check(root, "array_contains(d, DOUBLE('NaN'))", [1, 2], [1, 2])
    check(root, "array_contains(s.in, 'in1')", [1], [1])


@pytest.mark.parametrize(
    "values, type, spec, text",
    [
        ([[["a"]]], pa.list_(TEXTS), "tags:bloom", "elements are those of a column of lists"),
        ([[{"a": 1}]], None, "tags:bloom", "elements are those of a column of lists"),
        ([["a"]], TEXTS, "tags:bitmap", "elements of lists are no rows"),
        ([["a"]], TEXTS, "tags:ngram", "elements of lists are no rows"),
        ([["a"]], TEXTS, "explode(id):bloom", "not of int64"),
        ([["a"]], TEXTS, "tag:bloom", "tags"),
    ],
)
def test_what_has_no_elements_is_refused(
    tmp_path: Path, values: list[object], type: pa.DataType | None, spec: str, text: str
) -> None:
    root = tmp_path / "events"
    root.mkdir()
    write(root / "0.parquet", values, type or pa.array(values).type)
    with pytest.raises(SkipstoneError) as caught:
        skipstone.Table(root).build(indexes=[spec])
    assert text in f"{caught.value} {getattr(caught.value, 'nearest', '')}"


def test_the_default_of_a_missing_list_is_not_empty(tmp_path: Path) -> None:
    """A column that was added with a default has it in older files, for Spark."""
    root = tmp_path / "events"
    root.mkdir()
    write(root / "0.parquet", None)
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {
            "name": "tags",
            "type": {"type": "array", "elementType": "string", "containsNull": True},
            "nullable": True,
            "metadata": {"EXISTS_DEFAULT": "ARRAY('x')", "CURRENT_DEFAULT": "ARRAY('x')"},
        },
    ]
    noted = json.dumps({"type": "struct", "fields": fields})
    table = pa.table({"id": [10], "tags": pa.array([["x"]], TEXTS)})
    key = "org.apache.spark.sql.parquet.row.metadata"
    pq.write_table(table.replace_schema_metadata({key: noted}), root / "1.parquet")
    report = skipstone.Table(root).build(indexes=["tags:valuelist"], pm="none")
    assert [each.text for each in report.left_out] == ["tags is not in this file"]


# -- random files ----------------------------------------------------------------------------------

WORDS = [*"abcdef", "", "é"]
NUMBERS = [-(2**31), -1, 0, 1, 7, 2**15, 2**31 - 1]
TEXT_TYPES = [
    *(TEXTS, pa.large_list(pa.string()), pa.list_(pa.large_string())),
    *(pa.list_(pa.dictionary(pa.int8(), pa.string())), None),
]
NUMBER_TYPES = [pa.list_(pa.int32()), pa.list_(pa.int64()), pa.large_list(pa.int32()), None]


@st.composite
def files(draw: st.DrawFn, texts: bool) -> list[tuple[pa.DataType | None, list[object]]]:
    element = st.one_of(st.none(), st.sampled_from(WORDS if texts else NUMBERS))
    rows = st.lists(st.one_of(st.none(), st.lists(element, max_size=4)), min_size=1, max_size=6)
    types = st.sampled_from(TEXT_TYPES if texts else NUMBER_TYPES)
    found = draw(st.lists(st.tuples(types, rows), min_size=1, max_size=4))
    own = TEXTS if texts else pa.list_(pa.int32())
    return [(own, draw(rows)), *found]


def holds(tags: list[object] | None, value: object) -> bool | None:
    if tags is None:
        return None
    return True if value in tags else None if None in tags else False


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_rows_are_those_of_brute_force(data: st.DataObject) -> None:
    texts = data.draw(st.booleans())
    made = data.draw(files(texts))
    kind = data.draw(st.sampled_from(["valuelist", "minmax", "bloom", "bloom,minmax"]))
    value = st.sampled_from(WORDS if texts else NUMBERS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "events"
        root.mkdir()
        every: list[tuple[int, int, Any]] = []
        for part, (type, rows) in enumerate(made):
            first = 100 * part
            columns = {"id": pa.array(range(first, first + len(rows)), pa.int64())}
            if type is not None:
                columns["tags"] = pa.array(rows, type)
            pq.write_table(pa.table(columns), root / f"{part}.parquet", row_group_size=2)
            every += [(part, first + n, None if type is None else t) for n, t in enumerate(rows)]
        skipstone.Table(root).build(indexes=[f"tags:{kind}"], pm="none")
        table = skipstone.Table(root)
        for _ in range(2):
            a, b = data.draw(value), data.draw(value)
            literals = [f"'{each}'" if texts else str(each) for each in (a, b)]
            one, two = (f"array_contains(tags, {each})" for each in literals)
            cases: list[tuple[str, Any]] = [
                (one, lambda t, a=a: holds(t, a)),
                (f"NOT {one}", lambda t, a=a: holds(t, a) is False),
                (f"{one} AND {two}", lambda t, a=a, b=b: holds(t, a) and holds(t, b)),
                (f"{one} OR {two}", lambda t, a=a, b=b: holds(t, a) or holds(t, b)),
                (f"{one} AND NOT {two}", lambda t, a=a, b=b: holds(t, a) and holds(t, b) is False),
                (f"({one} AND {two}) IS NULL OR tags IS NULL",
                 lambda t, a=a, b=b: t is None or (
                     False not in (holds(t, a), holds(t, b)) and None in (holds(t, a), holds(t, b))
                 )),
            ]  # fmt: skip
            for where, truth in cases:
                found = table.query(where, columns=["id"]).column("id").to_pylist()
                assert found == [n for _, n, t in every if truth(t)], where
            if kind == "valuelist":
                plan = table.plan(one, inside=False)
                kept = {
                    int(Path(plan.listing.paths[at]).stem)
                    for at, keep in enumerate(plan.keep)
                    if keep
                }
                assert kept == {part for part, _, t in every if t is not None and a in t}, one


def test_a_deep_check_does_not_take_elements_for_rows(tmp_path: Path) -> None:
    """Conditions on an element and on a column of the row are true of other places."""
    root = tmp_path / "t"
    root.mkdir()
    for at in range(4):
        write(root / f"{at}.parquet", [["a", "b"], ["c", "d", "e"], None, ["a"]] * 10, first=at)
    table = skipstone.Table(root)
    table.build(indexes=["tags:bloom", "tags:valuelist", "id:minmax", "id:bitmap"])
    report = table.check(deep=True)
    assert report.ok, report
    assert "rebuilt the facts of 4 of 4 files" in str(report)
