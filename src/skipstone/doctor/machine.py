"""Python, the caches on disk, limits of the process, and which object stores are set up."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skipstone._numba import compile_now
from skipstone._version import __version__
from skipstone.human import plural, size

from .diagnosis import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator


OLDEST_PYTHON: Final = (3, 11)
#: fewer free bytes of a file system are noted
FEW_BYTES: Final = 1 << 30
_FEW_FILES: Final = 1024
# Their values may be secrets, so only the names are shown.
_OF_STORES: Final = ("AWS_", "AZURE_", "GOOGLE_", "HADOOP_CONF_DIR", "HADOOP_HOME", "CLASSPATH")


def python() -> Iterator[Finding]:
    """The interpreter, the machine, and this package."""
    found = platform.python_version()
    cores, memory = _cores(), _memory()
    old = sys.version_info[:2] < OLDEST_PYTHON
    yield Finding(
        area="python",
        state="problem" if old else "ok",
        text=f"{platform.python_implementation()} {found} on {platform.system()}"
        f" {platform.machine()}, {plural(cores, 'core')}, {size(memory)} of memory",
        hint="Skipstone needs Python 3.11 or newer" if old else "",
        values={
            "version": found,
            "executable": sys.executable,
            "platform": platform.platform(),
            "cores": cores,
            "memory_bytes": memory,
        },
    )
    home = str(_home())
    try:
        installed: str | None = version("skipstone")
    except PackageNotFoundError:
        installed = None  # an unpacked tree, or a zip
    values = {"version": __version__, "path": home, "installed": installed}
    yield Finding(area="skipstone", text=f"{__version__} in {home}", values=values)
    settings = {key: value for key, value in os.environ.items() if key.startswith("SKIPSTONE_")}
    if settings:
        named = ", ".join(f"{key}={value}" for key, value in sorted(settings.items()))
        yield Finding(area="skipstone", text=f"the environment sets {named}", values=settings)


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _home() -> Path:
    return Path(__file__).parent.parent


def _memory() -> int:
    """Bytes that this process may use: of the machine, or of its container."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            found = min(found, int(Path(place).read_text()))
        except (OSError, ValueError):  # no such limit
            continue
    return found


def caches() -> Iterator[Finding]:
    """Bytecode, and the machine code of compiled kernels: where, how much, and who may write."""
    home = _home()
    kept = [*home.rglob("__pycache__/*.pyc")]
    modules = [*home.rglob("*.py")]
    values = {"path": str(home), "modules": len(modules), "kept": len(kept)}
    if not modules:
        text = f"{home} is inside an archive: each process compiles the modules that it imports"
        yield Finding(area="caches", text=text, state="note", values=values, hint=_UNPACK)
    elif not kept and (sys.dont_write_bytecode or not os.access(home, os.W_OK)):
        text = "no bytecode is kept: each process compiles the modules that it imports"
        hint = f"run `python -m compileall -q {home}` once as its owner"
        yield Finding(area="caches", text=text, state="note", values=values, hint=hint)
    else:
        text = f"bytecode of {len(kept):,} of {len(modules):,} modules in {home}"
        yield Finding(area="caches", text=text, values=values)
    yield _machine_code(home, {path.stem for path in modules})


_UNPACK: Final = "install the wheel, or ship an environment in --archives, to start faster"


def _machine_code(home: Path, modules: set[str]) -> Finding:
    if importlib.util.find_spec("numba") is None:
        return Finding(
            area="caches",
            state="note",
            text="no numba: large scans and Bloom filters run as plain code, which is slower",
            hint="install numba",
        )
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return Finding(
            area="caches",
            state="note",
            text="NUMBA_DISABLE_JIT is set: no code is compiled",
            hint="unset NUMBA_DISABLE_JIT",
        )
    place, files = _numba_cache(home, modules)
    total = sum(file.stat().st_size for file in files)
    values = {"path": place and str(place), "files": len(files), "bytes": total}
    if place is None:
        return Finding(
            area="caches",
            state="note",
            text="machine code cannot be kept: each process compiles for seconds before it is fast",
            hint="set NUMBA_CACHE_DIR to a directory that this user can write",
            values=values,
        )
    held = (
        f"{size(total)} of machine code in {plural(len(files), 'file')}"
        if files
        else "no machine code yet: a child process compiles it during the first large scans, once"
    )
    return Finding(
        area="caches",
        text=f"{held}; numba keeps it in {place}",
        hint="" if files else "`skipstone doctor --compile` does it ahead of time",
        values=values,
    )


# Those of queries first. Together they take half a minute to compile.
KERNELS: Final = (
    "skipstone.parquet.reading.bulk_jit",
    "skipstone.parquet.encodings.jit",
    "skipstone.parquet.format.footer_jit",
    "skipstone.parquet.writing.many_pages_jit",
    "skipstone.storage.read_jit",
    "skipstone.storage.statx_jit",
    "skipstone.xskipper.format.bloom_probe_jit",
    "skipstone.parquet.format.bloom_jit",
    "skipstone.indexes.bloom_jit",
    "skipstone.parquet.pages.page_headers_jit",
)


def compile_kernels() -> None:
    """Compiles all kernels; numba keeps their machine code on disk."""
    for module in KERNELS:
        with suppress(Exception):  # the findings say what is missing, and plain code runs
            compile_now(module)


def _numba_cache(home: Path, modules: set[str]) -> tuple[Path | None, list[Path]]:
    """The directory where numba keeps machine code, and our files in it. The directories are tried
    in numba's order. Where it keeps the code next to each module, ``home`` stands for them all."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        shared: Path | None = Path(given)
    elif _writable(home / "parquet" / "reading" / "__pycache__"):
        return home, [*home.rglob("__pycache__/*.nb[ci]")]
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        shared = Path(caches) / "numba"
    if shared is None or not _writable(shared):
        return None, []
    found = shared.rglob("*.nb[ci]") if shared.is_dir() else ()
    return shared, [file for file in found if file.name.partition(".")[0] in modules]


def _writable(place: Path) -> bool:
    """Whether this user can write into ``place``, or can make it."""
    while not place.exists():
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def limits() -> Iterator[Finding]:
    """The temporary directory, and how many files may be open."""
    folder = tempfile.gettempdir()  # raises where no directory can be written
    free = shutil.disk_usage(folder).free
    few = free < FEW_BYTES
    yield Finding(
        area="machine",
        state="note" if few else "ok",
        text=f"temporary files in {folder}, {size(free)} free",
        hint=f"free some space in {folder}, or set TMPDIR" if few else "",
        values={"path": folder, "free_bytes": free},
    )
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= most < _FEW_FILES:
        yield Finding(
            area="machine",
            state="note",
            text=f"this process may open {most:,} files",
            hint="raise the limit: ulimit -n 4096",
            values={"open_files": most},
        )


def storages() -> Iterator[Finding]:
    """What is set up for object stores and HDFS: names of settings, and no value."""
    names = sorted(name for name in os.environ if name.startswith(_OF_STORES))
    said = f"the environment sets {', '.join(names)}" if names else "no key in the environment"
    text = f"local files; S3, GCS and Azure by obstore: {said}"
    yield Finding(area="storage", text=text, values={"environment": names})
