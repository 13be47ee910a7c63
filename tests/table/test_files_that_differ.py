"""Tables whose files differ: the schema is that of all files, whichever is listed first.

Each test writes the files in every order, queries without an index, builds one, and queries again:
rows and schema are the same.
"""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile, Table
from skipstone.errors import SkipstoneError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

INT32 = pa.table({"v": pa.array([1, 2, None], pa.int32())})
INT64 = pa.table({"v": pa.array([3, 3_000_000_000], pa.int64())})
INT16 = pa.table({"v": pa.array([7, -7], pa.int16())})
FLOAT = pa.table({"v": pa.array([0.5, float("nan")], pa.float32())})
DEEP = pa.struct({"m": pa.map_(pa.string(), pa.int32())})
DOUBLE = pa.table({"v": pa.array([1e300, 0.1, -0.0])})


def orders(
    path: Path, files: Sequence[pa.Table], indexes: Sequence[str]
) -> Iterator[Callable[[], Table]]:
    """Tables of these files: each order of their names, without an index and with ``indexes``. Each
    result opens the table anew."""
    for number, order in enumerate(itertools.permutations(files)):
        root = path / f"t{number}"
        root.mkdir()
        for at, content in enumerate(order):
            pq.write_table(content, root / f"{at}.parquet")
        opened = partial(Table, str(root))
        yield opened
        opened().build(indexes=indexes)
        yield opened


def values(table: Table, *args: Any, **options: Any) -> list[Any]:
    return sorted(map(repr, table.query(*args, **options).column(0).to_pylist()))


@pytest.mark.parametrize("index", ["v:minmax", "v:valuelist", "v:bloom", "v:bitmap"])
def test_an_int_is_read_as_the_bigint_of_another_file(tmp_path: Path, index: str) -> None:
    for opened in orders(tmp_path, [INT32, INT64, INT16], [index]):
        assert opened().query("v > 2999999999").to_pydict() == {"v": [3_000_000_000]}
        assert opened().count("v <= 2999999999") == 5
        assert opened().count("v = 3000000000") == 1
        assert opened().count("v <> 3000000000") == 5
        assert opened().query().schema == pa.schema([("v", pa.int64())])
        assert opened().max("v") == 3_000_000_000
        assert opened().min("v") == -7
        largest = opened().query(order_by="v desc", limit=2)
        assert largest.to_pydict() == {"v": [3_000_000_000, 7]}


def test_a_float_is_read_as_the_double_of_another_file(tmp_path: Path) -> None:
    for opened in orders(tmp_path, [FLOAT, DOUBLE], ["v:minmax"]):
        found = values(opened())
        assert found == sorted(map(repr, [0.5, float("nan"), 1e300, 0.1, -0.0]))
        assert opened().count("v = 0.1D") == 1
        assert values(opened(), "v > 1e38") == ["1e+300", "nan"]


def test_a_decimal_is_read_with_the_digits_of_another_file(tmp_path: Path) -> None:
    narrow = pa.table({"v": pa.array([Decimal("1.25")], pa.decimal128(5, 2))})
    wide = pa.table({"v": pa.array([Decimal("12345678.1234")], pa.decimal128(18, 4))})
    for opened in orders(tmp_path, [narrow, wide], ["v:minmax"]):
        assert opened().query("v < 2").to_pydict() == {"v": [Decimal("1.2500")]}
        assert opened().query().schema.field("v").type == pa.decimal128(18, 4)


