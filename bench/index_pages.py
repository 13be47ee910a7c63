"""Index pages of 2013 against the page index of today: one key, and a range of keys, all columns.

| file | what finds the rows |
|---|---|
| 2013 | trees of index pages alone: ``ParquetFile.index_pages("id").query`` |
| today | column index and offset index: ``ParquetFile.query`` |
| neither | the footer's statistics, and page headers |

The three files hold the same pages. Each lookup opens its file again and reads the footer too.
Bytes are the requested ones; requests are system calls. ``again`` is a lookup of another key with a
file that is open already.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from .figure import Figure, Peer, interleaved, median
from .parquet_big import ROW_GROUPS, VERSION, lay_big, rows_per_group

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .workbench import Workbench

__all__ = ["figures"]

_LOOKUPS = 15
_RANGES = {"key": 0, "range": 1_000}


def figures(bench: Workbench) -> Iterator[Figure]:
    """All of them, over one file."""
    factor = bench.sizes.parquet_factor
    rows = rows_per_group(factor)
    big = bench.generated(
        "parquet-big", partial(lay_big, factor=factor), factor=factor, version=VERSION
    )
    folder = bench.generated(
        "parquet-index-pages", lambda to: _lay(big / "big.parquet", to, rows), factor=factor
    )
    files = {name: folder / f"{name}.parquet" for name in ("2013", "today", "neither")}
    yield _build(files["neither"], folder / "again.parquet")
    total = ROW_GROUPS * rows
    for name, width in _RANGES.items():
        firsts = itertools.cycle(
            [(number * 7_919_017) % (total - width) for number in range(1, 1_000)]
        )
        cold = {
            which: partial(_cold, path, firsts, width, tree=which == "2013")
            for which, path in files.items()
        }
        taken = interleaved(_LOOKUPS, cold, warm=1)
        once = {
            which: _counted(path, firsts, width, tree=which == "2013")
            for which, path in files.items()
        }
        yield _compared(name, taken, once, files, width)


def _lay(big: Path, folder: Path, rows: int) -> None:
    """The same pages with an index of today, with trees, and with nothing."""
    import pyarrow.parquet as pq

    from skipstone.rewrite import add_index_pages

    folder.mkdir(parents=True, exist_ok=True)
    file = pq.ParquetFile(big)
    for name, page_index in (("today", True), ("neither", False)):
        with pq.ParquetWriter(
            folder / f"{name}.parquet",
            file.schema_arrow,
            compression="snappy",
            use_dictionary=["s"],
            write_page_index=page_index,
        ) as writer:
            for group in range(file.num_row_groups):
                writer.write_table(file.read_row_group(group), row_group_size=rows)
    add_index_pages(folder / "neither.parquet", ["id"], output=folder / "2013.parquet")


def _build(path: Path, out: Path) -> Figure:
    from skipstone.rewrite import add_index_pages

    report = add_index_pages(path, ["id"], output=out)
    out.unlink()
    return Figure(
        name="index_pages.add",
        value=report.seconds,
        unit="s",
        details={
            "bytes": report.bytes_before,
            "index_bytes": report.index_bytes,
            "index_pages": report.index_pages,
            "data_pages": report.data_pages,
            "levels": report.levels,
        },
    )


def _cold(path: Path, firsts: Iterator[int], width: int, *, tree: bool) -> None:
    """One lookup by a file that is opened for it."""
    from skipstone import ParquetFile

    _look(ParquetFile(path), next(firsts), width, tree=tree)


def _counted(path: Path, firsts: Iterator[int], width: int, *, tree: bool) -> dict[str, float]:
    """What such a lookup takes of bytes and requests, and another one with the same file."""
    from skipstone import ParquetFile

    file = ParquetFile(path)
    footer = file.bytes_read
    _look(file, next(firsts), width, tree=tree)
    found = {"bytes": file.bytes_read - footer, "footer": footer, "requests": file.requests}
    started, before = time.perf_counter(), file.bytes_read
    _look(file, next(firsts), width, tree=tree)
    return found | {
        "again_ms": 1000 * (time.perf_counter() - started),
        "again_bytes": file.bytes_read - before,
    }


def _look(file: Any, first: int, width: int, *, tree: bool) -> None:
    if tree:
        found = file.index_pages("id").query(first, first + width)
    elif width:
        found = file.query(f"id BETWEEN {first} AND {first + width}")
    else:
        found = file.query(f"id = {first}")
    if found.num_rows != width + 1:
        raise AssertionError(f"{found.num_rows} rows of {width + 1}")


def _compared(
    name: str,
    taken: dict[str, list[float]],
    once: dict[str, dict[str, float]],
    files: dict[str, Path],
    width: int,
) -> Figure:
    middle = {which: 1000 * median(each) for which, each in taken.items()}
    return Figure(
        name=f"index_pages.{name}",
        value=middle["2013"],
        unit="ms",
        peer=Peer(what="the page index of today", value=middle["today"]),
        ratio=middle["today"] / middle["2013"],
        details={
            "rows": width + 1,
            "neither_ms": middle["neither"],
            **{f"{which}_{key}": each[key] for which, each in once.items() for key in each},
            **{f"{which}_file": path.stat().st_size for which, path in files.items()},
        },
    )
