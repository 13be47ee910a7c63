"""When compiled kernels load; and that plain code runs where they do not."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

from skipstone import errors
from skipstone._numba import CompiledKernels, compile_kernel

NAME = "made_for_tests"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of kernels that loads, in a process without numba."""
    module = types.ModuleType(NAME)
    module.__dict__["compiled"] = lambda: "kernels"

    def load(name: str) -> types.ModuleType:
        monkeypatch.setitem(sys.modules, name, module)
        return module

    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr("skipstone._numba.import_module", load)
    return module


@pytest.mark.usefixtures("made")
def test_one_large_call_loads_and_small_ones_stay_plain() -> None:
    kernels = CompiledKernels[str](module=NAME, once=100, share=0.5, least=10)
    assert [kernels.for_work(99) for _ in range(5)] == [None] * 5
    assert kernels.for_work(100) == "kernels"
    assert kernels.for_work(10) == "kernels"
    assert kernels.for_work(9) is None


@pytest.mark.usefixtures("made")
def test_small_calls_add_up() -> None:
    kernels = CompiledKernels[str](module=NAME, total=100)
    assert [kernels.for_work(40) for _ in range(3)] == [None, None, "kernels"]
    assert kernels.for_work(0) == "kernels"


@pytest.mark.usefixtures("made")
def test_less_work_pays_where_numba_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", types.ModuleType("numba"))
    kernels = CompiledKernels[str](module=NAME, once=100, share=0.5)
    assert kernels.for_work(49) is None
    assert kernels.for_work(50) == "kernels"


def test_plain_code_runs_while_kernels_compile(made: types.ModuleType) -> None:
    compile, started = threading.Event(), threading.Event()

    def warm_up(kernels: str) -> None:
        started.set()
        assert compile.wait(60)

    kernels = CompiledKernels[str](module=NAME, once=0, patience=0.0)
    made.__dict__["warm_up"] = warm_up
    assert kernels.for_work(1) is None
    assert started.wait(60)
    assert kernels.for_work(1) is None
    compile.set()
    assert kernels._compiler is not None
    kernels._compiler.join(60)
    assert kernels.for_work(1) == "kernels"


