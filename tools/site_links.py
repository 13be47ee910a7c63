"""For the site, the links of CHANGELOG.md begin where the pages of docs/ are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Called by MkDocs for each page; ``docs/changelog.md`` holds no text of its own."""
    if page.file.src_uri != "changelog.md":
        return markdown
    return _CHANGELOG.read_text(encoding="utf-8").replace("](docs/", "](")
