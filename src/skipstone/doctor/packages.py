"""The packages that Skipstone needs, Java, and Spark.

Packages with native code are imported in a process of their own: one that was built for another
processor ends the process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skipstone.human import duration, of_total, one_line

from .diagnosis import Finding, State, failed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession


#: what pip installs with Skipstone, and the oldest version that it works with
NEEDED: Final[Mapping[str, str]] = {
    "click": "8.1.7",
    "cramjam": "2.9",
    "cryptography": "43",
    "numba": "0.61",
    "numpy": "2.0",
    "obstore": "0.8",
    "pyarrow": "21",
    "pyroaring": "1.0.4",
    "sqlglot": "28",
    "xxhash": "3.5",
}
#: the message about an import that no ``try`` catches
ENDS: Final = "the process ends"
# Without these, plain code does the same; ``caches`` makes the note.
_OPTIONAL: Final = ("numba",)
_PATIENCE: Final = 120.0
_SLOW: Final = 5_000.0
# The oldest Java by the major version of Spark. Spark 3.5 runs on 8 and 11 too.
_JAVA: Final = {3: 8, 4: 17}
_IMPORTS: Final = """
import importlib, json, sys, time
for name in sys.argv[1:]:
    start, error = time.perf_counter(), None
    try:
        importlib.import_module(name)
    except BaseException as caught:
        error = f"{type(caught).__name__}: {caught}"
    print(json.dumps([name, error, 1000 * (time.perf_counter() - start)]), flush=True)
"""
_SESSION: Final = """
import sys, time
start = time.perf_counter()
from pyspark.sql import SparkSession
builder = SparkSession.builder.master(sys.argv[1]).appName("skipstone doctor")
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
print("spark", spark.version, round(1000 * (time.perf_counter() - start)), flush=True)
frame = spark.range(4).mapInArrow(lambda batches: batches, "id long")
print("rows", frame.count(), round(1000 * (time.perf_counter() - start)), flush=True)
spark.stop()
"""


def packages() -> Iterator[Finding]:
    """Each package that is needed: whether it is there, new enough, and can be imported."""
    found = {name: _version_of(name) for name in NEEDED}
    good, taken = [], 0.0
    imported = _import([name for name, held in found.items() if held is not None])
    for name, held in found.items():
        error, milliseconds = imported.get(name, (None, 0.0))
        taken += milliseconds
        if held is None and name in _OPTIONAL:
            continue
        if held is None:
            said = "is not installed"
        elif _numbers(held) < _numbers(NEEDED[name]):
            said = f"{held} is older than {NEEDED[name]}"
        elif error is not None:
            said = f"{held} cannot be imported: {one_line(error)}"
        else:
            good.append(f"{name} {held}")
            continue
        hint = f"pip install '{name}>={NEEDED[name]}'"
        yield Finding(area="packages", state="problem", text=f"{name} {said}", hint=hint)
    slow = taken > _SLOW
    yield Finding(
        area="packages",
        state="note" if slow else "ok",
        text=f"{of_total(len(good), len(found), 'packages')}, imported in {duration(taken)}: "
        + ", ".join(good),
        hint="imports are slow: install the packages on a local disk" if slow else "",
        values={"versions": found, "import_ms": round(taken)},
    )


def _version_of(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


def _import(names: Sequence[str]) -> dict[str, tuple[str | None, float]]:
    """The error of each import, and its milliseconds. NumPy comes first: others import it."""
    left = sorted(names, key=lambda name: (name != "numpy", name))
    found: dict[str, tuple[str | None, float]] = {}
    while left:
        code, out, _ = _run(_IMPORTS, *left)
        for line in out.splitlines():
            if line.startswith("["):
                name, error, milliseconds = json.loads(line)
                found[name] = (error, milliseconds)
        left = [name for name in left if name not in found]
        if left:
            found[left.pop(0)] = (f"{ENDS} with {_ending(code)}", 0.0)
    return found


def _run(code: str, *arguments: str) -> tuple[int, str, str]:
    """Runs Python code in a process that finds the packages that this one does."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        out = (late.stdout or b"").decode(errors="replace")
        return 1, out, f"no answer in {duration(1000 * _PATIENCE)}"
    return done.returncode, done.stdout, done.stderr


