"""Decrypts the row groups of an encrypted file with a damaged footer into an unnamed image.

The image is a temporary file that holds the plaintext pages one after the other. The code that
salvages plaintext files reads it. It is unlinked as soon as it is made.

    encrypted chunk     its pages are certain: all from 0 on must be there, and as many rows as in
                        the other chunks of the row group
    plaintext chunks    lie between encrypted ones, whose row counts say where they are divided
"""

from __future__ import annotations

import mmap
import tempfile
import zlib
from bisect import bisect_right
from collections import defaultdict
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from skipstone._dataclasses import dataclass
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.pages.page import page_checksum
from skipstone.parquet.pages.page_headers import OFFSET, walk_pages_of

from .encrypted_page_walk import ChunkOrdinals, EncryptedWalk
from .found_row_groups import FoundRowGroup, FoundRowGroups, known_boundaries
from .page_check import PageCheck
from .page_map import FileMap, Region
from .row_group_boundaries import LIST_MAY_CONTINUE, divide_chunks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.file_decryptor import FileDecryptor
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.pages.page_headers import I64

    from .encrypted_page_walk import EncryptedMap, EncryptedPage, PlaintextRun


_FLUSH: Final = 4 << 20


@dataclass(slots=True, kw_only=True)
class FileImage:
    """Plaintext pages; ``places`` are pairs of an offset in it and in the file, in order."""

    data: memoryview = field(default_factory=lambda: memoryview(b""))
    places: list[tuple[int, int]] = field(default_factory=list)
    # Why a page could not be decrypted, by its offset in the image.
    damaged: dict[int, str] = field(default_factory=dict)

    def place_of(self, offset: int) -> int:
        """The offset in the file of the page at an offset in the image."""
        at = bisect_right(self.places, (offset, 1 << 62)) - 1
        return offset if at < 0 else self.places[at][1] + offset - self.places[at][0]


def decrypt_row_groups(
    data: memoryview,
    leaves: Sequence[ColumnDescriptor],
    decryption: Decryption,
    file: FileDecryptor,
    folder: Path,
    *,
    footer_only: bool = False,
) -> tuple[FileImage, FoundRowGroups] | None:
    """Every row group of ``data`` that has a page; ``None`` if no key opens any page.

    The image is an unnamed file in ``folder``.
    """
    found = EncryptedWalk(data, leaves, decryption, file).run()
    if not found.pages:
        return None
    return _Decrypter(data, leaves, decryption, file, found, footer_only).run(folder)


