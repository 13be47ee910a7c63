"""Bloom filters of the data files of a snapshot of Apache Iceberg, as a Puffin file. Experimental.

**Puffin** (iceberg.apache.org/puffin-spec) is the format of Iceberg's statistics files. Integers of
the footer are int32, little-endian::

    magic "PFA1" | blob ... | magic | FileMetadata, JSON in UTF-8 | its length | flags, 0 | magic

Each blob has an entry in ``FileMetadata``: type, ids of its fields, snapshot, offset and length
from the first byte of the file, and properties. This module does not compress blobs: the bits of a
filter hardly compress.

**The blob** ``bloom-filter-v1`` is that of a proposal (apache/iceberg, pull request 15311), which
no release of Iceberg contains. One blob describes one column of one data file. Its bytes are the
bits of the filter, bit ``i`` as bit ``i % 8`` of byte ``i // 8``. A value sets the bits::

    (h1 + i h2) mod 2^64 mod num-bits    for i from 0 to num-hashes - 1

where ``h1`` and ``h2`` are the halves of MurmurHash3 x64 128, seed 0, of the value: a string as
UTF-8, an int as 4 bytes and a long as 8, big-endian. Properties, all of them text: ``data-file``
(as the manifest spells the path), ``column-name``, ``fpp``, ``num-values`` (that are not null),
``num-bits`` and ``num-hashes``.

**Soundness.** A reader of the proposal leaves out a data file that has no blob for the column. So a
column is exported for all files of the snapshot in which it has a value, or the export fails.
Values are read by ``pyiceberg``, in the type that the column has in the snapshot. Deleted rows are
among them.
"""

from __future__ import annotations

import json
import math
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone._version import __version__
from skipstone.errors import SkipstoneError, UnsupportedError, first_line
from skipstone.facts.reports import ExportReport
from skipstone.identity import canonical_path
from skipstone.predicate.types import column_name
from skipstone.pruning import Cause, Reason
from skipstone.pruning.column_types import binary_parts
from skipstone.storage import open_storage, remove_left_overs

from .iceberg_equality import side_by_side

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from .iceberg_columns import DataFile

    U64 = NDArray[np.uint64]
    U8 = NDArray[np.uint8]
    I64 = NDArray[np.int64]


MAGIC: Final = b"PFA1"
BLOOM: Final = "bloom-filter-v1"
#: the bytes of a value, by the type that its column has in the schema
_WIDTHS: Final = {"int": 4, "long": 8}
# The proposal counts bits in Java's int.
_MOST_BITS: Final = (1 << 31) - 8
# In a smaller filter, the steps of many values fall on the same few bits.
_LEAST_BITS: Final = 512
# Values that are hashed at a time.
_CHUNK: Final = 1 << 16
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_FIVE, _N1, _N2 = np.uint64(5), np.uint64(0x52DCE729), np.uint64(0x38495AB5)


