"""Files of every writer at hand, cut off and overwritten: what is whole is saved, nothing else.

The columns alternate in type, so that every division of their pages but the right one fails:
ids, texts, floats with NaN and both zeros, lists, booleans, structs, numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.pages.page import chunk_range
from skipstone.parquet.writing.table_writer import write_table
from skipstone.rewrite import retrofit
from skipstone.salvage import salvage
from tests.parquet.format.files import same_table
from tests.parquet.whole_file import read_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GROUP = 2_048
ROWS = 3 * GROUP + 500


def table() -> pa.Table:
    n = np.arange(ROWS)
    rng = np.random.default_rng(5)
    lists = pa.ListArray.from_arrays(
        pa.array(np.minimum(np.arange(ROWS + 1) * 3 // 2, 9_000), pa.int32()),
        pa.array(rng.integers(0, 9, 9_000), pa.int32()),
    )
    struct = pa.StructArray.from_arrays(
        [
            pa.array(rng.random(ROWS), mask=n % 5 == 0),
            pa.array([f"é{at % 900}" for at in n]),
        ],
        names=["x", "y"],
        mask=pa.array(n % 11 == 0),
    )
    return pa.table(
        {
            "id": pa.array(n),
            "text": pa.array([f"t{at % 37}" for at in n], mask=n % 7 == 0),
            "f": pa.array(rng.choice(np.array([np.nan, 0.0, -0.0, 1.5], np.float32), ROWS)),
            "list": lists,
            "flag": pa.array(n % 3 == 0, mask=n % 13 == 0),
            "who": struct,
            "last": pa.array(n * 7, pa.int32()),
        }
    )


@dataclass(frozen=True)
class Written:
    """A file; the bytes and the rows of its row groups, and all its rows as they are read."""

    data: bytes
    groups: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    table: pa.Table


def described(data: bytes) -> Written:
    found = read_metadata(data)
    groups = []
    for group in found.row_groups:
        metas = [chunk.meta_data for chunk in group.columns]
        places = [chunk_range(each, file_size=len(data)) for each in metas if each is not None]
        groups.append((min(a for a, _ in places), max(b for _, b in places)))
    rows = tuple(group.num_rows for group in found.row_groups)
    return Written(data, tuple(groups), rows, read_table(data))


def by_arrow(path: Path, codec: str, number: int) -> None:
    ways: list[dict[str, Any]] = [
        {"data_page_size": 3_000, "write_batch_size": 200, "write_page_checksum": True},
        {"data_page_version": "2.0", "data_page_size": 3_000, "write_batch_size": 200},
        {"write_page_index": True, "max_rows_per_page": 300},
        {
            "use_dictionary": False,
            "bloom_filter_options": {"id": {"ndv": GROUP}, "text": {"ndv": GROUP}},
        },
    ]
    pq.write_table(table(), path, row_group_size=GROUP, compression=codec, **ways[number])


def by_duckdb(path: Path, codec: str, number: int) -> None:
    rows = table()
    with duckdb.connect() as connection:
        connection.execute("set threads = 1")
        connection.register("rows", rows)
        version = "V1" if number % 2 else "V2"
        connection.execute(
            f"copy (from rows) to '{path}' (format parquet, row_group_size {GROUP},"
            f" compression '{'uncompressed' if codec == 'none' else codec}',"
            f" parquet_version {version})"
        )


def by_polars(path: Path, codec: str, number: int) -> None:
    frame = pl.from_arrow(table())
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(
        path,
        compression="uncompressed" if codec == "none" else codec,  # type: ignore[arg-type]
        row_group_size=GROUP,
        data_page_size=3_000 if number % 2 else None,
        statistics=number > 1,
    )


def by_us(path: Path, codec: str, number: int) -> None:
    options: dict[str, Any] = [
        {"page_rows": 300, "bloom": {"id": 0.01, "text": 0.1}},
        {"page_rows": 500, "index_pages": ["id"], "checkpoint_every": 1},
        {"page_rows": 200, "index_pages": ["id"], "interleave": True},
        {"checkpoint_every": 2, "arrow_options": {"data_page_version": "2.0"}},
    ][number]
    write_table(table(), path, row_group_rows=GROUP, compression=codec, **options)


def retrofitted(path: Path, codec: str, number: int) -> None:
    by_arrow(path, codec, number)
    retrofit(str(path), bloom={"id": 0.01}, page_rows=400 if number % 2 else None)


WRITERS: dict[str, Callable[[Path, str, int], None]] = {
    "arrow": by_arrow,
    "duckdb": by_duckdb,
    "polars": by_polars,
    "skipstone": by_us,
    "retrofit": retrofitted,
}


class Files:
    """Written once each, as they are asked for."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.made: dict[tuple[str, str, int], Written] = {}

    def get(self, writer: str, codec: str, number: int) -> Written:
        key = writer, codec, number
        if key not in self.made:
            path = self.home / f"{writer}-{codec}-{number}.parquet"
            WRITERS[writer](path, codec, number)
            self.made[key] = described(path.read_bytes())
        return self.made[key]

    def save(self, made: Written, data: bytes, **options: Any) -> tuple[pa.Table | None, Any]:
        like, torn, out = (self.home / name for name in ("like", "torn", "out.parquet"))
        like.write_bytes(made.data)
        torn.write_bytes(data)
        out.unlink(missing_ok=True)
        report = salvage(str(torn), output=str(out), schema=like, **options)
        assert (report.output is None) == (not report.saved)
        return (read_table(out.read_bytes()) if report.output else None), report


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("writers"))