def test_kernels_that_do_not_compile_stay_plain(
    made: types.ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    def warm_up(kernels: str) -> None:
        raise RuntimeError("no compiler")

    kernels = CompiledKernels[str](module=NAME, once=0, patience=60.0)
    made.__dict__["warm_up"] = warm_up
    assert kernels.for_work(1) is None
    assert kernels.disabled
    assert "no compiler" in caplog.text


@pytest.mark.usefixtures("made")
def test_numba_may_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    kernels = CompiledKernels[str](module=NAME, once=0)
    assert kernels.for_work(1) is None
    assert kernels.disabled


def test_a_module_that_fails_is_tried_once(caplog: pytest.LogCaptureFixture) -> None:
    kernels = CompiledKernels[str](module="skipstone.no_such_module", once=0)
    assert kernels.for_work(1) is None
    assert kernels.for_work(1) is None
    assert len(caplog.records) == 1
    with pytest.raises(ModuleNotFoundError):
        kernels.load()


def test_machine_code_is_kept_only_where_its_sources_are_known() -> None:
    gone = types.ModuleType("gone")
    gone.__file__ = "/no/such/file.py"
    for module in (errors, gone):
        kernel: Any = compile_kernel(_twice, over=[module])
        assert kernel(4) == 8
        assert (kernel.stats.cache_path is not None) == (module is errors)


def _twice(value: int) -> int:
    return 2 * value


def test_plain_code_does_the_same_where_numba_is_disabled() -> None:
    script = (
        "import sys\n"
        "import numpy as np\n"
        "from skipstone.parquet.values import ByteArrays\n"
        "from skipstone.parquet.encodings.dictionary import gather_bytes\n"
        "from skipstone.parquet.format.bloom_filter import xxh64_byte_arrays\n"
        "from skipstone.parquet.writing.chunk_statistics import BloomFilterBuilder\n"
        "values = ByteArrays.from_list([b'%d' % i for i in range(70_000)])\n"
        "assert gather_bytes(values, np.arange(70_000)) == values\n"
        "for column in (values, np.arange(70_000)):\n"
        "    filling = BloomFilterBuilder(70_000, 0.01)\n"
        "    filling.add(column)\n"
        "    print(len(np.unique(xxh64_byte_arrays(values))), filling.filter().num_bytes)\n"
        "assert 'numba' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["70000 131072"] * 2


def test_a_process_that_ends_waits_for_the_kernel_that_compiles_and_no_other() -> None:
    code = """
import sys, threading, types
from skipstone._numba import CompiledKernels

class Kernels:
    def first(self):
        threading.main_thread().join()
        print("first", flush=True)

    def second(self):
        print("second", flush=True)

made = types.ModuleType("made")
made.compiled = Kernels
made.warm_up = lambda kernels: (kernels.first(), kernels.second())
sys.modules["made"] = made
assert CompiledKernels(module="made", once=0, patience=0.0).for_work(1) is None
print("ends", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ends", "first"]
    assert done.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_fork_takes_no_lock_of_a_thread_that_it_lacks() -> None:
    code = """
import os, signal, sys, threading, types
from skipstone._numba import CompiledKernels

begun, ends = threading.Event(), threading.Event()

def module(name, compiled):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].compiled = compiled
    sys.modules[name].warm_up = print

def loads():
    begun.set()
    ends.wait()
    return "loaded"

module("slow", loads)
module("quick", lambda: "kernels")
slow = CompiledKernels(module="slow", once=0, patience=0.0)
quick = CompiledKernels(module="quick", once=0)
assert slow.for_work(1) is None
begun.wait()
if not (fork := os.fork()):
    signal.alarm(60)
    print("fork", quick.for_work(1), slow.for_work(1), flush=True)
    os._exit(0)
os.waitpid(fork, 0)
ends.set()
slow._compiler.join()
if not (fork := os.fork()):
    print("later fork", quick.for_work(1), slow.for_work(1), flush=True)
    os._exit(0)
os.waitpid(fork, 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if "fork" in line]
    assert lines == ["fork None None", "later fork kernels loaded"]


KERNELS = """
import os
from dataclasses import dataclass
from skipstone._numba import compile_kernel

@dataclass(frozen=True)
class Kernels:
    first: object
    second: object

def first(value):
    return value + 1

def second(value):
    return value + 2

def compiled():
    return Kernels(compile_kernel(first), compile_kernel(second))

def warm_up(kernels):
    kernels.first(1)
    if gate := os.environ.get("GATE"):
        open(gate).close()
    kernels.second(1)
"""
STATISTICS = """
def count(kernel):
    return sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values())
"""


def run(folder: Path, script: str, **environment: str) -> list[str]:
    """Lines that a process prints which has kernels, and no machine code on disk."""
    (folder / "kernels_on_disk.py").write_text(KERNELS)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", STATISTICS + script],
        env={
            "PYTHONPATH": ":".join([str(folder), *sys.path]),
            "NUMBA_CACHE_DIR": str(folder / "machine_code"),
            "PYTHONWARNINGS": "default:subprocess:ResourceWarning",
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "subprocess" not in done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


def test_a_child_compiles_what_is_not_on_disk(tmp_path: Path) -> None:
    script = """
import os
from skipstone._numba import CompiledKernels

kernels = CompiledKernels(module="kernels_on_disk", once=0, patience=600.0)
print(kernels.for_work(1))  # returns at once, whatever the patience
kernels._compiler.join()
found = kernels.for_work(1)
print(found.first(1), found.second(1), count(found.first), count(found.second))
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no child")
"""
    # The first kernel was missing, and both were loaded.
    assert run(tmp_path, script) == ["None", "2 3 (1, 1) (1, 0)", "no child"]
    loaded = run(tmp_path, script)
    assert loaded[0].startswith("Kernels(")
    assert loaded[1:] == ["2 3 (1, 0) (1, 0)", "no child"]


def test_machine_code_of_a_package_in_an_archive_is_kept(tmp_path: Path) -> None:
    package = Path(errors.__file__).parent
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as archive:
        archive.writestr("kernels_on_disk.py", KERNELS)
        for file in package.rglob("*.py"):
            archive.write(file, file.relative_to(package.parent))
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path / "packages.zip")!r})
import kernels_on_disk, skipstone
found = kernels_on_disk.compiled()
print("packages.zip" in skipstone.__file__, found.first(1), count(found.first))
"""
    assert [run(tmp_path, script) for _ in range(2)] == [["True 2 (0, 1)"], ["True 2 (1, 0)"]]


@pytest.mark.parametrize("module", ["kernel", "helper"])
def test_code_of_an_older_version_never_runs(tmp_path: Path, module: str) -> None:
    """Neither where a function of another module has changed, nor where the process that compiles
    the new version is killed between the writes of the index and of the code."""
    sources = {
        "helper": "from numba.extending import register_jitable\n"
        "@register_jitable\ndef one():\n    return 1\n",
        "kernel": "from helper import one\ndef more(value):\n    return value + one() + 0\n",
    }
    # Of other lengths: Python compiles a source again if its size or its second has changed.
    changed = {"helper": ("return 1", "return 3 + 0"), "kernel": ("+ 0", "+ 2 + 0")}
    script = """
import helper, kernel
from skipstone._numba import compile_kernel
print(compile_kernel(kernel.more, over=[helper])(1))
"""
    killed = """
import os
from numba.core.caching import IndexDataCacheFile
IndexDataCacheFile._save_data = lambda *arguments: os._exit(0)
"""
    for name, text in sources.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert run(tmp_path, script) == ["2"]
    (tmp_path / f"{module}.py").write_text(sources[module].replace(*changed[module]))
    assert run(tmp_path, killed + script) == []
    assert run(tmp_path, script) == ["4"]


def test_code_with_checks_and_code_without_are_kept_side_by_side(tmp_path: Path) -> None:
    script = """
