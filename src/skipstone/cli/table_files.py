"""`ingest`, `retrofit`, `migrate`, `write-metadata` and `cluster`: verbs that write data files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skipstone._dataclasses import dataclass

from .completion import column, column_list, paths
from .options import TableArguments, columns_of, index_options, reporting, size
from .spark_session import session, spark_master

if TYPE_CHECKING:
    from skipstone.live import Commit

    from .output import Output


def _root(name: str) -> str:
    """The column of the root that is named with or without backquotes."""
    from skipstone.predicate.types import column_path

    return column_path(name)[0] if name.startswith("`") else name


@dataclass(frozen=True, slots=True)
class Ingested:
    """The result of one ingest."""

    table: str
    commit: Commit

    def to_dict(self) -> dict[str, Any]:
        return {"table": self.table, **asdict(self.commit)}

    def __str__(self) -> str:
        from skipstone.human import plural, size

        done = self.commit
        if not done.applied:
            return f"{self.table}: nothing to do: {done.reason}"
        parts = plural(len(done.partitions), "partition")
        groups = plural(done.row_groups, "row group")
        return (
            f"{self.table}: {done.rows:,} rows into {parts}, {groups},"
            f" {size(done.bytes_written)} written; txn {done.txn}"
        )


@click.command()
@click.argument("table", shell_complete=paths)
@click.argument("source", shell_complete=paths)
@click.option("--timestamp", metavar="COLUMN", help="The designated timestamp; never null.")
@click.option(
    "--partition-by",
    type=click.Choice(["hour", "day", "month", "year", "none"]),
    help="A new table's partitions; day by default.",
)
@click.option(
    "--sort-by",
    metavar="COLUMN[,COLUMN...]",
    callback=columns_of,
    help="A new table's order; the timestamp by default. A name with a comma is in `backquotes`.",
)
@click.option(
    "--format",
    "source_format",
    type=click.Choice(["parquet", "csv"]),
    help="The format of SOURCE; by default its file names decide.",
)
@click.option(
    "--batch-id",
    type=click.IntRange(min=0),
    help="Add nothing when this batch, or a later one, is in the table already.",
)
@reporting
def ingest(
    table: str,
    source: str,
    timestamp: str | None,
    partition_by: str | None,
    sort_by: list[str] | None,
    source_format: str | None,
    batch_id: int | None,
    out: Output,
) -> None:
    """Append the rows of SOURCE to the live table TABLE.

    SOURCE is a Parquet or CSV file, or a directory of such files: all their columns, and those that
    folders such as day=1 give. The first call creates TABLE and needs --timestamp. Rows are
    appended in place to the `data.parquet` of their time partition; readers keep their snapshot.

    \b
      skipstone ingest db/trades new.parquet --timestamp ts --partition-by hour
      skipstone ingest db/trades exports/ --batch-id 42
    """
    from skipstone.live.source_files import batches_of
    from skipstone.table.ingest import ingest as append

    done: Any = append(
        batches_of(source, source_format),
        table,
        timestamp=timestamp,
        partition_by=partition_by,
        sort_by=None if sort_by is None else [_root(name) for name in sort_by],
        batch_id=batch_id,
    )
    out.result(Ingested(table, done))


@click.command()
@index_options
@click.option(
    "--bloom",
    "blooms",
    shell_complete=column,
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
    shell_complete=column,
    metavar="COLUMN[:desc]",
    multiple=True,
    help="Declare this sort order in the row groups that have it; may be given again.",
)
@click.option(
    "--index-pages",
    shell_complete=column,
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
    "-o",
    metavar="OUT",
    shell_complete=paths,
    help="Write this file, and leave the source as it is.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be added, and its size.")
@reporting
def retrofit(
    table: TableArguments,
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
    the new one is complete: after a kill every file is complete, old or new. The next run skips
    files that have everything, so it continues where the last one ended. The run also refreshes the
    facts of the index. Exit code 3 when some file could not be processed.
    """
    from skipstone.parquet.writing.retrofit_needs import parse_bloom

    bloom = dict(parse_bloom(each) for each in blooms)
    if interleave and not index_pages:
        raise click.UsageError("--interleave needs --index-pages")
    if Path(table.path).is_file():
        from skipstone.rewrite.retrofit_file import retrofit as retrofit_one

        one = retrofit_one(
            table.path,
            bloom=bloom,
            page_rows=page_rows,
            sorting=sorting or None,
            output=output,
            dry_run=dry_run,
        )
        if index_pages:
            from skipstone.rewrite.index_pages_file import RetrofitWithIndexPages, add_index_pages

            made = table.path if output is None or dry_run else output
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
        report = table.open().retrofit(
            bloom=bloom,
            page_rows=page_rows,
            sorting=sorting or None,
            dry_run=dry_run,
            progress=progress,
        )
    out.verdict(report)


