"""Row indexes of one data file: how long they take to build and to ask, and how large they are.

A million INT rows, 10 % of them null, values drawn evenly from ``bound`` numbers. The peers are the
figures of Paimon 2.0's own Java classes on the same distribution, taken on another machine of two
cores: they show the order of magnitude. Asking includes opening the file, as it does there.
``ask`` is the format alone, ``checked`` as a query does it: whole blocks are read, and each is held
against its checksum in the facts. ``growth`` is from 10 to 3 million distinct values.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.paimon.base import LEAST, BlockSums, VerifiedBlob
from skipstone.paimon.container_builder import coded
from skipstone.paimon.format.bitmap import write_bitmap
from skipstone.paimon.format.bloom_filter import ITEMS, fill, sizing
from skipstone.paimon.format.bsi import write_bsi
from skipstone.paimon.format.column_keys import CodedColumn, column_of
from skipstone.paimon.format.keys import Ask, In, PaimonType, Range
from skipstone.paimon.format.partial_blob import MissingBytes, Pieces
from skipstone.paimon.format.range_bitmap import RangeBitmapIndex, write_range_bitmap
from skipstone.paimon.index_blob import SMALL, answer, answer_of, open_uncached
from skipstone.pruning.kind import Blob

from .figure import Figure, Peer, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from skipstone.paimon.index_blob import Index

    from .workbench import Workbench

__all__ = ["figures"]

INT = PaimonType.parse("INT")
#: At the full size; toy sizes shrink them by the same factor as the large Parquet file.
_ROWS = 1_000_000
#: KB of bitmap, bsi and range-bitmap, and ms to build the first and the last, as Java has them.
JAVA = {
    10: (1354, 636, 636, 90, 160),
    3_000: (2315, 1663, 1675, 170, 670),
    10_000: (3307, 1917, 1956, 390, 1500),
    100_000: (9167, 2304, 2695, 560, 2300),
    300_000: (13064, 2556, 3671, 1400, 1650),
    3_000_000: (12326, 2945, 5732, 970, 2170),
}
#: ms to open and ask, as Java has them, at 100,000 distinct values.
JAVA_ASKS = {
    ("bitmap", "eq"): 0.20,
    ("range-bitmap", "eq"): 0.73,
    ("range-bitmap", "range"): 0.50,
    ("bsi", "eq"): 2.3,
    ("bsi", "range"): 2.0,
}
#: Targets in ms at 100,000 distinct values.
BUILDS = {"bitmap": 300, "range-bitmap": 500}
ASKS = {("bitmap", "eq"): 0.3, ("range-bitmap", "eq"): 1.0, ("range-bitmap", "range"): 1.0}
_TARGET_BOUND = 100_000


def _coded(array: pa.Array) -> CodedColumn:
    return coded(INT, [array.cast(pa.int64()).dictionary_encode()])


def _column(rows: int, bound: int) -> pa.Array:
    rng = np.random.default_rng(bound)
    return pa.array(rng.integers(0, bound, rows, np.int32), mask=rng.random(rows) < 0.1)


def _best(runs: int, work: Callable[[], object]) -> tuple[float, float]:
    """The 20th percentile in ms, as the peer's is, and the median."""
    samples = sorted(timed(work) for _ in range(runs + 2))
    return samples[len(samples) // 5] * 1e3, samples[len(samples) // 2] * 1e3


def _mapped(path: Path, kind: str, ask: Ask) -> int:
    """Open the file and ask; the system reads the pages that are touched."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        return len(answer(kind, INT, ask, Pieces.whole(memoryview(whole))).may or ())


def _ranged(path: Path, kind: str, ask: Ask) -> tuple[int, int, int]:
    """Open the file and read what is asked for, wave by wave: rows, waves, bytes."""
    waves = read = 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        pieces = Pieces(os.fstat(descriptor).st_size)
        while True:
            try:
                return len(answer(kind, INT, ask, pieces).may or ()), waves, read
            except MissingBytes as missing:
                spans = missing.spans
            waves += 1
            for start, stop in _coalesced(sorted(set(spans))):
                pieces.add([(start, os.pread(descriptor, stop - start, start))])
                read += stop - start
    finally:
        os.close(descriptor)


def _checked(path: Path, kind: str, ask: Ask, sums: BlockSums) -> tuple[int, int]:
    """As ``_ranged``, every byte held against its checksum: rows and bytes."""
    read = 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        arrivals = VerifiedBlob(Blob(path=str(path), length=os.fstat(descriptor).st_size), sums)
        index: Index | None = None
        while True:
            try:
                index = index or open_uncached(kind, INT, arrivals.pieces)
                return len(answer_of(index, INT, ask).may or ()), read
            except MissingBytes as missing:
                have = {
                    each: os.pread(descriptor, each.length, each.offset)
                    for each in arrivals.ask(missing.spans)
                }
                read += sum(map(len, have.values()))
                arrivals.take(have)
    finally:
        os.close(descriptor)


def _coalesced(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    start, stop = spans[0][0], 0
    for offset, length in spans:
        if stop and offset > stop:
            yield start, stop
            start = offset
        stop = max(stop, offset + length)
    yield start, stop


def figures(bench: Workbench) -> Iterator[Figure]:
    """Builds, sizes and questions at every cardinality."""
    rows = max(1_000, int(_ROWS * min(1.0, bench.sizes.parquet_factor)))
    full = rows == _ROWS
    home = bench.home / "paimon_formats"
    home.mkdir(parents=True, exist_ok=True)
    runs = bench.sizes.runs
    made: dict[str, dict[int, float]] = {}
    for bound, java in JAVA.items():
        array = _column(rows, bound)
        writers: dict[str, Callable[[], bytes]] = {
            "bitmap": lambda array=array: write_bitmap(_coded(array)),  # type: ignore[misc]
            "bsi": lambda array=array: write_bsi(_coded(array)),  # type: ignore[misc]
            "range-bitmap": lambda array=array: write_range_bitmap(  # type: ignore[misc]
                _coded(array)
            ),
        }
        sizes = dict(zip(writers, java[:3], strict=True))
        built_by_java = {"bitmap": java[3], "range-bitmap": java[4]}
        for kind, write in writers.items():
            at = bound == _TARGET_BOUND
            low, middle = _best(runs, write)
            target = BUILDS.get(kind) if at else None
            peer = built_by_java.get(kind)
            yield Figure(
                name=f"paimon_formats.build.{kind}.{bound}",
                value=low,
                unit="ms",
                peer=None if peer is None else Peer(what="Java, another machine", value=peer),
                ratio=None if peer is None else low / peer,
                target=None if target is None else f"at most {target} ms",
                met=None if target is None else low <= target,
                details={"median": middle, "rows": rows},
            )
            blob = write()
            path = home / f"{kind}-{bound}"
            path.write_bytes(blob)
            close = abs(len(blob) / 1024 - sizes[kind]) <= 0.005 * sizes[kind]
            yield Figure(
                name=f"paimon_formats.size.{kind}.{bound}",
                value=len(blob) / 1024,
                unit="KB",
                peer=Peer(what="Java, other values of the same distribution", value=sizes[kind]),
                ratio=len(blob) / 1024 / sizes[kind],
                target="within 0.5 % of Java's" if full else None,
                met=close if full else None,
                details={"rows": rows},
            )
            made.setdefault(f"build.{kind}", {})[bound] = low
            made.setdefault(f"size.{kind}", {})[bound] = len(blob) / 1024
            for figure in _questions(path, kind, bound, array, runs):
                name = figure.name.removeprefix("paimon_formats.").rpartition(".")[0]
                made.setdefault(name, {})[bound] = figure.value
                yield figure
        if bound == _TARGET_BOUND:
            yield from _others(path, array, runs)
    for name, by_bound in made.items():
        if max(JAVA) in by_bound:
            yield _growth(name, by_bound)


def _growth(name: str, by_bound: Mapping[int, float]) -> Figure:
    """How many times as much the most distinct values take as the fewest."""
    low, high = min(by_bound), max(by_bound)
    columns = {
        "size.bitmap": 0,
        "size.bsi": 1,
        "size.range-bitmap": 2,
        "build.bitmap": 3,
        "build.range-bitmap": 4,
    }
    java = None
    if name in columns:
        java = JAVA[high][columns[name]] / JAVA[low][columns[name]]
    value = by_bound[high] / by_bound[low]
    return Figure(
        name=f"paimon_formats.growth.{name}",
        value=value,
        unit="times",
        peer=None if java is None else Peer(what="Java, another machine", value=java),
        ratio=None if java is None else value / java,
        details={f"{bound:,} distinct": found for bound, found in by_bound.items()},
    )


def _questions(path: Path, kind: str, bound: int, array: pa.Array, runs: int) -> Iterator[Figure]:
    present = int(array.drop_null()[len(array) // 3].as_py())
    asks: dict[str, Ask] = {
        "eq": In((present,)),
        "range": Range(lo=bound // 2, lo_open=True),
        "between": Range(lo=bound // 10, hi=bound // 5),
        "not_null": Range(),
    }
    for name, ask in asks.items():
        if kind == "bitmap" and name in ("range", "between") and bound > 10_000:
            continue  # a bitmap for every value: what a range-bitmap is for
        low, middle = _best(6 * runs, lambda ask=ask: _ranged(path, kind, ask))  # type: ignore[misc]
        mapped, _ = _best(6 * runs, lambda ask=ask: _mapped(path, kind, ask))  # type: ignore[misc]
        found, waves, read = _ranged(path, kind, ask)
        target = ASKS.get((kind, name)) if bound == _TARGET_BOUND else None
        peer = JAVA_ASKS.get((kind, name)) if bound == _TARGET_BOUND else None
        yield Figure(
            name=f"paimon_formats.ask.{kind}.{name}.{bound}",
            value=low,
            unit="ms",
            peer=None if peer is None else Peer(what="Java, another machine", value=peer),
            ratio=None if peer is None else low / peer,
            target=None if target is None else f"at most {target} ms",
            met=None if target is None else low <= target,
            details={
                "median": middle,
                "over a memory map": mapped,
                "rows found": found,
                "waves": waves,
                "bytes read": read,
                "bytes": path.stat().st_size,
            },
        )
        if bound not in (min(JAVA), _TARGET_BOUND, max(JAVA)):
            continue
        sums = BlockSums.of(path.read_bytes(), LEAST if kind == "bitmap" else SMALL)
        again, middle = _best(6 * runs, lambda ask=ask, sums=sums: _checked(path, kind, ask, sums))  # type: ignore[misc]
        rows, whole = _checked(path, kind, ask, sums)
        if rows != found:
            raise AssertionError(f"{rows} rows of checked bytes, {found} of the same unchecked")
        yield Figure(
            name=f"paimon_formats.checked.{kind}.{name}.{bound}",
            value=again,
            unit="ms",
            peer=Peer(what="the same unchecked", value=low),
            ratio=again / low,
            target=None if target is None else f"at most {target} ms",
            met=None if target is None else again <= target,
            details={
                "median": middle,
                "bytes read": whole,
                "unchecked": read,
                "bytes of a block": sums.block,
                "bytes in the facts": len(sums.to_bytes()),
            },
        )


def _others(path: Path, array: pa.Array, runs: int) -> Iterator[Figure]:
    """Top-N of the range-bitmap at ``path``, and the Bloom filter of its column."""
    blob = path.read_bytes()

    def first() -> object:
        index = RangeBitmapIndex.open(INT, Pieces.whole(blob))
        return index.first(10, descending=True, nulls_first=False)

    low, middle = _best(runs, first)
    yield Figure(
        name="paimon_formats.first10.range-bitmap",
        value=low,
        unit="ms",
        peer=Peer(what="Java, another machine", value=0.68),
        ratio=low / 0.68,
        details={"median": middle},
    )
    started = time.perf_counter()
    size = sizing(ITEMS)
    filter = np.zeros(size.bits // 8, np.uint8)
    fill(filter, size.k, column_of(INT, array).keys)
    yield Figure(
        name="paimon_formats.build.bloom-filter",
        value=(time.perf_counter() - started) * 1e3,
        unit="ms",
        details={"bytes": len(filter)},
    )
