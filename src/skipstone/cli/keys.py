"""Keys on the command line: where they lie, never what they are.

    file:PATH    the file's bytes, where they are a key; else its text
    env:NAME     the environment variable's text
    text is hex, or base64:… or text:…

Nothing that was typed in the place of a source is ever repeated in a message: it may be a key.
"""

from __future__ import annotations

import os
import re
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from skipstone.errors import FormatError, SkipstoneError

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.parquet.encryption.decryption import Decryption

__all__ = [
    "column_sources",
    "data_keys",
    "decryption_of",
    "key_from",
    "key_options",
    "kms_from",
    "labels",
    "pairs",
]

Function = TypeVar("Function", bound="Callable[..., Any]")

_LENGTHS: Final = (16, 24, 32)
_LONGEST: Final = 4096
_SOURCES: Final = ("file", "env")
_ASKED: Final = (
    "keys",
    "footer_key",
    "column_keys",
    "kms",
    "aad_prefix",
    "allow_plaintext_files",
)
_COLUMN_SOURCE: Final = re.compile(r"(.+?)=(?=(?:file|env):)")


def _checked(value: str, ctx: click.Context, param: click.Parameter) -> str:
    kind, colon, rest = value.partition(":")
    if not colon or kind not in _SOURCES or not rest:
        raise click.BadParameter(
            "a key is never given itself, others can read a command line: file:PATH or env:NAME"
            " says where it is",
            ctx,
            param,
        )
    return value


def source(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Where one key is."""
    return None if value is None else _checked(value, ctx, param)


def column_sources(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Where the key of each column is."""
    found: dict[str, str] = {}
    for each in values:
        # The name of a column may hold an equals sign, and so may a path.
        match = _COLUMN_SOURCE.match(each)
        name = match[1] if match else each.partition("=")[0] if "=" in each else ""
        if not name or name in found:
            raise click.BadParameter("column=source is expected, and every column once", ctx, param)
        found[name] = _checked(each[len(name) + 1 :], ctx, param)
    return found


def pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE, each name once."""
    found: dict[str, str] = {}
    for each in values:
        name, _, value = each.partition("=")
        if not name or not value or name in found:
            raise click.BadParameter("name=value is expected, and every name once", ctx, param)
        found[name] = value
    return found


def labels(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """COLUMN[:KIND]=LABEL, each once."""
    found: dict[str, str] = {}
    for each in values:
        name, _, label = each.rpartition("=")  # the name of a column may hold an equals sign
        if not name or not label or name in found:
            raise click.BadParameter("COLUMN[:KIND]=LABEL is expected, each once", ctx, param)
        found[name] = label
    return found


def key_from(source: str, shown: str) -> bytes:
    """The key at ``source``; messages call it ``shown``."""
    from skipstone.parquet.encryption.decryption import key_from_text

    kind, _, where = source.partition(":")
    try:
        if kind == "env":
            if where not in os.environ:
                raise SkipstoneError(
                    f"{shown}: the environment variable {where} is not set",
                    hint="export it, or give file:PATH",
                )
            return key_from_text(os.environ[where].strip(), shown)
        with Path(where).open("rb") as file:
            data = file.read(_LONGEST + 1)
        if len(data) in _LENGTHS and not data.isascii():
            return data
        return key_from_text(data.decode("utf-8").strip(), shown, where)
    except (FormatError, UnicodeDecodeError):
        raise SkipstoneError(
            f"{shown}: what {kind}:{where} holds is no key",
            hint="a key is 16, 24 or 32 bytes: hex, base64:… or text:…",
        ) from None


def kms_from(name: str) -> Any:
    """The KMS client that ``MODULE:NAME`` makes when it is called."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise SkipstoneError(f"{name!r} is not MODULE:NAME", hint="such as mycompany.kms:Client")
    try:
        make = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SkipstoneError(
            f"no KMS client {name!r}: {type(error).__name__}",
            hint="the module must be on PYTHONPATH, and have the name",
        ) from error
    return make()


def key_options(function: Function) -> Function:
    """What opens an encrypted file."""
    options = (
        click.option(
            "--footer-key",
            metavar="SOURCE",
            callback=source,
            help="Where the footer key is: file:PATH or env:NAME.",
        ),
        click.option(
            "--column-key",
            "column_keys",
            metavar="COLUMN=SOURCE",
            multiple=True,
            callback=column_sources,
            help="Where the key of a column is; may be given again.",
        ),
        click.option(
            "--kms", metavar="MODULE:NAME", help="A KMS client: called without arguments."
        ),
        click.option(
            "--aad-prefix",
            metavar="TEXT",
            help="The AAD prefix of the file; of a TABLE, what those of its files begin with.",
        ),
        click.option(
            "--keys",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            help="A JSON file with keys and AAD prefix, as for `inspect`.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def data_keys(function: Function) -> Function:
    """What opens the encrypted files of a table: ``table_of`` gives it to the table."""

    @click.option(
        "--allow-plaintext-files",
        is_flag=True,
        help="With keys: read files that are not encrypted, too (with --keys they always are).",
    )
    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        asked = {name: options.pop(name) for name in _ASKED}
        click.get_current_context().meta["skipstone.data_keys"] = asked
        return function(*args, **options)

    return cast("Function", key_options(run))


def decryption_of(
    keys: str | None,
    footer_key: str | None = None,
    column_keys: dict[str, str] | None = None,
    kms: str | None = None,
    aad_prefix: str | None = None,
    allow_plaintext_files: bool = False,
) -> Decryption:
    """The keys that these options name."""
    from skipstone.parquet.encryption.decryption import Decryption, decryption_from_json

    if keys is not None:
        if footer_key or column_keys or kms or aad_prefix:
            raise click.UsageError("--keys stands alone: its file has keys and AAD prefix")
        return decryption_from_json(Path(keys).read_text(encoding="utf-8"), file=keys)
    try:
        return Decryption(
            footer_key=None if footer_key is None else key_from(footer_key, "the footer key"),
            column_keys={
                name: key_from(each, f"the key of column {name!r}")
                for name, each in (column_keys or {}).items()
            },
            kms=None if kms is None else kms_from(kms),
            aad_prefix=None if aad_prefix is None else aad_prefix.encode(),
            allow_plaintext_files=allow_plaintext_files,
        )
    except ValueError as error:
        if isinstance(error, SkipstoneError):
            raise
        raise SkipstoneError(str(error), hint="a key is 16, 24 or 32 bytes") from None
