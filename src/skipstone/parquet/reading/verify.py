"""Everything that a Parquet file says of itself, held against its values.

Page by page, so that memory stays at one page (and the keys of one row group where it claims to be
sorted). What is checked of each column chunk:

| claim | held against |
|---|---|
| page headers, sizes, codecs, encodings | decoding every page with our own decoders |
| checksums | the stored bytes |
| ``num_values``, ``num_rows``, ``null_count`` | the values counted |
| offset index | where the pages really lie, and which rows begin in them |
| column index, chunk statistics | every value lies within the bounds, as a reader takes them |
| Bloom filter | every value is in it |
| ``sorting_columns`` | the order of the rows; what holds may be relied on afterwards |

Counts say how many of each there were: a file without checksums has none that are right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import KeyUnavailableError, SkipstoneError
from skipstone.human import aligned, of_total, plural
from skipstone.parquet.evidence.dictionary import plain_values
from skipstone.parquet.evidence.value_bounds import ValueBounds
from skipstone.parquet.evidence.written_bounds import chunk_bounds
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays
from skipstone.parquet.format.xxh64 import xxh64_values
from skipstone.parquet.pages.page import read_page
from skipstone.parquet.pages.page_values import decode_data_page, decode_dictionary_page

from .page_metadata import read_bloom_filter
from .sorted_rows import is_sorted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skipstone.parquet.encodings.values import Values
    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.format.bloom_filter import BloomFilter
    from skipstone.parquet.format.schema import Leaf
    from skipstone.parquet.pages.column_values import LeafColumn
    from skipstone.parquet.pages.page import Page
    from skipstone.predicate.literals import Keys

    from .chunk_pages import ChunkKey
    from .file_reader import FileReader

__all__ = ["Problem", "Verification", "verify_file"]

# Problems that are kept of each chunk: the first ones tell the story.
_MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One claim that does not hold. ``offset`` is the page's, -1 for claims of the whole chunk."""

    row_group: int
    column: str
    claim: str
    text: str
    offset: int = -1

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        found: dict[str, Any] = {"row_group": self.row_group, "column": self.column}
        if self.offset >= 0:
            found["offset"] = self.offset
        return {**found, "claim": self.claim, "text": self.text}

    def __str__(self) -> str:
        place = f", page at byte {self.offset:,}" if self.offset >= 0 else ""
        return f"{self.column}, row group {self.row_group}{place}: {self.claim}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was read and checked, and what does not hold.

    ``bytes`` are those of the pages, ``values`` include nulls. ``checked`` counts the claims by
    kind, ``claimed`` how many there are where not all can be checked: bounds in an order that is
    not known mean nothing. ``unread`` are columns that could not be looked at, with the reason.
    """

    chunks: int
    chunks_total: int
    pages: int
    bytes: int
    values: int
    checked: dict[str, int] = field(default_factory=dict)
    claimed: dict[str, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True where nothing was found, in all that could be read."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "ok": self.ok,
            "chunks": self.chunks,
            "chunks_total": self.chunks_total,
            "pages": self.pages,
            "bytes": self.bytes,
            "values": self.values,
            "checked": dict(self.checked),
            "claimed": dict(self.claimed),
            "problems": [each.to_dict() for each in self.problems],
            "unread": list(self.unread),
        }

    def __str__(self) -> str:
        from skipstone.human import size

        lines = [
            ("read", f"{of_total(self.chunks, self.chunks_total, 'chunks')}, {size(self.bytes)}"),
            ("decoded", f"{self.values:,} values in {plural(self.pages, 'page')}"),
            *((name, f"{self._of_claimed(name)} checked") for name in self.checked),
        ]
        found = plural(len(self.problems), "problem") if self.problems else "no problems"
        if self.unread:
            found += " in what was read"
        parts = [aligned(lines), *(f"not read: {each}" for each in self.unread), found]
        parts += [f"  {each}" for each in self.problems]
        return "\n".join(parts)

    def _of_claimed(self, name: str) -> str:
        count, total = self.checked[name], self.claimed.get(name)
        return f"{count:,}" if total in (None, count) else f"{count:,} of {total:,}"


def _said(error: SkipstoneError, path: str) -> str:
    """Without the path, which stands above."""
    return error.message.removeprefix(f"{path}: ")


def verify_file(file: FileReader, columns: Sequence[str] | None = None) -> Verification:
    """Read all of ``columns`` (all of them for ``None``) and hold every claim against the values.

    Raises for nothing that is in the file: that is what ``problems`` are for. ``StaleError`` and
    other ``OSError`` of the storage go through.
    """
    leaves = file.footer.schema.leaves
    fields = file.selection.fields(columns)
    wanted = sorted(leaf for each in fields for leaf in each.shape.leaves)
    counts = _Counts()
    unread: dict[str, None] = {}
    chunks = 0
    for row_group in range(file.num_row_groups):
        for leaf in wanted:
            key = (row_group, leaf)
            try:
                if leaf in file.unavailable:
                    raise file.unavailable[leaf]
                _Chunk(file, key, leaves[leaf], counts).check()
                chunks += 1
            except KeyUnavailableError as error:
                unread.setdefault(f"{leaves[leaf].name}: {_said(error, file.path)}")
        _sorting(file, row_group, set(wanted), counts)
    return Verification(
        chunks=chunks,
        chunks_total=file.num_row_groups * len(wanted),
        pages=counts.pages,
        bytes=counts.bytes,
        values=counts.values,
        checked=dict(counts.checked),
        claimed=dict(counts.claimed),
        problems=tuple(counts.problems),
        unread=tuple(unread),
    )


class _Counts:
    def __init__(self) -> None:
        self.pages = self.bytes = self.values = 0
        self.checked: dict[str, int] = {}
        self.claimed: dict[str, int] = {}
        #: bounds of all row groups, by leaf
        self.below_lists: dict[int, ValueBounds] = {}
        self.problems: list[Problem] = []

    def note(self, claim: str, count: int = 1) -> None:
        self.checked[claim] = self.checked.get(claim, 0) + count


class _Chunk:
    """One column chunk."""

    def __init__(self, file: FileReader, key: ChunkKey, leaf: Leaf, counts: _Counts) -> None:
        self.file, self.key, self.leaf, self.counts = file, key, leaf, counts
        self.found = 0
        self.decryptor: ColumnDecryptor | None = None

    def wrong(self, claim: str, text: str, offset: int = -1) -> None:
        self.found += 1
        if self.found <= _MOST:
            self.counts.problems.append(
                Problem(
                    row_group=self.key[0],
                    column=self.leaf.name,
                    claim=claim,
                    text=text,
                    offset=offset,
                )
            )

    def check(self) -> None:
        try:
            self.decryptor = self.file.chunk_pages.column_decryptor(self.key)
            offsets, index = self._indexes()
            bloom = self._bloom()
            seen = self._pages(offsets, index, bloom)
        except KeyUnavailableError:
            raise
        except SkipstoneError as error:
            # What cannot be read on cannot be counted either.
            self.wrong("pages", error.message)
            return
        self._totals(*seen)

    # -- what is claimed ---------------------------------------------------------------------------

    def _indexes(self) -> tuple[OffsetIndexArrays | None, ValueBounds | None]:
        indexed, (row_group, leaf) = self.file.indexed, self.key
        for kind in ("offset_index", "column_index"):
            offset = int(self.file.footer.chunk(f"{kind}_offset")[self.key])
            need = indexed.take_index(kind, row_group, leaf, {})
            if need is not None:
                held = self.file.reader.one(need.path, need.offset, need.length)
                indexed.take_index(kind, row_group, leaf, {need: held})
            known = getattr(indexed, f"{kind}es").get(self.key)
            if not isinstance(known, OffsetIndexArrays | ColumnIndexArrays):
                if offset > 0 and not indexed.elsewhere(row_group, leaf):
                    self.wrong(kind.replace("_", " "), getattr(known, "text", "cannot be read"))
            else:
                self.counts.note(kind.replace("_", " "))
        offsets = indexed.offset_indexes.get(self.key)
        bounds = indexed.bounds_of_pages(row_group, leaf)
        return (
            offsets if isinstance(offsets, OffsetIndexArrays) else None,
            bounds if isinstance(bounds, ValueBounds) else None,
        )

    def _bloom(self) -> BloomFilter | None:
        footer = self.file.footer
        offset = int(footer.chunk("bloom_filter_offset")[self.key])
        if offset < 0:
            return None
        try:
            found = read_bloom_filter(self.file, self.key)
        except SkipstoneError as error:
            if isinstance(error, KeyUnavailableError):
                raise
            self.wrong("bloom filter", error.message, offset)
            return None
        self.counts.note("bloom filter")
        return found

    # -- what is there -----------------------------------------------------------------------------

    def _walk(self) -> Iterator[tuple[Page, memoryview]]:
        """Each page, and its body decrypted."""
        place = self.file.chunk_pages.place(self.key)
        for at in self.file.chunk_pages.walk(self.key):
            data = self.file.reader.one(place.path, at.offset, at.size)
            self.counts.bytes += at.size
            page = read_page(
                data,
                base=at.offset,
                ordinal=max(at.ordinal, 0),
                decryptor=self.decryptor,
                may_be_dictionary=at.offset == place.start,
            )
            if page.crc is not None:
                self.counts.note("checksum")
            if page.crc_matches() is False:
                self.wrong("checksum", "the bytes of the page have another one", at.offset)
            yield page, page.decrypted(self.decryptor)

    def _pages(
        self,
        offsets: OffsetIndexArrays | None,
        bounds: ValueBounds | None,
        bloom: BloomFilter | None,
    ) -> tuple[int, int, int]:
        """Rows, entries and nulls of the chunk, every page checked on the way."""
        place = self.file.chunk_pages.place(self.key)
        chunk = self._statistics()
        dictionary: Values | None = None
        rows = entries = nulls = number = 0
        for page, body in self._walk():
            self.counts.pages += 1
            if page.type == PageType.DICTIONARY_PAGE:
                dictionary = decode_dictionary_page(page, self.leaf, place.codec, body)
            if not page.is_data:
                continue
            column = decode_data_page(page, self.leaf, place.codec, dictionary, body)
            self.counts.values += column.num_entries
            if offsets is not None:
                self._at(offsets, number, page, rows)
            self._values(column, page, chunk, self.key[0], "statistics")
            if bounds is not None and number < len(bounds):
                self._values(column, page, bounds, number, "column index")
            if bloom is not None and column.num_values:
                missing = ~bloom.check(xxh64_values(column.values()))
                if missing.any():
                    count = int(np.count_nonzero(missing))
                    text = f"{of_total(count, len(missing), 'values')} are not in it"
                    self.wrong("bloom filter", text, page.offset)
            rows += column.num_rows
            entries += column.num_entries
            nulls += column.num_nulls
            number += 1
        if offsets is not None and number != len(offsets.offset):
            self.wrong("offset index", f"{len(offsets.offset)} pages, there are {number}")
        return rows, entries, nulls

    def _statistics(self) -> ValueBounds:
        indexed, leaf, footer = self.file.indexed, self.leaf.ordinal, self.file.footer
        if not self.leaf.max_repetition_level:
            bounds = indexed.chunk_bounds(leaf)
        elif leaf in self.counts.below_lists:
            bounds = self.counts.below_lists[leaf]
        else:
            bounds = chunk_bounds(footer, indexed.stored(leaf), below_lists=True)
            self.counts.below_lists[leaf] = bounds
        names = ("min_value", "max_value", "min", "max")
        if any(footer.value_bytes(name, self.key[0], leaf) is not None for name in names):
            unit = self.key[0]
            usable = bool(bounds.all.lo.valid[unit] or bounds.all.hi.valid[unit])
            self.counts.note("statistics", int(usable))
            self.counts.claimed["statistics"] = self.counts.claimed.get("statistics", 0) + 1
        return bounds

    def _at(self, offsets: OffsetIndexArrays, number: int, page: Page, rows: int) -> None:
        if number >= len(offsets.offset):
            return
        claimed = (
            int(offsets.offset[number]),
            int(offsets.compressed_page_size[number]),
            int(offsets.first_row_index[number]),
        )
        real = (page.offset, page.stop - page.offset, rows)
        for name, said, is_ in zip(("offset", "size", "first row"), claimed, real, strict=True):
            if said != is_:
                self.wrong("offset index", f"{name} {said:,}, it is {is_:,}", page.offset)

    def _values(
        self, column: LeafColumn, page: Page, bounds: ValueBounds, unit: int, claim: str
    ) -> None:
        """Every value lies within the bounds of ``unit``, and the nulls are as many as it says."""
        if bounds.stored.type is not None and column.num_values:
            plain = plain_values(column.values())
            keys = bounds.stored.keys(plain, np.ones(len(plain), np.bool_))
            for name, outside in (
                ("min", _beyond(keys, bounds.all.lo, unit, below=True)),
                ("max", _beyond(keys, bounds.all.hi, unit, below=False)),
            ):
                if outside:
                    text = f"{of_total(outside, len(plain), 'values')} are beyond {name}_value"
                    self.wrong(claim, text, page.offset)
        nulls = int(bounds.all.nulls[unit])
        if claim == "column index" and nulls >= 0 and nulls != column.num_nulls:
            self.wrong(claim, f"null_count {nulls:,}, it is {column.num_nulls:,}", page.offset)

    def _totals(self, rows: int, entries: int, nulls: int) -> None:
        footer, (row_group, _) = self.file.footer, self.key
        num_values = int(footer.chunk("num_values")[self.key])
        num_rows = int(footer.group("num_rows")[row_group])
        null_count = int(footer.chunk("null_count")[self.key])
        self.counts.note("counts")
        if entries != num_values:
            self.wrong("num_values", f"{num_values:,}, it is {entries:,}")
        if rows != num_rows:
            self.wrong("num_rows", f"{num_rows:,}, it is {rows:,}")
        # Below a list, writers differ in whether an empty list is a null.
        if not self.leaf.max_repetition_level and null_count >= 0 and null_count != nulls:
            self.wrong("null_count", f"{null_count:,}, it is {nulls:,}")


def _beyond(keys: Keys, bound: Keys, unit: int, *, below: bool) -> int:
    """How many keys lie on the wrong side of a bound."""
    if not bool(bound.valid[unit]):
        return 0
    if isinstance(keys.data, np.ndarray) and isinstance(bound.data, np.ndarray):
        edge = bound.data[unit]
        outside = keys.data < edge if below else keys.data > edge
        return int(np.count_nonzero(outside & keys.valid))
    import pyarrow.compute as pc

    compare = pc.less if below else pc.greater
    found = compare(keys.data, bound.data[unit])
    return int(pc.sum(found.fill_null(False)).as_py() or 0)


# -- order ----------------------------------------------------------------------------------------


def _sorting(file: FileReader, row_group: int, wanted: set[int], counts: _Counts) -> None:
    """Whether a row group is sorted as it says; if so, its first key may be relied on."""
    claimed = file.footer.sorting_columns(row_group)
    leaves = file.footer.schema.leaves
    if not claimed:
        return
    places = [each.column_idx for each in claimed]
    if any(not 0 <= at < len(leaves) or leaves[at].max_repetition_level for at in places):
        return
    if not set(places) <= wanted or not set(places).isdisjoint(file.unavailable):
        return
    name = leaves[places[0]].name
    try:
        holds = is_sorted(file, row_group, claimed)
    except SkipstoneError as error:
        counts.problems.append(
            Problem(row_group=row_group, column=name, claim="sorting columns", text=error.message)
        )
        return
    if holds is None:
        return
    counts.note("sorting columns")
    if holds:
        file.indexed.verified.add((row_group, places[0]))
    else:
        counts.problems.append(
            Problem(
                row_group=row_group,
                column=name,
                claim="sorting columns",
                text="the rows are not in this order",
            )
        )
