"""Bit slices of the filters of texts: the answers of the filters, through the public API."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.facts.compact import compact
from skipstone.facts.slice_upkeep import Slicing

FILES = 48
WORDS = np.array([f"w{'abcdefghij'[n % 10]}{n * 7919 % 1000}" for n in range(500)])
CONDITIONS = [
    "m LIKE '%needle-17 %'",
    "m LIKE '% needle-17 %'",
    "m ILIKE '%NEEDLE-3%'",
    "m RLIKE '(needle|haystack)-[0-9]+ in (wa|wb)'",
    "m = 'alone'",
    "m IN ('alone', 'nothing here')",
    "m LIKE '%absent text%'",
    "m LIKE '%wa%'",
    "m LIKE '%ab%'",
    "m LIKE 'the needle-40%'",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """File f has 100 lines of words; its first says that it has needle f. File 5 has no text."""
    root = tmp_path_factory.mktemp("slices") / "t"
    root.mkdir()
    rng = np.random.default_rng(0)
    for file in range(FILES):
        lines = [" ".join(rng.choice(WORDS, 8)) for _ in range(100)]
        lines[0] = f"the needle-{file} in {lines[0]}"
        lines[1] = "alone" if file == 9 else lines[1]
        texts = pa.array([None] * 100 if file == 5 else lines, pa.string())
        pq.write_table(pa.table({"id": range(100), "m": texts}), root / f"{file:03}.parquet")
    table = Table(str(root))
    table.build(indexes=["m:ngram", "m:tokens"], pm="none")
    return table


def answers(table: Table) -> list[tuple[list[bool], int]]:
    found = []
    for where in CONDITIONS:
        plan = table.plan(where, inside=False)
        found.append((plan.keep.tolist(), table.count(where)))
    return found


def test_slices_answer_as_the_filters_do(table: Table) -> None:
    before = answers(table)
    assert [rows for _, rows in before[:2]] == [1, 1]
    assert sum(before[0][0]) < FILES // 4
    report = compact(table.store, table.listing, Slicing(text_files=8, text_group=8))
    assert report.sliced.files == report.sliced.filters == 2 * FILES
    again = Table(table.path)
    assert answers(again) == before
    shown = str(again.explain(CONDITIONS[1]))
    assert "ngram slices" in shown
    assert "tokens slices" in shown
    assert "needs no run of 3 characters" in str(again.explain("m LIKE '%ab%'"))
    assert again.check().ok

    (slices,) = Path(table.location.root).rglob("slices-*")
    held = slices.read_bytes()
    for at in range(8, len(held), len(held) // 15):
        damaged = bytearray(held)
        damaged[at : at + 512] = bytes(byte ^ 0xFF for byte in damaged[at : at + 512])
        slices.write_bytes(damaged)
        assert answers(Table(table.path)) == before
    slices.write_bytes(held[: len(held) // 2])
    assert answers(Table(table.path)) == before


def test_only_columns_with_enough_filters_have_slices(tmp_path: Path) -> None:
    """Filters of whole values need more files than those of texts."""
    for file in range(8):
        texts = pa.array([f"needle-{file} {row}" for row in range(20)])
        pq.write_table(pa.table({"m": texts}), tmp_path / f"{file}.parquet")
    table = Table(str(tmp_path), index_location=str(tmp_path.with_name("other")))
    table.build(indexes=["m:ngram", "m:tokens", "m:bloom"])
    sliced = compact(table.store, table.listing, Slicing(text_files=8, text_group=8)).sliced
    assert (sliced.files, sliced.filters) == (16, 16)
    assert table.describe().sliced == 16


def test_an_index_of_former_parameters_is_named_until_it_is_gone(tmp_path: Path) -> None:
    pq.write_table(pa.table({"m": ["a needle in a haystack"]}), tmp_path / "0.parquet")
    table = Table(str(tmp_path), index_location=str(tmp_path.with_name("former")))
    table.build(indexes=["m:ngram(fpp=0.001)"])
    assert not table.describe().notes
    table.build(indexes=["m:ngram(n=4,fpp=0.001)"])
    (note,) = table.describe().notes
    assert note.startswith("ngram(m, fpp=0.001, n=3) was built again with other parameters: its ")
    assert table.plan("m LIKE '%xyz%'").files_kept == 0
    table.compact()
    assert not table.describe().notes
    assert table.plan("m LIKE '%xyz%'").files_kept == 1
