"""Bytes that are not UTF-8 in a column of strings: what Spark makes of them, and no other error.

``SPARK`` is what Spark 4.3 answers over the same values (binary, cast to string).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.errors import UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

VALUES = [
    b"abc",
    b"\xffabc",
    b"a\xffc",
    b"ab\xff",
    None,
    b"\xc3",
    b"\xe2\x82",
    b"a\xe2\x82b",
    "aéb".encode(),
    b"\xed\xa0\x80",
    b"",
    "\ufffd".encode(),
    b"\xf0\x9f\x98",
    b"\xf0\x9f\x98\x80",
    b"\xc0\xaf",
    b"\xe2\x28\xa1",
    b"\xf5\x80\x80\x80",
    b"\xf0\x80\x80\x80",
    b"\xe0\x80",
    b"\xed\xa0",
]
NOT_B = [2, 5, 6, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
SPARK = {
    "c LIKE 'a%'": [0, 2, 3, 7, 8],
    "c LIKE '%c'": [0, 1, 2],
    "c LIKE '%abc'": [0, 1],
    "c LIKE 'a_c'": [0, 2],
    "c LIKE '_'": [5, 6, 9, 11, 12, 13, 19],
    "c LIKE '__'": [14, 18],
    "c LIKE '___'": [0, 2, 3, 7, 8, 15],
    "c LIKE '____'": [1, 16, 17],
    "c LIKE 'a_b'": [7, 8],
    "c LIKE 'a__b'": [],
    "c NOT LIKE '%b%'": NOT_B,
    "c LIKE '%\ufffd%'": [11],
    "c LIKE '\ufffd%'": [11],
    "c LIKE '\ufffd'": [11],
    "c LIKE 'a%c'": [0, 2],
    "c LIKE 'a%_c'": [0, 2],
    "c LIKE '%\ufffd_%'": [1, 2, 7, 14, 15, 16, 17, 18],
    "c LIKE '%a%\ufffd%'": [2, 3, 7],
}


@pytest.fixture(params=["string", "binary beside string"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """The values as strings, or as the bytes of a file beside one of strings."""
    root = tmp_path / "t"
    root.mkdir()
    stored = pa.array(VALUES, pa.binary())
    if request.param == "string":
        stored = stored.view(pa.string())
    else:
        other = pa.table({"c": pa.nulls(1, pa.string()), "i": [99]})
        pq.write_table(other, root / "b.parquet")
    pq.write_table(pa.table({"c": stored, "i": range(len(VALUES))}), root / "a.parquet")
    return Table(str(root))


@pytest.mark.parametrize("index", [None, "valuelist", "minmax", "bitmap", "rangebitmap"])
def test_like_gives_the_rows_of_spark(table: Table, index: str | None) -> None:
    if index is not None:
        table.build(indexes=[f"c:{index}"])
        table = Table(table.path)
    for where, rows in SPARK.items():
        assert sorted(table.query(where).column("i").to_pylist()) == rows, where
        assert table.count(where) == len(rows), where


@pytest.mark.parametrize("index", [None, "minmax"])
def test_the_greatest_value_is_named_where_it_is_no_text(table: Table, index: str | None) -> None:
    if index is not None:
        table.build(indexes=[f"c:{index}"])
        table = Table(table.path)
    assert table.min("c") == ""
    with pytest.raises(UnsupportedError, match="X'FF616263'"):
        table.max("c")
    assert table.max("c", "c LIKE 'ab_'  AND i = 0") == "abc"
    last = table.query(order_by="c desc", limit=2)
    assert last.column("i").to_pylist() == [1, 16]
