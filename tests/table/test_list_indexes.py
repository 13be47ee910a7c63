"""The elements of lists, keys and values of maps, by indexes and by statistics of the files: the
rows are those of brute force, and exactly the files that hold an element are left.
``tests/spark/test_list_indexes.py`` compares with Spark itself."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import SkipstoneError
from skipstone.pruning import costs

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
        ([["a"]], TEXTS, "tags:bitmap", "elements of lists are not rows"),
        ([["a"]], TEXTS, "tags:ngram", "elements of lists are not rows"),
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
    if "not rows" in text:
        assert caught.value.hint == "minmax, valuelist and bloom are about whole files"


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


# -- keys and values of maps -----------------------------------------------------------------------

MAPS = pa.map_(pa.string(), pa.int32())


def maps_of(file: int, rows: int = 6) -> pa.Array:
    """Row ``n`` of file ``f`` has the keys ``k<f>`` and ``r<n>``, with the values f and 10 n."""
    found = [[(f"k{file}", file), (f"r{n}", None if n == 1 else 10 * n)] for n in range(rows)]
    return pa.array([None, [], *found[2:]] if file == 1 else found, MAPS)


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    """Files 0 to 3 have maps, file 1 also a null and an empty one; file 4 lacks the column."""
    root = tmp_path / "maps"
    root.mkdir()
    for file in range(5):
        columns = {"id": pa.array(range(10 * file, 10 * file + 6)), "m": maps_of(file)}
        table = pa.table(columns if file < 4 else {"id": columns["id"]})
        pq.write_table(table, root / f"{file}.parquet")
    return root


def test_keys_and_values_of_maps_are_indexed(mapped: Path) -> None:
    spec = ["map_keys(M):valuelist,bloom(fpp=0.0001)", "map_values(m):valuelist"]
    report = skipstone.Table(mapped).build(indexes=spec, pm="none")
    assert (report.files_built, report.left_out) == (5, ())
    third = list(range(20, 26))
    check(mapped, "map_contains_key(m, 'k2')", third, [2])
    check(mapped, "array_contains(map_keys(m), 'k2')", third, [2])
    check(mapped, "exists(map_keys(m), k -> k = 'k2')", third, [2])
    check(mapped, "map_contains_key(m, 'none')", [], [])
    check(mapped, "arrays_overlap(map_keys(m), array('k0', 'k3', 'none'))",
          [*range(6), *range(30, 36)], [0, 3])  # fmt: skip
    check(mapped, "array_contains(map_values(m), 2)", third, [2])
    check(mapped, "arrays_overlap(array(2, 5000000000L), map_values(m))", third, [2])
    check(mapped, "arrays_overlap(array(CAST(NULL AS INT), 5000000000L), map_values(m))", [], [])
    # The value of a key needs the key, and the value.
    check(mapped, "m['k2'] = 2", third, [2])
    check(mapped, "m['k2'] = 3", [], [])
    check(mapped, "m['k2'] IS NOT NULL", third, [2])
    check(mapped, "m['k2'] <> 3 OR m.k3 > 2", [*third, *range(30, 36)], [2, 3])
    check(mapped, "m['k2'] IS NULL AND id < 2", [0, 1], [0, 1, 2, 3, 4])
    check(mapped, "NOT map_contains_key(m, 'k2') AND id < 2", [0, 1], [0, 1, 2, 3, 4])
    check(mapped, "size(map_keys(m)) = 0", [11], [0, 1, 2, 3, 4])
    table = skipstone.Table(mapped)
    assert table.plan("m['k2'] = 2", inside=False).residual
    names = {each.column for each in table.describe().indexes}
    assert names == {"explode(map_keys(m)) :: string", "explode(map_values(m)) :: int"}
    assert not table.check(deep=True).untrue
    assert table.drop("map_values(m):valuelist").dropped


def test_a_deep_check_of_elements_beside_rows(mapped: Path) -> None:
    """Elements are more than rows, and stand in no AND with them."""
    skipstone.Table(mapped).build(indexes=["map_keys(m):bloom", "id:minmax,bitmap"], pm="none")
    report = skipstone.Table(mapped).check(deep=True)
    assert not report.untrue
    assert report.compared > 50


@pytest.mark.parametrize(
    "values, type, reason",
    [
        ([[("k", 1)]], pa.map_(pa.string(), pa.timestamp("us")), "a map of times has no index"),
        ([[("k", [1])]], pa.map_(pa.string(), pa.list_(pa.int32())), "not a list of atomic values"),
    ],
)
def test_maps_of_other_values_have_no_facts(
    tmp_path: Path, values: list[object], type: pa.DataType, reason: str
) -> None:
    pq.write_table(pa.table({"m": pa.array(values, type)}), tmp_path / "0.parquet")
    report = skipstone.Table(tmp_path).build(indexes=["map_keys(m):valuelist"], pm="none")
    assert reason in str(report.left_out), report.left_out
    assert skipstone.Table(tmp_path).count("map_contains_key(m, 'k')") == 1


def test_keys_that_arrow_does_not_read_have_no_facts(tmp_path: Path) -> None:
    """Values of only nulls, in pages of a byte."""
    maps = pa.array([[("a", None)]], MAPS)
    pq.write_table(pa.table({"m": maps}), tmp_path / "0.parquet", data_page_size=1)
    report = skipstone.Table(tmp_path).build(indexes=["map_keys(m):valuelist"], pm="none")
    if len(pq.ParquetFile(tmp_path / "0.parquet").read_row_group(0)) == 0:
        assert "Arrow reads 0 of 1 rows" in str(report.left_out)
    assert skipstone.Table(tmp_path).count("map_contains_key(m, 'a')") == 1


def test_what_a_row_index_decides_stays_decided(tmp_path: Path) -> None:
    """Statements about expressions narrow a condition, and do not make it less certain."""
    root = tmp_path / "events"
    root.mkdir()
    for file in range(3):
        columns = {"e": [f"U{file}{n % 5}" for n in range(50)], "m": maps_of(file, 50)}
        pq.write_table(pa.table(columns), root / f"{file}.parquet")
    spec = ["e:bitmap", "lower(e):valuelist", "m['k2']:bitmap", "map_keys(m):bloom"]
    skipstone.Table(root).build(indexes=spec)
    table = skipstone.Table(root)
    for where, rows in (("e = 'U13'", 10), ("m['k2'] = 2", 50), ("e IN ('U13', 'U20')", 20)):
        plan = table.plan(where)
        assert plan.residual is None, where
        assert table.count(where) == rows


# -- statistics of the files -----------------------------------------------------------------------


@pytest.fixture
def every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are looked into."""
    monkeypatch.setattr("skipstone.table.planning.LOCAL", costs.FREE)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.usefixtures("every_level")
