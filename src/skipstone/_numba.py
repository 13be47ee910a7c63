"""Decides when compiled kernels load, and compiles them. No other module imports numba on its own.

Every compiled kernel has a twin in plain Python or NumPy with the same results. The import of numba
takes 0.4 s. A kernel takes seconds to compile on its first use on a machine, and milliseconds
later: a folder keeps the machine code. So a process loads a module of kernels once the work pays
for it. ``CompiledKernels`` states that rule as data. Work has any unit (bytes, values, seconds):

    numba is not imported       load for one call of ``once``, or after ``total`` in all calls
    numba is imported already   load for ``share`` of these
    the kernels are loaded      use them for calls of ``least`` and more

``total`` is chosen so that the plain twins cost at most as much as the loading. So the process
takes at most twice the time of one that knew all its work in advance. ``NUMBA_DISABLE_JIT`` keeps
every kernel plain. So does a module that fails to load.

A module of kernels is named by a string: it imports its plain twin, the twin does not import it.

Kernels that take long to compile have a ``patience``: another thread loads them, by the function
``warm_up`` of their module, and the plain twins run until they are there. The caller waits for the
patience alone, which is enough where the machine code is on disk. Where it is not, the thread stops
before it compiles anything: numba holds the GIL, and would slow down the plain twins, which release
it often. A child process of low priority compiles into the folder, and then the thread loads them.
When its parent ends, the child ends after the kernel that it compiles, at least one. The parent
does not wait for it; the next process goes on, because each kernel is on disk by itself. Several
processes have a child each, but only one child at a time compiles into a folder.

A process that is forked while such a thread imports, loads or compiles stays with the plain twins
of what is not loaded: locks that the thread holds are never released in the fork.

The thread compiles where no child can do it: nothing is kept on disk, ``sys.executable`` is not
Python, or the child failed. Then a process that ends waits for one kernel at most.

Modules of many kernels, of which a process needs few, have the kernels of ``plain`` in place of the
patience. Each kernel loads when it is called. The first one that is not on disk starts the child,
and until it ends all calls go to the plain kernels.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import field, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from zlib import crc32

from skipstone._dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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
    plain: K | None = None
    spent: float = field(default=0.0, init=False)
    disabled: bool = False
    _loaded: K | None = field(default=None, init=False)
    _mixed: K | None = field(default=None, init=False)
    _compiler: threading.Thread | None = field(default=None, init=False)
    _settled: threading.Event = field(default_factory=threading.Event, init=False)
    _waits_until: float = field(default=0.0, init=False)
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
        """Whether the kernels are loaded, or may be after ``work`` more."""
        if self.disabled:
            return False
        return self.is_loaded or self.spent + work >= min(self.once, self.total) * self.share

    def load(self) -> K:
        """The kernels, for any amount of work. Raises the errors of their module. A kernel that is
        not on disk is compiled when it is called."""
        if self._loaded is None or not self.is_loaded:
            self._loaded = _compiled(self.module)
        return self._loaded

    def _load_or_plain(self, plain: K) -> K | None:
        """The kernels, each with its plain twin; ``None`` while a child process compiles them."""
        choice = _OrPlain.of(self.module)
        if self._mixed is None:
            self._mixed = choice.mixed(self.load(), plain)
        return None if choice.is_compiling else self._mixed

    def _load_or_none(self) -> K | None:
        if self.disabled:
            return None
        if _IN_FORK.is_set():  # only what ``warm_up`` has loaded takes no lock
            return self._loaded if self.patience is not None else None
        try:
            if os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0"):
                if self.patience is not None:
                    return self._load_patiently()
                return self.load() if self.plain is None else self._load_or_plain(self.plain)
        except Exception as error:  # the plain twin works everywhere
            self._log_failure(error)
        self.disabled = True
        return None

    def _log_failure(self, error: Exception) -> None:
        # An installation without numba is a choice; ``skipstone doctor`` shows it.
        missing = isinstance(error, ModuleNotFoundError) and error.name == "numba"
        level = logging.INFO if missing else logging.WARNING
        log.log(level, "%s does not load, plain code runs instead: %r", self.module, error)

    def _load_patiently(self) -> K | None:
        """The kernels, or ``None`` while they are compiled."""
        if self._loaded is None:
            with self._lock:
                if self._compiler is None:
                    _COMPILING.add(self)
                    self._compiler = threading.Thread(target=self._compile, name="skipstone-jit")
                    self._waits_until = time.monotonic() + (self.patience or 0.0)
                    self._compiler.start()
            rest = self._waits_until - time.monotonic()
            if rest > 0:
                self._settled.wait(rest)
        return self._loaded

    def _compile(self) -> None:
        try:
            kernels = _compiled(self.module)
            warm_up = sys.modules[self.module].warm_up
            try:
                _from_disk_alone(warm_up, _UntilExit(kernels))
            except _NotOnDiskError as error:
                self._settled.set()
                _compile_in_child(self.module, error.folder)
                warm_up(_UntilExit(kernels))
            self._loaded = kernels
        except _ExitingError:
            return
        except Exception as error:  # the plain twin works everywhere
            self._log_failure(error)
            self.disabled = True
        finally:
            self._settled.set()
            _COMPILING.discard(self)


# Those whose thread imports, loads or compiles. A fork of the process lacks the thread, and locks
# that it held stay locked, some of them numba's: a fork goes on with what it can call.
_COMPILING: Final = set[CompiledKernels[Any]]()
_IN_FORK: Final = threading.Event()

# numba's modules import each other: two threads that import it at once may find one half made.
_IMPORTING = threading.RLock()


def _after_fork() -> None:
    if _COMPILING or not _IMPORTING.acquire(blocking=False):
        _IN_FORK.set()
    else:
        _IMPORTING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _compiled(module: str) -> Any:
    with _IMPORTING:
        return import_module(module).compiled()


class _ExitingError(Exception):
    """Ends the thread or child that compiles, because the process that needs the kernels ends."""


class _UntilExit:
    """Wraps kernels: a call raises ``_ExitingError`` once the main thread has ended."""

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels

    def __getattr__(self, name: str) -> Any:
        self.check()
        return getattr(self._kernels, name)

    def __call__(self, *arguments: Any) -> Any:
        self.check()
        return self._kernels(*arguments)

    @staticmethod
    def check() -> None:
        if not threading.main_thread().is_alive():
            raise _ExitingError


class _NotOnDiskError(Exception):
    """Raised in place of compiling a kernel that ``folder`` would keep."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.folder = folder


