"""Options that several verbs share: the table, its index, Spark, sizes, and the settings file.

Precedence: a flag, then its environment variable ``SKIPSTONE_…``, then ``skipstone.toml`` (or
``[tool.skipstone]`` of ``pyproject.toml``) in the directory where the table lies, then the default.
The settings file has three keys:

    index-location = "/indexes/events"      a relative path starts at the file's directory
    memory = "1GiB"
    recursive-file-lookup = true

The directory of a table may belong to another user. So no key names a machine to connect to or
holds a secret. The file is used only if it belongs to the user or to root, and no other user can
write it.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import sys
from contextlib import suppress
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.identity import canonical_path

from .completion import paths
from .keys import (
    file_keys,
    index_key_options,
    index_keys,
    keep,
    kept,
    location_option,
    lookup_option,
)
from .output import Output, closed_connections
from .spark_session import spark_master

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from skipstone.table import Table


_LOG = logging.getLogger("skipstone")

Function = TypeVar("Function", bound="Callable[..., Any]")

# Names of storage options that hold secrets. Key labels are not secrets.
_SECRET = re.compile(
    r"secret|passw|token|credential|signature|sas|private|(access|account)_?key|key$"
)
# Options that are kept but are not arguments of ``Table``.
_OTHERS = frozenset({"catalog_table", "index_key", "index_kms"})
# The prefix of Paimon's options.
_FILE_INDEX = "file-index."

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b?)", re.IGNORECASE)
_AGE = re.compile(r"(\d{1,6})\s*([dhms])", re.IGNORECASE)


def size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Bytes: ``512MiB``, ``512m`` (Spark's spelling, 2**20), ``2GB`` (10**9), or a plain number."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size; write 512MiB, 2GB or 1g", ctx, param)
    number, unit, binary, byte = match.groups()
    base = 1000 if byte and not binary else 1024
    found = int(Decimal(number) * base ** (" kmgt".index(unit.lower()) if unit else 0))
    if found <= 0:
        raise click.BadParameter("a size must be greater than 0", ctx, param)
    return found


def age(ctx: click.Context, param: click.Parameter, value: str) -> timedelta:
    """A time span: ``1d``, ``36h``, ``90m``, ``45s``."""
    from datetime import timedelta

    match = _AGE.fullmatch(value.strip())
    if match is None:
        text = f"{value!r} is not a time span; write 1d, 36h, 90m or 45s"
        raise click.BadParameter(text, ctx, param)
    return timedelta(
        seconds=int(match[1]) * {"d": 86_400, "h": 3600, "m": 60, "s": 1}[match[2].lower()]
    )


def _storage_options(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    options = {}
    of_files = param.name == "options"
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{key!r} is not of the form key=value", ctx, param)
        names_columns = of_files and key.startswith(_FILE_INDEX)
        if not names_columns and _SECRET.search(key.lower()):
            raise click.BadParameter(
                f"{key!r} may hold a secret, and others can read a command line: set it in the "
                "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, ...)",
                ctx,
                param,
            )
        options[key] = text
    found = {key: value for key, value in options.items() if key.startswith(_FILE_INDEX)}
    if found and of_files:
        from skipstone.paimon.options import FileIndexOptions

        try:
            FileIndexOptions.parse(found)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error
    return options


def columns_of(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
    """``"a, b"`` as names."""
    from skipstone.predicate.types import split_names

    if value is None:
        return None
    names = [name.strip() for name in split_names(value)]
    if not all(names):
        text = "no column was named" if not any(names) else "a name is missing next to a comma"
        raise click.BadParameter(f"{text}: write A,B", ctx, param)
    return names


def storage_option(function: Function) -> Function:
    """Adds ``--storage-option``: how to reach an object store or HDFS."""
    return click.option(
        "--storage-option",
        "storage_options",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_storage_options,
        help="An option of the object store (endpoint, region, ...) or of HDFS (webhdfs, "
        "user); may be given again. "
        "Secrets come from the environment.",
    )(function)


def _version_options(function: Function) -> Function:
    """Adds ``--at-version`` and ``--at-timestamp``: which snapshot of a table format is read."""
    for name, metavar, what in (
        ("version", "VERSION", "a version (a snapshot, a branch, a tag or an instant)"),
        ("timestamp", "TIME", "the newest version at a time, of UTC unless it has a zone"),
    ):
        function = click.option(
            f"--at-{name}",
            name,
            metavar=metavar,
            expose_value=False,
            callback=keep,
            help=f"For a table of a table format: read {what}.",
        )(function)
    return function


def index_options(function: Function, *, required: bool = True, versions: bool = True) -> Function:
    """Adds TABLE, and where its index lies; without ``versions``, for its newest one only."""
    if versions:
        function = _version_options(function)
    location = location_option("Where the index lies, if not next to the table.")
    name = click.option(
        "--table",
        "catalog_table",
        metavar="NAME",
        expose_value=False,
        callback=keep,
        help="In place of TABLE: a table of Spark's catalog, such as db.events. Spark's "
        "configuration says which catalog (hive-site.xml).",
    )
    partial = click.option(
        "--partial",
        is_flag=True,
        expose_value=False,
        callback=keep,
        help="For a QuestDB table: read the partitions that are Parquet, and leave out the others.",
    )
    shared = storage_option(index_key_options(lookup_option(partial(function))))
    return click.argument("table", required=required, shell_complete=paths)(name(location(shared)))


def source_options(function: Function) -> Function:
    """Adds how to read files that are not Parquet; ``TableArguments.open`` uses it."""
    schema = click.option(
        "--schema",
        expose_value=False,
        callback=keep,
        help="The schema of CSV, JSON or ORC files, as DDL or Spark's JSON; else Spark infers it.",
    )
    option = click.option(
        "--option",
        "options",
        metavar="KEY=VALUE",
        multiple=True,
        expose_value=False,
        callback=lambda ctx, param, value: keep(ctx, param, _storage_options(ctx, param, value)),
        help="An option of Spark's reader for such files (header=true, ...), or of Paimon's for "
        "file indexes (file-index.bitmap.columns=a,b, ...); may be given again.",
    )
    format_ = click.option(
        "--format",
        type=click.Choice(["parquet", "csv", "json", "orc"]),
        default="parquet",
        show_default=True,
        expose_value=False,
        callback=keep,
        help="The format of the files.",
    )
    return format_(option(schema(function)))


def spark_options(function: Function) -> Function:
    """Adds where a build runs."""
    master = click.option(
        "--master",
        callback=spark_master,
        envvar="SKIPSTONE_MASTER",
        show_envvar=True,
        help="Build on this Spark master. Without it, the build runs in this process, or on "
        "local[*] for 20 GB or more on more than four cores.",
    )
    no_spark = click.option(
        "--no-spark", is_flag=True, help="Build in this process in any case: needs no Java."
    )
    return master(no_spark(function))


def decoding_memory(function: Function) -> Function:
    """Adds how much memory the decoding of pages may take; ``TableArguments.open`` uses it."""
    option = click.option(
        "--memory",
        "decoding_memory",
        metavar="SIZE",
        callback=lambda ctx, param, value: None if value is None else size(ctx, param, value),
        envvar="SKIPSTONE_MEMORY",
        show_envvar=True,
        help="Memory limit of the pages that are decoded together; a read that needs more is "
        "refused. By default 2GiB, or 32 times their stored bytes where that is more.",
    )
    return option(function)


@dataclass(frozen=True, slots=True)
class TableArguments:
    """TABLE, where its index and its object store are, and why its settings file is of no use."""

    path: str
    index_location: str | None
    storage_options: dict[str, str] | None
    refused: Exception | None = None

    @property
    def is_name(self) -> bool:
        """Whether ``path`` is a name in Spark's catalog."""
        return kept().get("catalog_table") is not None

    def _session(self, context: click.Context) -> SparkSession:
        """The session whose catalog has the table, for as long as the verb runs."""
        from .spark_session import session

        if context.params.get("no_spark"):
            raise click.UsageError("--table needs Spark, whose catalog has the table")
        master = context.params.get("master") or os.environ.get("SKIPSTONE_MASTER") or "local[*]"
        made = context.with_resource(session(master, hive=True))
        assert made is not None
        return made

    def open(self) -> Table:
        """The ``Table``, with the values that other shared options keep in the context."""
        if self.refused is not None:
            raise self.refused
        hide_pandas()
        from skipstone.table import Table

        context = click.get_current_context()
        arguments = {name: value for name, value in kept().items() if name not in _OTHERS}
        place: Any = (self._session(context), self.path) if self.is_name else (self.path,)
        return Table(
            *place,
            index_location=self.index_location,
            storage_options=self.storage_options,
            index_keys=index_keys(),
            decryption=file_keys(),
            **arguments,
        )


