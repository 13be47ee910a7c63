"""Turns an exception into what a user sees: one line for the error, one hint, an exit code."""

from __future__ import annotations

from dataclasses import dataclass

import click

from skipstone.errors import SkipstoneError

FAILED, USAGE, FOUND = 1, 2, 3
# A message from Spark carries a plan and a stack; its first line is enough.
_LONGEST = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``message`` and ``hint`` are one line each; ``code`` is the exit code."""

    message: str
    hint: str
    code: int = FAILED


def fault_of(error: BaseException) -> Fault:
    """The fault for any exception."""
    if isinstance(error, SkipstoneError):
        return Fault(message=_one_line(error.message), hint=_one_line(error.hint))
    if isinstance(error, click.UsageError):
        verb = error.ctx.command_path if error.ctx is not None else "skipstone"
        hint = f"run `{verb} --help`"
        return Fault(message=_one_line(error.format_message()), hint=hint, code=USAGE)
    if isinstance(error, click.ClickException):
        return Fault(message=_one_line(error.format_message()), hint="run it with --help")
    if isinstance(error, click.Abort | KeyboardInterrupt):
        again = "finished work is kept: the same command continues from there"
        return Fault(message="interrupted", hint=again)
    if isinstance(error, MemoryError):
        return Fault(message="out of memory", hint="give `--memory` a smaller size")
    if isinstance(error, OSError):
        return _of_system(error)
    name = type(error).__name__
    text = str(error).partition("\n")[0]
    return Fault(
        message=_one_line(f"internal: {name}: {text}" if text else f"internal: {name}"),
        hint="run the same command with --debug to see where, and please report it",
    )


def _of_system(error: OSError) -> Fault:
    what = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        what = f"{error.filename}: {what}"
    if "://" in what and error.errno is None:
        hint = (
            "keys, region and endpoint come from the environment (AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY, …); `--storage-option endpoint=…` names another store"
        )
    elif isinstance(error, FileNotFoundError):
        hint = "check the path; a table in an object store is named by its URI, s3://bucket/path"
    elif isinstance(error, IsADirectoryError):
        hint = "name a file"
    elif isinstance(error, FileExistsError | NotADirectoryError):
        hint = "name a directory, or a path that does not exist yet"
    elif isinstance(error, PermissionError):
        hint = "`--index-location` puts the index elsewhere"
    else:
        hint = "run the same command with --debug to see where it happened"
    return Fault(message=_one_line(what), hint=hint)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