anyhow = st.tuples(
    st.sampled_from(sorted(WRITERS)),
    st.sampled_from(["none", "snappy", "zstd", "gzip"]),
    st.integers(0, 3),
)


def which(
    made: Written, found: pa.Table | None, report: Any, unsure: tuple[int, ...] = ()
) -> list[int]:
    """The row groups that were saved; fails for rows that are not those of one.

    Of those that are ``unsure`` values may differ: in pages without checksums nobody sees it.
    """
    kept: list[int] = []
    at = 0
    starts = np.concatenate([[0], np.cumsum(made.rows)]).tolist()
    for group in report.saved:
        assert found is not None
        rows = found.slice(at, group.num_rows)
        number = starts.index(rows["id"][0].as_py())
        assert group.num_rows == made.rows[number]
        if number not in unsure:
            assert same_table(rows, made.table.slice(starts[number], group.num_rows))
        kept.append(number)
        at += group.num_rows
    assert found is None or found.num_rows == at
    assert kept == sorted(set(kept))
    return kept


@given(anyhow, st.floats(0, 1))
def test_cut_anywhere(files: Files, how: tuple[str, str, int], part: float) -> None:
    made = files.get(*how)
    cut = 8 + int(part * (len(made.data) - 8))
    found, report = files.save(made, made.data[:cut])
    kept = which(made, found, report)
    assert kept == [r for r, (_, stop) in enumerate(made.groups) if stop <= cut], report


@given(anyhow, st.floats(0, 1), st.integers(1, 20_000), st.randoms(use_true_random=False))
def test_overwritten_anywhere(
    files: Files, how: tuple[str, str, int], part: float, length: int, random: Any
) -> None:
    made = files.get(*how)
    at = 4 + int(part * (len(made.data) - 5))
    stop = min(at + length, len(made.data))
    data = bytearray(made.data)
    data[at:stop] = random.randbytes(stop - at)
    found, report = files.save(made, bytes(data))
    hit = tuple([r for r, (a, b) in enumerate(made.groups) if at < b and stop > a])
    whole = set(range(len(made.groups))) - set(hit)
    checked = report.pages_with_checksum == report.pages_saved
    kept = which(made, found, report, () if checked else hit)
    assert whole <= set(kept), report


def test_a_footer_that_places_a_chunk_wrongly_costs_no_row_group(files: Files) -> None:
    """One changed bit anywhere in the footer: it may still decode, and every row is saved."""
    made = files.get("retrofit", "zstd", 0)
    length = int.from_bytes(made.data[-8:-4], "little")
    for at in range(len(made.data) - 8 - length, len(made.data) - 8, 37):
        data = bytearray(made.data)
        data[at] ^= 0x24
        found, report = files.save(made, bytes(data))
        assert set(which(made, found, report, ())) == set(range(len(made.groups))), (at, report)


@pytest.mark.parametrize("writer", sorted(WRITERS))
@pytest.mark.parametrize("number", range(4))
def test_without_the_footer_all_is_there(files: Files, writer: str, number: int) -> None:
    made = files.get(writer, "snappy", number)
    end = max(stop for _, stop in made.groups)
    found, report = files.save(made, made.data[:end])
    assert which(made, found, report) == list(range(len(made.rows))), report


@given(st.sampled_from([1, 3]), st.floats(0, 1))
def test_a_checkpoint_needs_no_schema(files: Files, number: int, part: float) -> None:
    made = files.get("skipstone", "zstd", number)
    every = 1 if number == 1 else 2
    cut = 8 + int(part * (len(made.data) - 8))
    torn, out = files.home / "alone" / "torn", files.home / "alone" / "out"
    torn.parent.mkdir(exist_ok=True)
    torn.write_bytes(made.data[:cut])
    out.unlink(missing_ok=True)
    whole = sum(stop <= cut for _, stop in made.groups)
    try:
        report = salvage(str(torn), output=str(out))
    except FormatError:
        assert whole <= every  # no footer yet, so no schema
        return
    found = read_table(out.read_bytes()) if report.output else None
    kept = which(made, found, report)
    assert len(kept) >= whole - every
    assert kept == list(range(len(kept)))
