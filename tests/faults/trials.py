"""One case, every step, every fault: forks a process for each trial, and says what was wrong."""

from __future__ import annotations

import errno
import json
import os
import random
import select
import signal
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipstone.errors import SkipstoneError
from tests.faults import shim as shims
from tests.faults.power import Medium, calls
from tests.faults.trees import Entry, entries, names, restore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.cases import Case


@dataclass(frozen=True)
class Fault:
    """What happens at a step: ``name`` is that of the totals."""

    name: str
    what: int
    action: int
    value: int = 0

    @property
    def ends(self) -> bool:
        """Whether the process ends there."""
        ended = self.action in (shims.KILL, shims.TORN)
        return ended or (self.action == shims.SIGNAL and self.value == signal.SIGTERM)


FAULTS = (
    Fault("kill", shims.CHANGES, shims.KILL),
    Fault("torn", shims.CHANGES, shims.TORN),
    Fault("ENOSPC", shims.CHANGES, shims.FULL, errno.ENOSPC),
    Fault("EIO", shims.CHANGES, shims.FAIL, errno.EIO),
    Fault("EACCES", shims.CHANGES, shims.FAIL, errno.EACCES),
    Fault("SIGINT", shims.CHANGES, shims.SIGNAL, signal.SIGINT),
    Fault("SIGTERM", shims.CHANGES, shims.SIGNAL, signal.SIGTERM),
    Fault("EIO on reads", shims.READS, shims.FAIL, errno.EIO),
    Fault("EACCES on reads", shims.READS, shims.FAIL, errno.EACCES),
)
#: a trial that takes longer hangs
LONGEST = 120.0
#: more findings of one case are not looked for
ENOUGH = 40


