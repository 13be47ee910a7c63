"""What the options of a verb say of keys, as values that travel: where keys lie, not what they are.

Called, each fetches the keys where it is: with ``--master``, on every machine that does files.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from skipstone.errors import SkipstoneError

from .keys import decryption_of, key_from, kms_from
from .options import index_key_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from skipstone.facts.index_encryption import IndexEncryption
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.rewrite import Encryption

__all__ = ["DecryptionAsked", "EncryptionAsked", "KmsAsked", "sealed_index", "table_options"]

_ALGORITHMS: Final = {"gcm": "AES_GCM_V1", "gcm-ctr": "AES_GCM_CTR_V1"}


def _absolute(source: str | None) -> str | None:
    """A worker has another working directory."""
    if source is None or not source.startswith("file:"):
        return source
    return f"file:{Path(source.removeprefix('file:')).absolute()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionAsked:
    """How to encrypt, by the options of ``encrypt``."""

    footer_key: str | None = None
    column_keys: Mapping[str, str] = field(default_factory=dict)
    kms: str | None = None
    aad_prefix: str | None = None
    footer_key_label: str | None = None
    column_key_labels: Mapping[str, str] = field(default_factory=dict)
    footer_key_id: str | None = None
    column_key_ids: Mapping[str, str] = field(default_factory=dict)
    single_wrapping: bool = False
    external_keys: bool = False
    algorithm: str = "gcm"
    key_bits: str = "128"
    plaintext_footer: bool = False
    plaintext_columns: Sequence[str] = ()
    plaintext_others: bool = False
    omit_aad_prefix: bool = False

    def anywhere(self) -> EncryptionAsked:
        """The same from any working directory."""
        columns = {name: _absolute(each) or "" for name, each in self.column_keys.items()}
        return replace(self, footer_key=_absolute(self.footer_key), column_keys=columns)

    def __call__(self) -> Encryption:
        from skipstone.rewrite import Encryption as _Encryption

        footer_key = self.footer_key
        try:
            return _Encryption(
                footer_key=None if footer_key is None else key_from(footer_key, "the footer key"),
                column_keys={
                    name: key_from(each, f"the key of column {name!r}")
                    for name, each in self.column_keys.items()
                },
                footer_key_metadata=self.footer_key_label,
                column_key_metadata=dict(self.column_key_labels),
                kms=None if self.kms is None else kms_from(self.kms),
                footer_key_id=self.footer_key_id,
                column_key_ids=dict(self.column_key_ids),
                data_key_bits=int(self.key_bits),
                double_wrapping=not self.single_wrapping,
                internal_key_material=not self.external_keys,
                algorithm=_ALGORITHMS[self.algorithm],  # type: ignore[arg-type]
                plaintext_footer=self.plaintext_footer,
                plaintext_columns=self.plaintext_columns,
                encrypt_others=not self.plaintext_others,
                aad_prefix=None if self.aad_prefix is None else self.aad_prefix.encode(),
                store_aad_prefix=not self.omit_aad_prefix,
            )
        except ValueError as error:
            if isinstance(error, SkipstoneError):
                raise
            raise SkipstoneError(str(error), hint="run `skipstone encrypt --help`") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecryptionAsked:
    """What opens encrypted files, by the options that ``key_options`` gives a verb."""

    keys: str | None = None
    footer_key: str | None = None
    column_keys: Mapping[str, str] = field(default_factory=dict)
    kms: str | None = None
    aad_prefix: str | None = None
    allow_plaintext_files: bool = False

    @property
    def given(self) -> bool:
        """Whether there was any such option."""
        return bool(self.keys or self.footer_key or self.column_keys or self.kms)

    def anywhere(self) -> DecryptionAsked:
        """The same from any working directory."""
        columns = {name: _absolute(each) or "" for name, each in self.column_keys.items()}
        keys = None if self.keys is None else str(Path(self.keys).absolute())
        return replace(self, keys=keys, footer_key=_absolute(self.footer_key), column_keys=columns)

    def __call__(self) -> Decryption:
        return decryption_of(
            self.keys,
            self.footer_key,
            dict(self.column_keys),
            self.kms,
            self.aad_prefix,
            self.allow_plaintext_files,
        )


@dataclass(frozen=True, slots=True)
class KmsAsked:
    """The KMS client that ``MODULE:NAME`` makes."""

    name: str

    def __call__(self) -> Any:
        return kms_from(self.name)


def sealed_index(
    footer_key: str | None, key_metadata: Mapping[str, str], *, plaintext_footer: bool
) -> IndexEncryption | None:
    """How an index is encrypted, by labels; ``None`` where no option says that it is."""
    if footer_key is None:
        if key_metadata or plaintext_footer:
            raise click.UsageError("an encrypted index needs --index-footer-key")
        return None
    from skipstone.facts.index_encryption import IndexEncryption as _IndexEncryption

    try:
        return _IndexEncryption(
            footer_key=footer_key, key_metadata=key_metadata, plaintext_footer=plaintext_footer
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """FILE or TABLE, and what only a table needs."""
    location = click.option(
        "--index-location",
        metavar="DIR",
        envvar="SKIPSTONE_INDEX_LOCATION",
        show_envvar=True,
        help="Of a TABLE: where its index lies, if not beside it.",
    )
    master = click.option(
        "--master",
        metavar="URL",
        help="Of a TABLE: do its files as a job of this Spark master; else in this process.",
    )
    return click.argument("table", metavar="FILE|TABLE")(
        location(master(index_key_options(function)))
    )
