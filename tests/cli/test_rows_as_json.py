"""Values that JSON has not: `query --json` and `inspect --json` write them alike."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from skipstone.cli import cli
from skipstone.human import plain

if TYPE_CHECKING:
    from pathlib import Path


def test_nan_bytes_and_decimals_are_texts(tmp_path: Path) -> None:
    columns = {
        "f": [math.nan, -math.inf, 0.5],
        "b": [b"\x00\xff", b"x" * 70, None],
        "d": [Decimal("1.50"), None, Decimal("-2.25")],
        "n": [[math.nan], [], None],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    done = CliRunner().invoke(cli, ["query", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.output)["rows"]
    assert rows == [
        ["NaN", "0x00ff", "1.50", ["NaN"]],
        ["-inf", f"0x{'78' * 70}", None, []],
        [0.5, None, "-2.25", None],
    ]
    # What inspect shows of a value, but for long bytes.
    for values, found in zip(zip(*columns.values(), strict=True), rows, strict=True):
        assert [plain(each) for each in values if each != b"x" * 70] == [
            each for each in found if each != f"0x{'78' * 70}"
        ]


def test_times_keep_their_nanoseconds(tmp_path: Path) -> None:
    ticks = pa.array([86_399_999_999_999, 1_000, 0, None], pa.int64())
    times = ticks.view(pa.time64("ns"))
    lists = pa.ListArray.from_arrays([0, 1, 2, 3, 4], times)
    pq.write_table(pa.table({"t": times, "n": lists}), tmp_path / "a.parquet")
    expected = ["23:59:59.999999999", "00:00:00.000001", "00:00:00", None]
    done = CliRunner().invoke(cli, ["query", str(tmp_path), "--json"])
    assert json.loads(done.output)["rows"] == [[text, [text]] for text in expected]
    done = CliRunner().invoke(cli, ["query", str(tmp_path), "--columns", "t", "--csv"])
    assert done.output.splitlines()[1:] == [text or '""' for text in expected]
