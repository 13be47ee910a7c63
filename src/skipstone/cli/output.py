"""The only module that prints: results to stdout, errors and everything else to stderr.

A result is a value with ``to_dict()`` and ``str()``: one JSON document or one text. Progress is
drawn only on a terminal, colour only there and where ``NO_COLOR`` is not set. ``fault_of`` turns an
exception into a message for the user: one line for the error, one hint, an exit code.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TextIO

import click

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError
from skipstone.human import first_of, of_total, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from logging import LogRecord


FAILED, USAGE, FOUND, INTERRUPTED = 1, 2, 3, 130
# The version of the JSON documents (docs/schemas). It grows where a key is removed or gets another
# meaning.
SCHEMA_VERSION = 1
# The names of files of other formats that Skipstone reads.
_OTHERS = (".csv", ".json", ".orc")
_READS_OTHERS = {"build", "refresh", "explain", "query", "count", "grep"}
# What holds after an interrupt, by verb; the others only read.
_FINISHED = "files that were finished are kept: the same command continues from there"
_AFTER = {
    **dict.fromkeys(("build", "refresh", "retrofit", "migrate", "salvage"), _FINISHED),
    **dict.fromkeys(("encrypt", "decrypt", "rekey"), _FINISHED),
    **dict.fromkeys(
        ("compact", "vacuum", "drop"), "the index is usable: the same command does the rest"
    ),
    **dict.fromkeys(
        ("export", "write-metadata"), "what was published before is complete: run it again"
    ),
    "ingest": "rows that were committed are in the table, and no others",
    "check": "what was repaired is kept",
}
# An interrupted process ends after this time, even if its threads still run.
_SECONDS_TO_END = 0.7
# When the verb of this process began: at first, when this module was imported.
_clock = {"imported": time.perf_counter()}
# The width of a progress bar, and the seconds between two drawings.
_BAR, _REDRAWN = 40, 0.1
# The length of the progress line on the terminal.
_progress = {"length": 0}


class Reportable(Protocol):
    """The result of a verb."""

    def to_dict(self) -> Mapping[str, Any]:
        """As JSON-ready values."""


class Verdict(Reportable, Protocol):
    """A report with an outcome."""

    @property
    def ok(self) -> bool:
        """False if it found a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How one call of a verb prints."""

    as_json: bool = False
    quiet: bool = False

    def result(self, value: Reportable) -> None:
        """The result; called once."""
        if not self.as_json:
            _write(sys.stdout, f"{value}\n")
            return
        document = {"schema_version": SCHEMA_VERSION, **value.to_dict()}
        try:
            text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
            text.encode()
        except UnicodeEncodeError:  # a file name that is not UTF-8
            text = json.dumps(document, indent=2, allow_nan=False)
        _write(sys.stdout, f"{text}\n")

    def verdict(self, report: Verdict, code: int = FOUND) -> None:
        """The result; the verb ends here with exit code ``code`` unless it is ``ok``."""
        self.result(report)
        if not report.ok:
            click.get_current_context().exit(code)

    def lines(self, texts: Iterable[str]) -> None:
        """A result that is printed while it is made; called once, instead of ``result``."""
        for text in texts:
            _erase_progress()
            _write(sys.stdout, f"{text}\n")

    def warn(self, text: str) -> None:
        """A line that the user should see and need not act on."""
        if not self.quiet:
            line = " ".join(text.split())
            _erase_progress()
            _write(sys.stderr, f"{_coloured('warning:', '33')} {line}\n")

    def note(self, text: str) -> None:
        """A line that helps the user next time."""
        if not self.quiet:
            _erase_progress()
            _write(sys.stderr, f"{_coloured('note:', '36')} {text}\n")

    def missing(self, title: str, texts: Sequence[str]) -> NoReturn:
        """What the result lacks; the verb ends here with exit code ``FOUND``."""
        first, *rest = first_of(title, texts)
        _write(sys.stderr, f"{_coloured('missing:', '1;31')} {first}\n")
        _write(sys.stderr, "".join(f"{_coloured(line, '31')}\n" for line in rest))
        click.get_current_context().exit(FOUND)

    def on_terminal(self) -> bool:
        """True when a user at a terminal reads the result."""
        return sys.stdout is not None and sys.stdout.isatty()

    def can_ask(self) -> bool:
        """True when a user at a terminal can see a question and answer it."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def confirm(self, question: str) -> bool:
        """Ask on the terminal; anything but yes is no."""
        _write(sys.stderr, f"{question} [y/N] ")
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[int, int], None] | None]:
        """A function that takes ``(done, total)`` files, or ``None`` where it would not be seen."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        started, drawn = time.perf_counter(), 0.0

        def advance(done: int, total: int) -> None:
            nonlocal drawn
            now = time.perf_counter()
            if done < total and now - drawn < _REDRAWN:
                return
            drawn = now
            bar = "#" * (_BAR * done // max(total, 1))
            files = of_total(done, total, "files")
            line = f"{title} {bar:-<{_BAR}} {files}, {now - started:.0f} s"
            _erase_progress()
            _write(sys.stderr, line)
            _progress["length"] = len(line)

        try:
            yield advance
        finally:
            _erase_progress()

    @contextmanager
    def warnings(self) -> Iterator[None]:
        """Warnings and log records of the library, as ``warning: …`` while the verb runs."""
        import logging
        import warnings

        def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            if not issubclass(category, DeprecationWarning):
                self.warn(str(message))

        class Lines(logging.Handler):
            def emit(handler, record: LogRecord) -> None:
                self.warn(record.getMessage())

        logger = logging.getLogger("skipstone")
        lines = Lines(logging.WARNING)
        logger.addHandler(lines)
        propagate, logger.propagate = logger.propagate, False
        shown = warnings.showwarning
        warnings.showwarning = show
        try:
            yield
        finally:
            warnings.showwarning = shown
            logger.removeHandler(lines)
            logger.propagate = propagate


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``message`` and ``hint`` are one line each; ``code`` is the exit code."""

    message: str
    hint: str
    code: int = FAILED


