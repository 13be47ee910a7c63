"""`grep`: the rows whose text matches a pattern, printed file by file as they are found."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from skipstone.errors import UnsupportedError
from skipstone.human import duration, of_total, plain
from skipstone.human import size as human_size

from .completion import column_list
from .keys import data_keys
from .options import columns_of, decoding_memory, index_options, reporting, source_options
from .output import flush
from .query import cell, values_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from skipstone.execution import TableScan
    from skipstone.table import Table

    from .options import TableArguments
    from .output import Output


# From so many files on it is worth saying how long a search without an index takes, as soon as
# some are searched.
_MANY, _SOME = 8, 4
# What is no part of a word.
_BETWEEN = "[^A-Za-z0-9_]"
_TEXTS = ("ngram", "tokens", "ngram slices", "tokens slices")
_MATCH, _FILE, _END = "\x1b[1;31m", "\x1b[35m", "\x1b[m"


@click.command()
@index_options
@source_options
@decoding_memory
@click.argument("pattern")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="COLUMN",
    shell_complete=column_list,
    help="A column to search; repeatable. All columns of text by default.",
)
@click.option(
    "--columns",
    "context",
    metavar="A,B",
    shell_complete=column_list,
    callback=columns_of,
    help="Columns to print before the text.",
)
@click.option("--where", metavar="WHERE", help="A condition that the rows meet too.")
@click.option("-F", "--fixed-strings", "fixed", is_flag=True, help="PATTERN is a plain text.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case.")
@click.option("-w", "--word-regexp", "word", is_flag=True, help="Match whole words alone.")
@click.option("-m", "--max-count", type=click.IntRange(min=1), help="Stop after so many rows.")
@click.option("-c", "--count", "counted", is_flag=True, help="Print how many rows of each file.")
@click.option(
    "-l", "--files-with-matches", "names", is_flag=True, help="Print the names of the files alone."
)
@click.option("--no-filename", is_flag=True, help="Print no names of files before rows.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Highlight what matches; auto: on a terminal, unless NO_COLOR is set.",
)
@data_keys
@reporting
def grep(
    table: TableArguments,
    pattern: str,
    columns: tuple[str, ...],
    context: list[str] | None,
    where: str | None,
    fixed: bool,
    ignore_case: bool,
    word: bool,
    max_count: int | None,
    counted: bool,
    names: bool,
    no_filename: bool,
    color: str,
    out: Output,
) -> None:
    """Print the rows of TABLE whose text matches PATTERN, as they are found.

    PATTERN is a regular expression as RLIKE takes it, in Java's flavour, or with -F a plain text.
    A line is the file, the columns of --columns with tabs between, and the text, in which
    characters that cannot be printed are replaced. An index of n-grams (ngram) leaves out files
    that hold no match; without one, grep says how long it takes.

    Exit codes are those of grep: 0 where a row matches, 1 where none does, and 2 for every error.

    \b
      skipstone grep data/events NO
      skipstone grep data/events "u-88[0-9]+" --column user_id --columns ts,country
      skipstone grep data/events -F u-7919 -c
    """
    if counted and names:
        raise click.UsageError("either -c or -l")
    target = table.open()
    searched = _searched(target, columns)
    search = _Search.of(pattern, fixed=fixed, ignore_case=ignore_case, word=word)
    shown = list(dict.fromkeys([*(context or []), *searched]))
    condition = search.condition(searched)
    if where is not None:
        condition = f"({condition}) AND ({where})"
    paint = color == "always" or (color == "auto" and _terminal())
    request = _Request(searched, context or [], search, paint, no_filename, counted, names)
    scan, pieces = target.retried(
        _begun, condition, columns=shown, limit=None if counted else max_count
    )
    found = _Found(request, target, scan)
    if out.as_json:
        out.result(found.read(out, pieces))
    else:
        out.lines(found.lines(out, pieces))
    if not found.rows:
        click.get_current_context().exit(1)


def _begun(scan: TableScan) -> tuple[TableScan, Iterator[tuple[str, pa.Table]]]:
    """The scan and its rows; the first are read, so that they can be planned again until then."""
    from itertools import chain, islice

    pieces = scan.by_file()
    return scan, chain(list(islice(pieces, 1)), pieces)


def _terminal() -> bool:
    plain_ = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain_


def _searched(target: Table, columns: Sequence[str]) -> list[str]:
    """The columns to search, as predicates spell them."""
    import pyarrow as pa

    from skipstone.predicate.types import MapKey, column_name, column_path
    from skipstone.pruning.table_schema import find_field

    schema = target.schema(target.listing())
    texts = [column_name((each.name,)) for each in schema if pa.types.is_string(each.type)]
    for name in columns:
        if any(isinstance(part, MapKey) for part in column_path(name)):
            raise UnsupportedError(
                f"{name} is the value of a key", hint=f'`skipstone query TABLE "{name} LIKE …"`'
            )
        field_ = find_field(schema, name)
        if field_ is not None and not pa.types.is_string(field_.type):
            raise UnsupportedError(
                f"column {name} is {field_.type}, and not text",
                hint=f"columns of text are {', '.join(texts) or 'none'}",
            )
    if not (columns or texts):
        raise UnsupportedError(
            f"{target.path} has no column of text",
            hint=f"its columns are {', '.join(schema.names[:20])}",
        )
    return list(columns) or texts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """A pattern: as a predicate on a column, and as an expression of Python that finds it."""

    sql: str
    found: re.Pattern[str]

    @classmethod
    def of(cls, pattern: str, *, fixed: bool, ignore_case: bool, word: bool) -> _Search:
        from skipstone.predicate.kernels.java_regex import java_regex
        from skipstone.predicate.operands import Unusable, plain_pattern
        from skipstone.predicate.types import quote

        flags = re.IGNORECASE if ignore_case else re.NOFLAG
        if fixed and word:
            pattern = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", pattern)
        elif fixed:
            name = "ILIKE" if ignore_case else "LIKE"
            sql = f"{name} {quote(f'%{plain_pattern(pattern)}%')}"
            return cls(sql=sql, found=re.compile(re.escape(pattern), flags))
        case = "(?i)" if ignore_case else ""
        java = f"{case}(^|{_BETWEEN})(?:{pattern})({_BETWEEN}|$)" if word else f"{case}{pattern}"
        try:
            found = re.compile(java_regex(f"{case}{pattern}").python)
            java_regex(java)
        except Unusable as error:
            raise UnsupportedError(
                f"{pattern!r}: {error}", hint="-F searches for it as a plain text"
            ) from None
        if word:
            found = re.compile(f"(?<![A-Za-z0-9_])(?:{found.pattern})(?![A-Za-z0-9_])")
        return cls(sql=f"RLIKE {quote(java)}", found=found)

    def condition(self, columns: Sequence[str]) -> str:
        return " OR ".join(f"{column} {self.sql}" for column in columns)


@dataclass(frozen=True, slots=True)
class _Request:
    searched: list[str]
    context: list[str]
    search: _Search
    paint: bool
    no_filename: bool
    counted: bool
    names: bool

    def text(self, value: str) -> str:
        """A text as it is printed, with what matches highlighted."""
        if not self.paint:
            return cell(value)
        parts, at = [], 0
        for match in self.search.found.finditer(value):
            if match.end() > match.start():
                inside = cell(value[match.start() : match.end()])
                parts += [cell(value[at : match.start()]), _MATCH, inside, _END]
                at = match.end()
        return "".join([*parts, cell(value[at:])])

    def file(self, name: str) -> str:
        return f"{_FILE}{cell(name)}{_END}" if self.paint else cell(name)


@dataclass(slots=True)
class _Found:
    """What is found so far; the rows for ``--json`` are kept."""

    request: _Request
    target: Table
    scan: TableScan
    rows: int = 0
    by_file: dict[str, int] = field(default_factory=dict)
    kept: list[dict[str, Any]] = field(default_factory=list)

    def lines(self, out: Output, pieces: Iterator[tuple[str, pa.Table]]) -> Iterator[str]:
        """A line for each matching text, or for each file."""
        request = self.request
        for name, rows, first in self._pieces(out, pieces):
            flush()  # what earlier files have
            if request.names and first:
                yield request.file(name)
            if request.names or request.counted:
                continue
            for context, column, text in self._matches(rows):
                head = "" if request.no_filename else f"{request.file(name)}:"
                several = f"{column}:" if len(request.searched) > 1 else ""
                yield head + "\t".join([*map(cell, context), several + request.text(text)])
        if request.counted:
            for name, count in self.by_file.items():
                yield f"{request.file(name)}:{count}"

    def read(self, out: Output, pieces: Iterator[tuple[str, pa.Table]]) -> _Found:
        """All of them, for ``to_dict``."""
        for name, rows, _ in self._pieces(out, pieces):
            if not (self.request.counted or self.request.names):
                for context, column, text in self._matches(rows):
                    values = [plain(value, whole=True) for value in context]
                    found = {"file": name, "column": column, "text": text}
                    self.kept.append({**found, "context": values})
        return self

    def to_dict(self) -> dict[str, Any]:
        """Matches, counts and files, as JSON-ready values."""
        plan = self.scan.plan
        return {
            "matches": self.kept,
            "by_file": self.by_file,
            "rows": self.rows,
            "files": {"kept": plan.files_kept, "total": plan.files_total},
        }

    def _pieces(
        self, out: Output, pieces: Iterator[tuple[str, pa.Table]]
    ) -> Iterator[tuple[str, pa.Table, bool]]:
        """Rows with the name of their file, and whether they are its first; with progress."""
        plan = self.scan.plan
        root, total, done, last = f"{plan.listing.root.rstrip('/')}/", plan.files_kept, 0, ""
        began = time.perf_counter()
        with out.progress("searching") as advance:
            for path, rows in pieces:
                if path != last:
                    done, last = done + 1, path
                    if done == _SOME and total >= _MANY:
                        seconds = (time.perf_counter() - began) / (done - 1) * (total - done)
                        self._tell(out, total - done, seconds)
                    if advance is not None:
                        advance(done, total)
                if rows.num_rows:
                    name = path.removeprefix(root)
                    first = name not in self.by_file
                    self.rows += rows.num_rows
                    self.by_file[name] = self.by_file.get(name, 0) + rows.num_rows
                    yield name, rows, first

    def _tell(self, out: Output, files: int, seconds: float) -> None:
        """How long the rest takes where no index of text helps, and which one would."""
        steps = [step for step in self.scan.plan.steps if step.index in _TEXTS]
        if any(step.kept < step.considered for step in steps):
            return
        why = "no index of text leaves out files" if steps else "there is no index of text"
        forecast = self.scan.explain(look=False).forecast
        bytes_ = "" if forecast is None else f" of {human_size(forecast.certain.bytes)} in all"
        left = of_total(files, self.scan.plan.files_total, "files")
        out.note(f"{why}: the other {left}{bytes_} take about {duration(1e3 * seconds)}")
        known = {step.column.lower() for step in steps}
        lacking = [each for each in self.request.searched if each.lower() not in known]
        if lacking:  # a row matches by any of the columns
            needed = " ".join(f"-c {each}:ngram" for each in lacking)
            some = "one" if len(lacking) == 1 else "some"
            out.note(f"`skipstone build {self.target.path} {needed}` makes {some} that would")

    def _matches(self, rows: pa.Table) -> Iterator[tuple[list[Any], str, str]]:
        """The values of context, the column and the text of each text that matches."""
        request = self.request
        context = [_values(rows, name) for name in request.context]
        searched = [_values(rows, name) for name in request.searched]
        for row in range(rows.num_rows):
            texts = [
                (name, values[row]) for name, values in zip(request.searched, searched, strict=True)
            ]
            there = [each for each in texts if each[1] is not None]
            # A condition decides rows. Of several columns the expression says which it was.
            matching = [each for each in there if request.search.found.search(each[1])]
            for name, text in matching or there[:1]:
                yield [values[row] for values in context], name, text


def _values(rows: pa.Table, name: str) -> list[Any]:
    """The values of a column of the result, which may be a field of another."""
    from skipstone import _compute as pc
    from skipstone.predicate.types import column_path

    first, *rest = map(str, column_path(name))
    (found,) = (each for each in rows.column_names if each.lower() == first.lower())
    values = rows.column(found)
    for part in rest:
        names = [each.name for each in values.type]
        values = pc.struct_field(values, [each.lower() for each in names].index(part.lower()))
    return values_of(values)
