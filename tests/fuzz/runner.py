"""Mutations of one parser's files, in child processes that may die.

The parent makes the files, and forks a child that has everything imported. The child damages one
file after the other and asks the parser; it notes each mutation in shared memory before it begins.
What ends a child (a signal, the limit on time) is a finding of that mutation, and a new child goes
on behind it. Every other finding is noted by the child itself. The kinds:

    abort     the process ended by a signal
    hang      one mutation took longer than the limit
    memory    an allocation failed under the limit
    foreign   an exception that is none of ours
    wrong     a result that is not that of the undamaged data

A mutation is made again by ``mutated(data, seed)``; its bytes are kept in the output directory.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import random
import resource
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.errors import SkipstoneError
from tests.fuzz.mutate import mutated
from tests.fuzz.tables import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fuzz.parsers import Parser


_CELLS = struct.Struct("<6q")  # the next mutation, tried, refused, accepted, calls, findings
_HUNG = 97
_TEXT = (
    b"'", b'"', b"\\", b"(", b")", b"{", b"}", b"[", b"]", b",", b":", b"=", b"null", b"-1",
    b"1e999", b"9" * 25, b"\\u0000", b"\xff", b"\0", b"\n", b"true", b"NOT ", b" AND ", b"0x",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """``memory``: bytes beyond what the libraries take; ``seconds`` for one mutation."""

    memory: int = 2 << 30
    seconds: float = 30.0


@dataclass(slots=True)
class Summary:
    """What came of one parser; ``findings`` as in the file of that name."""

    parser: str
    seed: int
    mutations: int = 0
    refused: int = 0
    accepted: int = 0
    calls: int = 0
    seconds: float = 0.0
    findings: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = Counter(each["kind"] for each in self.findings)
        found = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
        return (
            f"{self.parser:<14}{self.mutations:>10,} mutations from seed {self.seed:,}"
            f"{self.refused:>10,} refused{self.accepted:>10,} accepted   findings: {found}"
            f"   ({self.seconds:,.0f} s)"
        )


def fuzz(
    name: str,
    parser: Parser,
    *,
    mutations: int,
    seed: int = 0,
    limits: Limits | None = None,
    out: Path | None = None,
) -> Summary:
    """The mutations ``seed … seed + mutations - 1`` of the parser's files; see the module."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        return _Run(name, parser, seed, mutations, limits or Limits(), Path(folder), out).run()


