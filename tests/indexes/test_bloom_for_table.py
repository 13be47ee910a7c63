"""Filters whose false positive probability a build chooses by the number of files.

A lookup of one value reads ``fpp x N`` of ``N`` files for nothing: about one with the default.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone import IndexEncryption, Table
from skipstone.indexes.bloom import FPP, LEAST_FPP, MOST_IN_VAIN, Bloom, fpp_for
from skipstone.indexes.registry import parse_index

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.facts.reports import IndexInfo

KEYS, STEP = 50, 1_000_003


def lay(table: Path, files: range) -> Path:
    """File i holds the 50 keys i, STEP + i, 2 STEP + i …, as numbers and as texts: each file spans
    all keys, so that no range skips it."""
    table.mkdir(exist_ok=True)
    for i in files:
        keys = np.arange(KEYS) * STEP + i
        path = table / f"part-{i:05d}.parquet"
        pq.write_table(pa.table({"id": keys, "name": [f"n-{key}" for key in keys]}), path)
        os.utime(path, (1, 1))
    return table


def the_index(table: Table) -> IndexInfo:
    (index,) = table.describe().indexes
    return index


# -- the rule -------------------------------------------------------------------------------------


@given(st.integers(1, 10**9))
def test_about_one_file_is_read_for_nothing(files: int) -> None:
    fpp = fpp_for(files)
    assert LEAST_FPP <= fpp <= FPP
    if fpp == FPP:
        assert files * fpp <= 1.05
    elif fpp == LEAST_FPP:
        assert files * fpp >= 0.95
    else:
        assert 0.95 <= files * fpp <= 1.05
    bits_per_key = -np.log(fpp) / np.log(2) ** 2
    assert bits_per_key < 24
    chosen = Bloom("c").for_table(files)
    assert (chosen.fpp, chosen.files, chosen.outgrown(files)) == (fpp, files, None)


@given(st.integers(1, 10**7), st.integers(1, 10**7))
def test_filters_are_kept_until_finer_ones_would_help(before: int, now: int) -> None:
    had = Bloom("c").for_table(before)
    kept = Bloom("c").for_table(now, had)
    if had.outgrown(now) is None:
        assert kept == had
        assert had.fpp * now <= MOST_IN_VAIN or had.fpp == LEAST_FPP
    else:
        assert kept == Bloom("c").for_table(now)
        assert kept.fpp < had.fpp
        assert had.fpp * now > MOST_IN_VAIN
        assert kept.outgrown(now) is None


def test_what_is_given_stays() -> None:
    given_ = Bloom("c", fpp=0.2)
    assert given_.for_table(10**6) is given_
    assert given_.for_table(10**6, Bloom("c").for_table(3)) is given_
    assert given_.outgrown(10**6) is None
    # Coarser filters than a build would ever choose are not kept for it.
    assert Bloom("c").for_table(3, given_) == Bloom("c", 0.01, files=3)
    assert Bloom("c").for_table(9, Bloom("c", fpp=0.0003)) == Bloom("c", fpp=0.0003)
    limited = Bloom("c", max_bytes=4096)
    assert limited.for_table(1000, Bloom("c").for_table(1000)).max_bytes == 4096


def test_how_it_is_spelled() -> None:
    chosen = Bloom("c").for_table(1000)
    assert dict(chosen.params) == {"fpp": "0.001", "files": "1000"}
    assert parse_index("c:bloom(files=1000)") == chosen
    assert parse_index("c:bloom(fpp=0.001,files=1000)") == chosen
    assert parse_index("c:bloom") == Bloom("c") != Bloom("c", fpp=0.01)
    assert chosen.shown_params == "fpp=0.001 (chosen for 1,000 files)"
    assert Bloom("c", fpp=0.5, max_bytes=99).shown_params == "fpp=0.5, max_bytes=99"
    with pytest.raises(ValueError, match="files is at least 1"):
        Bloom("c", files=0)


# -- a table --------------------------------------------------------------------------------------


def test_a_table_that_grows_says_so_and_how_to_mend_it(tmp_path: Path) -> None:
    """3 files, then 500: filters for 3 let 5 of 500 through, and a new build makes finer ones."""
    table = Table(str(lay(tmp_path / "a table", range(3))))
    assert table.build(indexes=["id:bloom"]).notes == ()
    index = the_index(table)
    assert dict(index.params) == {"fpp": "0.01", "files": "3"}
    assert "fpp=0.01 (chosen for 3 files)" in str(table.describe())
    assert table.plan(f"id = {7 * STEP + 1}").files_kept == 1

    lay(tmp_path / "a table", range(3, 400))
    assert table.refresh().notes == ()
    assert (the_index(table).params, the_index(table).files) == (index.params, 400)

    lay(tmp_path / "a table", range(400, 500))
    (note,) = table.refresh().notes
    assert "about 5 of 500 files" in note
    assert table.describe().notes == (note,)
    assert f"note: {note}" in str(table.describe())
    checked = table.check()
    assert checked.ok
    assert checked.notes == (note,)
    assert dict(the_index(table).params) == {"fpp": "0.01", "files": "3"}
    kept = [table.plan(f"id = {(1 + i % 40) * STEP + 2_000 + i}").files_kept for i in range(300)]
    assert 3 < np.mean(kept) < 7

    command = shlex.split(note.partition("`")[2].rstrip("`"))
    assert command == ["skipstone", "build", table.path, "-c", "id:bloom"]
    report = table.build(indexes=[command[-1]])
    assert (report.files_built, report.notes) == (500, ())
    assert dict(the_index(table).params) == {"fpp": "0.002", "files": "500"}
    kept = [table.plan(f"id = {(1 + i % 40) * STEP + 2_000 + i}").files_kept for i in range(300)]
    assert np.mean(kept) < 2
    for i in (0, 250, 499):
        where = f"id = {7 * STEP + i}"
        assert table.plan(where).keep[i]
        assert table.query(where).num_rows == 1
    assert table.build(indexes=["id:bloom"]).files_built == 0
    # The coarse filters of before go with a compaction.
    size = table.describe().bytes_index
    table.compact()
    assert table.describe().bytes_index < size
    (filters,) = (f for f in table.store.snapshot().fields if f.definition)
    assert dict(filters.definition.params)["fpp"] == "0.002"  # type: ignore[union-attr]
    assert all(table.plan(f"id = {7 * STEP + i}").keep[i] for i in (0, 250, 499))
    assert table.check().ok


def test_one_build_has_one_fpp_and_the_next_keeps_it(tmp_path: Path) -> None:
    """A build that was stopped half way goes on with the filters that it began."""
    path = lay(tmp_path / "t", range(150))
    table = Table(str(path))
    held = tmp_path / "held"
    held.mkdir()
    for i in range(100, 150):
        (path / f"part-{i:05d}.parquet").rename(held / f"{i}")
    table.build(indexes=["id:bloom", "name:bloom(fpp=0.07)"])
    for i in range(100, 150):
        (held / f"{i}").rename(path / f"part-{i:05d}.parquet")
    table.build(indexes=["id:bloom", "name:bloom(fpp=0.07)"])
    found = {index.column: (dict(index.params), index.files) for index in table.describe().indexes}
    assert found == {
        "id": ({"fpp": "0.01", "files": "100"}, 150),
        "name": ({"fpp": "0.07"}, 150),
    }
    assert len(table.store.snapshot().definitions) == 2


def test_an_encrypted_index_chooses_too(tmp_path: Path) -> None:
    path = lay(tmp_path / "t", range(200))
    keys = {"kf": b"F" * 16}
    table = Table(str(path), index_keys=keys)
    table.build(indexes=["id:bloom"], encryption=IndexEncryption(footer_key="kf"))
    assert dict(the_index(table).params) == {"fpp": "0.005", "files": "200"}
    assert table.plan(f"id = {7 * STEP + 5}").keep[5]
    lay(path, range(200, 1100))
    assert "about 6 of 1,100 files" in table.refresh().notes[0]


def test_it_is_exported_to_xskipper(tmp_path: Path) -> None:
    table = Table(str(lay(tmp_path / "t", range(200))))
    table.build(indexes=["id:bloom"])
    report = table.export(str(tmp_path / "x"))
    assert report.indexes == ("id:bloomfilter",)
    (directory,) = (tmp_path / "x").iterdir()
    described = b"".join(each.read_bytes() for each in directory.rglob("*.parquet"))
    assert b"index.bloom.fpp" in described
    assert b'"0.005"' in described
