"""`python -m tests.accept [WORD…]`: try every point, or those whose name contains a word.

One line for each point on stdout, a count at the end, exit code 1 when a promise was not kept or
when no point was tried.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from tests.accept.registry import find
from tests.accept.workbench import Workshop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.accept.registry import Point


def run(points: Iterable[Point], out: TextIO) -> int:
    """Try the points in turn, write a line for each as it ends; returns the exit code."""
    outcomes = []
    workshop = Workshop()
    try:
        for point in points:
            with workshop.bench() as bench:
                outcome = point.run(bench)
            outcomes.append(outcome)
            print(outcome, file=out, flush=True)
    finally:
        workshop.close()
    tried = [outcome for outcome in outcomes if outcome.tried]
    kept = sum(outcome.kept for outcome in tried)
    untried = f", {len(outcomes) - len(tried)} not tried" if len(tried) < len(outcomes) else ""
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(f"{kept} of {len(tried)} points hold{untried} ({seconds:.0f} s)", file=out)
    return 0 if tried and kept == len(tried) else 1


if __name__ == "__main__":
    sys.exit(run(find().select(sys.argv[1:]), sys.stdout))
