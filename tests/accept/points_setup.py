"""What a newcomer meets first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.accept.registry import point
from tests.folders import ROOT

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench


@point("setup: without Java, one line says so and a second what to do")
def no_java(bench: Workbench) -> None:
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "bootstrap.sh"), "java"],
        env={"PATH": str(bench.home)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 1, f"exit code {done.returncode}"
    assert [line.split(":")[0] for line in lines] == ["error", "hint"], done.stderr


@point("setup: the command is installed beside Python and shows its verbs")
def command(bench: Workbench) -> None:
    script = Path(sys.executable).with_name("skipstone")
    assert script.exists(), f"there is no {script.name} beside {Path(sys.executable).name}"
    done = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"
    missing = [verb for verb in ("advise", "build", "describe") if verb not in done.stdout]
    assert not missing, f"--help does not name {', '.join(missing)}"


@point("setup: importing the package loads neither Spark nor pandas nor numba")
def light(bench: Workbench) -> None:
    code = "import sys, skipstone; print(*({'pyspark', 'pandas', 'numba'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.strip(), f"loaded: {done.stdout.strip()}"
