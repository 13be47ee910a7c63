"""Top-N from range-bitmaps: the first rows of one file, and of several, before any row is read.

``TopFile`` is one file. Its range-bitmap gives exactly k rows. If values tie for the last place,
the rows at the greatest positions win; of nulls, those at the least. With ``ties`` all that tie are
included. To merge the rows of several files, their keys are needed: the code of each row is
assembled from its bits, and the dictionary gives the key of the code. It is read in rounds like any
index: ``missing`` names the bytes to read next.

``top_rows`` merges the first k rows of each file. Files are read in the order of the best key in
their heads, in waves; a file whose best key is worse than the k-th found so far is not read. A
file without a usable index keeps all of its candidates: the result is then a superset, which the
reader sorts and cuts. With one sort key exactly k rows remain (all, if there are fewer): the last
in file and row order of values that tie, and the first nulls. With ``ties``, for several sort keys,
all that tie with the k-th by the first key remain.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.pruning import Cause, Fetched, Reason, RowSet

from .._arrays import distinct
from .base import VerifiedBlob
from .format.keys import In, Key, PaimonType, Root
from .format.partial_blob import MissingBytes
from .format.range_bitmap import RangeBitmapIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from pyroaring import BitMap

    from skipstone.pruning.evaluation import Fetch
    from skipstone.pruning.kind import Blob
    from skipstone.pruning.plan import SortKey
    from skipstone.storage import ByteRange


@dataclass(frozen=True, slots=True, eq=False)
class RankedRows:
    """``rows`` (int64, ascending) and the key of each, ``None`` for null."""

    rows: NDArray[np.int64]
    keys: list[Key | None]


@dataclass(slots=True, eq=False, kw_only=True)
class TopFile:
    """One file's range-bitmap at ``blob``, of a file with ``row_count`` rows. ``verified`` opens
    the blob with its checksums; without it there are none."""

    blob: Blob
    type: PaimonType
    row_count: int
    verified: Callable[[], VerifiedBlob] | None = None
    _known: VerifiedBlob | None = field(default=None, init=False)
    _damage: FormatError | None = field(default=None, init=False)

    def take(self, have: Fetched) -> None:
        """Takes bytes that ``missing`` named. If they are damaged, the next call raises."""
        try:
            self._bytes().take(have)
        except FormatError as error:
            self._damage = error

    def _bytes(self) -> VerifiedBlob:
        if self._damage is not None:
            raise self._damage
        if self._known is None:
            self._known = VerifiedBlob(self.blob) if self.verified is None else self.verified()
        return self._known

    def missing(self, question: Callable[[], object]) -> Sequence[ByteRange]:
        """The bytes that a call of ``bounds`` or ``first`` lacks; errors are those of the index."""
        try:
            question()
        except MissingBytes as missing:
            return self._bytes().ask(missing.spans)
        return ()

    def bounds(self) -> tuple[Key | None, Key | None, int]:
        """Least and greatest key, and the number of distinct keys, from the head."""
        index = self._open()
        return index.min, index.max, index.cardinality

    def first(self, k: int, order: SortKey, *, ties: bool, among: BitMap | None) -> RankedRows:
        """The first ``k`` rows of those ``among`` (default: all)."""
        index = self._open()
        chosen = index.first(
            k,
            descending=order.descending,
            nulls_first=order.nulls_first,
            ties=ties,
            among=among,
        )
        if ties and self.type.is_float:
            chosen = self._with_zeros(index, chosen, among)
        rows = np.array(chosen.to_array(), np.int64)
        if not index.cardinality or not len(rows):
            return RankedRows(rows, [None] * len(rows))
        bits = max(1, (index.cardinality - 1).bit_length())
        slices = index.slices(list(range(bits)))
        valued = chosen & slices.planes.rows(slices.planes.copy(slices.existing))
        codes = np.full(len(rows), -1, np.int64)
        codes[np.searchsorted(rows, np.array(valued.to_array(), np.int64))] = 0
        base = slices.planes.of(valued)
        for bit in range(bits):
            hit = slices.planes.rows(
                slices.planes.meet(slices.planes.copy(base), slices.slice(bit))
            )
            codes[np.searchsorted(rows, np.array(hit.to_array(), np.int64))] |= 1 << bit
        if int(codes.max()) >= index.cardinality:
            raise FormatError("a code past the last", expected=f"below {index.cardinality}")
        known = self._keys(index, distinct(codes[codes >= 0]).tolist())
        return RankedRows(rows, [known.get(code) for code in codes.tolist()])

    def _open(self) -> RangeBitmapIndex:
        pieces = self._bytes().pieces
        index = pieces.opened("top", lambda: RangeBitmapIndex.open(self.type, pieces))
        if index.row_count != self.row_count:
            raise FormatError(
                "the index is of another file",
                expected=f"{self.row_count} rows",
                got=index.row_count,
            )
        return index

    def _with_zeros(self, index: RangeBitmapIndex, chosen: BitMap, among: BitMap | None) -> BitMap:
        """If one zero is chosen, all are: -0.0 and 0.0 tie, and have two keys."""
        zeros = index.rows(In((0,)))
        if among is not None:
            zeros = zeros & among
        return chosen | zeros if chosen & zeros else chosen

    def _keys(self, index: RangeBitmapIndex, codes: list[int]) -> dict[int, Key]:
        """The keys of these codes. ``MissingBytes`` names all missing chunks of the dictionary."""
        found: dict[int, Key] = {}
        missing: list[MissingBytes] = []
        for code in codes:
            try:
                found[code] = index.key(code)
            except MissingBytes as error:
                missing.append(error)
        if missing:
            raise MissingBytes(tuple(span for error in missing for span in error.spans))
        return found


# Files whose rows are read together.
_WAVE = 16
_ROUNDS = 12
_INTEGERS = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TopCandidate:
    """A file: its ordinal, its row count (-1 unknown), the rows in question (``None``: all), its
    index where it has a usable one, and whether the sort column surely has no nulls in it."""

    file: int
    rows: int
    among: RowSet | None = None
    index: TopFile | None = None
    no_nulls: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TopRows:
    """``rows`` by file ordinal, ``None`` for all rows of a file with an unknown count.

    If ``exact``, these are the first rows and no others; else the first rows are among them. The
    indexes of ``asked`` files of ``total`` gave rows; ``passed`` were skipped by their heads.
    """

    rows: Mapping[int, RowSet | None]
    exact: bool
    asked: int
    passed: int
    total: int
    reasons: tuple[Reason, ...] = ()


class _Merge:
    """The best rows so far, as (file, row, key). ``zeros``: keys -1 and 0 are one value."""

    def __init__(self, limit: int, order: SortKey, ties: bool, zeros: bool) -> None:
        self.limit, self.order, self.ties, self.zeros = limit, order, ties, zeros
        self.values: list[tuple[Key, int, int]] = []
        self.nulls: list[tuple[int, int]] = []

    def add(self, file: int, found: RankedRows) -> None:
        for row, key in zip(found.rows.tolist(), found.keys, strict=True):
            if key is None:
                self.nulls.append((file, row))
            else:
                self.values.append((key, file, row))
        self._cut()

    def _cut(self) -> None:
        self.nulls.sort()
        # Among equal keys the greatest positions win.
        self.values.sort(key=lambda each: (-each[1], -each[2]))
        self.values.sort(key=lambda each: each[0], reverse=self.order.descending)
        room = self.limit
        if self.order.nulls_first:
            room = max(0, self.limit - len(self.nulls))
            self.nulls = self.nulls if self.ties else self.nulls[: self.limit]
        if len(self.values) > room:
            last = self._tied(self.values[room - 1][0]) if room and self.ties else None
            keep = self.values[:room]
            if last is not None:
                keep += [each for each in self.values[room:] if self._tied(each[0]) == last]
            self.values = keep

    def _tied(self, key: Key) -> Key:
        return 0 if self.zeros and key == -1 else key

    def excludes(self, best: Any) -> bool:
        """Whether a file whose best key is ``best`` (``None``: no value) cannot contribute."""
        room = self.limit - (len(self.nulls) if self.order.nulls_first else 0)
        if room <= 0:
            return True
        if len(self.values) < room:
            return False
        if best is None:
            return True
        best, last = self._tied(best), self._tied(self.values[room - 1][0])
        return bool(best < last) if self.order.descending else bool(best > last)

    def rows(self) -> dict[int, RowSet]:
        room = self.limit
        nulls = self.nulls
        if not self.order.nulls_first:
            short = max(0, room - len(self.values))
            nulls = nulls if self.ties and short else nulls[:short]
        by_file: dict[int, list[int]] = {}
        for file, row in [*nulls, *((file, row) for _, file, row in self.values)]:
            by_file.setdefault(file, []).append(row)
        return {file: RowSet.of(rows) for file, rows in sorted(by_file.items())}


def top_rows(
    candidates: Sequence[TopCandidate],
    limit: int,
    order: SortKey,
    *,
    ties: bool = False,
    fetch: Fetch,
) -> TopRows:
    """The first rows of all files; see the module. ``limit`` is 0 or more."""
    reasons: list[Reason] = []
    whole = [each for each in candidates if each.index is None]
    ready = [each for each in candidates if each.index is not None]
    failed = _rounds(ready, TopFile.bounds, fetch, reasons)
    whole += [each for each in ready if each.file in failed]
    ready = [each for each in ready if each.file not in failed]
    usual = _usual_type(ready)
    for each in [each for each in ready if not _comparable(_index(each).type, usual)]:
        reasons.append(_other_type(each, order.column, usual))
        ready.remove(each)
        whole.append(each)
    merge = _Merge(limit, order, ties, usual is not None and usual.is_float)
    pending = _by_best_key(sorted(ready, key=lambda each: each.file), order)
    among: dict[int, BitMap | None] = {}

    def first(file: TopFile) -> RankedRows:
        return file.first(limit, order, ties=ties, among=among[id(file)])

    asked = passed = 0
    while pending and limit:
        wave: list[TopCandidate] = []
        while pending and len(wave) < _WAVE:
            candidate = pending.pop(0)
            if _excluded(candidate, merge, order):
                passed += 1
            else:
                wave.append(candidate)
        among = {id(each.index): _bitmap(each.among) for each in wave}
        failed = _rounds(wave, first, fetch, reasons)
        for each in wave:
            if each.file in failed:
                whole.append(each)
                continue
            merge.add(each.file, first(_index(each)))
            asked += 1
    rows: dict[int, RowSet | None] = dict(merge.rows()) if limit else {}
    for each in whole if limit else ():
        rest = each.among
        if rest is None and each.rows >= 0:
            rest = RowSet.all(each.rows)
        if rest is None or rest:
            rows[each.file] = rest
    return TopRows(
        rows=dict(sorted(rows.items())),
        exact=not ties and not (whole and limit),
        asked=asked,
        passed=passed,
        total=len(candidates),
        reasons=tuple(reasons),
    )


def _other_type(candidate: TopCandidate, column: str, usual: object) -> Reason:
    text = f"indexed as {_index(candidate).type}, and not as {usual}"
    subject = f"rangebitmap({column})"
    return Reason(cause=Cause.NOT_APPLICABLE, subject=subject, text=text, units=1)


def _index(candidate: TopCandidate) -> TopFile:
    assert candidate.index is not None
    return candidate.index


def _bitmap(rows: RowSet | None) -> BitMap | None:
    if rows is None:
        return None
    from pyroaring import BitMap

    found = BitMap()
    for start, stop in zip(*(each.tolist() for each in rows.ranges()), strict=True):
        found.add_range(start, stop)
    return found


def _rounds(
    candidates: Sequence[TopCandidate],
    question: Callable[[TopFile], object],
    fetch: Fetch,
    reasons: list[Reason],
) -> set[int]:
    """Fetches what ``question`` needs of all files, in rounds. Gives the files with unusable
    indexes."""
    failed: set[int] = set()
    for round in range(_ROUNDS):
        wanted: dict[ByteRange, None] = {}
        open_files = [each for each in candidates if each.file not in failed]
        asking: dict[int, Sequence[ByteRange]] = {}
        for each in open_files:
            try:
                asking[each.file] = _index(each).missing(partial(question, _index(each)))
                wanted.update(dict.fromkeys(asking[each.file]))
            except Exception as error:  # an index is advice: read the file after any error
                failed.add(each.file)
                reasons.append(_failure(each, error))
        if not wanted:
            return failed
        try:
            got = fetch(list(wanted))
        except Exception as error:  # as above
            got = {}
            reasons.append(_failure(open_files[0], error))
        for each in open_files:
            if any(need not in got for need in asking.get(each.file, ())) or (
                asking.get(each.file) and round == _ROUNDS - 1
            ):
                failed.add(each.file)
            else:
                _index(each).take(got)
    return failed


def _usual_type(candidates: Sequence[TopCandidate]) -> PaimonType | None:
    types = [_index(each).type for each in candidates]
    return max(set(types), key=types.count) if types else None


def _comparable(a: PaimonType, b: PaimonType | None) -> bool:
    """Whether keys of both have one order."""
    return a == b or (b is not None and a.root in _INTEGERS and b.root in _INTEGERS)


def _by_best_key(candidates: list[TopCandidate], order: SortKey) -> list[TopCandidate]:
    """Files with nulls that come first ahead of all, then by their best key."""
    nulls = [each for each in candidates if order.nulls_first and not each.no_nulls]
    empty = [each for each in candidates if _best(each, order) is None and each not in nulls]
    rest = [each for each in candidates if each not in nulls and each not in empty]
    return [
        *nulls,
        *sorted(rest, key=lambda each: _best(each, order), reverse=order.descending),
        *empty,
    ]


def _best(candidate: TopCandidate, order: SortKey) -> Any:
    low, high, _ = _index(candidate).bounds()
    return high if order.descending else low


def _excluded(candidate: TopCandidate, merge: _Merge, order: SortKey) -> bool:
    """Whether no row of the file can be among the first any more."""
    if order.nulls_first and not candidate.no_nulls:
        return False
    return merge.excludes(_best(candidate, order))


def _failure(candidate: TopCandidate, error: Exception) -> Reason:
    text = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
    subject = f"rangebitmap of file {candidate.file}"
    return Reason(cause=Cause.CORRUPT, subject=subject, text=text, units=1)
