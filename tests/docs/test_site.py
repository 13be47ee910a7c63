"""The documentation site builds strictly: no broken link, no page outside the navigation."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import skipstone
from tests.folders import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_the_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    names = [*skipstone.__all__, "rewrite", "salvage"]
    missing = [name for name in names if f"::: skipstone.{name}\n" not in page]
    assert missing == []


@pytest.mark.long
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: the site is not built")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    assert "skipstone.Table" in api
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "https://fonts." not in text, "a page asks another host for fonts"
