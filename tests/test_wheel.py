"""The package as a user gets it: built, installed into a clean environment, and put to work there.

Needs a package index that pip can reach, as the set-up of the tests did.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.folders import ROOT

SOURCE = ROOT / "src"

pytestmark = pytest.mark.long


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Output of a command that must succeed, away from this tree and its environment."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "SPARK_HOME"}}
        | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution: both hold all that they must."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT, cwd=out)
    [built] = out.glob("skipstone-*.whl")
    return built


def requirements(wheel: Path) -> list[str]:
    """What the metadata of the wheel says that it needs, a line each."""
    archive = zipfile.ZipFile(wheel)
    [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    lines = archive.read(metadata).decode().splitlines()
    return [line for line in lines if line.startswith("Requires-Dist:")]


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that holds the wheel and what it asks for."""
    home = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(home, with_pip=True)
    pip = home / "bin" / "pip"
    # What is imported is compiled then; compiling all of it would take longer than installing it.
    quiet = ("--disable-pip-version-check", "--quiet", "--no-compile")
    run(pip, "install", *quiet, wheel, cwd=home)
    run(pip, "check", "--disable-pip-version-check", cwd=home)
    return home / "bin"


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    page = SOURCE / "skipstone" / "report" / "page"
    expected = {str(f.relative_to(SOURCE)) for f in (*SOURCE.rglob("*.py"), *page.iterdir())}
    assert names == expected | {"skipstone/py.typed"}


def test_the_wheel_carries_its_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_command_works_in_a_clean_environment(clean: Path, tmp_path: Path) -> None:
    text = run(clean / "skipstone", "--help", cwd=tmp_path)
    for verb in ("advise", "build", "describe", "explain"):
        assert verb in text
    assert run(clean / "python", "-m", "skipstone", "--help", cwd=tmp_path)


def test_the_modules_import_from_the_clean_environment(clean: Path, tmp_path: Path) -> None:
    code = "import skipstone; print(skipstone.__file__)"
    where = Path(run(clean / "python", "-c", code, cwd=tmp_path).strip())
    assert where.is_relative_to(clean.parent)


def test_it_works_without_pyspark(clean: Path, tmp_path: Path) -> None:
    code = (
        "import pyarrow as pa, pyarrow.parquet as pq\n"
        "pq.write_table(pa.table({'id': range(1000)}), 't/1.parquet')\n"
        "pq.write_table(pa.table({'id': range(1000, 2000)}), 't/2.parquet')\n"
    )
    (tmp_path / "t").mkdir()
    run(clean / "python", "-c", code, cwd=tmp_path)
    refused = subprocess.run(
        [clean / "skipstone", "build", "t", "-c", "id:bloom", "--master", "local[1]"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "PySpark is not installed" in refused.stderr
    assert "skipstone[spark]" in refused.stderr
    run(clean / "skipstone", "build", "t", "-c", "id:bloom", cwd=tmp_path)
    found = run(clean / "skipstone", "query", "t", "id = 1500", "--csv", cwd=tmp_path)
    assert found.split() == ["id", "1500"]
    assert "1 of 2 files" in run(clean / "skipstone", "explain", "t", "id = 1500", cwd=tmp_path)


def test_pip_brings_no_spark(wheel: Path) -> None:
    needed = [line for line in requirements(wheel) if "extra ==" not in line]
    assert any("pyarrow" in line for line in needed)
    assert not any("pyspark" in line or "pandas" in line for line in needed)


def test_doctor_finds_nothing_wrong_in_the_clean_environment(clean: Path, tmp_path: Path) -> None:
    text = run(clean / "skipstone", "doctor", cwd=tmp_path)
    assert " packages, imported in " in text
    assert "\n0 problems, " in text


@pytest.mark.spark
def test_the_main_job_runs_in_the_clean_environment(clean: Path, wheel: Path) -> None:
    extra = [line for line in requirements(wheel) if "extra ==" in line and "spark" in line]
    assert any(line.startswith("Requires-Dist: pyspark") for line in extra)
    # PySpark, which pip would build for a minute, is that of the tests.
    run(clean / "pip", "install", "--disable-pip-version-check", "-q", "pandas<3", cwd=ROOT)
    [site] = (clean.parent / "lib").glob("python3*/site-packages")
    for name in ("pyspark", "py4j"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (site / name).symlink_to(Path(spec.origin).parent)
    # Java starts from its archive only where the jars have the path that they had in it.
    spark = str((site / "pyspark").readlink())
    text = run(clean / "python", "-m", "tests.main_job", cwd=ROOT, SPARK_HOME=spark)
    assert "PySpark " in text
