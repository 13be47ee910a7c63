"""Evidence about files that real systems wrote, against the rows that Arrow reads of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.evidence import IndexedFile, RowGroupSource
from skipstone.predicate.binding import bind
from skipstone.predicate.literals import Keys, order_keys, stored, to_domain
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Leaf, Op
from skipstone.predicate.types import TIMESTAMP, spark_type
from skipstone.pruning import Cause
from skipstone.pruning.residual import matching_values
from tests.parquet.encryption.keys import FOOTER_KEY, decryption_of
from tests.parquet.encryption.plain import open_bytes, plain_table
from tests.parquet.evidence.written import Fetching, Written

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("statistics", "bloom filter", "dictionary", "page index")
COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.NE_OR_NULL)


@pytest.fixture(scope="session")
def data(golden: Path) -> Path:
    return golden / "parquet-testing" / "data"


def number(column: str, op: Op, *values: float) -> Leaf:
    return Leaf(column, pa.float64(), op, values)


def single(column: str, op: Op, *values: float) -> Leaf:
    return Leaf(column, pa.float32(), op, values)


# -- files made for it -----------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["float", "double", "float16"])
def test_orders_of_floats_and_counts_of_nan(data: Path, type: str) -> None:
    """Five row groups: no NaN (-2 to 5), some NaN (-2 to 3), nothing else, 0.0 to 5, -5 to -0.0.

    In the type's own order, parquet-java keeps no bounds where there is a NaN.
    """
    written = Written((data / "floating_orders_nan_count.parquet").read_bytes())
    make = number if type == "double" else single
    total, own = f"{type}_ieee754", f"{type}_typedef"

    def may(column: str, op: Op, *values: float) -> list[int]:
        pages = written.may("page index", make(column, op, *values))
        groups = written.may("statistics", make(column, op, *values))
        assert len(pages) in (0, 5) or column == own
        if len(pages) == 5:  # one page each
            assert [a and b for a, b in zip(pages, groups, strict=True)] == groups
        return np.flatnonzero(groups).tolist()

    assert may(total, Op.GT, 100.0) == [1, 2]
    assert may(own, Op.GT, 100.0) == [1, 2]
    assert may(total, Op.EQ, 4.0) == [0, 3]
    assert may(own, Op.EQ, 4.0) == [0, 1, 3]
    assert may(total, Op.EQ, math.nan) == may(own, Op.EQ, math.nan) == [1, 2]
    assert may(total, Op.LT, -4.0) == [4]
    for zero in (0.0, -0.0):
        assert may(total, Op.EQ, zero) == [0, 1, 3, 4]
        assert may(own, Op.LT, zero) == [0, 1, 4]
    nothing_else = make(total, Op.GT, 1e4)
    assert written.must("statistics", nothing_else) == [False, False, True, False, False]
    assert written.must("statistics", make(own, Op.GT, 1e4)) == [False, False, True, False, False]


def test_nan_in_the_statistics_of_an_old_writer(data: Path) -> None:
    """1.0 and NaN, with a maximum of NaN."""
    written = Written((data / "nan_in_stats.parquet").read_bytes())
    for leaf in (number("x", Op.GT, 5.0), number("x", Op.EQ, 1.0), number("x", Op.EQ, math.nan)):
        assert written.may("statistics", leaf) == [True]
        assert written.must("statistics", leaf) == [False]


def test_a_chunk_of_nothing_but_a_null(data: Path) -> None:
    written = Written((data / "single_nan.parquet").read_bytes())
    assert written.may("statistics", number("mycol", Op.GT, 5.0)) == [False]
    assert written.must("statistics", number("mycol", Op.IS_NULL)) == [True]


def test_null_pages(data: Path) -> None:
    """Ten pages of a hundred random numbers; the third holds nulls only."""
    written = Written((data / "int32_with_null_pages.parquet").read_bytes())

    def may(op: Op, *values: int) -> list[int]:
        leaf = Leaf("int32_field", pa.int32(), op, values)
        return np.flatnonzero(written.may("page index", leaf)).tolist()

    assert may(Op.LT, 2**31 - 1) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert may(Op.EQ, -2136906554) == [6]
    assert may(Op.GT, 2143189382) == [0, 7]
    assert may(Op.IS_NULL) == list(range(10))
    only = Leaf("int32_field", pa.int32(), Op.IS_NULL)
    assert np.flatnonzero(written.must("page index", only)).tolist() == [2]


def test_truncated_bounds(data: Path) -> None:
    """Al… to Ke…; of the first two columns both bounds were cut, to "Al" and to "Kf"."""
    written = Written((data / "binary_truncated_min_max.parquet").read_bytes())
    rows = pq.read_table(data / "binary_truncated_min_max.parquet")
    for column, type in (
        ("utf8_full_truncation", pa.string()),
        ("binary_full_truncation", pa.binary()),
    ):
        values = rows.column(column).to_pylist()
        for value in values:
            assert written.may("statistics", Leaf(column, type, Op.EQ, (value,))) == [True]
        end = "Kg" if type == pa.string() else b"Kg"
        assert written.may("statistics", Leaf(column, type, Op.GE, (end,))) == [False]
        below = "Ak" if type == pa.string() else b"Ak"
        assert written.may("statistics", Leaf(column, type, Op.LE, (below,))) == [False]
        bound = "Kf" if type == pa.string() else b"Kf"
        assert written.may("statistics", Leaf(column, type, Op.EQ, (bound,))) == [True]
        assert written.must("statistics", Leaf(column, type, Op.LE, (bound,))) == [True]
        assert written.must("statistics", Leaf(column, type, Op.LT, (bound,))) == [False]


def test_int96_of_spark_has_no_bounds(data: Path) -> None:
    written = Written((data / "int96_from_spark.parquet").read_bytes())
    leaf = Leaf("a", TIMESTAMP, Op.EQ, (1,))
    assert written.may("statistics", leaf) == [True]
    null = Leaf("a", TIMESTAMP, Op.IS_NULL)
    assert written.may("statistics", null) == [True]
    assert written.must("statistics", null) == [False]


def test_null_pages_that_a_writer_made_up(data: Path) -> None:
    """Required columns full of numbers, and every page called a null page."""
    path = data / "datapage_v1-corrupt-checksum.parquet"
    written = Written(path.read_bytes())
    for column in ("a", "b"):
        assert all(written.may("page index", Leaf(column, pa.int32(), Op.GE, (-(2**31),))))


# -- all of them -----------------------------------------------------------------------------------

# 2 GB, or damaged on purpose.
_LEFT_OUT = {"large_string_map.brotli.parquet", "nation.dict-malformed.parquet"}


def test_no_golden_file_loses_a_row(golden: Path) -> None:
    folders = (golden / "parquet-testing" / "data", golden / "hyparquet" / "test" / "files")
    asked = excluded = 0
    for path in sorted(each for folder in folders for each in folder.rglob("*.parquet")):
        if path.name in _LEFT_OUT:
            continue
        try:
            table = pq.read_table(path, coerce_int96_timestamp_unit="us")
        except (pa.ArrowException, OSError, ValueError):
            continue
        written = Written(path.read_bytes())
        for name in list(written.files[0].columns):
            if name not in table.column_names or name in ("__index_level_0__",):
                continue
            here, gone = _check(written, table.column(name), name)
            asked, excluded = asked + here, excluded + gone
    assert asked > 10_000
    assert excluded > 2_000


def _check(written: Written, column: pa.ChunkedArray, name: str) -> tuple[int, int]:
    type = spark_type(column.type)
    if type is None or not len(column):
        return 0, 0
    try:
        values = stored(column, type)
    except (pa.ArrowException, ValueError):
        return 0, 0
    present = values.drop_null().unique()
    ends = sorted({0, len(present) // 2, len(present) - 1}) if len(present) else []
    picked = present.take(pa.array(ends, pa.int64()))
    if pa.types.is_timestamp(type):
        picked = picked.view(pa.int64())
    elif pa.types.is_date(type):
        picked = picked.view(pa.int32())
    some = picked.to_pylist()
    leaves = [Leaf(name, type, Op.IS_NULL), Leaf(name, type, Op.NOT_NULL)]
    for value in some:
        domain = to_domain(value, type)
        leaves += [Leaf(name, type, op, (domain,)) for op in COMPARISONS]
        leaves.append(Leaf(name, type, Op.IN, (domain,)))
    return _ask(written, leaves, order_keys(values, type))


def _ask(written: Written, leaves: list[Leaf], keys: Keys) -> tuple[int, int]:
    asked = excluded = 0
    truth = [_matching(leaf, keys) for leaf in leaves]
    for evidence in NAMES:
        if written.evidence(leaves[0].column, evidence) is None:
            continue
        units = written.units(frozenset((leaves[0].column,)), pages=evidence == "page index")
        for leaf, matching in zip(leaves, truth, strict=True):
            bounds = written.ask(evidence, leaf, units).bounds
            if bounds is None:
                continue
            places = zip(units.first_row.tolist(), units.rows.tolist(), strict=True)
            for i, (first, count) in enumerate(places):
                part = matching[first : first + count]
                asked += 1
                assert bounds.may[i] or not part.any(), f"{evidence}: {leaf} loses a row"
                assert part.all() or not bounds.must[i], f"{evidence}: {leaf} is not all"
                excluded += not bounds.may[i]
    return asked, excluded


def _matching(leaf: Leaf, keys: Keys) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if leaf.op is Op.IS_NULL:
        return ~keys.valid
    if leaf.op is Op.NOT_NULL:
        return keys.valid
    found = matching_values(leaf, keys)
    return found | ~keys.valid if leaf.op is Op.NE_OR_NULL else found


# -- encrypted -------------------------------------------------------------------------------------


def opened(path: Path, *, keys: bool = True) -> tuple[IndexedFile, Fetching]:
    content = path.read_bytes()
    found = open_bytes(content, decryption_of(path), file=path.name)
    fetching = Fetching({path.name: content})
    decryption = decryption_of(path) if keys else Decryption(footer_key=FOOTER_KEY)
    decryptor = open_bytes(content, decryption, file=path.name).decryptor
    return IndexedFile(path.name, found.footer, decryptor, size=len(content)), fetching


def encrypted(data: Path, name: str, *, keys: bool = True) -> Written:
    file, fetching = opened(data / f"{name}.parquet.encrypted", keys=keys)
    written = Written()
    written.files[0], written.fetching = file, fetching
    written.row_groups = RowGroupSource(written.files)
    written.pages.fetch = fetching
    written.pages.files = written.files
    written.counts = np.array([int(file.footer.row_starts[-1])], np.int64)
    return written


def test_encrypted_filters_are_read_whole(data: Path) -> None:
    written = encrypted(data, "encrypt_columns_and_footer_bloom_filter")
    path = data / "encrypt_columns_and_footer_bloom_filter.parquet.encrypted"
    content = path.read_bytes()
    table, _ = plain_table(content, open_bytes(content, decryption_of(path)))
    present, absent = table.column("double_field")[1234].as_py(), 0.123456
    assert written.may("bloom filter", number("double_field", Op.EQ, present)) == [True]
    hits = [
        written.may("bloom filter", number("double_field", Op.EQ, absent + i))[0]
        for i in range(100)
    ]
    assert hits.count(False) > 20
    lengths = {each.length for each in written.fetching.asked}
    assert lengths == {160, 2048 + 32}
    without = encrypted(data, "encrypt_columns_and_footer_bloom_filter", keys=False)
    answer = without.ask("bloom filter", number("double_field", Op.EQ, absent))
    assert answer.bounds is None or answer.bounds.may.all()
    assert [reason.cause for reason in answer.reasons] == [Cause.UNDECRYPTABLE]


def test_encrypted_page_indexes(data: Path) -> None:
    written = encrypted(data, "encrypt_columns_and_footer")
    units = written.units(frozenset(("double_field",)), pages=True)
    assert units.rows.sum() == 50
    assert not any(written.may("page index", number("double_field", Op.EQ, 1e6)))
    plan = bind(parse_sql("double_field < 5"), pa.schema([("double_field", pa.float64())]))
    assert written.kept(written.plan(plan))[0].tolist() == list(range(int(units.rows[0])))
    without = encrypted(data, "encrypt_columns_and_footer", keys=False)
    assert len(without.units(frozenset(("double_field",)), pages=True)) == 0