def test_statistics_of_elements_skip_without_an_index(tmp_path: Path, dictionary: bool) -> None:
    """Each row group holds the tags and keys of its hundred rows, each page those of ten."""
    root = tmp_path / "events"
    root.mkdir()
    for file in range(2):
        numbers = range(file * 1000, file * 1000 + 300)
        tags = [[f"t{n:04}", None] if n % 3 else None for n in numbers]
        maps = [[(f"k{n // 10:03}", n)] if n % 7 else [] for n in numbers]
        columns = {"tags": pa.array(tags, TEXTS), "m": pa.array(maps, MAPS), "n": pa.array(numbers)}
        pq.write_table(
            pa.table(columns),
            root / f"{file}.parquet",
            row_group_size=100,
            data_page_size=10,
            write_batch_size=10,
            write_page_index=True,
            use_dictionary=dictionary,
        )
    table = skipstone.Table(root)
    for where, rows, groups in (
        ("array_contains(tags, 't1105')", [1105], 1),
        ("map_contains_key(m, 'k012')", [n for n in range(120, 130) if n % 7], 1),
        ("m['k012'] = 125", [125], 1),
        ("m['k012'] = 500", [], 0),
        ("array_contains(map_values(m), 1234)", [1234], 1),
        ("arrays_overlap(map_keys(m), array('k012', 'k110'))",
         [n for n in [*range(120, 130), *range(1100, 1110)] if n % 7], 2),
        ("array_contains(tags, 'a')", [], 0),
        ("NOT map_contains_key(m, 'k012') AND n = 126", [126], 6),
    ):  # fmt: skip
        plan = table.plan(where)
        kept = sum(len(each.row_groups or ()) for each in plan.details.values())
        assert table.query(where, columns=["n"]).column("n").to_pylist() == rows, where
        assert kept <= groups, where


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
