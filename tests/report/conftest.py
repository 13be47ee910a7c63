"""Tables of the tests of this folder; the planner looks into files of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skipstone.pruning.costs import FREE
from tests.report.layered import layered

if TYPE_CHECKING:
    from skipstone import Table


@pytest.fixture(autouse=True)
def _look_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of tests are small: by its cost no look into one would be worth it."""
    monkeypatch.setattr("skipstone.table.planning.LOCAL", FREE)


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Twelve files: each level skips some, one has changed and one is new."""
    return layered(tmp_path_factory.mktemp("layered") / "events", "abcdeabcaaee")
