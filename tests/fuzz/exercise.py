"""Damaged copies of files, opened and read as a user would, in a process of its own.

    python -m tests.fuzz.exercise PLAN

``PLAN`` is a JSON file: ``count`` mutations with the seeds from ``seed`` on, and those of
``seeds``, spread evenly over ``files`` and ``batteries``, in the directory ``scratch``. Every
mutation is read by one battery of calls of the public API. Allowed are the documented errors, and a
``FormatError`` must name its file. The process is one of its own because a crash of a library below
would take the tests with it, and so that memory can be limited. It prints one JSON document: how
many were tried, how many were refused and how many read, and what else was raised, with the seed
that makes it again.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import shutil
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    PredicateError,
    UnsupportedError,
)
from skipstone.parquet.encodings import kernels
from skipstone.parquet.encryption.key_material import key_material_path
from skipstone.parquet.format import footer_scan
from tests.fuzz.batteries import BATTERIES, DECODING, Damaged
from tests.fuzz.corpus import BOMB, keys_for
from tests.fuzz.mutate import mutated
from tests.fuzz.questdb import QUESTDB

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# What may be taken beyond what the libraries themselves take. Files are 64 kB, their content some
# megabytes; a lie about a size would ask for gigabytes.
_MEMORY = 512 << 20
# Far beyond the slowest: what hangs must end in a traceback, not in silence.
_HANGS = 300
_WATCHED = 64


def run(
    seeds: Sequence[int], scratch: Path, files: Sequence[Path], batteries: Sequence[str]
) -> dict[str, Any]:
    """The mutations of these seeds; see the module."""
    found = _Found()
    for turn, at in enumerate(seeds):
        if turn % _WATCHED == 0:
            faulthandler.dump_traceback_later(_HANGS, exit=True)
        path = files[at % len(files)]
        # The seed of a file's mutations counts on while the battery changes.
        battery = batteries[at // len(files) % len(batteries)]
        found.last(scratch, f"{path.name} {battery} {at}")
        found.read(path, mutated(path.read_bytes(), at), battery, at, scratch)
    faulthandler.cancel_dump_traceback_later()
    return found.summary()


class _Found:
    """What came of the mutations so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[dict[str, Any]] = []

    @staticmethod
    def last(scratch: Path, what: str) -> None:
        """Remember what is tried, for when the process does not live to say so."""
        (scratch / "last.txt").write_text(what)

    def read(self, path: Path, data: bytes, battery: str, seed: int, scratch: Path) -> None:
        """One mutation of ``path`` by one battery."""
        if path.name == BOMB and battery in DECODING:
            return
        # The name decides where key material is looked for.
        target = scratch / path.name
        target.write_bytes(data)
        beside = path.parent / key_material_path(path.name)
        if beside.is_file() and not (scratch / beside.name).exists():
            shutil.copy(beside, scratch / beside.name)
        self.counts["tried"] += 1
        refused = False

        def attempt(call: Callable[..., Any], *arguments: object) -> Any:
            nonlocal refused
            self.counts["calls"] += 1
            try:
                return call(*arguments)
            except FormatError as error:
                self.counts["FormatError"] += 1
                self.counts["with offset"] += error.offset is not None
                if error.file != str(target) and battery not in ("own", "footers_together"):
                    self._fail(path, seed, battery, error)
            except (UnsupportedError, KeyUnavailableError) as error:
                self.counts[type(error).__name__] += 1
            except PredicateError as error:
                # Damage may give two columns one name: a query by it must be refused.
                self.counts["PredicateError"] += 1
                if "could be any of" not in error.message:
                    self._fail(path, seed, battery, error)
            except Exception as error:
                self._fail(path, seed, battery, error)
            refused = True
            return None

        {**BATTERIES, **QUESTDB}[battery](Damaged(str(target), data, keys_for(path)), attempt)
        self.counts["refused" if refused else "read"] += 1
        target.unlink()

    def _fail(self, path: Path, seed: int, battery: str, error: Exception) -> None:
        where = traceback.format_exception(error)[-1:] + [
            f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)[-7:]
        ]
        told = f"{type(error).__name__}: {error}"[:300]
        self.failures.append(
            {"file": path.name, "seed": seed, "battery": battery, "error": told, "where": where}
        )

    def summary(self) -> dict[str, Any]:
        """As JSON-ready values."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        return {**self.counts, "peak MiB": peak, "failures": self.failures}


def _warm(files: Sequence[Path], batteries: Sequence[str], scratch: Path) -> None:
    """Everything imported and compiled, so that what is taken later is taken for a file."""
    found = _Found()
    for path in files[:8]:
        for battery in batteries:
            found.read(path, path.read_bytes(), battery, -1, scratch)


def main(arguments: list[str]) -> None:
    """The command line of the module."""
    plan = json.loads(Path(arguments[0]).read_text())
    files, scratch = [Path(each) for each in plan["files"]], Path(plan["scratch"])
    faulthandler.enable()
    if plan.get("compiled"):
        kernels.COMPILED.load()
        footer_scan.COMPILED.load()
    _warm(files, plan["batteries"], scratch)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = taken + int(plan.get("memory", _MEMORY))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    seeds = [*range(plan["seed"], plan["seed"] + plan["count"]), *plan.get("seeds", ())]
    print(json.dumps(run(seeds, scratch, files, plan["batteries"])))


if __name__ == "__main__":
    main(sys.argv[1:])