def in_order(fault: Fault, given: Sequence[str]) -> Fault:
    """With another hint where the table that does not exist is a pattern or a condition, before the
    table, as `grep PATTERN FILE` has it."""
    lost = fault.message.partition("no such file or directory: ")[2]
    for at, word in enumerate(given[1:-1], 1):
        table = given[at + 1]
        if lost.endswith(f"/{word}") and not table.startswith("-") and Path(table).exists():
            words = shlex.join([*given[:at], table, word, *given[at + 2 :]])
            return replace(fault, hint=f"TABLE comes first: skipstone {words}")
    return fault


def fault_of(error: BaseException, verb: str = "") -> Fault:
    """The fault for any exception of ``verb``."""
    found = _fault_of(error, verb)
    # Scripts know the codes of grep: 1 says that nothing matched.
    return replace(found, code=USAGE) if (verb, found.code) == ("grep", FAILED) else found


def _fault_of(error: BaseException, verb: str) -> Fault:
    if (
        isinstance(error, FormatError)
        and (error.file or "").endswith(_OTHERS)
        and not error.about.startswith("key file: ")
        and verb in _READS_OTHERS
    ):
        hint = "it is of another format: --format csv, json or orc"
        return Fault(message=one_line(error.message), hint=hint)
    if isinstance(error, SkipstoneError):
        return Fault(message=one_line(error.message), hint=one_line(error.hint))
    if isinstance(error, click.UsageError):
        verb = error.ctx.command_path if error.ctx is not None else f"skipstone {verb}".rstrip()
        hint = f"run `{verb} --help`"
        if "unexpected extra argument" in error.message:
            params = error.ctx.command.params if error.ctx else []
            taken = {each.name for each in params}
            hint = _of_extra(error.message, verb, taken)
        return Fault(message=one_line(error.format_message()), hint=hint, code=USAGE)
    if isinstance(error, click.ClickException):
        return Fault(message=one_line(error.format_message()), hint="run it with --help")
    if isinstance(error, click.Abort | KeyboardInterrupt):
        after = _AFTER.get(verb, "nothing was changed")
        return Fault(message="interrupted", hint=after, code=INTERRUPTED)
    if isinstance(error, MemoryError):
        return Fault(message="out of memory", hint="give `--memory` a smaller size")
    if isinstance(error, OSError):
        return _of_system(error)
    name = type(error).__name__
    if type(error).__module__.startswith(("py4j.", "pyspark.")):
        lines = [each.strip() for each in str(error).splitlines()]
        causes = [each for each in lines if each.startswith((": ", "Caused by: "))]
        cause = (causes or lines or [name])[-1].removeprefix("Caused by").removeprefix(": ")
        hint = "run the same command with --debug to see Spark's own trace"
        return Fault(message=one_line(f"Spark failed: {cause}"), hint=hint)
    text = str(error).partition("\n")[0]
    return Fault(
        message=one_line(f"internal: {name}: {text}" if text else f"internal: {name}"),
        hint="run the same command with --debug to see where, and please report it",
    )


def _of_extra(message: str, verb: str, taken: Collection[str | None]) -> str:
    """A hint for a surplus argument: what it may mean. ``taken``: the parameters of the verb."""
    extra = message.rpartition("(")[2].rstrip(")").split()
    if "index" in taken:
        return "one index at a time, or without one all of them"
    files = any("/" in each or each.endswith(".parquet") for each in extra)
    index = next((each for each in extra if ":" in each), f"{extra[0]}:KIND" if extra else "")
    if verb.endswith(" build") and index and not files:
        quotes = "in quotes where a name has spaces"
        return f"an index is named with -c, {quotes}: {verb} TABLE -c '{index}'"
    if verb.endswith(" refresh") and index and not files:
        return f"refresh keeps to existing indexes; skipstone build TABLE -c '{index}' adds one"
    if files:
        return "one table at a time: quote a pattern, 'data/*.parquet'"
    if "where" in taken:
        return f'quote a predicate, "id = 5", and a pattern; or run `{verb} --help`'
    if "queries" in taken:
        return "predicates are lines of a file: --queries FILE"
    return f"quote a pattern; `{verb} --help` shows what it takes"


