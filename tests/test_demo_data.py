"""The demo's table: every row of `tpchgen-cli`, in files that skip where they should."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tools import lineitem

if TYPE_CHECKING:
    from pathlib import Path

KEY = [("l_orderkey", "ascending"), ("l_linenumber", "ascending")]


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lineitem.generate(tmp_path_factory.mktemp("tpch"), 0.02)


@pytest.fixture(scope="module")
def table(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("laid-out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lineitem, "ROWS_IN_MEMORY", 50_000)  # several passes over 120,000 rows
        lineitem.lay_out(raw, home / "lineitem", files=40)
    return home / "lineitem"


def rows(path: Path) -> pa.Table:
    table = ds.dataset(path).to_table()
    text = pa.string_view()
    fields = [pa.field(f.name, pa.string() if f.type == text else f.type) for f in table.schema]
    return table.cast(pa.schema(fields)).sort_by(KEY)


def test_the_rows_are_those_of_the_generator(raw: Path, table: Path) -> None:
    expected = rows(raw)
    assert expected.num_rows == 120_515
    assert rows(table).equals(expected)


def test_files_are_of_equal_size_and_hold_rows_as_they_arrived(table: Path) -> None:
    counts = [pq.read_metadata(f).num_rows for f in sorted(table.iterdir())]
    assert len(counts) == 40
    assert max(counts) - min(counts) <= 1
    middles = [
        float(np.median(pq.read_table(f)["l_shipdate"].cast("int32").to_numpy()))
        for f in sorted(table.iterdir())
    ]
    assert middles == sorted(middles)


def test_keys_span_every_file_and_the_rare_pair_only_a_few(table: Path) -> None:
    spans, pairs = [], 0
    for file in sorted(table.iterdir()):
        part = pq.read_table(file)
        ends = pc.min_max(part["l_orderkey"]).as_py()
        spans.append(ends["max"] - ends["min"])
        flags = set(part["l_returnflag"].to_pylist())
        pairs += "N" in flags and "F" in set(part["l_linestatus"].to_pylist())
    assert min(spans) > 0.95 * 120_000
    assert 0 < pairs <= 8


def test_two_runs_give_equal_files(raw: Path, table: Path, tmp_path: Path) -> None:
    lineitem.lay_out(raw, tmp_path / "again", files=40)
    for file in table.iterdir():
        assert pq.read_table(file).equals(pq.read_table(tmp_path / "again" / file.name))


def test_a_finished_table_is_kept_and_a_half_made_one_is_not(tmp_path: Path) -> None:
    table = lineitem.prepare(tmp_path, scale=0.002, files=5)
    before = {f.name: f.stat().st_mtime_ns for f in table.iterdir()}
    assert len(before) == 5
    lineitem.prepare(tmp_path, scale=0.002, files=5)
    assert {f.name: f.stat().st_mtime_ns for f in table.iterdir()} == before
    (tmp_path / "lineitem.recipe.json").unlink()
    lineitem.prepare(tmp_path, scale=0.002, files=4)
    assert len(list(table.iterdir())) == 4
    assert json.loads((tmp_path / "lineitem.recipe.json").read_text())["files"] == 4
