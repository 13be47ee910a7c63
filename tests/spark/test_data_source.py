"""``format("skipstone")`` on a classic session, over Connect and in SQL: rows of the oracle.

``ten_files`` has ids 0 to 99, ten to a file, under awkward names; ``values.parquet`` has a column
of every type that Spark reads, with NaN, both zeros and nulls.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import math
import os
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import StaleError
from skipstone.execution import plan_rows
from skipstone.spark import data_source
from tests.damaged_page import write_damaged
from tests.spark.layout import rows, ten_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = ten_files(tmp_path_factory.mktemp("source") / "ten files é%")
    for path in root.iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    skipstone.Table(str(root)).build(indexes=["id:minmax", "parity:bitmap"])
    return root


def load(session: SparkSession, path: Path, **options: str) -> DataFrame:
    return session.read.format("skipstone").options(**options).load(str(path))


def test_rows_that_match(session: SparkSession, table: Path) -> None:
    found = load(session, table, where="id IN (7, 42) OR s = 's99'")
    assert [(r.id, r.s, r.parity) for r in found.orderBy("id").collect()] == [
        (7, "s7", 1),
        (42, "s42", 0),
        (99, "s99", 1),
    ]
    assert found.where("parity = 1").count() == 2
    whole = load(session, table)
    assert rows(whole) == rows(session.read.parquet(str(table)))


def test_no_row_where_everything_is_skipped(session: SparkSession, table: Path) -> None:
    found = load(session, table, where="id > 1000")
    assert found.collect() == []
    assert found.columns == ["id", "s", "parity"]


def test_columns_order_and_limit(session: SparkSession, table: Path) -> None:
    found = load(session, table, columns="s, id", orderBy="parity desc, id", limit="3")
    assert found.columns == ["s", "id"]
    assert [tuple(row) for row in found.collect()] == [("s1", 1), ("s3", 3), ("s5", 5)]
    few = load(session, table, where="parity = 0", limit="4").collect()
    assert len(few) == 4
    assert {row.parity for row in few} == {0}
    assert load(session, table, limit="0").collect() == []


def test_in_sql(session: SparkSession, table: Path) -> None:
    path = str(table).replace("'", "\\'")
    session.sql(
        "CREATE OR REPLACE TEMPORARY VIEW by_page USING skipstone "
        f"OPTIONS (path '{path}', where 'id >= 97')"
    )
    found = session.sql("SELECT sum(id) AS total FROM by_page WHERE parity = 1").collect()
    assert found[0].total == 97 + 99


def test_every_type_and_the_awkward_values(session: SparkSession, tmp_path: Path) -> None:
    """Row 0 is full, row 1 all null, row 2 has NaN and -0.0; the layout is three pages of one."""
    instant = datetime.datetime(2024, 10, 27, 0, 30, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "b": pa.array([True, None, False]),
            "t": pa.array([-128, None, 127], pa.int8()),
            "u": pa.array([255, None, 0], pa.uint8()),
            "d": pa.array([0.0, None, math.nan]),
            "z": pa.array([0.0, None, -0.0], pa.float32()),
            "m": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-9.99")]),
            "x": pa.array([b"\x00\xff", None, b""]),
            "day": pa.array([datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1)]),
            "at": pa.array([instant, None, instant], pa.timestamp("us", "UTC")),
            "ms": pa.array([1, None, 2], pa.timestamp("ms", "UTC")),
            "l": pa.array([[1, None], None, []], pa.list_(pa.int64())),
            "r": pa.array([{"k": "v"}, None, {"k": None}], pa.struct([("k", pa.string())])),
            "w": pa.array(["a", None, "é"]).dictionary_encode(),
        }
    )
    root = tmp_path / "t"
    root.mkdir()
    path = root / "values.parquet"
    pq.write_table(table, path, max_rows_per_page=1, write_batch_size=1, write_page_index=True)
    found = load(session, root)
    plain = session.read.parquet(str(root))
    assert found.schema.simpleString() == plain.schema.simpleString()
    assert rows(found) == rows(plain)
    nan = load(session, root, where="d = double('NaN')").collect()
    assert [row.t for row in nan] == [127]
    zeros = load(session, root, where="z = 0").collect()
    assert sorted(row.t for row in zeros) == [-128, 127]


def test_a_zone_that_nobody_knows(session: SparkSession, tmp_path: Path) -> None:
    """01:30 in Berlin is 23:30 UTC of the day before: without the zone it could be any row."""
    root = tmp_path / "t"
    root.mkdir()
    hours = [datetime.datetime(2024, 7, 1, h, 30, tzinfo=datetime.UTC) for h in range(4)]
    pq.write_table(pa.table({"at": pa.array(hours, pa.timestamp("us", "UTC"))}), root / "a.parquet")
    with pytest.raises(Exception, match="depends on the session's time zone"):
        load(session, root, where="at = '2024-07-01 03:30:00'").collect()
    found = load(session, root, where="at = '2024-07-01 03:30:00'", timeZone="Europe/Berlin")
    assert found.count() == 1
    utc = load(session, root, where="at = '2024-07-01 03:30:00+00:00'")
    assert utc.count() == 1


def test_wrong_options_are_named(session: SparkSession, table: Path) -> None:
    with pytest.raises(Exception, match="no option 'wehre'"):
        load(session, table, wehre="id = 1").collect()
    with pytest.raises(Exception, match="limit is 'few'"):
        load(session, table, limit="few").collect()
    with pytest.raises(Exception, match="there is no column"):
        load(session, table, columns="nope").collect()
    with pytest.raises(Exception, match="verifyChecksums is 'no'"):
        load(session, table, verifyChecksums="no").collect()
    with pytest.raises(Exception, match=r"no such file.*give an absolute path or a URL"):
        session.read.format("skipstone").load("of/this/directory").collect()


def test_pages_with_a_wrong_checksum_are_read_on_request(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_damaged(tmp_path / "t" / "a.parquet")
    for how in ({}, {"where": "s = 'v007'"}, {"orderBy": "a desc", "limit": "1000000"}):
        with pytest.raises(Exception, match="checksum"):
            load(spark, path.parent, **how).collect()
        assert load(spark, path.parent, verifyChecksums="false", **how).count() > 0
    found = skipstone.Table(str(path.parent), verify_checksums=False).read(spark, limit=3000)
    assert found.count() == 3000
    assert "planned pages" in str(skipstone.last_scan(spark))


def test_a_dataframe_is_planned_once(session: SparkSession, tmp_path: Path) -> None:
    """A file is replaced after the plan: what is loaded then sees it, as with Spark's own files."""
    root = ten_files(tmp_path / "t")
    for path in root.iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    skipstone.Table(str(root)).build(indexes=["id:minmax"])
    before = load(session, root, where="id = 5")
    assert before.count() == 1
    new = pa.table({"id": [500], "s": ["new"], "parity": pa.array([0], pa.int32())})
    pq.write_table(new, root / "plain.parquet")
    assert [row.s for row in load(session, root, where="id = 500").collect()] == ["new"]
    assert load(session, root, where="id = 5").collect() == []
    # The old plan reads the file that it named as it is now, whole, and decides it.
    assert before.collect() == []


