"""Finds the pages of an encrypted file whose footer is damaged, with the keys of its columns.

    PARE | header, page, header, page, … | Bloom filters … | indexes | FileCryptoMetaData, footer

Headers and pages are encrypted modules. A module stores its length, so modules chain as plaintext
pages do. Every AAD begins with the prefix and the unique part of the file, which only
``FileCryptoMetaData`` (or a signed footer) holds: without it no module opens. The AAD of a page
header also names its row group, column and page. So a header that authenticates has a certain
place, and nothing has to be counted.

The walk tries the places that most likely follow. After lost bytes it searches for a module whose
plaintext begins as page headers do, and tries the places that may follow, up to a limit. Plaintext
columns lie between the encrypted ones.
"""

from __future__ import annotations

from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher as _Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
from skipstone.parquet.encryption.modules import (
    GCM_OVERHEAD,
    LENGTH_SIZE,
    MAX_ORDINAL,
    NONCE_LENGTH,
    ModuleType,
    module_length,
)
from skipstone.parquet.format.footer import MAGIC
from skipstone.parquet.format.metadata import EncryptionAlgorithm, PageHeader
from skipstone.parquet.pages.page_headers import walk_few
from skipstone.parquet.thrift.compact import Reader

from .page_map import bloom_filter_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.file_decryptor import FileDecryptor
    from skipstone.parquet.encryption.modules import Cipher
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.pages.page_headers import I64


_INDEXES: Final = (ModuleType.COLUMN_INDEX, ModuleType.OFFSET_INDEX)
_LEAST, _MOST = GCM_OVERHEAD - LENGTH_SIZE + 8, 1 << 14
# A longer module is no header. The search after lost bytes only takes those of up to ``_MOST``.
_LARGEST_HEADER: Final = 1 << 20
_SEARCH: Final = 16 << 20
_MOST_PLACES: Final = 100_000
# The most places tried for one header, and for the whole file.
_GUESSES: Final = 20_000
_ALL_GUESSES: Final = 500_000
# A page and its header take at least this many bytes.
_SMALLEST_PAGE: Final = 2 * GCM_OVERHEAD
_SECOND_BLOCK: Final = b"\0\0\0\2"
_UNIQUE: Final = range(4, 33)


@dataclass(frozen=True, slots=True, order=True)
class ChunkOrdinals:
    """The place of a column chunk."""

    row_group: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedPage:
    """A page: ``ordinal`` counts data pages, -1 is the dictionary. Its body is a module, from
    ``body`` to ``stop``."""

    place: ChunkOrdinals
    ordinal: int
    header: PageHeader
    start: int
    body: int
    stop: int
    decryptor: ColumnDecryptor

    def decrypted(self, data: memoryview) -> bytes | None:
        """The body before encryption; ``None`` where it does not authenticate."""
        ordinal = self.ordinal if self.ordinal >= 0 else None
        try:
            return self.decryptor.decrypt_page(
                self.header, data[self.body : self.stop], ordinal, base=self.body
            )
        except FormatError:
            return None


@dataclass(slots=True, kw_only=True)
class PlaintextRun:
    """Plaintext pages between bytes ``start`` and ``stop``, between the encrypted chunks ``after``
    and ``before``."""

    start: int
    stop: int
    after: ChunkOrdinals | None
    before: ChunkOrdinals | None = None


@dataclass(slots=True, kw_only=True)
class EncryptedMap:
    """What ``EncryptedWalk`` found. ``lost`` are byte ranges of unknown content."""

    pages: list[EncryptedPage] = field(default_factory=list)
    plaintext: list[PlaintextRun] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)


def find_algorithm(data: memoryview) -> EncryptionAlgorithm | None:
    """The last ``EncryptionAlgorithm`` in the file: of ``FileCryptoMetaData`` or a signed footer.

        1C | 2C   AES_GCM_V1 or AES_GCM_CTR_V1
        18 | 28   aad_prefix, or aad_file_unique where there is no prefix

    The struct has no checksum. A wrong one opens no module.
    """
    array = np.frombuffer(data, np.uint8)
    for high in range(len(array), 0, -_SEARCH):
        part = array[max(high - _SEARCH, 0) : high + 1]
        first, second = part[:-1], part[1:]
        like = ((first == 0x1C) | (first == 0x2C)) & ((second == 0x18) | (second == 0x28))
        for at in (np.flatnonzero(like) + max(high - _SEARCH, 0))[::-1].tolist():
            try:
                found = EncryptionAlgorithm.read(Reader(data, at, min(at + 65_536, len(data))))
            except FormatError:
                continue
            either = found.AES_GCM_V1 or found.AES_GCM_CTR_V1
            if either is not None and len(either.aad_file_unique or b"") in _UNIQUE:
                return found
    return None


