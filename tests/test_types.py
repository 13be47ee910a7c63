"""What a type checker sees in a program that uses Skipstone: no ``Any`` where there is a type."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.folders import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# An expression, and its type to a checker, by its last names.
SEEN = {
    'Table("t")': "Table",
    'Table(Path("t"))': "Table",
    'Table("t").query("a = 1")': "ArrowTable",
    'Table("t").query("a = 1").num_rows': "int",
    'Table("t").query("a = 1").to_pylist()': "list[dict[str, Any]]",
    'Table("t").scan("a = 1").to_arrow()': "ArrowTable",
    'Table("t").scan("a = 1").to_batches()': "Iterator[ArrowBatch]",
    'Table("t").retried(lambda scan: scan.to_arrow(), "a = 1")': "ArrowTable",
    'Table("t").query_readable(lambda scan: scan.to_arrow())': "ArrowTable",
    'Table("t").count("a = 1")': "int",
    'Table("t").plan([("a", "=", 1)]).files_kept': "int",
    'Table("t").build(indexes=["a:bloom"]).files_built': "int",
    'Table("t").describe().indexes': "tuple[IndexInfo, ...]",
    'Table("t").check().ok': "bool",
    'skipstone.ParquetFile("f").query("a = 1")': "ArrowTable",
}
# Mistakes that a checker finds, and what it says.
FOUND = {
    'Table("t").query(where=5)': "incompatible type",
    'Table("t").query("a = 1", column=["a"])': 'did you mean "columns"',
    'Table("t").qeury("a = 1")': 'has no attribute "qeury"',
    "skipstone.Tabel": 'has no attribute "Tabel"',
    "x: str = Table('t').count()": "Incompatible types in assignment",
}


@pytest.mark.slow
def test_a_program_sees_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    lines = ["from pathlib import Path", "import skipstone", "from skipstone import Table"]
    lines += [f"reveal_type({each})" for each in SEEN]
    lines += FOUND
    (tmp_path / "program.py").write_text("\n".join(lines))
    options = ["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", *options, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [each for each in done.stdout.splitlines() if each.startswith("program.py:")]
    by_line = {int(each.split(":")[1]): each for each in reversed(said)}
    revealed = [by_line.get(number, "") for number in range(4, 4 + len(SEEN))]
    types = [re.sub(r"[\w.]+\.(?=\w)", "", each.partition('"')[2].rstrip('"')) for each in revealed]
    assert dict(zip(SEEN, types, strict=True)) == SEEN, done.stdout + done.stderr
    for number, (line, words) in enumerate(FOUND.items(), 4 + len(SEEN)):
        assert words in by_line.get(number, ""), (line, by_line.get(number))
    assert len(by_line) == len(SEEN) + len(FOUND)
