"""`retrofit`, `migrate` and `write-metadata`: write metadata that data files lack."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from skipstone.cli.errors import FOUND

from .options import index_options, reporting, table_of

if TYPE_CHECKING:
    from .output import Output


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
    help="Split pages that hold more rows than this; only these pages are encoded again.",
)
@click.option(
    "--sorting",
    "sorting",
    metavar="COLUMN[:desc]",
    multiple=True,
    help="Declare this sort order in the row groups that have it; may be given again.",
)
@click.option(
    "--index-pages",
    "index_pages",
    metavar="COLUMN",
    multiple=True,
    help="Add the index pages of Parquet's first specification to one file: by key for this column "
    "where it is sorted, by row for all others; may be given again.",
)
@click.option(
    "--interleave",
    is_flag=True,
    help="Put index pages between the data pages, as specified; DuckDB and polars refuse such a "
    "file.",
)
@click.option(
    "--output",
    "output",
    metavar="OUT",
    help="Write this file, and leave the source as it is.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be added, and its size.")
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

    Page bodies are copied byte for byte, not encoded again. Each file is replaced in one step when
    the new one is complete: after a kill every file is whole, old or new. The next run skips files
    that have everything, so it continues where the last one ended. The run also refreshes the facts
    of the index. Exit code 3 when some file could not be processed.
    """
    from skipstone.parquet.writing.retrofit_needs import parse_bloom

    bloom = dict(parse_bloom(each) for each in blooms)
    keys = sorting or None
    if interleave and not index_pages:
        raise click.UsageError("--interleave needs --index-pages")
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


@click.command()
@index_options
@click.argument("destination", metavar="[DEST]", required=False)
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@reporting
def migrate(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    destination: str | None,
    dry_run: bool,
    out: Output,
) -> None:
    """Make a _pm for every data file of TABLE that lacks a good one.

    migrate reads footers and Bloom filters, no rows. In a QuestDB table (a directory with a _txn)
    each Parquet partition gets its _pm beside data.parquet; stop the server first. For any other
    table the _pm files go below DEST, by default beside the index (data/_events.skipstone/pm).
    TABLE may also be one _pm, which is brought up to date without its data file.

    A good _pm is not written again. Exit code 3 when some file gets none.
    """
    with out.progress("migrate") as progress:
        report = table_of(table, index_location, storage_options).migrate(
            destination, dry_run=dry_run, progress=progress
        )
    out.result(report)
    if not report.ok:
        click.get_current_context().exit(FOUND)


@click.command("write-metadata")
@index_options
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@reporting
def write_metadata(
    table: str,
    index_location: str | None,
    storage_options: dict[str, str],
    dry_run: bool,
    out: Output,
) -> None:
    """Write _metadata and _common_metadata into TABLE, or bring them up to date.

    _metadata holds the footers of all files. Plans read it with one request, in place of the
    footers of all files that have not changed since. A new run reads only the footers of changed
    files. Run it after writing to the table.
    """
    with out.progress("write-metadata") as progress:
        report = table_of(table, index_location, storage_options).write_metadata(
            dry_run=dry_run, progress=progress
        )
    out.result(report)
