"""A small table with every kind of index, and what must be true while a file of it is damaged.

An index is advice. So a query over a table with a damaged index gives the rows of the table, or an
error of ours; other rows are ``Wrong``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from skipstone.cli import cli
from skipstone.inspect import inspect_path
from tests.parquet.reading.bulk import opened, read_together
from tests.table.together import together

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fuzz.batteries import Attempt


_OLD = 1_600_000_000
_ROWS = 120
INDEXES = [
    "id:minmax", "id:bitmap", "id:bsi", "x:rangebitmap", "x:minmax", "s:valuelist", "s:bloom",
    "s:bitmap(version=1)", "t:paimonbloom(items=200)", "t:bloom", "t:ngram", "t:tokens",
]  # fmt: skip
_WHERE: dict[str, Callable[[dict[str, Any]], bool]] = {
    "id = 77": lambda row: row["id"] == 77,
    "x >= 33.5 AND id < 200": lambda row: (
        row["x"] is not None and row["x"] >= 33.5 and row["id"] < 200
    ),
    "s = 's3' OR t = 't-150'": lambda row: row["s"] == "s3" or row["t"] == "t-150",
    "x IS NULL": lambda row: row["x"] is None,
    "t LIKE '%-15%'": lambda row: row["t"].startswith("t-15"),
}


class Wrong(AssertionError):
    """Another result than the rows of the table."""


def _data(file: int) -> pa.Table:
    ids = np.arange(file * _ROWS, (file + 1) * _ROWS)
    return pa.table(
        {
            "id": ids,
            "x": pa.array(ids / 2, mask=ids % 11 == 0),
            "s": [f"s{each % 7}" for each in ids],
            "t": [f"t-{each}" for each in ids],
        }
    )


def make(folder: Path, *, index: bool = True, encryption: Any = None) -> Path:
    """The table ``t`` in a folder, of two files, with its index beside it."""
    root = folder / "t"
    root.mkdir()
    for file in range(2):
        path = root / f"{file}.parquet"
        pq.write_table(_data(file), path, row_group_size=50, write_page_index=True)
        os.utime(path, (_OLD, _OLD))
    if index:
        skipstone.Table(str(root)).build(indexes=INDEXES, encryption=encryption)
    return root


def root_of(target: Path) -> Path:
    """The table of a damaged file."""
    return next(each / "t" for each in target.parents if (each / "t").is_dir())


@dataclass(frozen=True, slots=True)
class Queried:
    """Asks a table whose file is damaged.

    ``at`` is where its index lies, below its folder; ``sums``: whether all that the format proves
    stands under a checksum.
    """

    at: str | None = None
    xskipper: bool = False
    sums: bool = True
    keys: Any = None

    def __call__(self, target: Path, attempt: Attempt) -> None:
        root = root_of(target)
        location: Any = None if self.at is None else str(root.parent / self.at)
        if self.xskipper:
            location = skipstone.XskipperLocation(str(location), same_reader=True)
        table = attempt(
            lambda: skipstone.Table(str(root), index_location=location, index_keys=self.keys)
        )
        if table is None:
            return
        rows = [row for file in range(2) for row in _data(file).to_pylist()]
        for where, matches in _WHERE.items():
            right = [row["id"] for row in rows if matches(row)]
            found = attempt(lambda where=where: table.query(where, columns=["id"]))
            if self.sums and found is not None and sorted(found.column("id").to_pylist()) != right:
                raise Wrong(f"{where} gives {found.num_rows} rows, and {len(right)} match")
            count = attempt(table.count, where)
            if self.sums and count is not None and count != len(right):
                raise Wrong(f"{where} counts {count} rows, and {len(right)} match")


@dataclass(frozen=True, slots=True)
class Checked:
    """Checks the index of a table: a query does not mention damage to it, and a check names it."""

    keys: Any = None

    def __call__(self, target: Path, attempt: Attempt) -> None:
        table = attempt(lambda: skipstone.Table(str(root_of(target)), index_keys=self.keys))
        if table is not None:
            attempt(lambda: str(table.explain("id = 77")))
            attempt(lambda: _checked(table.check()))


def _checked(report: Any) -> None:
    str(report)
    if not report.ok:
        raise skipstone.SkipstoneError("the check found damage")


_MANY = 20
_TOGETHER: tuple[tuple[str | None, list[str] | None], ...] = (
    ("t LIKE '%1_' AND x IS NOT NULL", ["id", "s"]),
    ("x > 20 OR s = 's3'", None),
    (None, ["t", "x"]),
    ("NOT (id IN (1, 77, 500)) AND s <=> 's3'", ["s", "id"]),
)


def make_many(folder: Path) -> list[Path]:
    """A table of many files without an index; those that are damaged have every form of pages."""
    root = folder / "t"
    root.mkdir()
    made = []
    for number in range(_MANY):
        path = root / f"{number:02}.parquet"
        pq.write_table(
            _data(number), path, write_statistics=False, store_schema=False,
            compression=("none", "snappy", "none", "snappy", "zstd", "gzip")[number % 6],
            data_page_version=("1.0", "2.0")[number // 2 % 2], use_dictionary=number % 4 < 3,
            dictionary_pagesize_limit=(1 << 20, 60)[number % 3 == 2],
            max_rows_per_page=(1000, 40)[number % 2], write_batch_size=10,
            write_page_index=number % 5 == 0,
        )  # fmt: skip
        os.utime(path, (_OLD, _OLD))
        made.append(path)
    # Compiled here, on this thread: a child has little time, and a fork takes no other thread.
    for name in _data(0).column_names:
        read_together([opened(path) for path in made], [name])
    return made[:12]


def asked_together(target: Path, attempt: Attempt) -> None:
    """Rows of columns that are decoded together are those of the files one by one."""
    root = str(root_of(target))
    for where, columns in _TOGETHER:

        def rows(where: Any = where, columns: Any = columns) -> tuple[str, int]:
            table = skipstone.Table(root)
            found = table.query(where, columns)
            found.validate()
            return str([column.to_pylist() for column in found.columns]), table.count(where)

        with together(few=_MANY):
            apart = attempt(_refused_text, rows)
        with together():
            at_once = attempt(_refused_text, rows)
        if None not in (apart, at_once) and apart != at_once:
            raise Wrong(f"{where} gives other rows where columns are read together")


def _refused_text(rows: Callable[[], tuple[str, int]]) -> tuple[str, int]:
    try:
        return rows()
    except (UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise skipstone.SkipstoneError("a text is damaged, which Arrow does not show") from error


def inspected(target: Path, attempt: Attempt) -> None:
    """As ``skipstone inspect FILE``."""
    found = attempt(inspect_path, str(target))
    if found is not None:
        attempt(str, found)
        attempt(found.to_dict)


def counted(target: Path, attempt: Attempt) -> None:
    """``skipstone count`` beside a settings file."""
    from click.testing import CliRunner

    done = CliRunner().invoke(cli, ["count", str(root_of(target)), "id = 77", "--debug"])
    if done.exit_code == 0 and done.stdout.strip() != "1":
        raise Wrong(f"counts {done.stdout.strip()}")
    if done.exit_code != 0:
        attempt(_refused, done.output, done.exception)


def _refused(output: str, error: BaseException | None) -> None:
    if isinstance(error, Exception) and not isinstance(error, SystemExit):
        raise error
    if "internal" in output:
        raise RuntimeError(output)
    raise skipstone.SkipstoneError(output)
