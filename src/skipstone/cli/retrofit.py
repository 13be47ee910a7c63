"""`retrofit`: indexes, filters and checksums for Parquet files that lack them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .explain import FOUND
from .options import index_options, reporting, table_of

if TYPE_CHECKING:
    from .output import Output

__all__ = ["retrofit"]


@click.command()
@index_options
@click.option(
    "--bloom",
    "blooms",
    metavar="COLUMN[:FPP]",
    multiple=True,
    help="A Bloom filter on a column, with the probability of a false positive (0.01 unless "
    "given); may be given again.",
)
@click.option(
    "--page-rows",
    type=click.IntRange(min=1),
    help="Split pages that hold more rows than this; only these are encoded anew.",
)
@click.option(
    "--sorting",
    "sorting",
    metavar="COLUMN[:desc]",
    multiple=True,
    help="Say that row groups are sorted so, where they are; may be given again.",
)
@click.option(
    "--index-pages",
    "index_pages",
    metavar="COLUMN",
    multiple=True,
    help="Index pages of 2013 in one file: keys of this column where it is sorted, ordinals of all "
    "others; may be given again.",
)
@click.option(
    "--interleave",
    is_flag=True,
    help="Index pages between the data pages, as they were specified; DuckDB and polars refuse "
    "such a file.",
)
@click.option(
    "--output",
    "output",
    metavar="OUT",
    help="Write another file, and leave the first as it is.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be added, and the size.")
@reporting
def retrofit(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    blooms: tuple[str, ...],
    page_rows: int | None,
    sorting: tuple[str, ...],
    index_pages: tuple[str, ...],
    interleave: bool,
    output: str | None,
    dry_run: bool,
    out: Output,
) -> None:
    """Add page index, checksums, statistics and Bloom filters to TABLE, or to one file.

    Pages are not encoded anew: their bodies are copied byte for byte. A file is replaced at once
    when the new one is complete, so a run that was killed leaves every file whole, old or new; the
    next run goes on where it ended, because a file that has all that is asked is passed over. Facts
    of an index are refreshed in the same run. Exit code 3 when some file could not be done.
    """
    from skipstone.parquet.writing.retrofit_needs import parse_bloom

    bloom = dict(parse_bloom(each) for each in blooms)
    keys = sorting or None
    if interleave and not index_pages:
        raise click.UsageError("--interleave is of --index-pages")
    if Path(table).is_file():
        from skipstone.rewrite.retrofit_file import retrofit as retrofit_one

        one = retrofit_one(
            table,
            bloom=bloom,
            page_rows=page_rows,
            sorting=keys,
            output=output,
            dry_run=dry_run,
        )
        if index_pages:
            from skipstone.rewrite.index_pages_file import RetrofitWithIndexPages, add_index_pages

            made = table if output is None or dry_run else output
            added = add_index_pages(made, index_pages, interleave=interleave, dry_run=dry_run)
            out.result(RetrofitWithIndexPages(retrofit=one, index_pages=added))
            return
        out.result(one)
        return
    if index_pages:
        raise click.UsageError("--index-pages is for one file")
    if output is not None:
        raise click.UsageError("--output is for one file: a table is rewritten in place")
    with out.progress("retrofit") as progress:
        report = table_of(table, index_location, storage_options).retrofit(
            bloom=bloom,
            page_rows=page_rows,
            sorting=keys,
            dry_run=dry_run,
            progress=progress,
        )
    out.result(report)
    if not report.ok:
        click.get_current_context().exit(FOUND)
