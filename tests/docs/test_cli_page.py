"""The page about the command line says what the command line says."""

from __future__ import annotations

import pytest

from skipstone.cli import VERBS
from tools.cli_docs import FILE, page


def test_the_page_is_up_to_date() -> None:
    if not FILE.parent.is_dir():
        pytest.skip("no docs here: an unpacked source distribution may lack them")
    assert FILE.read_text(encoding="utf-8") == page(), "run `python -m tools.cli_docs`"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_section(verb: str) -> None:
    _, _, section = page().partition(f"\n## skipstone {verb}\n")
    assert f"Usage: skipstone {verb}" in section.partition("\n## ")[0]