# -- the file --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobMetadata:
    """The entry of a blob in the footer."""

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    offset: int
    length: int
    properties: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """The entry as an object of the footer."""
        return {
            "type": self.type,
            "fields": list(self.fields),
            "snapshot-id": self.snapshot_id,
            "sequence-number": self.sequence_number,
            "offset": self.offset,
            "length": self.length,
            "properties": dict(self.properties),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMetadata:
    """The payload of the footer."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The whole footer."""
        found = {
            "blobs": [each.to_json() for each in self.blobs],
            "properties": dict(self.properties),
        }
        payload = json.dumps(found, separators=(",", ":")).encode()
        return b"".join((MAGIC, payload, len(payload).to_bytes(4, "little"), bytes(4), MAGIC))


# -- the filter ------------------------------------------------------------------------------------


def _rotl(x: U64, bits: int) -> U64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _fmix(h: U64) -> U64:
    h = (h ^ (h >> np.uint64(33))) * _F1
    h = (h ^ (h >> np.uint64(33))) * _F2
    return h ^ (h >> np.uint64(33))


def _mixed(k1: U64, k2: U64) -> tuple[U64, U64]:
    return _rotl(k1 * _C1, 31) * _C2, _rotl(k2 * _C2, 33) * _C1


def hash128(data: U8, offsets: I64) -> tuple[U64, U64]:
    """The halves of MurmurHash3 x64 128, seed 0, of each byte string
    ``data[offsets[i]:offsets[i + 1]]``; two arrays of n."""
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    # Each string is read in blocks of 16 bytes, the last one beyond its end.
    padded = np.concatenate([data[offsets[0] : offsets[-1]], np.zeros(16, np.uint8)])
    h1, h2 = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.uint64)
    blocks, inside, rows = lengths // 16, np.arange(16), np.arange(len(starts))
    for at in range(int(blocks.max(initial=0))):
        rows = rows[blocks[rows] > at]
        words = padded[(starts[rows] + 16 * at)[:, None] + inside].view("<u8")
        k1, k2 = _mixed(words[:, 0], words[:, 1])
        one, other = h1[rows] ^ k1, h2[rows]
        one = (_rotl(one, 27) + other) * _FIVE + _N1
        h1[rows], h2[rows] = one, (_rotl(other ^ k2, 31) + one) * _FIVE + _N2
    tail = padded[(starts + 16 * blocks)[:, None] + inside]
    tail[inside >= (lengths % 16)[:, None]] = 0
    words = tail.view("<u8")
    # An empty tail is 0, which mixes to 0.
    k1, k2 = _mixed(words[:, 0], words[:, 1])
    size = lengths.astype(np.uint64)
    h1, h2 = h1 ^ k1 ^ size, h2 ^ k2 ^ size
    h1 = h1 + h2
    h2 = h2 + h1
    h1, h2 = _fmix(h1), _fmix(h2)
    h1 = h1 + h2
    return h1, h2 + h1


def _bytes_of(values: pa.Array, type: str) -> tuple[U8, I64]:
    """Values without nulls as the proposal hashes them."""
    width = _WIDTHS.get(type)
    if width is None:
        return binary_parts(values)
    numbers = np.asarray(values.to_numpy(zero_copy_only=False))
    data = numbers.astype(f">i{width}").view(np.uint8)
    return data, np.arange(len(values) + 1, dtype=np.int64) * width