# ``refuses`` is set in threads that do not compile.
_THREAD = threading.local()


def _refuse(folder: str) -> None:
    if getattr(_THREAD, "refuses", False):
        raise _NotOnDiskError(folder)


@cache
def _listen(check: Callable[[str], None]) -> None:
    """Calls ``check`` with the folder before a kernel is compiled that numba keeps on disk."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            folder = event.data["dispatcher"].stats.cache_path
            if folder is not None:  # it is ``None`` for functions that kernels call
                check(str(folder))

        def on_end(self, event: Any) -> None:
            pass

    register: Callable[..., None] = event.register
    register("numba:compile", Listener())


def _from_disk_alone(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Calls ``kernel``; raises ``_NotOnDiskError`` instead of compiling what a child could."""
    if not is_imported() or _interpreter() is None:
        return kernel(*arguments)
    _listen(_refuse)
    _THREAD.refuses = True
    try:
        return kernel(*arguments)
    finally:
        _THREAD.refuses = False


class _OrPlain:
    """Kernels of ``module`` that load when they are called, and plain ones while a child compiles
    what is not on disk."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._child: threading.Thread | None = None
        self._has_compiled = False

    @staticmethod
    @cache
    def of(module: str) -> _OrPlain:
        return _OrPlain(module)

    @property
    def is_compiling(self) -> bool:
        return self._child is not None and not self._has_compiled

    def mixed(self, kernels: Any, plain: Any) -> Any:
        """A dataclass like ``kernels`` whose fields call the kernel or its plain twin."""
        names = [each.name for each in fields(kernels)]
        calls = [self._call(getattr(kernels, name), getattr(plain, name)) for name in names]
        return type(kernels)(**dict(zip(names, calls, strict=True)))

    def _call(self, kernel: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if self._has_compiled:
                return kernel(*arguments)
            if self._child is None:
                try:
                    return _from_disk_alone(kernel, *arguments)
                except _NotOnDiskError as error:
                    self._start(error.folder)
            return plain(*arguments)

        return call

    def _start(self, folder: str) -> None:
        with self._lock:
            if self._child is None:
                self._child = threading.Thread(
                    target=self._compile, args=(folder,), name="skipstone-jit"
                )
                self._child.start()

    def _compile(self, folder: str) -> None:
        with suppress(_ExitingError):
            _compile_in_child(self._module, folder)
        self._has_compiled = True


@cache
def _interpreter() -> str | None:
    """The Python interpreter for a child; none in an application that embeds Python or is
    frozen."""
    name = Path(sys.executable or "").name.lower()
    is_python = name.startswith(("python", "pypy")) and not hasattr(sys, "frozen")
    return sys.executable if is_python else None


# The path is set before anything is imported, so that the child imports what the parent does.
_CHILD: Final = (
    "import sys; sys.path[:] = sys.argv[4:]; from skipstone import _numba; "
    "_numba.compile_to_disk(*sys.argv[1:4])"
)
# Seconds between two checks of whether another process has ended.
_POLL_SECONDS: Final = 0.1
_NICE: Final = 10


def _compile_in_child(module: str, folder: str) -> None:
    """Compiles in a child process; returns when it has ended, whether or not it succeeded."""
    import subprocess

    # What this process does not import or run at its start, the child does not either.
    times = {"I": sys.flags.isolated, "E": sys.flags.ignore_environment}
    times |= {"s": sys.flags.no_user_site, "S": sys.flags.no_site, "O": sys.flags.optimize}
    options = ["-" + letter * count for letter, count in times.items() if count]
    given = [module, folder, str(os.getpid()), *sys.path]
    # Windows has priorities in place of ``nice``, and opens a console.
    flags = ("CREATE_NO_WINDOW", "BELOW_NORMAL_PRIORITY_CLASS")
    try:
        child = subprocess.Popen(
            [_interpreter() or "", *options, "-c", _CHILD, *given],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            creationflags=sum(getattr(subprocess, flag, 0) for flag in flags),
        )
    except (OSError, TypeError, ValueError) as error:  # ``sys.path`` may hold anything
        log.info("no process compiles %s: %r", module, error)
        return
    try:
        while child.poll() is None:
            threading.main_thread().join(_POLL_SECONDS)
            _UntilExit.check()
    except _ExitingError:
        if os.name == "nt":
            child.terminate()
        child.returncode = 0  # it ends by itself: ``Popen`` is not to warn
        raise
    if child.returncode:
        log.info("the process that compiles %s ended with %d", module, child.returncode)


def compile_to_disk(module: str, folder: str, parent: str) -> None:
    """Runs in the child process: compiles the kernels of ``module``, which numba keeps on disk."""
    import signal

    # An interrupt from the keyboard is for the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(_NICE)
    compiled = list[str]()

    def check(folder: str) -> None:
        if compiled:
            _end_without(int(parent))
        compiled.append(folder)

    _listen(check)
    _wait_for_others(folder, int(parent))
    compile_now(module)


def compile_now(module: str) -> None:
    """Compiles the kernels of ``module`` that are not on disk."""
    kernels = _compiled(module)
    sys.modules[module].warm_up(kernels)


def _end_without(parent: int) -> None:
    """Ends this child if its parent has ended; Windows does not show that."""
    if os.name != "nt" and os.getppid() != parent:
        raise _ExitingError


def _wait_for_others(folder: str, parent: int) -> None:
    """Waits for the lock of this folder, if there are locks, and holds it until this child ends."""
    with suppress(ImportError, OSError):
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _end_without(parent)
                time.sleep(_POLL_SECONDS)
            else:
                return


def is_imported() -> bool:
    """Whether this process has imported numba already."""
    return "numba" in sys.modules


def compile_kernel(
    function: Callable[..., Any],
    *,
    over: Sequence[ModuleType] = (),
    **options: Any,
) -> Callable[..., Any]:
    """``function``, which calls functions of the modules ``over``, as machine code that runs
    without the GIL.

    The code is kept on disk, so that only the first process on a machine compiles it, unless a
    source is unreadable. numba names the files after the function, and detects stale code only by
    the source of that. A process that is killed may leave an index of new code that names old
    code. So the name has checksums of all sources, and says numba's version and BOUNDSCHECK.
    """
    import numba

    code = function.__code__
    sources = {str(code.co_filename), *(str(module.__file__) for module in over)}
    checksums = tuple(map(_checksum, sorted(sources)))
    version = numba.__version__, bool(getattr(numba.config, "BOUNDSCHECK", None)), checksums
    named = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    named.__qualname__ = f"{function.__qualname__}_{crc32(repr(version).encode()):08x}"
    made: Any = numba.njit(nogil=True, **options)(named)
    kernel: Callable[..., Any] = made
    if None not in checksums:
        with suppress(RuntimeError):  # no folder for the cache can be written
            made._cache = _files_of_code()(named)
    return kernel


@cache
def _files_of_code() -> Any:
    """numba's class for the machine code of a function on disk, for which damaged files are as if
    they were not there, and code that cannot be written is not kept."""
    from numba.core.caching import FunctionCache

    class Files(FunctionCache):
        def load_overload(self, *arguments: Any) -> Any:
            numbas: Any = super()
            try:
                return numbas.load_overload(*arguments)
            except Exception as error:  # a damaged pickle may raise anything
                log.info("machine code in %s cannot be read: %r", self.cache_path, error)
                return None

        def save_overload(self, *arguments: Any) -> None:
            numbas: Any = super()
            try:
                numbas.save_overload(*arguments)
            except Exception as error:
                log.info("machine code in %s cannot be written: %r", self.cache_path, error)
                with suppress(Exception):
                    numbas.flush()  # an index that cannot be read
                    numbas.save_overload(*arguments)

    return Files


@cache
def _checksum(source: str) -> int | None:
    """The CRC-32 of a file, or of one in our archive; ``None`` if it cannot be read."""
    try:
        return crc32(globals()["__loader__"].get_data(source))
    except (OSError, AttributeError):
        return None
