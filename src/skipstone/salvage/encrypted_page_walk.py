"""The pages of an encrypted file whose footer is lost, found with its keys.

    PARE | header, page, header, page, … | Bloom filters | … | indexes | footer

Headers and pages are modules, which say how long they are, so they chain as pages in the clear do.
The AAD of a header names its row group, column and page: a header that authenticates is certain of
its place, and nothing has to be counted. The unique part of the AAD was in the footer; it is worked
out from the tag of the first header (``aad_recovery``), and all that follow confirm it.

Behind lost bytes the next header is searched for: a module whose plaintext begins as page headers
do, and which authenticates. Columns in the clear lie between those that are encrypted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher as _Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from skipstone.errors import FormatError
from skipstone.parquet.encryption.aad_recovery import recovered_aad
from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
from skipstone.parquet.encryption.modules import (
    GCM_OVERHEAD,
    LENGTH_SIZE,
    MAX_ORDINAL,
    NONCE_LENGTH,
    ModuleType,
    module_length,
    split_module,
)
from skipstone.parquet.format.footer import MAGIC
from skipstone.parquet.format.page_header import PageHeader

from .page_map import bloom_filter_end
from .page_walk import walk_few

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skipstone.parquet.encryption.ciphers import Cipher
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.format.schema import Leaf

__all__ = ["PlainRun", "SealedMap", "SealedPage", "Where", "walk_sealed"]

_UNIQUE: Final = 8
# A prefix of so few bytes is found with the unique part.
_LONGEST_PREFIX: Final = 7
_HEADERS: Final = (ModuleType.DICTIONARY_PAGE_HEADER, ModuleType.DATA_PAGE_HEADER)
_BEHIND_PAGES: Final = (ModuleType.COLUMN_INDEX, ModuleType.OFFSET_INDEX)
_LEAST, _MOST = GCM_OVERHEAD - LENGTH_SIZE + 8, 1 << 14
# Of headers with statistics, and of indexes, behind which no pages are expected.
_LARGEST_HEADER: Final = 1 << 20
_SEARCH: Final = 16 << 20
_MOST_PLACES: Final = 100_000
# Columns and keys with which a prefix is looked for.
_GUESSES: Final = 100
_PAGE_NEXT: Final = b"\0\0\0\2"


@dataclass(frozen=True, slots=True, order=True)
class Where:
    """The place of a chunk."""

    row_group: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedPage:
    """A page: ``ordinal`` counts data pages, -1 is the dictionary. Its body is a module, from
    ``body`` to ``stop``; ``decryptor`` has its key, and takes pages to be GCM."""

    where: Where
    ordinal: int
    header: PageHeader
    start: int
    body: int
    stop: int
    decryptor: ColumnDecryptor

    def opened(self, data: memoryview, *, ctr: bool) -> bytes | None:
        """The body before encryption; ``None`` where it does not authenticate."""
        ordinal = self.ordinal if self.ordinal >= 0 else None
        decryptor = replace(self.decryptor, ctr=ctr)
        try:
            return decryptor.decrypt_page(
                self.header, data[self.body : self.stop], ordinal, base=self.body
            )
        except FormatError:
            return None


@dataclass(slots=True, kw_only=True)
class PlainRun:
    """Pages in the clear between bytes ``start`` and ``stop``, behind the encrypted chunk ``after``
    and before ``before``."""

    start: int
    stop: int
    after: Where | None
    before: Where | None = None


@dataclass(slots=True, kw_only=True)
class SealedMap:
    """What ``walk_sealed`` found; ``lost`` are ranges of bytes that are nothing known."""

    file_aad: bytes | None = None
    pages: list[SealedPage] = field(default_factory=list)
    plain: list[PlainRun] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)


def walk_sealed(data: memoryview, leaves: Sequence[Leaf], decryption: Decryption) -> SealedMap:
    """The pages of ``data``; ``file_aad`` is ``None`` where no key opens any."""
    return _Walk(data, leaves, decryption).run()


class _Walk:
    def __init__(self, data: memoryview, leaves: Sequence[Leaf], decryption: Decryption) -> None:
        self.data, self.leaves = data, leaves
        self.prefix = decryption.prefix_for(None)
        self.found = SealedMap()
        distinct: dict[bytes, Cipher] = {}
        # A key that is given for a column need not be that of this file.
        self.ciphers: list[list[Cipher]] = []
        for leaf in leaves:
            keys = decryption.key_of_column(leaf.path), decryption.key_of_footer()
            own = [distinct.setdefault(key.reveal(), key) for key in keys if key is not None]
            self.ciphers.append(own[:1] if own[:1] == own[1:] else own)
        self.distinct = list(distinct.values())

    # -- the walk ----------------------------------------------------------------------------------

    def run(self) -> SealedMap:
        data, found, end = self.data, self.found, len(self.data)
        at = len(MAGIC)
        last: SealedPage | None = None
        run: PlainRun | None = None
        while at < end:
            page = self.page(at, last)
            if page is not None:
                if run is not None:
                    run.before = page.where
                    run = None
                found.pages.append(page)
                last, at = page, page.stop
                continue
            rows, stop = walk_few(data, at, end, 1)
            if rows:
                if run is None:
                    run = PlainRun(start=at, stop=at, after=last.where if last else None)
                    found.plain.append(run)
                run.stop = at = stop
                continue
            over = self.passed_over(at)
            if over is not None and over[1]:
                # The indexes: pages lie behind them where the writer left a checkpoint.
                run, at = None, self.search(over[0])
                continue
            if over is not None:
                at = over[0]
                continue
            run = None
            lost, at = at, self.search(at + 1)
            found.lost.append((lost, at))
        return found

    def page(self, at: int, last: SealedPage | None) -> SealedPage | None:
        """The page whose header lies at ``at``."""
        if not self.may_be_header(at):
            return None
        if self.found.file_aad is None:
            return self.first(at)
        for where, ordinal in self.expected(last):
            page = self.opened(at, where, ordinal)
            if page is not None:
                return page
        place = self.identified(at)
        return None if place is None else self.opened(at, *place)

    def may_be_header(self, at: int) -> bool:
        """Whether a module of the length of a header lies there. Four bytes of a page in the clear
        are a length too, and what is that long is not to be decrypted at every page."""
        length = int.from_bytes(self.data[at : at + LENGTH_SIZE], "little")
        return _LEAST <= length <= min(_LARGEST_HEADER, len(self.data) - at - LENGTH_SIZE)

    def expected(self, last: SealedPage | None) -> Iterator[tuple[Where, int]]:
        """What most likely follows a page."""
        if last is None:
            return
        if last.ordinal < MAX_ORDINAL:
            yield last.where, last.ordinal + 1
        column = last.where.column + 1
        where = Where(last.where.row_group, column)
        if column == len(self.leaves):
            where = Where(last.where.row_group + 1, 0)
        if where.row_group > MAX_ORDINAL:
            return
        yield where, -1
        yield where, 0

    def opened(self, at: int, where: Where, ordinal: int) -> SealedPage | None:
        """The page at ``at``, if it is this one."""
        kind = ModuleType.DICTIONARY_PAGE_HEADER if ordinal < 0 else ModuleType.DATA_PAGE_HEADER
        file_aad, name = self.found.file_aad, self.leaves[where.column].name
        for cipher in self.ciphers[where.column] if file_aad is not None else ():
            # Headers are GCM in both algorithms.
            decryptor = ColumnDecryptor(
                cipher, file_aad or b"", False, name, None, where.row_group, where.column, None
            )
            try:
                plain, body = decryptor.decrypt_at(
                    kind, self.data, at, None if ordinal < 0 else ordinal
                )
                header = PageHeader.from_bytes(plain, base=at)
            except FormatError:
                continue
            stop = body + header.compressed_page_size
            if not body <= stop <= len(self.data):
                return None
            return SealedPage(
                where=where,
                ordinal=ordinal,
                header=header,
                start=at,
                body=body,
                stop=stop,
                decryptor=decryptor,
            )
        return None

    def passed_over(self, at: int) -> tuple[int, bool] | None:
        """The place behind a Bloom filter at ``at``, and whether it is an index instead."""
        end = bloom_filter_end(self.data, at, len(self.data))
        if end is not None:
            return end, False
        if self.found.file_aad is None or not self.may_be_header(at):
            return None
        for kind in (ModuleType.BLOOM_FILTER_HEADER, *_BEHIND_PAGES):
            if self.aad(at, kind, self.found.file_aad) is None:
                continue
            try:
                after = at + module_length(self.data, at)
                if kind is ModuleType.BLOOM_FILTER_HEADER:
                    after += module_length(self.data, after)
            except FormatError:
                return None
            return min(after, len(self.data)), kind in _BEHIND_PAGES
        return None

    # -- whose a module is -------------------------------------------------------------------------

    def aad(self, at: int, kind: ModuleType, file_aad: bytes | None) -> tuple[bytes, Cipher] | None:
        """The AAD of the module at ``at`` if it is of this kind, and its key."""
        try:
            nonce, sealed, _ = split_module(self.data, at)
        except FormatError:
            return None
        start: list[int | None] = [None] * _UNIQUE
        start = [*(self.prefix or b""), *start] if file_aad is None else [*file_aad]
        ordinals = 3 if kind.has_page_ordinal else 2
        for cipher in self.distinct:
            made = recovered_aad(cipher, nonce, sealed, [*start, kind, *[None] * (2 * ordinals)])
            if made is not None:
                return made, cipher
        return None

    def identified(self, at: int, file_aad: bytes | None = None) -> tuple[Where, int] | None:
        """Chunk and page of the header at ``at``, wherever it may be of."""
        for kind in _HEADERS:
            made = self.aad(at, kind, file_aad or self.found.file_aad)
            place = None if made is None else self.place(*made, kind)
            if place is not None:
                return place
        return None

    def place(self, aad: bytes, cipher: Cipher, kind: ModuleType) -> tuple[Where, int] | None:
        ordinals = 3 if kind.has_page_ordinal else 2
        group, column, *page = np.frombuffer(aad[-2 * ordinals :], "<i2").tolist()
        if group < 0 or not 0 <= column < len(self.leaves) or any(each < 0 for each in page):
            return None
        if cipher not in self.ciphers[column]:
            return None
        return Where(group, column), page[0] if page else -1

    def first(self, at: int) -> SealedPage | None:
        """The first page that is found tells the unique part of the AAD."""
        for kind in _HEADERS:
            made = self.aad(at, kind, None)
            place = None if made is None else self.place(*made, kind)
            if made is None or place is None:
                continue
            page = self.confirmed(at, made[0][: -7 if kind.has_page_ordinal else -5], *place)
            if page is not None:
                return page
        if self.prefix is None and at == len(MAGIC):
            return self.first_with_prefix(at)
        return None

    def first_with_prefix(self, at: int) -> SealedPage | None:
        """The same for a short prefix that was stored in the footer."""
        try:
            nonce, sealed, _ = split_module(self.data, at)
        except FormatError:
            return None
        # A prefix is short, so the place has to be guessed: the first encrypted column.
        pairs = [(c, cipher) for c, own in enumerate(self.ciphers) for cipher in own]
        for (column, cipher), kind in product(pairs[:_GUESSES], _HEADERS):
            rest = bytes([kind, 0, 0]) + column.to_bytes(2, "little")
            rest += bytes(2) if kind.has_page_ordinal else b""
            for length in range(1, _LONGEST_PREFIX + 1):
                known = [*[None] * (length + _UNIQUE), *rest]
                made = recovered_aad(cipher, nonce, sealed, known)
                if made is None:
                    continue
                ordinal = 0 if kind.has_page_ordinal else -1
                where = Where(0, column)
                page = self.confirmed(at, made[: length + _UNIQUE], where, ordinal)
                if page is not None:
                    return page
        return None

    def confirmed(self, at: int, file_aad: bytes, where: Where, ordinal: int) -> SealedPage | None:
        """The page at ``at``, if its body or the header behind it has the same AAD."""
        self.found.file_aad = file_aad
        page = self.opened(at, where, ordinal)
        if page is not None and (self.authentic(page) or self.followed(page)):
            return page
        self.found.file_aad = None
        return None

    def authentic(self, page: SealedPage) -> bool:
        # Of a v2 page without values nothing may be encrypted.
        enough = page.stop - page.body >= GCM_OVERHEAD
        return enough and page.opened(self.data, ctr=False) is not None

    def followed(self, page: SealedPage) -> bool:
        return any(self.opened(page.stop, *each) for each in self.expected(page)) or (
            self.identified(page.stop) is not None
        )

    # -- behind lost bytes -------------------------------------------------------------------------

    def search(self, at: int) -> int:
        """The next place from ``at`` on where a header lies that authenticates; or the end."""
        tried = 0
        array = np.frombuffer(self.data, np.uint8)
        for low in range(at, len(array), _SEARCH):
            part = array[low : low + _SEARCH + LENGTH_SIZE]
            if len(part) < _LEAST:
                break
            small = (part[2:-1] == 0) & (part[3:] == 0)
            length = part[:-3].astype(np.int32) | part[1:-2].astype(np.int32) << 8
            places = np.flatnonzero(small & (length >= _LEAST) & (length <= _MOST)) + low
            for place in self.like_headers(places).tolist():
                tried += 1
                if tried > _MOST_PLACES:
                    return len(self.data)
                if self.page(place, None) is not None:
                    return int(place)
        return len(self.data)

    def like_headers(
        self, places: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Those of the places whose plaintext begins as that of a page header."""
        array = np.frombuffer(self.data, np.uint8)
        stop = LENGTH_SIZE + NONCE_LENGTH + 3
        places = places[places + stop <= len(array)]
        if not len(places):
            return places
        nonces = array[places[:, None] + np.arange(LENGTH_SIZE, stop - 3)]
        counters = np.empty((len(places), 16), np.uint8)
        counters[:, :NONCE_LENGTH] = nonces
        counters[:, NONCE_LENGTH:] = np.frombuffer(_PAGE_NEXT, np.uint8)
        first = array[places[:, None] + np.arange(stop - 3, stop)]
        like = np.zeros(len(places), bool)
        for cipher in self.distinct:
            block = _Cipher(AES(cipher.reveal()), ECB()).encryptor()
            stream = np.frombuffer(block.update(counters.tobytes()), np.uint8).reshape(-1, 16)
            plain = first ^ stream[:, :3]
            like |= (plain[:, 0] == 0x15) & (plain[:, 2] == 0x15) & (plain[:, 1] <= 6)
        return places[like]
