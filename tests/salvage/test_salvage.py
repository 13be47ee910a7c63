"""What `salvage` gives are rows that were written: of every whole row group, and no others."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.cli import cli
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.parquet.format.footer import Tail
from skipstone.salvage import salvage
from tests.parquet.format.files import golden_files, nested_types, same_table, written
from tests.parquet.whole_file import read_table

if TYPE_CHECKING:
    from pathlib import Path

# There are no rows; a wrong checksum is meant.
UNSAVED = {"datapage_v1-corrupt-checksum.parquet", "issue97.parquet"}
GROUP, GROUPS = 1_000, 4


def table(rows: int = GROUP * GROUPS, seed: int = 0) -> pa.Table:
    """Five columns of different kinds, with nulls, NaN, both zeros and nested values."""
    rng = np.random.default_rng(seed)
    n = np.arange(rows)
    floats = rng.choice([np.nan, 0.0, -0.0, 1.5], rows)
    return pa.table(
        {
            "id": pa.array(n),
            "city é": pa.array([f"c{at % 37}" for at in n], mask=n % 7 == 0),
            "f": pa.array(floats),
            "tags": pa.array([[f"t{at % 5}"] * (at % 4) for at in n]),
            "flag": pa.array(n % 3 == 0, mask=n % 11 == 0),
        }
    )


def content(rows: pa.Table, **options: Any) -> bytes:
    """A file of row groups of 1,000 rows with checksums, pages of some hundred rows."""
    sink = io.BytesIO()
    given = {"row_group_size": GROUP, "data_page_size": 900, "write_batch_size": 100}
    pq.write_table(rows, sink, **{**given, "write_page_checksum": True, **options})
    return sink.getvalue()


def without_footer(data: bytes) -> bytes:
    """The file up to the middle of its footer."""
    tail = Tail.from_bytes(data[-8:], len(data))
    return data[: tail.offset + tail.length // 2]


class Bench:
    """A folder with the damaged file and a whole one of the same schema."""

    def __init__(self, home: Path, schema: pa.Schema) -> None:
        self.file, self.out = home / "x %é=.parquet.torn", home / "out.parquet"
        self.like = home / "like.parquet"
        pq.write_table(schema.empty_table(), self.like)

    def save(self, data: bytes, **options: Any) -> tuple[pa.Table | None, Any]:
        self.out.unlink(missing_ok=True)
        self.file.write_bytes(data)
        options = {"schema": self.like, **options}
        report = salvage(str(self.file), output=str(self.out), **options)
        assert self.file.read_bytes() == data
        assert self.out.exists() == (report.output is not None)
        return (read_table(self.out.read_bytes()) if self.out.exists() else None), report


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("salvage"), table().schema)


def pieces(data: bytes) -> list[tuple[int, int]]:
    """First and last byte of each row group."""
    found = []
    metadata = pq.read_metadata(io.BytesIO(data))
    for r in range(metadata.num_row_groups):
        columns = [metadata.row_group(r).column(c) for c in range(metadata.num_columns)]
        starts = [c.dictionary_page_offset or c.data_page_offset for c in columns]
        last = columns[-1]
        found.append((min(starts), starts[-1] + last.total_compressed_size))
    return found


# -- every reader, every layout --------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_all_readers_read_all_rows(bench: Bench, codec: str, version: str) -> None:
    rows = table()
    data = content(rows, compression=codec, data_page_version=version)
    found, report = bench.save(without_footer(data))
    assert found is not None
    assert same_table(found, rows)
    assert (len(report.saved), report.num_rows, report.footer) == (GROUPS, rows.num_rows, "lost")
    assert report.pages_saved == report.pages_found == report.pages_with_checksum
    assert same_table(pq.read_table(bench.out), rows)
    want = rows.select(["id", "city é"])
    found = duckdb.read_parquet(str(bench.out)).to_arrow_table().select(["id", "city é"])
    assert found.equals(want)
    assert pl.read_parquet(bench.out)["id"].to_list() == rows["id"].to_pylist()


@pytest.mark.parametrize("page_index", [False, True])
def test_a_page_index_and_bloom_filters_are_passed_over(bench: Bench, page_index: bool) -> None:
    rows = table()
    options: Any = {"id": True, "city é": True}
    data = content(rows, write_page_index=page_index, bloom_filter_options=options)
    found, report = bench.save(without_footer(data))
    assert found is not None
    assert same_table(found, rows)
    assert report.ok is True


@pytest.mark.parametrize("part", [False, True])
def test_golden_files_without_their_footer(golden: Path, tmp_path: Path, part: bool) -> None:
    saved = 0
    for number, path in enumerate(golden_files(golden, largest=300_000)):
        if path.name in UNSAVED:
            continue
        data = path.read_bytes()
        rows = read_table(data)
        torn, out = tmp_path / f"{number}.torn", tmp_path / f"{number}.parquet"
        tail = Tail.from_bytes(data[-8:], len(data))
        torn.write_bytes(without_footer(data) if part else data[: tail.offset])
        salvage(str(torn), output=str(out), schema=path, footer_only=not part)
        assert same_table(read_table(out.read_bytes()), rows), path
        saved += 1
    assert saved > 90


# -- random damage ---------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from(["1.0", "2.0"]))
def test_cut_anywhere(bench: Bench, part: int, page_index: bool, version: str) -> None:
    rows = table()
    data = content(rows, write_page_index=page_index, data_page_version=version)
    cut = 8 + part * (len(data) - 8) // 10_000
    found, report = bench.save(data[:cut])
    whole = sum(stop <= cut for _, stop in pieces(data))
    assert report.num_rows == (0 if found is None else found.num_rows)
    assert len(report.saved) == whole
    if found is not None:
        assert same_table(found, rows.slice(0, whole * GROUP))


@given(st.integers(4, 10_000), st.integers(1, 3_000), st.randoms(use_true_random=False))
def test_overwritten_anywhere(bench: Bench, part: int, length: int, random: Any) -> None:
    rows = table()
    data = bytearray(content(rows))
    at = part * len(data) // 10_001
    stop = min(at + length, len(data))
    data[at:stop] = random.randbytes(stop - at)
    found, report = bench.save(bytes(data))
    untouched = [r for r, (a, b) in enumerate(pieces(content(rows))) if not (at < b and stop > a)]
    starts = [] if found is None else found["id"].to_pylist()[::GROUP]
    groups = [each // GROUP for each in starts]
    assert set(untouched) <= set(groups), report
    for at_row, r in enumerate(groups):
        assert found is not None
        assert same_table(found.slice(at_row * GROUP, GROUP), rows.slice(r * GROUP, GROUP))


@given(written(nested_types()), st.integers(0, 1000))
def test_any_schema_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, made: Any, part: int
) -> None:
    if not made.data:
        return
    rows = read_table(made.data)
    home = tmp_path_factory.mktemp("any")
    like, torn, out = home / "like.parquet", home / "torn", home / "out.parquet"
    like.write_bytes(made.data)
    torn.write_bytes(made.data[: max(len(made.data) * part // 1000, 8)])
    report = salvage(str(torn), output=str(out), schema=like)
    if report.output is None:
        return
    found = read_table(out.read_bytes())
    # What is certain of one column need not end with a row group.
    assert same_table(found, rows.slice(0, found.num_rows))


@given(st.binary(max_size=2_000))
def test_hostile_bytes(bench: Bench, noise: bytes) -> None:
    with suppress(SkipstoneError):  # and no other error
        bench.save(b"PAR1" + noise)


# -- what is ambiguous or damaged ------------------------------------------------------------------


def test_columns_that_look_alike_are_not_guessed(tmp_path: Path) -> None:
    # Two columns without dictionaries, pages of 100 rows: any two pages might be a row group.
    rows = pa.table({"a": np.arange(4_000.0), "b": -np.arange(4_000.0)})
    data = content(rows, use_dictionary=False, compression="none", data_page_size=800)
    bench = Bench(tmp_path, rows.schema)
    tail = Tail.from_bytes(data[-8:], len(data))
    found, report = bench.save(data[: tail.offset])
    assert found is None or same_table(found, rows.slice(0, found.num_rows))
    assert report.ambiguous_pages > 0
    assert "more than one" in str(report)
    found, report = bench.save(data[: tail.offset], row_group_rows=GROUP)
    assert found is not None
    assert same_table(found, rows)


def test_a_damaged_page_costs_its_row_group_or_its_values(bench: Bench) -> None:
    rows = table()
    data = bytearray(content(rows, use_dictionary=False, compression="none"))
    metadata = pq.read_metadata(io.BytesIO(bytes(data)))
    column = metadata.row_group(1).column(2)  # f
    data[column.data_page_offset + 100] ^= 1
    found, report = bench.save(bytes(data))
    assert report.footer == "whole"
    assert found is not None
    assert same_table(found, pa.concat_tables([rows.slice(0, GROUP), rows.slice(2 * GROUP)]))
    assert len(report.bad_pages) == 1
    found, report = bench.save(bytes(data), skip_bad_pages=True)
    assert found is not None
    nulls = found["f"].null_count
    assert 0 < nulls < GROUP
    assert report.to_dict()["values_made_null"] == nulls
    assert same_table(found.drop(["f"]), rows.drop(["f"]))
    assert same_table(pq.read_table(bench.out), found)


def test_an_encrypted_file_is_refused(tmp_path: Path) -> None:
    for name, data in {"a": b"PARE" + bytes(100), "b": b"PAR1" + bytes(100) + b"PARE"}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UnsupportedError, match="encrypted"):
            salvage(str(tmp_path / name))


def test_without_a_schema_it_says_so(tmp_path: Path) -> None:
    data = content(table())
    (tmp_path / "x").write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match="schema"):
        salvage(str(tmp_path / "x"))
    pq.write_table(table().slice(0, 0), tmp_path / "_common_metadata")
    report = salvage(str(tmp_path / "x"))
    assert report.schema_from.endswith("_common_metadata")
    assert report.num_rows > 0
    with pytest.raises(SkipstoneError, match="exists already"):
        salvage(str(tmp_path / "x"))


def test_schemas_of_every_kind(tmp_path: Path) -> None:
    rows = pa.table(
        {"i": pa.array([1, 2, None], pa.int32()), "t": ["a", "é", None], "d": [[1], [], None]}
    )
    data = content(rows, store_schema=False)
    (tmp_path / "x").write_bytes(without_footer(data))
    (tmp_path / "arrow").write_bytes(rows.schema.serialize().to_pybytes())
    text = """message m { optional int32 i; optional binary t (STRING);
        optional group d (LIST) { repeated group list { optional int64 element; } } }"""
    (tmp_path / "text").write_text(text)
    schemas = [text, tmp_path / "text", str(tmp_path / "arrow"), rows.schema]
    for number, schema in enumerate(schemas):
        out = tmp_path / f"{number}.parquet"
        salvage(str(tmp_path / "x"), output=str(out), schema=schema)
        assert pq.read_table(out).to_pylist() == rows.to_pylist()


# -- the command line, and kill -9 -----------------------------------------------------------------


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = content(table())
    first = pieces(data)[0][1]
    (tmp_path / "x").write_bytes(data[: first + 50])
    pq.write_table(table().slice(0, 0), tmp_path / "s.parquet")
    arguments = ["salvage", str(tmp_path / "x"), "--schema", str(tmp_path / "s.parquet")]
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert ended.value.code == 3  # the second row group is not whole
    assert (document["row_groups_saved"], document["rows_saved"]) == (1, GROUP)
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--output", str(tmp_path / "y")])
    assert f"1,000 of 1,000 rows, {document['pages_saved']} of {document['pages_found']} pages" in (
        capsys.readouterr().out
    )


def test_killed_writers_leave_row_groups(tmp_path: Path) -> None:
    rows = table(40 * GROUP)
    like = tmp_path / "like.parquet"
    pq.write_table(rows, like)
    code = (
        "import pyarrow.parquet as pq, os, signal\n"
        f"rows = pq.read_table({str(like)!r})\n"
        f"writer = pq.ParquetWriter({str(tmp_path / 'x')!r}, rows.schema)\n"
        "for at in range(0, len(rows), 1000): writer.write_table(rows.slice(at, 1000))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, env=dict(os.environ))
    assert ended.returncode == -signal.SIGKILL
    report = salvage(str(tmp_path / "x"), schema=like)
    found = pq.read_table(str(report.output))
    assert found.num_rows == report.num_rows > 0
    assert same_table(found, rows.slice(0, found.num_rows))
