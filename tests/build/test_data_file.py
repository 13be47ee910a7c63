"""One file -> its facts: what is read, and what is left out."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone import ParquetFile
from skipstone.build.column_indexes import BuildSettings, ColumnsBuilder
from skipstone.indexes.bloom import Bloom, BloomBuilder
from skipstone.indexes.minmax import MinMax
from skipstone.indexes.registry import parse_indexes
from skipstone.indexes.valuelist import ValueList
from skipstone.predicate.types import (
    EXISTS_DEFAULT,
    column_name,
    column_path,
    schema_from_spark,
    spark_type,
)
from skipstone.pruning.kind import Builder, Built, Index
from skipstone.table.wanted_indexes import expression_column
from tests.build.layout import SPARK, build, build_columns, values, written
from tests.oracle import place_of, rows_of, sort_key, value_at, values_of
from tests.processes import environment
from tests.strategies import ARROW_TYPES, leaf_columns, tables

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.pruning.kind import Chunk


# -- what is in the file --------------------------------------------------------------------------


def test_one_pass_gives_all(tmp_path: Path) -> None:
    table = pa.table({"id": [3, 1, None, 3], "name": ["x", None, "y", "x"]})
    path = written(tmp_path / "f.parquet", table)
    facts = build(path, ["id:minmax", "id:values", "name:values", "name:bloom(fpp=0.1)"])
    assert (facts.row_count, facts.null_counts) == (4, {"id": 1, "name": 1})
    assert facts.reasons == {}
    assert facts.footer_length == pq.read_metadata(path).serialized_size
    assert values(facts) == {
        "minmax(id)": {"min": 1, "max": 3},
        "valuelist(id)": [1, 3],
        "valuelist(name)": ["x", "y"],
        "bloomfilter(name, fpp=0.1)": len_of_small_blob(),
    }


def len_of_small_blob() -> int:
    from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
    from tests.xskipper.format.reference_bloom import SketchBuilder

    return len(BloomFilterMetaData.of(SketchBuilder.sized(2, 0.1).build()).to_bytes())


@given(table=tables(ARROW_TYPES), group=st.integers(1, 5), data=st.data())
def test_facts_are_those_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, group: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("f") / "f.parquet"
    written(path, table, row_group_size=group)
    schema = ParquetFile(path).file_schema.spark
    columns = [column_name(path_) for path_, _ in leaf_columns(table.schema)]
    memory = data.draw(st.sampled_from([512 * 2**20, 1]))
    definitions = [kind(c) for c in columns for kind in (MinMax, ValueList)]
    found = build(path, definitions, schema, memory=memory * 2**12)
    assert found.row_count == len(table)
    assert found.reasons == {}
    rows = rows_of(table)
    for column in columns:
        names, _ = place_of(table.schema, column_path(column))
        seen = [value_at(row, names) for row in rows]
        assert found.null_counts[column] == sum(value is None for value in seen)
        listed = found.values[ValueList(column)]
        assert listed is not None
        mine = {sort_key(v) for v in seen if v is not None}
        theirs = values_of(listed.flatten())
        assert {sort_key(v) for v in theirs} == mine
        assert len(theirs) == len(mine)


def test_types_as_spark_reads_them(tmp_path: Path) -> None:
    top = {"a": (pa.uint8(), 255), "b": (pa.uint32(), 2**32 - 1), "c": (pa.uint64(), 2**64 - 1)}
    table = pa.table({name: pa.array([0, v], t) for name, (t, v) in top.items()})
    facts = build(written(tmp_path / "f.parquet", table), [f"{name}:minmax" for name in top])
    for name, (type, value) in top.items():
        stored = facts.values[MinMax(name)]
        assert stored is not None
        assert stored.type[1].type == spark_type(type)
        assert int(stored[0]["max"].as_py()) == value


def test_int96_is_an_instant(tmp_path: Path) -> None:
    instants = pa.array([1_729_989_000_000_000, -1], pa.timestamp("us"))
    table = pa.table({"at": instants})
    path = written(tmp_path / "f.parquet", table, use_deprecated_int96_timestamps=True)
    facts = build(path, ["at:minmax"])
    stored = facts.values[MinMax("at")]
    assert stored is not None
    assert stored.type[0].type == pa.timestamp("us", "UTC")
    assert stored.flatten()[1].cast(pa.int64()).to_pylist() == [1_729_989_000_000_000]


def test_strings_in_dictionaries_and_plain_ones_come_to_the_same(tmp_path: Path) -> None:
    names = [f"name {i % 40} é" for i in range(5_000)] + [None]
    table = pa.table({"s": names})
    found = []
    for plain in (False, True):
        path = written(tmp_path / f"{plain}.parquet", table, use_dictionary=not plain)
        found.append(values(build(path, ["s:minmax", "s:values", "s:bloom"])))
    assert found[0] == found[1]
    assert len(found[0]["valuelist(s)"]) == 40


def test_bytes_that_are_no_text_leave_lists_and_bounds_out(tmp_path: Path) -> None:
    table = pa.table({"s": pa.array([b"\xff", b"a"]).view(pa.string())})
    facts = build(written(tmp_path / "f.parquet", table), ["s:minmax", "s:values", "s:bloom"])
    assert facts.reasons == {
        "minmax(s)": "a value is not UTF-8",
        "valuelist(s)": "a value is not UTF-8",
    }
    assert facts.null_counts == {"s": 0}


# -- columns that are not there, or not so --------------------------------------------------------


def test_a_column_that_a_file_lacks_is_all_null(tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", pa.table({"other": [1, 2, 3]}))
    schema = pa.schema([("id", pa.int64()), ("in", pa.struct([("s", pa.string())]))])
    facts = build(path, ["id:minmax", "id:bloom", "in.s:values"], schema)
    assert facts.null_counts == {"id": 3, "in.s": 3}
    assert facts.reasons == {}
    assert values(facts)["minmax(id)"] == {"min": None, "max": None}
    assert values(facts)["valuelist(in.s)"] == []


def test_a_column_with_a_default_is_not_null_where_it_lacks(tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", pa.table({"other": [1]}))
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"EXISTS_DEFAULT": "5"})])
    facts = build(path, ["id:minmax"], schema)
    assert facts.null_counts == {}
    assert "default" in facts.reasons["minmax(id)"]


def test_sparks_note_of_a_default_is_kept() -> None:
    field = {"name": "id", "type": "long", "nullable": True}
    for default, noted in (("5", True), ("NULL", False), (None, False)):
        metadata = {} if default is None else {"EXISTS_DEFAULT": default}
        schema = schema_from_spark({"type": "struct", "fields": [{**field, "metadata": metadata}]})
        assert (EXISTS_DEFAULT in (schema.field(0).metadata or {})) is noted


def test_values_that_are_not_one_for_each_row() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    builder = ColumnsBuilder([MinMax("a"), MinMax("b")], schema, BuildSettings())
    builder.add("a", pa.array([1, 2]))
    builder.add("b", pa.array([1, 2, 3]))
    found = builder.finish(3)
    assert found.null_counts == {"b": 0}
    assert found.reasons == {"minmax(a)": "has 2 values in a file of 3 rows"}


def test_a_leaf_is_null_where_a_struct_above_it_is(tmp_path: Path) -> None:
    inner = pa.struct([("c", pa.int32())])
    rows = [{"b": {"c": 1}}, {"b": {"c": None}}, {"b": None}, None]
    table = pa.table({"a": pa.array(rows, pa.struct([("b", inner)]))})
    facts = build(written(tmp_path / "f.parquet", table), ["a.b.c:minmax"])
    assert facts.null_counts == {"a.b.c": 3}
    assert values(facts) == {"minmax(a.b.c)": {"min": 1, "max": 1}}


def test_names_are_matched_as_spark_matches_them(tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", pa.table({"ID": [7], "x": [1], "X": [2]}))
    schema = pa.schema([("id", pa.int64()), ("x", pa.int64())])
    facts = build(path, ["id:minmax", "x:minmax"], schema)
    assert values(facts) == {"minmax(id)": {"min": 7, "max": 7}, "minmax(x)": None}
    assert facts.null_counts == {"id": 0}
    assert "in different case" in facts.reasons["minmax(x)"]
    exact = build(path, ["id:minmax", "x:minmax"], schema, case_sensitive=True)
    assert exact.null_counts == {"id": 1, "x": 0}
    assert values(exact)["minmax(x)"] == {"min": 1, "max": 1}


def test_odd_names(tmp_path: Path) -> None:
    table = pa.table({"a.b": [1], "c`d": [2], "e f": [3], "a": [{"b": 4}]})
    path = written(tmp_path / "f é=%.parquet", table)
    columns = ["`a.b`", "`c``d`", "e f", "a.b"]
    facts = build(path, [MinMax(column) for column in columns])
    assert [v["min"] for v in values(facts).values()] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "stored, table, exact",
    [
        (pa.int32(), pa.int64(), True),
        (pa.int32(), pa.float64(), True),
        (pa.int64(), pa.decimal128(20, 0), True),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(5, 2), pa.decimal128(7, 3), True),
        (pa.date32(), pa.timestamp("us"), True),
        (pa.binary(), pa.string(), True),
        (pa.int64(), pa.duration("us"), True),
        (pa.int64(), pa.int32(), False),
        (pa.int64(), pa.float64(), False),
        (pa.int32(), pa.string(), False),
        (pa.string(), pa.int32(), False),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.decimal128(7, 3), pa.decimal128(5, 2), False),
    ],
    ids=str,
)
def test_a_file_of_another_type(
    tmp_path: Path, stored: pa.DataType, table: pa.DataType, exact: bool
) -> None:
    # One value, 1 or "1"; what is not exactly so has no facts, not even a null count.
    if pa.types.is_string(stored) or pa.types.is_binary(stored):
        one = pa.array(["1"]).cast(stored)
    elif pa.types.is_decimal(stored):
        one = pa.array([Decimal(1)], pa.decimal128(1, 0)).cast(stored)
    else:
        one = pa.array([1], stored)
    path = written(tmp_path / "f.parquet", pa.table({"c": one}))
    facts = build(path, ["c:minmax"], pa.schema([("c", table)]))
    if exact:
        assert facts.reasons == {}
        built = facts.values[MinMax("c")]
        assert built is not None
        assert built.flatten()[0].equals(one.cast(table))
    else:
        assert facts.null_counts == {}
        assert f"{stored}" in facts.reasons["minmax(c)"]
        assert facts.values == {MinMax("c"): None}


def test_a_leaf_that_is_a_list_in_this_file(tmp_path: Path) -> None:
    table = pa.table({"a": [[1]], "b": [{"c": 1}]})
    path = written(tmp_path / "f.parquet", table)
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    facts = build(path, ["a:minmax", "b:minmax"], schema)
    assert "inside list" in facts.reasons["minmax(a)"]
    assert "atomic" in facts.reasons["minmax(b)"]


# -- old dates ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata, days, believed",
    [
        ({}, 0, True),
        ({}, -200_000, False),
        (SPARK, -200_000, True),
        ({**SPARK, "org.apache.spark.legacyDateTime": ""}, -200_000, False),
        ({**SPARK, "org.apache.spark.legacyDateTime": ""}, 0, True),
        ({"org.apache.spark.version": "2.4.4"}, -200_000, False),
    ],
)
def test_old_dates(tmp_path: Path, metadata: dict[str, str], days: int, believed: bool) -> None:
    table = pa.table({"d": pa.array([days, 20_000], pa.date32()), "id": [1, 2]})
    path = tmp_path / "f.parquet"
    pq.write_table(table.replace_schema_metadata(metadata), path)
    os.utime(path, (1, 1))
    facts = build(path, ["d:minmax", "id:minmax"])
    assert (facts.values[MinMax("d")] is not None) is believed
    assert facts.null_counts == ({"d": 0, "id": 0} if believed else {"id": 0})
    assert believed or "legacy calendar" in facts.reasons["minmax(d)"]


# -- memory ---------------------------------------------------------------------------------------


IN_A_PROCESS = """
import sys
import pyarrow as pa
from tests.build.layout import build
path, memory, *specs = sys.argv[1:]
found = build(path, specs, memory=int(memory), settle=0)
print(pa.default_memory_pool().max_memory())
print(found.null_counts, [None if v is None else v.to_pylist() for v in found.values.values()])
"""


def test_a_row_group_that_does_not_fit_is_read_in_batches(tmp_path: Path) -> None:
    # One row group of 24 MB, with 8 MiB to build it in.
    rng = np.random.default_rng(0)
    n = 600_000
    names = pa.array(rng.integers(0, 2**62, n)).cast(pa.string())
    table = pa.table({"k": rng.integers(0, 2**62, n), "s": names})
    path = written(tmp_path / "f.parquet", table, row_group_size=n, use_dictionary=False)
    specs = ["k:minmax", "s:minmax", "k:values", "s:values"]
    peaks, found = [], []
    for memory in (8 * 2**20, 512 * 2**20):
        command = [sys.executable, "-c", IN_A_PROCESS, str(path), str(memory), *specs]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment()
        )
        peak, facts = done.stdout.splitlines()
        peaks.append(int(peak))
        found.append(facts)
    assert peaks[0] < 8 * 2**20 < peaks[1]
    assert found[0] == found[1]


def test_a_long_string_that_a_dictionary_repeats_is_held_once(tmp_path: Path) -> None:
    """512 rows of one string of 1 MiB."""
    strings = pa.DictionaryArray.from_arrays(pa.array([0] * 512, pa.int32()), ["x" * 2**20])
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"k": strings}), path, store_schema=False)
    specs = ["k:minmax", "k:values", "k:bloom", "k:bitmap", "k:rangebitmap", "k:paimonbloom"]
    command = [sys.executable, "-c", IN_A_PROCESS, str(path), str(512 * 2**20), *specs]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    assert int(done.stdout.splitlines()[0]) < 64 * 2**20


def test_what_takes_too_much_memory_is_left_out_for_the_file() -> None:
    class Hoarder(MinMax):
        name = "hoarder"

        def build(self, type: pa.DataType, budget: int) -> Builder:
            return _Hoard()

    class _Hoard(Builder):
        nbytes = 10**12

        def add(self, chunk: Chunk) -> None:
            pass

        def finish(self) -> Built:
            raise AssertionError("was dropped")

    batch = pa.record_batch({"c": [1, 2]})
    found = build_columns([batch, batch], [Hoarder("c"), MinMax("c")], batch.schema)
    assert "share of memory" in found.reasons["hoarder(c)"]
    assert found.values[Hoarder("c")] is None
    assert found.values[MinMax("c")] is not None
    assert found.row_count == 4


def test_a_kind_that_fails_is_left_out_alone() -> None:
    class Broken(MinMax):
        name = "broken"

        def build(self, type: pa.DataType, budget: int) -> Builder:
            return _Breaks()

    class _Breaks(Builder):
        def add(self, chunk: Chunk) -> None:
            raise RuntimeError("no luck")

        def finish(self) -> Built:
            raise AssertionError("was dropped")

    class Liar(MinMax):
        name = "liar"

        def stored_type(self, type: pa.DataType) -> pa.DataType:
            return pa.int8()

        def build(self, type: pa.DataType, budget: int) -> Builder:
            return MinMax("c").build(type, budget)

    batch = pa.record_batch({"c": [1, 2]})
    found = build_columns([batch], [Broken("c"), Liar("c"), MinMax("c")], batch.schema)
    assert found.reasons["broken(c)"] == "failed: RuntimeError: no luck"
    assert "built 1 values of struct" in found.reasons["liar(c)"]
    assert [value is None for value in found.values.values()] == [True, True, False]


# -- batches from elsewhere -----------------------------------------------------------------------


def test_batches_without_a_file() -> None:
    batches = [
        pa.record_batch({"id": [1, None], "a.b": ["x", "y"]}),
        pa.record_batch({"id": pa.array([], pa.int64()), "a.b": pa.array([], pa.string())}),
        pa.record_batch({"id": [9]}),
    ]
    schema = pa.schema([("id", pa.int64()), ("a", pa.struct([("b", pa.string())]))])
    found = build_columns(batches, parse_indexes(["id:minmax", "a.b:values"]), schema)
    assert found.row_count == 3
    assert found.null_counts == {"id": 1, "a.b": 1}
    assert [v[0].as_py() for v in found.values.values() if v is not None] == [
        {"min": 1, "max": 9},
        ["x", "y"],
    ]


# -- Bloom filters ---------------------------------------------------------------------------------


def test_bloom_is_sized_by_what_each_file_has(tmp_path: Path) -> None:
    # The same million-row question, two files: 10 and 10,000 distinct keys.
    sizes = []
    for distinct in (10, 10_000):
        table = pa.table({"k": np.arange(20_000) % distinct})
        facts = build(written(tmp_path / f"{distinct}.parquet", table), [Bloom("k")])
        sizes.append(values(facts)["bloomfilter(k)"])
    assert sizes[0] < 600
    assert 11_900 < sizes[1] < 13_000


def test_compiled_code_comes_once_there_is_enough_to_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    from skipstone.indexes.bloom import COMPILED, NUMPY

    monkeypatch.delitem(sys.modules, COMPILED.module, raising=False)
    monkeypatch.setattr(COMPILED, "spent", 0.0)
    schema = pa.schema([("k", pa.int64())])

    def kernels_after(settings: BuildSettings, rows: list[int]) -> list[bool]:
        found = []
        for count in rows:
            made = ColumnsBuilder([Bloom("k")], schema, settings, count)
            (builder,) = made.columns["k"].builders.values()
            assert isinstance(builder, BloomBuilder)
            found.append(builder.kernels is not NUMPY)
        return found

    assert kernels_after(BuildSettings(compiled=False), [10**9]) == [False]
    assert kernels_after(BuildSettings(), [3_999_999] * 2) == [False, False]
    # The third file makes them enough together; the kernels then stay loaded.
    assert kernels_after(BuildSettings(), [3_999_999]) == [True]
    assert kernels_after(BuildSettings(), [1]) == [True]
    monkeypatch.delitem(sys.modules, COMPILED.module)
    monkeypatch.setattr(COMPILED, "spent", 0.0)
    assert kernels_after(BuildSettings(), [4_000_000]) == [True]


# -- on several threads ---------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_columns_on_several_threads_give_what_one_gives(tmp_path: Path, threads: int) -> None:
    """Seven row groups; expressions of one and of two columns, a struct, a list, a column that a
    file lacks, and one whose values are no longer exact."""
    rows = 3_500
    table = pa.table(
        {
            "id": range(rows),
            "day": [row % 9 for row in range(rows)],
            "name": [f"n-{row % 40}" for row in range(rows)],
            "part": [{"a": row, "b": f"b-{row % 7}"} for row in range(rows)],
            "tags": [[f"t-{row % 5}", "x"] for row in range(rows)],
            "wide": pa.array(range(rows), pa.int64()),
        }
    )
    path = written(tmp_path / "a.parquet", table, row_group_size=500)
    schema = ParquetFile(path).file_schema.spark
    wide = schema.get_field_index("wide")
    schema = schema.set(wide, pa.field("wide", pa.date32())).append(pa.field("gone", pa.int32()))

    def canonical(text: str) -> str:
        return str(expression_column(text, schema, [], None))

    expressions = parse_indexes(["upper(name):valuelist", "id + day:minmax", "tags:valuelist"])
    indexes: list[str | Index] = [
        "id:minmax", "id:bitmap", "day:rangebitmap", "name:bloom", "name:valuelist",
        "part.a:minmax", "part.b:bloom", "wide:minmax", "gone:minmax",
        *(type(each).from_params(canonical(each.column), each.params) for each in expressions),
    ]  # fmt: skip
    one, many = (build(path, indexes, schema, threads=each) for each in (1, threads))
    assert one.error is many.error is None
    assert many.values == one.values
    assert many.container == one.container
    assert (many.reasons, many.null_counts) == (one.reasons, one.null_counts)
    assert "minmax(wide)" in one.reasons


def test_an_error_on_one_of_several_threads_is_that_of_the_file(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(900)), "b": [f"b-{row}" for row in range(900)]})
    path = written(tmp_path / "a.parquet", table, row_group_size=300, compression="snappy")
    at = ParquetFile(path).footer.chunk("start")[1, 1]
    data = bytearray(path.read_bytes())
    data[at : at + 60] = bytes(60)
    path.write_bytes(data)
    one, many = (build(path, ["a:minmax", "b:bloom"], threads=each, settle=0) for each in (1, 2))
    assert one.error == many.error
    assert "not readable as Parquet" in str(many.error)
