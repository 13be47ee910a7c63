"""Many small Roaring bitmaps at once, because one object per bitmap would be too slow.

A bitmap index of a million rows with 100,000 distinct values holds 100,000 bitmaps of ten rows.
``write_groups`` writes all of them with a few array operations, byte for byte as the library writes
them one by one; ``union_of_many`` reads them back the same way. Bitmaps with a bitset among their
containers are few (each has over 4,096 rows) and go through the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap

from skipstone.errors import FormatError

from ..._arrays import distinct, within
from . import roaring
from .keys import I64, U8, place
from .roaring import ARRAY_LARGEST, NO_OFFSET_THRESHOLD, SERIAL_COOKIE, SERIAL_COOKIE_NO_RUNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# Rows written at once: about 200 bytes of memory each where bitmaps are small. More are slower:
# they do not fit the caches of a core.
_BATCH = 1 << 16


def write_groups(rows: NDArray[np.uint32], starts: I64) -> tuple[list[bytes], I64]:
    """The bitmap of each group ``rows[starts[g]:starts[g + 1]]``, rows ascending in each.

    Bytes of all bitmaps in order, in parts to be joined, and the length of each (int64). No group
    may be empty.
    """
    groups = len(starts) - 1
    parts: list[bytes] = []
    lengths = np.empty(groups, np.int64)
    at = 0
    while at < groups:
        stop = int(np.searchsorted(starts, starts[at] + _BATCH, side="right")) - 1
        stop = min(max(stop, at + 1), groups)
        part, lengths[at:stop] = _write(rows[starts[at] : starts[stop]], starts[at : stop + 1])
        parts += part
        at = stop
    return parts, lengths


def _write(rows: NDArray[np.uint32], starts: I64) -> tuple[list[bytes], I64]:
    starts = starts - starts[0]
    if len(starts) == 2 and len(rows) > _BATCH // 4:
        whole = roaring.write(BitMap(np.ascontiguousarray(rows).data))
        return [whole], np.array([len(whole)])
    # A container begins where the group or the high half changes, a run also after a gap.
    begins = np.zeros(len(rows), np.bool_)
    begins[1:] = (rows[1:] >> np.uint32(16)) != (rows[:-1] >> np.uint32(16))
    begins[starts[:-1]] = True
    opens = begins.copy()
    opens[1:] |= rows[1:] != rows[:-1] + np.uint32(1)
    first = np.flatnonzero(begins)
    cards = np.diff(first, append=len(rows))
    runs = np.add.reduceat(opens, first, dtype=np.int64)
    is_run = 2 + 4 * runs < np.where(cards > ARRAY_LARGEST, 8192, 2 * cards)
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(np.searchsorted(first, starts)))
    alone = distinct(owner[(cards > ARRAY_LARGEST) & ~is_run])
    if not len(alone):
        return _lay_out(rows, opens, first, cards, runs, is_run, owner)
    lengths = np.empty(len(starts) - 1, np.int64)
    parts: list[bytes] = []
    before = 0
    for group in [*alone.tolist(), len(starts) - 1]:
        if group > before:
            inner, lengths[before:group] = _write(
                rows[starts[before] : starts[group]], starts[before : group + 1]
            )
            parts += inner
        if group < len(starts) - 1:
            own = np.ascontiguousarray(rows[starts[group] : starts[group + 1]])
            parts.append(roaring.write(BitMap(own.data)))
            lengths[group] = len(parts[-1])
        before = group + 1
    return parts, lengths


def _lay_out(
    rows: NDArray[np.uint32],
    opens: NDArray[np.bool_],
    first: I64,
    cards: I64,
    runs: I64,
    is_run: NDArray[np.bool_],
    owner: I64,
) -> tuple[list[bytes], I64]:
    """Bitmaps of arrays and runs. ``first``, ``cards``, ``runs``, ``is_run`` and ``owner`` (the
    group) are per container; ``opens`` says per row whether a run begins there."""
    base = np.flatnonzero(np.diff(owner, prepend=-1))  # first container of each group
    counts = np.diff(base, append=len(owner))
    with_runs = np.logical_or.reduceat(is_run, base)
    flags = np.where(with_runs, (counts + 7) // 8, 0)
    has_offsets = ~with_runs | (counts >= NO_OFFSET_THRESHOLD)
    table = np.where(with_runs, 4, 8) + flags  # where the descriptors begin
    heads = table + 4 * counts + np.where(has_offsets, 4 * counts, 0)
    sizes = np.where(is_run, 2 + 4 * runs, 2 * cards)
    lengths = heads + np.add.reduceat(sizes, base)
    at = np.cumsum(lengths) - lengths
    ends = np.cumsum(sizes)
    inside = ends - sizes - (ends - sizes)[base][owner] + heads[owner]
    body = at[owner] + inside
    out = np.zeros(int(lengths.sum()), np.uint8)
    ordinal = np.arange(len(owner)) - base[owner]
    high = (rows[first] >> np.uint32(16)).astype(np.int64)

    cookie = np.where(with_runs, SERIAL_COOKIE | (counts - 1) << 16, SERIAL_COOKIE_NO_RUNS)
    _put(out, at, cookie, 4)
    _put(out, at[~with_runs] + 4, counts[~with_runs], 4)
    marked = np.flatnonzero(is_run)
    places = at[owner[marked]] + 4 + ordinal[marked] // 8
    np.bitwise_or.at(out, places, (1 << (ordinal[marked] % 8)).astype(np.uint8))
    descriptor = (at + table)[owner] + 4 * ordinal
    _put(out, descriptor, high, 2)
    _put(out, descriptor + 2, cards - 1, 2)
    listed = has_offsets[owner]
    _put(out, (descriptor + 4 * counts[owner])[listed], inside[listed], 4)

    lows = (rows & np.uint32(0xFFFF)).astype(np.int64)
    in_array = np.repeat(~is_run, cards)
    target = np.repeat(body, cards) + 2 * within(cards)
    _put(out, target[in_array], lows[in_array], 2)
    if len(marked):
        _put_runs(out, np.flatnonzero(opens), lows, runs, is_run, body)
    return [out.tobytes()], lengths


def _put_runs(
    out: U8, opens: I64, lows: I64, runs: I64, is_run: NDArray[np.bool_], body: I64
) -> None:
    """Fill in the containers that are runs; ``opens`` are the rows where any run begins."""
    run_lengths = np.diff(opens, append=len(lows))
    of_runs = np.repeat(is_run, runs)
    target = (np.repeat(body, runs) + 2 + 4 * within(runs))[of_runs]
    _put(out, body[is_run], runs[is_run], 2)
    _put(out, target, lows[opens[of_runs]], 2)
    _put(out, target + 2, run_lengths[of_runs] - 1, 2)


def _put(out: U8, at: I64, values: I64, width: int) -> None:
    """Little-endian ``values`` of ``width`` bytes to ``out[at[i]:]``."""
    for byte in range(width):
        out[at + byte] = (values >> (8 * byte)).astype(np.uint8)


def union_of_many(bitmaps: Sequence[bytes | memoryview], rows: int) -> BitMap:
    """The union of bitmaps that share no row, checked as ``roaring.read`` checks one.

    ``FormatError`` also if together they hold more than ``rows`` rows.
    """
    if len(bitmaps) < 16:
        found = [roaring.read(each, rows) for each in bitmaps]
        if sum(map(len, found)) > rows:
            raise _overfull(rows)
        return BitMap.union(*found) if found else BitMap()
    lengths = np.fromiter(map(len, bitmaps), np.int64, len(bitmaps))
    raw = np.frombuffer(b"".join(bitmaps), np.uint8)
    starts = np.cumsum(lengths) - lengths
    simple = _plain(raw, starts, lengths)
    one_run = _one_run(raw, starts, lengths)
    singles, lows = _array_rows(raw, starts[simple], lengths[simple])
    rest = np.flatnonzero(~simple & ~one_run).tolist()
    others = [roaring.read(bitmaps[i], rows) for i in rest]
    firsts, counts = _runs(raw, starts[one_run])
    if len(lows) + int(counts.sum()) + sum(map(len, others)) > rows:
        raise _overfull(rows)
    if len(firsts):
        others.append(_of_runs(firsts, counts, rows))
    if len(lows):
        if int(lows.max()) >= rows:
            raise FormatError("a row past the last", expected=f"below {rows}", got=int(lows.max()))
        rising = lows[1:] > lows[:-1]
        rising[singles[1:] - 1] = True  # another bitmap may begin anywhere
        if not bool(rising.all()):
            raise FormatError("rows of a bitmap do not ascend")
        others.append(roaring.of_rows(lows, rows))
    return BitMap.union(*others) if others else BitMap()


def _overfull(rows: int) -> FormatError:
    return FormatError("values that share rows", expected=f"{rows} rows in all", got="more")


def _one_run(raw: U8, starts: I64, lengths: I64) -> NDArray[np.bool_]:
    """Which bitmaps are one container of one run: values of sorted files."""
    found: NDArray[np.bool_] = np.asarray(lengths == 15)
    at = starts[found]
    found[found] = (_get(raw, at, 4) == SERIAL_COOKIE) & (raw[at + 4] == 1)
    found[found] = _get(raw, starts[found] + 9, 2) == 1
    return found


def _runs(raw: U8, starts: I64) -> tuple[I64, I64]:
    """First row and length of bitmaps of one run."""
    low, more = _get(raw, starts + 11, 2), _get(raw, starts + 13, 2)
    if len(starts) and int((low + more).max()) > 0xFFFF:
        raise FormatError("a run ends past its container")
    if not np.array_equal(_get(raw, starts + 7, 2), more):
        raise FormatError("a container of another cardinality")
    return (_get(raw, starts + 5, 2) << 16) + low, more + 1


def _of_runs(firsts: I64, counts: I64, rows: int) -> BitMap:
    """The union of runs of rows."""
    order = np.argsort(firsts, kind="stable")
    firsts, stops = firsts[order], (firsts + counts)[order]
    if int(stops.max()) > rows:
        raise FormatError("a row past the last", expected=f"below {rows}", got=int(stops.max()) - 1)
    if not bool(np.all(firsts[1:] >= stops[:-1])):
        raise _overfull(rows)
    # Runs that touch are one: neighbouring values of a sorted file become a few runs.
    new = np.flatnonzero(np.append(True, firsts[1:] > stops[:-1]))
    last = np.append(new[1:], len(firsts)) - 1
    found = BitMap()
    for first, stop in zip(firsts[new].tolist(), stops[last].tolist(), strict=True):
        found.add_range(first, stop)
    return found


def _plain(raw: U8, starts: I64, lengths: I64) -> NDArray[np.bool_]:
    """Which bitmaps are arrays only: those that ``_array_rows`` takes."""
    simple = lengths >= 8
    cookie = np.zeros(len(starts), np.int64)
    cookie[simple] = _get(raw, starts[simple], 4)
    simple &= cookie == SERIAL_COOKIE_NO_RUNS
    counts = np.zeros(len(starts), np.int64)
    counts[simple] = _get(raw, starts[simple] + 4, 4)
    simple &= (counts > 0) & (counts <= 1 << 16) & (8 + 10 * counts <= lengths)
    # Without a bitset, what follows the head is 2 bytes a row; cardinalities must add up to it.
    at = np.flatnonzero(simple)
    owner = np.repeat(at, counts[at])
    cards = _get(raw, starts[owner] + 8 + 4 * within(counts[at]) + 2, 2) + 1
    small = np.ones(len(starts), np.bool_)
    np.logical_and.at(small, owner, cards <= ARRAY_LARGEST)
    simple &= small & (lengths == 8 + 8 * counts + 2 * np.bincount(owner, cards, len(starts)))
    return simple


def _array_rows(raw: U8, starts: I64, lengths: I64) -> tuple[I64, I64]:
    """Where each bitmap's rows begin among all, and all rows."""
    counts = _get(raw, starts + 4, 4)
    owner = np.repeat(np.arange(len(starts)), counts)
    descriptor = starts[owner] + 8 + 4 * within(counts)
    highs, cards = _get(raw, descriptor, 2), _get(raw, descriptor + 2, 2) + 1
    offsets = _get(raw, descriptor + 4 * counts[owner], 4)
    size = lengths - 8 - 8 * counts
    ends = np.cumsum(2 * cards)
    base = np.cumsum(counts) - counts
    right = ends - 2 * cards
    right = right - right[base][owner] + 8 + 8 * counts[owner] if len(owner) else right
    if not np.array_equal(offsets, right):
        raise FormatError("offsets of a bitmap are not those of its containers")
    if not bool(np.all((highs[1:] > highs[:-1]) | (owner[1:] != owner[:-1]))):
        raise FormatError("containers of a bitmap do not ascend")
    bodies = np.empty(int(size.sum()), np.uint8)
    place(bodies, np.cumsum(size) - size, raw, starts + 8 + 8 * counts, size)
    found = bodies.view("<u2").astype(np.int64) | (np.repeat(highs, cards) << 16)
    return np.cumsum(size // 2) - size // 2, found


def _get(raw: U8, at: I64, width: int) -> I64:
    """Little-endian ints of ``width`` bytes at ``raw[at[i]:]``."""
    found = np.zeros(len(at), np.int64)
    for byte in range(width):
        found |= raw[at + byte].astype(np.int64) << (8 * byte)
    return found
