"""The S3 server, and a table of four files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.facts.facts import Table
from tests.s3 import s3, s3_server

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["s3", "s3_server"]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "events")
    for name in ("a", "b", "c", "d"):
        table.write(name)
    return table