def test_int96_is_an_instant_on_every_route(tmp_path: Path) -> None:
    """Beside microseconds, at every depth, in years that nanoseconds do not hold."""
    utc = pa.timestamp("us", "UTC")
    years = [datetime(year, 12, 31, 23, 59, 59, 999_999, UTC) for year in (1, 1600, 2024, 9999)]
    at = pa.array([*years, None], utc)
    deep = pa.StructArray.from_arrays([at, pa.array([[each] for each in years] + [[]])], ["x", "l"])
    content = pa.table({"at": at, "deep": deep})
    for name, int96 in (("0", True), ("1", False), ("2", True)):
        pq.write_table(content, tmp_path / f"{name}.parquet", use_deprecated_int96_timestamps=int96)
    where = "at > timestamp'2500-01-01 00:00:00'"
    for index in ([], ["at:minmax"]):
        if index:
            Table(str(tmp_path)).build(indexes=index)
        table = Table(str(tmp_path))
        assert table.query().schema == content.schema
        assert table.query().to_pylist() == content.to_pylist() * 3
        assert table.count(where) == 3
        assert (table.min("at"), table.max("at")) == (years[0], years[-1])
        assert table.query(where, ["at"]).column(0).to_pylist() == years[-1:] * 3
        # The local time of the predicate is in the zone that is given.
        local = "at = timestamp'2025-01-01 00:59:59.999999'"
        assert table.count(local, time_zone="Europe/Berlin") == 3
        assert table.count(local) == 0
        scan = table.scan(where)
        pyarrow = scan.to_pyarrow().to_table()
        assert pyarrow.schema.field("at").type == utc
        assert pyarrow.column("at").to_pylist() == content.column("at").to_pylist() * 3
        polars = scan.to_polars().select("at").collect().to_arrow()
        assert polars.column("at").to_pylist() == content.column("at").to_pylist() * 3
        with pytest.raises(UnsupportedError, match="INT96 below it"):
            scan.to_duckdb()
    file = ParquetFile(str(tmp_path / "0.parquet"))
    assert file.query(where).to_pylist() == content.slice(3, 1).to_pylist()
    assert file.read_rows().to_pylist() == content.to_pylist()


def test_polars_reads_dictionaries_beside_int96(tmp_path: Path) -> None:
    """In a struct and in a list of it: polars has its own type for a dictionary of texts."""
    at = pa.array([datetime(2024, 6, 1, 12, tzinfo=UTC), None], pa.timestamp("us", "UTC"))
    texts = pa.array(["a", None])
    wanted = []
    for name, kind in (("0", pa.dictionary(pa.int32(), pa.string())), ("1", pa.string())):
        inner = pa.StructArray.from_arrays([texts.cast(kind), at], ["text", "at"])
        lists = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), inner)
        deep = pa.StructArray.from_arrays([inner, lists], ["one", "many"])
        content = pa.table({"deep": deep})
        wanted += content.to_pylist()
        int96 = kind != pa.string()
        path = tmp_path / f"{name}.parquet"
        pq.write_table(content, path, use_deprecated_int96_timestamps=int96)
    table = Table(str(tmp_path))
    assert table.query().to_pylist() == wanted
    assert table.scan().to_polars().collect().to_arrow().to_pylist() == wanted


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_an_arrow_schema_in_the_file_does_not_change_int96(
    tmp_path: Path, unit: str, zone: str | None
) -> None:
    at = datetime(2024, 6, 1, 12, tzinfo=UTC)
    content = pa.table({"at": pa.array([at, None], pa.timestamp(unit, zone))})
    pq.write_table(content, tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    table = Table(str(tmp_path))
    assert table.query().schema.field("at").type == pa.timestamp("us", "UTC")
    scan = table.scan()
    for found in (
        table.query(),
        scan.to_pyarrow().to_table(),
        scan.to_polars().collect().to_arrow(),
        scan.to_duckdb().to_arrow_table(),
    ):
        values = [each and each.astimezone(UTC) for each in found.column("at").to_pylist()]
        assert values == [at, None]


def test_duckdb_takes_int96_for_instants_whatever_its_zone(tmp_path: Path) -> None:
    at = datetime(2024, 6, 1, 12, tzinfo=UTC)
    content = pa.table({"at": pa.array([at], pa.timestamp("us", "UTC"))})
    for int96 in (True, False):
        path = tmp_path / f"{int96}.parquet"
        pq.write_table(content, path, use_deprecated_int96_timestamps=int96)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Tokyo'")
    relation = Table(str(tmp_path)).scan().to_duckdb(connection)
    found = relation.to_arrow_table().column("at")
    assert [each.astimezone(UTC) for each in found.to_pylist()] == [at, at]


def test_a_column_that_only_some_files_have_is_null_in_the_others(tmp_path: Path) -> None:
    less = pa.table({"a": [1]})
    more = pa.table({"a": [2], "b": ["x"]})
    for opened in orders(tmp_path, [less, more], ["a:minmax", "b:valuelist"]):
        assert opened().query("b = 'x'").to_pylist() == [{"a": 2, "b": "x"}]
        assert opened().query("b is null").to_pylist() == [{"a": 1, "b": None}]
        assert set(opened().query().schema.names) == {"a", "b"}


def test_lists_and_maps_of_no_type_have_the_type_of_another_file(tmp_path: Path) -> None:
    """A writer without a value has no type for a column, and every row is null."""
    lists = pa.array([[1, 2], None], pa.list_(pa.int32()))
    maps = pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32()))
    typed = pa.table({"l": lists, "m": maps, "s": pa.array([{"m": [("a", 1)]}, None], DEEP)})
    untyped = pa.table({name: pa.nulls(2) for name in typed.column_names})
    for opened in orders(tmp_path, [typed, untyped], ["l:bloom", "m['a']:minmax"]):
        for where in (
            "array_contains(l, 1)",
            "size(l) = 2",
            "arrays_overlap(l, array(2, 3))",
            "map_contains_key(m, 'a')",
            "array_contains(map_values(m), 1)",
            "m['a'] = 1",
            "s.m['a'] = 1",
        ):
            assert opened().count(where) == opened().query(where).num_rows == 1, where
        for where in ("size(l) IS NULL", "m['a'] IS NULL", "NOT (m['a'] = 1) IS TRUE"):
            assert opened().count(where) == opened().query(where).num_rows == 3, where


