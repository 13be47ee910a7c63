"""`encrypt`, `decrypt`, `rekey` and `salvage`: verbs on one Parquet file, or on those of a table.

The first three change keys without decoding pages; `salvage` saves rows where a footer is lost.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skipstone.errors import KeyUnavailableError

from .completion import column, paths
from .keys import (
    DecryptionOptions,
    EncryptionOptions,
    aad_prefix_option,
    column_pairs,
    index_encryption_of,
    key_options,
    kms_from,
    pairs,
    table_options,
)
from .options import TableArguments, reporting, storage_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .output import Output


def _run(out: Output, table: TableArguments, master: str | None, **how: Any) -> None:
    """The verb on all files of a table, here or with a session; exit code 3 when some file
    failed."""
    from .spark_session import session

    verb = str(click.get_current_context().command.name)
    with session(master or "", no_spark=master is None) as spark, out.progress(verb) as progress:
        report = getattr(table.open(), verb)(spark, progress=progress, **how)
    out.verdict(report)


def _is_table(table: TableArguments, verb: str, output: str | None) -> bool:
    """Whether to process a table, which takes no ``--output``."""
    found = Path(table.path).is_dir()
    if found and output is not None:
        raise click.UsageError(f"--output is for one file: a table is {verb}ed in place")
    return found


@contextmanager
def _old_keys(hint: str) -> Iterator[None]:
    """Where the old key of a file is missing, ``hint`` in place of an option that means the new."""
    try:
        yield
    except KeyUnavailableError as error:
        if "--footer-key" not in error.hint:
            raise
        raise KeyUnavailableError(error.message, hint=hint) from error


_output = click.option(
    "--output",
    "-o",
    metavar="FILE",
    shell_complete=paths,
    help="For a FILE: write this file, and leave the source as it is.",
)


def _labels(name: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        name,
        f"{name.strip('-').replace('-', '_')}s",
        metavar="COLUMN=NAME",
        multiple=True,
        callback=pairs,
        help=f"{text}; may be given again.",
    )


@click.command()
@table_options
@_output
@key_options
@click.option("--footer-key-label", metavar="NAME", help="A name by which readers find the key.")
@_labels("--column-key-label", "The same for the key of a column")
@click.option("--footer-key-id", metavar="NAME", help="With --kms: the master key of the footer.")
@_labels("--column-key-id", "With --kms: the master key of a column")
@click.option("--single-wrapping", is_flag=True, help="With --kms: wrap every data key by the KMS.")
@click.option("--external-keys", is_flag=True, help="With --kms: wrapped keys in another file.")
@click.option(
    "--algorithm",
    type=click.Choice(["gcm", "gcm-ctr"]),
    default="gcm",
    show_default=True,
    help="gcm-ctr does not authenticate pages.",
)
@click.option(
    "--key-bits",
    type=click.Choice(["128", "192", "256"]),
    default="128",
    show_default=True,
    help="With --kms: the size of data keys.",
)
@click.option("--plaintext-footer", is_flag=True, help="Leave the footer readable, and sign it.")
@click.option(
    "--plaintext-column",
    "plaintext_columns",
    metavar="COLUMN",
    shell_complete=column,
    multiple=True,
    help="Leave a column in the clear; may be given again.",
)
@click.option(
    "--plaintext-others", is_flag=True, help="Leave all columns without a key in the clear."
)
@click.option("--omit-aad-prefix", is_flag=True, help="Keep --aad-prefix out of the file.")
@click.option(
    "--plaintext-index",
    is_flag=True,
    help="For a TABLE: keep indexes in the clear over encrypted columns.",
)
@click.option(
    "--index-footer-key",
    metavar="LABEL",
    help="For a TABLE: rebuild indexes in the clear as encrypted ones; the label of the key for"
    " every part without its own key.",
)
@click.option(
    "--index-key-metadata",
    metavar="COLUMN[:KIND]=LABEL",
    multiple=True,
    callback=column_pairs,
    help="For a TABLE: the label of the key for this index; may be given again.",
)
@click.option(
    "--index-plaintext-footer",
    is_flag=True,
    help="For a TABLE: leave the column names and key labels of its index readable, and sign them.",
)
@storage_option
@reporting
def encrypt(
    table: TableArguments,
    master: str | None,
    output: str | None,
    keys: str | None,
    plaintext_index: bool,
    index_footer_key: str | None,
    index_key_metadata: dict[str, str],
    index_plaintext_footer: bool,
    out: Output,
    **asked: Any,
) -> None:
    """Encrypt a Parquet file, or all of a TABLE, in its place and without decoding it.

    Keys are 16, 24 or 32 bytes. They lie in a file or an environment variable, as hex, base64:… or
    text:…; or a KMS wraps random ones. Columns without their own key use the footer key.
    --keys opens a file that is encrypted already; it then gets the new keys.

    Each file of a TABLE is bound to its place: its AAD prefix is --aad-prefix (or a name made for
    the table), a slash and its path. Files that already have this encryption are skipped, so the
    next run resumes one that was killed. With --master, every worker reads the keys from the same
    files or variables. Indexes in the clear over encrypted columns are dropped, or rebuilt as
    encrypted ones with --index-footer-key and --index-key. Exit code 3 when some file failed.

    \b
      skipstone encrypt data/events --footer-key env:FOOTER_KEY --aad-prefix events
      skipstone encrypt data/events --footer-key env:FOOTER_KEY \\
                                    --index-footer-key kf --index-key kf=env:KF
    """
    if (asked["footer_key"] is None) == (asked["footer_key_id"] is None):
        raise click.UsageError("either --footer-key, or --kms and --footer-key-id are needed")
    encryption = EncryptionOptions(**asked)
    labels = index_footer_key, index_key_metadata
    index_encryption = index_encryption_of(*labels, plaintext_footer=index_plaintext_footer)
    if index_encryption is not None and (plaintext_index or not Path(table.path).is_dir()):
        text = "--index-footer-key is for a TABLE whose index must not stay in the clear"
        raise click.UsageError(text)
    old = None if keys is None else DecryptionOptions(keys=keys)
    if _is_table(table, "encrypt", output):
        _run(
            out,
            table,
            master,
            encryption=encryption.anywhere(),
            decryption=None if old is None else old.anywhere(),
            plaintext_index=plaintext_index,
            index_encryption=index_encryption,
        )
        return
    from skipstone.rewrite import encrypt as _encrypt

    with _old_keys("the file is encrypted already: its present keys are given as --keys FILE"):
        done = _encrypt(
            table.path,
            output,
            encryption=encryption(),
            decryption=None if old is None else old(),
            storage_options=table.storage_options,
        )
    out.result(done)


@click.command()
@table_options
@_output
@key_options
@storage_option
@reporting
def decrypt(
    table: TableArguments,
    master: str | None,
    output: str | None,
    out: Output,
    **asked: Any,
) -> None:
    """Decrypt a Parquet file, or all of a TABLE, in its place and without decoding it.

    All keys are needed. In a TABLE each file must be in its own place; files in
    the clear are skipped. Exit code 3 when some file failed.
    """
    decryption = DecryptionOptions(**asked)
    if _is_table(table, "decrypt", output):
        _run(out, table, master, decryption=decryption.anywhere())
        return
    from skipstone.rewrite import decrypt as _decrypt

    options = table.storage_options
    out.result(_decrypt(table.path, output, decryption=decryption(), storage_options=options))


@click.command()
@table_options
@_output
@click.option("--kms", metavar="MODULE:NAME", required=True, help="The KMS client that unwraps.")
@click.option("--new-kms", metavar="MODULE:NAME", help="The KMS client that wraps, if different.")
@click.option(
    "--master-key",
    "master_keys",
    metavar="OLD=NEW",
    multiple=True,
    callback=pairs,
    help="A master key and its replacement; may be given again.",
)
@aad_prefix_option
@storage_option
@reporting
def rekey(
    table: TableArguments,
    master: str | None,
    output: str | None,
    kms: str,
    new_kms: str | None,
    master_keys: dict[str, str],
    aad_prefix: str | None,
    out: Output,
) -> None:
    """Wrap the data keys of a Parquet file, or of a TABLE, with new master keys; change no page.

    A file whose keys were not wrapped by a KMS needs `encrypt` with the old keys as --keys. In a
    TABLE, files that no longer need an old master key are skipped.
    """
    prefix = None if aad_prefix is None else aad_prefix.encode()
    if _is_table(table, "rekey", output):
        _run(
            out,
            table,
            master,
            kms=partial(kms_from, kms),
            new_kms=None if new_kms is None else partial(kms_from, new_kms),
            master_keys=master_keys,
            aad_prefix=prefix,
        )
        return
    from skipstone.rewrite import rekey as _rekey

    hint = "no KMS has wrapped its keys: `skipstone encrypt FILE --keys OLD --footer-key NEW`"
    with _old_keys(hint):
        done = _rekey(
            table.path,
            output,
            kms=kms_from(kms),
            new_kms=None if new_kms is None else kms_from(new_kms),
            master_keys=master_keys,
            aad_prefix=prefix,
            storage_options=table.storage_options,
        )
    out.result(done)


@click.command()
@table_options
@click.option("--schema", help="A Parquet file, an Arrow schema file, or text: message m { … }.")
@click.option(
    "--output",
    "-o",
    metavar="OUT",
    shell_complete=paths,
    help="The new file, by default FILE.salvaged.parquet; for a TABLE, a directory.",
)
@click.option(
    "--skip-bad-pages", is_flag=True, help="Put nulls for damaged pages of optional columns."
)
@click.option(
    "--row-group-rows",
    type=click.IntRange(min=1),
    help="The rows of each row group but the last, if columns cannot be told apart.",
)
@click.option(
    "--footer-only",
    is_flag=True,
    help="Assume that only the footer is lost: the last page ends a row group.",
)
@key_options
@reporting
def salvage(
    table: TableArguments,
    master: str | None,
    schema: str | None,
    output: str | None,
    skip_bad_pages: bool,
    row_group_rows: int | None,
    footer_only: bool,
    out: Output,
    **asked: Any,
) -> None:
    """Save the rows of a Parquet file whose footer is lost, torn or damaged.

    salvage finds pages by their headers and decodes every page. All complete row groups go into a
    new file. Damaged and uncertain parts are left out, and named. The file itself is not changed.
    The schema comes from --schema, from the rest of the footer, or from the files next to it.

    With its keys an encrypted file is saved in the clear. For a TABLE, every file is read, and the
    damaged ones are salvaged, next to themselves or below --output. With keys --output is required:
    files in the clear are never put among encrypted ones. Exit code 3 when something was left out.
    """
    keys = DecryptionOptions(**asked)
    how: dict[str, Any] = {
        "output": output,
        "schema": schema,
        "skip_bad_pages": skip_bad_pages,
        "footer_only": footer_only,
    }
    if Path(table.path).is_dir():
        if row_group_rows is not None:
            raise click.UsageError("--row-group-rows is for one file")
        _run(out, table, master, decryption=keys.anywhere() if keys.given else None, **how)
        return
    from skipstone.salvage import salvage as _salvage

    opened = keys() if keys.given else None
    report = _salvage(table.path, row_group_rows=row_group_rows, decryption=opened, **how)
    if report.footer == "whole" and report.ok and report.output is not None:
        out.warn(
            f"the footer is complete, and nothing was lost: {report.output} has the same rows; "
            "inside a table they would count twice"
        )
    out.verdict(report)