def _ending(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"


# -- Java and Spark --------------------------------------------------------------------------------


def java() -> Iterator[Finding]:
    """The Java that Spark would use, and whether this Spark runs on it."""
    spark, client = _spark()
    needs = _JAVA.get(_numbers(spark)[0], 17) if spark else 17
    missing: State = "problem" if spark and not client else "note"
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    hint = f"install a JRE of version {needs} or newer, and set JAVA_HOME"
    if program is None or not os.access(program, os.X_OK):
        where = f"no bin/java in JAVA_HOME ({home})" if home else "none found"
        text = f"{where}; only Spark needs one"
        yield Finding(area="java", state=missing, text=text, hint=hint)
        return
    done = subprocess.run(
        [program, "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=False
    )
    # 'openjdk version "17.0.15" 2025-04-15', 'java version "1.8.0_402"'
    match = re.search(r' version "((?:1\.)?(\d+)[^"]*)"', done.stderr + done.stdout)
    if done.returncode or match is None:
        text = f"{program} does not run: {one_line(done.stderr or done.stdout)}"
        yield Finding(area="java", state=missing, text=text, hint=hint)
        return
    old = spark is not None and int(match[2]) < needs
    yield Finding(
        area="java",
        state="problem" if old else "ok",
        text=f"{match[1]} at {program}" + (f", and Spark {spark} needs {needs}" if old else ""),
        hint=hint if old else "",
        values={"version": match[1], "path": program, "needed": needs},
    )


def _spark() -> tuple[str | None, bool]:
    """The version of the Spark that Python finds, and whether it is the client alone."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        return None, False
    client = _version_of("pyspark-client") is not None and _version_of("pyspark") is None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
        match = re.search(r"__version__[^'\"]*['\"]([^'\"]+)", text)
    except OSError:  # in a zip, as that of SPARK_HOME
        match = None
    return (match[1] if match else _release() or _version_of("pyspark")), client


def _release() -> str | None:
    """The version of the Spark in ``SPARK_HOME``, by the name of a jar."""
    jars = Path(os.environ.get("SPARK_HOME", "")) / "jars"
    for jar in jars.glob("spark-core_2.1*.jar"):
        return jar.stem.partition("-")[2].partition("-")[2]
    return None


def spark(session: SparkSession | str | None) -> Iterator[Finding]:
    """The Spark of this environment; whether a session and its Python workers start."""
    found, client = _spark()
    values: dict[str, Any] = {"version": found, "client": client, "home": _release()}
    if found is None:
        yield Finding(
            area="spark",
            state="note" if session is None else "problem",
            text="no PySpark: queries, and builds in this process, need none",
            hint="pip install 'skipstone[spark]', or run where a cluster has its own",
            values=values,
        )
        return
    yield from _of_versions(found, client=client, values=values)
    if session is None:
        text = "no session was tried: `skipstone doctor --spark` tries one"
        yield Finding(area="spark", text=text)
    elif isinstance(session, str):
        yield _started(session)
    else:
        yield from _live(session)


def _of_versions(found: str, *, client: bool, values: dict[str, Any]) -> Iterator[Finding]:
    here = f"{'client' if client else 'PySpark'} {found}"
    if _numbers(found) < (3, 5):
        hint = "use Spark 3.5 or newer; Skipstone without Spark works here"
        text = f"{here} is older than 3.5"
        yield Finding(area="spark", state="problem", text=text, hint=hint, values=values)
        return
    if _numbers(found)[0] < 4:
        here += ': no format("skipstone"), which needs 4.0; all else works'
    yield Finding(area="spark", text=here, values=values)
    home = values["home"]
    if home is not None and _numbers(home) != _numbers(found):
        text = f"PySpark {found} is installed, and SPARK_HOME holds Spark {home}"
        hint = f"use one of them: unset SPARK_HOME, or `pip install pyspark=={home}`"
        yield Finding(area="spark", state="problem", text=text, hint=hint)
    both = [name for name in ("pyspark", "pyspark-client") if _version_of(name)]
    if len(both) == 2:
        text = "pyspark and pyspark-client are both installed: they are the same Python package"
        hint = "pip uninstall pyspark-client, then pip install --force-reinstall --no-deps pyspark"
        yield Finding(area="spark", state="problem", text=text, hint=hint)
    if importlib.util.find_spec("pandas") is None:
        text = "no pandas, which Spark's mapInArrow demands: builds by Spark fail"
        yield Finding(area="spark", state="problem", text=text, hint="pip install 'pandas>=2.2,<3'")


def _started(master: str) -> Finding:
    """A session at ``master``, started and ended in another process."""
    code, out, err = _run(_SESSION, master)
    said = dict(line.split(maxsplit=1) for line in out.splitlines() if " " in line)
    if code == 0 and "rows" in said:
        text = f"a session at {master} starts, and its Python workers: {_seconds(said['rows'])}"
        return Finding(area="spark", text=text, values=said)
    if "spark" in said:
        what = f"a session at {master} starts, and its Python workers fail"
        hint = "workers need this Python: set PYSPARK_PYTHON, or ship it with --archives"
    else:
        what, hint = f"no session starts at {master}", "see Spark's message, and the line on Java"
    lines = [line.strip() for line in err.splitlines() if "rror" in line or "xception" in line]
    because = lines[-1] if lines else err.strip().rpartition("\n")[2]
    text = f"{what}: {one_line(because)}"
    return Finding(area="spark", state="problem", text=text, hint=hint)


def _seconds(said: str) -> str:
    return duration(float(said.split()[-1]))


def _live(session: SparkSession) -> Iterator[Finding]:
    """A session that the caller has."""
    try:
        frame = session.range(4).mapInArrow(lambda batches: batches, "id long")
        rows = frame.count()
    except Exception as error:
        yield failed("spark", "the Python workers of this session fail", error)
        return
    text = f"this session runs Spark {session.version}, and its Python workers start"
    yield Finding(area="spark", text=text, values={"session": session.version, "rows": rows})
    if _numbers(session.version)[:2] != _numbers(str(_spark()[0]))[:2]:
        text = f"Spark {session.version} is served, and the Python side is {_spark()[0]}"
        yield Finding(area="spark", state="note", text=text, hint=f"pyspark=={session.version}")
