"""What the verbs share: the table, where its index lies, how results are shown; units as one
types them.

Precedence: a flag, then its environment variable ``SKIPSTONE_…``, then ``skipstone.toml`` (or
``[tool.skipstone]`` of ``pyproject.toml``) in the directory where the table lies, then the default.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from .output import Output

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.table import Table

__all__ = [
    "age",
    "file_keys",
    "index_key_options",
    "index_keys",
    "index_options",
    "reporting",
    "size",
    "source_options",
    "spark_options",
    "storage_option",
    "table_of",
]

Function = TypeVar("Function", bound="Callable[..., Any]")

# Names of storage options that hold what nobody else may see. Key labels are no secrets.
_SECRET = re.compile(
    r"secret|passw|token|credential|signature|sas|private|(access|account)_?key|key$"
)


# Paimon's options begin so.
_FILE_INDEX = "file-index."

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b?)", re.IGNORECASE)
_AGE = re.compile(r"(\d{1,6})\s*([dhms])", re.IGNORECASE)


def size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Bytes: ``512MiB``, ``512m`` (Spark's spelling, 2**20), ``2GB`` (10**9), or a plain number."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is no size; 512MiB, 2GB and 1g are", ctx, param)
    number, unit, binary, byte = match.groups()
    base = 1000 if byte and not binary else 1024
    found = int(float(number) * base ** (" kmgt".index(unit.lower()) if unit else 0))
    if found <= 0:
        raise click.BadParameter("a size is more than nothing", ctx, param)
    return found


def age(ctx: click.Context, param: click.Parameter, value: str) -> timedelta:
    """A time span: ``1d``, ``36h``, ``90m``, ``45s``."""
    from datetime import timedelta

    match = _AGE.fullmatch(value.strip())
    if match is None:
        text = f"{value!r} is no time span; 1d, 36h, 90m and 45s are"
        raise click.BadParameter(text, ctx, param)
    return timedelta(
        seconds=int(match[1]) * {"d": 86_400, "h": 3600, "m": 60, "s": 1}[match[2].lower()]
    )


def _storage_options(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    options = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{key!r} is not of the form key=value", ctx, param)
        names_columns = key.startswith(_FILE_INDEX) and param.name == "options"
        if not names_columns and _SECRET.search(key.lower()):
            raise click.BadParameter(
                f"{key!r} may hold a secret, and others can read a command line: set it in the "
                "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, ...)",
                ctx,
                param,
            )
        options[key] = text
    found = {key: value for key, value in options.items() if key.startswith(_FILE_INDEX)}
    if found and param.name == "options":
        from skipstone.paimon.options import FileIndexOptions

        try:
            FileIndexOptions.parse(found)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error
    return options


def storage_option(function: Function) -> Function:
    """How an object store is reached."""
    return click.option(
        "--storage-option",
        "storage_options",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_storage_options,
        help="An option of the object store (endpoint, region, ...); may be given again. "
        "Secrets come from the environment.",
    )(function)


def index_options(function: Function) -> Function:
    """TABLE, and where its index lies."""
    location = click.option(
        "--index-location",
        metavar="DIR",
        envvar="SKIPSTONE_INDEX_LOCATION",
        show_envvar=True,
        help="Where the index lies, if not beside the table.",
    )
    partial = click.option(
        "--partial",
        is_flag=True,
        expose_value=False,
        callback=_keep,
        help="Of a table of QuestDB, take the partitions that are Parquet, and leave out others.",
    )
    return click.argument("table")(location(storage_option(index_key_options(partial(function)))))


def index_key_options(function: Function) -> Function:
    """What opens an encrypted index."""
    keys = click.option(
        "--index-key",
        "index_key",
        metavar="LABEL=SOURCE",
        multiple=True,
        expose_value=False,
        callback=_keep_keys,
        help="Of an encrypted index: where the key with a label is, file:PATH or env:NAME; may be "
        "given again.",
    )
    kms = click.option(
        "--index-kms",
        metavar="MODULE:NAME",
        expose_value=False,
        callback=_keep,
        help="Of an encrypted index: a KMS client that has the keys, called without arguments.",
    )
    return keys(kms(function))


def _keep_keys(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    from .keys import column_sources

    ctx.meta["skipstone.index_key"] = column_sources(ctx, param, values)


def index_keys() -> dict[str, Any]:
    """The keys of the index, where some were named: ``index_keys`` as ``Table`` takes them."""
    meta = click.get_current_context().meta
    sources, kms = meta.get("skipstone.index_key"), meta.get("skipstone.index_kms")
    if kms:
        if sources:
            raise click.UsageError("--index-kms stands alone: it has the keys")
        from .keys import kms_from

        return {"index_keys": kms_from(kms)}
    if not sources:
        return {}
    from .keys import key_from

    return {
        "index_keys": {
            label: key_from(source, f"the key labelled {label!r}")
            for label, source in sources.items()
        }
    }


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Of an option that every verb has, and that only ``table_of`` looks at."""
    ctx.meta[f"skipstone.{param.name}"] = value


