"""What a Spark worker does with the rows of CSV, JSON or ORC files: facts, file after file.

The rows come sorted by the key of their file (``sources.py`` makes them): column 0 the key, column
1 the state of the row, then the indexed columns. A key that is not asked for is passed over.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from skipstone.build.column_indexes import ColumnsBuilder
from skipstone.facts.file_facts import FileFacts
from skipstone.storage import open_storage

from .jobs import result_batch, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.build.job import BuildJob
    from skipstone.identity import ObjectId
    from skipstone.storage import Storage

__all__ = ["MALFORMED", "WHOLE", "WITH_NULLS", "facts_of_none", "run_task"]

# What the state of a row may be.
WHOLE, WITH_NULLS, MALFORMED = 0, 1, 2


def run_task(work: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a Spark worker does: rows sorted by key -> facts of one file after the other."""
    job, keys, columns = unpacked(work)
    storage = open_storage(job.table, job.storage_options)
    for outcome in job.publish(_facts(job, storage, keys, columns, batches)):
        yield result_batch([outcome])


def _facts(
    job: BuildJob,
    storage: Storage,
    keys: Mapping[int, ObjectId],
    columns: Sequence[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[FileFacts]:
    current: _File | None = None
    for batch in batches:
        for start, stop in _runs(batch.column(0).to_numpy()):
            key = batch.column(0)[start].as_py()
            if current is None or current.key != key:
                if current is not None:
                    yield current.finish(storage)
                current = _File(key, keys[key], job) if key in keys else None
            if current is not None:
                current.add(batch.slice(start, stop - start), columns)
    if current is not None:
        yield current.finish(storage)


def _runs(keys: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    borders = np.flatnonzero(np.diff(keys)) + 1
    if len(keys):
        yield from itertools.pairwise([0, *borders.tolist(), len(keys)])


class _File:
    """One file while its rows come in."""

    def __init__(self, key: int, object: ObjectId, job: BuildJob) -> None:
        self.key, self.object = key, object
        self.rows = self.malformed = 0
        self.error: str | None = None
        self.builder = ColumnsBuilder(job.definitions, job.schema, job.settings)

    def add(self, batch: pa.RecordBatch, columns: Sequence[str]) -> None:
        self.rows += batch.num_rows
        self.malformed += int(np.count_nonzero(batch.column(1).to_numpy() == MALFORMED))
        if self.malformed or self.error is not None:
            return  # the rest is only counted
        try:
            for at, column in enumerate(columns):
                if column in self.builder.columns:
                    self.builder.add(column, batch.column(2 + at))
        except Exception as error:  # one file must not end the build of the others
            self.error = f"{type(error).__name__}: {error}"

    def finish(self, storage: Storage) -> FileFacts:
        """The facts, if all is well and the file is still what was listed."""
        if self.malformed:
            text = f"{self.malformed:,} of {self.rows:,} rows are malformed under these options"
            return FileFacts(id=self.object, error=text)
        if self.error is not None:
            return FileFacts(id=self.object, error=self.error)
        try:
            found = self.builder.finish(self.rows)
            if not storage.stat(self.object.path).same_version(self.object):
                raise OSError("changed while it was read")
        except FileNotFoundError:
            return FileFacts(id=self.object, error="gone")
        except OSError as error:
            return FileFacts(id=self.object, error=f"{self.object.path} {error}")
        return FileFacts(
            id=self.object,
            row_count=found.row_count,
            null_counts=found.null_counts,
            values=found.values,
            reasons=found.reasons,
        )


def facts_of_none(
    job: BuildJob, storage: Storage, files: Sequence[ObjectId]
) -> Iterator[FileFacts]:
    """The facts of files that have no rows at all."""
    for each in files:
        yield _File(0, each, job).finish(storage)
