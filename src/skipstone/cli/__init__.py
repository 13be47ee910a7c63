"""The command line: flat verbs, each of which calls one function of the library.

The table below names them. A verb's module is imported when the verb is called, so
``skipstone --help`` imports nothing heavy. ``output`` is the only module that prints.
"""

from __future__ import annotations

import gc
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from skipstone._version import __version__

from . import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem


#: verb -> the module with the function of that name, and what the verb does
VERBS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Show Skipstone on a small table that it makes: a guided start."),
    "advise": ("explain", "Propose indexes for a table, from a sample of its files."),
    "build": ("build", "Index the files of a table that have no facts yet."),
    "refresh": ("build", "Index new and changed files with the existing indexes."),
    "describe": ("explain", "Show the indexes of a table, and how much of it they cover."),
    "explain": ("explain", "Show what a query would read, and why the rest can be skipped."),
    "query": ("query", "Print the rows that match, or the first by an order, without Spark."),
    "count": ("query", "Print how many rows match."),
    "grep": ("grep", "Print the rows whose text matches a pattern, as they are found."),
    "report": ("explain", "Draw what a query reads and skips as a page of HTML, or one file."),
    "usage": ("explain", "Show which indexes the scans of a log used, and which did not pay."),
    "check": ("explain", "Find stale, missing or wrong facts, and files in wrong places."),
    "drop": ("maintenance", "Remove one index of a table, or all of them."),
    "compact": ("maintenance", "Merge the parts of an index, and leave out useless facts."),
    "vacuum": ("maintenance", "Delete files that no part of an index refers to."),
    "export": ("maintenance", "Publish an index in a format that other systems read."),
    "ingest": ("table_files", "Append rows to a live table, in place, while it is read."),
    "migrate": ("table_files", "Make row group metadata (_pm) for files that lack it."),
    "retrofit": ("table_files", "Add page indexes, filters and checksums to Parquet files."),
    "cluster": ("table_files", "Write a copy of a table with similar rows in the same files."),
    "salvage": ("rewrite", "Save the rows of Parquet files whose footer is lost."),
    "encrypt": ("rewrite", "Encrypt a Parquet file, or those of a table, without decoding."),
    "decrypt": ("rewrite", "Decrypt a Parquet file, or those of a table, without decoding."),
    "rekey": ("rewrite", "Wrap the data keys of encrypted Parquet files with new master keys."),
    "write-metadata": ("table_files", "Write the footers of all files of a table into one file."),
    "inspect": ("inspect", "Show what is inside an index store, or any Parquet file."),
    "doctor": ("inspect", "Show what is slow or missing on this machine, and what to do."),
}
#: earlier names of verbs, which scripts may use
_FORMER = {"metadata": "write-metadata"}
#: verbs of other command lines, and what to use here
_INSTEAD = {
    "completion": ": give your shell `_SKIPSTONE_COMPLETE=bash_source skipstone` (or zsh, fish)",
    "help": ": `skipstone VERB --help` shows the options of a verb",
    "version": ": `skipstone --version` shows it",
}
#: with it, a shell asks for completions
_COMPLETES = "_SKIPSTONE_COMPLETE"
#: verbs that only read: their process ends without a teardown, which would take longer than a query
#: for one row
_READS = frozenset({"query", "count"})
#: objects that such a verb makes before garbage is collected
_NEW_OBJECTS = 50_000
EXAMPLES = """\b
  skipstone demo
  skipstone advise  data/events
  skipstone build   data/events -c user_id:bloom -c ts:minmax
  skipstone explain data/events "user_id = 'u-8814'"
"""


class Verbs(click.Group):
    """The group. Every failure of a verb passes through ``main``; nothing else exits."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = import_module(f"skipstone.cli.{VERBS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        fitting = [verb for verb in VERBS if verb.startswith(incomplete)]
        verbs = [CompletionItem(verb, help=VERBS[verb][1]) for verb in fitting]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        args = [_FORMER.get(args[0], args[0]), *args[1:]] if args else args
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            near = get_close_matches(args[0], VERBS, n=1)
            meant = f", did you mean {near[0]!r}?" if near else _INSTEAD.get(args[0], "")
            raise click.UsageError(f"no verb {args[0]!r}{meant}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, rest if command is None else _with_name(command, rest)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run the command line; always ends in ``SystemExit``."""
        output.begin()
        stdout = sys.stdout
        if _COMPLETES in os.environ:
            import_module("skipstone.cli.completion")  # before click chooses the shell
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        extra = {**extra, "standalone_mode": False, "prog_name": "skipstone"}
        try:
            code = super().main(given, *rest, **extra)
            output.flush()
        except BaseException as error:
            if isinstance(error, SystemExit):
                if sys.stdout is not stdout:  # click replaces stdout when its pipe was closed
                    error.code = 0
                raise
            fault = output.in_order(output.fault_of(error, verb_of(given)), given)
            output.fault(fault, error if "--debug" in given else None)
            sys.exit(fault.code)
        sys.exit(code if isinstance(code, int) else 0)


def _with_name(command: click.Command, args: list[str]) -> list[str]:
    """``args`` with the name of ``--table`` in the place of TABLE, for a verb that has both."""
    if not any("--table" in each.opts for each in command.params):
        return args
    for at, each in enumerate(args):
        if each == "--":
            break
        if each.startswith("--table="):
            return [*args[: at + 1], each.partition("=")[2], *args[at + 1 :]]
        if each == "--table" and at + 1 < len(args):
            return [*args[: at + 2], args[at + 1], *args[at + 2 :]]
    return args


@click.command(
    cls=Verbs,
    no_args_is_help=False,
    subcommand_metavar="VERB [ARGS]...",
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Data skipping and secondary indexes for plain Parquet, on Spark.

    TABLE is a directory of Parquet files, or its URI in an object store; --table db.events is a
    table of Spark's catalog instead. The index lies next to it:
    that of data/events in data/_events.skipstone. Only these verbs change the table's directory:
    ingest, retrofit, encrypt, decrypt and rekey change files; write-metadata adds two files,
    migrate adds _pm files to QuestDB tables, and salvage adds the files that it saves.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 3 when check or inspect --verify found
    something, or when not all files could be processed, 130 after Ctrl-C. Those of grep: 0 some
    row matched, 1 none did, 2 error.
    """


def verb_of(args: Sequence[str]) -> str:
    """The verb of these arguments, by its present name."""
    first = next((each for each in args if not each.startswith("-")), "")
    return _FORMER.get(first, first)


def main() -> None:
    """The console script ``skipstone``."""
    verb = verb_of(sys.argv[1:])
    if verb in _READS:
        gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    try:
        with output.ended_by_interrupt(verb):
            cli()
    except SystemExit as end:
        # A Spark session ends its JVM at exit.
        quick = verb in _READS and "pyspark" not in sys.modules
        if end.code == output.INTERRUPTED or (quick and end.code == 0):
            output.leave(end.code)
        raise
