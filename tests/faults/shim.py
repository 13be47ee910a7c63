"""The library that counts calls: compiled where there is a C compiler, controlled by ``ctypes``."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
CHANGES, READS = 1, 2
COUNT, KILL, TORN, FAIL, FULL, SIGNAL = range(6)


def compiler() -> str | None:
    """A C compiler for Linux, or ``None``."""
    if not Path("/proc/self/fd").is_dir():
        return None
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def compiled(folder: Path) -> Path:
    """The library, below ``folder``."""
    made = folder / "shim.so"
    found = compiler()
    assert found is not None
    command = [found, "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(made), str(SOURCE)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return made


def environment(library: Path) -> dict[str, str]:
    """That of a process in which calls are counted."""
    return {**os.environ, "LD_PRELOAD": str(library)}


class Shim:
    """The loaded library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_last.restype = ctypes.c_char_p
        self._library.faults_count.restype = ctypes.c_long
        self._library.faults_hits.restype = ctypes.c_long

    def arm(
        self, root: str, what: int, action: int, step: int = -1, value: int = 0, log: int = -1
    ) -> None:
        """From now on calls below ``root`` count; at ``step`` (from 0) ``action`` happens.

        ``value`` is an errno or a signal, ``log`` a descriptor for what was done.
        """
        name = os.fsencode(root)
        self._library.faults_arm(name, what, action, ctypes.c_long(step), value, log)

    def disarm(self) -> None:
        """No call counts any more."""
        self._library.faults_disarm()

    @property
    def count(self) -> int:
        """The steps since ``arm``."""
        return int(self._library.faults_count())

    @property
    def was_hit(self) -> bool:
        """Whether the action happened."""
        return int(self._library.faults_hits()) > 0

    @property
    def last(self) -> str:
        """The call where it happened, and its path."""
        return os.fsdecode(self._library.faults_last())
