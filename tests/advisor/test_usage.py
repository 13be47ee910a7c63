"""``usage``: which indexes the scans of a log used, what they saved, and which did not pay.

The table has 10 files of 1,000 bytes each in the log; ``id`` has a Bloom filter of 5,000 bytes,
``ts`` bounds of 100 bytes, ``note`` a value list.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from skipstone import Table
from skipstone.advisor.usage import usage
from skipstone.cli import cli
from skipstone.facts.reports import Description, IndexInfo
from skipstone.planning.scan_lines import IndexUse, ScanLine

if TYPE_CHECKING:
    from pathlib import Path

TABLE = Description(
    table="/lake/events",
    location="/lake/_events.skipstone",
    files_total=10,
    fresh=10,
    indexes=(
        IndexInfo(column="id", kind="bloomfilter", params=(("fpp", "0.01"),), bytes=5_000),
        IndexInfo(column="ts", kind="minmax", bytes=100),
        IndexInfo(column="note", kind="valuelist", bytes=700),
    ),
)


def scan(*uses: IndexUse, root: str = "/lake/events", predicate: str | None = "p") -> str:
    line = ScanLine(
        time=f"2026-01-02T03:04:0{len(uses)}.000+00:00",
        table=root,
        roots=(root,),
        files_kept=1,
        files_total=10,
        bytes_kept=1_000,
        bytes_total=10_000,
        milliseconds=5.0,
        predicate=predicate,
        indexes=uses,
    )
    return line.to_json()


def test_what_pays_is_kept_and_what_does_not_is_dropped() -> None:
    log = [
        *[scan(IndexUse("id:bloomfilter", 1, 10))] * 20,
        *[scan(IndexUse("ts:minmax", 10, 10), root="/lake/events/day=1")] * 4,
        scan(predicate=None),
        scan(IndexUse("id:bloomfilter", 0, 10), root="/lake/events_of_others"),
        "something else",
    ]
    found = usage(TABLE, log)
    assert (found.lines, found.scans, found.filtered) == (27, 25, 24)
    assert (found.files_kept, found.files_total) == (25, 250)
    bloom, minmax, valuelist = found.indexes
    assert (bloom.used, bloom.files, bloom.considered, bloom.saved) == (20, 180, 200, 180_000)
    assert bloom.verdict == "keep"
    assert minmax.verdict == "drop: it ruled out no file"
    assert valuelist.verdict == "drop: no scan used it"
    assert found.drop == ("ts:minmax", "note:valuelist")
    assert (found.since, found.until) == (
        "2026-01-02T03:04:00.000+00:00",
        "2026-01-02T03:04:01.000+00:00",
    )
    assert "20 of 24 scans" in str(found)
    assert found.to_dict()["drop"] == ["ts:minmax", "note:valuelist"]


def test_bit_slices_count_for_their_index() -> None:
    texts = [IndexInfo(column="m", kind=kind, bytes=500) for kind in ("ngram", "tokens")]
    table = replace(TABLE, indexes=(TABLE.indexes[0], *texts))
    uses = [IndexUse("id:bloom slices", 4, 10), IndexUse("id:bloomfilter", 3, 4)]
    found = usage(table, [scan(*uses, IndexUse("m:ngram slices", 1, 3))] * 20)
    assert [each.used for each in found.indexes] == [20, 20, 0]
    assert [each.files for each in found.indexes] == [140, 40, 0]
    assert found.drop == ("m:tokens",)


def test_few_scans_decide_nothing() -> None:
    found = usage(TABLE, [scan(IndexUse("ts:minmax", 9, 10))])
    assert found.drop == ()
    verdicts = [each.verdict for each in found.indexes]
    assert verdicts == ["unclear: 1 scan, 20 tell more", "keep", "unclear: 1 scan, 20 tell more"]
    assert "no scan of this table" in str(usage(TABLE, []))


def test_a_table_by_its_name() -> None:
    line = json.loads(scan(IndexUse("ts:minmax", 0, 10)))
    log = [json.dumps({**line, "table": "db.events", "roots": []})]
    assert usage(TABLE, log).scans == 0
    assert usage(TABLE, log, ["db.events"]).scans == 1


def test_the_verb(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"id": [number]}), root / f"{number}.parquet")
        os.utime(root / f"{number}.parquet", (1_700_000_000, 1_700_000_000))
    Table(str(root)).build(indexes=["id:minmax"])
    log = tmp_path / "scans.log"
    log.write_text("\n".join([scan(IndexUse("id:minmax", 1, 10), root=str(root))] * 3))
    ran = CliRunner().invoke(cli, ["usage", str(root), "--log", str(log), "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert (found["scans"], found["indexes"][0]["used"]) == (3, 3)
    assert CliRunner().invoke(cli, ["usage", str(root)]).exit_code == 2
