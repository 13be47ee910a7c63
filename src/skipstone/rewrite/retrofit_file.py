"""``retrofit``: what readers skip by, added to a Parquet file that was written without it.

    before   PAR1 | chunks of row group 0 | chunks of row group 1 | … | indexes | footer
    after    PAR1 | chunks, Bloom filters | chunks, Bloom filters | … | column indexes,
             offset indexes | footer

Page bodies are copied byte for byte; headers get checksums, so everything moves a little. Values
are decoded only to be looked at, a page at a time; a few batches of pages are worked on at once,
and more than these are never held. Chunks that lack nothing are copied with what they have.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from skipstone.errors import SkipstoneError, StaleError
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.writing.retrofit_needs import Asked, lacking, refuse
from skipstone.parquet.writing.sorting_columns import sorting_claims
from skipstone.storage.atomic_replace import Counting, local_path, replacing

from .retrofit_report import RetrofitReport
from .retrofit_writer import Refitting

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence


__all__ = ["retrofit", "retrofit_file"]


def retrofit(
    path: str | os.PathLike[str],
    *,
    bloom: Mapping[str, float] | None = None,
    page_rows: int | None = None,
    sorting: Sequence[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> RetrofitReport:
    """Add page index, Bloom filters, checksums, statistics and size statistics to a local file.

    ``bloom`` names columns with the probability of a false positive; the filters are as large as
    the distinct values of each row group want. ``page_rows``: pages of more rows are split, which
    is all that is encoded anew. ``sorting`` names keys (``"ts"``, ``"ts:desc:nulls_first"``); a row
    group says that it is sorted so only where it is, and what it said before is checked too.
    ``output`` is another file to write, in place of this one; ``dry_run`` writes nothing.

    The file is replaced at once when the new one is complete. Raises ``FormatError`` for a damaged
    one, ``UnsupportedError`` where columns are encrypted or in other files, ``StaleError`` where it
    was changed meanwhile.
    """
    return retrofit_file(
        ParquetFile(path),
        bloom=bloom or {},
        page_rows=page_rows,
        sorting=sorting,
        output=output,
        dry_run=dry_run,
    )


def retrofit_file(
    file: ParquetFile,
    *,
    bloom: Mapping[str, float],
    page_rows: int | None,
    sorting: Sequence[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> RetrofitReport:
    """The same for a file that was opened already; another version of it is a ``StaleError``."""
    started = time.perf_counter()
    place = local_path(file.path)
    target = place if output is None else local_path(str(output))
    if target.is_dir():
        raise SkipstoneError(f"{target} is a directory", hint="name the file that is to be there")
    refuse(file)
    asked = Asked.of(file, bloom, page_rows, sorting)
    lacks = lacking(file, asked)
    orders = sorting_claims(file, asked, check_old=bool(lacks))
    report: dict[str, Any] = {
        "path": file.path,
        "output": str(target),
        "rows": file.num_rows,
        "row_groups": file.num_row_groups,
        "chunks": file.num_row_groups * len(file.footer.schema.leaves),
        "bytes_before": file.size,
        "dry_run": dry_run,
    }
    if not lacks and not orders.changed and target == place:
        return RetrofitReport(
            fate="complete",
            bytes_after=file.size,
            seconds=time.perf_counter() - started,
            **report,
        )

    def still() -> None:
        if not file.id.same_version(file.reader.storage.stat(file.path)):
            raise StaleError(f"{file.path} was changed while it was read", hint="run it again")

    work = Refitting(file, asked, lacks, orders)
    if dry_run:
        counted = Counting()
        work.write(counted)
        after = counted.at
    else:
        with replacing(target, still=still) as out:
            work.write(out)
            after = out.at
    return RetrofitReport(
        fate="rewritten",
        bytes_after=after,
        pages=work.pages,
        added=work.added,
        bytes_of=work.bytes_of,
        sorted_groups=orders.claimed,
        notes=(*orders.notes, *work.notes),
        seconds=time.perf_counter() - started,
        **report,
    )
