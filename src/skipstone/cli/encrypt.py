"""`encrypt`, `decrypt` and `rekey`: change the keys of Parquet files without decoding pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skipstone.cli.errors import FOUND

from .keys import (
    DecryptionOptions,
    EncryptionOptions,
    KmsOption,
    index_encryption_of,
    key_options,
    kms_from,
    labels,
    pairs,
    table_options,
)
from .options import reporting, storage_option, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.rewrite.table_report import TableReport
    from skipstone.table import Table

    from .output import Output


def run_table(
    out: Output,
    verb: str,
    table: Table,
    master: str | None,
    output: str | None,
    do: Callable[..., TableReport],
) -> None:
    """Process the files of a table, here or with a session; exit code 3 when some file failed."""
    from .build import session

    if output is not None and verb != "salvage":
        raise click.UsageError(f"--output is for one file: a table is {verb}ed in place")
    with session(master or "", no_spark=master is None) as spark, out.progress(verb) as progress:
        report = do(table, spark, progress=progress)
    out.result(report)
    if not report.ok:
        click.get_current_context().exit(FOUND)


def _output(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--output",
        "-o",
        metavar="FILE",
        help="For a FILE: write this file, and leave the source as it is.",
    )(function)


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
@click.option("--external-keys", is_flag=True, help="With --kms: wrapped keys beside the file.")
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
    " every part without a key of its own.",
)
@click.option(
    "--index-key-metadata",
    metavar="COLUMN[:KIND]=LABEL",
    multiple=True,
    callback=labels,
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
    table: str,
    index_location: str | None,
    master: str | None,
    output: str | None,
    keys: str | None,
    plaintext_index: bool,
    index_footer_key: str | None,
    index_key_metadata: dict[str, str],
    index_plaintext_footer: bool,
    storage_options: dict[str, str],
    out: Output,
    **asked: Any,
) -> None:
    """Encrypt a Parquet file, or all of a TABLE, in its place and without decoding it.

    Keys are 16, 24 or 32 bytes. They lie in a file or an environment variable, as hex, base64:… or
    text:…; or a KMS wraps random ones. Columns without a key of their own use the footer key.
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
    index_encryption = index_encryption_of(
        index_footer_key, index_key_metadata, plaintext_footer=index_plaintext_footer
    )
    if index_encryption is not None and (plaintext_index or not Path(table).is_dir()):
        raise click.UsageError(
            "--index-footer-key is for a TABLE whose index must not stay in the clear"
        )
    old = None if keys is None else DecryptionOptions(keys=keys)
    if Path(table).is_dir():
        run_table(
            out,
            "encrypt",
            table_of(table, index_location, storage_options),
            master,
            output,
            lambda target, spark, progress: target.encrypt(
                spark,
                encryption=encryption.anywhere(),
                decryption=None if old is None else old.anywhere(),
                plaintext_index=plaintext_index,
                index_encryption=index_encryption,
                progress=progress,
            ),
        )
        return
    from skipstone.rewrite import encrypt as _encrypt

    out.result(
        _encrypt(
            table,
            output,
            encryption=encryption(),
            decryption=None if old is None else old(),
            storage_options=storage_options or None,
        )
    )


@click.command()
@table_options
@_output
@key_options
@storage_option
@reporting
def decrypt(
    table: str,
    index_location: str | None,
    master: str | None,
    output: str | None,
    storage_options: dict[str, str],
    out: Output,
    **asked: Any,
) -> None:
    """Decrypt a Parquet file, or all of a TABLE, in its place and without decoding it.

    All keys are needed. In a TABLE each file must be the one that belongs in its place; files in
    the clear are skipped. Exit code 3 when some file failed.
    """
    decryption = DecryptionOptions(**asked)
    if Path(table).is_dir():
        run_table(
            out,
            "decrypt",
            table_of(table, index_location, storage_options),
            master,
            output,
            lambda target, spark, progress: target.decrypt(
                spark, decryption=decryption.anywhere(), progress=progress
            ),
        )
        return
    from skipstone.rewrite import decrypt as _decrypt

    out.result(
        _decrypt(table, output, decryption=decryption(), storage_options=storage_options or None)
    )


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
@click.option(
    "--aad-prefix",
    metavar="TEXT",
    help="The AAD prefix of the file; for a TABLE, what those of its files start with.",
)
@storage_option
@reporting
def rekey(
    table: str,
    index_location: str | None,
    master: str | None,
    output: str | None,
    kms: str,
    new_kms: str | None,
    master_keys: dict[str, str],
    aad_prefix: str | None,
    storage_options: dict[str, str],
    out: Output,
) -> None:
    """Wrap the data keys of a Parquet file, or of a TABLE, with new master keys; change no page.

    A file whose keys were not wrapped by a KMS needs `encrypt` with the old keys as --keys. In a
    TABLE, files that no longer need an old master key are skipped.
    """
    prefix = None if aad_prefix is None else aad_prefix.encode()
    if Path(table).is_dir():
        run_table(
            out,
            "rekey",
            table_of(table, index_location, storage_options),
            master,
            output,
            lambda target, spark, progress: target.rekey(
                spark,
                kms=KmsOption(kms),
                new_kms=None if new_kms is None else KmsOption(new_kms),
                master_keys=master_keys,
                aad_prefix=prefix,
                progress=progress,
            ),
        )
        return
    from skipstone.rewrite import rekey as _rekey

    out.result(
        _rekey(
            table,
            output,
            kms=kms_from(kms),
            new_kms=None if new_kms is None else kms_from(new_kms),
            master_keys=master_keys,
            aad_prefix=prefix,
            storage_options=storage_options or None,
        )
    )
