"""``python -m tests.soak``: random tables until the time is over; scripts of what was wrong."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.soak.shape import (
    CLASSIC,
    CONNECT,
    EMBEDDED,
    KNOWN_GAPS,
    SPARK,
    Shape,
    chosen_features,
    without_gaps,
)
from tests.soak.shrink import script, shrunk
from tests.soak.trials import Finding, TableTrials, Totals, room, run_case

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.soak.trials import Case

#: tables that the libraries of formats write; their trials are operations (``formats.py``)
FORMATS = ("delta", "iceberg")
ROUTES = {
    "embedded": EMBEDDED,
    "spark": SPARK,
    "classic": CLASSIC,
    "connect": CONNECT,
    "formats": FORMATS,
}


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first table (0)")
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after so long (600)")
    parser.add_argument("--trials", type=int, help="stop after this many trials")
    parser.add_argument("--tables", type=int, help="stop after this many tables")
    parser.add_argument(
        "--operations", type=int, help="stop after this many operations on tables of formats"
    )
    parser.add_argument(
        "--routes",
        default="embedded",
        help="embedded, spark (classic and connect), formats, all, or names with commas (embedded)",
    )
    parser.add_argument("--features", default="all", help="all, a,b or all,-a,-b")
    parser.add_argument(
        "--often", default="", help="features that nearly every table has, with commas"
    )
    parser.add_argument("--predicates", type=int, help="this many per table (40; in Spark 64)")
    parser.add_argument(
        "--processes", type=int, default=1, help="this many side by side, each with its seeds (1)"
    )
    parser.add_argument("--stride", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--gaps", action="store_true", help="try what is known to fail, too")
    parser.add_argument("--shrink", type=float, default=20.0, help="seconds per finding (20)")
    parser.add_argument("--out", default="soak-out", help="folder of the scripts (soak-out)")
    return parser.parse_args(given)


def routes_of(text: str) -> tuple[str, ...]:
    if text == "all":
        return (*EMBEDDED, *SPARK, *FORMATS)
    return tuple(r for each in text.split(",") for r in ROUTES.get(each, (each,)))


class Run:
    """A run: its totals and its distinct findings."""

    def __init__(self, given: argparse.Namespace, again: Callable[[Case], str]) -> None:
        self.given, self.totals, self.kinds = given, Totals(), Counter[str]()
        self.again = again
        self.started = self.told = time.monotonic()

    def tell(self, seed: int) -> None:
        """Every 30 seconds, a line."""
        now = time.monotonic()
        if now - self.told >= 30:
            self.told = now
            print(
                f"{now - self.started:6.0f} s  seed {seed}  {self.totals.tables} tables  "
                f"{sum(self.totals.trials.values())} trials  "
                f"{sum(self.totals.operations.values())} operations  {len(self.kinds)} findings  "
                f"{sum(os.times()[:4]):.0f} s of CPU",
                flush=True,
            )

    def keep(self, found: list[Finding]) -> None:
        """Shrink and write the first finding of each kind."""
        for each in found:
            self.kinds[each.kind] += 1
            if self.kinds[each.kind] > 1:
                continue
            small, again = None, ""
            if self.given.shrink:
                small = shrunk(each, self.given.shrink, self.again)
                again = "" if small is not None else " (not again)"
            small = small or each
            out = Path(self.given.out)
            out.mkdir(parents=True, exist_ok=True)
            name = f"{each.case.trial.route}-{each.seed}-{len(self.kinds):03}.py"
            (out / name).write_text(script(small), encoding="utf-8")
            print(f"found{again}: {name}: {each.case.trial.route}: {small.wrong[:300]}")
            if each.case.trial.column:
                print(f"    form or column {each.case.trial.column}")
            print(f"    where {small.case.trial.where}; {sorted(small.used)}", flush=True)

    def keep_of_format(self, format: str, wrong: str) -> None:
        """Write what was wrong with a life of a table of a format; its seed is in it."""
        if wrong:
            last = wrong.rstrip().rpartition("\n")[2]
            self.kinds[f"{format}: {' '.join(last.split()[:3])}"] += 1
            out = Path(self.given.out)
            out.mkdir(parents=True, exist_ok=True)
            name = f"{format}-{len(self.kinds):03}-{sum(self.kinds.values())}.txt"
            (out / name).write_text(wrong, encoding="utf-8")
            print(f"found: {name}: {wrong[:300]} … {last[:300]}", flush=True)

    def over(self) -> bool:
        given, trials = self.given, sum(self.totals.trials.values())
        return (
            time.monotonic() - self.started >= given.seconds
            or (given.trials is not None and trials >= given.trials)
            or (given.tables is not None and self.totals.tables >= given.tables)
            or (
                given.operations is not None
                and sum(self.totals.operations.values()) >= given.operations
            )
        )

    def summary(self) -> str:
        seconds = time.monotonic() - self.started
        trials = sum(self.totals.trials.values())
        return json.dumps(
            {
                "seconds": round(seconds, 1),
                # Of this process and its ended children, so without the JVMs of Spark.
                "cpu_seconds": round(sum(os.times()[:4]), 1),
                "tables": self.totals.tables,
                "trials": trials,
                "per_second": round(trials / max(seconds, 1e-9), 1),
                "routes": dict(self.totals.trials),
                "route_seconds": dict(self.totals.seconds),
                "left_out": dict(self.totals.left_out),
                "drawn": dict(self.totals.drawn.most_common()),
                "operations": dict(self.totals.operations.most_common()),
                "refused_operations": dict(self.totals.refused_steps),
                "refused": self.totals.refused,
                "discarded": self.totals.discarded,
                "findings": dict(self.kinds),
            }
        )


def side_by_side(given: Sequence[str], chosen: argparse.Namespace) -> int:
    """Run in several processes, whose seeds interleave; one JSON total at the end.

    A process that ends without a total is a finding.
    """
    many, code = chosen.processes, "import sys; from tests.soak.__main__ import main"
    told: list[list[str]] = [[] for _ in range(many)]
    share = ["--processes", "1", "--stride", str(many)]
    for name in ("trials", "tables", "operations"):
        if (most := getattr(chosen, name)) is not None:
            share += [f"--{name}", str(-(-most // many))]

    def run(at: int) -> int:
        more = [*share, "--seed", str(chosen.seed + at)]
        command = [sys.executable, "-c", f"{code}; sys.exit(main(sys.argv[1:]))", *given, *more]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                told[at].append(line)
                if not line.startswith("{"):
                    print(f"{at}: {line}", end="", flush=True)
        return process.returncode

    threads = [threading.Thread(target=run, args=(at,)) for at in range(many)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    total: dict[str, Any] = {"processes": many}
    for at, lines in enumerate(told):
        if lines and lines[-1].startswith("{"):
            add(total, json.loads(lines[-1]))
        else:
            last = lines[-1].strip() if lines else "nothing"
            add(total, {"findings": {f"process {at} ended after {last!r}": 1}})
    print(json.dumps(total))
    return 1 if total["findings"] else 0


def add(total: dict[str, Any], more: dict[str, Any]) -> None:
    """Add the numbers of another run to ``total``; of the seconds, the most."""
    for name, value in more.items():
        if isinstance(value, dict):
            add(total.setdefault(name, {}), value)
        elif name == "seconds":
            total[name] = max(total.get(name, 0.0), value)
        else:
            total[name] = round(total.get(name, 0) + value, 1)


def main(given: Sequence[str] | None = None) -> int:
    """Run; the exit code is 1 with findings."""
    chosen = arguments(given)
    if chosen.processes > 1:
        return side_by_side(sys.argv[1:] if given is None else given, chosen)
    log = logging.getLogger("skipstone")
    level = log.level
    log.setLevel(logging.ERROR)  # files that are read in full
    try:
        return soak(chosen)
    finally:
        log.setLevel(level)


def soak(chosen: argparse.Namespace) -> int:
    """Random tables until the time or their number is over; the exit code is 1 with findings."""
    features = chosen_features(chosen.features)
    shape = Shape(
        features=features if chosen.gaps else without_gaps(features),
        often=chosen_features(chosen.often),
        gaps=() if chosen.gaps else KNOWN_GAPS,
        routes=routes_of(chosen.routes),
    )
    seed = chosen.seed
    print(f"first seed {seed}, routes {', '.join(shape.routes)}", flush=True)
    here = tuple(route for route in shape.routes if route in EMBEDDED)
    in_spark = tuple(route for route in shape.routes if route in SPARK)
    of_formats = tuple(route for route in shape.routes if route in FORMATS)
    sessions, again = None, run_case
    if in_spark:
        from tests.soak.spark import Sessions, SparkTrials, remote, run_case_in, session

        sessions = Sessions(session(), remote() if {*in_spark} & {*CONNECT} else None)
        again = partial(run_case_in, sessions)
    run = Run(chosen, again)
    while not run.over():
        if here:
            embedded = replace(shape, routes=here, predicates=chosen.predicates or 40)
            with contextlib.redirect_stderr(io.StringIO()):
                found = TableTrials(seed, embedded, run.totals).run()
            run.keep(found)
        if sessions is not None:
            # The tables that Spark writes to are also asked without it.
            many = (chosen.predicates or 64) // 2  # before and after an event
            both = replace(shape, routes=(*in_spark, "query"), predicates=many)
            run.keep(SparkTrials(sessions, seed, both, run.totals).run())
        for each in of_formats:
            from tests.soak.formats import FormatTrials

            run.keep_of_format(each, FormatTrials(each, seed, run.totals).run(room()))
        run.tell(seed)
        seed += chosen.stride
    if sessions is not None:
        sessions.stop()
    print(f"last seed {seed - chosen.stride}")
    print(run.summary())
    return 1 if run.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