def test_a_column_of_one_file_of_many_is_found(tmp_path: Path) -> None:
    for at in range(40):
        content = pa.table({"a": [at]})
        if at == 19:
            content = content.append_column("late", pa.array(["x"]))
        pq.write_table(content, tmp_path / f"{at:02}.parquet")
    assert Table(str(tmp_path)).query("late = 'x'").to_pylist() == [{"a": 19, "late": "x"}]


def test_names_match_without_case_at_every_depth(tmp_path: Path) -> None:
    one = pa.table({"Id": [1], "s": [{"a": 1}]})
    other = pa.table({"id": [2], "S": [{"A": 2, "b": 3}]})
    for opened in orders(tmp_path, [one, other], ["id:minmax", "s.a:minmax"]):
        found = opened().query("s.a = 2 and ID = 2", columns=["s.a"])
        assert [next(iter(row.values())) for row in found.to_pylist()] in ([{"a": 2}], [{"A": 2}])
        rows = [tuple(row.values()) for row in opened().query("id >= 1").to_pylist()]
        assert sorted(tuple(s.values()) for _, s in rows) in (
            [(1, None), (2, 3)],
            [(1, None), (2, 3)],
        )


def test_nested_fields_merge_in_structs_lists_and_maps(tmp_path: Path) -> None:
    one = pa.table(
        {
            "l": [[{"a": 1}], None, []],
            "m": pa.array(
                [[("k", {"x": 1})], None, []],
                pa.map_(pa.string(), pa.struct([("x", pa.int32())])),
            ),
        }
    )
    other = pa.table(
        {
            "l": [[{"a": 2, "b": "z"}]],
            "m": pa.array(
                [[("k", {"x": 2**40, "y": 1.5})]],
                pa.map_(pa.string(), pa.struct([("x", pa.int64()), ("y", pa.float64())])),
            ),
        }
    )
    pq.write_table(one, tmp_path / "0.parquet")
    pq.write_table(other, tmp_path / "1.parquet")
    found = Table(str(tmp_path)).query()
    assert found.column("l").to_pylist() == [[{"a": 1, "b": None}], None, [], [{"a": 2, "b": "z"}]]
    assert found.column("m").to_pylist() == [
        [("k", {"x": 1, "y": None})],
        None,
        [],
        [("k", {"x": 2**40, "y": 1.5})],
    ]


