"""`encrypt`, `decrypt` and `rekey`: the modules of Parquet files, with other keys or none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .explain import FOUND
from .key_sources import DecryptionAsked, EncryptionAsked, KmsAsked, sealed_index, table_options
from .keys import key_options, kms_from, labels, pairs
from .options import reporting, storage_option, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.rewrite.table_report import TableReport
    from skipstone.table import Table

    from .output import Output

__all__ = ["decrypt", "encrypt", "rekey", "run_table"]


def run_table(
    out: Output,
    verb: str,
    table: Table,
    master: str | None,
    output: str | None,
    do: Callable[..., TableReport],
) -> None:
    """Do the files of a table, here or with a session; exit code 3 when not all could be done."""
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
        help="Of a FILE: write this one, and leave the other as it is.",
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
@click.option("--footer-key-label", metavar="NAME", help="A name for readers to find the key by.")
@_labels("--column-key-label", "The same for the key of a column")
@click.option("--footer-key-id", metavar="NAME", help="With --kms: the master key of the footer.")
@_labels("--column-key-id", "With --kms: the master key of a column")
@click.option("--single-wrapping", is_flag=True, help="With --kms: it wraps every data key itself.")
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
@click.option("--plaintext-footer", is_flag=True, help="Sign the footer, and leave it readable.")
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
    help="Of a TABLE: keep indexes in the clear over columns that are encrypted.",
)
@click.option(
    "--index-footer-key",
    metavar="LABEL",
    help="Of a TABLE: build indexes in the clear anew, encrypted; the label of the key for all that"
    " has none of its own.",
)
@click.option(
    "--index-key-metadata",
    metavar="COLUMN[:KIND]=LABEL",
    multiple=True,
    callback=labels,
    help="Of a TABLE: the label of the key for this index; may be given again.",
)
@click.option(
    "--index-plaintext-footer",
    is_flag=True,
    help="Of a TABLE: leave names of columns and labels of its index readable, and sign them.",
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

    Keys are 16, 24 or 32 bytes, and lie in a file or an environment variable, as hex, base64:… or
    text:…; or a KMS wraps random ones. Columns without a key of their own take the footer key.
    --keys opens a file that is encrypted already, which then gets the new keys.

    Each file of a TABLE is bound to its place: its AAD prefix is --aad-prefix (or a name made for
    the table), a slash and its path. Files that are encrypted so already are passed over: a run
    that was killed is resumed by the next. With --master, keys are read on every machine that does
    files, from the same files or variables. Indexes in the clear over encrypted columns are
    dropped; or built anew and encrypted, with --index-footer-key and where the keys with these
    labels are (--index-key). Exit code 3 when some file could not be done.

    \b
      skipstone encrypt data/events --footer-key env:FOOTER_KEY --aad-prefix events
      skipstone encrypt data/events --footer-key env:FOOTER_KEY \\
                                    --index-footer-key kf --index-key kf=env:KF
    """
    if (asked["footer_key"] is None) == (asked["footer_key_id"] is None):
        raise click.UsageError("either --footer-key, or --kms and --footer-key-id are needed")
    encryption = EncryptionAsked(**asked)
    index_encryption = sealed_index(
        index_footer_key, index_key_metadata, plaintext_footer=index_plaintext_footer
    )
    if index_encryption is not None and (plaintext_index or not Path(table).is_dir()):
        raise click.UsageError(
            "--index-footer-key is for a TABLE whose index is not to stay in the clear"
        )
    old = None if keys is None else DecryptionAsked(keys=keys)
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

    All keys are needed. Of a TABLE each file must be the one that belongs in its place; files in
    the clear are passed over. Exit code 3 when some file could not be done.
    """
    decryption = DecryptionAsked(**asked)
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
@click.option("--new-kms", metavar="MODULE:NAME", help="The one that wraps, if it is another.")
@click.option(
    "--master-key",
    "master_keys",
    metavar="OLD=NEW",
    multiple=True,
    callback=pairs,
    help="A master key and the one that takes its place; may be given again.",
)
@click.option(
    "--aad-prefix",
    metavar="TEXT",
    help="The AAD prefix of the file; what those of a TABLE begin with.",
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
    """Wrap the data keys of a Parquet file, or of all of a TABLE, anew, and touch nothing else.

    Files whose keys no KMS has wrapped are encrypted anew: `encrypt` with the old keys as --keys.
    Of a TABLE, files that need no old master key any more are passed over.
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
                kms=KmsAsked(kms),
                new_kms=None if new_kms is None else KmsAsked(new_kms),
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