@dataclass(slots=True)
class _Run:
    name: str
    parser: Parser
    seed: int
    mutations: int
    limits: Limits
    folder: Path
    out: Path | None
    cells: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, _CELLS.size))

    def run(self) -> Summary:
        began = time.monotonic()
        home = self.folder / "files"
        home.mkdir()
        files = [(path, path.read_bytes()) for path in sorted(self.parser.files(home))]
        assert files, f"{self.name} has no files"
        self._write(self.seed, 0, 0, 0, 0, 0)
        log = self.folder / "findings.jsonl"
        while self._read()[0] < self.seed + self.mutations:
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                self._child(files, log)
            status = os.waitpid(pid, 0)[1]
            at = self._read()[0]
            if os.WIFEXITED(status) and not os.WEXITSTATUS(status):
                break
            stack = (self.folder / "stack.txt").read_text()[-2000:]
            if os.WIFSIGNALED(status):
                told = f"signal {os.WTERMSIG(status)}"
                self._note(log, files, at, "abort", told, stack)
            elif os.WEXITSTATUS(status) in (1, _HUNG):
                told = f"more than {self.limits.seconds} s"
                self._note(log, files, at, "hang", told, stack)
            else:
                raise RuntimeError(f"{self.name} ended with {status} at {at}: {stack}")
            _, tried, *rest = self._read()
            self._write(at + 1, tried + 1, *rest)
        _, tried, refused, accepted, calls, _ = self._read()
        lines = log.read_text().splitlines() if log.exists() else []
        return Summary(
            self.name, self.seed, tried, refused, accepted, calls, time.monotonic() - began,
            [json.loads(line) for line in lines],
        )  # fmt: skip

    def _read(self) -> tuple[int, ...]:
        return _CELLS.unpack_from(self.cells)

    def _write(self, *values: int) -> None:
        _CELLS.pack_into(self.cells, 0, *values)

    def _data(self, files: Sequence[tuple[Path, bytes]], at: int) -> tuple[Path, bytes]:
        path, data = files[at % len(files)]
        return path, _text(data, at) if self.parser.text else mutated(data, at)

    def _child(self, files: Sequence[tuple[Path, bytes]], log: Path) -> None:
        """Goes through the mutations that are left; never returns."""
        code = 3
        try:
            stack = (self.folder / "stack.txt").open("w")
            faulthandler.enable(stack)
            # Each damaged index is warned of. The findings are in the log.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            limit = taken + self.limits.memory
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            at, tried, refused, accepted, calls, findings = self._read()
            for seed in range(at, self.seed + self.mutations):
                self._write(seed, tried, refused, accepted, calls, findings)
                faulthandler.dump_traceback_later(self.limits.seconds, exit=True, file=stack)
                path, data = self._data(files, seed)
                path.write_bytes(data)
                asks = self.parser.asks
                attempt = _Attempt(lambda *found, seed=seed: self._note(log, files, seed, *found))
                try:
                    asks[seed // len(files) % len(asks)](path, attempt)
                except Exception as error:
                    attempt.note(error)
                path.write_bytes(files[seed % len(files)][1])
                tried, calls = tried + 1, calls + attempt.calls
                refused, accepted = refused + attempt.refused, accepted + (not attempt.refused)
                self._write(seed + 1, tried, refused, accepted, calls, findings)
            code = 0
        except BaseException:
            (self.folder / "stack.txt").write_text(traceback.format_exc())
        finally:
            os._exit(code)

    def _note(
        self, log: Path, files: Sequence[tuple[Path, bytes]], seed: int, kind: str, told: str,
        where: str,
    ) -> None:  # fmt: skip
        path, data = self._data(files, seed)
        asks = self.parser.asks
        finding = {
            "parser": self.name, "kind": kind, "seed": seed, "file": path.name,
            "ask": seed // len(files) % len(asks), "told": told[:500], "where": where,
        }  # fmt: skip
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            kept = self.out / f"{self.name}-{seed}-{path.name}"
            kept.write_bytes(data)
            finding["bytes"] = str(kept)
        with log.open("a") as lines:
            lines.write(json.dumps(finding) + "\n")


class _Attempt:
    """Calls one function of the public API: what it gives, or ``None`` where it is refused."""

    def __init__(self, note: Callable[[str, str, str], None]) -> None:
        self._note, self.refused, self.calls = note, False, 0

    def __call__(self, call: Callable[..., Any], *arguments: object) -> Any:
        self.calls += 1
        try:
            return call(*arguments)
        except Exception as error:
            self.note(error)
            return None

    def note(self, error: Exception) -> None:
        """A refusal, or a finding."""
        self.refused = True
        if isinstance(error, SkipstoneError):
            return
        out_of_memory = isinstance(error, MemoryError | pa.ArrowMemoryError)
        kind = "memory" if out_of_memory else "wrong" if isinstance(error, Wrong) else "foreign"
        where = "".join(traceback.format_tb(error.__traceback__)[-8:])
        self._note(kind, f"{type(error).__name__}: {error}", where)


def _text(data: bytes, seed: int) -> bytes:
    """A text with a token put in, a piece cut, doubled or moved, or a byte changed."""
    chance = random.Random(seed)
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        at, size = chance.randrange(len(out) + 1), chance.choice((1, 1, 2, 5, 20))
        match chance.randrange(6):
            case 0 | 1:
                out[at:at] = chance.choice(_TEXT) * chance.choice((1, 1, 1, 2, 3_000))
            case 2:
                del out[at : at + size]
            case 3:
                source = chance.randrange(len(out) + 1)
                out[at:at] = out[source : source + size]
            case 4:
                out[at : at + size] = bytes(chance.randrange(256) for _ in range(size))
            case _:
                out[at : at + 1] = chance.choice(_TEXT)
    return bytes(out)
