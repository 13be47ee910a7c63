"""`make bench`: every figure on a line of its own, as JSON; `make bench ARGS="facts needle"` some.

Names are those of the modules (`facts`) or the beginnings of figures' names
(`facts.evaluation.10000`). Generated data stays in `bench-data`, so that a second run begins at
once. Progress is shown on stderr. Exit code 1 when a figure misses its target.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from .workbench import FULL, TOY, Workbench

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .figure import Figure

#: In the order in which they run: figures that need a fresh process come first.
TOPICS = (
    "cold",
    "parquet_footer",
    "parquet_encodings",
    "parquet_lookup",
    "retrofit",
    "writing",
    "salvage",
    "index_pages",
    "paimon_formats",
    "questdb_formats",
    "questdb_evidence",
    "encrypt",
    "ingest",
    "facts",
    "planning",
    "needle",
    "engine",
    "engine_big",
    "engine_planning",
    "lake_queries",
    "logs",
    "table_formats",
    "spark_lake",
    "spark_joins",
    "summary",
    "s3_queries",
    "handover",
    "refresh",
    "build",
)


def measured(bench: Workbench, names: Sequence[str]) -> Iterator[Figure]:
    """The figures that ``names`` select; all of them when there is none."""
    for topic in TOPICS:
        wanted = [name for name in names if name.partition(".")[0] == topic]
        if names and not wanted:
            continue
        print(f"{topic} …", file=sys.stderr, flush=True)
        module = import_module(f"bench.{topic}")
        if bench.sizes.runs == 1:  # what is collected before each run would take the longest
            gc.freeze()
        for figure in module.figures(bench):
            if not wanted or topic in wanted or any(map(figure.name.startswith, wanted)):
                yield figure


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measure Skipstone.")
    parser.add_argument("names", nargs="*", help=f"topics ({', '.join(TOPICS)}) or figures")
    parser.add_argument("--home", type=Path, default=Path("bench-data"), help="generated data")
    parser.add_argument("--toy", action="store_true", help="tiny sizes: shows that it works")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name.partition(".")[0] not in TOPICS:
            parser.error(f"no figure {name!r}; the topics are {', '.join(TOPICS)}")
    missed = 0
    sizes = TOY if options.toy else FULL
    with Workbench(options.home, sizes, options.names) as bench:
        for figure in measured(bench, options.names):
            missed += figure.met is False
            print(figure.to_json(), flush=True)
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"load averages at the end: {load}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
