"""The same for longer, over golden files of any size, and over files that Arrow writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fuzz.fuzzing import exercised, golden_files, sound

if TYPE_CHECKING:
    from pathlib import Path

# With both marks: `make fuzz` and `make soak` run these, and `make test` does not.
pytestmark = [pytest.mark.fuzz, pytest.mark.soak]

COUNT = 20_000


@pytest.mark.parametrize("seed", [0, 1_000_000, 2_000_000, 3_000_000, 4_000_000])
def test_small_golden_files(tmp_path: Path, seed: int) -> None:
    sound(exercised(tmp_path, golden_files(), count=COUNT, seed=seed, compiled=True), COUNT)


def test_large_golden_files(tmp_path: Path) -> None:
    files = golden_files(smallest=(64 << 10) + 1, largest=64 << 20)
    found = exercised(tmp_path, files, count=2_000, seed=5_000_000, compiled=True, memory=4 << 30)
    sound(found, 2_000)


def test_files_with_everything_that_arrow_writes(tmp_path: Path) -> None:
    """Nested, in many pages, with page indexes, checksums and Bloom filters, in all codecs."""
    files = []
    number = np.arange(600)
    table = pa.table(
        {
            "id": number,
            "text": [f"t{at % 7}" if at % 5 else None for at in range(600)],
            "list": [[{"x": at, "y": [str(at)] * (at % 3)}] * (at % 4) for at in range(600)],
            "map": pa.array(
                [[(f"k{k}", float(k)) for k in range(at % 3)] for at in range(600)],
                pa.map_(pa.string(), pa.float64()),
            ),
        }
    )
    for codec in ("none", "snappy", "gzip", "brotli", "lz4", "zstd"):
        for version in ("1.0", "2.0"):
            path = tmp_path / f"{codec}-{version}.parquet"
            pq.write_table(
                table,
                path,
                compression=codec,
                data_page_version=version,
                row_group_size=300,
                max_rows_per_page=50,
                write_batch_size=50,
                write_page_index=True,
                write_page_checksum=version == "2.0",
                bloom_filter_options={"id": {"ndv": 300, "fpp": 0.01}},
            )
            files.append(path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    sound(exercised(scratch, files, count=COUNT, seed=6_000_000, compiled=True), COUNT)
