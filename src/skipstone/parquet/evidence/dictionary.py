"""Dictionaries as evidence: the exact set of values that a chunk may hold.

They are used only where ``encoding_stats`` prove that every data page of the chunk is
dictionary-encoded. A leaf is evaluated on each value of the dictionary, so it is exact for every
operator, LIKE with its whole pattern included. A dictionary may hold values that no row uses: a
leaf that none of them matches has no row; a leaf that all of them match (and no null) has every
row.

Cost: only dictionary pages of at most an eighth of their row group's bytes are read. Skipping the
row group then saves at least eight times as much. If it is not skipped, decoding the column needs
its dictionary page anyway. Decoded dictionaries are cached, up to 64 MiB per file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.pages.column_values import decode_dictionary_page
from skipstone.parquet.pages.page import read_page
from skipstone.parquet.values import Values, plain_values
from skipstone.predicate.literals import Keys
from skipstone.predicate.tree import Const, Leaf, Op
from skipstone.pruning import Answer, Bounds, Cause, Fetched, Level, Reason, Units
from skipstone.pruning.interval import null_bounds, with_nulls
from skipstone.pruning.residual import matching_values
from skipstone.storage import ByteRange

from .indexed_file import ColumnEvidence, IndexedFile
from .stored_values import Form

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.values import I64


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """Dictionaries of one file: the ``keys`` of all, concatenated, the ``counts`` of each, and the
    positions ``at`` of their row groups among the units."""

    file: IndexedFile
    at: I64
    keys: Keys
    counts: I64


#: dictionary pages are read if the row group is at least this many times as large
PAYS = 8
_MOST_BYTES = 64 << 20


class DictionaryEvidence(ColumnEvidence):
    """The dictionaries of one column in all files that have it; see the module."""

    name = "dictionary"
    level = Level.ROW_GROUP
    cost = 20.0
    asks_jointly = True

    @staticmethod
    def exists(file: IndexedFile, leaf: int) -> bool:
        """Whether any chunk has a dictionary that pays."""
        return bool((_places(file, leaf)[1] > 0).any())

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """The dictionary pages that are not cached."""
        if not any(_on_values(leaf) for leaf in leaves):
            return ()
        wanted = []
        for ordinal, file in self.files.items():
            leaf = file.columns[self.column]
            offset, length = _places(file, leaf)
            for group in units.ordinal[units.file == ordinal].tolist():
                if length[group] > 0 and (leaf, group) not in _cached(file):
                    need = ByteRange(file.home(leaf)[0], int(offset[group]), int(length[group]))
                    if need not in have:
                        wanted.append(need)
        return wanted

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        found: list[_Values] = []
        reasons: dict[Reason, None] = {}
        useful = any(_on_values(leaf) for leaf in leaves)
        for ordinal, file in self.files.items() if useful else ():
            at: list[int] = []
            parts: list[Keys] = []
            for i in np.flatnonzero(units.file == ordinal).tolist():
                keys = self._keys(file, file.columns[self.column], int(units.ordinal[i]), have)
                if isinstance(keys, Reason):
                    reasons.setdefault(keys)
                elif keys is not None:
                    at.append(i)
                    parts.append(keys)
            if at:
                counts = np.array([len(each) for each in parts], np.int64)
                found.append(_Values(file, np.array(at, np.int64), Keys.concat(parts), counts))
        return [self._answer(leaf, units, found, tuple(reasons)) for leaf in leaves]

    def _answer(
        self, leaf: Leaf, units: Units, found: Sequence[_Values], reasons: tuple[Reason, ...]
    ) -> Answer:
        must, may = np.zeros(len(units), np.bool_), np.ones(len(units), np.bool_)
        decided = False
        for each in found if _on_values(leaf) else ():
            column = each.file.columns[self.column]
            local = each.file.stored(column).restate(leaf)
            if local is None:
                continue
            rows = units.rows[each.at]
            nulls = each.file.chunk_bounds(column).all.nulls[units.ordinal[each.at]]
            if isinstance(local, Const):
                bounds = (Bounds.everything if local.value else Bounds.nothing)(len(rows))
            elif local.op in (Op.IS_NULL, Op.NOT_NULL):
                bounds = null_bounds(local.op, rows, nulls)
            else:
                matching = _sums(matching_values(local, each.keys), each.counts)
                bounds = with_nulls(local.op, matching > 0, matching == each.counts, rows, nulls)
            must[each.at], may[each.at] = bounds.must, bounds.may
            decided = True
        if decided:
            return Answer(bounds=Bounds(must, may), reasons=reasons)
        return Answer(bounds=None, reasons=reasons) if reasons else self.silent(leaf)

    def _keys(
        self, file: IndexedFile, leaf: int, group: int, have: Fetched
    ) -> Keys | Reason | None:
        """The values of one dictionary as keys; ``None`` where reading it does not pay."""
        offset, length = _places(file, leaf)
        if length[group] <= 0:
            return None
        cached = _cached(file)
        found: Keys | Reason | None = cached.get((leaf, group))
        if found is None:
            need = ByteRange(file.home(leaf)[0], int(offset[group]), int(length[group]))
            data = have.get(need)
            if data is None:
                return Reason(cause=Cause.UNREADABLE, subject=self.subject, text="not fetched")
            try:
                found = _decode(file, leaf, group, data, need.offset)
            except (SkipstoneError, ValueError) as error:
                found = Reason.of_error(self.subject, error)
            size = 0 if isinstance(found, Reason) else found.data.nbytes
            spent = file.cache.get(("dictionary bytes",), 0) + size
            if spent <= _MOST_BYTES:
                file.cache[("dictionary bytes",)] = spent
                cached[leaf, group] = found
        return found


def stored_dictionaries(column: str, files: Mapping[int, IndexedFile], units: Units) -> int:
    """The stored bytes of the dictionary pages that decide about these row groups."""
    total = 0
    for ordinal, group in zip(units.file.tolist(), units.ordinal.tolist(), strict=True):
        file = files.get(ordinal)
        if file is not None and column in file.columns:
            total += int(_places(file, file.columns[column])[1][group])
    return total


def _sums(match: NDArray[np.bool_], counts: I64) -> I64:
    """The number of matches in each run of ``counts`` values."""
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(match)))
    ends = np.cumsum(counts)
    return np.asarray(before[ends] - before[ends - counts])


def _on_values(leaf: Leaf) -> bool:
    return leaf.op not in (Op.IS_NULL, Op.NOT_NULL)


def _cached(file: IndexedFile) -> dict[tuple[int, int], Keys | Reason]:
    found: dict[tuple[int, int], Keys | Reason] = file.cache.setdefault(("dictionaries",), {})
    return found


def _places(file: IndexedFile, leaf: int) -> tuple[I64, I64]:
    """Offset and length of the dictionary pages that pay, per row group; length 0 for the rest."""
    key = ("dictionary places", leaf)
    known: tuple[I64, I64] | None = file.cache.get(key)
    if known is not None:
        return known
    footer = file.footer
    offset = footer.chunk("dictionary_page_offset")[:, leaf]
    length = footer.chunk("data_page_offset")[:, leaf] - offset
    sizes = footer.chunk("total_compressed_size")
    held = np.where(sizes > 0, sizes, 0).sum(axis=1)
    pays = (
        (offset > 0)
        & (length > 0)
        & (footer.chunk("dict_only")[:, leaf] == 1)
        & (length <= held // PAYS)
        & (file.stored(leaf).form is not Form.NONE)
    )
    for group in np.flatnonzero(pays).tolist():
        fits = file.fits(int(offset[group]), int(length[group]), leaf)
        if not fits or file.elsewhere(group, leaf):
            pays[group] = False
    known = file.cache[key] = offset, np.where(pays, length, 0)
    return known


def _decode(file: IndexedFile, leaf: int, group: int, data: bytes | memoryview, base: int) -> Keys:
    values = dictionary_values(file, leaf, group, data, base)
    stored = file.stored(leaf)
    plain, every = plain_values(values), np.ones(len(values), np.bool_)
    keys = stored.keys(plain, every)
    if not keys.valid.all():
        raise FormatError("a dictionary with values of another type", offset=base)
    if stored.rounds and np.any(stored.keys(plain, every, upper=True).data != keys.data):
        raise FormatError("a dictionary with fractions of microseconds", offset=base)
    return keys


def dictionary_values(
    file: IndexedFile, leaf: int, group: int, data: bytes | memoryview, base: int
) -> Values:
    """The values of a dictionary page, which lies at byte ``base`` of its file."""
    decryptor = file.decryptor_of(group, leaf)
    page = read_page(data, base=base, decryptor=decryptor, may_be_dictionary=True)
    if file.verify_crc:
        page.verify_crc()
    if page.type != PageType.DICTIONARY_PAGE:
        raise FormatError("no dictionary page where one should be", offset=base, got=page.type)
    codec = int(file.footer.chunk("codec")[group, leaf])
    column = file.footer.schema.leaves[leaf]
    return decode_dictionary_page(page, column, codec, page.decrypted(decryptor))
