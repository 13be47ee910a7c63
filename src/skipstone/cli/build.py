"""`build` and `refresh`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from .keys import column_pairs, data_keys, index_encryption_of
from .options import index_options, reporting, size, source_options, spark_options
from .spark_session import session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.pruning.kind import Index
    from skipstone.questdb.pm_of_data_file import PmMode
    from skipstone.table import Table

    from .options import TableArguments
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


def _refused(target: Table, indexes: Sequence[Index]) -> bool:
    """True if ``build`` will refuse a column, so that Spark, which takes seconds, need not start.

    Only for local tables: elsewhere a listing takes as long.
    """
    from skipstone.pruning.table_schema import spelled_path
    from skipstone.table.file_format import ParquetFormat

    if "://" in target.path or not isinstance(target.file_format, ParquetFormat):
        return False
    schema = target.schema(target.listing())
    return any(spelled_path(schema, index.column) is None for index in indexes)


def _up_to_date(target: Table) -> bool:
    """True if ``refresh`` has no file to index, so that it needs no session. Local tables only."""
    if "://" in target.path:
        return False
    found = target.describe()
    done = all(each.files + each.left_out >= found.files_total for each in found.indexes)
    return done and not found.missing and not found.stale


@click.command()
@index_options
@source_options
@click.option(
    "-c",
    "--column",
    "columns",
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
    memory: int,
    pm: PmMode,
    index_footer_key: str | None,
    key_metadata: dict[str, str],
    plaintext_footer: bool,
    plaintext_index: bool,
    master: str,
    no_spark: bool,
    out: Output,
) -> None:
    """Index the files of TABLE that have no facts yet.

    One Spark job reads the indexed columns of each file once. Finished files count: after a kill,
    the same command continues from there. A new index is added to the existing ones.

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
    options = click.get_current_context().meta.get("skipstone.options") or {}
    listed = any(_LISTS_COLUMNS.match(key) for key in options)
    if not columns and not listed and not table.is_name:
        raise click.UsageError(
            "nothing to build: name columns and kinds with -c; `skipstone advise` proposes some"
        )
    indexes = definitions(columns)
    encryption = index_encryption_of(
        index_footer_key, key_metadata, plaintext_footer=plaintext_footer
    )
    target = table.open()
    no_spark = no_spark or _refused(target, indexes)
    with (
        session(master, no_spark=no_spark) as spark,
        out.progress("indexing") as progress,
    ):
        report = target.build(
            spark,
            indexes,
            memory=memory,
            progress=progress,
            pm=pm,
            encryption=encryption,
            plaintext_index=plaintext_index,
        )
    out.result(report)


@click.command()
@index_options
@source_options
@_pm
@data_keys
@_plaintext_index
@spark_options
@reporting
def refresh(
    table: TableArguments,
    pm: PmMode,
    plaintext_index: bool,
    master: str,
    no_spark: bool,
    out: Output,
) -> None:
    """Index new and changed files of TABLE with the indexes that it has.

    Files with fresh facts are not read. The run also merges small parts. An encrypted index stays
    encrypted; --index-key says where its keys are.
    """
    target = table.open()
    no_spark = no_spark or _up_to_date(target)
    with (
        session(master, no_spark=no_spark) as spark,
        out.progress("refreshing") as progress,
    ):
        report = target.refresh(spark, progress=progress, pm=pm, plaintext_index=plaintext_index)
    out.result(report)
