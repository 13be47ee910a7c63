"""A file by its `_pm`: the same rows and plans, no footer read, nothing read of null chunks."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skipstone
from skipstone.errors import FormatError, PredicateError, SkipstoneError, StaleError
from skipstone.pruning import Cause
from skipstone.questdb.evidence.opened_pm import OpenedPm, open_pm
from tests.questdb.evidence.written import parquet, pm_of, with_ids
from tests.strategies import SPARK_TYPES, columns, predicates

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 1_000


def table() -> pa.Table:
    """``ts`` ascends, ``gone`` is null in all but the last row group of 100, ``v`` has nulls."""
    ts = pa.array(np.arange(ROWS) * 1_000_000, pa.timestamp("us", "UTC"))
    gone = pa.array([None] * (ROWS - 100) + list(range(100)), pa.int64())
    v = pa.array([None if n % 7 == 0 else n / 2 for n in range(ROWS)])
    sym = pa.array([f"s{n // 250}" for n in range(ROWS)])
    return pa.table(
        {"ts": ts, "gone": gone, "v": v, "sym": sym, "none": pa.nulls(ROWS, pa.int32())}
    )


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A partition as QuestDB has it."""
    data = parquet(table(), 100, questdb=True, compression="zstd")
    (tmp_path / "data.parquet").write_bytes(data)
    (tmp_path / "_pm").write_bytes(pm_of(data))
    return tmp_path / "data.parquet", tmp_path / "_pm"


def footer_of(path: Path) -> int:
    """Where the footer begins."""
    data = path.read_bytes()
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def without_footer(path: Path) -> None:
    """Overwrite the footer: whoever reads it fails."""
    data = bytearray(path.read_bytes())
    data[footer_of(path) :] = b"\0" * (len(data) - footer_of(path))
    path.write_bytes(data)


WHERE = (
    "ts >= TIMESTAMP '1970-01-01 00:13:20Z' AND v > 410",
    "sym = 's3'",
    "sym LIKE 's1%' OR v < 3",
    "gone IS NOT NULL",
    "gone IS NULL AND v IS NULL",
    "none IS NOT NULL",
    "v IN (1.5, 77.0, 400.0)",
)


def test_rows_counts_and_plans_without_the_footer(pair: tuple[Path, Path]) -> None:
    data, pm = pair
    whole = skipstone.ParquetFile(data)
    expected = {where: (whole.read(where), whole.count(where)) for where in WHERE}
    everything, some = whole.read(), whole.read_rows(["v", "gone"], [(95, 205), (899, 902)])
    schema = whole.schema
    without_footer(data)
    with pytest.raises(FormatError):
        skipstone.ParquetFile(data)
    file = skipstone.ParquetFile(data, pm=pm)
    assert (file.num_rows, file.num_row_groups) == (ROWS, 10)
    assert file.schema.equals(schema)
    for where in WHERE:
        rows, count = expected[where]
        assert file.read(where).equals(rows), where
        assert file.count(where) == count
    assert file.read().equals(everything)
    assert file.read_rows(["v", "gone"], [(95, 205), (899, 902)]).equals(some)
    assert pa.Table.from_batches(file.iter_rows()).equals(everything)
    assert file.read_row_group(9, ["gone"]).equals(everything.slice(900).select(["gone"]))


def test_a_plan_reads_nothing_at_all(pair: tuple[Path, Path]) -> None:
    """s3 is rows 750 to 999: row groups 7 (both s2 and s3), 8 and 9."""
    file = skipstone.ParquetFile(pair[0], pm=pair[1])
    plan = file.plan("sym = 's3'")
    assert plan.details[0].row_groups == (7, 8, 9)
    assert "_pm statistics" in str(plan)
    assert file.count("ts < TIMESTAMP '1970-01-01 00:05:00Z'") == 300
    assert file.count("gone IS NULL") == 900
    assert file.bytes_read == 0


def test_chunks_of_nulls_are_not_fetched(pair: tuple[Path, Path]) -> None:
    file = skipstone.ParquetFile(pair[0], pm=pair[1])
    assert file.read_rows(["none"]).column(0).null_count == ROWS
    assert file.read_rows(["gone"], [(0, 900)]).column(0).null_count == 900
    assert file.bytes_read == 0
    assert file.read_rows(["gone"]).column(0).to_pylist()[-100:] == list(range(100))
    chunk = pq.ParquetFile(pair[0]).metadata.row_group(9).column(1)
    assert file.bytes_read == chunk.total_compressed_size