@click.command()
@index_options
@click.option(
    "--by",
    metavar="A,B",
    required=True,
    shell_complete=column_list,
    help="Columns that queries compare, the most frequent first; up to 4 on a curve.",
)
@click.option(
    "--to",
    "output",
    metavar="OUT",
    shell_complete=paths,
    required=True,
    help="The directory to write; it must not exist yet.",
)
@click.option(
    "--curve",
    type=click.Choice(["sort", "z-order", "hilbert"]),
    help="By default sort for one column, and hilbert for more.",
)
@click.option(
    "--file-size",
    metavar="SIZE",
    callback=size,
    default="128MiB",
    show_default=True,
    help="About how large each file becomes.",
)
@click.option(
    "--bloom",
    "blooms",
    shell_complete=column,
    metavar="COLUMN[:FPP]",
    multiple=True,
    help="Write Bloom filters of this column, with this probability of a false positive (0.01); "
    "may be given again.",
)
@click.option("--compression", metavar="CODEC", help="The codec; by default Spark's (snappy).")
@click.option(
    "--master",
    callback=spark_master,
    default="local[*]",
    show_default=True,
    envvar="SKIPSTONE_MASTER",
    show_envvar=True,
    help="The Spark master of the job.",
)
@reporting
def cluster(
    table: TableArguments,
    by: str,
    output: str,
    curve: str | None,
    file_size: int,
    blooms: tuple[str, ...],
    compression: str | None,
    master: str,
    out: Output,
) -> None:
    """Write TABLE to OUT, with rows that are near each other in some columns in the same files.

    A query on these columns then needs fewer files, with any engine. It runs as a Spark job. TABLE
    stays as it is. OUT gets files of about one size with page indexes, and is compared with TABLE:
    the number of rows, a checksum of each column and one of whole rows. A local OUT appears when
    all is equal. `skipstone advise --layout` says what it would save.

    \b
      skipstone cluster data/events --by user_id,ts --to data/events_by_user
    """
    from skipstone.parquet.writing.retrofit_needs import parse_bloom
    from skipstone.table.cluster import prepared

    # Mistakes are reported before Spark starts.
    work = prepared(
        table.open(),
        by,
        output,
        curve=curve,
        file_size=file_size,
        bloom=dict(parse_bloom(each) for each in blooms),
        compression=compression,
    )
    with session(master) as spark:
        assert spark is not None  # without no_spark
        report = work.run(spark)
    out.result(report)


@click.command()
@index_options
@click.argument("destination", metavar="[DEST]", shell_complete=paths, required=False)
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@reporting
def migrate(
    table: TableArguments,
    destination: str | None,
    dry_run: bool,
    out: Output,
) -> None:
    """Make a _pm for every data file of TABLE that lacks a valid one.

    migrate reads footers and Bloom filters, no rows. In a QuestDB table (a directory with a _txn)
    each Parquet partition gets its _pm next to data.parquet; stop the server first. For any other
    table the _pm files go below DEST, by default next to the index (data/_events.skipstone/pm).
    TABLE may also be one _pm, which is brought up to date without its data file.

    A valid _pm is not written again. Exit code 3 when some file gets none.
    """
    with out.progress("migrate") as progress:
        report = table.open().migrate(destination, dry_run=dry_run, progress=progress)
    out.verdict(report)


@click.command("write-metadata")
@index_options
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@reporting
def write_metadata(
    table: TableArguments,
    dry_run: bool,
    out: Output,
) -> None:
    """Write _metadata and _common_metadata into TABLE, or bring them up to date.

    _metadata holds the footers of all files. Plans read it with one request, in place of the
    footers of all files that have not changed since. A new run reads only the footers of changed
    files. Run it after writing to the table.
    """
    with out.progress("write-metadata") as progress:
        report = table.open().write_metadata(dry_run=dry_run, progress=progress)
    out.result(report)
