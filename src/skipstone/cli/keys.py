"""Key options. They say where a key is stored; the key itself is never on a command line.

    file:PATH    the bytes of the file, if they are a key; otherwise its text
    env:NAME     the environment variable's text
    text is hex, or base64:… or text:…

Messages never repeat the text that was given as a source: it may be a key.

``EncryptionOptions`` and ``DecryptionOptions`` are picklable and callable. Each call fetches the
keys, so with ``--master`` every worker fetches them by itself.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import field, fields, replace
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, first_line

from .completion import paths
from .key_files import keys_option
from .spark_session import spark_master

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from skipstone.facts.index_encryption import IndexEncryption
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.encryption import Encryption


Function = TypeVar("Function", bound="Callable[..., Any]")

_LENGTHS: Final = (16, 24, 32)
_LONGEST: Final = 4096
_SOURCES: Final = ("file", "env")
_KEPT: Final = "skipstone.kept"
_COLUMN_SOURCE: Final = re.compile(r"(.+?)=(?=(?:file|env):)")


def _checked(value: str, ctx: click.Context, param: click.Parameter) -> str:
    kind, colon, rest = value.partition(":")
    if not colon or kind not in _SOURCES or not rest:
        raise click.BadParameter(
            "others can read a command line, so never give the key itself: file:PATH or env:NAME"
            " says where it is",
            ctx,
            param,
        )
    return value


def source(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Checks the source of one key."""
    return None if value is None else _checked(value, ctx, param)