@dataclass(frozen=True, slots=True, kw_only=True)
class PuffinFilter:
    """A filter: flags of its bits, and the hash functions."""

    bits: NDArray[np.bool_]
    hashes: int

    @classmethod
    def over(cls, values: pa.Array, type: str, fpp: float) -> PuffinFilter:
        """A filter of distinct values without nulls, of a column of ``type``."""
        count = max(len(values), 1)
        wanted = -count * math.log(fpp) / math.log(2) ** 2
        size = min(max(-(-math.ceil(wanted) // 8) * 8, _LEAST_BITS), _MOST_BITS)
        made = cls(bits=np.zeros(size, np.bool_), hashes=max(1, round(-math.log2(fpp))))
        for at in range(0, len(values), _CHUNK):
            made._add(*hash128(*_bytes_of(values.slice(at, _CHUNK), type)))
        return made

    def _add(self, h1: U64, h2: U64) -> None:
        size = np.uint64(len(self.bits))
        for at in range(self.hashes):
            self.bits[(h1 + np.uint64(at) * h2) % size] = True

    def to_bytes(self) -> bytes:
        """The blob."""
        return np.packbits(self.bits, bitorder="little").tobytes()


# -- the export ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class FilterExport:
    """Filters of the files ``data`` of ``snapshot``, by the table of ``pyiceberg`` and its schema
    ``fields``."""

    name: str
    table: Any
    snapshot: Any
    fields: Any
    data: Sequence[DataFile]

    def write(
        self, columns: Mapping[str, float], destination: str, options: Mapping[str, str]
    ) -> ExportReport:
        """Write ``<destination>/<id of the snapshot>.puffin``, with the columns and the ``fpp`` of
        each; columns that the proposal does not support are left out.

        ``UnsupportedError`` where no column is left, and for a destination within the table.
        """
        home = canonical_path(destination).rstrip("/")
        if f"{home}/".startswith(f"{canonical_path(self.table.location()).rstrip('/')}/"):
            raise UnsupportedError(
                f"{destination} lies within the table, where nothing is written",
                hint="export to a directory of its own",
            )
        left_out: list[Reason] = []
        chosen = [each for name in columns if (each := self._field(name, left_out)) is not None]
        if not chosen or self.snapshot is None:
            why = "".join(f"; {reason}" for reason in left_out[:3])
            raise UnsupportedError(
                f"{self.name} has no Bloom filters to publish as Puffin{why}",
                hint="`skipstone build TABLE -c COLUMN:bloom` builds one, over a column of"
                " string, int or long",
            )
        parts, blobs, offset = [MAGIC], list[BlobMetadata](), len(MAGIC)
        read = side_by_side(lambda each: self._filters(each, chosen, columns), self.data)
        for found in read:
            for id, data, properties in found:
                blob = BlobMetadata(
                    type=BLOOM,
                    fields=(id,),
                    snapshot_id=self.snapshot.snapshot_id,
                    sequence_number=self.snapshot.sequence_number or 0,
                    offset=offset,
                    length=len(data),
                    properties=properties,
                )
                blobs.append(blob)
                parts.append(data)
                offset += len(data)
        by = {"created-by": f"skipstone {__version__}"}
        parts.append(FileMetadata(blobs=tuple(blobs), properties=by).to_bytes())
        target, path = open_storage(home, options), f"{home}/{self.snapshot.snapshot_id}.puffin"
        remove_left_overs(target, home)
        whole = b"".join(parts)
        target.put(path, whole, [each.path for each in self.data])
        return ExportReport(
            table=self.name,
            destination=path,
            kind="puffin",
            files_total=len(self.data),
            files=sum(map(bool, read)),
            indexes=tuple(f"{each.name}:bloomfilter" for each in chosen),
            bytes=len(whole),
            left_out=tuple(left_out),
        )

    def _field(self, name: str, left_out: list[Reason]) -> Any:
        """The field of a column; ``None`` where the proposal does not support it."""
        tops = {column_name((each.name,)): each for each in self.fields.fields}
        found = tops.get(name)
        if found is not None and str(found.field_type) in ("string", *_WIDTHS):
            return found
        text = "no top-level column" if found is None else f"of type {found.field_type}"
        left_out.append(Reason(cause=Cause.UNSUPPORTED, subject=name, text=text))
        return None

    def _filters(
        self, file: DataFile, chosen: Sequence[Any], columns: Mapping[str, float]
    ) -> list[tuple[int, bytes, dict[str, str]]]:
        """The blobs of one file: the field, the bytes and the properties of each."""
        scan = import_module("pyiceberg.io.pyarrow").ArrowScan
        task = import_module("pyiceberg.table").FileScanTask
        true = import_module("pyiceberg.expressions").AlwaysTrue()
        projected = self.fields.select(*(each.name for each in chosen))
        try:
            reader = scan(self.table.metadata, self.table.io, projected, true)
            rows = reader.to_table([task(data_file=file.file)])
        except Exception as error:  # decoders raise errors of any class for damaged bytes
            raise SkipstoneError(
                f"{file.path} is not read: {first_line(error)}",
                hint="a filter is published for all files or for none",
            ) from error
        found = []
        for each in chosen:
            column = rows.column(each.name).drop_null()
            if not len(column):
                continue  # no row is equal to anything
            values, fpp = pc.unique(column), columns[column_name((each.name,))]
            made = PuffinFilter.over(values, str(each.field_type), fpp)
            properties = {
                "data-file": file.file.file_path,
                "column-name": each.name,
                "fpp": repr(fpp),
                "num-values": str(len(column)),
                "num-bits": str(len(made.bits)),
                "num-hashes": str(made.hashes),
            }
            found.append((each.field_id, made.to_bytes(), properties))
        return found
