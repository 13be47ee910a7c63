"""`encrypt`, `decrypt` and `rekey`: the modules of a Parquet file, with other keys or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from skipstone.errors import SkipstoneError

from .keys import decryption_of, key_from, key_options, kms_from, pairs
from .options import reporting, storage_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .output import Output

__all__ = ["decrypt", "encrypt", "rekey"]

_ALGORITHMS = {"gcm": "AES_GCM_V1", "gcm-ctr": "AES_GCM_CTR_V1"}


def _output(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--output", "-o", metavar="FILE", help="Write this file, and leave the other as it is."
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
@click.argument("file")
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
    type=click.Choice(list(_ALGORITHMS)),
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
@storage_option
@reporting
def encrypt(
    file: str,
    output: str | None,
    footer_key: str | None,
    column_keys: dict[str, str],
    kms: str | None,
    aad_prefix: str | None,
    keys: str | None,
    footer_key_label: str | None,
    column_key_labels: dict[str, str],
    footer_key_id: str | None,
    column_key_ids: dict[str, str],
    single_wrapping: bool,
    external_keys: bool,
    algorithm: str,
    key_bits: str,
    plaintext_footer: bool,
    plaintext_columns: Sequence[str],
    plaintext_others: bool,
    omit_aad_prefix: bool,
    storage_options: dict[str, str],
    out: Output,
) -> None:
    """Encrypt the Parquet file FILE, in its place, without decoding it.

    Keys are 16, 24 or 32 bytes, and lie in a file or an environment variable, as hex, base64:… or
    text:…; or a KMS wraps random ones. Columns without a key of their own take the footer key.
    --keys opens a file that is encrypted already, which then gets the new keys.
    """
    from skipstone.rewrite import Encryption
    from skipstone.rewrite import encrypt as _encrypt

    if (footer_key is None) == (footer_key_id is None):
        raise click.UsageError("either --footer-key, or --kms and --footer-key-id are needed")
    try:
        encryption = Encryption(
            footer_key=None if footer_key is None else key_from(footer_key, "the footer key"),
            column_keys={
                name: key_from(each, f"the key of column {name!r}")
                for name, each in column_keys.items()
            },
            footer_key_metadata=footer_key_label,
            column_key_metadata=dict(column_key_labels),
            kms=None if kms is None else kms_from(kms),
            footer_key_id=footer_key_id,
            column_key_ids=column_key_ids,
            data_key_bits=int(key_bits),
            double_wrapping=not single_wrapping,
            internal_key_material=not external_keys,
            algorithm=_ALGORITHMS[algorithm],  # type: ignore[arg-type]
            plaintext_footer=plaintext_footer,
            plaintext_columns=plaintext_columns,
            encrypt_others=not plaintext_others,
            aad_prefix=None if aad_prefix is None else aad_prefix.encode(),
            store_aad_prefix=not omit_aad_prefix,
        )
    except ValueError as error:
        if isinstance(error, SkipstoneError):
            raise
        raise SkipstoneError(str(error), hint="run `skipstone encrypt --help`") from None
    decryption = None if keys is None else decryption_of(keys)
    out.result(
        _encrypt(
            file,
            output,
            encryption=encryption,
            decryption=decryption,
            storage_options=storage_options or None,
        )
    )


@click.command()
@click.argument("file")
@_output
@key_options
@storage_option
@reporting
def decrypt(
    file: str,
    output: str | None,
    footer_key: str | None,
    column_keys: dict[str, str],
    kms: str | None,
    aad_prefix: str | None,
    keys: str | None,
    storage_options: dict[str, str],
    out: Output,
) -> None:
    """Decrypt the Parquet file FILE, in its place, without decoding it; all its keys are needed."""
    from skipstone.rewrite import decrypt as _decrypt

    decryption = decryption_of(keys, footer_key, column_keys, kms, aad_prefix)
    out.result(
        _decrypt(file, output, decryption=decryption, storage_options=storage_options or None)
    )


@click.command()
@click.argument("file")
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
@click.option("--aad-prefix", metavar="TEXT", help="The AAD prefix of the file.")
@storage_option
@reporting
def rekey(
    file: str,
    output: str | None,
    kms: str,
    new_kms: str | None,
    master_keys: dict[str, str],
    aad_prefix: str | None,
    storage_options: dict[str, str],
    out: Output,
) -> None:
    """Wrap the data keys of the Parquet file FILE anew; nothing else in it is touched.

    Files whose keys no KMS has wrapped are encrypted anew: `encrypt` with the old keys as --keys.
    """
    from skipstone.rewrite import rekey as _rekey

    out.result(
        _rekey(
            file,
            output,
            kms=kms_from(kms),
            new_kms=None if new_kms is None else kms_from(new_kms),
            master_keys=master_keys,
            aad_prefix=None if aad_prefix is None else aad_prefix.encode(),
            storage_options=storage_options or None,
        )
    )
