"""Row groups that tasks encode: they write staged files, and the table's writer appends their
bytes.

    <root>/_staging/<uuid>/<file>.parquet     rows of one partition, sorted

Staged files are no part of the table. A file counts if its task reports it; other files are removed
with the directory. All tasks share the file system.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.parquet.writing.arrow_encoder import EncodedRowGroups

from .disk import mapped
from .rows import conform, encode, merged, split, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .definition import LiveDefinition
    from .partition import PartitionState

__all__ = ["STAGING", "Staged", "by_partition", "clear", "placeable", "stage"]

STAGING: Final = "_staging"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """One file: ``rows`` rows of the partition that begins at ``begin``, of times from ``low`` to
    ``high``, all in the unit of the timestamp column."""

    path: str
    begin: int
    rows: int
    low: int
    high: int


def stage(definition: LiveDefinition, rows: pa.Table, directory: str) -> list[Staged]:
    """Rows split by partition, sorted, encoded, and written below ``directory``."""
    found = []
    for begin, part in split(definition, conform(definition, rows)):
        path = f"{directory}/{uuid.uuid4().hex}.parquet"
        Path(path).write_bytes(encode(definition, part).data)
        at = times(definition, part)
        found.append(
            Staged(path=path, begin=begin, rows=len(part), low=int(at.min()), high=int(at.max()))
        )
    return found


def clear(root: str) -> None:
    """Remove the files of dead writers. The holder of the lock has staged nothing yet."""
    shutil.rmtree(f"{root}/{STAGING}", ignore_errors=True)


def by_partition(staged: Iterable[Staged]) -> Iterator[tuple[int, list[Staged]]]:
    """The files of each partition in the order of their rows; (start, files), by time."""
    ordered = sorted(staged, key=lambda each: (each.begin, each.low, each.high, each.path))
    for begin, files in groupby(ordered, key=lambda each: each.begin):
        yield begin, list(files)


def placeable(
    definition: LiveDefinition, state: PartitionState | None, files: Sequence[Staged]
) -> pa.Table | list[EncodedRowGroups]:
    """What to add to a partition (``None``: a new one): row groups, or else their rows.

    Row groups are appended unchanged if they keep the order of the partition, and their writer
    encoded the schema as the writer of the partition did.
    """
    encoded = [EncodedRowGroups.of(mapped(each.path)) for each in files]
    columns = {each.editor.columns for each in encoded}
    if state is not None:
        columns.add(state.footer.columns)
    last = None if state is None else state.highs[-1]
    follows = True
    for each in files:
        follows = follows and (last is None or last <= each.low)
        last = each.high
    if len(columns) == 1 and (follows or not definition.ordered):
        return encoded
    read = [pq.read_table(pa.BufferReader(pa.py_buffer(each.data))) for each in encoded]
    exact = [each.select(definition.schema.names).cast(definition.schema) for each in read]
    return merged(definition, exact)
