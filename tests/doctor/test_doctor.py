"""What `doctor` finds on machines that lack something, and at tables in every state."""

from __future__ import annotations

import ast
import json
import os
import shutil
import stat
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.doctor import Diagnosis, Finding, diagnose
from skipstone.doctor.machine import KERNELS
from skipstone.doctor.packages import NEEDED
from tests import house
from tests.folders import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.cli.conftest import Run
    from tests.s3 import S3

SOURCE = Path(skipstone.__file__).resolve().parent.parent


def doctor(*arguments: object, **env: str) -> tuple[int, dict[str, Any]]:
    """`skipstone doctor --json` in a process of its own: exit code and document."""
    done = subprocess.run(
        [sys.executable, "-m", "skipstone", "doctor", "--json", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def of(found: dict[str, Any] | Diagnosis, area: str, state: str | None = None) -> list[Any]:
    document = found if isinstance(found, dict) else found.to_dict()
    return [
        each
        for each in document["findings"]
        if each["area"] == area and state in (None, each["state"])
    ]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Three files of ten rows."""
    root = tmp_path / "lake"
    root.mkdir()
    for part in range(3):
        rows = pa.table({"id": range(10 * part, 10 * part + 10)})
        pq.write_table(rows, root / f"part-{part}.parquet")
    return root


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# -- the machine -----------------------------------------------------------------------------------


def test_a_machine_that_has_all() -> None:
    code, found = doctor()
    assert (code, found["ok"]) == (0, True), of(found, "packages")
    [packages] = of(found, "packages")
    assert packages["text"].startswith(f"{len(NEEDED)} of {len(NEEDED)} packages")
    assert packages["values"]["versions"]["pyarrow"] == pa.__version__
    [python] = of(found, "python")
    assert python["values"]["executable"] == sys.executable
    assert of(found, "table") == []


def test_the_packages_are_those_that_pip_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert [f"{name}>={oldest}" for name, oldest in NEEDED.items()] == project["dependencies"]


@pytest.mark.parametrize(
    "source, said",
    [
        ("raise ImportError('libarrow.so: cannot open')", "ImportError: libarrow.so: cannot open"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "the process ends with SIGILL"),
        ("raise SystemExit(0)", "SystemExit: 0"),
    ],
)
@pytest.mark.parametrize("name", ["pyarrow", "numpy"])
def test_a_package_that_cannot_be_imported(
    name: str, source: str, said: str, tmp_path: Path, lake: Path
) -> None:
    (tmp_path / f"{name}.py").write_text(source)
    path = os.pathsep.join([str(tmp_path), str(SOURCE)])
    code, found = doctor(lake, PYTHONPATH=path)
    assert code == 1
    texts = [each["text"] for each in of(found, "packages", "problem")]
    assert any(text.startswith(name) and text.endswith(said) for text in texts), texts
    [table] = of(found, "table", "problem")
    assert table["text"].startswith(("could not be examined", "not examined, because"))


def test_packages_that_are_missing_or_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyroaring-0.4.dist-info").mkdir()
    metadata = tmp_path / "pyroaring-0.4.dist-info" / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: pyroaring\nVersion: 0.4\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(NEEDED, "no-such-package", "3.1")
    found = of(diagnose(), "packages", "problem")
    assert [each["text"] for each in found] == [
        "pyroaring 0.4 is older than 1.0.4",
        "no-such-package is not installed",
    ]
    assert [each["hint"] for each in found] == [
        "pip install 'pyroaring>=1.0.4'",
        "pip install 'no-such-package>=3.1'",
    ]


def java_that_says(folder: Path, text: str, code: int = 0) -> str:
    program = folder / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(folder / "jdk")


@pytest.mark.parametrize(
    "text, code, state, said",
    [
        ('openjdk version "21.0.2" 2024-01-16', 0, "ok", "21.0.2 at "),
        ('java version "1.8.0_402"', 0, "problem", "1.8.0_402 at "),
        ('openjdk version "11.0.22" 2024-01-16', 0, "problem", "needs 17"),
        ("Unable to locate a Java Runtime.", 1, "problem", "does not run"),
        ("hello", 0, "problem", "does not run"),
    ],
)
def test_the_java_that_spark_would_use(
    text: str, code: int, state: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", java_that_says(tmp_path, text, code))
    [java] = of(diagnose(), "java")
    assert java["state"] == state
    assert said in java["text"]
    assert bool(java["hint"]) == (state == "problem")


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    [java] = of(diagnose(), "java")
    assert java["text"].startswith(f"no bin/java in JAVA_HOME ({tmp_path})")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    [java] = of(diagnose(), "java")
    assert (java["state"], java["text"]) == ("problem", "none found; only Spark needs one")


def test_another_spark_in_spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    jar = tmp_path / "jars" / "spark-core_2.12-3.5.1.jar"
    jar.parent.mkdir()
    jar.touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    [problem] = of(diagnose(), "spark", "problem")
    assert problem["text"].endswith("is installed, and SPARK_HOME holds Spark 3.5.1")


def test_machine_code_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert "each process compiles for seconds" in of(diagnose(), "caches", "note")[-1]["text"]
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    (tmp_path / "numba" / "reading_0a").mkdir(parents=True)
    (tmp_path / "numba" / "reading_0a" / "bulk_jit.f-1.py311.nbi").write_bytes(bytes(2000))
    (tmp_path / "numba" / "reading_0a" / "others.f-1.py311.nbi").write_bytes(bytes(70))
    assert of(diagnose(), "caches")[-1]["text"].startswith("2.0 kB of machine code in 1 file; ")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert of(diagnose(), "caches", "note")[-1]["hint"] == "unset NUMBA_DISABLE_JIT"


def test_machine_code_ahead_of_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    made = types.ModuleType("made_ahead")
    made.__dict__.update(compiled=lambda: "kernels", warm_up=compiled.append)
    monkeypatch.setitem(sys.modules, "made_ahead", made)
    monkeypatch.setattr("skipstone.doctor.machine.KERNELS", ("no.such.module", "made_ahead"))
    run("doctor", "--compile")
    assert compiled == ["kernels"]


def test_every_module_of_kernels_is_compiled_ahead() -> None:
    package = SOURCE / "skipstone"
    named = {
        ".".join(("skipstone", *parts))
        for module, path in house.modules(package)
        for _, parts in house.kernel_modules(
            ast.parse(path.read_text()), module, path.name == "__init__.py"
        )
    }
    assert len(named) > 5
    assert named == set(KERNELS)


def test_bloom_filters_use_what_was_compiled_ahead(tmp_path: Path) -> None:
    """A build and a retrofit compile nothing then."""
    rows = 1 << 17
    values = pa.table({"n": range(rows), "text": [f"value {n}" for n in range(rows)]})
    (tmp_path / "lake").mkdir()
    pq.write_table(values, tmp_path / "lake" / "part.parquet", use_dictionary=False)
    script = """
import sys
from pathlib import Path
import skipstone
from skipstone import _numba
from skipstone.indexes import bloom
from skipstone.parquet.format import bloom_filter

def kept():
    return {file for file in Path(sys.argv[1], "code").rglob("*bloom_jit*.nbc")}

for each in (bloom, bloom_filter):
    _numba.compile_now(each.COMPILED.module)
    assert each.COMPILED.for_work(1) is not None
ahead = kept()
table = skipstone.Table(sys.argv[1] + "/lake")
table.retrofit(bloom={"n": 0.01, "text": 0.01})
table.build(indexes=["n:bloom", "text:bloom"])
print(len(ahead), kept() == ahead)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={
            **os.environ, "PYTHONPATH": str(SOURCE), "NUMBA_CACHE_DIR": str(tmp_path / "code"),
        },
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == "7 True\n"


def test_no_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "no usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", none)
    found = diagnose()
    [problem] = of(found, "machine", "problem")
    assert "no usable temporary directory found" in problem["text"]
    assert not found.ok
    assert of(found, "storage"), "what comes after it is examined"


def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    found = diagnose()
    assert "AWS_SECRET_ACCESS_KEY" in str(found)
    assert "swordfish" not in str(found) + json.dumps(found.to_dict())


# -- a table ---------------------------------------------------------------------------------------


def test_a_table_without_an_index(lake: Path, tmp_path: Path) -> None:
    found = diagnose(str(lake))
    assert found.ok
    assert of(found, "table")[0]["values"]["files"] == 3
    [note] = of(found, "index", "note")
    assert note["text"] == "no index: queries read all 3 files"
    assert note["hint"].startswith("run `skipstone advise")
    assert files_below(tmp_path) == {"lake", *(f"lake/part-{n}.parquet" for n in range(3))}


def test_an_index_that_is_fresh_stale_and_damaged(lake: Path, tmp_path: Path) -> None:
    table = skipstone.Table(str(lake))
    table.build(indexes=["id:minmax"])
    before = files_below(tmp_path)
    found = diagnose(table)
    assert found.ok
    assert of(found, "index", "note") == []
    assert of(found, "index")[-1]["text"].startswith("1 index (id:minmax) of 3 of 3 files, ")
    assert files_below(tmp_path) == before

    shutil.copy(lake / "part-0.parquet", lake / "part-3.parquet")
    [note] = of(diagnose(str(lake)), "index", "note")
    assert "of 3 of 4 files" in note["text"]
    assert note["text"].endswith("; 1 new or changed, which queries read in full")
    assert note["hint"] == f"run `skipstone refresh {lake}`"

    part = min((tmp_path / "_lake.skipstone" / "facts").iterdir())
    data = bytearray(part.read_bytes())
    data[20] ^= 0xFF
    part.write_bytes(data)
    damaged = diagnose(str(lake))
    assert not damaged.ok
    [problem] = of(damaged, "index", "problem")
    assert "; 1 damaged: " in problem["text"]


def test_writing_is_tried_and_leaves_nothing(lake: Path, tmp_path: Path) -> None:
    before = files_below(tmp_path)
    found = diagnose(str(lake), write=True)
    assert any("an object was written to" in each["text"] for each in of(found, "index", "ok"))
    assert files_below(tmp_path) == before
    (tmp_path / "_lake.skipstone").touch()  # a file where the index would lie
    [problem] = of(diagnose(str(lake), write=True), "index", "problem")
    assert "_lake.skipstone cannot be written: " in problem["text"]
    assert "--index-location" in problem["hint"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_index_that_this_user_cannot_write(lake: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        assert "cannot be written" in of(diagnose(str(lake)), "index", "note")[0]["text"]
    finally:
        tmp_path.chmod(0o755)


def test_paths_that_are_no_table(tmp_path: Path) -> None:
    [none] = of(diagnose(str(tmp_path / "gone")), "table")
    assert none["state"] == "problem"
    (tmp_path / "empty").mkdir()
    [empty] = of(diagnose(str(tmp_path / "empty")), "table")
    assert (empty["state"], empty["values"]["files"]) == ("note", 0)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "a.parquet").write_bytes(b"PAR1 torn")
    found = of(diagnose(str(tmp_path / "torn")), "table", "problem")
    assert found[0]["text"].endswith("does not end as a Parquet file does")
    [scheme] = of(diagnose("nosuch://bucket/table"), "table")
    assert scheme["state"] == "problem"


@pytest.mark.parametrize("text", ["idx = ", "memory = 5", 'master = "spark://elsewhere"'])
def test_a_settings_file_that_is_broken(lake: Path, run: Run, text: str) -> None:
    (lake.parent / "skipstone.toml").write_text(text)
    found = json.loads(run("doctor", lake, "--json").stdout)
    (finding,) = of(found, "table")
    assert finding["state"] == "problem"
    assert "skipstone.toml: " in finding["text"]
    assert finding["hint"]
    assert of(found, "python", "ok"), "the machine is examined all the same"


def test_a_table_that_opens_with_an_error() -> None:
    def opens() -> skipstone.Table:
        raise skipstone.SkipstoneError("no key", hint="give one")

    [problem] = of(diagnose(opens), "table")
    assert (problem["text"], problem["hint"]) == ("could not be examined: no key", "give one")


def test_a_table_in_an_object_store(s3: S3, lake: Path) -> None:
    opened = skipstone.Table(f"{s3.base}/lake", storage_options=s3.options)
    for file in lake.iterdir():
        s3.fill(f"lake/{file.name}", data=file.read_bytes())
    found = diagnose(opened)
    assert found.ok
    assert any("writing was not tried" in each["text"] for each in of(found, "index"))
    written = of(diagnose(opened, write=True), "index", "ok")[0]["text"]
    assert written.startswith(f"an object was written to {s3.base}/_lake.skipstone in ")
    assert len(opened.storage.list_all(s3.base).paths) == 3
    nowhere = skipstone.Table("s3://no-such-bucket/lake", storage_options=s3.options)
    [problem] = of(diagnose(nowhere), "table")
    assert problem["state"] == "problem"


# -- the command line ------------------------------------------------------------------------------


def test_the_text_has_what_to_do_and_the_counts(lake: Path, run: Run) -> None:
    done = run("doctor", lake)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("python ")
    assert f"  run `skipstone advise {lake}`, then `build`" in lines
    assert lines[-1] == "0 problems, 1 note"
    assert run("doctor", lake / "gone").exit_code == 1


def test_a_report_of_findings() -> None:
    findings = (
        Finding(area="a", text="fine"),
        Finding(area="b", text="slow", state="note", hint="mend it"),
        Finding(area="b", text="slow too", state="note", hint="mend it"),
    )
    found = Diagnosis(findings=findings)
    assert str(found).splitlines() == [
        "a  ok    fine",
        "b  note  slow",
        "b  note  slow too",
        "",
        "what to do:",
        "  mend it",
        "",
        "0 problems, 2 notes",
    ]
    assert found.to_dict()["findings"][1]["hint"] == "mend it"


@pytest.mark.spark
@pytest.mark.long
def test_a_session_is_tried(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    here = of(diagnose(spark=spark), "spark", "ok")
    assert any("its Python workers start" in each["text"] for each in here)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    started = of(diagnose(spark="local[1]"), "spark")
    assert any("a session at local[1] starts" in each["text"] for each in started), started
    [refused] = of(diagnose(spark="nonsense://"), "spark", "problem")
    assert refused["text"].startswith("no session starts at nonsense://: ")
