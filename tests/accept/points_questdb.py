"""QuestDB's `_pm` and `_txn`: read, written, shown, migrated, asked, and live partitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.accept.registry import Missing, point

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench

GOLDEN = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "golden"


def golden() -> Path:
    """The recorded files of the real QuestDB."""
    folder = GOLDEN / "questdb"
    if not folder.is_dir():
        raise Missing("no golden files: ../shared/golden is absent")
    return folder


@point("questdb: every recorded file that the real readers take is known by its content")
def known(bench: Workbench) -> None:
    index = json.loads((golden() / "INDEX.json").read_text())
    assert index, "no cases"
