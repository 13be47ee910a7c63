"""`build` and `refresh`."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from . import output
from .completion import definition
from .keys import column_pairs, data_keys, index_encryption_of, kept
from .options import TableArguments, index_options, reporting, size, source_options, spark_options
from .spark_session import BuildSession

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skipstone.facts.reports import BuildReport
    from skipstone.pruning.kind import Index
    from skipstone.table import Table

    from .output import Output


# Paimon's way to name columns.
_LISTS_COLUMNS = re.compile(r"file-index\.[a-z-]+\.columns$")
_pm = click.option(
    "--pm",
    type=click.Choice(["external", "inlined", "none"]),
    default="external",
    show_default=True,
    help="Row group metadata of each file (_pm): with the offsets of its Bloom filters, with the "
    "filters themselves, or none.",
)


_plaintext_index = click.option(
    "--plaintext-index",
    is_flag=True,
    help="Build indexes in the clear even over columns that the data files encrypt.",
)


def definitions(columns: Sequence[str]) -> list[Index]:
    """The indexes that ``-c`` describes: ``a:x,y(p=1)`` is two. ``UsageError`` for other text."""
    from skipstone.indexes.registry import parse_indexes

    try:
        return parse_indexes(columns)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _run(
    target: Table,
    master: str | None,
    no_spark: bool,
    out: Output,
    do: Callable[..., BuildReport],
    idle: Callable[[], bool] = lambda: False,
) -> None:
    """Build where it is fastest, and report; exit code 3 where not all files could be indexed."""
    with ExitStack() as stack:
        choose = BuildSession(target, master, no_spark, stack)
        spark = choose.start(idle)
        with out.progress("indexing") as progress:
            report = do(spark, session=choose, progress=progress)
    # Stopping a session takes time, too.
    engine = f"{report.engine} ({choose.why})" if report.engine and choose.why else report.engine
    out.verdict(replace(report, engine=engine, seconds=output.seconds_since_start()))


def _up_to_date(target: Table) -> bool:
    """True if ``refresh`` has no file to index, so that it needs no session. Local tables only."""
    if "://" in target.path:
        return False
    found = target.describe()
    done = all(each.files + each.left_out >= found.files_total for each in found.indexes)
    return done and not (found.missing or found.stale or found.unreadable)


@click.command()
@index_options
@source_options
@click.option(
    "-c",
    "--column",
    "columns",
    shell_complete=definition,
    metavar="COLUMN:KIND[,KIND...]",
    multiple=True,
    help="Index this column; may be given again. Kinds take parameters: id:bloom(fpp=0.001).",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=size,
    default="512MiB",
    show_default=True,
    envvar="SKIPSTONE_MEMORY",
    show_envvar=True,
    help="Memory limit of one task; an index that needs more is left out for that file.",
)
@_pm
@click.option(
    "--index-footer-key",
    metavar="LABEL",
    help="Encrypt the index: the label of the key for every part without its own key.",
)
@click.option(
    "--key-metadata",
    metavar="COLUMN[:KIND]=LABEL",
    multiple=True,
    callback=column_pairs,
    help="Encrypt this index with the key of this label; may be given again.",
)
@click.option(
    "--plaintext-footer",
    is_flag=True,
    help="Leave the column names and key labels of an encrypted index readable, and sign them.",
)
@data_keys
@_plaintext_index
@spark_options
@reporting
def build(
    table: TableArguments,
    columns: tuple[str, ...],
    index_footer_key: str | None,
    key_metadata: dict[str, str],
    plaintext_footer: bool,
    master: str | None,
    no_spark: bool,
    out: Output,
    **asked: Any,
) -> None:
    """Index the files of TABLE that have no facts yet.

    The build reads the indexed columns of each file once: in this process, on all cores, or as a
    Spark job where a --master is named, or for 20 GB or more on more than four cores. The result
    says which, and why.
    Finished files count: after a kill, the same command continues from there. A new index is added
    to the existing ones. Exit code 3: not all files could be indexed.

    An encrypted index needs key labels (--index-footer-key, --key-metadata) and the sources of
    these keys (--index-key). --footer-key and --column-key are for encrypted data files.

    Without -c, a table of the catalog gets what its TBLPROPERTIES name (skipstone.indexes).

    \b
      skipstone build data/events -c user_id:bloom -c ts:minmax
      skipstone build --table db.events -c user_id:bloom
      skipstone build data/events -c "country:valuelist" -c "user.name:minmax,bloom(fpp=0.001)"
      skipstone build data/events -c city:bitmap -c age:rangebitmap
      skipstone build data/events --option file-index.bitmap.columns=city,zip \\
                                  --option file-index.bitmap.zip.index-block-size=32kb
      skipstone build data/events -c id:minmax --index-footer-key kf --key-metadata id=k1 \\
                                  --index-key kf=env:KF --index-key k1=file:k1.key
    """
    listed = any(map(_LISTS_COLUMNS.match, kept()["options"]))
    if not columns and not listed and not table.is_name:
        raise click.UsageError(
            "nothing to build: name columns and kinds with -c; `skipstone advise` proposes some"
        )
    indexes = definitions(columns)
    encryption = index_encryption_of(
        index_footer_key, key_metadata, plaintext_footer=plaintext_footer
    )
    target = table.open()
    do = partial(target.build, indexes=indexes, encryption=encryption, **asked)
    _run(target, master, no_spark, out, do)


@click.command()
@index_options
@source_options
@_pm
@data_keys
@_plaintext_index
@spark_options
@reporting
def refresh(
    table: TableArguments, master: str | None, no_spark: bool, out: Output, **asked: Any
) -> None:
    """Index new and changed files of TABLE with the indexes that it has.

    Files with fresh facts are not read. The run also merges small parts. An encrypted index stays
    encrypted; --index-key says where its keys are. Exit code 3: not all files could be indexed.
    """
    target = table.open()
    do = partial(target.refresh, **asked)
    _run(target, master, no_spark, out, do, partial(_up_to_date, target))