@pytest.mark.parametrize("given_as", ["path", "bytes", "snapshot", "file"])
def test_what_a_pm_may_be_given_as(pair: tuple[Path, Path], given_as: str) -> None:
    data, pm = pair
    snapshot = open_pm(pm.read_bytes(), parquet_size=data.stat().st_size)
    forms: dict[str, Any] = {
        "path": str(pm),
        "bytes": pm.read_bytes(),
        "snapshot": snapshot,
        "file": OpenedPm.of(snapshot, path=str(data)),
    }
    file = skipstone.ParquetFile(data, pm=forms[given_as])
    assert file.count("sym = 's0'") == 250


def test_what_only_the_footer_tells_is_read_from_it(pair: tuple[Path, Path]) -> None:
    file = skipstone.ParquetFile(pair[0], pm=pair[1])
    assert file.metadata.num_rows == ROWS
    assert file.chunks().num_rows == 50
    assert file.verify().ok
    with pytest.raises(SkipstoneError, match="did you mean 'sym'"):
        file.read_rows(["sim"])
    with pytest.raises(PredicateError):
        file.plan("sim = 's0'")
    assert file.count("SYM = 's0'") == 250


def test_a_column_that_a_pm_does_not_describe_takes_the_footer(tmp_path: Path) -> None:
    """Nested, unsigned, times: read by the footer, and equal to what it gives."""
    made = pa.table(
        {
            "plain": pa.array([1, 2, 3], pa.int16()),
            "u": pa.array([1, 2, 2**32 - 1], pa.uint32()),
            "t": pa.array([1, 2, 3], pa.time64("us")),
            "local": pa.array([1, 2, 3], pa.timestamp("us")),
            "s": pa.array([{"a": 1}, {"a": 2}, None]),
            "l": pa.array([[1.5], [], None]),
        }
    )
    data = parquet(with_ids(made), 2)
    path = tmp_path / "x y é.parquet"
    path.write_bytes(data)
    file = skipstone.ParquetFile(path, pm=pm_of(data))
    by_footer = skipstone.ParquetFile(path)
    for name in made.column_names:
        assert file.read_rows([name]).equals(by_footer.read_rows([name])), name
    assert file.read().equals(by_footer.read())
    assert file.read("u > 3000000000", ["plain"]).num_rows == 1
    assert file.read("s.a = 2", ["plain"]).num_rows == 1


@given(data=st.data())
def test_rows_equal_those_of_the_footer(data: st.DataObject, tmp_path_factory: Any) -> None:
    types = [each for each in SPARK_TYPES if each != pa.timestamp("us")]
    size = data.draw(st.integers(0, 20))
    chosen = data.draw(st.lists(st.sampled_from(types), min_size=1, max_size=3))
    made = pa.table({f"c{at}": data.draw(columns(type_, size)) for at, type_ in enumerate(chosen)})
    whole = parquet(
        made,
        data.draw(st.integers(1, 9)),
        questdb=True,
        compression=data.draw(st.sampled_from(["none", "snappy", "zstd"])),
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        use_dictionary=data.draw(st.booleans()),
    )
    path = tmp_path_factory.mktemp("pm") / "data.parquet"
    path.write_bytes(whole)
    file, by_footer = skipstone.ParquetFile(path, pm=pm_of(whole)), skipstone.ParquetFile(path)
    assert file.read().equals(by_footer.read())
    start = data.draw(st.integers(0, size))
    ranges = [(start, data.draw(st.integers(start, size)))]
    assert file.read_rows(None, ranges).equals(by_footer.read_rows(None, ranges))
    where = data.draw(predicates(made))
    try:
        expected = by_footer.read(where)
    except SkipstoneError as error:
        with pytest.raises(type(error)):
            file.read(where)
        return
    assert file.read(where).equals(expected)
    assert file.count(where) == len(expected)


def test_every_golden_pair_reads_alike(golden: Path) -> None:
    seen = 0
    for path in sorted((golden / "questdb").glob("*.parquet")):
        pm = path.with_suffix(".pm")
        if not pm.exists():
            continue
        file, by_footer = skipstone.ParquetFile(path, pm=pm), skipstone.ParquetFile(path)
        assert not file.reasons
        for name in [leaf.name for leaf in by_footer.footer.schema.leaves]:
            assert file.read_rows([name]).equals(by_footer.read_rows([name])), (path.name, name)
        assert file.read().equals(by_footer.read())
        seen += 1
    assert seen == 9