def test_a_snapshot_is_refused_in_words(spark: SparkSession, tmp_path: Path) -> None:
    """A file of a table with a ``_txn`` may grow while it is read."""
    from skipstone.live import LiveTable

    root = tmp_path / "live"
    at = pa.array([datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)], pa.timestamp("us", "UTC"))
    rows = pa.table({"at": at, "id": [1]})
    with LiveTable.create(str(root), rows.schema, timestamp="at") as live:
        live.append(rows)
    with pytest.raises(Exception, match="format skipstone reads no snapshots"):
        load(spark, root, where="id = 1").collect()


def test_what_cannot_be_planned_is_an_error_and_not_no_rows(
    session: SparkSession, table: Path
) -> None:
    """Spark takes NotImplementedError for "no partitions", which would be a result without rows."""
    with pytest.raises(Exception, match="cannot decide"):
        load(session, table, where="soundex(s) = 'S000'").collect()
    with pytest.raises(Exception, match=r"there is no column|below another column"):
        load(session, table, orderBy="s.x", limit="1").collect()


@pytest.mark.parametrize(
    "session, how",
    [
        ("classic", {}),
        ("classic", {"orderBy": "id desc", "limit": "3"}),
        ("classic", {"limit": "250"}),
        ("connect", {}),
    ],
    indirect=["session"],
)
def test_a_file_that_is_gone_is_named(
    session: SparkSession, tmp_path: Path, how: dict[str, str]
) -> None:
    root = files_of_100(tmp_path / "t")
    found = load(session, root, where="v >= 0", **how)
    assert found.count() in (3, 250, 300)
    (root / "2.parquet").unlink()
    with pytest.raises(Exception, match=r"2\.parquet is gone since it was listed"):
        found.collect()


@pytest.mark.parametrize("how", [{"order_by": "id desc", "limit": 3}, {}])
def test_rows_by_position_are_of_the_planned_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    """A file cut into several tasks: each would read the whole new file."""
    root = files_of_100(tmp_path / "t")
    monkeypatch.setattr(data_source, "TARGET", 1)
    monkeypatch.setattr(plan_rows, "_PIECE", 1)
    tasks = skipstone.Table(str(root)).retried(
        functools.partial(data_source._tasks_of, {}), "v >= 0", columns=["id"], **how
    )
    assert len(tasks) == (1 if how else 6)
    again = pickle.loads(pickle.dumps(tasks))
    assert sum(table.num_rows for each in again for table in each.tables()) == (3 if how else 300)
    pq.write_table(pa.table({"id": [7], "v": [1]}), root / "2.parquet")
    with pytest.raises(StaleError, match=r"2\.parquet has changed since the DataFrame"):
        list(again[-1].tables())


def files_of_100(root: Path) -> Path:
    """Three files of two row groups."""
    root.mkdir()
    for at in range(3):
        ids = range(at * 100, at * 100 + 100)
        pq.write_table(pa.table({"id": ids, "v": ids}), root / f"{at}.parquet", row_group_size=50)
        os.utime(root / f"{at}.parquet", (1_700_000_000, 1_700_000_000))
    return root


def test_the_memory_of_a_task_is_limited(session: SparkSession, tmp_path: Path) -> None:
    root = files_of_100(tmp_path / "t")
    assert load(session, root, memory="1000000").count() == 300
    with pytest.raises(Exception, match="the limit is 10"):
        load(session, root, memory="10").collect()
    with pytest.raises(Exception, match="memory is 'much'"):
        load(session, root, memory="much").collect()
