"""Retrofitted files: the same rows for every reader, claims that hold, and no row lost by them."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skipstone import ParquetFile, Table
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.rewrite.retrofit_file import retrofit
from tests.folders import GOLDEN
from tests.oracle import matching_rows
from tests.processes import FILE_CALLS, killed_before_step, runs_of
from tests.strategies import predicates, tables

#: verifying each of 40,000 pages, before and after, takes half a minute
_OF_MANY_PAGES = "overflow_i16_page_cnt.parquet"
_TOO_LARGE = {"large_string_map.brotli.parquet"}
#: a wrong checksum must not get a right one
_DAMAGED = {
    "datapage_v1-corrupt-checksum.parquet",
    "rle-dict-uncompressed-corrupt-checksum.parquet",
}
NAN = float("nan")
_LARGE = 100_000


def table(rows: int = 6_000) -> pa.Table:
    """id ascending; f with NaN and both zeros; s long text and nulls; l lists; n all null."""
    n = range(rows)
    return pa.table(
        {
            "id": pa.array(n, pa.int64()),
            "f": [NAN if i % 7 == 0 else (-0.0 if i % 5 == 0 else i / 3) for i in n],
            "s": [None if i % 3 == 0 else "é" * (i % 90) for i in n],
            "l": [[f"v{j}" for j in range(i % 4)] if i % 6 else None for i in n],
            "n": pa.nulls(rows, pa.int32()),
            "b": [i % 2 == 0 for i in n],
        }
    )


def write(path: Path, data: pa.Table, **options: Any) -> str:
    pq.write_table(data, path, **{"row_group_size": 2_500, "max_rows_per_page": 400, **options})
    return str(path)


def same(path: str, data: pa.Table) -> None:
    """Every reader gives these rows, checksums looked at, and every claim holds."""
    expected = repr(data.to_pydict())
    assert repr(pq.read_table(path, page_checksum_verification=True).to_pydict()) == expected
    assert repr(polars.read_parquet(path).to_arrow().cast(data.schema).to_pydict()) == expected
    found = duckdb.sql(f"FROM '{path}'")
    assert found is not None
    assert repr(found.arrow().read_all().to_pydict()) == expected
    report = ParquetFile(path).verify()
    assert report.ok, str(report)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["snappy", "zstd", "none"])
def test_all_that_is_missing_is_added(tmp_path: Path, version: str, codec: str) -> None:
    data = table()
    path = write(tmp_path / "a é.parquet", data, compression=codec, data_page_version=version)
    before = ParquetFile(path)
    report = retrofit(path, bloom={"id": 0.01, "s": 0.05, "l": 0.01}, sorting=["id"])
    assert report.outcome == "rewritten"
    assert report.added["offset index"] == report.added["checksums"] == report.chunks == 18
    assert report.added["bloom filter"] == 9
    assert report.sorted_groups == 3
    file = ParquetFile(path)
    assert file.metadata.key_value_metadata == before.metadata.key_value_metadata
    assert file.metadata.created_by == before.metadata.created_by
    chunk = file.metadata.row_groups[0].columns[1].meta_data
    assert chunk is not None
    assert chunk.statistics is not None
    assert chunk.statistics.nan_count == len(range(0, 2_500, 7))
    text = file.metadata.row_groups[0].columns[2].meta_data
    assert text is not None
    assert text.statistics is not None
    assert text.statistics.is_max_value_exact is False
    assert len(text.statistics.max_value or b"") <= 67
    same(path, data)
    again = retrofit(path, bloom={"id": 0.01, "s": 0.05, "l": 0.01}, sorting=["id"])
    assert again.outcome == "complete"


def bodies(path: str) -> list[bytes]:
    file = ParquetFile(path)
    whole = Path(path).read_bytes()
    return [
        whole[at.offset + at.header_length : at.offset + at.size]
        for r in range(file.num_row_groups)
        for c in range(len(file.footer.schema.leaves))
        for at in file.chunk_pages.walk((r, c))
    ]


def test_bodies_of_pages_are_copied_byte_for_byte(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", table())
    out = str(tmp_path / "b.parquet")
    held = (tmp_path / "a.parquet").read_bytes()
    retrofit(path, bloom={"id": 0.01}, output=out)
    assert bodies(out) == bodies(path)
    assert (tmp_path / "a.parquet").read_bytes() == held


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_are_split_where_rows_begin(tmp_path: Path, version: str) -> None:
    data = table()
    path = write(tmp_path / "a.parquet", data, max_rows_per_page=100_000, data_page_version=version)
    report = retrofit(path, page_rows=130)
    assert report.added["pages"] == 18
    file = ParquetFile(path)
    for name in ("id", "f", "s", "l.list.element", "n", "b"):
        index = file.offset_index(0, name)
        assert index is not None
        assert np.diff([*index.first_row_index, 2_500]).max() == 130
    same(path, data)
    assert file.query("id = 4321").num_rows == 1
    assert retrofit(path, page_rows=130).outcome == "complete"


def test_dry_run_writes_nothing_and_knows_the_size(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", table())
    held = (tmp_path / "a.parquet").read_bytes()
    planned = retrofit(path, bloom={"id": 0.01}, dry_run=True)
    assert (tmp_path / "a.parquet").read_bytes() == held
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]
    done = retrofit(path, bloom={"id": 0.01})
    assert planned.bytes_after == done.bytes_after == (tmp_path / "a.parquet").stat().st_size
    assert planned.added == done.added


def test_sorting_is_claimed_only_where_it_holds(tmp_path: Path) -> None:
    """Row group 0 is sorted by k, row group 1 is not; the writer claimed both."""
    k = pa.array([*range(100), 5, 4, *range(98)])
    claim = [pq.SortingColumn(0)]
    path = write(
        tmp_path / "a.parquet", pa.table({"k": k}), row_group_size=100, sorting_columns=claim
    )
    report = retrofit(path)
    assert any("row group 1" in note for note in report.notes)
    groups = ParquetFile(path).metadata.row_groups
    assert groups[0].sorting_columns
    assert not groups[1].sorting_columns


def test_what_is_not_here_in_the_clear_is_refused(tmp_path: Path, golden: Path) -> None:
    name = "parquet-testing/data/encrypt_columns_plaintext_footer.parquet.encrypted"
    with pytest.raises(UnsupportedError, match="encrypted"):
        retrofit(golden / name, output=tmp_path / "x.parquet")
    path = write(tmp_path / "part.parquet", table(100))
    found: list[Any] = []
    pq.write_table(table(100), path, metadata_collector=found)
    found[0].set_file_path("part.parquet")
    pq.write_metadata(table(100).schema, tmp_path / "_metadata", metadata_collector=found)
    with pytest.raises(UnsupportedError, match="another file"):
        retrofit(tmp_path / "_metadata")
    with pytest.raises(UnsupportedError, match="booleans"):
        retrofit(path, bloom={"b": 0.01})


def test_a_wrong_checksum_never_becomes_right(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, table(), write_page_checksum=True, compression="none")
    whole = bytearray(path.read_bytes())
    whole[2_000] ^= 1  # within a page of ids
    path.write_bytes(whole)
    with pytest.raises(FormatError):
        retrofit(path)
    assert path.read_bytes() == bytes(whole)
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize(
    "name",
    sorted(
        str(path.relative_to(GOLDEN))
        for folder in ("parquet-testing/data", "hyparquet")
        for path in (GOLDEN / folder).rglob("*.parquet")
        if path.name not in _TOO_LARGE
    ),
)
@pytest.mark.parametrize("page_rows", [None, 70])
def test_golden_files_keep_their_rows(
    golden: Path, tmp_path: Path, name: str, page_rows: int | None
) -> None:
    """What pyarrow reads before, it reads after; what cannot be done is refused in words."""
    out = tmp_path / "out.parquet"
    try:
        whole = pq.ParquetFile(golden / name).read()
    except (OSError, pa.ArrowException, NotImplementedError):
        whole = None
    if page_rows is not None and (golden / name).stat().st_size > _LARGE:
        pytest.skip("large files are not split: the small ones have every encoding")
    failed: SkipstoneError | None = None
    try:
        report = retrofit(golden / name, output=out, page_rows=page_rows)
    except SkipstoneError as error:
        failed = error
    else:
        assert report.outcome == "rewritten"
    if failed is not None:
        readable = name.rpartition("/")[2] not in _DAMAGED and whole is not None
        assert not readable or isinstance(failed, UnsupportedError), str(failed)
        assert not out.exists()
        return
    if whole is None:
        return
    found = pq.ParquetFile(out, page_checksum_verification=True).read()
    assert found.schema.equals(whole.schema)
    assert found.equals(whole) or _text(found) == _text(whole)
    if name.endswith(_OF_MANY_PAGES):
        return
    before = {each.claim for each in ParquetFile(golden / name).verify().problems}
    problems = [
        each for each in ParquetFile(str(out)).verify().problems if each.claim not in before
    ]
    assert not problems


def _text(data: pa.Table) -> str:
    try:
        return repr(data.to_pydict())
    except OverflowError:  # an instant beyond Python's
        return str(data.to_string(preview_cols=1_000))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_no_row_is_lost_by_what_was_written(tmp_path: Path, data: st.DataObject) -> None:
    """Any table, any layout, any predicate: rows are those of brute force over what was written."""
    rows = data.draw(tables())
    path = tmp_path / "drawn.parquet"
    pq.write_table(
        rows,
        path,
        row_group_size=data.draw(st.integers(1, 20)),
        max_rows_per_page=data.draw(st.integers(1, 8)),
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        use_dictionary=data.draw(st.booleans()),
        write_statistics=data.draw(st.booleans()),
        store_decimal_as_integer=data.draw(st.booleans()),
    )
    whole = pq.read_table(path)
    columns = [
        field.name
        for field in rows.schema
        if not pa.types.is_boolean(field.type)
        and not pa.types.is_nested(field.type)
        and not pa.types.is_null(field.type)
    ]
    report = retrofit(
        path,
        bloom=dict.fromkeys(columns, 0.01),
        page_rows=data.draw(st.sampled_from([None, 1, 3])),
    )
    assert report.outcome in ("rewritten", "complete")
    file = ParquetFile(path)
    verified = file.verify()
    assert verified.ok, str(verified)
    assert repr(pq.read_table(path).to_pydict()) == repr(whole.to_pydict())
    predicate = data.draw(predicates(rows))
    expected = matching_rows(rows, predicate)
    try:
        found = file.query(predicate)
    except UnsupportedError:
        return
    assert repr(found.to_pydict()) == repr(whole.take(pa.array(expected, pa.int64())).to_pydict())


# -- kills ----------------------------------------------------------------------------------------

_KILLED = f"""{killed_before_step(*FILE_CALLS)}
from skipstone.rewrite.retrofit_file import retrofit
import skipstone.storage.atomic_replace
skipstone.storage.atomic_replace._BUFFER = 20_000
retrofit(sys.argv[1], bloom={{"id": 0.01}})
"""


def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    data = table(3_000)
    write(path, data)
    old = path.read_bytes()
    retrofit(path, bloom={"id": 0.01}, output=tmp_path / "new")
    new = (tmp_path / "new").read_bytes()
    (tmp_path / "new").unlink()
    kills, steps = 0, 0
    with runs_of(_KILLED) as run:
        while True:
            path.write_bytes(old)
            code = run(path, steps)
            assert path.read_bytes() in (old, new)
            left = {each.name for each in tmp_path.iterdir()} - {"a.parquet"}
            assert len(left) <= 1
            assert all(re.fullmatch("_tmp-a.parquet-[0-9a-f]{32}", name) for name in left)
            if code == 0:
                break
            assert code == -signal.SIGKILL
            kills, steps = kills + 1, steps + (1 if steps < 4 or steps > 7 else 2)
    assert kills >= 5
    assert path.read_bytes() == new
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]


# -- tables and the command line ------------------------------------------------------------------


def test_a_table_is_resumed_and_its_facts_are_fresh(tmp_path: Path) -> None:
    root = tmp_path / "events"
    root.mkdir()
    for part in range(4):
        write(
            root / f"part-{part}.parquet",
            table(1_000).set_column(0, "id", pc.add(table(1_000)["id"], part * 1_000)),
        )
    found = Table(str(root))
    found.build(indexes=["id:minmax"])
    retrofit(root / "part-2.parquet", bloom={"id": 0.01})
    seen: list[tuple[int, int]] = []
    report = Table(str(root)).retrofit(
        bloom={"id": 0.01}, progress=lambda done, total: seen.append((done, total))
    )
    assert [each.outcome for each in report.files].count("complete") == 1
    assert [each.outcome for each in report.files].count("rewritten") == 3
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert report.refreshed is not None
    plan = Table(str(root)).plan("id = 3500")
    assert len(plan.files) == 1
    assert len(Table(str(root)).retrofit(bloom={"id": 0.01}).of("complete")) == 4


def test_the_command_line(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from skipstone.cli import cli

    path = write(tmp_path / "a.parquet", table())
    out = str(tmp_path / "b.parquet")
    arguments = ["retrofit", path, "--bloom", "id:0.02", "--page-rows", "200", "--output", out]
    done = CliRunner().invoke(cli, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["outcome"] == "rewritten"
    assert told["added"]["bloom filter"] == 3
    same(out, table())
    again = CliRunner().invoke(cli, ["retrofit", out, "--bloom", "id", "--page-rows", "200"])
    assert "has everything already" in again.output