def test_types_that_do_not_merge_name_both_files_and_both_types(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1], "w": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"v": ["x"], "w": [1]}), tmp_path / "1.parquet")
    with pytest.raises(UnsupportedError) as caught:
        Table(str(tmp_path)).query("w = 1")
    text = str(caught.value)
    assert "column v" in text
    assert "int64 in" in text
    assert "string in" in text
    assert "0.parquet" in text
    assert "1.parquet" in text


def test_explain_says_where_the_schema_is_from(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    pq.write_table(INT32, root / "0.parquet")
    pq.write_table(INT64, root / "1.parquet")
    table = Table(str(root))
    text = str(table.explain("v = 3"))
    assert "schemas of the files: 2 distinct, by the facts of 0 of 2 files and 2 footers" in text
    table.build(indexes=["v:minmax"])
    # What was read before the build does not hide that the facts have it now.
    again = table.explain("v = 3").to_dict()
    assert again["schema"] == {"distinct": 2, "files": 2, "from_facts": 2, "from_footers": 0}
    again = Table(str(root)).explain("v = 3").to_dict()
    assert again["schema"] == {"distinct": 2, "files": 2, "from_facts": 2, "from_footers": 0}
    table.compact()
    again = Table(str(root)).explain("v = 3").to_dict()
    assert again["schema"] == {"distinct": 2, "files": 2, "from_facts": 2, "from_footers": 0}


def test_files_of_another_table_are_named(tmp_path: Path) -> None:
    """Those that share no column with most files, also not through a third one."""
    root = tmp_path / "t"
    root.mkdir()
    for name, columns in {"0": "sku", "1": "SKU", "2": "user n", "3": "N", "4": "USER"}.items():
        pq.write_table(pa.table({c: [1, 2] for c in columns.split()}), root / f"{name}.parquet")
    table = Table(str(root))
    table.build(indexes=["user:minmax"])
    (note,) = table.describe().notes
    assert "2 of 5 files share no column with the others" in note
    assert f"{root}/0.parquet" in note
    pq.write_table(pa.table({"Sku": [1], "n": [2]}), root / "5.parquet")
    table.refresh()
    assert table.describe().notes == ()
    (root / "5.parquet").unlink()  # its facts stay, and link nothing any more
    assert table.describe().notes == (note,)


# -- nested columns by path -----------------------------------------------------------------------


def test_a_field_that_a_struct_lacks_is_null_and_not_another_field(tmp_path: Path) -> None:
    lacking = pa.table(
        {"billing": [{"street": "a"}, None], "shipping": [{"zip": "S", "street": "b"}] * 2}
    )
    whole = pa.table({"billing": [{"street": "a", "zip": "B"}], "shipping": [{"zip": "T"}]})
    for opened in orders(tmp_path, [lacking, whole], ["billing.zip:minmax"]):
        found = opened().query(columns=["billing.zip", "shipping.zip"]).to_pylist()
        assert sorted(map(repr, found)) == sorted(
            map(
                repr,
                [
                    {"billing": {"zip": None}, "shipping": {"zip": "S"}},
                    {"billing": None, "shipping": {"zip": "S"}},
                    {"billing": {"zip": "B"}, "shipping": {"zip": "T"}},
                ],
            )
        )
        assert opened().count("billing.zip = 'S'") == 0


def test_a_dotted_name_is_not_a_path(tmp_path: Path) -> None:
    for at in range(3):
        content = pa.table({"x": [{"y": at}], "x.y": [at + 100]})
        pq.write_table(content, tmp_path / f"{at}.parquet")
    table = Table(str(tmp_path))
    assert table.query("x.y = 1", columns=["x.y"]).to_pylist() == [{"x": {"y": 1}}]
    assert table.query("`x.y` = 101", columns=["`x.y`"]).to_pylist() == [{"x.y": 101}]
    assert table.query("x.y = 2").to_pylist() == [{"x": {"y": 2}, "x.y": 102}]
    assert table.count("x.y = 101") == 0


def test_a_name_that_fits_two_columns_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "A": [2]}), tmp_path / "0.parquet")
    table = Table(str(tmp_path))
    assert table.query(columns=["A"]).to_pylist() == [{"A": 2}]
    pq.write_table(pa.table({"xy": [1], "XY": [2]}), tmp_path / "0.parquet")
    with pytest.raises(SkipstoneError, match="ambiguous"):
        Table(str(tmp_path)).query(columns=["Xy"])