def _of_system(error: OSError) -> Fault:
    what = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        what = f"{error.filename}: {what}"
    if "://" in what and error.errno is None:
        hint = (
            "keys, region and endpoint come from the environment (AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY, …); `--storage-option endpoint=…` names another store"
        )
    elif isinstance(error, FileNotFoundError) and (above := _missing_above(error.filename)):
        hint = f"there is no directory {above}: check the path, or make the directory first"
    elif isinstance(error, FileNotFoundError):
        hint = "check the path; a table in an object store is named by its URI, s3://bucket/path"
    elif isinstance(error, IsADirectoryError) or error.errno == errno.EINVAL:
        hint = "name a file"
    elif isinstance(error, FileExistsError | NotADirectoryError):
        hint = "name a directory, or a path that does not exist yet"
    elif isinstance(error, PermissionError) or error.errno == errno.EROFS:
        hint = "grant this user access to it"
        if any(part.endswith(".skipstone") for part in str(error.filename).split("/")):
            hint = "`--index-location` puts the index elsewhere"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free some space: unneeded files of the command are already removed"
    else:
        hint = "run the same command with --debug to see where it happened"
    return Fault(message=one_line(what), hint=hint)


def _missing_above(path: object) -> str | None:
    """The directory that ``path`` would lie in, where there is none."""
    if not isinstance(path, str) or "://" in path:
        return None
    above = Path(path).parent
    return None if above.exists() else one_line(str(above))


def fault(fault: Fault, error: BaseException | None = None) -> None:
    """``error: …`` and ``hint: …``; the traceback of ``error`` before, when there is one."""
    if error is not None:
        import traceback

        _write(sys.stderr, "".join(traceback.format_exception(error)))
    _write(sys.stderr, f"{_coloured('error:', '1;31')} {fault.message}\n")
    _write(sys.stderr, f"{_coloured('hint:', '36')} {fault.hint}\n")


def begin() -> None:
    """Starts the clock of a verb. For the first verb of a process it starts with the process."""
    _clock["began"] = _clock.pop("imported", time.perf_counter())


def seconds_since_start() -> float:
    """How long the verb has taken, as its user feels it."""
    return time.perf_counter() - _clock["began"]


@contextmanager
def ended_by_interrupt(verb: str) -> Iterator[None]:
    """Ctrl-C ends the process within a second, also where threads or calls of other libraries go
    on. Every verb leaves its files as complete as a kill does."""
    import signal
    import threading

    def end() -> None:
        fault(fault_of(KeyboardInterrupt(), verb))
        leave(INTERRUPTED)

    def interrupt(*_: object) -> None:
        timer = threading.Timer(_SECONDS_TO_END, end)
        timer.daemon = True
        timer.start()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def leave(code: int) -> NoReturn:
    """End the process now, without waiting for its threads."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    os._exit(code)


def flush() -> None:
    """Flushes the result now, so that a closed pipe is noticed here and not at exit."""
    if sys.stdout is not None:
        with _ending_with_reader(sys.stdout):
            sys.stdout.flush()


@contextmanager
def _ending_with_reader(stream: TextIO) -> Iterator[None]:
    """A closed stdout ends the process with success: its reader has what it wants. With a closed
    stderr the verb continues."""
    try:
        yield
    except BrokenPipeError:
        with suppress(OSError, ValueError):  # no real stream: nothing is buffered
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if stream is sys.stdout:
            raise SystemExit(0) from None  # click would end with 1


@contextmanager
def closed_connections() -> Iterator[None]:
    """Makes an error of a closed connection: click takes any closed pipe for stdout."""
    try:
        yield
    except BrokenPipeError as error:
        raise SkipstoneError(
            "a connection was closed by the other side",
            hint="run the command again; --debug shows which connection it was",
        ) from error


def shows_colour(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal with colour; ``None`` was closed before the process began."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream is not None and stream.isatty() and not plain


def _coloured(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if shows_colour(sys.stderr) else text


def _erase_progress() -> None:
    length, _progress["length"] = _progress["length"], 0
    if length:
        _write(sys.stderr, f"\r{'':{length}}\r")


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # it was closed before the process began
        return
    with _ending_with_reader(stream):
        try:
            stream.write(text)
        except UnicodeEncodeError:  # the terminal's encoding, or UTF-8, has no such character
            encoding = stream.encoding or "utf-8"
            stream.write("".join(_encodable(each, encoding) for each in text))
        if stream is sys.stderr:
            stream.flush()


def _encodable(character: str, encoding: str) -> str:
    """The character, or its escape in JSON."""
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(character)[1:-1]
    return character
