"""`salvage`: saves the rows of a file whose footer is lost, torn or damaged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from skipstone.cli.errors import FOUND

from .encrypt import run_table
from .keys import DecryptionOptions, decryption_of, key_options, table_options
from .options import reporting, table_of

if TYPE_CHECKING:
    from .output import Output


@click.command()
@table_options
@click.option("--schema", help="A Parquet file, an Arrow schema file, or text: message m { … }.")
@click.option(
    "--output",
    metavar="OUT",
    help="The new file, by default FILE.salvaged.parquet; for a TABLE, a directory.",
)
@click.option(
    "--skip-bad-pages", is_flag=True, help="Put nulls for damaged pages of optional columns."
)
@click.option(
    "--row-group-rows",
    type=click.IntRange(min=1),
    help="Rows of every row group but the last, where columns cannot be told apart.",
)
@click.option(
    "--footer-only",
    is_flag=True,
    help="Only the footer is lost: the last page ends a row group.",
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

    salvage finds pages by their headers and decodes every page. All whole row groups go into a new
    file. What is damaged or uncertain is left out, and named. The file itself is not changed. The
    schema comes from --schema, from the rest of the footer, or from the files beside it.

    With its keys an encrypted file is saved in the clear. For a TABLE, every file is read, and the
    damaged ones are salvaged, beside themselves or below --output. With keys --output is required:
    files in the clear never go among encrypted ones. Exit code 3 when something was left out.
    """
    keyed = bool(keys or footer_key or column_keys or kms)
    if Path(table).is_dir():
        if row_group_rows is not None:
            raise click.UsageError("--row-group-rows is for one file")
        asked = DecryptionOptions(
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
            f"the footer is whole, and nothing was lost: {report.output} has the same rows; inside"
            " a table they would count twice"
        )
    out.result(report)
    if not report.ok:
        click.get_current_context().exit(FOUND)