def test_other_engines_get_the_fields_of_structs_by_name(tmp_path: Path) -> None:
    """Fewer fields, another order, wider types, other capitals."""
    files = [
        {"s": [{"x": 1, "y": "a"}, None]},
        {"s": [{"y": "b", "x": 2, "z": 1.5}]},
        {"s": [{"y": "c"}]},
    ]
    for at, content in enumerate(files):
        pq.write_table(pa.table(content), tmp_path / f"{at}.parquet")
    expected = [
        {"s": {"x": 1, "y": "a", "z": None}},
        {"s": None},
        {"s": {"x": 2, "y": "b", "z": 1.5}},
        {"s": {"x": None, "y": "c", "z": None}},
    ]
    scan = Table(str(tmp_path)).scan()
    assert scan.to_pyarrow().to_table().to_pylist() == expected
    assert scan.to_polars().collect().to_arrow().to_pylist() == expected
    assert scan.to_duckdb().to_arrow_table().to_pylist() == expected
    pq.write_table(pa.table({"s": [{"X": 3, "Z": 2.5}]}), tmp_path / "3.parquet")
    expected.append({"s": {"x": 3, "y": None, "z": 2.5}})
    scan = Table(str(tmp_path)).scan()
    assert scan.to_polars().collect().to_arrow().to_pylist() == expected
    assert scan.to_duckdb().to_arrow_table().to_pylist() == expected
    with pytest.raises(UnsupportedError, match="calls the column 'x' 'X'"):
        scan.to_pyarrow()


# -- columns that folders and files both have -----------------------------------------------------


def test_extremes_of_a_column_of_the_folders_are_the_folders(tmp_path: Path) -> None:
    root = tmp_path / "t"
    for folder, value in ((1, 50), (2, 60)):
        (root / f"p={folder}").mkdir(parents=True)
        pq.write_table(pa.table({"p": [value], "v": [value]}), root / f"p={folder}/0.parquet")
    table = Table(str(root))
    assert (table.min("p"), table.max("p")) == (1, 2)
    table.build(indexes=["v:minmax", "p:minmax"])
    again = Table(str(root))
    assert (again.min("p"), again.max("p")) == (1, 2)
    assert again.query("p = 2").column("p").to_pylist() == [2]
    assert (again.min("v"), again.max("v")) == (50, 60)


@pytest.mark.parametrize("indexes", [(), ("v:minmax",)])
def test_a_column_of_folders_and_files_is_where_the_files_have_it(
    tmp_path: Path, indexes: tuple[str, ...]
) -> None:
    """As Spark: the folder's name, type and values, in the place of the file's column."""
    root = tmp_path / "t"
    for folder in (1, 2):
        place = root / f"q=7/P={folder}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"v": [5], "p": ["z"], "w": [folder]}), place / "0.parquet")
    if indexes:
        Table(str(root)).build(indexes=list(indexes))
    table, expected = Table(str(root)), {"v": [5, 5], "P": [1, 2], "w": [1, 2], "q": [7, 7]}
    for found in (
        table.query(),
        table.query("p > 0", order_by="w"),
        table.scan().to_duckdb().to_arrow_table(),
        table.scan().to_polars().collect().to_arrow(),
        table.scan().to_pyarrow().to_table(),
    ):
        assert list(found.to_pydict().items()) == list(expected.items())