class EncryptedWalk:
    """Finds the pages of a file; none where no key opens any."""

    def __init__(
        self,
        data: memoryview,
        leaves: Sequence[ColumnDescriptor],
        decryption: Decryption,
        file: FileDecryptor,
    ) -> None:
        self.data, self.leaves, self.file = data, leaves, file
        self.found = EncryptedMap()
        self.guesses_left = _ALL_GUESSES
        distinct: dict[bytes, Cipher] = {}
        # A key that is given for a column may be that of another file.
        self.ciphers: list[list[Cipher]] = []
        for leaf in leaves:
            keys = decryption.key_of_column(leaf.path), decryption.key_of_footer()
            own = [distinct.setdefault(key.reveal(), key) for key in keys if key is not None]
            self.ciphers.append(own[:1] if own[:1] == own[1:] else own)
        self.distinct = list(distinct.values())
        self.columns = [column for column, own in enumerate(self.ciphers) if own]
        # The chunk of the Bloom filter or index found last, among all places.
        self.last_metadata = -1

    # -- the walk ----------------------------------------------------------------------------------

    def run(self) -> EncryptedMap:
        """The pages, and the lost byte ranges."""
        found, end = self.found, len(self.data)
        at = len(MAGIC)
        last: EncryptedPage | None = None
        run: PlaintextRun | None = None
        while at < end:
            page = self.page(at, last)
            if page is not None:
                if run is not None:
                    run.before = page.place
                    run = None
                found.pages.append(page)
                last, at = page, page.stop
                continue
            rows, stop = walk_few(self.data, at, end, 1)
            if rows:
                if run is None:
                    run = PlaintextRun(start=at, stop=at, after=last.place if last else None)
                    found.plaintext.append(run)
                run.stop = at = stop
                continue
            over = self.metadata_end(at)
            if over is not None and over[1]:
                # The indexes: pages follow them where the writer left a checkpoint.
                run, at = None, self.search(over[0], last)
                continue
            if over is not None:
                at = over[0]
                continue
            run = None
            lost, at = at, self.search(at + 1, last)
            found.lost.append((lost, at))
        return found

    def page(self, at: int, last: EncryptedPage | None) -> EncryptedPage | None:
        """The page whose header lies at ``at``."""
        if not self.may_be_header(at):
            return None
        for place, ordinal in self.expected(last):
            page = self.opened(at, place, ordinal)
            if page is not None:
                return page
        if not len(self.like_headers(np.array([at], np.int64))):
            return None
        for place, ordinal in islice(self.guesses(at, last), _GUESSES):
            self.guesses_left -= 1
            if self.guesses_left < 0:
                return None
            page = self.opened(at, place, ordinal)
            if page is not None:
                return page
        return None

    def may_be_header(self, at: int) -> bool:
        """Whether a module of the length of a header lies there. The first four bytes of a
        plaintext page are a length too, and a module that long is not decrypted at every page."""
        length = int.from_bytes(self.data[at : at + LENGTH_SIZE], "little")
        return _LEAST <= length <= min(_LARGEST_HEADER, len(self.data) - at - LENGTH_SIZE)

    def expected(self, last: EncryptedPage | None) -> Iterator[tuple[ChunkOrdinals, int]]:
        """What most likely follows a page."""
        after = ChunkOrdinals(0, -1) if last is None else last.place
        if last is not None and last.ordinal < MAX_ORDINAL:
            yield last.place, last.ordinal + 1
        later = (place for place in self.chunks_near(after) if place > after)
        for place in islice(later, 1):
            yield place, -1
            yield place, 0

    def chunks_near(self, place: ChunkOrdinals) -> Iterator[ChunkOrdinals]:
        """The chunks of columns that have a key, those of near row groups first."""
        for distance in range(MAX_ORDINAL + 1 if self.columns else 0):
            groups = (place.row_group + distance, place.row_group - distance)
            for row_group in groups if distance else groups[:1]:
                if 0 <= row_group <= MAX_ORDINAL:
                    yield from (ChunkOrdinals(row_group, column) for column in self.columns)

    def guesses(self, at: int, last: EncryptedPage | None) -> Iterator[tuple[ChunkOrdinals, int]]:
        """The places that a header may have. The lost bytes limit how many pages can lie between.

        A quarter of them are later pages of the same chunk, a quarter the beginnings of other
        chunks, the rest pages within these.
        """
        start = ChunkOrdinals(0, 0) if last is None else last.place
        lost = (at - (len(MAGIC) if last is None else last.stop)) // _SMALLEST_PAGE
        quarter = _GUESSES // 4
        if last is not None:
            stop = min(last.ordinal + 2 + min(lost, quarter), MAX_ORDINAL + 1)
            for ordinal in range(last.ordinal + 1, stop):
                yield last.place, ordinal
        for place in islice(self.chunks_near(start), quarter // 2):
            yield place, -1
            yield place, 0
        within = min(lost, MAX_ORDINAL) + 1
        for place in islice(self.chunks_near(start), max(2 * quarter // within, 8)):
            for ordinal in range(1, within):
                yield place, ordinal

    def decryptor(self, cipher: Cipher, place: ChunkOrdinals) -> ColumnDecryptor:
        return ColumnDecryptor(
            cipher,
            self.file.file_aad,
            self.file.ctr,
            self.leaves[place.column].name,
            None,
            place.row_group,
            place.column,
            None,
        )

    def opened(self, at: int, place: ChunkOrdinals, ordinal: int) -> EncryptedPage | None:
        """The page at ``at``, if it is this one."""
        kind = ModuleType.DICTIONARY_PAGE_HEADER if ordinal < 0 else ModuleType.DATA_PAGE_HEADER
        for cipher in self.ciphers[place.column]:
            decryptor = self.decryptor(cipher, place)
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
            return EncryptedPage(
                place=place,
                ordinal=ordinal,
                header=header,
                start=at,
                body=body,
                stop=stop,
                decryptor=decryptor,
            )
        return None

    def metadata_end(self, at: int) -> tuple[int, bool] | None:
        """The place after a Bloom filter or an index at ``at``, and whether it is an index."""
        end = bloom_filter_end(self.data, at, len(self.data))
        if end is not None:
            return end, False
        if not self.may_be_header(at):
            return None
        groups = sorted({page.place.row_group for page in self.found.pages})
        places = [ChunkOrdinals(group, column) for group in groups for column in self.columns]
        # They lie in the order of the chunks, so the next place is nearly always the right one.
        turn = self.last_metadata + 1
        kinds = self.like_metadata(at)
        for number, place in islice(enumerate([*places[turn:], *places[:turn]]), _GUESSES):
            for kind in kinds:
                after = self.module_end(at, kind, place)
                if after is None:
                    continue
                self.last_metadata = (turn + number) % len(places)
                return min(after, len(self.data)), kind in _INDEXES
        return None

    def module_end(self, at: int, kind: ModuleType, place: ChunkOrdinals) -> int | None:
        """The end of the module at ``at``, if it is this one; of a Bloom filter both modules."""
        self.guesses_left -= 1
        if self.guesses_left < 0:
            return None
        for cipher in self.ciphers[place.column]:
            try:
                _, after = self.decryptor(cipher, place).decrypt_at(kind, self.data, at)
                if kind is ModuleType.BLOOM_FILTER_HEADER:
                    after += module_length(self.data, after)
            except FormatError:
                continue
            return after
        return None

    # -- after lost bytes --------------------------------------------------------------------------

    def search(self, at: int, last: EncryptedPage | None) -> int:
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
                if self.page(place, last) is not None:
                    return int(place)
        return len(self.data)

    def like_headers(self, places: I64) -> I64:
        """The ``places`` whose plaintext begins as that of a page header."""
        places = places[places + LENGTH_SIZE + NONCE_LENGTH + 3 <= len(self.data)]
        like = np.zeros(len(places), bool)
        for plain in self.first_bytes(places):
            like |= (plain[:, 0] == 0x15) & (plain[:, 2] == 0x15) & (plain[:, 1] <= 6)
        return places[like]

    def like_metadata(self, at: int) -> list[ModuleType]:
        """What the module at ``at`` may be, if it is not a page header, by the first plaintext
        byte: an i32 begins a Bloom filter's header, a list an index."""
        first = {int(plain[0, 0]) for plain in self.first_bytes(np.array([at], np.int64))}
        bloom = [ModuleType.BLOOM_FILTER_HEADER] if 0x15 in first else []
        return [*bloom, *(_INDEXES if 0x19 in first else ())]

    def first_bytes(self, places: I64) -> Iterator[npt.NDArray[np.uint8]]:
        """Three bytes of plaintext at each of the places, ``(n, 3)``, with every key. They are
        unauthenticated: decryption alone gives them."""
        if not len(places):
            return
        array = np.frombuffer(self.data, np.uint8)
        nonce = places[:, None] + LENGTH_SIZE + np.arange(NONCE_LENGTH)
        counters = np.empty((len(places), 16), np.uint8)
        counters[:, :NONCE_LENGTH] = array[nonce]
        counters[:, NONCE_LENGTH:] = np.frombuffer(_SECOND_BLOCK, np.uint8)
        stored = array[places[:, None] + LENGTH_SIZE + NONCE_LENGTH + np.arange(3)]
        for cipher in self.distinct:
            block = _Cipher(AES(cipher.reveal()), ECB()).encryptor()
            stream = np.frombuffer(block.update(counters.tobytes()), np.uint8).reshape(-1, 16)
            yield stored ^ stream[:, :3]
