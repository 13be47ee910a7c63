"""Planning over facts alone: what a predicate over 10,000, 100,000 and a million files costs.

The facts are generated (``factstore.py``), and so is the listing, instead of a million real files.
Evaluation is what a query waits for once the facts are read, which happens once per listing:
reading and the first look at a column (``first``), listing and matching are apart.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.indexes.bloom import LEAST_FPP
from skipstone.planning.fact_runs import RunSettings, in_turn
from skipstone.planning.table_facts import ObjectPlanRequest, plan_objects
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.pruning.partitions import PartitionColumns
from skipstone.storage import open_storage
from skipstone.storage.base import metered

from .factstore import (
    FPP,
    SCHEMA,
    STEP,
    TABLE,
    keys_of_file,
    lay_filters,
    lay_ranges_and_lists,
    lay_slices,
    listing_of,
    store_at,
)
from .figure import Figure, Peer, interleaved, median, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from skipstone.facts import MatchedFacts
    from skipstone.pruning.plan import Plan
    from skipstone.storage import Listing

    from .workbench import Workbench

__all__ = ["figures"]

TARGETS = {10_000: 10.0, 1_000_000: 50.0}
# Of a needle that is not held in memory.
_SLICES_MS, _SLICES_BYTES = 10.0, 1_000_000


def figures(bench: Workbench) -> Iterator[Figure]:
    """Evaluation at every size, matching, listing, and Bloom filters that outgrow a driver."""
    for count in bench.sizes.facts:
        yield from _evaluation(bench, count)
    yield _listing(bench)
    yield from _filters(bench, bench.sizes.bloom_facts)
    for fpp in (FPP, LEAST_FPP):
        yield from _slices(bench, bench.sizes.bloom_facts, fpp)


def predicates(count: int) -> dict[str, str]:
    """What is asked of ``count`` files."""
    low, high = count // 2 * STEP, count * 52 // 100 * STEP
    return {
        "range": f"ts >= {low} AND ts < {low + 5 * STEP}",
        "value": "tag = 'tag-0000007'",
        "number": "code = 77",
        "list": "code IN (1, 22, 333, 4444, 5, 66, 777, 8888, 9, 1010, 1111, 1212)",
        "text range": "user < 'user-0001000'",
        "three columns": f"ts BETWEEN {low} AND {high} AND tag = 'tag-0000007' AND code = 77",
        "or": "tag = 'tag-0000007' OR code = 77",
        "like": "user LIKE 'user-0001%' AND tag > 'tag-0000400' AND code < 100",
        "keeps all": "tag <> 'tag-0000007'",
    }


def planner(matched: MatchedFacts, listing: Listing, where: str) -> Callable[[], Plan]:
    """The plan for ``where``, from a bound predicate on."""
    tree = bind(parse_sql(where), SCHEMA)
    request = ObjectPlanRequest(
        tree=tree,
        listing=listing,
        matches=[matched],
        partitions=PartitionColumns({}),
        table=TABLE,
        predicate=where,
    )
    return lambda: plan_objects(request)


def _evaluation(bench: Workbench, count: int) -> Iterator[Figure]:
    listing = listing_of(count)
    runs = bench.sizes.runs
    stores: dict[str, Path] = {}
    for kind, shuffled in (("in order", False), ("shuffled", True)):
        name = f"facts-{count}{'-shuffled' if shuffled else ''}"
        lay = partial(lay_ranges_and_lists, count=count, shuffled=shuffled)
        stores[kind] = bench.generated(name, lay, count=count, shuffled=shuffled, version=1)
    matching = {}
    for kind, home in stores.items():
        match = partial(store_at(home).snapshot().match, listing)
        first = timed(match)
        again = interleaved(runs, {kind: match})
        matching[kind] = {"first_ms": first * 1e3, "ms": median(again[kind]) * 1e3}
    yield Figure(
        name=f"facts.matching.{count}",
        value=matching["in order"]["ms"],
        unit="ms",
        details={"files": count, **matching},
    )

    matched = store_at(stores["shuffled"]).snapshot().match(listing)
    asked = {name: planner(matched, listing, where) for name, where in predicates(count).items()}
    first_ms = {name: timed(ask) * 1e3 for name, ask in asked.items()}
    taken = interleaved(runs, asked)
    wall = {name: median(seconds) * 1e3 for name, seconds in taken.items()}
    cpu = {name: _processor(ask, runs) for name, ask in asked.items()}
    slowest = max(wall, key=lambda name: wall[name])
    target = TARGETS.get(count)
    yield Figure(
        name=f"facts.evaluation.{count}",
        value=wall[slowest],
        unit="ms",
        target=None if target is None else f"<= {target:g} ms",
        met=None if target is None else wall[slowest] <= target,
        details={
            "files": count,
            "slowest": slowest,
            "ms": wall,
            "processor_ms": cpu,
            "first_ms": first_ms,
            "kept": {name: ask().files_kept for name, ask in asked.items()},
        },
    )


def _processor(work: Callable[[], object], runs: int) -> float:
    """Milliseconds of processor time, all threads: what a busy machine does not change."""
    taken = []
    for _ in range(max(3, runs)):
        started = time.process_time()
        work()
        taken.append((time.process_time() - started) * 1e3)
    return median(taken)


def _listing(bench: Workbench) -> Figure:
    """Listing a real directory of small files, which the figures above leave out."""
    growth = {}
    for count in bench.sizes.facts[:2]:
        folder = str(bench.generated(f"listed-{count}", partial(_lay_files, count), count=count))
        work = {"list": partial(open_storage(folder).list_files, folder)}
        growth[count] = median(interleaved(bench.sizes.runs, work)["list"]) * 1e3
    largest = max(growth)
    return Figure(
        name="facts.listing",
        value=growth[largest],
        unit="ms",
        details={"files": largest, "growth_ms": growth},
    )


def _lay_files(count: int, home: Path) -> None:
    for number in range(count):
        (home / f"part-{number:07d}.parquet").write_bytes(b"x")


def _filters(bench: Workbench, count: int) -> Iterator[Figure]:
    """One needle asked of ``count`` Bloom filters: held in memory, in turn, and as a Spark job."""
    from skipstone.spark.jobs import plan_on_spark

    home = bench.generated(f"filters-{count}", partial(lay_filters, count=count), count=count)
    listing = listing_of(count)
    snapshot = store_at(home).snapshot()
    matched = snapshot.match(listing)
    key = int(keys_of_file(count // 3)[17])
    where = f"key = {key}"
    tree = bind(parse_sql(where), SCHEMA)

    request = ObjectPlanRequest(
        tree=tree,
        listing=listing,
        matches=[matched],
        partitions=PartitionColumns({}),
        table=TABLE,
        predicate=where,
    )

    def plan(how: RunSettings) -> Plan:
        return plan_objects(replace(request, runs=how))

    job = RunSettings(limit=0, runner=plan_on_spark(bench.spark))
    first = timed(lambda: plan(job))
    ways: dict[str, Any] = {
        "spark": lambda: plan(job),
        "in turn": lambda: plan(RunSettings(limit=0, runner=in_turn)),
    }
    taken = interleaved(max(1, bench.sizes.runs // 3), ways)
    plans = {name: work() for name, work in ways.items()}
    held_first = timed(lambda: plan(RunSettings(limit=2**40)))
    held = median(interleaved(bench.sizes.runs, {"held": lambda: plan(RunSettings())})["held"])
    kept = plan(RunSettings()).keep
    assert all((found.keep == kept).all() for found in plans.values()), "the ways disagree"
    assert kept[count // 3], "the needle's file was lost"
    seconds, in_turn_seconds = median(taken["spark"]), median(taken["in turn"])
    yield Figure(
        name=f"facts.filters.{count}",
        value=seconds,
        unit="s",
        peer=Peer(
            what="the same in one process, run by run, without Spark",
            value=median(taken["in turn"]),
        ),
        ratio=seconds / in_turn_seconds,
        details={
            "files": count,
            "kept": int(kept.sum()),
            "bytes": snapshot.size,
            "first_s": first,
            "held_in_memory_first_s": held_first,
            "held_in_memory_ms": held * 1e3,
        },
    )


def _slices(bench: Workbench, count: int, fpp: float) -> Iterator[Figure]:
    """The same needle through bit slices, which are read from the store for every plan."""
    plain = bench.generated(
        f"filters-{count}-{fpp:g}", partial(lay_filters, count=count, fpp=fpp), count=count
    )
    home = bench.generated(
        f"slices-{count}-{fpp:g}", partial(lay_slices, count=count, fpp=fpp), count=count
    )
    listing = listing_of(count)
    matched, held = (store_at(each).snapshot().match(listing) for each in (home, plain))
    rng = np.random.default_rng(0)
    files = rng.integers(0, count, 3 * bench.sizes.runs).tolist()
    wheres = [f"key = {keys_of_file(file)[17]}" for file in files]
    asked = [planner(matched, listing, where) for where in wheres]
    filters = [planner(held, listing, where) for where in wheres]
    first = timed(asked[0])
    read = []
    for file, ask, other in zip(files, asked, filters, strict=True):
        with metered() as meter:
            plan = ask()
        read.append((meter.bytes_read, meter.requests))
        if not plan.keep[file] or (plan.keep != other().keep).any():
            raise AssertionError(f"the slices keep other files than the filters: {plan.predicate}")
    turns = itertools.count()
    ways = {
        "slices": lambda: asked[next(turns) % len(asked)](),
        "filters": lambda: filters[next(turns) % len(filters)](),
    }
    taken = interleaved(2 * len(asked), ways)
    wall = {name: median(seconds) * 1e3 for name, seconds in taken.items()}
    bytes_read = max(size for size, _ in read)
    details = {
        "files": count,
        "fpp": fpp,
        "requests": max(requests for _, requests in read),
        "first_ms": first * 1e3,
        "fastest_ms": min(taken["slices"]) * 1e3,
        "processor_ms": _processor(ways["slices"], len(asked)),
        "filters_processor_ms": _processor(ways["filters"], len(asked)),
        "slices_bytes": sum(each.size for each in matched.snapshot.slices.values()),
        "held_bytes": matched.snapshot.nbytes,
    }
    peer = Peer(what="the filters, held in memory", value=wall["filters"])
    ratio = wall["slices"] / wall["filters"]
    yield Figure(
        name=f"facts.slices.{count}.{fpp:g}",
        value=wall["slices"],
        unit="ms",
        peer=peer,
        ratio=ratio,
        target=f"<= {_SLICES_MS:g} ms",
        met=wall["slices"] <= _SLICES_MS,
        details=details,
    )
    yield Figure(
        name=f"facts.slices.bytes.{count}.{fpp:g}",
        value=float(bytes_read),
        unit="bytes",
        peer=Peer(what="all filters", value=float(held.snapshot.size)),
        ratio=bytes_read / held.snapshot.size,
        target=f"<= {_SLICES_BYTES:,} bytes",
        met=bytes_read <= _SLICES_BYTES,
        details={"files": count, "fpp": fpp},
    )
