"""Figures of one column over the sampled files, and the bytes that an index of it would take.

**Distinct values per file** are counted where a file was read whole. Where ``r`` of ``n`` rows were
read and ``d`` values seen, ``e`` of them in the first half: ``K`` equally frequent values that
would show ``d`` of them in ``r`` rows, ``d = K (1 - exp(-r / K))``, show ``K (1 - exp(-n / K))``
in ``n``. Where the second half brought more new values than this predicts (runs of equal values,
many rare ones), they continue to grow as from ``r / 2`` to ``r``: ``d (n / r) ** log2(d / e)``.

**A lookup** is of an existing value, each distinct value with equal probability. It is drawn from
the distinct values of one file. A value that ``h`` files hold is drawn ``h`` times as often, so it
gets the weight ``1 / h``. It reads the file it was drawn from, and the share of the others that
holds it, or whose [min, max] does.

**Bytes** by kind:

| kind | bytes for N files |
|---|---|
| ``minmax`` | 2 N w; strings and binary: w at most 64, and 4 for each length |
| ``valuelist`` | N n w, or by a dictionary D w + N n log2(D) / 8 where that is less; and N n / 8 |
| ``bloomfilter`` | N (-n ln(fpp) / ln(2)^2 bits, at most 8 MiB, and a header of 300 bytes), |
| | with the ``fpp`` that a build chooses for N files |

``n`` distinct values in a file, ``D`` in all files, of ``w`` bytes each (4 more for the length of a
string or byte array). Filters do not compress, and numbers are assumed not to; text halves. In
addition, each file has a row (path, identity, counts) and each part a footer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.indexes.bloom import MAX_BYTES as BLOOM_BYTES
from skipstone.indexes.bloom import fpp_for, sized
from skipstone.pruning.column_types import is_text
from skipstone.pruning.file_bounds import TRUNCATE

from .sampling import SEED, ColumnSample, FileSample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# Values drawn from each file: 20 files give 1,280 lookups, a standard error of some 1 % of files.
_DRAWN = 64
# Rounds of the estimate of how many files hold a value.
_ROUNDS = 100
# The rounds end when no share changes by more than this.
_SETTLED = 1e-9
# By chance, growth may exceed what equally frequent values would show by this factor.
_CHANCE = 1.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One column of all sampled files; shares between 0 and 1, ``None`` where unknown.

    ``distinct`` is the mean over files, ``distinct_by_file`` each file's with its size in bytes;
    ``distinct_overall`` is the number in the files that were read, or less where it is over 1;
    ``distinct_total`` the estimate for all files. ``reads_minmax`` and ``reads_values`` are shares
    of *all* files.
    """

    nulls: float | None
    distinct: float
    distinct_by_file: tuple[tuple[float, int], ...]
    exact: bool
    distinct_overall: int
    distinct_total: float
    ascending: bool
    overlap: float | None
    reads_minmax: float | None
    reads_values: float | None
    width: float
    spaced: float
    rows_per_file: float


def distinct_in_all(seen: int, early: int, read: int, total: int) -> float:
    """Distinct values of ``total`` rows, of which ``read`` showed ``seen``; see the module."""
    if seen == 0 or read >= total:
        return float(seen)
    steady = seen * total / read
    if early == 0 or seen == read:
        return steady
    low, high = float(seen), 1e3 * read
    for _ in range(60):
        middle = math.sqrt(low * high)
        if middle * -math.expm1(-read / middle) < seen:
            low = middle
        else:
            high = middle
    halfway = high * -math.expm1(-read / 2 / high)
    if seen / early > _CHANCE * seen / halfway:
        return float(min(steady, seen * (total / read) ** math.log2(seen / early)))
    return float(min(steady, max(seen, high * -math.expm1(-total / high))))


