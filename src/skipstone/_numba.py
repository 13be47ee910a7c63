"""Decides when compiled kernels load, and compiles them. No other module imports numba on its own.

Every compiled kernel has a twin in plain Python or NumPy with the same results. The import of numba
takes 0.4 s. A kernel takes seconds to compile on its first use on a machine, and milliseconds
later: a folder keeps the machine code. So a process loads a module of kernels once the work pays
for it. ``CompiledKernels`` states that rule as data. Work has any unit (bytes, values, seconds):

    numba is not imported       load for one call of ``once``, or after ``total`` in all calls
    numba is imported already   load for ``share`` of these
    the kernels are loaded      use them for calls of ``least`` and more

The total bounds the loss: the plain twins cost at most as much as the loading, so the process takes
at most twice the time of one that knew all its work in advance. ``NUMBA_DISABLE_JIT`` keeps every
kernel plain. So does a module that fails to load.

A module of kernels is named by a string: it imports its plain twin, the twin does not import it.

Kernels that take long to compile have a ``patience``: another thread compiles them, by the function
``warm_up`` of their module, and the plain twins run until they are there. The caller waits for the
patience alone, which is enough where the machine code is on disk. A process that ends meanwhile
waits for one kernel at most; the next process goes on, because each is on disk by itself.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


log = logging.getLogger("skipstone")

K = TypeVar("K")


@dataclass(slots=True, eq=False, kw_only=True)
class CompiledKernels(Generic[K]):
    """The kernels of ``module``, whose function ``compiled`` returns them; see the module.

    Threads may share it. A sum that loses an addition to a race only loads the kernels later.
    """

    module: str
    once: float = math.inf
    total: float = math.inf
    share: float = 1.0
    least: float = 0.0
    patience: float | None = None
    spent: float = field(default=0.0, init=False)
    disabled: bool = False
    _loaded: K | None = field(default=None, init=False)
    _compiler: threading.Thread | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def is_loaded(self) -> bool:
        """Whether this process has imported the module."""
        return self.module in sys.modules

    def for_work(self, work: float) -> K | None:
        """The kernels if they pay for ``work``; otherwise ``None``, and the work is added up."""
        if self.is_loaded:
            return self._load_or_none() if work >= self.least else None
        self.spent += work
        share = self.share if is_imported() else 1.0
        pays = work >= self.once * share or self.spent >= self.total * share
        return self._load_or_none() if pays else None

    def may_load(self, work: float) -> bool:
        """Whether they are loaded, or may be after so much more work."""
        if self.disabled:
            return False
        return self.is_loaded or self.spent + work >= min(self.once, self.total) * self.share

    def load(self) -> K:
        """The kernels, for any amount of work. Raises the errors of their module."""
        if self._loaded is None or not self.is_loaded:
            self._loaded = _compiled(self.module)
        return self._loaded

    def _load_or_none(self) -> K | None:
        if self.disabled:
            return None
        try:
            if os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0"):
                return self.load() if self.patience is None else self._load_patiently()
        except Exception as error:  # the plain twin works everywhere
            self._say(error)
        self.disabled = True
        return None

    def _say(self, error: Exception) -> None:
        # An installation without numba is a choice; ``skipstone doctor`` shows it.
        missing = isinstance(error, ModuleNotFoundError) and error.name == "numba"
        level = logging.INFO if missing else logging.WARNING
        log.log(level, "%s does not load, plain code runs instead: %r", self.module, error)

    def _load_patiently(self) -> K | None:
        """The kernels, or ``None`` while another thread compiles them."""
        if self._loaded is None:
            with self._lock:
                if self._compiler is None:
                    self._compiler = threading.Thread(target=self._compile, name="skipstone-jit")
                    self._compiler.start()
                    self._compiler.join(self.patience)
        return self._loaded

    def _compile(self) -> None:
        try:
            kernels = _compiled(self.module)
            sys.modules[self.module].warm_up(_UntilExit(kernels))
            self._loaded = kernels
        except _ExitingError:
            return
        except Exception as error:  # the plain twin works everywhere
            self._say(error)
            self.disabled = True


# numba's modules import each other: two threads that import it at once may find one half made.
_IMPORTING = threading.RLock()


def _compiled(module: str) -> Any:
    with _IMPORTING:
        return import_module(module).compiled()


class _ExitingError(Exception):
    """The process ends."""


class _UntilExit:
    """Kernels that are no longer called once the main thread has ended."""

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels

    def __getattr__(self, name: str) -> Any:
        self._check()
        return getattr(self._kernels, name)

    def __call__(self, *arguments: Any) -> Any:
        self._check()
        return self._kernels(*arguments)

    @staticmethod
    def _check() -> None:
        if not threading.main_thread().is_alive():
            raise _ExitingError


def is_imported() -> bool:
    """Whether this process has imported numba already."""
    return "numba" in sys.modules


def compile_kernel(
    function: Callable[..., Any], *, cache: bool = True, **options: Any
) -> Callable[..., Any]:
    """``function`` as machine code that runs without the GIL.

    ``cache`` keeps the code on disk, so that only the first process on a machine compiles it.
    """
    from numba import njit

    if cache:
        try:
            kept: Callable[..., Any] = njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # no folder for the cache can be written
            pass
        else:
            return kept
    made: Callable[..., Any] = njit(nogil=True, **options)(function)
    return made


def compiler_over(*modules: ModuleType, **options: Any) -> Callable[..., Callable[..., Any]]:
    """``compile_kernel`` for kernels that call functions of other ``modules``.

    numba detects stale machine code by the file of the compiled function alone, but hashes what it
    closes over into the key of its cache. So each kernel closes over checksums of the sources, and
    over whether accesses are checked. It is not cached where a source cannot be read.
    """
    from numba import config

    def compiled(kernel: Callable[..., Any]) -> Callable[..., Any]:
        code = kernel.__code__
        sources = {str(code.co_filename), *(str(module.__file__) for module in modules)}
        checksums = tuple(map(_checksum, sorted(sources)))
        version = bool(getattr(config, "BOUNDSCHECK", None)), checksums
        # A function around the kernel would close over them as well, and be compiled, too.
        closing = FunctionType(
            code.replace(co_freevars=(*code.co_freevars, "_version")),
            kernel.__globals__,
            kernel.__name__,
            closure=(*(kernel.__closure__ or ()), CellType(version)),
        )
        return compile_kernel(closing, cache=None not in checksums, **options)

    return compiled


@cache
def _checksum(source: str) -> int | None:
    """``None`` where it cannot be read."""
    try:
        return crc32(Path(source).read_bytes())
    except OSError:
        return None
