"""One rule for the names of columns: in predicates, in lists, in sort keys, in definitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import skipstone
from skipstone.cli import cli
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.predicate.types import split_names

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def table(tmp_path: Path) -> skipstone.Table:
    columns = {
        "Id": pa.array(range(10)),
        "a.b": pa.array(range(10)),
        "we`ird": pa.array(range(10)),
        "x,y": pa.array(range(10)),
        "st": pa.array([{"Q": i, "x.y": i} for i in range(10)]),
        "m": pa.array([[("k, k", i)] for i in range(10)], pa.map_(pa.string(), pa.int64())),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    return skipstone.Table(tmp_path)


@pytest.mark.parametrize(
    "name, root, spelled",
    [
        ("Id", "Id", "Id"),
        ("ID", "Id", "Id"),
        ("`id`", "Id", "Id"),
        ("`A.B`", "a.b", "`a.b`"),
        ("`we``ird`", "we`ird", "`we``ird`"),
        ("`x,y`", "x,y", "x,y"),
        ("st.q", "st", "st.Q"),
        ("`st`.`q`", "st", "st.Q"),
        ("ST.`X.Y`", "st", "st.`x.y`"),
        ("M['k, k']", "m", "m['k, k']"),
        ("m.`k, k`", "m", "m['k, k']"),
    ],
)
def test_a_column_has_one_spelling_everywhere(
    table: skipstone.Table, tmp_path: Path, name: str, root: str, spelled: str
) -> None:
    assert table.count(f"{name} = 3") == 1
    assert table.query("id = 3", columns=[name]).column_names == [root]
    indexed = skipstone.Table(tmp_path, index_location=tmp_path / "_index")
    indexed.build(indexes=[f"{name}:minmax"])
    assert [index.column for index in indexed.describe().indexes] == [spelled]
    assert not indexed.plan(f"{name} = 30").keep.any()
    if root in ("st", "m"):
        with pytest.raises(UnsupportedError, match="lies below another column"):
            table.query("id < 5", columns=["id"], order_by=f"{name} desc", limit=2)
    else:
        found = table.query("id < 5", columns=["id"], order_by=f"{name} desc, id", limit=2)
        assert found.column("Id").to_pylist() == [4, 3]
    where = ["query", str(table.path), "id = 3", "--columns", f"id,{name}", "--json"]
    ran = CliRunner().invoke(cli, where)
    assert ran.exit_code == 0, ran.output
    assert root in json.loads(ran.stdout)["columns"], ran.output


def test_a_name_with_a_dot_is_proposed_in_backquotes(table: skipstone.Table) -> None:
    for ask in (
        lambda: table.count("a.b = 3"),
        lambda: table.query("id = 3", order_by="a.b", limit=1),
        lambda: table.build(indexes=["a.b:minmax"]),
    ):
        with pytest.raises(SkipstoneError, match=r"did you mean '`a\.b`'"):
            ask()


def test_commas_within_quotes_and_keys_are_parts_of_names() -> None:
    assert split_names("a,`b,c`, m['k, l'],d") == ["a", "`b,c`", " m['k, l']", "d"]
    assert split_names("") == [""]
    assert split_names("a,") == ["a", ""]
    assert split_names("m['it\\'s, so'],x") == ["m['it\\'s, so']", "x"]
