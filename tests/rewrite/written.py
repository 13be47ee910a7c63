"""Rows to write, and what every reader must say of the file."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import ParquetFile

if TYPE_CHECKING:
    from pathlib import Path


NAN = float("nan")


def table(rows: int = 5_000, first: int = 0) -> pa.Table:
    """id ascending; f with NaN and both zeros; s text of up to 178 bytes and nulls; k of few
    values; u all different, long enough for a dictionary to overflow; l, ll, m, st nested; n all
    null; b boolean."""
    n = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(n, pa.int64()),
            "f": [NAN if i % 7 == 0 else (-0.0 if i % 5 == 0 else i / 3) for i in n],
            "s": [None if i % 3 == 0 else "é" * (i % 90) for i in n],
            "k": [f"k{i % 11}" for i in n],
            "u": [f"{i:040}" for i in n],
            "l": [[f"v{j}" for j in range(i % 4)] if i % 6 else None for i in n],
            "ll": pa.array([[[j] * (i % 3) for j in range(i % 4)] for i in n]),
            "m": pa.array(
                [[(f"k{j}", i) for j in range(i % 3)] for i in n], pa.map_(pa.string(), pa.int64())
            ),
            "st": pa.array([None if i % 9 == 0 else {"a": i, "b": f"{i}"} for i in n]),
            "n": pa.nulls(rows, pa.int32()),
            "b": [i % 2 == 0 for i in n],
        }
    )


def same_everywhere(path: Path, rows: pa.Table) -> ParquetFile:
    """Every reader gives these rows, checksums looked at, and every claim of the file holds."""
    expected = repr(rows.to_pydict())
    assert repr(pq.read_table(path, page_checksum_verification=True).to_pydict()) == expected
    assert repr(polars.read_parquet(path).to_arrow().cast(rows.schema).to_pydict()) == expected
    found = duckdb.read_parquet(str(path)).to_arrow_table().cast(rows.schema)
    assert repr(found.to_pydict()) == expected
    if not set("[*?") & set(path.name):
        context: Any = datafusion.SessionContext()
        batches = context.read_parquet(str(path), file_extension=path.suffix).collect()
        fused = pa.Table.from_batches(batches, batches[0].schema) if batches else None
        if fused is not None:
            assert repr(fused.cast(rows.schema).to_pydict()) == expected
        else:
            assert not rows.num_rows
    file = ParquetFile(path)
    assert repr(file.query().to_pydict()) == expected
    verified = file.verify()
    assert verified.ok, str(verified)
    return file


def page_rows_of(file: ParquetFile) -> set[tuple[int, ...]]:
    """How many rows the pages of each chunk have."""
    found = set()
    for r in range(file.num_row_groups):
        rows = int(file.footer.group("num_rows")[r])
        for leaf in file.footer.schema.leaves:
            index = file.offset_index(r, leaf.name)
            assert index is not None, leaf.name
            starts = [*index.first_row_index.tolist(), rows]
            found.add(tuple(b - a for a, b in pairwise(starts)))
    return found
