"""A plan is a value: totals, files, JSON."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from skipstone.pruning import Cause, Level, Reason, RowSet
from skipstone.pruning.plan import FileDetail, Plan, Step
from skipstone.storage import ByteRange, Listing

WHERE = "id = 5 AND ts > 3"


def listing(count: int = 4) -> Listing:
    return Listing(
        root="/t",
        paths=[f"/t/{i} é.parquet" for i in range(count)],
        sizes=np.array([1_000, 2_000, 4_000, 8_000][:count]),
        mtimes=np.zeros(count, np.int64),
    )


def flags(text: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.array([c == "1" for c in text], np.bool_)


def plan(keep: str = "0110", must: str = "0000", **more: Any) -> Plan:
    fields: dict[str, Any] = {
        "table": "events",
        "predicate": WHERE,
        "listing": listing(len(keep)),
        "keep": flags(keep),
        "must": flags(must),
        "row_counts": np.array([10, 20, 30, -1][: len(keep)]),
        "residual": WHERE,
        "facts_fresh": len(keep),
        "milliseconds": {"listing": 1.5, "evaluation": 0.75},
    }
    return Plan(**{**fields, **more})


MINMAX = Step(level=Level.OBJECT, index="minmax", column="ts", used=True, considered=4, kept=3)
BLOOM = Step(
    level=Level.OBJECT,
    index="bloomfilter",
    column="id",
    used=True,
    considered=3,
    kept=2,
    bytes_read=64,
    requests=2,
    milliseconds=0.1234567,
    reasons=(Reason(cause=Cause.OVER_LIMIT, subject="bloom(id)", text="left out", units=1),),
)
IDLE = Step(
    level=Level.OBJECT,
    index="valuelist",
    column="country",
    used=False,
    considered=4,
    kept=4,
    reasons=(Reason(cause=Cause.NOT_APPLICABLE, subject="x", text="no predicate on country"),),
)


def test_totals() -> None:
    it = plan()
    assert (it.files_kept, it.files_total) == (2, 4)
    assert (it.bytes_kept, it.bytes_total) == (6_000, 15_000)
    assert it.requests == 2
    assert it.paths == ["/t/1 é.parquet", "/t/2 é.parquet"]
    assert [(f.path, f.size, f.rows) for f in it.files] == [
        ("/t/1 é.parquet", 2_000, 20),
        ("/t/2 é.parquet", 4_000, 30),
    ]
    assert all(f.detail == FileDetail() for f in it.files)


def test_byte_ranges_replace_the_whole_of_their_file() -> None:
    """File 1 is read in three ranges of 100 bytes, file 2 whole; file 0 is not read at all."""
    ranges = tuple(ByteRange("/t/1", 100 * i, 100) for i in (0, 3, 7))
    it = plan(
        details={
            0: FileDetail(byte_ranges=ranges),
            1: FileDetail(row_groups=(2,), rows=RowSet.of([3]), byte_ranges=ranges),
        }
    )
    assert it.bytes_kept == 300 + 4_000
    assert it.requests == 3 + 1
    assert it.files[0].detail.row_groups == (2,)
    assert it.files[1].detail == FileDetail()


@pytest.mark.parametrize(
    "keep, must, exact",
    [
        ("0110", "0110", True),
        ("0110", "0100", False),
        ("0000", "0000", True),
        ("0011", "0011", False),  # of file 3 nobody knows the row count
    ],
)
def test_exact_needs_every_kept_file_to_match_whole_and_its_count(
    keep: str, must: str, exact: bool
) -> None:
    it = plan(keep, must)
    assert it.exact is exact
    assert [f.whole_file_matches for f in it.files] == [
        m == "1" for k, m in zip(keep, must, strict=True) if k == "1"
    ]


def test_json_has_all_totals_and_only_the_paths_to_open() -> None:
    note = Reason(cause=Cause.STALE, subject="facts", text="changed", units=1)
    it = plan(steps=(MINMAX, BLOOM, IDLE), reasons=(note,), facts_fresh=3, facts_stale=1)
    found = json.loads(json.dumps(it.to_dict()))
    assert found["files"] == {"kept": 2, "total": 4}
    assert found["bytes"] == {"kept": 6_000, "total": 15_000}
    assert found["facts"] == {"fresh": 3, "stale": 1, "missing": 0}
    assert found["paths"] == ["/t/1 é.parquet", "/t/2 é.parquet"]
    assert found["reasons"] == ["facts: changed (1)"]
    assert found["milliseconds"] == {"listing": 1.5, "evaluation": 0.75}
    assert (found["table"], found["predicate"], found["residual"]) == ("events", WHERE, WHERE)
    assert (found["exact"], found["requests"]) == (False, 2)
    assert found["steps"][1] == {
        "level": "files",
        "index": "bloomfilter",
        "column": "id",
        "used": True,
        "considered": 3,
        "kept": 2,
        "unit": "files",
        "bytes_read": 64,
        "requests": 2,
        "milliseconds": 0.123,
        "reasons": ["bloom(id): left out (1)"],
    }


def test_rows_are_counted_where_all_are_known() -> None:
    it = plan()
    assert (it.rows_kept, it.rows_total) == (-1, -1)
    assert it.to_dict()["rows"] == {"kept": None, "total": None}
    known = plan(row_counts=np.array([10, 20, 30, 40]), details={1: FileDetail(rows=RowSet.all(7))})
    assert (known.rows_kept, known.rows_total) == (37, 100)
    assert known.to_dict()["rows"] == {"kept": 37, "total": 100}


def test_steps_add_up() -> None:
    both = BLOOM.plus(replace(BLOOM, used=False, considered=5, kept=5, bytes_read=1, requests=1))
    assert (both.used, both.considered, both.kept) == (True, 8, 7)
    assert (both.bytes_read, both.requests) == (65, 3)
    assert both.reasons == BLOOM.reasons


def test_a_plan_travels_to_executors() -> None:
    it = plan(details={1: FileDetail(rows=RowSet.of([3, 9]), exact=True)}, steps=(BLOOM,))
    assert it.files_kept == 2
    twin = pickle.loads(pickle.dumps(it))
    assert twin.to_dict() == it.to_dict()
    assert twin.details == it.details


def test_a_plan_is_one_line() -> None:
    assert repr(plan()) == "Plan('events', where id = 5 AND ts > 3: 2 of 4 files)"
