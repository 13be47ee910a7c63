"""The pages of the documentation, and the examples in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.folders import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping


#: all pages, by their path from the root
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    """What stands behind the language, and the text, of each block in one of these languages."""
    found = _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    return [(options.strip(), text) for language, options, text in found if language in languages]


def python_examples(page: str) -> list[str]:
    """The examples in Python that run: all but those marked ``{.no-run}``."""
    return [text for options, text in blocks(page, "python") if options != "{.no-run}"]


def run_examples(
    page: str, names: dict[str, Any], replacing: Mapping[str, str] | None = None
) -> None:
    """Run the examples of a page, top to bottom, with these names; ``replacing`` changes paths."""
    for number, block in enumerate(python_examples(page)):
        for old, new in (replacing or {}).items():
            block = re.sub(rf'"((?:lake/)?{old})\b', rf'"{new}/\1', block)
        exec(compile(block, f"{page}, example {number + 1}", "exec"), names)
