"""The listing is Spark's: same files, same sizes, same times, over a directory of odd names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skipstone.storage import list_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FILES = [
    "part-0",
    "a b",
    "é",
    "%",
    "a%2Fb",
    "x=y",
    "new\nline",
    "_p=1/part-1",
    "p=a b/part-2",
    "_SUCCESS",
    "_metadata",
    "_common_metadata",
    ".part-0.crc",
    "x._COPYING_",
    "_hidden/part-3",
    ".hidden/part-4",
    "y._COPYING_/part-5",
    "deep/er/part-6",
]


@pytest.mark.spark
def test_the_same_files_as_spark(tmp_path: Path, spark: SparkSession) -> None:
    for name in FILES:
        path = tmp_path / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (tmp_path / "t" / "empty").touch()
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "x").write_bytes(b"x")
    (tmp_path / "t" / "link").symlink_to(tmp_path / "beside" / "x")
    (tmp_path / "t" / "linked").symlink_to(tmp_path / "beside")
    (tmp_path / "t" / "nowhere").symlink_to(tmp_path / "gone")
    rows = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .load(str(tmp_path / "t"))
        .select("path", "length", "modificationTime")
        .collect()
    )
    # This format gives Hadoop's spelling of a raw path: scheme and all, nothing encoded.
    theirs = {row.path.removeprefix("file:"): row.length for row in rows}
    ours = list_files(str(tmp_path / "t"))
    assert dict(zip(ours.paths, ours.sizes.tolist(), strict=True)) == theirs
    times = {
        row.path.removeprefix("file:"): int(row.modificationTime.timestamp() * 1000) for row in rows
    }
    assert [times[path] for path in ours.paths] == (ours.mtimes // 10**6).tolist()