def reporting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--json``, ``--quiet`` and ``--debug``; the verb receives an ``Output`` as ``out``.

    A verb with ``--index-location`` receives ``TableArguments`` as ``table``, or ``None`` where
    none was named.
    """

    @click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
    @click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
    @click.option("--debug", is_flag=True, help="Show where in the code an error comes from.")
    @wraps(function)
    def run(*args: Any, as_json: bool, quiet: bool, debug: bool, **options: Any) -> Any:
        out = Output(as_json=as_json, quiet=quiet)
        with out.warnings(), closed_connections():
            named = kept().get("catalog_table")
            refused: Exception | None = None
            if options.get("table") is not None and named is None:
                try:
                    _add_settings(options)
                except (SkipstoneError, OSError) as error:
                    # `doctor` makes a finding of what `open` raises.
                    if click.get_current_context().command.name != "doctor":
                        raise
                    refused = error
            if "decoding_memory" in options:
                kept()["memory"] = options.pop("decoding_memory")
            if "index_location" in options:
                location = options.pop("index_location")
                store = options.pop("storage_options", None) or None
                if options["table"] is not None:
                    options["table"] = TableArguments(options["table"], location, store, refused)
            return function(*args, out=out, **options)

    return run


def _add_settings(options: dict[str, Any]) -> None:
    """The settings file fills the options that have their default."""
    ctx = click.get_current_context()
    own = {param.name: param for param in ctx.command.params}
    for key, value in _settings_of(options["table"]).items():
        name = "decoding_memory" if key == "memory" and "decoding_memory" in own else key
        if name in own and ctx.get_parameter_source(name) is ParameterSource.DEFAULT:
            found = own[name].process_value(ctx, value)
            if own[name].expose_value:
                options[name] = found


# The parameter of each key, and the type of its value.
_KEYS: Final = {
    "index-location": ("index_location", str, 'a text: write it as "..."'),
    "memory": ("memory", str, 'a text: write it as "..."'),
    "recursive-file-lookup": ("recursive_file_lookup", bool, "true or false"),
}


def _settings_of(table: str) -> dict[str, Any]:
    """Settings for ``table`` by parameter name; none for a table in an object store.

    ``SkipstoneError`` for a file that is not TOML, and for unknown keys and values.
    """
    path = canonical_path(table)
    if "://" in path:
        return {}
    home = Path(path).parent
    for name, keys in (("skipstone.toml", ()), ("pyproject.toml", ("tool", "skipstone"))):
        file = home / name
        try:
            text, doubt = _text_of(file)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            continue
        if doubt:
            # An error in a file that is not used does not count.
            with suppress(SkipstoneError):
                if not keys or _section(file, text, keys) is not None:
                    _LOG.warning("%s is not used: %s", file, doubt)
            continue
        found = _section(file, text, keys)
        if found is not None:
            return _checked(file, found)
    return {}


def _text_of(file: Path) -> tuple[bytes, str]:
    """The bytes of a settings file, and why it must not be used, or "".

    It decides where files are written and removed. Otherwise other users could use it to remove
    this user's files.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as opened:  # noqa: PTH123 - a descriptor
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "no regular file", str(file))
        text = opened.read()
    user = os.geteuid()
    # A link of another user may lead to a file that this user wrote for another table.
    for owner in (found.st_uid, file.lstat().st_uid):
        if owner not in (user, 0):
            return text, f"it belongs to {_user_name(owner)}; give its settings as flags"
    if found.st_mode & stat.S_IWOTH or (
        found.st_mode & stat.S_IWGRP and not _is_private_group(found.st_gid, user)
    ):
        return text, "others may write it; remove that permission: chmod go-w"
    return text, ""


