"""`grep`: the rows whose text matches a pattern, printed file by file as they are found."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from skipstone._dataclasses import dataclass
from skipstone.errors import PredicateError, UnsupportedError, command
from skipstone.human import duration, of_total, plain, some_of
from skipstone.human import size as human_size

from .completion import column_list
from .keys import data_keys
from .options import columns_of, decoding_memory, index_options, reporting, source_options
from .output import flush, shows_colour
from .query import begun, cell, values_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.execution import TableScan
    from skipstone.predicate.tree import Bound
    from skipstone.table import Table

    from .options import TableArguments
    from .output import Output


# With at least this many files, a search without an index says how long it takes, once some files
# are searched.
_MANY, _SOME = 8, 4
# A character that is no part of a word.
_BETWEEN = "[^A-Za-z0-9_]"
_TEXTS = ("ngram", "tokens", "ngram slices", "tokens slices")
_LAST_LINE_END = re.compile("(?:\r\n|[\n\r\x85\u2028\u2029])\\Z")
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
@click.option("--where", metavar="WHERE", help="A condition that rows must also meet.")
@click.option("-F", "--fixed-strings", "fixed", is_flag=True, help="PATTERN is plain text.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case.")
@click.option("-w", "--word-regexp", "word", is_flag=True, help="Match only whole words.")
@click.option("-m", "--max-count", type=click.IntRange(min=1), help="Stop after this many rows.")
@click.option(
    "-c", "--count", "counted", is_flag=True, help="Print how many rows of each file match."
)
@click.option(
    "-l",
    "--files-with-matches",
    "names",
    is_flag=True,
    help="Print only the names of files that match.",
)
@click.option("--no-filename", is_flag=True, help="Print rows without the names of their files.")
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
    schema = target.schema(target.listing())
    searched = _searched(target, schema, columns)
    context = _once(schema, context or ())
    search = _Pattern.of(pattern, fixed=fixed, ignore_case=ignore_case, word=word)
    shown = _once(schema, [*context, *searched])
    condition = search.condition(searched)
    if where is not None:
        condition = f"({condition}) AND ({where})"
    paint = color == "always" or (color == "auto" and shows_colour(sys.stdout))
    request = _Request(searched, context, search, paint, no_filename, counted, names)
    try:
        scan, pieces = target.retried(_begun, condition, columns=shown, limit=max_count)
    except PredicateError:
        if where is not None:
            target.scan(where)  # which says the same of what was written
        raise
    found = _Matches(request, target, scan)
    if out.as_json:
        out.result(found.read(out, pieces))
    else:
        out.lines(found.lines(out, pieces))
    if not found.rows:
        click.get_current_context().exit(1)


def _begun(scan: TableScan) -> tuple[TableScan, Iterator[tuple[str, pa.Table]]]:
    return scan, begun(scan.by_file())


def _once(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """The names, each column once, also if two names differ in case."""
    from skipstone.pruning.table_schema import spelled_path

    found: dict[object, str] = {}
    for name in names:
        found.setdefault(spelled_path(schema, name) or name, name)
    return list(found.values())


def _searched(target: Table, schema: pa.Schema, columns: Sequence[str]) -> list[str]:
    """The columns to search, as predicates spell them."""
    import pyarrow as pa

    from skipstone.execution.table_types import output_schema
    from skipstone.predicate.types import MapKey, column_name, column_path, spark_type
    from skipstone.pruning.table_schema import find_field

    texts = [column_name((each.name,)) for each in schema if spark_type(each.type) == pa.string()]
    for name in columns:
        if any(isinstance(part, MapKey) for part in column_path(name)):
            raise UnsupportedError(
                f"{name} is the value of a key", hint=f'`skipstone query TABLE "{name} LIKE …"`'
            )
        field_ = find_field(schema, name)
        if field_ is None:
            output_schema(schema, [name])  # which names the column that was meant
        elif spark_type(field_.type) != pa.string():
            raise UnsupportedError(
                f"column {name} is {field_.type}, and not text",
                hint=f"columns of text are {', '.join(texts) or 'none'}",
            )
    if not schema.names:
        raise UnsupportedError(
            f"{target.path} has no data file, so there is nothing to search",
            hint="check the path: files whose names begin with _ or . are not data files",
        )
    if not (columns or texts):
        raise UnsupportedError(
            f"{target.path} has no column of text",
            hint=f"its columns are {some_of(schema.names, 20)}; "
            "a text within a struct is named: --column s.text",
        )
    return _once(schema, columns) or texts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """A pattern: as a predicate on a column, and as a search within a text.

    The predicate decides rows and columns. ``plain`` (in lower case with ``any_case``) or ``re2``
    finds the parts to highlight, in time that grows with the text alone; ``ends``: it has a ``$``.
    """

    sql: str
    tree: Bound
    any_case: bool
    plain: str | None = None
    re2: str = ""
    ends: bool = False
    word: bool = False

    @classmethod
    def of(cls, pattern: str, *, fixed: bool, ignore_case: bool, word: bool) -> _Pattern:
        from skipstone.predicate.kernels.java_regex import java_regex
        from skipstone.predicate.operands import Unusable, plain_pattern
        from skipstone.predicate.types import quote

        if fixed and not word:
            name = "ILIKE" if ignore_case else "LIKE"
            sql = f"{name} {quote(f'%{plain_pattern(pattern)}%')}"
            plain_ = pattern.lower() if ignore_case else pattern
            return cls(sql=sql, tree=_condition_on_text(sql), any_case=ignore_case, plain=plain_)
        if fixed:
            pattern = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", pattern)
        elif pattern.startswith("(?i)"):
            ignore_case, pattern = True, pattern.removeprefix("(?i)")
        case = "(?i)" if ignore_case else ""
        java = f"{case}(^|{_BETWEEN})(?:{pattern})({_BETWEEN}|$)" if word else f"{case}{pattern}"
        try:
            found = java_regex(f"{case}{pattern}")
            java_regex(java)
        except Unusable as error:
            raise UnsupportedError(
                f"{pattern!r}: {error}", hint="-F searches for it as a plain text"
            ) from None
        re2 = f"(^|{_BETWEEN})({found.re2})({_BETWEEN}|\\z)" if word else f"()({found.re2})()"
        sql = f"RLIKE {quote(java)}"
        tree = _condition_on_text(sql)
        return cls(
            sql=sql, tree=tree, any_case=ignore_case, re2=re2, ends=found.ends or word, word=word
        )

    def condition(self, columns: Sequence[str]) -> str:
        from skipstone.predicate.types import backquoted, column_path

        return " OR ".join(f"{backquoted(*column_path(each))} {self.sql}" for each in columns)

    def matches(self, texts: pa.ChunkedArray) -> NDArray[np.bool_]:
        """Per text whether it matches, as it does for the rows of the table."""
        import pyarrow as pa

        from skipstone.pruning.residual import matching

        try:
            return matching(self.tree, {"text": texts}, len(texts))
        except UnsupportedError:
            # Text that is not UTF-8, in a column that did not decide the row: it matches as
            # printed.
            printed = pa.array(values_of(texts), pa.string())
            return matching(self.tree, {"text": printed}, len(texts))

    def parts(self, texts: list[str]) -> list[list[str]]:
        """For each text, the parts that do not match and those that do, in turn."""
        if self.plain is not None:
            return [_at_plain(text, self.plain, self.any_case) for text in texts]
        # RE2 has no "$" before a line terminator at the end, so the terminator is cut off, unless
        # the match needs it.
        cuts = [_LAST_LINE_END.search(text) if self.ends else None for text in texts]
        bodies = [
            text[: cut.start()] if cut else text for text, cut in zip(texts, cuts, strict=True)
        ]
        found = self._marked(bodies)
        whole = [at for at, cut in enumerate(cuts) if cut and len(found[at]) == 1]
        for at, parts in zip(whole, self._marked([texts[at] for at in whole]), strict=True):
            found[at], cuts[at] = parts, None
        for parts, cut in zip(found, cuts, strict=True):
            parts[-1] += cut[0] if cut else ""
        return found

    def _marked(self, texts: list[str]) -> list[list[str]]:
        import pyarrow as pa

        from skipstone import _compute as pc

        used = set("".join(texts))
        begin, end = [mark for mark in map(chr, range(0xF0000, 0xFFFFE)) if mark not in used][:2]
        marked = pa.array(texts, pa.large_string())
        # A match takes the characters around its word, so two words in a row share one: the second
        # pass finds the other word.
        for _ in range(1 + self.word):
            try:
                marked = pc.replace_substring_regex(
                    marked, pattern=self.re2, replacement=rf"\1{begin}\2{end}\3"
                )
            except pa.ArrowInvalid:  # longer than RE2 takes
                return [[text] for text in texts]
        return [_at_marks(text, begin, end) for text in marked.to_pylist()]


def _condition_on_text(sql: str) -> Bound:
    import pyarrow as pa

    from skipstone.predicate.binding import bind
    from skipstone.predicate.sql import parse_sql

    return bind(parse_sql(f"text {sql}"), pa.schema([("text", pa.string())]))


def _at_plain(text: str, sought: str, any_case: bool) -> list[str]:
    if not sought:
        return [text]
    searched = text.lower() if any_case else text
    # The lower case of a character may be several.
    owner: Sequence[int] = range(len(text))
    if len(searched) != len(text):
        owner = [at for at, char in enumerate(text) for _ in char.lower()]
    parts, last, at = [], 0, searched.find(sought)
    while at >= 0:
        first, end = owner[at], owner[at + len(sought) - 1] + 1
        first = max(first, last)
        parts += [text[last:first], text[first:end]]
        last, at = end, searched.find(sought, at + len(sought))
    return [*parts, text[last:]]


def _at_marks(marked: str, begin: str, end: str) -> list[str]:
    """The parts of a text outside and inside marks, in turn; marks may be nested."""
    parts, depth = [""], 0
    for piece in re.split(f"([{begin}{end}])", marked):
        if piece not in (begin, end):
            parts[-1] += piece
            continue
        if depth + (piece == begin) == 1:
            parts.append("")
        depth += 1 if piece == begin else -1
    return parts


@dataclass(frozen=True, slots=True)
class _Request:
    searched: list[str]
    context: list[str]
    search: _Pattern
    paint: bool
    no_filename: bool
    counted: bool
    names: bool

    def printed(self, texts: list[str]) -> list[str]:
        """Texts as they are printed, with what matches highlighted."""
        if not self.paint:
            return [cell(text) for text in texts]
        return [
            "".join(
                f"{_MATCH}{cell(part)}{_END}" if at % 2 and part else cell(part)
                for at, part in enumerate(parts)
            )
            for parts in self.search.parts(texts)
        ]

    def file(self, name: str) -> str:
        return f"{_FILE}{cell(name)}{_END}" if self.paint else cell(name)


@dataclass(slots=True)
class _Matches:
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
            for context, column, text in self._matches(rows, printed=True):
                head = "" if request.no_filename else f"{request.file(name)}:"
                several = f"{cell(column)}:" if len(request.searched) > 1 else ""
                yield head + "\t".join([*map(cell, context), several + text])
        if request.counted:
            for name, count in self.by_file.items():
                yield f"{request.file(name)}:{count}"

    def read(self, out: Output, pieces: Iterator[tuple[str, pa.Table]]) -> _Matches:
        """Reads all rows, for ``to_dict``."""
        for name, rows, _ in self._pieces(out, pieces):
            if not (self.request.counted or self.request.names):
                for context, column, text in self._matches(rows, printed=False):
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
        """Rows with the name of their file, and whether they are its first; shows progress."""
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
        """Says how long the rest takes without an index of text, and which index would help."""
        steps = [step for step in self.scan.plan.steps if step.index in _TEXTS]
        if any(step.kept < step.considered for step in steps):
            return
        why = "its indexes of text skip no file" if steps else "there is no index of text"
        forecast = self.scan.explain(look=False).forecast
        bytes_ = "" if forecast is None else f" (all: {human_size(forecast.certain.bytes)})"
        left = of_total(files, self.scan.plan.files_total, "files")
        out.note(f"{why}: reading {left}{bytes_} takes about {duration(1e3 * seconds)} more")
        known = {step.column.lower() for step in steps}
        lacking = [each for each in self.request.searched if each.lower() not in known]
        if lacking:  # a row matches by any of the columns
            needed = [word for each in lacking for word in ("-c", f"{each}:ngram")]
            some = "one" if len(lacking) == 1 else "some"
            making = command("build", self.target.path, *needed)
            out.note(f"{making} makes {some} that would")

    def _matches(self, rows: pa.Table, *, printed: bool) -> Iterator[tuple[list[Any], str, str]]:
        """The values of context, the column and the text of each text that matches."""
        import pyarrow as pa

        from skipstone._arrays import arrow

        request = self.request
        context = [values_of(_column(rows, name)) for name in request.context]
        found: list[tuple[int, str, str]] = []
        for name in request.searched:
            column = _column(rows, name)
            if pa.types.is_string_view(column.type):  # Arrow filters no views
                column = column.cast(pa.large_string())
            flags = request.search.matches(column)
            texts = values_of(column.filter(arrow(flags)))
            shown = request.printed(texts) if printed else texts
            found += zip(flags.nonzero()[0].tolist(), [name] * len(shown), shown, strict=True)
        for row, name, text in sorted(found, key=itemgetter(0)):
            yield [values[row] for values in context], name, text


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """A column of the result, which may be a field of another."""
    from skipstone import _compute as pc
    from skipstone.predicate.types import column_path

    first, *rest = map(str, column_path(name))
    (found,) = (each for each in rows.column_names if each.lower() == first.lower())
    values = rows.column(found)
    for part in rest:
        names = [each.name for each in values.type]
        values = pc.struct_field(values, [each.lower() for each in names].index(part.lower()))
    return values
