"""The golden files of one version: a table and its indexes, in a bucket of the S3 server.

    <version>/table/day=2/part-1.parquet …      the data, 8 files of 100 rows
    <version>/_table.skipstone/…                an index in the clear, by `Table.build`
    <version>/locked/…                          the same, encrypted
    <version>/expected.json                     what queries must give; see `make.py`

An object store is used because the identity of a file must be the same as when the index was built.
Its etag follows from the bytes, and the server sets its time.

File `n` has the ids n, n + 8, n + 16, …, so that each file spans nearly all ids; `ts` and `city`
belong to the file; `amount` is NaN, zero of both signs and null in some rows.
"""

from __future__ import annotations

import datetime
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import skipstone
from tests.s3 import bucket_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.s3 import S3, Gate

HOME = Path(__file__).parent
TIME = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
KEYS = {"footer": b"FOOTERFOOTERFOOT", "ids": b"11-key-of-id-111"}
FILES, ROWS = 8, 100


def versions() -> list[str]:
    """The versions that have golden files."""
    return sorted(path.parent.name for path in HOME.glob("*/expected.json"))


@dataclass(frozen=True, slots=True)
class Golden:
    """The bucket of one version."""

    s3: S3

    def put(self, key: str, data: bytes) -> None:
        """An object, written at ``TIME``."""
        from moto.s3.models import s3_backends

        self.s3.fill(key, data=data)
        [backend] = (b["aws"] for b in s3_backends.values() if self.s3.bucket in b["aws"].buckets)
        backend.buckets[self.s3.bucket].keys[key].last_modified = TIME

    def table(self, *, locked: bool = False) -> skipstone.Table:
        """The table with its index in the clear, or the encrypted one."""
        where: dict[str, Any] = {}
        if locked:
            where = {"index_location": f"{self.s3.base}/locked", "index_keys": KEYS}
        return skipstone.Table(f"{self.s3.base}/table", storage_options=self.s3.options, **where)

    def files(self, where: str, *, locked: bool = False) -> list[str]:
        """The files that a plan keeps by the index alone, without the bucket."""
        found = self.table(locked=locked).plan(where, inside=False)
        return [path.removeprefix(f"{self.s3.base}/table/") for path in found.paths]

    def ids(self, where: str, *, locked: bool = False) -> list[int]:
        """The ids that match, in order."""
        found: list[int] = self.table(locked=locked).query(where, ["id"])["id"].to_pylist()
        return sorted(found)


@contextmanager
def bucket(server: tuple[str, list[str], Gate], version: str) -> Iterator[Golden]:
    """An empty bucket of the name that the facts of this version have; removed at the end."""
    with contextmanager(bucket_of)(server, f"skipstone-{version}") as s3:
        yield Golden(s3)
        for key in s3.keys(""):
            s3.client.delete_object(Bucket=s3.bucket, Key=key)
        s3.client.delete_bucket(Bucket=s3.bucket)


def fill(golden: Golden, version: str) -> None:
    """Puts the files of a version into its bucket."""
    folder = HOME / version
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "expected.json":
            golden.put(str(path.relative_to(folder)), path.read_bytes())
