"""The task of a build over CSV, JSON and ORC: rows that Spark has read, to facts.

Rows are sorted by the key of their file, so the builders get one file after the other.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone.build.column_indexes import ColumnsBuilder
from skipstone.build.data_file import GONE
from skipstone.facts.encode import FileFacts
from skipstone.facts.part_columns import UNREADABLE
from skipstone.identity import canonical_path, decode_uri
from skipstone.storage import Storage, open_storage

from .jobs import result_batch, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.build.job import BuildJob
    from skipstone.identity import ObjectId


#: states of a row
WHOLE: Final = 0
WITH_NULLS: Final = 1
MALFORMED: Final = 2


def run_task(work: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Index the rows of one file after the other, in a Spark worker.

    Rows are sorted by the key of their file: column 0 is the key, column 1 the state of the row;
    the indexed columns follow. Rows with a key that was not requested are ignored.
    """
    job, keys, columns, publishes = unpacked(work)
    if not publishes:  # the driver does, and looks for changes
        for found in _facts(job, None, keys, columns, batches):
            yield result_batch([found])
        return
    storage = open_storage(job.table, job.storage_options)
    for outcome in job.in_task(job.publish(_facts(job, storage, keys, columns, batches))):
        yield result_batch([outcome])


def _facts(
    job: BuildJob,
    storage: Storage | None,
    keys: Mapping[int, ObjectId],
    columns: Sequence[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[FileFacts]:
    current: SourceFile | None = None
    for batch in batches:
        for start, stop in _runs(batch.column(0).to_numpy()):
            key = batch.column(0)[start].as_py()
            if current is None or current.key != key:
                if current is not None:
                    yield current.finish(storage)
                current = SourceFile(key, keys[key], job) if key in keys else None
            if current is not None:
                current.add(batch.slice(start, stop - start), columns)
    if current is not None:
        yield current.finish(storage)


def _runs(keys: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    starts = np.flatnonzero(np.diff(keys)) + 1
    if len(keys):
        yield from itertools.pairwise([0, *starts.tolist(), len(keys)])


def unreadable(object: ObjectId, why: str, job: BuildJob) -> FileFacts:
    """Facts with only the reason, so that no build reads this version of the file again."""
    reasons = dict.fromkeys([UNREADABLE, *map(repr, job.definitions)], why)
    return FileFacts(id=object, error=why, reasons=reasons)


# -- what Spark's errors say -----------------------------------------------------------------------

_FAILED = re.compile(r"reading file (\S+?)\.(?:\s|$)")
_DAMAGED = "not readable as "
_PASSING = re.compile(
    "FileNotFound|AccessControl|Permission|Timeout|Connect|Socket|OutOfMemory|Interrupted|Aborted"
    "|Spark failed"
)
_CAUSE = re.compile(r"Caused by: (?:[\w.$]+\.)?([\w$]+(?:: [^\n]*)?)")
# An error of a row.
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\] [^\n]{0,200}")


def failed_file(error: Exception) -> str | None:
    """The file that Spark could not read, from the error's text."""
    found = _FAILED.search(str(error))
    return canonical_path(decode_uri(found[1])) if found else None


def why_unreadable(error: Exception, format: str) -> str:
    causes = _CAUSE.findall(str(error))
    return f"{_DAMAGED}{format}: {causes[-1] if causes else 'Spark failed to read it'}"


def is_damaged(error: str) -> bool:
    """Whether the file is damaged, not its store or the session, whose problems may pass."""
    return error.startswith(_DAMAGED) and _PASSING.search(error) is None


def error_of_row(error: Exception) -> str | None:
    """Spark's error condition of a row; ``None`` for an error of another kind."""
    found = _CONDITION.search(str(error))
    return None if found is None else found[0]


class SourceFile:
    """One file while its rows arrive."""

    def __init__(self, key: int, object: ObjectId, job: BuildJob) -> None:
        self.key, self.object = key, object
        self.rows = self.malformed = 0
        self.error: str | None = None
        self.job = job
        self.builder = ColumnsBuilder(job.definitions, job.schema, job.settings)

    def add(self, batch: pa.RecordBatch, columns: Sequence[str]) -> None:
        self.rows += batch.num_rows
        self.malformed += int(np.count_nonzero(batch.column(1).to_numpy() == MALFORMED))
        if self.malformed or self.error is not None:
            return  # the remaining rows are only counted
        wanted = self.builder.wanted
        try:
            for at, column in enumerate(columns):
                if column in wanted:
                    self.builder.add(column, batch.column(2 + at))
        except Exception as error:  # one file must not end the build of the others
            self.error = f"{type(error).__name__}: {error}"

    def finish(self, storage: Storage | None) -> FileFacts:
        """The facts, if there is no error and the file is still the listed version."""
        if self.malformed:
            text = f"{self.malformed:,} of {self.rows:,} rows are malformed under these options"
            return unreadable(self.object, text, self.job)
        if self.error is not None:
            return FileFacts(id=self.object, error=self.error)
        try:
            found = self.builder.finish(self.rows)
            if storage is not None and not storage.stat(self.object.path).same_version(self.object):
                raise OSError("changed while it was read")
        except FileNotFoundError:
            return FileFacts(id=self.object, error=GONE, gone=True)
        except OSError as error:
            return FileFacts(id=self.object, error=f"{self.object.path} {error}")
        return FileFacts(
            id=self.object,
            row_count=found.row_count,
            null_counts=found.null_counts,
            values=found.values,
            reasons=found.reasons,
        )
