"""Values that are decoded when they are needed: some rows, and conditions on all or some."""

from __future__ import annotations

import math
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import skipstone
from skipstone._arrays import arrow
from skipstone.errors import FormatError
from skipstone.parquet.format.enums import Type
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning.residual import matching
from tests.parquet.reading.bulk import opened, plain, read_together, same
from tests.parquet.reading.test_bulk_columns import settings_of_writer
from tests.parquet.reading.test_bulk_hostile import chunk, damaged, read, wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_TEXTS = ["", "a", "ab", "abc", "b", "é😀", "%_", "a" * 9, "a" * 8 + "b", "x" * 70, "aab" * 20]
_FLOATS = [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1.5, -2.25, 5e-324]
_INTEGERS = [-(1 << 31), (1 << 31) - 1, 0, 1, -1, 7]
#: Arrow's types, the values of a file, and the type in the predicate
_KINDS: list[tuple[pa.DataType, list[Any], pa.DataType]] = [
    (pa.string(), _TEXTS, pa.string()),
    (pa.large_string(), _TEXTS, pa.string()),
    (pa.binary(), [text.encode() for text in _TEXTS] + [b"\xff\xfe", b"a\xff"], pa.string()),
    (pa.float64(), _FLOATS, pa.float64()),
    (pa.float32(), [0.0, -0.0, math.nan, math.inf, 1.5, -2.25], pa.float64()),
    (pa.int32(), _INTEGERS, pa.int64()),
    (pa.int64(), [*_INTEGERS, -(1 << 63), (1 << 63) - 1], pa.int64()),
    (pa.int16(), [0, 1, -5, 1 << 14], pa.int64()),
    (pa.date32(), [0, 1, -700_000, 20_000], pa.date32()),
    (pa.timestamp("us", "UTC"), [0, 5, -(1 << 50), 1 << 50], pa.timestamp("us", "UTC")),
    (pa.timestamp("ms"), [0, 5, -(1 << 40)], pa.timestamp("us")),
]
_COMPARED = [Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.NE_OR_NULL]
_PATTERNS = [
    "%", "", "a", "a%", "%a", "%a%", "%b%", "a%b", "%_", "_%", "_", "%a_b%", "%ab%a%", "__", "%é_",
    "%aab%", "%é%", "%\ufffd%", r"\%\_", r"%\_", r"%\%%", "%xxx%", "a_%b%", "%" + "a" * 40 + "%",
    "%" + "aab" * 12 + "%",
]  # fmt: skip


@st.composite
def conditions(draw: st.DrawFn, values: list[Any], type: pa.DataType) -> Leaf:
    if draw(st.integers(0, 5)) == 0:
        return Leaf("a", type, draw(st.sampled_from([Op.IS_NULL, Op.NOT_NULL])))
    if pa.types.is_string(type):
        values = [value for value in values if isinstance(value, str)] or _TEXTS
        kind = draw(st.integers(0, 2))
        if kind == 0:
            op = draw(st.sampled_from([Op.LIKE, Op.NOT_LIKE]))
            return Leaf("a", type, op, (draw(st.sampled_from(_PATTERNS)), "\\", ""))
        if kind == 1:
            op = draw(st.sampled_from([Op.STARTS_WITH, Op.NOT_STARTS_WITH]))
            more = [*values, "aaaaaaaa", "aaaaaaaab"]
            return Leaf("a", type, op, (draw(st.sampled_from(more)),))
    if draw(st.booleans()):
        some = draw(st.lists(st.sampled_from(values), min_size=1, max_size=6))
        return Leaf("a", type, draw(st.sampled_from([Op.IN, Op.NOT_IN])), tuple(some))
    return Leaf("a", type, draw(st.sampled_from(_COMPARED)), (draw(st.sampled_from(values)),))


@st.composite
def files(draw: st.DrawFn) -> tuple[list[tuple[pa.Table, dict[str, Any]]], Leaf, Leaf]:
    """Files of one column, and two conditions on it."""
    type, values, asked = draw(st.sampled_from(_KINDS))
    nullable = draw(st.booleans())
    made = []
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(st.sampled_from([0, 1, 9, 40, 300]))
        some = draw(st.lists(st.sampled_from(values), min_size=1, max_size=6))
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        picks = rng.integers(0, len(some), rows).tolist()
        gone = (rng.random(rows) < draw(st.sampled_from([0, 0.1, 0.9, 1.0]))).tolist()
        column = [
            None if lost and nullable else some[at] for at, lost in zip(picks, gone, strict=True)
        ]
        schema = pa.schema([pa.field("a", type, nullable)])
        table = pa.table([pa.array(column, type)], schema=schema)
        made.append((table, draw(settings_of_writer())))
    first, second = (draw(conditions(values, asked)) for _ in range(2))
    return made, first, second


def flags(leaf: Leaf, column: Any, rows: int) -> NDArray[np.bool_]:
    return matching(leaf, {"a": column}, rows)