import kernels_on_disk
kernel = kernels_on_disk.compiled().first
print(kernel(1), count(kernel))
"""
    compiled, loaded = ["2 (0, 1)"], ["2 (1, 0)"]
    for expected in (compiled, loaded):
        for checks in ("0", "1"):
            assert run(tmp_path, script, NUMBA_BOUNDSCHECK=checks) == expected


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("kept", [0, 0.5])
def test_damaged_machine_code_is_compiled_again(tmp_path: Path, suffix: str, kept: float) -> None:
    """A loss of power may cut files that were written before."""
    script = """
import kernels_on_disk
found = kernels_on_disk.compiled()
print(found.first(1), found.second(1), count(found.first), count(found.second))
"""
    compiled, loaded = "2 3 (0, 1) (0, 1)", "2 3 (1, 0) (1, 0)"
    assert [run(tmp_path, script), run(tmp_path, script)] == [[compiled], [loaded]]
    files = [*(tmp_path / "machine_code").rglob(f"*.{suffix}")]
    assert len(files) == 2
    for file in files:
        data = file.read_bytes()
        file.write_bytes(data[: int(len(data) * kept)])
    assert [run(tmp_path, script), run(tmp_path, script)] == [[compiled], [loaded]]


def test_machine_code_that_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    script = """
import resource, signal
import kernels_on_disk
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write fails as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
print(kernels_on_disk.compiled().first(1))
"""
    assert run(tmp_path, script) == ["2"]
    assert not [*(tmp_path / "machine_code").rglob("*.nbc")]


def test_calls_go_to_plain_kernels_while_a_child_compiles(tmp_path: Path) -> None:
    script = """
from kernels_on_disk import Kernels
from skipstone._numba import CompiledKernels, _OrPlain

plain = Kernels(lambda value: ("plain", value), None)
kernels = CompiledKernels(module="kernels_on_disk", once=0, plain=plain)
found = kernels.for_work(1)
print(found.first(1), kernels.for_work(1))
opened = os.open(os.environ["GATE"], os.O_RDWR)
_OrPlain.of("kernels_on_disk")._child.join()
print(found.first(1), kernels.for_work(1) is found)
print(count(kernels.load().first), count(kernels.load().second))
"""
    os.mkfifo(tmp_path / "gate")
    assert run(tmp_path, "import os" + script, GATE=str(tmp_path / "gate")) == [
        "('plain', 1) None",
        "2 True",
        "(1, 1) (0, 0)",
    ]


def test_a_child_runs_nothing_that_its_parent_was_told_to_leave_out(tmp_path: Path) -> None:
    (tmp_path / "kernels_on_disk.py").write_text(KERNELS)
    hooks, ran = tmp_path / "hooks", tmp_path / "ran"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(f"open({str(ran)!r}, 'w').close()")
    script = f"""
import sys
sys.path[:] = {[str(tmp_path), *sys.path]!r}
from skipstone._numba import CompiledKernels
kernels = CompiledKernels(module="kernels_on_disk", once=0, patience=600.0)
kernels.for_work(1)
kernels._compiler.join()
found = kernels.for_work(1)
print(found.first(1), sum(found.second.stats.cache_hits.values()) + found.second(1))
"""
    for option, runs in (("-I", False), ("-E", False), ("-B", True)):
        done = subprocess.run(
            [sys.executable, option, "-c", script],
            env={"PYTHONPATH": str(hooks), "NUMBA_CACHE_DIR": str(tmp_path / option)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "2 4\n", done.stderr  # a child has compiled it
        assert ran.exists() == runs


def test_the_process_compiles_where_its_child_fails(tmp_path: Path) -> None:
    script = """
import sys
from skipstone._numba import CompiledKernels

sys.executable = {python!r}
kernels = CompiledKernels(module="kernels_on_disk", once=0, patience=600.0)
kernels.for_work(1)
kernels._compiler.join()
found = kernels.for_work(1)
print(found.first(1), count(found.first), count(found.second))
"""
    (tmp_path / "python").symlink_to("/bin/false")
    for python, misses in (("python", 2), ("embeds", 1)):
        code = script.format(python=str(tmp_path / python))
        found = run(tmp_path, code, NUMBA_CACHE_DIR=str(tmp_path / f"code_of_{python}"))
        assert found == [f"2 (0, {misses}) (0, 1)"]


def test_a_child_does_not_go_on_without_its_parent(tmp_path: Path) -> None:
    script = """
import subprocess
from skipstone._numba import CompiledKernels

class Noted(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        print(self.pid, flush=True)

subprocess.Popen = Noted
kernels = CompiledKernels(module="kernels_on_disk", once=0, patience=0.0)
while kernels._compiler is None or not kernels._settled.is_set():
    kernels.for_work(1)
"""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    [pid] = run(tmp_path, script, GATE=str(gate))
    child = os.pidfd_open(int(pid))
    # It compiles one kernel, and then learns that it is alone.
    opened = os.open(gate, os.O_RDWR)
    ended = select.poll()
    ended.register(child, select.POLLIN)
    assert ended.poll(60_000)
    os.close(opened)
    os.close(child)
    kept = [each.name for each in (tmp_path / "machine_code").rglob("*.nbi")]
    assert len(kept) == 1
    assert "first" in kept[0]
