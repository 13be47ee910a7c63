"""The examples of docs/parquet.md, docs/paimon.md and docs/rewriting.md run, from top to bottom."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "page, least", [("docs/parquet.md", 5), ("docs/paimon.md", 5), ("docs/rewriting.md", 3)]
)
def test_the_examples_run(
    page: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= least
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}, example {number + 1}", "exec"), names)
