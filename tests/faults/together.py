"""One verb runs as a whole between two steps of another one.

The first verb stops itself at a step (``SIGSTOP``), the second one runs from its start to its end
in another process, and the first one goes on. A step is a call that changes a file, or one that
reads. Readers must give the rows of one consistent listing: those of before the second verb, or of
after.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Table
from skipstone.errors import SkipstoneError, StaleError
from tests.faults import shim as shims
from tests.faults.cases import CASES as OF_TABLES
from tests.faults.cases import (
    LARGE,
    Case,
    check_rows,
    drop_if_there,
    indexed,
    lay_out,
    lay_out_for_compact,
    nothing,
    rows_of,
    table_at,
    vacuum,
    write,
)
from tests.faults.file_cases import (
    BASE,
    append,
    lay_out_live,
    live_compact,
    live_vacuum,
    replace,
)
from tests.faults.file_cases import CASES as OF_FILES
from tests.faults.readers import READERS, rows_in
from tests.faults.trials import Fault, Total, Trials

if TYPE_CHECKING:
    from collections.abc import Callable

STOP = Fault("another verb between two steps", shims.CHANGES, shims.SIGNAL, signal.SIGSTOP)
FOUR = "four builders at once"
ROUNDS = 12


def trials_of(pair: Pair, home: Path, library: shims.Shim, *, seed: int = 0) -> Trials:
    """The trials of one of ``CASES``."""
    if pair.kind == FOUR:
        return Four(pair.case, home, library, seed=seed)
    return Together(pair, home, library, seed=seed)


@dataclass(frozen=True)
class Pair:
    """``second`` runs between two steps of ``case``, which are calls of ``what``; ``named``: it may
    fail with an error that names a file."""

    case: Case
    second: Callable[[str], object]
    what: int = shims.CHANGES
    named: bool = True
    #: the name of the totals
    kind: str = "readers during writers"

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def verbs(self) -> tuple[str, ...]:
        return self.case.verbs


class Together(Trials):
    """The trials of a pair."""

    def __init__(self, pair: Pair, home: Path, library: shims.Shim, *, seed: int = 0) -> None:
        super().__init__(pair.case, home, library, seed=seed)
        self.pair = pair

    def learn(self) -> None:
        """What both leave, one after the other."""
        self.lay_out()

        def work() -> list[str]:
            told = self.outcome(None) + self.other()
            return told + self.after(whole=False)

        self.expect_nothing("run", self.child(work))
        self.allowed = self.left() | set(self.case.stays)
        self.reset()

    def other(self) -> list[str]:
        """Run the second verb; what is wrong with how it ended."""
        try:
            self.pair.second(self.home)
        except (SkipstoneError, OSError) as error:
            if self.pair.named and self.names_what(error):
                return []
            return [f"the second verb: {error!r}"]
        except BaseException as error:
            return [f"the second verb: {type(error).__name__} {str(error)[:400]}"]
        return []

    def trial(self, fault: Fault, step: int) -> bool:
        """One trial; False where the first verb has no such step."""
        self.reset()
        found: list[str] = []

        def during() -> None:
            told = self.child(self.other)
            found.extend([f"a signal ended it: {-told}"] if isinstance(told, int) else told)

        def work() -> list[str]:
            self.shim.arm(self.home, self.pair.what, fault.action, step, fault.value)
            told = self.outcome(fault)
            self.shim.disarm()
            whole = not self.failed and not self.pair.named
            return told + self.after(whole=whole) if self.shim.was_hit else told

        told = self.child(work, during)
        if self.shim.was_hit or told:
            self.total.trials[self.pair.kind] += 1
            where = self.shim.last.replace(self.home, "")
            self.tell(f"between, at step {step} ({where})", told)
            self.tell(f"between, at step {step} ({where})", found)
        return self.shim.was_hit

    def run(self, faults: tuple[Fault, ...] = (STOP,), *, every: int = 1, drawn: int = 0) -> Total:
        """At every ``every``-th step; nothing is ``drawn``."""
        started = time.monotonic()
        self.learn()
        steps = self.each_step(faults, every).get(STOP.name, 0)
        if self.pair.what == shims.CHANGES:
            self.total.steps = steps
        else:
            self.total.reads = steps
        self.total.seconds = time.monotonic() - started
        return self.total


# -- readers during writers -----------------------------------------------------------------------


def read_during(case: Case) -> Pair:
    """The rows of a case are read between any two steps of its verb."""
    made = Case(
        f"readers during {case.name}",
        case.verbs,
        case.lay_out,
        case.run,
        case.rows,
        case.whole,
        case.again,
        case.vacuum,
        case.stays,
    )
    return Pair(made, case.rows, named=False)


# -- writers during readers -----------------------------------------------------------------------


def ask(name: str, *allowed: tuple[int, ...], stale: bool = False) -> Callable[[str], None]:
    """A reader gives what it must for one of these sets of files, or says that files change."""

    def read(home: str) -> None:
        reader = READERS[name]
        try:
            found = reader.ask(table_at(home))
        except StaleError:
            assert stale, "StaleError, and no data file has changed"
            return
        except (SkipstoneError, OSError) as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from error
        right = [reader.truth(rows_in(*numbers)) for numbers in allowed]
        assert found in right, (found, right)

    return read


INDEX_CHANGES: dict[str, Callable[[str], object]] = {
    "build": lambda home: table_at(home).build(indexes=["s:bitmap"]),
    "refresh": lambda home: table_at(home).refresh(),
    "compact": lambda home: table_at(home).compact(),
    "drop": lambda home: drop_if_there(home, None),
    "vacuum": vacuum,
    "retrofit": lambda home: table_at(home).retrofit(page_rows=5),
}


def moved_over(home: str, name: str, at: int) -> None:
    """A file of these rows takes the place of another one."""
    made = Path(home, f"{name}.new")
    write(made, at, age=at)
    made.rename(Path(home, "t", name))


def rewritten(home: str, name: str, at: int) -> None:
    """The same inode, written anew."""
    pq.write_table(pa.table(rows_of(at)), Path(home, "t", name), compression="none")


def swapped(home: str) -> None:
    """Two files change places, by way of a third name."""
    folder = Path(home, "t")
    (folder / "p0.parquet").rename(folder / "_x")
    (folder / "p1.parquet").rename(folder / "p0.parquet")
    (folder / "_x").rename(folder / "p1.parquet")


#: what happens to the data, and the files that have rows then
DATA_CHANGES: dict[str, tuple[Callable[[str], object], tuple[int, ...]]] = {
    "replaced": (lambda home: moved_over(home, "p0.parquet", 5), (1, 5)),
    "rewritten": (lambda home: rewritten(home, "p0.parquet", 5), (1, 5)),
    "removed": (lambda home: Path(home, "t", "p0.parquet").unlink(missing_ok=True), (1,)),
    "added": (lambda home: write(Path(home, "t", "p4.parquet"), 4), (0, 1, 4)),
    "swapped": (swapped, (0, 1)),
}


def index_changes(name: str, change: str) -> Pair:
    made = Case(
        f"{change} during {name}",
        (),
        lay_out_for_compact,
        ask(name, (0, 1)),
        check_both,
        vacuum=vacuum,
    )
    return Pair(made, INDEX_CHANGES[change], shims.READS, kind="index changes during readers")


def check_both(home: str) -> None:
    check_rows(table_at(home))


def data_changes(name: str, change: str, *indexes: str) -> Pair:
    second, after = DATA_CHANGES[change]
    made = Case(
        f"a file {change} during {name}" + ("" if indexes else ", no index"),
        (),
        lambda home: lay_out(home, *indexes),
        ask(name, (0, 1), after, stale=True),
        lambda home: check_rows(table_at(home), after),
        vacuum=vacuum,
    )
    return Pair(made, second, shims.READS, kind="files that change during readers")


NEW = (100, 101, 102)
LIVE: dict[str, Callable[[str], object]] = {
    "append": append,
    "replace": replace,
    "live compact": live_compact,
    "live compact and vacuum": lambda home: (live_compact(home), live_vacuum(home)),
}


def ask_live(home: str) -> None:
    """All rows of one state, then those of a predicate, which all states have."""
    table = Table(f"{home}/live")
    found = sorted(table.query(columns=["key"])["key"].to_pylist())
    assert found in (BASE, sorted([*BASE, *NEW])), found
    assert table.count() in (len(BASE), len(BASE) + len(NEW))
    assert sorted(table.query("key >= 5 AND key < 9", ["key"])["key"].to_pylist()) == [5, 6, 7, 8]


def live_changes(change: str) -> Pair:
    made = Case(
        f"{change} during readers of a live table",
        (),
        lay_out_live,
        ask_live,
        ask_live,
        vacuum=live_vacuum,
    )
    return Pair(made, LIVE[change], shims.READS, kind="files that change during readers")


# -- builders beside each other -------------------------------------------------------------------

FIRST: dict[str, Callable[[str], object]] = {
    "build": lambda home: table_at(home).build(indexes=["s:bitmap"]),
    "refresh": lambda home: table_at(home).refresh(),
    "compact": lambda home: table_at(home).compact(),
    "drop": lambda home: drop_if_there(home, "s:paimonbloom"),
    "export": lambda home: table_at(home).export(),
}
SECOND: dict[str, Callable[[str], object]] = {
    "build": lambda home: table_at(home).build(indexes=["s:valuelist"]),
    "the same build": FIRST["build"],
    "refresh": FIRST["refresh"],
    "compact": FIRST["compact"],
    "drop": lambda home: drop_if_there(home, "id:minmax"),
    "vacuum": lambda home: table_at(home).vacuum(timedelta(days=1)),
}


def builders(first: str, second: str) -> Pair:
    gone = {"drop": "s:paimonbloom"}.get(first), {"drop": "id:minmax"}.get(second)
    names = {"id:minmax", "s:paimonbloom"} - set(gone)
    names |= {"s:bitmap"} if first == "build" or second == "the same build" else set()
    names |= {"s:valuelist"} if second == "build" else set()
    end = indexed(*sorted(names), files=3)

    def both(home: str) -> None:
        FIRST[first](home)
        SECOND[second](home)

    made = Case(
        f"{second} during {first}",
        (),
        lambda home: lay_out(home, "id:minmax", LARGE, files=3),
        FIRST[first],
        lambda home: check_rows(table_at(home), (0, 1, 2)),
        end,
        both,
        vacuum,
    )
    return Pair(made, SECOND[second], kind="builders beside each other")


FOURS = (
    ("id:minmax", "s:bitmap", LARGE, "s:valuelist"),
    ("id:minmax", "id:minmax", "id:minmax", "id:minmax"),
    ("id:minmax", LARGE, "refresh", "compact"),
)


class Four(Trials):
    """Four builders of one table start together; no steps are counted."""

    def run(self, faults: tuple[Fault, ...] = (), *, every: int = 1, drawn: int = 0) -> Total:
        """Some rounds of each four."""
        started, rng = time.monotonic(), random.Random(self.seed)
        for number in range(-(-ROUNDS // every)):
            verbs = FOURS[number % len(FOURS)]
            self.reset()
            told = self.child(lambda verbs=verbs: self.round(verbs, rng.random()))  # type: ignore[misc]
            self.total.trials[FOUR] += 1
            self.tell(f"round {number} of {', '.join(verbs)}", told)
        self.total.seconds = time.monotonic() - started
        return self.total

    def reset(self) -> None:
        self.lay_out()

    def round(self, verbs: tuple[str, ...], drawn: float) -> list[str]:
        """Four processes; then what is there."""
        begin = time.monotonic() + 0.05
        running = []
        for at, verb in enumerate(verbs):
            process = os.fork()
            if not process:
                code = 1
                try:
                    time.sleep(max(0.0, begin + drawn * at / 200 - time.monotonic()))
                    one_of_four(self.home, verb)
                    code = 0
                finally:
                    os._exit(code)
            running.append(process)
        told = [
            f"{verb} ended with {status}"
            for verb, process in zip(verbs, running, strict=True)
            if (status := os.waitpid(process, 0)[1])
        ]
        return told + self.four_are_there(verbs)

    def four_are_there(self, verbs: tuple[str, ...]) -> list[str]:
        names = {"s:paimonbloom" if each == LARGE else each for each in verbs if ":" in each}
        try:
            check_rows(table_at(self.home))
            for verb in verbs:
                one_of_four(self.home, verb)
            indexed(*names)(self.home)
            vacuum(self.home)
            check_rows(table_at(self.home))
            left = [each for each in self.left() if "_tmp-" in each or "_probe-" in each]
            assert not left, left
        except Exception as error:
            return [f"{type(error).__name__}: {str(error)[:400]}"]
        return []


def one_of_four(home: str, verb: str) -> None:
    table = table_at(home)
    if verb == "refresh":
        if table.store.exists():
            table.refresh()
    elif verb == "compact":
        table.compact()
    else:
        table.build(indexes=[verb])


CASES = [
    Pair(Case(FOUR, ("build",), lay_out, nothing, check_both), nothing, kind=FOUR),
    *(read_during(case) for case in (*OF_TABLES, *OF_FILES)),
    *(index_changes(name, change) for name in READERS for change in INDEX_CHANGES),
    *(data_changes(name, each, "id:minmax", LARGE) for name in READERS for each in DATA_CHANGES),
    *(data_changes(name, each) for name in ("query", "count") for each in DATA_CHANGES),
    *(live_changes(change) for change in LIVE),
    *(builders(first, second) for first in FIRST for second in SECOND if first != "export"),
    # Of what a drop leaves nothing could be exported.
    *(builders("export", second) for second in SECOND if second != "drop"),
]