@given(files(), st.integers(0, 99), st.sampled_from([0.0, 0.02, 0.3, 1.0]))
def test_rows_and_conditions_are_those_of_decoded_columns(
    drawn: tuple[list[tuple[pa.Table, dict[str, Any]]], Leaf, Leaf], seed: int, share: float
) -> None:
    made, first, second = drawn
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, (table, how) in enumerate(made):
            paths.append(Path(folder) / f"{number}.parquet")
            pq.write_table(table, paths[-1], **how)
        together = read_together([opened(path) for path in paths], ["a"])
        if together is None:
            event("another form")
            return
        assert together.done.all()
        whole = plain(together.arrays[0])

        def column() -> Any:
            found = read_together([opened(path) for path in paths], ["a"], lazy=True)
            assert found is not None
            assert found.done.all()
            return found.arrays[0]

        rows = len(whole)
        if not rows:
            return
        at = np.flatnonzero(np.random.default_rng(seed).random(rows) < share)
        some = whole.take(pa.array(at))
        assert same(plain(column().to_arrow()), whole)
        for stored in (column(), column()):
            assert same(plain(stored.take(arrow(at))), some)
            assert np.array_equal(stored.at(at).valid(), np.asarray(some.is_valid()))
            assert np.array_equal(stored.valid(), np.asarray(whole.is_valid()))
            for leaf in (first, second):
                right = flags(leaf, whole, rows)
                assert np.array_equal(flags(leaf, stored, rows), right), leaf
                assert np.array_equal(flags(leaf, column().at(at), len(at)), right[at]), leaf
                hits = pa.array(np.flatnonzero(right))
                assert same(plain(stored.take(hits)), whole.take(hits)), leaf
                single = column()
                single.once = True
                assert np.array_equal(flags(leaf, single, rows), right), leaf
                assert same(plain(single.to_arrow()), whole)
            assert same(plain(stored.take(arrow(at))), some)
            assert same(plain(stored.to_arrow()), whole)
    event(f"{first.op}")


@settings(max_examples=5 * settings().max_examples)
@given(damaged(), st.integers(0, 99), st.sampled_from([0.02, 0.5]))
def test_pages_that_lie_give_an_error_or_rows(
    drawn: tuple[tuple[Any, ...], list[bytes]], seed: int, share: float
) -> None:
    """Nothing is read beside a page, and a sound chunk alone gives its rows."""
    form, lies = drawn
    physical, coded, _, optional, codec = form
    sound = b"".join(page.bytes for page in chunk(*form))
    right = wanted(physical, coded)
    text = physical is Type.BYTE_ARRAY
    type = pa.string() if text else pa.int64()
    leaves = [Leaf("a", type, Op.GE, (right[1].decode() if text else right[1],))]
    if text:
        leaves += [Leaf("a", type, Op.LIKE, (like, "\\", "")) for like in ("%l_h%", "%a%")]
    with tempfile.TemporaryDirectory() as folder:
        for data in ([sound], [sound, *lies]):

            def column(data: list[bytes] = data) -> Any:
                found = read(Path(folder), data, physical, optional, codec, lazy=True)
                return found.arrays[0] if found.done.all() else None

            if column() is None:
                continue
            rows = len(column())
            at = np.flatnonzero(np.random.default_rng(seed).random(rows) < share)
            try:
                found = plain(column().take(arrow(at)))
                found.validate(full=True)
                made = [flags(leaf, column(), rows) for leaf in leaves]
                for leaf, flagged in zip(leaves, made, strict=True):
                    single = column()
                    single.once = True
                    assert np.array_equal(flags(leaf, single, rows), flagged)
                assert len(column().valid()) == rows
            except FormatError:
                assert len(data) > 1
                continue
            own = at[at < len(right)]
            assert found.slice(0, len(own)).to_pylist() == [right[each] for each in own]
            for leaf, flagged in zip(leaves, made, strict=True):
                array = pa.array(right, pa.binary() if text else pa.int64())
                assert np.array_equal(flagged[: len(right)], flags(leaf, array, len(right)))


@pytest.mark.parametrize("coded", [True, False])
def test_a_text_over_two_values_is_in_neither(tmp_path: Path, coded: bool) -> None:
    """Between two values in a page is the length of the second."""
    length = struct.pack("<I", 97).decode()  # "a" and three zeros
    words = ["x" * 97, "xy", "y" * 97, f"x{length}y", "abc"]
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"a": words}), path, use_dictionary=coded, compression="none")
    for pattern in (f"%x{length}y%", f"%{length}%", "%xa%", "%y%x%", "%b%"):
        leaf = Leaf("a", pa.string(), Op.LIKE, (pattern, "\\", ""))
        found = read_together([opened(path)], ["a"], lazy=True)
        assert found is not None
        right = flags(leaf, pa.array(words), len(words))
        assert np.array_equal(flags(leaf, found.arrays[0], len(words)), right), pattern


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_frequent_word_is_counted_and_its_rows_are_read(
    tmp_path: Path, codec: str, version: str
) -> None:
    """The first pages are coded, until the dictionary is full; many pages are searched together."""
    for file in range(3):
        texts = [f"{row * 7919:040d} word {'rare' * (row % 9 == 0)}" for row in range(8_000)]
        column = [None if row % 11 == 3 else text for row, text in enumerate(texts)]
        pq.write_table(
            pa.table({"id": range(file * 8_000, file * 8_000 + 8_000), "m": column}),
            tmp_path / f"{file}.parquet",
            compression=codec,
            data_page_version=version,
            dictionary_pagesize_limit=40_000,
            data_page_size=30_000,
        )
    every = pq.read_table(tmp_path).to_pylist()
    table = skipstone.Table(str(tmp_path))
    holding: dict[str, Callable[[str], bool]] = {
        "m LIKE '%word%'": lambda text: "word" in text,
        "m LIKE '%rare%'": lambda text: "rare" in text,
        "m NOT LIKE '%rare%'": lambda text: "rare" not in text,
        "m LIKE '%7919%' AND m LIKE '%word%'": lambda text: "7919" in text,
        "m LIKE '%word '": lambda text: text.endswith("word "),
    }
    for where, holds in holding.items():
        rows = [row for row in every if row["m"] is not None and holds(row["m"])]
        assert table.count(where) == len(rows), where
        assert table.query(where).to_pylist() == rows, where
