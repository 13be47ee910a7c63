"""Bitmaps laid out by arrays of offsets are those that the library writes, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from skipstone.errors import FormatError
from skipstone.paimon.format import roaring
from skipstone.paimon.format.bit_slices import Dense, Slices, Sparse, planes_for, planes_of
from skipstone.paimon.format.roaring_bulk import union_of_many, write_groups

ROWS = 4 * 65_536
RUNS = st.tuples(st.integers(0, ROWS - 1), st.integers(1, 9)).map(
    lambda run: set(range(run[0], min(sum(run), ROWS)))
)
LONG_RUNS = st.tuples(st.integers(0, ROWS - 70_000), st.sampled_from([5_000, 66_000])).map(
    lambda run: set(range(run[0], sum(run)))
)
SCATTERED = st.integers(0, 60_000).map(lambda start: set(range(start, start + 9_000, 2)))
SETS = st.lists(RUNS | RUNS | LONG_RUNS | SCATTERED, min_size=1, max_size=5).map(
    lambda parts: set.union(*parts)
)


def plain(rows: set[int]) -> bytes:
    bitmap = BitMap(rows)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


@given(st.lists(SETS, min_size=1, max_size=6))
def test_groups(sets: list[set[int]]) -> None:
    rows = np.concatenate([np.array(sorted(each), np.uint32) for each in sets])
    starts = np.cumsum([0, *map(len, sets)])
    parts, lengths = write_groups(rows, starts)
    expected = [plain(each) for each in sets]
    assert b"".join(parts) == b"".join(expected)
    assert lengths.tolist() == [len(each) for each in expected]
    for raw, each in zip(expected, sets, strict=True):
        found = roaring.read(raw, ROWS)
        assert set(found) == each
        assert roaring.write(found) == raw
        with pytest.raises(FormatError, match="past the last"):
            roaring.read(raw, max(each))
        with pytest.raises(FormatError, match="another length"):
            roaring.read(raw + b"\0", ROWS)
        assert roaring.read(raw + b"\0", ROWS, exactly=False) == found


def test_many_groups_go_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipstone.paimon.format.roaring_bulk._BATCH", 50)
    rng = np.random.default_rng(1)
    sets = [set(rng.integers(0, ROWS, rng.integers(1, 30)).tolist()) for _ in range(40)]
    sets.insert(7, set(range(100, 400)))
    rows = np.concatenate([np.array(sorted(each), np.uint32) for each in sets])
    parts, _ = write_groups(rows, np.cumsum([0, *map(len, sets)]))
    assert b"".join(parts) == b"".join(map(plain, sets))


@given(st.lists(SETS, max_size=30))
def test_unions(sets: list[set[int]]) -> None:
    seen: set[int] = set()
    apart = []
    for each in sets * 3:  # enough of them to be read together
        if each - seen:
            apart.append(plain(each - seen))
        seen |= each
    apart += [plain({row}) for row in range(ROWS, ROWS + 20)]
    assert set(union_of_many(apart, ROWS + 20)) == seen | set(range(ROWS, ROWS + 20))


def test_unions_of_runs() -> None:
    """As values of sorted files have them: one run each, side by side, or with gaps."""
    edges = [*range(0, 90_000, 300), *range(100_000, 130_000, 1_000)]
    sets = [set(range(edge, edge + 300)) for edge in edges]
    expected = set.union(*sets)
    assert set(union_of_many(list(map(plain, sets)), ROWS)) == expected
    with pytest.raises(FormatError, match="share rows"):
        union_of_many([*map(plain, sets), plain(set(range(10, 20)))], ROWS)
    with pytest.raises(FormatError, match="past the last"):
        union_of_many(list(map(plain, sets)), 129_200)
    damaged = bytearray(plain(sets[0]))
    damaged[13] ^= 1
    with pytest.raises(FormatError, match="cardinality"):
        union_of_many([bytes(damaged), *map(plain, sets[1:])], ROWS)


def test_values_cannot_share_rows() -> None:
    for count in (3, 30):
        with pytest.raises(FormatError, match="share rows"):
            union_of_many([plain({1, 2})] * count, 5)


@given(SETS, st.sampled_from([ROWS, ROWS * 200]))
def test_rows_as_a_bitmap(rows: set[int], row_count: int) -> None:
    array = np.array(sorted(rows), np.int64)[::-1]
    assert set(roaring.of_rows(array, row_count)) == rows


def bits(codes: dict[int, int], planes: str, width: int) -> Slices:
    """Slices of these rows' codes, dense or sparse."""
    rows = np.array(sorted(codes), np.uint32)
    values = np.array([codes[row] for row in sorted(codes)], np.int64)
    existing, slices = planes_of(values, rows, ROWS, width)
    raw = [roaring.write(each) for each in slices]
    ebm = roaring.write(existing)
    if planes == "sparse":
        chosen: Dense | Sparse = Sparse(ROWS)
    else:
        chosen = Dense(np.arange(4), ROWS)
        if len({row >> 16 for row in codes}) == 4:
            assert isinstance(planes_for(ebm, [len(ebm) + 8_192 * 4] * width, ROWS)[0], Dense)
    return Slices(chosen, chosen.load(ebm), width, lambda bit: chosen.load(raw[bit]))


@pytest.mark.parametrize("planes", ["dense", "sparse"])
@given(data=st.data())
def test_comparing_codes(planes: str, data: st.DataObject) -> None:
    rows = sorted(data.draw(SETS))
    seed = data.draw(st.integers(0, 99))
    cardinality = data.draw(st.integers(1, 40))
    codes = dict(
        zip(
            rows,
            np.random.default_rng(seed).integers(0, cardinality, len(rows)).tolist(),
            strict=True,
        )
    )
    slices = bits(codes, planes, max(1, (cardinality - 1).bit_length()))
    low, stop = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 40))

    def shown(found: object) -> set[int]:
        return set(slices.planes.rows(found))

    assert shown(slices.existing) == set(rows)
    assert shown(slices.at_least(low)) == {row for row in rows if codes[row] >= low}
    assert shown(slices.equal(low)) == {row for row in rows if codes[row] == low}
    assert shown(slices.between(low, min(stop, cardinality), cardinality)) == {
        row for row in rows if low <= codes[row] < stop
    }
    assert slices.planes.count(slices.existing) == len(rows)
    assert shown(slices.planes.of(BitMap(rows))) == set(rows)
    assert shown(slices.existing) == set(rows), "no question changes what is asked"