@dataclass
class Total:
    """The numbers of one case."""

    steps: int = 0
    reads: int = 0
    requests: int = 0
    trials: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Trials:
    """The trials of a case below ``home``, a folder of its own."""

    def __init__(self, case: Case, home: Path, library: shims.Shim, *, seed: int = 0) -> None:
        self.case, self.home, self.shim = case, str(home), library
        self.total, self.seed = Total(), seed
        self.before: dict[str, Entry] = {}
        self.allowed: set[str] = set()

    # -- processes ------------------------------------------------------------------------------

    def child(self, work: Callable[[], list[str]], during: Callable[[], None] | None = None) -> Any:
        """Run ``work`` in a forked process: its texts, or the number of the signal that ended it.

        Where it stops itself, ``during`` is called, and it goes on.
        """
        out, into = os.pipe()
        process = os.fork()
        if not process:
            code = 1
            try:
                os.close(out)
                told = work()
                with os.fdopen(into, "wb") as pipe:
                    pipe.write(json.dumps(told).encode())
                code = 0
            except BaseException:
                os.write(into, json.dumps(["harness: " + traceback.format_exc()]).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(into)
        data, deadline = b"", time.monotonic() + LONGEST
        with os.fdopen(out, "rb", buffering=0) as pipe:
            while True:
                if during is not None:
                    ended, status = os.waitpid(process, os.WUNTRACED | os.WNOHANG)
                    if ended and os.WIFSTOPPED(status):
                        during()
                        os.kill(process, signal.SIGCONT)
                    elif ended:
                        while piece := pipe.read():
                            data += piece
                        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else json.loads(data)
                if select.select([pipe], [], [], 0.002 if during else 1.0)[0]:
                    piece = pipe.read(65536)
                    if not piece and during is None:
                        break
                    data += piece or b""
                if time.monotonic() > deadline:
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)
                    return [f"hangs: killed after {LONGEST:.0f} s"]
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            return -os.WTERMSIG(status)
        return json.loads(data)

    # -- what a trial consists of ---------------------------------------------------------------

    def lay_out(self) -> None:
        """Make the table of the case anew."""

        def work() -> list[str]:
            self.clear()
            self.case.lay_out(self.home)
            return []

        self.expect_nothing("lay out", self.child(work))
        self.before = self.save()

    def clear(self) -> None:
        """Remove everything."""
        restore(self.home, {})

    def save(self) -> dict[str, Entry]:
        """What is there, for ``reset``."""
        return entries(self.home)

    def left(self) -> set[str]:
        """The names of what is there, without random parts."""
        return names(self.home)

    def expect_nothing(self, what: str, told: Any) -> None:
        if told:
            raise AssertionError(f"{self.case.name}: {what} without a fault: {told}")

    def reset(self) -> None:
        """The table as it was, with fresh facts."""
        if not self.before or not restore(self.home, self.before):
            self.lay_out()

    def learn(self) -> None:
        """What a run without a fault leaves, twice over, in a process of its own."""
        self.lay_out()

        def work() -> list[str]:
            told = self.outcome(None)
            self.shim.disarm()
            return told + self.after(whole=True)

        self.expect_nothing("run", self.child(work))
        self.allowed = self.left() | set(self.case.stays)
        self.reset()

    def outcome(self, fault: Fault | None) -> list[str]:
        """Run the verb; what is wrong with how it ended."""
        self.failed = True
        try:
            report = self.case.run(self.home)
        except (SkipstoneError, OSError) as error:
            if fault is None or not self.names_what(error):
                return [f"an error that names no file: {error!r}"]
            return []
        except KeyboardInterrupt:
            return [] if fault is not None and fault.name == "SIGINT" else ["KeyboardInterrupt"]
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            return [f"{error!r} at {where.filename.rpartition('/src/')[2]}:{where.lineno}"]
        self.failed = bool(failures(report))
        return []

    def names_what(self, error: BaseException) -> bool:
        """Whether an error names a file."""
        return self.home in str(error) or bool(getattr(error, "filename", None))

    def after(self, *, whole: bool) -> list[str]:
        """What is wrong with what is there; ``whole``: the verb said that it was done."""
        told, at = list[str](), "rows after the fault"
        try:
            self.case.rows(self.home)
            if whole:
                at = "the result, though the verb said it was done"
                self.case.whole(self.home)
            at = "the next run"
            found = failures(self.case.again(self.home))
            assert not found, found
            at = "the result of the next run"
            self.case.whole(self.home)
            at = "vacuum"
            self.case.vacuum(self.home)
            self.case.rows(self.home)
            at = "what is left"
            if self.allowed:
                left = self.left() - self.allowed
                assert not left, sorted(left)[:4]
        except (KeyboardInterrupt, Exception) as error:
            where = traceback.extract_tb(error.__traceback__)
            own = [each for each in where if "/src/" in each.filename] or where
            last = f"{own[-1].filename.rpartition('/src/')[2]}:{own[-1].lineno}"
            told.append(f"{at}: {type(error).__name__} {str(error)[:400]} ({last})")
        return told

    def trial(self, fault: Fault, step: int) -> bool:
        """One trial; False where the verb has no such step."""
        self.reset()

        def work() -> list[str]:
            self.shim.arm(self.home, fault.what, fault.action, step, fault.value)
            told = self.outcome(fault)
            self.shim.disarm()
            if not self.shim.was_hit:
                return []
            unlinks = self.shim.last.startswith(("unlink", "rmdir"))
            if self.failed and not fault.ends and not unlinks:
                made = [each for each in temporary(self.home) if each not in self.before]
                told += [f"left by a failed run: {each}" for each in made]
            return told + self.after(whole=not self.failed)

        found = self.child(work)
        if isinstance(found, int):
            if not fault.ends or found not in (-signal.SIGKILL, -signal.SIGTERM):
                found = [f"ended by signal {-found}"]
            else:
                found = self.child(lambda: self.after(whole=False))
        hit = self.shim.was_hit
        if hit or found:
            self.total.trials[fault.name] += 1
            where = self.shim.last.replace(self.home, "")
            self.tell(f"{fault.name} at step {step} ({where})", found)
        return self.shim.count > step

    def tell(self, what: str, found: Any) -> None:
        texts = [f"a process ended by signal {-found}"] if isinstance(found, int) else found
        for text in texts:
            self.total.findings.append(f"{self.case.name}: {what}: {text}")

    # -- all of them ----------------------------------------------------------------------------

    def run(self, faults: tuple[Fault, ...] = FAULTS, *, every: int = 1, drawn: int = 2) -> Total:
        """Every ``every``-th step with each fault; then the losses of power."""
        started = time.monotonic()
        self.learn()
        reached = self.each_step(faults, every)
        self.total.steps = reached.get("kill", 0)
        self.total.reads = reached.get("EIO on reads", 0)
        if drawn >= 0 and len(self.total.findings) < ENOUGH:
            self.losses_of_power(every, drawn)
        self.total.seconds = time.monotonic() - started
        return self.total

    def each_step(self, faults: tuple[Fault, ...], every: int) -> dict[str, int]:
        """Every ``every``-th step with each fault; how many steps there were, by fault."""
        reached: dict[str, int] = {}
        for fault in faults:
            step = self.seed % every
            while len(self.total.findings) < ENOUGH and self.trial(fault, step):
                step += every
            reached[fault.name] = step
        return reached

    def losses_of_power(self, every: int, drawn: int) -> None:
        """All states that the medium may be in after each call of one run."""
        self.reset()
        place = Path(self.home).with_name(Path(self.home).name + ".log")
        log = os.open(place, os.O_CREAT | os.O_TRUNC | os.O_RDWR)

        def work() -> list[str]:
            self.shim.arm(self.home, shims.CHANGES, shims.COUNT, log=log)
            told = self.outcome(None)
            self.shim.disarm()
            return told

        self.expect_nothing("run", self.child(work))
        os.close(log)
        done = list(calls(place.read_bytes()))
        place.unlink()
        medium, rng, seen = Medium(self.home, self.before), random.Random(self.seed), set[int]()
        for at in range(len(done) + 1):
            if at:
                medium.apply(done[at - 1])
            if at % every and at < len(done):
                continue
            for state in medium.states(rng, drawn):
                # A file as it was before is the same in all states.
                key = hash(
                    frozenset((n, "" if isinstance(v, Entry) else v) for n, v in state.items())
                )
                if key in seen or len(self.total.findings) >= ENOUGH:
                    continue
                seen.add(key)
                self.place(state)
                self.total.trials["loss of power"] += 1
                last = done[at - 1] if at else None
                what = "" if last is None else f" ({last.kind} {last.path})".replace(self.home, "")
                # What was done before the loss is durable: a run that was over is whole.
                over = at == len(done) and self.case.durable
                told = self.child(lambda over=over: self.after(whole=over))  # type: ignore[misc]
                self.tell(f"loss of power after call {at} of {len(done)}{what}", told)

    def place(self, state: dict[str, bytes | Entry | None]) -> None:
        """Make the files of ``state``."""
        wanted: dict[str, Entry] = {}
        for name, content in state.items():
            if isinstance(content, Entry):
                wanted[name] = content
            else:
                mode = 0o755 if content is None else 0o644
                wanted[name] = Entry(content, mode, time.time_ns(), (0, 0))
        restore(self.home, wanted)


def temporary(home: str) -> list[str]:
    """The temporary files below ``home``, from there."""
    return sorted(os.path.relpath(each, home) for each in Path(home).rglob("_tmp-*"))


def failures(report: object) -> list[str]:
    """The files that a report says failed."""
    found = [f"{path}: {why}" for path, why in getattr(report, "files_failed", ())]
    files = getattr(report, "files", ())
    found += [
        f"{each.path}: {each.why}"
        for each in (files if isinstance(files, tuple | list) else ())
        if getattr(each, "outcome", "") == "failed"
    ]
    refreshed = getattr(report, "refreshed", None)
    found += [] if refreshed is None else failures(refreshed)
    if type(report).__name__ in ("VacuumReport", "ExportReport"):  # what it could not read
        return [*map(str, getattr(report, "notes", ())), *map(str, getattr(report, "left_out", ()))]
    return found + [note for note in getattr(report, "notes", ()) if "not refreshed" in note]
