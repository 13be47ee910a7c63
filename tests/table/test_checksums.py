"""A page whose checksum is wrong gives no row, no fact and no advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skipstone import Table
from skipstone.errors import FormatError
from tests.damaged_page import write_damaged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


QUERIES: dict[str, Callable[[Table], object]] = {
    "query": lambda table: table.query("a <> 1500"),
    "query of all": lambda table: table.query(),
    "order": lambda table: table.query("s <> 'x'", ["a"], order_by="a desc", limit=3000),
    "count": lambda table: table.count("a <> 1500"),
    "to_batches": lambda table: list(table.scan("a <> 1500").to_batches()),
    "to_pyarrow": lambda table: table.scan("a <> 1500").to_pyarrow().to_table(),
}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    write_damaged(tmp_path / "lake" / "f.parquet")
    return tmp_path / "lake"


@pytest.mark.parametrize("name", QUERIES)
def test_queries(lake: Path, name: str) -> None:
    with pytest.raises((FormatError, OSError), match=r"(?i)checksum"):
        QUERIES[name](Table(str(lake)))
    QUERIES[name](Table(str(lake), verify_checksums=False))


@pytest.mark.parametrize("name", ["query", "count"])
def test_footers_from_the_summary(lake: Path, name: str) -> None:
    write_damaged(lake / "g.parquet")
    Table(str(lake)).write_metadata()
    with pytest.raises(FormatError, match="checksum"):
        QUERIES[name](Table(str(lake)))
    QUERIES[name](Table(str(lake), verify_checksums=False))


@pytest.mark.parametrize("verify", [True, False])
def test_no_fact_is_made(lake: Path, verify: bool) -> None:
    table = Table(str(lake), verify_checksums=verify)
    report = table.build(indexes=["a:minmax", "s:valuelist"])
    ((path, why),) = report.files_failed
    assert path.endswith("f.parquet")
    assert "checksum" in why


def test_advice_leaves_the_file_out(lake: Path) -> None:
    assert "checksum" in str(Table(str(lake)).advise()).lower()
