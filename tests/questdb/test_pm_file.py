"""`PmFile`: one `_pm` by itself, of QuestDB and of ours, and the row group of an instant."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import FormatError, PredicateError, UnsupportedError
from skipstone.parquet.format.enums import Type
from skipstone.questdb.format.values import PmColumn, PmHead
from skipstone.questdb.format.writer import PmFooter
from skipstone.questdb.pm_file import PmFile
from tests.questdb.evidence.written import parquet
from tests.questdb.format.converting import pm_of
from tests.questdb.format.golden import case
from tests.questdb.format.row_groups import PmChunk, PmRowGroup
from tests.questdb.format.writing import write
from tests.questdb.partitions import DAY, FIRST, questdb

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.table(
    {
        "n": pa.array([1, 2, 3, None, 5, 6, None, None, None, 10, 11, 12], pa.int64()),
        "s": ["apple", "apricot", "avocado", "banana", "berry", "b", "c", "c", "c", "d", "é", "ü"],
    }
)


@pytest.mark.parametrize("name", ["all_types", "convert_sorted_required_ts"])
def test_instants_are_found_as_recorded(golden: Path, name: str) -> None:
    data, recorded = case(golden, name)
    file = PmFile(data)
    assert recorded["findts"]
    for each in recorded["findts"]:
        found = file.find_row_group(
            each["ts"], each["row_lo"], each["row_hi"], column=each["column"]
        )
        assert {
            "encoded": found.encoded,
            "no_decode": found.boundary,
            "row_group_index": found.row_group,
        } == each["result"], each


def timed(*rows: int) -> PmFile:
    """Row group g has this many rows, of 1000 g to 1000 g + 999."""
    column = PmColumn(name="ts", type=131080, physical_type=Type.INT64)
    groups = [
        PmRowGroup(
            num_rows=count,
            chunks=(
                PmChunk(
                    num_values=count,
                    byte_range_start=4,
                    total_compressed=1,
                    min=(1000 * g).to_bytes(8, "little") if count else None,
                    max=(1000 * g + 999).to_bytes(8, "little") if count else None,
                ),
            ),
        )
        for g, count in enumerate(rows)
    ]
    head = PmHead(columns=(column,), designated_timestamp=0, sorting_columns=(0,))
    return PmFile(write(head, groups, PmFooter.of_parquet(1_000, 100)))


def test_a_row_group_right_behind_the_last_row_is_still_looked_at() -> None:
    """QuestDB was seen to answer 6 here: rows 10 to 29 end right before row group 2 begins."""
    file = timed(10, 20, 30, 40, 50, 0)
    assert file.find_row_group(2500, 10, 29).encoded == 6
    # Row group 2 begins after row 29: it is looked at up to row_hi 29, and not any more at 28.
    assert file.find_row_group(2500, 10, 28).encoded == 13
    assert file.find_row_group(3500, 10, 29).encoded == 13
    # Rows before row_lo: row groups that end there are passed over.
    assert file.find_row_group(500, 10, 29).encoded == 3
    assert file.find_row_group(500, 9, 29).encoded == 2
    # The last instant of a row group goes on to the next one; empty ones hold nothing.
    assert file.find_row_group(999).encoded == 3
    assert file.find_row_group(4999).encoded == 13


def test_instants_among_rows_and_without_bounds(tmp_path: Path) -> None:
    """Three row groups of ``n``: 0 1 2 | 3 4 5 | 6 7 8, rows 3 to 5 alone are asked for."""
    numbers = pa.table({"n": pa.array(range(9), pa.int64())})
    file = PmFile(pm_of(parquet(numbers, 3, questdb=True)))
    assert file.find_row_group(1, 3, 5, column=0).encoded == 3  # right before row group 1
    assert file.find_row_group(4, 3, 5, column=0).row_group == 1
    assert file.find_row_group(4, 6, column=0).encoded == 5
    whole = parquet(numbers, 3, questdb=True, write_statistics=False)
    with pytest.raises(FormatError, match="row group 0 has no bounds"):
        PmFile(pm_of(whole)).find_row_group(4, column=0)
    # A row group behind the answer needs no bounds; with the data file none does.
    (tmp_path / "x.parquet").write_bytes(whole)
    beside = PmFile(pm_of(whole), data=tmp_path / "x.parquet")
    found = beside.find_row_group(4, column=0)
    assert (found.row_group, found.boundary) == (1, False)
    assert beside.bytes_read
    with pytest.raises(UnsupportedError, match="no designated timestamp"):
        file.find_row_group(4)


def test_row_groups_of_a_predicate() -> None:
    """Four row groups of three: n is 1 2 3 | null 5 6 | null null null | 10 11 12."""
    data = parquet(TABLE, 3, questdb=True)
    file = skipstone.PmFile(pm_of(data), parquet_size=len(data))
    assert file.columns == ("n", "s")
    assert file.schema == pa.schema([("n", pa.int64()), ("s", pa.string())])
    found = file.select("n >= 6")
    assert (found.row_groups, found.certain, found.exact) == ((1, 3), (3,), False)
    assert found.rows.to_list() == [3, 4, 5, 9, 10, 11]
    assert (len(found), found.row_group_count, found.row_count) == (2, 4, 12)
    assert [step.kept for step in found.steps] == [2]
    assert file.count("n >= 6") is None
    assert file.count("n <= 3") == 3
    assert file.count("n <= 3 OR n IS NULL AND s LIKE 'c%'") == 6
    assert file.select("n = 7 AND s = 'c'").row_groups == ()
    with pytest.raises(PredicateError, match="m"):
        file.select("m = 1")
    assert repr(file) == "PmFile(bytes, 4 row groups)"


def test_our_own_file_answers_by_the_types_of_its_data_file(tmp_path: Path) -> None:
    """No column has an ID: QuestDB's types alone would be believed of none."""
    path = tmp_path / "data.parquet"
    pq.write_table(
        TABLE, path, row_group_size=3, bloom_filter_options={"n": {"ndv": 3, "fpp": 0.01}}
    )
    data = path.read_bytes()
    (tmp_path / "_pm").write_bytes(pm_of(data, own=True, bloom_mode="external"))
    alone = skipstone.PmFile((tmp_path / "_pm").read_bytes())
    assert len(alone.schema) == 0
    file = skipstone.PmFile(tmp_path / "_pm")
    assert file.data == str(path)
    assert file.select("n BETWEEN 5 AND 6").row_groups == (1,)
    # Row group 3 holds 10, 11 and 12. The filter lies in the data file.
    assert file.select("n IN (4, 11)").row_groups == (3,)
    assert file.bytes_read
    named = skipstone.PmFile((tmp_path / "_pm").read_bytes(), schema=TABLE.schema)
    assert named.select("s < 'b'").certain == (0,)


