"""Writes the golden files of this version: `python -m tests.compatibility.make`.

Run it once, with the code that is released, and commit the result. Files of a released version are
never made again: what they hold is what users have. Every query is checked against the rows before
anything is written.
"""

from __future__ import annotations

import io
import json
import math
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from skipstone._version import __version__
from tests.compatibility.golden import FILES, HOME, ROWS, Golden, bucket
from tests.s3 import serve

if TYPE_CHECKING:
    from collections.abc import Callable

INDEXES = [
    "id:bloom(fpp=0.001)",
    "ts:minmax",
    "amount:minmax",
    "city:valuelist",
    "kind:bitmap",
    "level:rangebitmap",
    "level:bsi",
    "user:paimonbloom(items=200)",
]
LOCKED = ["id:bloom(fpp=0.001)", "ts:minmax", "kind:bitmap"]
QUERIES: dict[str, Callable[[dict[str, Any]], bool | None]] = {
    "id = 403": lambda row: row["id"] == 403,
    "id = 100000": lambda row: False,
    "id in (8, 9, 10)": lambda row: row["id"] in (8, 9, 10),
    "ts >= '2026-01-07 00:00:00'": lambda row: row["ts"] >= 6 * 86_400_000_000 + _NEW_YEAR,
    "ts < '2025-01-01 00:00:00'": lambda row: False,
    "city = 'town-3'": lambda row: row["city"] == "town-3",
    "city like 'town-5%'": lambda row: row["city"].startswith("town-5"),
    "kind = 'rare'": lambda row: row["kind"] == "rare",
    "level between 70 and 72 and day = 1": lambda row: 70 <= row["level"] <= 72 and row["day"] == 1,
    "user = 'u-77'": lambda row: row["user"] == "u-77",
    "amount = double('NaN')": lambda row: row["amount"] is not None and math.isnan(row["amount"]),
    "amount is null and id < 100": lambda row: row["amount"] is None and row["id"] < 100,
    "day = 0": lambda row: row["day"] == 0,
}
_NEW_YEAR = 1_767_225_600_000_000


def rows(file: int) -> list[dict[str, Any]]:
    """The rows of a file; `day` is its folder."""
    return [
        {
            "id": row * FILES + file,
            "ts": _NEW_YEAR + file * 86_400_000_000 + row * 1_000_000,
            "amount": (math.nan, -0.0, 0.0, None, row / 4)[row % 5] if file == 2 else row / 4,
            "city": f"town-{file}",
            "kind": "rare" if (file, row) == (6, 50) else ("even", "odd")[row % 2],
            "level": row if file != 4 else -row,
            "user": f"u-{row * FILES + file}",
            "day": file % 3,
        }
        for row in range(ROWS)
    ]


def data(file: int) -> bytes:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("ts", pa.timestamp("us")),
            ("amount", pa.float64()),
            ("city", pa.string()),
            ("kind", pa.string()),
            ("level", pa.int32()),
            ("user", pa.string()),
        ]
    )
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows(file), schema), sink, row_group_size=40)
    return sink.getvalue()


def make(golden: Golden) -> dict[str, Any]:
    """Fills the bucket, builds, and returns what queries give."""
    for file in range(FILES):
        golden.put(f"table/day={file % 3}/part-{file}.parquet", data(file))
    golden.table().build(indexes=INDEXES)
    golden.table().compact()
    golden.table(locked=True).build(
        indexes=LOCKED,
        encryption=skipstone.IndexEncryption(footer_key="footer", key_metadata={"id:bloom": "ids"}),
    )
    expected: dict[str, Any] = {}
    for where, matches in QUERIES.items():
        ids = sorted(row["id"] for file in range(FILES) for row in rows(file) if matches(row))
        assert golden.ids(where) == golden.ids(where, locked=True) == ids, where
        expected[where] = {
            "ids": ids,
            "files": golden.files(where),
            "files_locked": golden.files(where, locked=True),
        }
    return expected


def main() -> None:
    folder = HOME / __version__
    with contextmanager(serve)() as server, bucket(server, __version__) as golden:
        expected = make(golden)
        shutil.rmtree(folder, ignore_errors=True)
        for key in golden.s3.keys(""):
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            object_ = golden.s3.client.get_object(Bucket=golden.s3.bucket, Key=key)
            path.write_bytes(object_["Body"].read())
    text = json.dumps(expected, indent=1)
    (folder / "expected.json").write_text(f"{text}\n", encoding="utf-8")
    print(f"{len(expected)} queries, {sum(f.stat().st_size for f in folder.rglob('*')):,} bytes")


if __name__ == "__main__":
    main()
