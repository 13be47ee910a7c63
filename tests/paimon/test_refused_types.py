"""Types that a kind does not take, or predicates do not: the error says so, and what does."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import Table
from skipstone.errors import PredicateError, UnsupportedError
from skipstone.paimon.container_builder import coded
from skipstone.paimon.format.bitmap import write_bitmap
from skipstone.paimon.format.container import to_bytes
from skipstone.paimon.format.keys import PaimonType

if TYPE_CHECKING:
    from pathlib import Path

WIDE = pa.decimal128(38, 10)
KINDS = ("bitmap", "rangebitmap", "bsi", "paimonbloom", "bloom", "minmax", "valuelist")


def table(root: Path, *files: pa.Array) -> Table:
    root.mkdir()
    for number, values in enumerate(files):
        pq.write_table(pa.table({"c": values}), root / f"{number}.parquet")
    return Table(str(root))


@pytest.mark.parametrize(
    "type",
    [
        WIDE,
        pa.decimal128(10, 2),
        pa.bool_(),
        pa.binary(),
        pa.string(),
        pa.float64(),
        pa.int64(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("ns"),
        pa.time32("ms"),
        pa.list_(pa.int32()),
    ],
    ids=str,
)
def test_a_kind_that_refuses_a_type_names_kinds_that_take_it(
    tmp_path: Path, type: pa.DataType
) -> None:
    ours = table(tmp_path / "t", pa.nulls(3, type))
    for kind in KINDS:
        try:
            ours.build(indexes=[f"c:{kind}"])
        except UnsupportedError as error:
            if " takes this type" in error.hint:
                for other in error.hint.removesuffix(" takes this type").split(" or "):
                    ours.build(indexes=[f"c:{other}"])


def test_a_bsi_has_the_wide_decimals_that_fit_64_bits(tmp_path: Path) -> None:
    most = Decimal(2**63 - 1).scaleb(-10)
    fits = [Decimal(i) / 10 for i in range(-300, 300)] + [None, most, -most]
    beyond = [Decimal(2**63).scaleb(-10), Decimal(1)]
    ours = table(tmp_path / "t", pa.array(fits, WIDE), pa.array(beyond, WIDE))
    built = ours.build(indexes=["c:bsi"])
    assert "does not fit 64 bits (1)" in str(built)
    assert "1 of 2 files" in str(ours.describe())
    huge = "99999999999999999999999999.5"
    values = [each for each in fits + beyond if each is not None]
    for where, meaning in (
        ("c = 1.5", lambda v: v == Decimal("1.5")),
        ("c <> 1.5", lambda v: v != Decimal("1.5")),
        ("c > 29.5", lambda v: v > Decimal("29.5")),
        (f"c >= {most}", lambda v: v >= most),
        (f"c <= -{most}", lambda v: v <= -most),
        (f"c < {huge}", lambda v: True),
        (f"c > -{huge}", lambda v: True),
        (f"c >= {huge}", lambda v: False),
        (f"c IN (1, -2.5, {huge})", lambda v: v in (1, Decimal("-2.5"))),
        (f"c NOT IN (1, -2.5, {huge})", lambda v: v not in (1, Decimal("-2.5"))),
    ):
        expected = sum(map(meaning, values))
        assert Table(ours.path).count(where) == expected
        assert Table(ours.path).query(where).num_rows == expected
    rows = Table(ours.path).plan("c = 1.5").details[0].rows
    assert rows is not None
    assert len(rows) == 1


def times() -> bytes:
    type = PaimonType.parse("TIME(3)")
    column = coded(type, [pa.array([1, 2, None, 4]).dictionary_encode()])
    return to_bytes({"c": {"bitmap": write_bitmap(column)}})


@pytest.mark.parametrize("where", ["c = 5", "c IS NULL", "NOT c IN (1, 2)", "c > 3 AND c < 5"])
@pytest.mark.parametrize("types", [{"c": "TIME(3)", "x": "INT"}, {"x": "INT"}])
def test_a_time_column_is_there_and_no_predicate_takes_it(
    where: str, types: dict[str, str]
) -> None:
    index = skipstone.PaimonFileIndex(times(), types=types)
    for ask in (index.select, index.count):
        with pytest.raises(PredicateError, match=r"column c(: it is TIME\(3\)|: its type|)"):
            ask(where)


def test_a_column_that_is_not_there_is_still_said_to_be_missing() -> None:
    index = skipstone.PaimonFileIndex(times(), types={"c": "TIME(3)"})
    with pytest.raises(PredicateError, match="no column d"):
        index.count("d = 1")


def test_a_count_that_no_index_could_give_is_an_error() -> None:
    index = skipstone.PaimonFileIndex(times(), types={"c": "TIME(3)"})
    with pytest.raises(UnsupportedError, match="cannot decide"):
        index.count("c = TIME '00:00:00'")