class _Decrypter:
    def __init__(
        self,
        data: memoryview,
        leaves: Sequence[ColumnDescriptor],
        decryption: Decryption,
        file: FileDecryptor,
        found: EncryptedMap,
        footer_only: bool,
    ) -> None:
        self.data, self.leaves, self.file, self.found = data, leaves, file, found
        footer = decryption.key_of_footer()
        self.without_key = [
            footer is None and decryption.key_of_column(leaf.path) is None for leaf in leaves
        ]
        self.chunks: dict[ChunkOrdinals, list[EncryptedPage]] = defaultdict(list)
        for page in found.pages:
            self.chunks[page.place].append(page)
        for place, pages in self.chunks.items():
            self.chunks[place] = self.each_once(pages)
        self.encrypted = {place.column for place in self.chunks}
        self.unknown = {start for start, _ in found.lost}
        if not footer_only:
            self.unknown.add(len(data))
        self.image = FileImage()
        self.at = 0
        # The byte ranges of chunks and runs in the image.
        self.ranges: dict[ChunkOrdinals, tuple[int, int]] = {}
        self.runs: list[tuple[PlaintextRun, int, int]] = []
        self.plain: dict[ChunkOrdinals, I64] = {}

    def run(self, folder: Path) -> tuple[FileImage, FoundRowGroups]:
        with tempfile.TemporaryFile(dir=folder) as file:
            pending = bytearray()
            for place, pages in self.chunks.items():
                start = self.at
                for page in pages:
                    pending += self.opened(page)
                    if len(pending) > _FLUSH:
                        file.write(pending)
                        pending.clear()
                self.ranges[place] = start, self.at
            for run in self.found.plaintext:
                self.image.places.append((self.at, run.start))
                file.write(pending)
                pending.clear()
                file.write(self.data[run.start : run.stop])
                self.runs.append((run, self.at, self.at + run.stop - run.start))
                self.at += run.stop - run.start
            file.write(pending)
            file.flush()
            if self.at:
                view = mmap.mmap(file.fileno(), self.at, access=mmap.ACCESS_READ)
                self.image.data = memoryview(view)
        return self.image, self.groups()

    def each_once(self, pages: list[EncryptedPage]) -> list[EncryptedPage]:
        """The pages in order, without identical copies at other places."""
        made: list[EncryptedPage] = []
        for page in sorted(pages, key=lambda page: page.ordinal):
            stored = self.data[page.start : page.stop]
            last = made[-1] if made else page
            # Two different pages of one ordinal stay: the chunk then counts as incomplete.
            if (
                not made
                or page.ordinal != last.ordinal
                or stored != self.data[last.start : last.stop]
            ):
                made.append(page)
        return made

    # -- decrypted ---------------------------------------------------------------------------------

    def opened(self, page: EncryptedPage) -> bytes:
        """The page as the image holds it; a damaged one unchanged, with a wrong checksum."""
        stored = self.data[page.body : page.stop]
        plain, why = page.decrypted(self.data), ""
        stated = page.header.crc
        if plain is None:
            why = "does not authenticate"
        elif stated is not None and zlib.crc32(stored) != stated & 0xFFFFFFFF:
            why = "another checksum than its header states"
        body = bytes(stored) if plain is None else plain
        crc: int | None = page_checksum(body)
        if why:
            self.image.damaged[self.at] = why
            crc = page_checksum(body) ^ 1
        elif self.file.ctr and stated is None:
            crc = None
        header = replace(page.header, compressed_page_size=len(body), crc=crc).to_bytes()
        self.image.places.append((self.at, page.start))
        self.at += len(header) + len(body)
        return header + body

    # -- row groups --------------------------------------------------------------------------------

    def groups(self) -> FoundRowGroups:
        found = self.found
        check = PageCheck(self.image.data)
        made = FoundRowGroups(footer="lost", lost=tuple(found.lost))
        rows = {place: self.rows(place) for place in self.chunks}
        counts = {place: self.count(check, place, rows[place]) for place in rows}
        ordinals = sorted({place.row_group for place in self.chunks})
        known = {
            each: max(n for place, n in counts.items() if place.row_group == each)
            for each in ordinals
        }
        for run, start, stop in self.runs:
            self.divide(run, walk_pages_of(self.image.data, start, stop)[0], known, check)
        made.pages_found = sum(map(len, rows.values())) + sum(
            len(walk_pages_of(self.image.data, *each)[0]) for _, *each in self.runs
        )
        for ordinal in ordinals:
            made.groups.append(self.group(ordinal, rows, known[ordinal]))
        made.notes.append(
            f"encrypted with {self.file.algorithm_name}; the saved rows are in the clear"
        )
        return made

    def rows(self, place: ChunkOrdinals) -> I64:
        return walk_pages_of(self.image.data, *self.ranges[place])[0]

    def count(self, check: PageCheck, place: ChunkOrdinals, rows: I64) -> int:
        """Rows of a chunk, before its pages are checked."""
        leaf = self.leaves[place.column]
        begun = [check.begins(row, leaf) for row in rows]
        return sum(each[0] for each in begun if each is not None)

    def group(self, ordinal: int, rows: dict[ChunkOrdinals, I64], count: int) -> FoundRowGroup:
        chunks: list[I64] = []
        why = ""
        own = [page for w, ps in self.chunks.items() if w.row_group == ordinal for page in ps]
        for leaf in self.leaves:
            place = ChunkOrdinals(ordinal, leaf.ordinal)
            if place in rows:
                why = why or self.missing(leaf, self.chunks[place])
                chunks.append(rows[place])
            elif place in self.plain:
                chunks.append(self.plain[place])
            else:
                what = "its pages are lost"
                if leaf.ordinal not in self.encrypted:
                    no_key = self.without_key[leaf.ordinal]
                    what = "it has no key" if no_key else "its pages open with no key"
                    what += ", or cannot be distinguished from other plaintext pages"
                why = why or f"column {leaf.name}: {what}"
        return FoundRowGroup(
            start=min(page.start for page in own),
            stop=max(page.stop for page in own),
            num_rows=count,
            chunks=tuple(chunks) if len(chunks) == len(self.leaves) else (),
            why=why,
        )

    def missing(self, leaf: ColumnDescriptor, pages: Sequence[EncryptedPage]) -> str:
        """Which pages of a chunk are missing, empty if none."""
        data = [page.ordinal for page in pages]
        if data[0] < 0:
            del data[0]
        if not data or data != list(range(len(data))):
            return f"column {leaf.name}: some of its pages are missing"
        last = pages[-1]
        whole = not leaf.max_repetition_level or last.header.type == PageType.DATA_PAGE_V2
        if not whole and last.stop in self.unknown:
            return f"column {leaf.name}: {LIST_MAY_CONTINUE}"
        return ""

    def divide(self, run: PlaintextRun, rows: I64, known: dict[int, int], check: PageCheck) -> None:
        """The plaintext chunks among the pages of a run, if there is one way to divide them."""
        width = len(self.leaves)
        first = 0 if run.after is None else run.after.row_group * width + run.after.column + 1
        if run.before is not None:
            stop = run.before.row_group * width + run.before.column
        else:
            stop = ((run.after.row_group if run.after else 0) + 1) * width
        slots = [ChunkOrdinals(*divmod(at, width)) for at in range(first, stop)]
        if any(each.column in self.encrypted or each.row_group not in known for each in slots):
            return
        region = Region(
            rows=rows,
            start=int(rows[0, OFFSET]),
            stop=self.at,
            begins=True,
            ends=True,
            followed=run.before is not None or run.stop not in self.unknown,
        )
        leaves = [self.leaves[each.column] for each in slots]
        counts = [known[each.row_group] for each in slots]
        # The image has pages and nothing else.
        marks = known_boundaries(region, leaves, FileMap(size=0))
        boundaries = divide_chunks(region, leaves, counts, check, marks)
        for number, each in enumerate(slots if boundaries else ()):
            self.plain[each] = rows[boundaries[number] : boundaries[number + 1]]