def measure(files: Sequence[FileSample], column: tuple[str, ...], files_total: int) -> Measured:
    """The figures of ``column``; it is all null in a file without it."""
    read = [(file, file.columns[column]) for file in files if column in file.columns]
    rows = sum(file.rows_read for file in files)
    held = sum(sample.rows - sample.nulls for _, sample in read)
    by_file = [(_distinct(file, sample), file.size) for file, sample in read]
    by_file += [(0.0, file.size) for file in files if file.rows_read and column not in file.columns]
    values = [sample.distinct for _, sample in read]
    drawn, owners = _draw(values)
    others = _others(values, drawn, owners, [d for d, _ in by_file])
    held_by = np.arange(others.shape[1])
    share = held_by / max(len(values) - 1, 1)
    weights = others @ (1 / (1 + held_by))
    distinct = _mean([count for count, _ in by_file])
    ranges = [file.ranges[column] for file in files if column in file.ranges]
    return Measured(
        nulls=1 - held / rows if rows else None,
        distinct=distinct,
        distinct_by_file=tuple(by_file),
        exact=all(file.rows_read == file.rows for file, _ in read),
        distinct_overall=_overall(values),
        distinct_total=files_total * distinct / (1 + _mean(others @ share) * (files_total - 1)),
        ascending=all(sample.ascending for _, sample in read),
        overlap=_overlap(ranges),
        reads_minmax=_of_all(_in_ranges(ranges, drawn, weights), files_total),
        reads_values=_of_all(
            float((others @ (share / (1 + held_by))).sum() / weights.sum())
            if len(values) > 1 and len(weights)
            else None,
            files_total,
        ),
        width=_mean([sample.width for _, sample in read if len(sample.distinct)]),
        spaced=_mean([sample.spaced for _, sample in read if len(sample.distinct)]),
        rows_per_file=_mean([float(file.rows) for file in files]),
    )


def _overall(values: Sequence[pa.Array]) -> int:
    """The number of distinct values in all files. It is exact where no file has more than one; else
    it is the most in one file, because the union would take more memory than the sample."""
    most = max(map(len, values), default=0)
    return most if most > 1 or not most else len(pc.unique(pa.concat_arrays(values)))


def _mean(numbers: Sequence[float] | NDArray[np.float64]) -> float:
    return float(sum(numbers) / len(numbers)) if len(numbers) else 0.0


def _weighted(shares: NDArray[np.float64], weights: NDArray[np.float64]) -> float | None:
    return float((weights * shares).sum() / weights.sum()) if len(weights) else None


def _distinct(file: FileSample, sample: ColumnSample) -> float:
    return distinct_in_all(len(sample.distinct), sample.early, file.rows_read, file.rows)


def _of_all(share: float | None, files_total: int) -> float | None:
    """A share of the other files as a share of all, the value's own included."""
    return None if share is None else (1 + share * (files_total - 1)) / max(files_total, 1)


def _draw(values: Sequence[pa.Array]) -> tuple[pa.Array | None, NDArray[np.int64]]:
    """Values drawn from each file, and the ordinal of the file that each was drawn from."""
    rng = np.random.default_rng(SEED)
    drawn, counts = [], []
    for array in values:
        counts.append(min(_DRAWN, len(array)))
        chosen = rng.permutation(len(array))[: counts[-1]]
        drawn.append(array.take(pa.array(chosen)))
    owners = np.repeat(np.arange(len(values)), counts)
    return (pa.concat_arrays(drawn) if len(owners) else None), owners


def _others(
    values: Sequence[pa.Array],
    drawn: pa.Array | None,
    owners: NDArray[np.int64],
    estimated: Sequence[float],
) -> NDArray[np.float64]:
    """For each drawn value the probability that 0, 1, 2, ... other files hold it.

    Where only some distinct values of a file were seen, a file that holds a value shows it with
    probability ``q``. Of ``h`` files, ``x`` do by the binomial distribution. How common each ``h``
    is follows from all values together, by expectation and maximization.
    """
    most = max(len(values) - 1, 0)
    if drawn is None:
        return np.zeros((0, most + 1))
    hits = np.array([pc.is_in(drawn, value_set=array).to_numpy(False) for array in values])
    hits[owners, np.arange(len(owners))] = False
    seen = [min(1.0, len(v) / max(n, 1)) for v, n in zip(values, estimated, strict=False)]
    q, numbers = _mean(seen), range(most + 1)
    shows = np.array(
        [[math.comb(h, x) * q**x * (1 - q) ** max(h - x, 0) for h in numbers] for x in numbers]
    )
    # Values that the same number of files show are alike.
    shown, of_value, times = np.unique(hits.sum(axis=0), return_inverse=True, return_counts=True)
    likely, weights = shows[shown], times / times.sum()
    common = np.full(most + 1, 1 / (most + 1))
    for _ in range(_ROUNDS):
        found: NDArray[np.float64] = likely * common
        found /= found.sum(axis=1, keepdims=True)
        before, common = common, weights @ found
        if np.abs(common - before).max() < _SETTLED:
            break
    return found[of_value]