# -- what Spark notes of a column -----------------------------------------------------------------


def _noted(content: pa.Table, default: str | None) -> pa.Table:
    """``content`` with Spark's own schema, in which ``b`` may have a default."""
    fields = [
        {
            "name": name,
            "type": "long",
            "nullable": True,
            "metadata": {"EXISTS_DEFAULT": default} if default and name == "b" else {},
        }
        for name in content.column_names
    ]
    note = json.dumps({"type": "struct", "fields": fields})
    return content.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": note})


def test_a_default_that_only_one_file_notes_is_not_null_in_another(tmp_path: Path) -> None:
    """Spark reads 5 in the file that lacks ``b``. That is refused here in words, and not read as
    null, although another file with the same columns notes no default."""
    files = [
        _noted(pa.table({"a": [1], "b": [10]}), None),
        _noted(pa.table({"a": [2], "b": [20]}), "5"),
        _noted(pa.table({"a": [3]}), None),
    ]
    for opened in orders(tmp_path, files, ["a:minmax"]):
        assert opened().count("a = 3") == 1
        with pytest.raises(UnsupportedError, match="has a default"):
            opened().query(columns=["b"])


@pytest.mark.parametrize("indexes", [(), ("d:minmax", "s.f:minmax")])
def test_a_note_of_spark_does_not_change_what_is_stored(
    tmp_path: Path, indexes: tuple[str, ...]
) -> None:
    """Spark's schema in the footer says float over doubles: values came back infinite."""
    content = pa.table(
        {
            "d": [1e300, 0.1, None],
            "n": [1, 2, 3],
            "s": [{"f": 1e300, "t": "a"}, {"f": 0.1, "t": "b"}, None],
            "l": [[1e300], [0.1], None],
        }
    )

    def noted(name: str, type: Any) -> dict[str, Any]:
        return {"name": name, "type": type, "nullable": True, "metadata": {}}

    fields = [
        noted("d", "float"),
        noted("n", "string"),
        noted("s", {"type": "struct", "fields": [noted("f", "float"), noted("t", "string")]}),
        noted("l", {"type": "array", "elementType": "float", "containsNull": True}),
        noted("absent", "string"),
    ]
    note = json.dumps({"type": "struct", "fields": fields})
    key = {"org.apache.spark.sql.parquet.row.metadata": note}
    path = tmp_path / "t" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(content.replace_schema_metadata(key), path)
    table = Table(str(path.parent))
    if indexes:
        table.build(indexes=list(indexes))
    found = table.query()
    assert found.to_pylist() == content.to_pylist()
    assert found.schema.remove_metadata() == content.schema
    assert table.query("d > 1e299").column("n").to_pylist() == [1]
    assert table.query("s.f > 1e299").column("n").to_pylist() == [1]
    assert table.count("d = 0.1D") == 1
    assert (table.max("d"), table.max("n")) == (1e300, 3)
    assert table.query("n = 2").num_rows == 1


def test_polars_refuses_a_time_zone_that_it_does_not_know(tmp_path: Path) -> None:
    """Of a time zone that no database has polars made a panic."""
    path = tmp_path / "t" / "0.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"at": pa.array([0], pa.timestamp("us", "Mars/Olympus_Mons"))}), path)
    scan = Table(str(path.parent)).scan()
    with pytest.raises(UnsupportedError, match=r"'at', which is timestamp\[us, tz=Mars/Olympus"):
        scan.to_polars()
    assert Table(str(path.parent)).count("at = TIMESTAMP'1970-01-01 00:00:00Z'") == 1
