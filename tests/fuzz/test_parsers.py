"""Every parser has a battery, a few mutations of each in every run, and what the runner finds."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.folders import ROOT
from tests.fuzz.parsers import PARSERS, Parser
from tests.fuzz.runner import Limits, fuzz
from tests.fuzz.tables import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.batteries import Attempt

# In every run. `make fuzz` takes 100,000 for each parser.
COUNT = 16
_LAYOUT = re.compile(r"`([a-z_]+(?:/[a-z_]+)+\.py)`")
#: what is written for others, and read by no module
WRITTEN = {"table_formats/puffin.py"}


def test_every_byte_layout_has_a_parser_here() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    layouts = set(_LAYOUT.findall(page[page.index("## Byte layouts") :]))
    assert len(layouts) > 40
    assert layouts - WRITTEN <= {m for parser in PARSERS.values() for m in parser.modules}


def test_no_parser_names_a_module_that_is_not_there() -> None:
    for parser in PARSERS.values():
        for module in parser.modules:
            assert (ROOT / "src" / "skipstone" / module).is_file(), module


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_damage_is_refused_or_harmless(name: str) -> None:
    found = fuzz(name, PARSERS[name], mutations=COUNT, seed=1_000)
    assert found.mutations == COUNT
    assert not found.findings, found.findings[:2]


def _files(folder: Path) -> list[Path]:
    path = folder / "bytes"
    path.write_bytes(b"0123456789" * 10)
    return [path]


def _once(folder: Path, what: Callable[[], object]) -> Callable[[Path, Attempt], None]:
    """Calls ``what`` for the third mutation alone."""

    def ask(target: Path, attempt: Attempt) -> None:
        with (folder / "asked").open("a") as file:
            file.write("x")
        if (folder / "asked").stat().st_size == 3:
            attempt(what)

    return ask


def _wrong() -> None:
    raise Wrong("another row")


@pytest.mark.parametrize(
    "kind, what",
    [
        ("abort", lambda: os.kill(os.getpid(), signal.SIGABRT)),
        ("hang", lambda: time.sleep(100)),
        ("memory", lambda: bytearray(1 << 40)),
        ("foreign", lambda: [][1]),
        ("wrong", _wrong),
    ],
)
def test_what_ends_a_process_is_a_finding_and_not_the_end_of_the_run(
    tmp_path: Path, kind: str, what: Callable[[], object]
) -> None:
    parser = Parser((), _files, (_once(tmp_path, what),))
    found = fuzz("own", parser, mutations=8, seed=5, limits=Limits(seconds=2), out=tmp_path / "out")
    assert found.mutations == 8
    (finding,) = found.findings
    assert (finding["kind"], finding["seed"]) == (kind, 7)
    assert Path(finding["bytes"]).is_file()
    assert f"1 {kind}" in str(found)
