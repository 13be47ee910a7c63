"""Checks all metadata of a Parquet file against its values.

It works page by page, so that memory holds one page (and the keys of one row group, where the row
group claims to be sorted). What is checked of each column chunk:

| claim | checked against |
|---|---|
| page headers, sizes, codecs, encodings | decoding every page with our own decoders |
| checksums | the stored bytes |
| ``num_values``, ``num_rows``, ``null_count`` | the values counted |
| offset index | where the pages really lie, and which rows begin in them |
| column index, chunk statistics | every value lies within the bounds, as readers interpret them |
| Bloom filter | every value is in it |
| ``sorting_columns`` | the order of the rows; later plans rely on those that hold |

Counts say how many claims of each kind were checked: a file without checksums has none.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import KeyUnavailableError, SkipstoneError
from skipstone.human import Report, aligned, of_total, plural, size
from skipstone.parquet.evidence.value_bounds import ValueBounds, chunk_bounds
from skipstone.parquet.format.bloom_filter import xxh64_values
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays
from skipstone.parquet.pages.column_values import decode_data_page, decode_dictionary_page
from skipstone.parquet.pages.page import read_page
from skipstone.parquet.values import plain_values
from skipstone.pruning import Reason

from .file_reader import is_sorted
from .page_metadata import read_bloom_filter, take_index

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.format.bloom_filter import BloomFilter
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.pages.column_values import LeafColumn
    from skipstone.parquet.pages.page import Page
    from skipstone.parquet.values import Values
    from skipstone.predicate.literals import Keys

    from .chunk_pages import ChunkKey
    from .file_reader import FileReader


# Problems that are kept per chunk.
_MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Report):
    """One claim that does not hold. ``offset`` is the page's, -1 for claims about the chunk."""

    row_group: int
    column: str
    claim: str
    text: str
    offset: int = -1

    def to_dict(self) -> dict[str, Any]:
        found = {"row_group": self.row_group, "column": self.column, "offset": self.offset}
        if self.offset < 0:
            del found["offset"]
        return {**found, "claim": self.claim, "text": self.text}

    def __str__(self) -> str:
        place = f", page at byte {self.offset:,}" if self.offset >= 0 else ""
        return f"{self.column}, row group {self.row_group}{place}: {self.claim}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Report):
    """The checked claims, and those that do not hold.

    ``bytes`` are those of the pages, ``values`` include nulls. ``checked`` counts the claims by
    kind, ``claimed`` how many there are where not all can be checked: bounds in an unknown order
    mean nothing. ``unread`` are columns that could not be read, with the reason.
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

    computed = ("ok",)

    @property
    def ok(self) -> bool:
        """True where no problem was found in what could be read."""
        return not self.problems

    def __str__(self) -> str:
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


def _without_path(error: SkipstoneError, path: str) -> str:
    """The message without the path, which the report shows."""
    return error.message.removeprefix(f"{path}: ")


def verify_file(file: FileReader, columns: Sequence[str] | None = None) -> Verification:
    """Read all of ``columns`` (``None``: every column) and check every claim against the values.

    Whatever is wrong in the file becomes one of the ``problems``. ``StaleError`` and other
    ``OSError`` of the storage are raised.
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
                _ChunkCheck(file, key, leaves[leaf], counts).check()
                chunks += 1
            except KeyUnavailableError as error:
                unread.setdefault(f"{leaves[leaf].name}: {_without_path(error, file.path)}")
        _check_sorting(file, row_group, set(wanted), counts)
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
        #: bounds of leaves below lists over all row groups, by leaf
        self.below_lists: dict[int, ValueBounds] = {}
        self.problems: list[Problem] = []

    def note(self, claim: str, count: int = 1) -> None:
        """Counts claims that were checked."""
        self.checked[claim] = self.checked.get(claim, 0) + count


class _ChunkCheck:
    """Checks one column chunk."""

    def __init__(
        self, file: FileReader, key: ChunkKey, leaf: ColumnDescriptor, counts: _Counts
    ) -> None:
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
            # Where pages cannot be read, their values cannot be counted either.
            self.wrong("pages", error.message)
            return
        self._check_totals(*seen)

    # -- claims ------------------------------------------------------------------------------------

    def _indexes(self) -> tuple[OffsetIndexArrays | None, ValueBounds | None]:
        indexed, key, footer = self.file.indexed, self.key, self.file.footer
        known: Any
        for kind, name in (("offset_index", "offset index"), ("column_index", "column index")):
            take_index(self.file, key, kind)
            if kind == "offset_index":
                known = indexed.offset_indexes.get(key)
            else:
                known = indexed.column_indexes.get(key)
            if isinstance(known, OffsetIndexArrays | ColumnIndexArrays):
                self.counts.note(name)
            elif int(footer.chunk(f"{kind}_offset")[key]) > 0 and not indexed.elsewhere(*key):
                self.wrong(name, known.text if isinstance(known, Reason) else "cannot be read")
        offsets, bounds = indexed.offset_indexes.get(key), indexed.bounds_of_pages(*key)
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
        except KeyUnavailableError:
            raise
        except SkipstoneError as error:
            self.wrong("bloom filter", error.message, offset)
            return None
        self.counts.note("bloom filter")
        return found

    # -- values ------------------------------------------------------------------------------------

    def _walk(self) -> Iterator[tuple[Page, memoryview]]:
        """Each page, and its decrypted body."""
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
        """Checks every page; returns rows, entries and nulls of the chunk."""
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
                self._check_place(offsets, number, page, rows)
            self._check_values(column, page, chunk, self.key[0], "statistics")
            if bounds is not None and number < len(bounds):
                self._check_values(column, page, bounds, number, "column index")
            if bloom is not None and column.num_values:
                absent = ~bloom.check(xxh64_values(column.values()))
                if absent.any():
                    count = int(np.count_nonzero(absent))
                    text = f"{of_total(count, len(absent), 'values')} are not in it"
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

    def _check_place(self, offsets: OffsetIndexArrays, number: int, page: Page, rows: int) -> None:
        if number >= len(offsets.offset):
            return
        claimed = (
            int(offsets.offset[number]),
            int(offsets.compressed_page_size[number]),
            int(offsets.first_row_index[number]),
        )
        found = (page.offset, page.stop - page.offset, rows)
        for name, claim, is_ in zip(("offset", "size", "first row"), claimed, found, strict=True):
            if claim != is_:
                self.wrong("offset index", f"{name} {claim:,}, it is {is_:,}", page.offset)

    def _check_values(
        self, column: LeafColumn, page: Page, bounds: ValueBounds, unit: int, claim: str
    ) -> None:
        """Checks that all values lie within the bounds of ``unit``, and its null count."""
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

    def _check_totals(self, rows: int, entries: int, nulls: int) -> None:
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


def _check_sorting(file: FileReader, row_group: int, wanted: set[int], counts: _Counts) -> None:
    """Checks the sorting columns of a row group; later plans rely on its first key if they hold."""
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

    def wrong(text: str) -> None:
        counts.problems.append(
            Problem(row_group=row_group, column=name, claim="sorting columns", text=text)
        )

    try:
        holds = is_sorted(file, row_group, claimed)
    except SkipstoneError as error:
        wrong(error.message)
        return
    if holds is None:
        return
    counts.note("sorting columns")
    if holds:
        file.indexed.verified.add((row_group, places[0]))
    else:
        wrong("the rows are not in this order")
