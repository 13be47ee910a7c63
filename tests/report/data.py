"""What a page of HTML holds, as a parser of HTML finds it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class Parsed(HTMLParser):
    """Elements with their attributes, and the text of those that have an id or are a title."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._within: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag in ("script", "style", "title", "pre"):
            self._within = [found.get("id") or tag]

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style", "title", "pre"):
            self._within = []

    def handle_data(self, data: str) -> None:
        for name in self._within:
            self.texts[name] = self.texts.get(name, "") + data

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.texts["data"])
        return found

    def inside(self, ordinal: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.texts[f"file-{ordinal}"])
        return found


def parsed(path: Path) -> Parsed:
    found = Parsed()
    found.feed(path.read_text("utf-8"))
    found.close()
    return found
