"""`demo`: a guided start on a small table that it makes itself; no Spark, no other data."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.human import Report, of_total, plural, size

from .completion import paths
from .options import hide_pandas, reporting

if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.table import Table

    from .output import Output


FILES, ROWS = 40, 25_000
_NAME = "orders-{:03d}.parquet"
_WHERE = "order_id = 654321"
# The files of a demo in its directory, which may be removed as a whole.
_OWN = frozenset({"orders", "_orders.skipstone"})


@click.command()
@click.argument(
    "directory", metavar="[DIR]", default="skipstone-demo", shell_complete=paths, required=False
)
@reporting
def demo(directory: str, out: Output) -> None:
    """Show Skipstone on a small table: make it, index it, and query it, step by step.

    The table is DIR/orders (skipstone-demo/orders without DIR): a million orders in 40 Parquet
    files, some 20 MB, made in seconds. It stays there for experiments of your own, and a second
    demo uses it again.

    \b
      skipstone demo
      skipstone demo try-it
    """
    hide_pandas()
    from skipstone.table import Table

    root = _root(directory)
    lines = _Lines(out)
    lines.say(f"1. A table: {root}, a million orders in {FILES} Parquet files.")
    lines.show(_made(root))
    table = Table(str(root))
    name = shlex.quote(str(root))

    lines.say(
        "2. Which indexes would help? `advise` reads a sample. `overlap` says how many pairs of",
        "   files have ranges in common: 0 % for ts, so the least and largest value of each file",
        "   (minmax) are enough. An order_id may be in any file, and is in one: a Bloom filter",
        "   tells. A status is in every file, and no index can skip any.",
    )
    lines.run(f"skipstone advise {name}")
    advice = table.advise()
    lines.show(str(advice))

    lines.say(
        "3. Build them. The files stay as they are; the index lies next to the table. New files",
        "   are read in full until `skipstone refresh` indexes them: an answer is never wrong.",
    )
    words = [word for index in advice.indexes for word in ("-c", index)]
    lines.run(shlex.join(["skipstone", "build", str(root), *words]))
    lines.show(str(table.build(indexes=advice.indexes)))

    lines.say(
        "4. What would a query read, and why not the rest? A line is an index: how many files,",
        "   row groups or pages it was asked about, and how many it left.",
    )
    lines.run(f'skipstone explain {name} "{_WHERE}"')
    lines.show(str(table.explain(_WHERE)))

    lines.say("5. The rows, without Spark.")
    lines.run(f'skipstone query {name} "{_WHERE}"')
    report = _queried(table, root, advice.indexes, lines)

    lines.say(
        "Now your own data:",
        "   skipstone advise PATH            a directory of Parquet files, s3://…, gs://…, hdfs://…",
        "   skipstone build PATH -c COLUMN:KIND",
        '   skipstone explain PATH "COLUMN = …"',
        "In Spark: skipstone.enable(spark), and every query of the session skips.",
        f"The demo is in {directory}: remove it with `rm -r {shlex.quote(directory)}`.",
    )
    if out.as_json:
        out.result(report)


def _root(directory: str) -> Path:
    """The directory of the table; ``SkipstoneError`` if others use ``directory``."""
    if not directory or "://" in directory:
        raise SkipstoneError(
            f"{directory!r} is not a local directory",
            hint="name a new one, such as try-it: the demo writes files there",
        )
    entries = sorted(Path(directory).iterdir()) if Path(directory).is_dir() else []
    others = [each.name for each in entries if each.name not in _OWN]
    if others:
        raise SkipstoneError(
            f"{directory} is not empty: it has {others[0]}, which is not of the demo",
            hint=f"name a new directory; `skipstone advise {shlex.quote(directory)}` takes a table"
            " of yours",
        )
    return Path(directory) / "orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport(Report):
    """What the demo found: the files and rows of its query, and how long it took with the index
    and without (``plain``)."""

    table: str
    files_total: int
    files_kept: int
    rows: int
    indexes: tuple[str, ...]
    milliseconds: float
    milliseconds_plain: float


class _Lines:
    """Prints steps, commands and their output, with space between them; prints nothing with
    ``--json``."""

    def __init__(self, out: Output) -> None:
        self.out = out

    def say(self, *texts: str) -> None:
        self._write(["", *texts])

    def run(self, command: str) -> None:
        self._write(["", f"$ {command}"])

    def show(self, text: str) -> None:
        self._write(text.splitlines())

    def _write(self, lines: list[str]) -> None:
        if not self.out.as_json:
            self.out.lines(lines)


def _queried(table: Table, root: Path, indexes: tuple[str, ...], lines: _Lines) -> DemoReport:
    """The query with the index and without; the rows are shown."""
    from skipstone.table import Table

    from .query import table_lines

    rows, took = _timed(table)
    lines.show("\n".join(table_lines(rows.schema, iter(rows.to_batches()))))
    with tempfile.TemporaryDirectory() as folder:  # the same files, and no index next to them
        copy = shutil.copytree(root, Path(folder) / "orders")
        same, plainly = _timed(Table(str(copy)))
    if not rows.equals(same):
        raise SkipstoneError("the rows differ with and without the index", hint="please report it")
    kept, total = table.plan(_WHERE).files_kept, len(table.listing())
    lines.show(
        f"With the index {of_total(kept, total, 'files')} and {took:.0f} ms; "
        f"without it {of_total(total, total, 'files')} and {plainly:.0f} ms. The rows are the same."
    )
    return DemoReport(
        table=table.path,
        files_total=total,
        files_kept=kept,
        rows=rows.num_rows,
        indexes=indexes,
        milliseconds=took,
        milliseconds_plain=plainly,
    )


def _timed(table: Table) -> tuple[pa.Table, float]:
    """The rows, and the milliseconds of the fastest of three queries."""
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        rows = table.query(_WHERE)
        taken.append(1000 * (time.perf_counter() - start))
    return rows, min(taken)


def _made(root: Path) -> str:
    """Makes the table unless it exists, and says what was done. ``SkipstoneError`` if another table
    is there."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [_NAME.format(number) for number in range(FILES)]
    there = sorted(each.name for each in root.iterdir()) if root.exists() else []
    if there and there != names:
        raise SkipstoneError(
            f"{root} is not the table of a demo", hint="name another directory: skipstone demo DIR"
        )
    if there:
        return "It is there already."
    start = time.perf_counter()
    root.mkdir(parents=True)
    draw = np.random.default_rng(8)
    orders = draw.permutation(FILES * ROWS)
    seconds = np.datetime64("2026-01-01", "us") + np.arange(FILES * ROWS) * np.timedelta64(8, "s")
    countries = np.array(["DE", "FR", "IT", "NL", "PL", "SE", "IS"])
    total = 0
    for number, name in enumerate(names):
        rows = slice(number * ROWS, number * ROWS + ROWS)
        common = countries[draw.integers(0, 6, ROWS)]
        if number % 13 == 5:  # orders from Iceland are rare
            common[: ROWS // 100] = "IS"
        columns = {
            "ts": seconds[rows],
            "order_id": orders[rows],
            "customer": np.char.add("c-", draw.integers(0, 200_000, ROWS).astype(str)),
            "country": common,
            "status": np.array(["open", "paid", "sent"])[draw.integers(0, 3, ROWS)],
            "amount": draw.integers(100, 100_000, ROWS) / 100,
        }
        pq.write_table(pa.table(columns), root / name)
        total += (root / name).stat().st_size
    made = f"{plural(FILES * ROWS, 'row')}, {size(total)}"
    return f"{made}, in {time.perf_counter() - start:.1f} s."