def _in_ranges(
    ranges: Sequence[tuple[pa.Scalar, pa.Scalar]],
    drawn: pa.Array | None,
    weights: NDArray[np.float64],
) -> float | None:
    if drawn is None or len(ranges) < 2:
        return None
    inside = np.zeros(len(drawn))
    for low, high in ranges:
        fits = pc.and_(pc.greater_equal(drawn, low), pc.less_equal(drawn, high))
        inside += pc.fill_null(fits, True).to_numpy(False)
    return _weighted(np.maximum(inside - 1, 0) / (len(ranges) - 1), weights)


def _overlap(ranges: Sequence[tuple[pa.Scalar, pa.Scalar]]) -> float | None:
    if len(ranges) < 2:
        return None
    # Python has no dates and times beyond the year 9999.
    lows = pa.concat_arrays([pa.repeat(low, 1) for low, _ in ranges])
    highs = pa.concat_arrays([pa.repeat(high, 1) for _, high in ranges])
    pairs = 0
    for at, (low, high) in enumerate(ranges):
        apart = pc.or_(pc.less(highs, low), pc.greater(lows, high)).to_numpy(False)
        pairs += int((~apart[at + 1 :].astype(bool)).sum())
    return pairs / (len(ranges) * (len(ranges) - 1) / 2)


_BLOOM_HEADER = 300
# The compressed share of text: hexadecimal digits halve, words shrink more, random letters less.
_TEXT = 0.5
# Compressed bytes of a row of the store without its indexes, and of a part with its footer and the
# footer's entry for each column. A build leaves about two parts.
_PER_FILE, _PER_PART, _PER_COLUMN, _PARTS = 30, 10_000, 2_700, 2
# Bytes of the row group metadata (_pm) of a file for each of its columns, and for each chunk.
_PM_COLUMN, _PM_CHUNK = 45, 70


def store_bytes(files: int, columns: int, sampled: Sequence[tuple[int, int]] = ()) -> int:
    """Bytes of a store over ``files`` files, without the indexes of ``columns`` columns.
    ``sampled``: the columns and row groups of some files, for the metadata of row groups."""
    pm = sum(each * (_PM_COLUMN + _PM_CHUNK * groups) for each, groups in sampled)
    parts = _PARTS * (_PER_PART + _PER_COLUMN * columns)
    return _PER_FILE * files + parts + round(pm * files / max(len(sampled), 1))


def minmax_bytes(type: pa.DataType, width: float) -> float:
    """Bytes of one file's bounds."""
    return 2 * _of_value(type, min(width, TRUNCATE) if is_text(type) else width)


def valuelist_bytes(
    type: pa.DataType, width: float, distinct: float, files: int = 1, distinct_total: float = 0
) -> float:
    """Bytes of ``files`` lists of ``distinct`` values each, ``distinct_total`` in all of them."""
    values, size = files * distinct, _of_value(type, width)
    total = max(distinct, distinct_total, 1)
    coded = total * size + values * math.ceil(math.log2(total + 1)) / 8
    return min(values * size, coded) + values / 8


def bloom_bytes(distinct: float, files: int) -> float:
    """Bytes of one file's filter in a table of ``files`` files."""
    words, _ = sized(max(math.ceil(distinct), 1), fpp_for(files))
    return min(8 * words, BLOOM_BYTES) + _BLOOM_HEADER


def _of_value(type: pa.DataType, width: float) -> float:
    return _TEXT * (width + 4) if is_text(type) else width