def _user_name(user: int) -> str:
    import pwd

    try:
        return f"the user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"the user {user}"


def _is_private_group(group: int, user: int) -> bool:
    """Whether the group has no other user, by its list and the users' own groups."""
    import grp
    import pwd

    try:
        name = pwd.getpwuid(user).pw_name
        members = {*grp.getgrgid(group).gr_mem}
        members |= {each.pw_name for each in pwd.getpwall() if each.pw_gid == group}
    except KeyError:
        return False
    return members <= {name}


def _section(file: Path, text: bytes, keys: tuple[str, ...]) -> Any:
    import tomllib

    try:
        section: Any = tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # too long numbers raise no TOMLDecodeError
        if keys:
            return None  # other tools report the errors of pyproject.toml
        raise SkipstoneError(f"{file}: {error}", hint="repair the file, or move it away") from error
    for key in keys:
        section = section.get(key) if isinstance(section, dict) else None
    return section


def _checked(file: Path, section: Any) -> dict[str, Any]:
    known = f"it may have {', '.join(_KEYS)}"
    if not isinstance(section, dict):
        raise SkipstoneError(f"{file}: tool.skipstone is not a table", hint=known)
    settings: dict[str, Any] = {}
    for key, value in section.items():
        if key not in _KEYS:
            raise SkipstoneError(f"{file}: unknown key {key!r}", hint=known)
        name, type_, wanted = _KEYS[key]
        if not isinstance(value, type_):
            what, _, hint = wanted.partition(": ")
            raise SkipstoneError(f"{file}: {key} is not {what}", hint=hint or f"write {what}")
        settings[name] = value
    location = settings.get("index_location")
    if location is not None and "://" not in location:
        settings["index_location"] = str(file.parent / location)
    return settings


class _Hidden:
    """A finder that reports pandas as not installed."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name} is not needed", name=name)


def hide_pandas() -> None:
    """Hide pandas from PyArrow, unless it is imported already."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array(())
    finally:
        sys.meta_path.remove(hidden)