def test_the_partition_that_txn_names(tmp_path: Path) -> None:
    root = questdb(tmp_path / "t", 2)
    skipstone.Table(str(root)).migrate()
    name = "2024-01-02"
    file = skipstone.PmFile.in_table(root, name)
    assert file.path.startswith(f"{root}/{name}")
    assert file.path.endswith("/_pm")
    later = datetime.fromtimestamp((FIRST + DAY) / 1e6, UTC).replace(hour=13)
    place = file.find_row_group(later)
    assert (place.row_group, place.boundary) == (1, False)
    assert file.find_row_group(later.replace(tzinfo=None)) == place
    assert file.find_row_group(FIRST).encoded == 1
    assert file.select("ts >= TIMESTAMP '2024-01-02 13:00:00Z'").row_groups == (1,)
    with pytest.raises(LookupError, match="2023-01-01"):
        skipstone.PmFile.in_table(root, "2023-01-01")
    with pytest.raises(FormatError, match="no footer for a Parquet file"):
        skipstone.PmFile(file.path, parquet_size=1)


def test_files_of_questdb_describe_themselves(golden: Path) -> None:
    data, _ = case(golden, "bloom_inlined_write_order")
    said = skipstone.PmFile(data).describe()
    assert str(said).splitlines()[1].endswith("1 snapshot")
    assert said.to_dict()["row_groups"] == said.row_groups > 0
    assert said.bloom_columns
    everything: dict[str, Any] = skipstone.PmFile(case(golden, "all_types")[0]).describe().to_dict()
    assert ["uuid", "decimal64(18,3)"][0] in {type for _, type in everything["columns"]}
