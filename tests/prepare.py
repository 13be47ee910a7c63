"""What the first run of the tests would make in each of its processes: machine code, and test
modules as pytest rewrites them. Made here once, on all cores; done at once where it is there.

    python -m tests.prepare
"""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.parquet.format import footer_scan
from skipstone.parquet.format.footer import find_footer
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.reading import bulk_chunks
from skipstone.storage import local
from tests.folders import ROOT
from tests.processes import environment


def kernels() -> None:
    """Compiles those of many rows, which take longest."""
    for each in (bulk_chunks.KERNELS, local.COMPILED):
        compiled = each.load()
        sys.modules[each.module].warm_up(compiled)


def footers() -> None:
    """Compiles those of footers."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1], "s": ["a"]}), sink)
    tail, footer = find_footer(sink.getvalue().to_pybytes())
    footer_scan.COMPILED.load()
    FooterArrays.scan(footer, tail.offset)


def unwritten() -> list[str]:
    """The test modules that pytest has not rewritten since they changed."""
    found = []
    for module in (ROOT / "tests").rglob("test_*.py"):
        kept = module.parent.glob(f"__pycache__/{module.stem}.{sys.implementation.cache_tag}-py*")
        if all(each.stat().st_mtime < module.stat().st_mtime for each in kept):
            found.append(str(module))
    return found


def main(jobs: list[str]) -> None:
    """The command line of the module. Tests run without all this, too, if more slowly."""
    if jobs:
        for job in (kernels, footers):
            if job.__name__ in jobs:
                job()
        return
    commands = [["-m", "tests.prepare", "kernels"], ["-m", "tests.prepare", "footers"]]
    if modules := unwritten():
        commands.append(["-m", "pytest", "--collect-only", "-q", *modules])
    started = [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command in commands
    ]
    for each in started:
        each.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
