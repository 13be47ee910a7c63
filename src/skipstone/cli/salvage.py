"""`salvage`: a good file out of one whose footer is lost, torn or damaged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .encrypt import run_table
from .explain import FOUND
from .key_sources import DecryptionAsked, table_options
from .keys import decryption_of, key_options
from .options import reporting, table_of

if TYPE_CHECKING:
    from .output import Output

__all__ = ["salvage"]


@click.command()
@table_options
@click.option("--schema", help="A Parquet file, an Arrow schema file, or text: message m { … }.")
@click.option(
    "--output",
    metavar="OUT",
    help="The new file, by default FILE.salvaged.parquet; of a TABLE, a directory.",
)
@click.option("--skip-bad-pages", is_flag=True, help="Nulls for damaged pages of optional columns.")
@click.option(
    "--row-group-rows",
    type=click.IntRange(min=1),
    help="Rows of every row group but the last, where columns look alike.",
)
@click.option(
    "--footer-only",
    is_flag=True,
    help="Nothing but the footer is lost: a row group ends with the last page.",
)
@key_options
@reporting
def salvage(
    table: str,
    index_location: str | None,
    master: str | None,
    schema: str | None,
    output: str | None,
    skip_bad_pages: bool,
    row_group_rows: int | None,
    footer_only: bool,
    footer_key: str | None,
    column_keys: dict[str, str],
    kms: str | None,
    aad_prefix: str | None,
    keys: str | None,
    out: Output,
) -> None:
    """Save what can be saved of a Parquet file whose footer is lost, torn or damaged.

    Pages are found by their headers and decoded, every one. All whole row groups go into a new
    file; what is damaged or uncertain is left out, and said. The file itself is only read. The
    schema is taken from --schema, what is left of the footer, or the files beside it.

    With its keys an encrypted file is saved too, in the clear. Of a TABLE every file is read, and
    only those that are damaged are salvaged, beside themselves or below --output; with keys it must
    be --output, for nothing in the clear is put among encrypted files. Exit code 3 when something
    was left out.
    """
    keyed = bool(keys or footer_key or column_keys or kms)
    if Path(table).is_dir():
        if row_group_rows is not None:
            raise click.UsageError("--row-group-rows is for one file")
        asked = DecryptionAsked(
            keys=keys,
            footer_key=footer_key,
            column_keys=column_keys,
            kms=kms,
            aad_prefix=aad_prefix,
        )
        run_table(
            out,
            "salvage",
            table_of(table, index_location, {}),
            master,
            output,
            lambda target, spark, progress: target.salvage(
                spark,
                output=output,
                schema=schema,
                skip_bad_pages=skip_bad_pages,
                footer_only=footer_only,
                decryption=asked.anywhere() if keyed else None,
                progress=progress,
            ),
        )
        return
    from skipstone.salvage.salvage_file import salvage as save

    report = save(
        table,
        output=output,
        schema=schema,
        skip_bad_pages=skip_bad_pages,
        row_group_rows=row_group_rows,
        footer_only=footer_only,
        decryption=decryption_of(keys, footer_key, column_keys, kms, aad_prefix) if keyed else None,
    )
    if report.footer == "whole" and report.ok and report.output is not None:
        out.warn(
            f"the footer is whole, and nothing was lost: {report.output} has the same rows, and"
            " where it lies in a table they are there twice"
        )
    out.result(report)
    if not report.ok:
        click.get_current_context().exit(FOUND)
