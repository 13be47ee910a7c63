"""What a process loads for its first query. Imports are most of the time of a short query, so a
module comes with the first call that needs it. The table has 12 files of 50 rows with an index."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import _compute

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE = Path(skipstone.__file__).parent.parent
FILES, ROWS = 12, 50
ABROAD = {
    "pandas",
    "numba",
    "pyspark",
    "duckdb",
    "polars",
    "cryptography",
    "obstore",
    "fsspec",
    "sqlglot",
    "rich",
    "pyarrow.dataset",
    "pyarrow.fs",
    "pyarrow.parquet",
    "ssl",
    "pyarrow.acero",
    "pyroaring",
    "numpy.ma",
}
#: of the standard library; the command line needs some of them
SELDOM = {"difflib", "random", "secrets", "shutil"}
OTHER_VERBS = {
    "skipstone.advisor",
    "skipstone.build",
    "skipstone.inspect",
    "skipstone.live",
    "skipstone.report",
    "skipstone.rewrite",
    "skipstone.salvage",
    "skipstone.spark",
    "skipstone.facts.encode",
    "skipstone.facts.export",
    "skipstone.facts.merge",
    "skipstone.facts.check",
    "skipstone.facts.compact",
    "skipstone.facts.vacuum",
    "skipstone.facts.xskipper_store",
    "skipstone.execution.engine_export",
    "skipstone.indexes.bloom_slices",
    "skipstone.indexes.valuelist",
    "skipstone.paimon.base",
    "skipstone.paimon.kinds",
    "skipstone.paimon.sidecar",
    "skipstone.parquet.encryption.file_decryptor",
    "skipstone.parquet.reading.index_pages",
    "skipstone.parquet.writing",
    "skipstone.planning.explain",
    "skipstone.predicate.functions",
    "skipstone.predicate.functions_of_types",
    "skipstone.predicate.indexed",
    "skipstone.predicate.typed",
    "skipstone.questdb.migrate",
    "skipstone.questdb.txn_snapshot",
    "skipstone.table.txn_table",
    "skipstone.xskipper.store",
}


def lay(folder: Path) -> None:
    """Files of random keys; ``ts`` follows from file to file."""
    folder.mkdir()
    for number in range(FILES):
        table = pa.table(
            {
                "key": np.arange(ROWS) * FILES + number,
                "ts": pa.array(np.arange(ROWS) + number * ROWS, pa.timestamp("us")),
                "user": [f"u-{row * FILES + number}" for row in range(ROWS)],
                "amount": np.arange(ROWS) / 8,
            }
        )
        pq.write_table(table, folder / f"part-{number:02}.parquet")


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("first") / "indexed"
    lay(folder)
    skipstone.Table(str(folder)).build(indexes=["key:bloom", "ts:minmax"])
    return str(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("first") / "plain"
    lay(folder)
    return str(folder)


def fresh(code: str) -> tuple[Any, set[str]]:
    """What ``found`` is after the code in a fresh interpreter, and the modules that it holds."""
    show = "print(json.dumps([found, sorted(sys.modules)], default=str))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, json\n{code}\n{show}"],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    found, modules = json.loads(done.stdout)
    return found, set(modules)


def fresh_query(path: str, call: str) -> tuple[Any, set[str]]:
    return fresh(f"import skipstone\nfound = skipstone.Table({path!r}).{call}")


def test_a_query_of_one_value_loads_what_it_needs(indexed: str) -> None:
    found, loaded = fresh_query(indexed, "query('key = 125').to_pylist()")
    assert [(row["key"], row["user"], row["amount"]) for row in found] == [(125, "u-125", 1.25)]
    assert loaded & (ABROAD | SELDOM) == set()
    assert loaded & (OTHER_VERBS | {"pyarrow.compute"}) == set()
    assert {"skipstone.indexes.bloom", "skipstone.planning.table_facts"} <= loaded


def test_a_few_large_dictionaries_load_no_compiled_code(tmp_path: Path) -> None:
    for number in range(4):
        users = [f"u-{row * 4 + number:07}" for row in range(50_000)]
        pq.write_table(
            pa.table({"user": users, "row": np.arange(50_000)}), tmp_path / f"{number}.parquet"
        )
    skipstone.Table(str(tmp_path)).build(indexes=["row:minmax"])
    found, loaded = fresh_query(str(tmp_path), "query(\"user = 'u-0000013'\").to_pylist()")
    assert found == [{"user": "u-0000013", "row": 3}]
    assert loaded & (ABROAD | {"pyarrow.compute"}) == set()


def test_an_index_in_another_place_loads_no_more(plain: str, tmp_path: Path) -> None:
    place = str(tmp_path / "index")
    skipstone.Table(plain, index_location=place).build(indexes=["key:bloom", "ts:minmax"])
    found, loaded = fresh(
        f"import skipstone\ntable = skipstone.Table({plain!r}, index_location={place!r})\n"
        "found = table.query('key = 125')['user'].to_pylist()"
    )
    assert found == ["u-125"]
    seldom = {"html", "zoneinfo", "pyarrow.compute", "skipstone.parquet.reading.bulk_arrow"}
    assert loaded & (ABROAD | OTHER_VERBS | seldom) == set()


def test_facts_of_files_that_are_gone_load_no_more(indexed: str, tmp_path: Path) -> None:
    path = tmp_path / "indexed"
    shutil.copytree(indexed, path)
    skipstone.Table(str(path)).build(indexes=["key:bloom", "ts:minmax"])
    (path / "part-03.parquet").unlink()
    found, loaded = fresh_query(str(path), "query('key = 125')['user'].to_pylist()")
    assert found == ["u-125"]
    assert loaded & (ABROAD | OTHER_VERBS | {"pyarrow.compute"}) == set()


def test_a_query_of_an_absent_value_loads_no_reader_of_files(indexed: str) -> None:
    found, loaded = fresh_query(indexed, "query('key = -7').num_rows")
    assert found == 0
    reading = {f"skipstone.parquet.{each}" for each in ("reading", "evidence", "format.metadata")}
    assert loaded & (ABROAD | OTHER_VERBS | reading) == set()


def test_a_table_alone_reads_nothing(indexed: str) -> None:
    _, loaded = fresh(f"import skipstone\nfound = repr(skipstone.Table({indexed!r}))")
    assert loaded & (ABROAD | OTHER_VERBS | {"skipstone.execution"}) == set()


@pytest.mark.parametrize("table", ["indexed", "plain"])
def test_no_query_imports_pandas(table: str, request: pytest.FixtureRequest) -> None:
    """pyarrow imports pandas in ``pa.array``, ``pa.scalar``, ``to_numpy`` and others."""
    path = request.getfixturevalue(table)
    found, loaded = fresh(
        f"import skipstone\ntable = skipstone.Table({path!r})\n"
        "found = [\n"
        "    table.query(\"ts < '1970-01-01 00:00:00.000003'\", ['key'])['key'].to_pylist(),\n"
        "    sorted(table.query(\"user like 'u-3_' and key < 34\")['key'].to_pylist()),\n"
        "    table.query('key in (3, 4)', ['amount'])['amount'].to_pylist(),\n"
        "    table.query('amount > 6', ['key'], order_by='key', limit=1)['key'].to_pylist(),\n"
        "    table.count(\"ts >= '1970-01-01 00:00:00.0001'\"),\n"
        "    table.count(\"user <> 'u-3'\"),\n"
        "    str(table.max('ts')),\n"
        "]"
    )
    assert found == [
        [0, 12, 24],
        [30, 31, 32, 33],
        [0.0, 0.0],
        [588],
        500,
        599,
        "1970-01-01 00:00:00.000599",
    ]
    assert loaded & ABROAD == set()


def test_a_query_of_many_files_without_a_match_imports_no_pandas(tmp_path: Path) -> None:
    """Files are read together, and nothing but their rows says that there is no match."""
    for number in range(40):
        rows = pa.table({"amount": np.arange(100) / 4, "row": range(100)})
        pq.write_table(rows, tmp_path / f"{number}.parquet", use_dictionary=False)
    found, loaded = fresh_query(str(tmp_path), "query('amount = 7.3').num_rows")
    assert found == 0
    assert loaded & ABROAD == set()


def test_queries_of_many_files_import_no_pyarrow_compute(tmp_path: Path) -> None:
    """A row index, numbers, and texts of each way of LIKE."""
    for number in range(40):
        rows = range(number, 4000, 40)
        data = {
            "row": list(rows),
            "amount": [row % 97 / 4 for row in rows],
            "kind": [f"k-{row % 7}" for row in rows],
            "user": [f"u-{row:05}" for row in rows],
        }
        pq.write_table(pa.table(data), tmp_path / f"{number}.parquet")
    table = skipstone.Table(str(tmp_path))
    table.build(indexes=["kind:bitmap"], pm="none")
    asked = {
        "amount > 23.9": {row for row in range(4000) if row % 97 == 96},
        "kind = 'k-3' AND amount = 5": {row for row in range(4000) if row % 679 == 311},
        "user LIKE 'u-0003%'": set(range(30, 40)),
        "user LIKE '%0030%'": {30, *range(300, 310)},
        "user LIKE '%-0%77'": set(range(77, 4000, 100)),
    }
    found, loaded = fresh(
        f"import skipstone\ntable = skipstone.Table({str(tmp_path)!r})\n"
        f"found = [table.query(each, ['row', 'user'])['row'].to_pylist() for each in {list(asked)}]"
    )
    assert [set(rows) for rows in found] == list(asked.values())
    assert loaded & (ABROAD - {"pyroaring"} | {"pyarrow.compute"}) == set()


def test_letters_of_any_script_and_two_builds_import_no_pandas(plain: str, tmp_path: Path) -> None:
    path = str(tmp_path / "é")
    shutil.copytree(plain, path)
    for index in ("key:bloom", "ts:minmax"):
        skipstone.Table(path).build(indexes=[index], pm="none")
    found, loaded = fresh(
        f"import skipstone\ntable = skipstone.Table({path!r})\n"
        "built = table.refresh(pm='none').files_built\n"
        "found = [built, table.query('key = 125')['user'].to_pylist()]\n"
        "table.describe()"
    )
    assert found == [0, ["u-125"]]
    assert "pandas" not in loaded


def test_small_files_are_counted_without_compiled_code(plain: str, tmp_path: Path) -> None:
    for number in range(FILES, 3 * FILES):
        table = pq.read_table(f"{plain}/part-{number % FILES:02}.parquet", partitioning=None)
        pq.write_table(table, tmp_path / f"part-{number:02}.parquet")
    for number in range(FILES):
        shutil.copy(f"{plain}/part-{number:02}.parquet", tmp_path)
    found, loaded = fresh_query(str(tmp_path), "count('key = 125')")
    assert found == 3
    assert {"skipstone.parquet.format.footer_lanes", "skipstone.parquet.reading.bulk_arrow"} <= (
        loaded
    )
    assert loaded & (ABROAD | {"skipstone.parquet.format.footer_jit"}) == set()
    found, loaded = fresh_query(plain, "count('key = 125')")
    assert found == 1
    assert loaded & (ABROAD | {"skipstone.parquet.format.footer_jit"}) == set()


@pytest.mark.parametrize("words", [["query"], ["query", "--json"], ["count"]])
def test_the_command_line_loads_no_more(indexed: str, words: Sequence[str]) -> None:
    arguments = ["skipstone", words[0], indexed, "key = 125", *words[1:]]
    _, loaded = fresh(
        "import contextlib, io\nfrom skipstone.cli import cli\n"
        f"sys.argv = {arguments!r}\n"
        "with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):\n"
        "    cli()\nfound = out.getvalue()"
    )
    assert loaded & (ABROAD | OTHER_VERBS | {"pyarrow.compute"}) == set()


def test_spark_loads_no_reader_of_files() -> None:
    """Spark opens the files that are left, so skipping needs the facts alone."""
    _, loaded = fresh("import skipstone.spark.enable, skipstone.spark.skip\nfound = 0")
    assert "skipstone.spark.facts" in loaded
    assert loaded & ABROAD == set()
    parquet = {name for name in loaded if name.startswith("skipstone.parquet.")}
    assert parquet == {"skipstone.parquet.format", "skipstone.parquet.format.footer"}


def test_modules_that_are_loaded_are_seen(indexed: str) -> None:
    _, loaded = fresh_query(indexed, "explain('key = 125').plan.keep.sum()")
    assert "skipstone.planning.explain" in loaded


TEXTS, FLAGS = pa.array(["ab", None, "b"]), pa.array([True, None, False])
NUMBERS, SET = pa.array([3, None, 5]), {"value_set": pa.array(["b"])}
CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("and_", [FLAGS, FLAGS], {}),
    ("or_", [FLAGS, FLAGS], {}),
    ("invert", [FLAGS], {}),
    ("min_max", [TEXTS], {}),
    *[(name, [NUMBERS, 3], {}) for name in ("equal", "not_equal", "less", "less_equal")],
    *[(name, [NUMBERS, 3], {}) for name in ("greater", "greater_equal", "fill_null")],
    ("binary_length", [TEXTS], {}),
    ("dictionary_encode", [TEXTS], {}),
    ("dictionary_encode", [TEXTS], {"null_encoding": "encode"}),
    ("sort_indices", [TEXTS], {}),
    ("sort_indices", [pa.table({"x": TEXTS})], {"sort_keys": [("x", "descending")]}),
    ("list_flatten", [pa.array([[1], None, []])], {}),
    ("list_value_length", [pa.array([[1], None, []])], {}),
    ("cast", [NUMBERS, pa.string()], {}),
    ("index_in", [TEXTS], {**SET, "skip_nulls": True}),
    ("is_in", [TEXTS], SET),
    *[(name, [TEXTS, "a"], {}) for name in ("starts_with", "ends_with")],
    *[(name, [TEXTS, "a"], {}) for name in ("match_substring", "match_substring_regex")],
    ("struct_field", [pa.array([{"x": 1}, None]), "x"], {}),
    ("take", [TEXTS, pa.array([2, 1])], {}),
    ("take", [pa.table({"x": TEXTS}), pa.array([2, 0])], {}),
]


@pytest.mark.parametrize("name, values, named", CALLS)
def test_a_kernel_is_that_of_arrow(name: str, values: list[Any], named: dict[str, Any]) -> None:
    own = _compute._kernel(name, *_compute._KERNELS[name])
    assert own(*values, **named).equals(getattr(pc, name)(*values, **named))
    assert _compute._KERNELS.keys() == {each for each, *_ in CALLS}


def test_a_cast_that_loses_a_value_is_an_error() -> None:
    cast = _compute._kernel("cast", *_compute._KERNELS["cast"])
    with pytest.raises(pa.ArrowInvalid, match="300 not in range"):
        cast(pa.array([300]), pa.int8())
