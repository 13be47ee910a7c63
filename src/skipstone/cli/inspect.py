"""`inspect`: shows what is inside a store or a file. `doctor`: whether all is fit for work."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from .completion import column, paths
from .keys import column_pairs, index_key_options, index_keys
from .options import TableArguments, index_options, reporting, storage_option
from .output import FAILED, Output
from .spark_session import spark_master


@click.command()
@click.argument("path", metavar="STORE|FILE", shell_complete=paths)
@storage_option
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Rows to show of each store or file.",
)
@click.option("--pages", is_flag=True, help="Parquet: every page, page index and Bloom filter too.")
@click.option(
    "--column",
    "columns",
    shell_complete=column,
    metavar="NAME",
    multiple=True,
    help="Parquet: only this column (a.b for a part of a group); may be given again.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Parquet: read everything; check the metadata against the values.",
)
@click.option(
    "--keys",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Parquet: a JSON file with the keys of an encrypted file.",
)
@click.option("--where", metavar="WHERE", help="File index: rows that may match this SQL text.")
@click.option(
    "--type",
    "types",
    metavar="COLUMN=TYPE",
    multiple=True,
    callback=column_pairs,
    help="File index: the type of a column, as Paimon spells it; may be given again.",
)
@click.option(
    "--data",
    metavar="FILE",
    shell_complete=paths,
    help="File index: its Parquet file, for the types; x for x.index by default.",
)
@click.option(
    "--parquet-size",
    type=click.IntRange(min=0),
    metavar="N",
    help="_pm: the snapshot of the Parquet file of N bytes; the newest by default.",
)
@click.option("--no-crc", is_flag=True, help="_pm: show one whose CRC is wrong, too.")
@index_key_options
@reporting
def inspect(path: str, storage_options: dict[str, str], out: Output, **asked: Any) -> None:
    """Show what is inside STORE or FILE.

    A directory: the index of a table (data/_events.skipstone), a metadata directory of Xskipper of
    any version from 0 to 4, or a directory above such. A file: a fact part, an encrypted pack, a
    part of an Xskipper store, a file index of Paimon (x.parquet.index): its columns, kinds, sizes,
    distinct values, least and greatest, and with --where the rows; a _pm or _txn of QuestDB:
    header, columns, row groups, bounds, Bloom filters and snapshots, or partitions; or any Parquet
    file: its schema, row groups, columns, indexes, Bloom filters and encryption. Key labels are
    shown for encrypted parts.

    The keys are JSON, each in hex, base64:… or text:…:
    {"footer_key": "…", "column_keys": {"a.b": "…"}, "aad_prefix": "…"}

    The keys of an encrypted index are given by --index-key, label by label.

    Exit code 3 when --verify finds something, or --no-crc shows a wrong CRC.
    """
    from skipstone.inspect import WrongOptionError, inspect_path
    from skipstone.inspect.inspection import InspectOptions
    from skipstone.parquet.encryption.master_keys import LabelledKeys

    labelled = index_keys()
    options = InspectOptions(
        **asked,
        storage_options=storage_options or None,
        index_keys=None if labelled is None else LabelledKeys(labelled),
    )
    try:
        found = inspect_path(path, options)
    except WrongOptionError as error:
        raise click.UsageError(error.message) from error
    out.verdict(found)


@click.command()
@partial(index_options, required=False)
@click.option("--spark", is_flag=True, help="Also start a Spark session; takes seconds.")
@click.option(
    "--master",
    callback=spark_master,
    default="local[1]",
    show_default=True,
    envvar="SKIPSTONE_MASTER",
    show_envvar=True,
    help="The Spark master of that session.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Also write an empty object where the index of TABLE lies, and remove it.",
)
@click.option(
    "--compile",
    "compiles",
    is_flag=True,
    help="First compile the machine code that large scans use, and keep it on disk.",
)
@reporting
def doctor(
    table: TableArguments | None,
    spark: bool,
    master: str,
    write: bool,
    compiles: bool,
    out: Output,
) -> None:
    """Show what is there, what is slow or missing, and what to do about it.

    Examines Python, the packages, Java, Spark, the caches on disk and the limits of this process;
    with TABLE also its storage, who may read and write, and the state of its index. TABLE may be
    any directory or URI. The result holds no secret, so it can be pasted into a bug report.

    Exit code 1 when there is a problem; notes do not count.

    \b
      skipstone doctor
      skipstone doctor s3://bucket/events --write
      skipstone doctor data/events --spark --json
      skipstone doctor --compile
    """
    from skipstone.doctor import diagnose

    if compiles:
        from skipstone.doctor.machine import compile_kernels

        compile_kernels()
    opens = None if table is None else table.open
    out.verdict(diagnose(opens, spark=master if spark else None, write=write), FAILED)
