"""``python -m tests.fuzz``: every parser against damaged files, in child processes.

    python -m tests.fuzz --mutations 100000
    python -m tests.fuzz --parser pages --parser pm --seed 7 --mutations 5000 --out fuzz-out

Prints one line for each parser, and writes ``findings.jsonl`` and the bytes of each finding to the
output directory. The exit code is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.fuzz.parsers import PARSERS
from tests.fuzz.runner import Limits, fuzz


def main() -> int:
    """The command line of the module."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--parser", action="append", choices=sorted(PARSERS), help="all, if none")
    parser.add_argument("--mutations", type=int, default=100_000, help="for each parser")
    parser.add_argument("--seed", type=int, default=0, help="that of the first mutation")
    parser.add_argument("--memory", type=int, default=2048, help="MiB beyond what libraries take")
    parser.add_argument("--seconds", type=float, default=30.0, help="for one mutation")
    parser.add_argument("--out", type=Path, default=Path("fuzz-out"))
    given = parser.parse_args()
    limits = Limits(given.memory << 20, given.seconds)
    found = 0
    for name in given.parser or PARSERS:
        summary = fuzz(
            name, PARSERS[name], mutations=given.mutations, seed=given.seed, limits=limits,
            out=given.out,
        )  # fmt: skip
        print(summary, flush=True)
        found += len(summary.findings)
        for each in summary.findings:
            given.out.mkdir(parents=True, exist_ok=True)
            with (given.out / "findings.jsonl").open("a") as lines:
                lines.write(json.dumps(each) + "\n")
    return min(found, 1)


if __name__ == "__main__":
    raise SystemExit(main())