def column_sources(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """COLUMN=SOURCE: the source of each column's key."""
    found: dict[str, str] = {}
    for each in values:
        # The name of a column may hold an equals sign, and so may a path.
        match = _COLUMN_SOURCE.match(each)
        name = match[1] if match else each.partition("=")[0] if "=" in each else ""
        if not name or name in found:
            raise click.BadParameter(f"not of the form {param.metavar}, or given twice", ctx, param)
        found[name] = _checked(each[len(name) + 1 :], ctx, param)
    return found


def pairs(
    ctx: click.Context,
    param: click.Parameter,
    values: tuple[str, ...],
    split: Callable[[str, str], tuple[str, str, str]] = str.partition,
) -> dict[str, str]:
    """NAME=VALUE, each name once."""
    found: dict[str, str] = {}
    for each in values:
        name, _, value = split(each, "=")
        if not name or not value or name in found:
            raise click.BadParameter(f"not of the form {param.metavar}, or given twice", ctx, param)
        found[name] = value
    return found


#: COLUMN=VALUE, each once; the name of a column may hold an equals sign
column_pairs: Final = partial(pairs, split=str.rpartition)


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
        key = key_from_text(data.decode("utf-8").strip(), f"{shown} in {where}", where)
        if len(key) not in _LENGTHS:
            raise SkipstoneError(
                f"{shown}: {where} holds {len(key)} bytes, and a key is 16, 24 or 32",
                hint="text is read as hexadecimal digits, or as base64:… or text:…",
            )
        return key
    except OSError as error:
        raise SkipstoneError(
            f"{shown}: {where}: {error.strerror or type(error).__name__}",
            hint="file:PATH names a file with the key, which this user can read",
        ) from None
    except (FormatError, UnicodeDecodeError):
        raise SkipstoneError(
            f"{shown}: {kind}:{where} does not hold a key",
            hint="a key is 16, 24 or 32 bytes: hex, base64:… or text:…",
        ) from None


def kms_from(name: str) -> Any:
    """The KMS client that ``MODULE:NAME`` makes when it is called."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise SkipstoneError(f"{name!r} is not MODULE:NAME", hint="such as mycompany.kms:Client")
    try:
        make = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise SkipstoneError(
            f"no KMS client {name!r}: {type(error).__name__}",
            hint="the module must be on PYTHONPATH, and have the name",
        ) from error
    try:
        client = make()
    except Exception as error:  # of a user's function
        raise SkipstoneError(
            f"the KMS client {name!r} cannot be made: {type(error).__name__}: {first_line(error)}",
            hint="it is called without arguments, and returns the client",
        ) from error
    if not hasattr(client, "unwrap_key"):
        raise SkipstoneError(
            f"{name!r} makes no KMS client, but a value of type {type(client).__name__}",
            hint="a KMS client has the methods wrap_key and unwrap_key",
        )
    return client


aad_prefix_option = click.option(
    "--aad-prefix",
    metavar="TEXT",
    help="The AAD prefix of the file; for a TABLE, the beginning of its files' prefixes.",
)


def key_options(function: Function, *, sets: bool = False) -> Function:
    """Adds the options that open an encrypted file; with ``sets`` ``--keys`` also takes those of
    ``key_files``."""
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
        aad_prefix_option,
        keys_option
        if sets
        else click.option(
            "--keys",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            help="A JSON file with keys and AAD prefix, as for `inspect`.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def data_keys(function: Function, *, sets: bool = False) -> Function:
    """Adds the options that open the encrypted files of a table; ``file_keys`` has them. ``sets``
    as for ``key_options``."""

    @click.option(
        "--allow-plaintext-files",
        is_flag=True,
        help="With keys: also read files that are not encrypted (with --keys this is always so).",
    )
    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        asked = {each.name: options.pop(each.name) for each in fields(DecryptionOptions)}
        click.get_current_context().meta["skipstone.data_keys"] = DecryptionOptions(**asked)
        return function(*args, **options)

    return cast("Function", key_options(run, sets=sets))


#: ``data_keys`` for a verb with a condition: its ``--keys`` takes values of columns, too
data_keys_and_sets = partial(data_keys, sets=True)


def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keeps the value of an option for ``TableArguments.open``: its name is that of an argument of
    ``Table``."""
    kept(ctx)[str(param.name)] = value


def kept(ctx: click.Context | None = None) -> dict[str, Any]:
    """The options that were kept, by name."""
    found: dict[str, Any] = (ctx or click.get_current_context()).meta.setdefault(_KEPT, {})
    return found


def lookup_option(function: Function) -> Function:
    """Adds ``--recursive-file-lookup``: which files are part of the table."""
    return click.option(
        "--recursive-file-lookup",
        is_flag=True,
        expose_value=False,
        callback=keep,
        help="The table is all files below, and no folder gives a partition column, as with "
        "Spark's option recursiveFileLookup.",
    )(function)


def index_key_options(function: Function) -> Function:
    """Adds the options that open an encrypted index."""
    keys = click.option(
        "--index-key",
        "index_key",
        metavar="LABEL=SOURCE",
        multiple=True,
        expose_value=False,
        callback=lambda ctx, param, value: keep(ctx, param, column_sources(ctx, param, value)),
        help="For an encrypted index: the key with this label is at file:PATH or env:NAME; may be "
        "given again.",
    )
    kms = click.option(
        "--index-kms",
        metavar="MODULE:NAME",
        expose_value=False,
        callback=keep,
        help="For an encrypted index: a KMS client that has the keys, called without arguments.",
    )
    return keys(kms(function))


def index_keys() -> Any:
    """``index_keys`` as ``Table`` takes it; ``None`` without key options."""
    sources, kms = kept().get("index_key"), kept().get("index_kms")
    if kms and sources:
        raise click.UsageError("--index-kms excludes --index-key: it has the keys")
    if kms:
        return kms_from(kms)
    if not sources:
        return None
    found = sources.items()
    return {label: key_from(each, f"the key labelled {label!r}") for label, each in found}


def file_keys() -> Decryption | None:
    """The keys of encrypted files; ``None`` without key options."""
    found: DecryptionOptions | None = click.get_current_context().meta.get("skipstone.data_keys")
    if found is None:
        return None
    if not found.given:
        if found.aad_prefix or found.allow_plaintext_files:
            raise click.UsageError("--aad-prefix and --allow-plaintext-files need keys")
        return None
    return found()


_ALGORITHMS: Final = {"gcm": "AES_GCM_V1", "gcm-ctr": "AES_GCM_CTR_V1"}


def _absolute(source: str | None) -> str | None:
    """The source with an absolute path: a worker has another working directory."""
    if source is None or not source.startswith("file:"):
        return source
    return f"file:{Path(source.removeprefix('file:')).absolute()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionOptions:
    """How to encrypt: the options of ``encrypt``."""

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

    def anywhere(self) -> EncryptionOptions:
        """The options with absolute paths, for workers."""
        columns = {name: _absolute(each) or "" for name, each in self.column_keys.items()}
        return replace(self, footer_key=_absolute(self.footer_key), column_keys=columns)

    def __call__(self) -> Encryption:
        from skipstone.parquet.encryption.encryption import Encryption as _Encryption

        with _value_errors("run `skipstone encrypt --help`"):
            return _Encryption(
                **_opened(self),
                footer_key_metadata=self.footer_key_label,
                column_key_metadata=dict(self.column_key_labels),
                footer_key_id=self.footer_key_id,
                column_key_ids=dict(self.column_key_ids),
                data_key_bits=int(self.key_bits),
                double_wrapping=not self.single_wrapping,
                internal_key_material=not self.external_keys,
                algorithm=_ALGORITHMS[self.algorithm],  # type: ignore[arg-type]
                plaintext_footer=self.plaintext_footer,
                plaintext_columns=self.plaintext_columns,
                encrypt_others=not self.plaintext_others,
                store_aad_prefix=not self.omit_aad_prefix,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecryptionOptions:
    """The keys of encrypted files: the options that ``key_options`` adds."""

    keys: str | None = None
    footer_key: str | None = None
    column_keys: Mapping[str, str] = field(default_factory=dict)
    kms: str | None = None
    aad_prefix: str | None = None
    allow_plaintext_files: bool = False

    @property
    def given(self) -> bool:
        """True with any such option."""
        return bool(self.keys or self.footer_key or self.column_keys or self.kms)

    def anywhere(self) -> DecryptionOptions:
        """The options with absolute paths, for workers."""
        columns = {name: _absolute(each) or "" for name, each in self.column_keys.items()}
        keys = None if self.keys is None else str(Path(self.keys).absolute())
        return replace(self, keys=keys, footer_key=_absolute(self.footer_key), column_keys=columns)

    def __call__(self) -> Decryption:
        from skipstone.parquet.encryption.decryption import Decryption as _Decryption
        from skipstone.parquet.encryption.decryption import decryption_from_file

        if self.keys is not None:
            if self.footer_key or self.column_keys or self.kms or self.aad_prefix:
                raise click.UsageError(
                    "--keys excludes all other key options: its file has the keys and the AAD "
                    "prefix"
                )
            return decryption_from_file(self.keys)
        with _value_errors("a key is 16, 24 or 32 bytes"):
            return _Decryption(**_opened(self), allow_plaintext_files=self.allow_plaintext_files)


@contextmanager
def _value_errors(hint: str) -> Iterator[None]:
    """A ``ValueError`` becomes a ``SkipstoneError`` with this hint."""
    try:
        yield
    except SkipstoneError:
        raise
    except ValueError as error:
        raise SkipstoneError(str(error), hint=hint) from None


def _opened(options: EncryptionOptions | DecryptionOptions) -> dict[str, Any]:
    """The keys, the KMS client and the AAD prefix that the options name."""
    footer_key, kms, aad_prefix = options.footer_key, options.kms, options.aad_prefix
    return {
        "footer_key": None if footer_key is None else key_from(footer_key, "the footer key"),
        "column_keys": {
            name: key_from(each, f"the key of column {name!r}")
            for name, each in options.column_keys.items()
        },
        "kms": None if kms is None else kms_from(kms),
        "aad_prefix": None if aad_prefix is None else aad_prefix.encode(),
    }


def index_encryption_of(
    footer_key: str | None, key_metadata: Mapping[str, str], *, plaintext_footer: bool
) -> IndexEncryption | None:
    """How to encrypt an index, by labels; ``None`` for an index in the clear."""
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


def location_option(help: str) -> Callable[[Function], Function]:
    """``--index-location``."""
    return click.option(
        "--index-location",
        metavar="DIR",
        shell_complete=paths,
        envvar="SKIPSTONE_INDEX_LOCATION",
        show_envvar=True,
        help=help,
    )


def table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds FILE or TABLE, and the options that only a table needs."""
    location = location_option("For a TABLE: where its index lies, if not next to it.")
    master = click.option(
        "--master",
        callback=spark_master,
        metavar="URL",
        help="For a TABLE: process the files as a job of this Spark master; else in this process.",
    )
    return click.argument("table", metavar="FILE|TABLE", shell_complete=paths)(
        location(master(index_key_options(lookup_option(function))))
    )
