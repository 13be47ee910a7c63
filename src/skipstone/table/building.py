"""Build and refresh: find what is lacking, run the job, merge, report."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from skipstone.bounds import Cause, Reason
from skipstone.errors import PredicateError, UnsupportedError
from skipstone.index.columns import column_fields
from skipstone.index.paimon.kinds import Bsi
from skipstone.index.partitions import PartitionColumns
from skipstone.index.schema import spelled_path
from skipstone.predicate.types import MapKey, column_name, column_path
from skipstone.store.coverage import by_lacking, without_pm
from skipstone.store.describe import stored_bytes
from skipstone.store.job import BuildJob, Outcome
from skipstone.store.reports import BuildReport
from skipstone.store.upkeep import compact, needs_merge

from .reading import ParquetReading

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from skipstone.index.columns import BuildSettings
    from skipstone.index.kind import Index
    from skipstone.storage import Listing

    from .reading import Progress
    from .table import Table

__all__ = ["run_build"]

log = logging.getLogger("skipstone")


def run_build(
    table: Table,
    spark: SparkSession | None,
    wanted: Sequence[Index],
    settings: BuildSettings,
    progress: Progress | None,
) -> BuildReport:
    """Build ``wanted`` for the files that lack them; see ``Table.build``."""
    started = time.perf_counter()
    listing = table.listing()
    wanted, schema = _checked(table, listing, wanted, spark)
    before = stored_bytes(table.store.snapshot())
    matched = table.match(listing, spark)
    outcomes: list[Outcome] = []
    todo = np.zeros(len(listing), np.bool_)
    # A _pm is about the file, whichever index it came with: those that are there are not made anew.
    pm = np.zeros(len(listing), np.bool_)
    if settings.pm != "none" and isinstance(table.reading, ParquetReading):
        pm = without_pm(matched)

    def run(definitions: tuple[Index, ...], files: NDArray[np.bool_], how: BuildSettings) -> None:
        if not files.any():
            return
        job = BuildJob(
            table=table.path,
            location=table.location.root,
            storage_options=table.storage_options,
            definitions=definitions,
            schema=schema,
            settings=how,
            fingerprint=matched.fingerprint,
        )
        outcomes.extend(table.reading.execute(spark, job, listing.where(files), progress))

    for lacking, files in by_lacking(matched, wanted, schema):
        todo |= files
        run(lacking, files & pm, settings)
        run(lacking, files & ~pm, replace(settings, pm="none"))
    run((), pm & ~todo, settings)
    todo |= pm
    merged = _merge_if_needed(table)
    good = [outcome for outcome in outcomes if outcome.built]
    left_out = Counter(text for o in good for text in o.reasons.items())
    return BuildReport(
        table=table.path,
        location=table.location.root,
        files_total=len(listing),
        files_built=len({outcome.path for outcome in good}),
        files_already=int(np.count_nonzero(~todo)),
        files_failed=tuple(
            (o.path, o.error or "") for o in outcomes if not o.built and not o.too_fresh
        ),
        files_too_fresh=tuple(o.path for o in outcomes if o.too_fresh),
        left_out=tuple(
            Reason(cause=Cause.OVER_LIMIT, subject=index, text=text, units=count)
            for (index, text), count in left_out.items()
        ),
        bytes_data=sum(outcome.size for outcome in good),
        bytes_index=max(0, stored_bytes(table.store.snapshot()) - before),
        seconds=time.perf_counter() - started,
        merged=merged,
    )


def _checked(
    table: Table, listing: Listing, wanted: Sequence[Index], spark: SparkSession | None
) -> tuple[list[Index], pa.Schema]:
    """``wanted`` with each column as the table spells it, and the table's schema.

    Raises ``PredicateError`` with the nearest name for a column that is not there, and
    ``UnsupportedError`` for a type that a kind cannot take, or a partition column.
    """
    needed = [index.column for index in wanted]
    schema = table.reading.schema(listing, needed, spark, table.store)
    partitions = PartitionColumns.of_paths(table.path, listing.paths).values
    spelled = []
    for index in wanted:
        path = spelled_path(schema, index.column)
        if path is None and index.column in partitions:
            raise UnsupportedError(
                f"{index.column!r} is a partition column: its values stand in the paths",
                hint="predicates on it skip files without an index",
            )
        if path is None:
            near = get_close_matches(index.column, [*schema.names, *partitions], 1)
            raise PredicateError(
                f"there is no column {index.column!r} in {table.path}",
                nearest=near[0] if near else None,
                hint=None if near else f"its columns are {', '.join(schema.names[:20])}",
            )
        column = column_name(path)
        spelled.append(type(index).from_params(column, index.params))
    column_fields(spelled, schema)
    _told_of_kinds(table, spelled)
    return list(dict.fromkeys(spelled)), schema


def _told_of_kinds(table: Table, wanted: Sequence[Index]) -> None:
    """Refuse row indexes where rows have no positions, and say what Paimon has given up."""
    sidecars = [index for index in wanted if index.sidecar is not None]
    if sidecars and not isinstance(table.reading, ParquetReading):
        raise UnsupportedError(
            f"{sidecars[0]!r}: only rows of Parquet files have positions that Spark keeps",
            hint="minmax, valuelist and bloomfilter are about whole files of any format",
        )
    for index in wanted:
        if not isinstance(table.reading, ParquetReading) and isinstance(
            column_path(index.column)[-1], MapKey
        ):
            raise UnsupportedError(f"{index!r}: keys of maps are columns of Parquet files only")
        if isinstance(index, Bsi):
            log.warning(
                "%r: Paimon has deprecated bsi; %s:rangebitmap answers the same, and faster",
                index,
                index.column,
            )


def _merge_if_needed(table: Table) -> int:
    snapshot = table.store.snapshot()
    if not needs_merge(snapshot):
        return 0
    done = compact(table.store, table.listing)
    return done.parts_before