def source_options(function: Function) -> Function:
    """How the files are read where they are not Parquet; ``table_of`` finds it in the context."""
    schema = click.option(
        "--schema",
        expose_value=False,
        callback=_keep,
        help="The schema of CSV, JSON or ORC files, as DDL or Spark's JSON; else Spark infers it.",
    )
    option = click.option(
        "--option",
        "options",
        metavar="KEY=VALUE",
        multiple=True,
        expose_value=False,
        callback=lambda ctx, param, value: _keep(ctx, param, _storage_options(ctx, param, value)),
        help="An option of Spark's reader for such files (header=true, ...), or of Paimon's for "
        "file indexes (file-index.bitmap.columns=a,b, ...); may be given again.",
    )
    format_ = click.option(
        "--format",
        type=click.Choice(["parquet", "csv", "json", "orc"]),
        default="parquet",
        show_default=True,
        expose_value=False,
        callback=_keep,
        help="What the files are.",
    )
    return format_(option(schema(function)))


def spark_options(function: Function) -> Function:
    """Where a build runs."""
    master = click.option(
        "--master",
        default="local[*]",
        show_default=True,
        envvar="SKIPSTONE_MASTER",
        show_envvar=True,
        help="The Spark master that runs the build.",
    )
    no_spark = click.option(
        "--no-spark", is_flag=True, help="Build in this process: no Java is needed, one core."
    )
    return master(no_spark(function))


def reporting(function: Callable[..., Any]) -> Callable[..., Any]:
    """How the verb speaks: its function gets an ``Output`` as ``out``, and reports there."""

    @click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
    @click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
    @click.option("--debug", is_flag=True, help="Show where in the code an error comes from.")
    @wraps(function)
    def speak(*args: Any, as_json: bool, quiet: bool, debug: bool, **options: Any) -> Any:
        out = Output(as_json=as_json, quiet=quiet)
        with out.warnings():
            return function(*args, out=out, **_with_settings(options))

    return speak


def _with_settings(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with what the file beside the table says where nobody else said anything."""
    if "table" not in options:
        return options
    from .config_file import beside

    ctx = click.get_current_context()
    own = {param.name: param for param in ctx.command.params}
    for name, value in beside(options["table"]).items():
        if name in own and ctx.get_parameter_source(name) is ParameterSource.DEFAULT:
            options[name] = own[name].process_value(ctx, value)
    return options


def file_keys() -> Decryption | None:
    """The keys of encrypted files, where some were named."""
    asked = click.get_current_context().meta.get("skipstone.data_keys")
    if asked is None:
        return None
    from .key_sources import DecryptionAsked

    found = DecryptionAsked(**asked)
    if not found.given:
        if found.aad_prefix or found.allow_plaintext_files:
            raise click.UsageError("--aad-prefix and --allow-plaintext-files go with keys")
        return None
    return found()


def table_of(table: str, index_location: str | None, storage_options: dict[str, str]) -> Table:
    """The table that the shared options name."""
    from .arrow_import import spare_pandas

    spare_pandas()
    from skipstone.table import Table

    meta = click.get_current_context().meta
    # What is not said is not handed on.
    said: dict[str, Any] = {"partial": True} if meta.get("skipstone.partial") else {}
    said |= index_keys()
    keys = file_keys()
    if keys is not None:
        said["decryption"] = keys
    return Table(
        table,
        index_location=index_location,
        storage_options=storage_options or None,
        format=meta.get("skipstone.format", "parquet"),
        options=meta.get("skipstone.options") or None,
        schema=meta.get("skipstone.schema"),
        **said,
    )
