"""`advise`, `usage`, `describe`, `explain`, `report` and `check`: verbs that only show. They show
which indexes pay, what an index covers and skips, and whether it is right.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from skipstone.errors import SkipstoneError

from .completion import column_list
from .key_files import asked_keys
from .keys import data_keys, data_keys_and_sets, file_keys
from .options import (
    TableArguments,
    columns_of,
    index_options,
    reporting,
    size,
    source_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.advisor import Query
    from skipstone.human import Report
    from skipstone.table.planning import PlanOptions

    from .output import Output


@click.command()
@index_options
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="How many files to sample, spread over the table: 20, and 256 with --layout.",
)
@click.option("--layout", is_flag=True, help="Propose an order of the rows, for `cluster`.")
@click.option(
    "--file-size",
    metavar="SIZE",
    callback=lambda ctx, param, value: None if value is None else size(ctx, param, value),
    help="With --layout: how large the new files become; by default about as they are.",
)
@click.option(
    "--queries",
    type=click.File("r", encoding="utf-8"),
    help="Predicates that the indexes should serve, one per line, or a JSON list; - for stdin. "
    "A number and a tab before a predicate is its weight.",
)
@data_keys
@reporting
def advise(
    table: TableArguments,
    sample: int | None,
    layout: bool,
    file_size: int | None,
    queries: TextIO | None,
    out: Output,
) -> None:
    """Propose indexes for TABLE, with a reason each, from a sample of its files.

    With --queries, advise tries candidate indexes on the sample, plans the queries with them,
    and compares the bytes that each index saves with its size. It writes nothing. The last line is
    a `skipstone build` command that is ready to run.

    With --layout, it puts a sample of the rows in other orders, by one column and along curves over
    several. It says what queries would read of files in each order. The last line is then a
    `skipstone cluster` command. Without --queries each column is looked up.
    """
    if file_size is not None and not layout:
        raise click.UsageError("--file-size is for --layout")
    found = table.open()

    def advised(asked: list[Query] | None) -> Report:
        if layout:
            return found.advise(sample, queries=asked, layout=True, file_size=file_size)
        return found.advise(sample, queries=asked)

    if queries is None:
        out.result(advised(None))
        return
    from skipstone.advisor import parse_queries

    try:
        text = queries.read()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--queries: {queries.name} is not UTF-8: {error}") from error
    try:
        report = advised(parse_queries(text))
    except SkipstoneError as error:
        if not error.message.startswith(("line ", "element ", "there is no query")):
            raise
        raise SkipstoneError(f"{queries.name}, {error.message}", hint=error.hint) from error
    out.result(report)


@click.command()
@index_options
@source_options
@reporting
def describe(table: TableArguments, out: Output) -> None:
    """Show the indexes of TABLE, and how many of its files they cover."""
    out.result(table.open().describe())


@click.command()
@index_options
@source_options
@click.argument("where", required=False)
@click.option(
    "--columns",
    shell_complete=column_list,
    metavar="A,B",
    callback=columns_of,
    help="Columns that the query reads; all by default.",
)
@click.option(
    "--order-by", metavar="KEYS", shell_complete=column_list, help='Sort keys: "ts desc, id".'
)
@click.option("--limit", type=click.IntRange(min=0), help="Maximum number of rows.")
@click.option("--facts-only", is_flag=True, help="Use the index alone; open no data file.")
@click.option("--analyze", is_flag=True, help="Run the query, and add its cost.")
@data_keys_and_sets
@reporting
def explain(
    table: TableArguments,
    where: str | None,
    columns: list[str] | None,
    order_by: str | None,
    limit: int | None,
    facts_only: bool,
    analyze: bool,
    out: Output,
) -> None:
    """Show what a query of TABLE with condition WHERE would read.

    WHERE is SQL text in Spark's dialect. For each level (files, row groups, pages, rows), explain
    shows which indexes were used, and why others were not. It reads footers and page indexes of
    data files where that should save more than it costs. It reads rows only with --analyze. With
    --json, `paths` are the files to read.

    \b
      skipstone explain data/events "user_id = 'u-8814' and ts >= '2026-01-01'"
      skipstone explain data/events "user_id = 'u-8814'" --columns ts,amount --analyze
      skipstone explain data/events "user_id = 'u-8814'" --footer-key env:FOOTER_KEY
    """
    opened = table.open()
    query: PlanOptions = {
        "keys": asked_keys(opened),
        "columns": columns,
        "order_by": order_by,
        "limit": limit,
        "inside": not facts_only,
    }
    out.result(opened.scan(where, **query).analyze() if analyze else opened.explain(where, **query))


@click.command()
@index_options
@source_options
@click.argument("where", required=False)
@click.option(
    "-o",
    "--output",
    metavar="PAGE",
    default="report.html",
    show_default=True,
    type=click.Path(dir_okay=False),
    help="The page to write; an existing file is replaced.",
)
@data_keys
@reporting
def report(
    table: TableArguments,
    where: str | None,
    output: str,
    out: Output,
) -> None:
    """Draw what a query of TABLE with condition WHERE reads and skips, as one page of HTML.

    Each file is a cell, coloured by the level that skipped it. Files to read open into row groups,
    columns and pages. If TABLE is one Parquet file, the page shows its inside. The page needs no
    network.

    \b
      skipstone report data/events "user_id = 'u-8814'" -o report.html
      skipstone report data/events/part-0.parquet -o file.html
    """
    from skipstone.identity import canonical_path
    from skipstone.report import write, write_file
    from skipstone.storage import open_storage

    path, options = canonical_path(table.path), table.storage_options
    if table.is_name or open_storage(path, options).has_children(path):
        out.result(write(table.open().scan(where), output, storage_options=options))
        return
    if Path(path).is_dir():
        raise SkipstoneError(f"{path} has no data files", hint="check the path")
    keys = file_keys()
    out.result(write_file(table.path, output, where, storage_options=options, decryption=keys))


@click.command()
@index_options
@source_options
@click.option(
    "--deep",
    is_flag=True,
    help="Also compare the facts of a sample of files with their data.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many files a deep check reads.",
)
@click.option(
    "--repair",
    is_flag=True,
    help="First replace the parts of the index that are corrupt, and build the facts that are "
    "missing, in this process.",
)
@data_keys
@reporting
def check(
    table: TableArguments,
    deep: bool,
    sample: int,
    repair: bool,
    out: Output,
) -> None:
    """Find facts of TABLE that are stale, missing, orphaned, corrupt or wrong.

    Exit code 3 when there are any. Stale and missing facts cost time, never rows: such files are
    read in full until the next refresh.

    With keys, check also finds encrypted files that were swapped, replaced by an older version or
    by a file of another table, decrypted, or removed. --aad-prefix is the name of the table, for
    tables without a list of their encrypted files.
    """
    target = table.open()
    did = None
    if repair:
        with out.progress("indexing") as progress:
            did = target.repair(progress=progress)
    out.verdict(replace(target.check(deep=deep, sample=sample), repair=did))


@click.command()
@index_options
@source_options
@click.option(
    "--log",
    "logs",
    type=click.File("r", encoding="utf-8", errors="replace"),
    multiple=True,
    required=True,
    help="A log with the lines of scans; may be given again; - for stdin.",
)
@click.option(
    "--name",
    "names",
    metavar="NAME",
    multiple=True,
    help="A name of the table in the log, where its path is not enough; may be given again.",
)
@reporting
def usage(table: TableArguments, logs: Sequence[TextIO], names: Sequence[str], out: Output) -> None:
    """Show which indexes of TABLE the scans of a log used, and which did not pay.

    The log has one line per scan: set spark.skipstone.log.file in Spark's configuration, or send
    the messages of Python's logger skipstone (level INFO) anywhere. Other lines are ignored. What
    an index saved is the files that it ruled out, at their mean size. An index is proposed to be
    dropped where no scan used it, or where it ruled out nothing, out of at least 20 scans.

    \b
      skipstone usage data/events --log scans.log
    """
    lines = (line for log in logs for line in log)
    out.result(table.open().usage(lines, names))