def test_a_damaged_pm_is_passed_over_with_a_reason(
    pair: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    data, pm = pair
    broken = bytearray(pm.read_bytes())
    broken[100] ^= 0xFF
    with caplog.at_level(logging.WARNING, "skipstone"):
        file = skipstone.ParquetFile(data, pm=bytes(broken))
    assert "the footer is read instead" in caplog.text
    assert file.count("sym = 's0'") == 250
    (reason,) = file.plan("sym = 's0'").reasons
    assert reason.cause is Cause.CORRUPT
    assert "CRC32" in reason.text
    missing = skipstone.ParquetFile(data, pm=pm.with_name("nowhere"))
    assert [each.cause for each in missing.reasons] == [Cause.ABSENT]
    assert missing.num_rows == ROWS


def test_of_a_file_that_grows_the_beginning_is_read(pair: tuple[Path, Path]) -> None:
    """An append is under way: bytes behind the snapshot, no footer at the end yet."""
    data, pm = pair
    size = data.stat().st_size
    expected = skipstone.ParquetFile(data).read("v > 100")
    files = [
        skipstone.ParquetFile(data, pm=pm, size=size),
        skipstone.ParquetFile(data, size=size),  # by the footer that ends there
    ]
    for _ in range(2):
        for file in files:
            assert file.size == size
            assert file.read("v > 100").equals(expected)
        with data.open("ab") as grows:
            grows.write(b"the next row group, and not whole")
    late = skipstone.ParquetFile(data, pm=open_pm(pm.read_bytes(), parquet_size=size))
    assert late.read("v > 100").equals(expected)
    with pytest.raises(FormatError):
        skipstone.ParquetFile(data)
    with data.open("rb+") as cut:
        cut.truncate(size - 1)
    with pytest.raises(StaleError):
        files[0].read_rows(["sym"], [(500, 600)])
    with pytest.raises(StaleError, match="shorter"):
        skipstone.ParquetFile(data, pm=pm, size=size)


def test_a_file_that_was_replaced_is_stale(pair: tuple[Path, Path]) -> None:
    data, pm = pair
    file = skipstone.ParquetFile(data, pm=pm, size=data.stat().st_size)
    other = data.with_name("other")
    other.write_bytes(data.read_bytes() + b"more")
    other.rename(data)
    with pytest.raises(StaleError):
        file.read()


def test_the_page_index_is_asked_where_it_pays(tmp_path: Path) -> None:
    """One row group of 20,000 rows in pages of 100, and one row that matches."""
    made = pa.table({"n": pa.array(np.arange(20_000), pa.int64())})
    data = parquet(
        made, 20_000, questdb=True, compression="none",
        write_page_index=True, max_rows_per_page=100, write_batch_size=100,
    )  # fmt: skip
    path = tmp_path / "data.parquet"
    path.write_bytes(data)
    coarse = skipstone.ParquetFile(path, pm=pm_of(data)).plan("n = 12345")
    fine = skipstone.ParquetFile(path, pm=pm_of(data), page_index=True)
    assert not coarse.details
    assert len(fine.plan("n = 12345").details[0].rows or ()) == 100
    assert fine.read("n = 12345").to_pylist() == [{"n": 12345}]
    before = fine.bytes_read
    assert fine.count("n >= 0") == 20_000  # decided by row groups: no page is asked about
    assert fine.bytes_read == before


def test_chunks_outside_the_file_are_refused(pair: tuple[Path, Path]) -> None:
    data, pm = pair
    size = data.stat().st_size
    snapshot = open_pm(pm.read_bytes(), parquet_size=size)
    broken = bytearray(pm.read_bytes())
    at = int(snapshot.block_offsets[2]) + 8 + 64 * 3
    struct.pack_into("<Q", broken, at + 16, size)  # BYTE_RANGE_START of sym
    hostile = open_pm(broken, parquet_size=size, verify=False)
    file = skipstone.ParquetFile(data, pm=hostile)
    # The footer knows better, and the other columns are as they were.
    assert file.read_rows(["sym"]).equals(skipstone.ParquetFile(data).read_rows(["sym"]))
    assert file.read_rows(["v"]).num_rows == ROWS


def test_ten_thousand_columns_cost_no_more_than_ten(tmp_path: Path) -> None:
    """Not timed: only the column that is touched has metadata made for it."""
    made = pa.table({f"c{n}": pa.array([n, n + 1], pa.int64()) for n in range(2_000)})
    data = parquet(made, 1, questdb=True)
    path = tmp_path / "wide.parquet"
    path.write_bytes(data)
    file = skipstone.ParquetFile(path, pm=pm_of(data))
    assert file.read("c1234 = 1235", ["c77"]).to_pylist() == [{"c77": 78}]
    assert file.bytes_read < 1_000
