"""Encodes ``FileFacts``, the result of one pass over a data file, to parts and packs.

Each part is one Arrow table. Sidecars go into a pack, many in one object, back to back:

    packs/<uuid>.pack:  | sidecar 0 | sidecar 1 | … |      no header, no padding, no footer

Each sidecar is byte for byte a standard file (a Paimon index container, a QuestDB ``_pm``), or the
filters of row groups (``indexes/row_group_filters.py``); the fact row of its data file says where
it lies. A sidecar of at most 500 bytes (or the build's
``inline_limit``) lies in the fact row itself: a separate request would cost more than its bytes.

An encrypted index has encrypted packs (``encrypted_packs.py``), and no sidecar in a fact row: there
the footer's key would encrypt it instead of its index's key.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.storage import int64
from skipstone.xskipper.format.naming import OBJ_NAME

from .part_columns import (
    CHUNKS,
    ETAG,
    FINGERPRINT,
    FOOTER_LENGTH,
    INLINE_LIMIT,
    MTIME,
    OWN,
    PAGE_INDEX_LENGTH,
    PAGE_INDEX_OFFSET,
    PATH,
    REASONS,
    ROW_GROUPS,
    ROWS,
    SCHEMA,
    SIDECARS,
    SIZE,
    UNIT,
    Definition,
    FactField,
    place_columns,
)
from .part_writer import encode_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from skipstone.identity import ObjectId
    from skipstone.pruning.kind import Index
    from skipstone.pruning.table_schema import FileSchema
    from skipstone.storage import Storage

    from .encrypted_packs import Segment
    from .index_encryption import IndexEncryption, WriteEncryption
    from .location import Location


log = logging.getLogger("skipstone")

#: Index values and sidecars that a new part names at most, before it is encoded.
PART_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileFacts:
    """Facts about the version ``id`` of one file.

    - ``row_count``: rows in the file, -1 where unknown;
    - ``null_counts``: nulls of each indexed column (a column that the file lacks is all null);
    - ``values``: definition -> Arrow array of length 1 of the kind's ``stored_type``, ``None``
      where it was left out;
    - ``reasons``: what was left out (``repr`` of the definition) -> why; those in ``passing`` are
      reported and not stored, because with keys or other settings they may not arise;
    - ``footer_length``: bytes of the Parquet footer, ``None`` for other formats;
    - ``row_groups``: number of row groups of a Parquet file;
    - ``chunks``: offset and length of the chunks that a query reads with the end of the file;
    - ``schema``: the columns of a Parquet file, where they may be stored;
    - ``page_index``: offset and length of the Parquet page index, where there is one;
    - ``container``, ``pm``, ``filters``: sidecars of this file, whole, byte for byte as their
      formats have them; ``filters`` has the filters of row groups one after the other, and
      ``filter_places`` where those of a definition lie;
    - ``too_fresh``: left out because the file may still change; ``error`` says so too;
    - ``gone``: the file is no longer there; ``error`` says so too;
    - ``error``: why nothing could be built; then the only fact is the ``reasons``, if there are
      any.
    """

    id: ObjectId
    row_count: int = -1
    null_counts: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[Index, pa.Array | None] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    footer_length: int | None = None
    page_index: tuple[int, int] | None = None
    row_groups: int | None = None
    chunks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    schema: FileSchema | None = None
    container: bytes | None = None
    pm: bytes | None = None
    filters: bytes | None = None
    filter_places: Mapping[Index, pa.Array] = field(default_factory=dict)
    error: str | None = None
    too_fresh: bool = False
    gone: bool = False
    passing: frozenset[str] = frozenset()

    @property
    def sidecar_bytes(self) -> int:
        """Bytes of all sidecars."""
        return sum(len(each) for each in (self.container, self.pm, self.filters) if each)

    def place(self, index: Index, sidecar: str) -> pa.Array | None:
        """The stored value of ``index``, if it is a place in ``sidecar``."""
        if sidecar == "filters":
            return self.filter_places.get(index)
        return self.values.get(index) if index.sidecar == sidecar else None


@dataclass(frozen=True, slots=True)
class PartTarget:
    """Where new parts go, and how they are written.

    ``fingerprint`` is of the reader's options, where facts depend on them. Sidecars of up to
    ``inline_limit`` bytes lie in the facts themselves. With ``encryption`` nothing is in the clear.
    ``job`` names the build.
    """

    location: Location
    storage: Storage
    fingerprint: str | None = None
    inline_limit: int = INLINE_LIMIT
    encryption: WriteEncryption | None = None
    job: str | None = None
    #: Paths of the packs that no published part names yet.
    packs: list[str] = field(default_factory=list)


def facts_to_parts(
    facts: Iterable[FileFacts],
    definitions: Sequence[Index],
    schema: pa.Schema,
    built: int,
    target: PartTarget,
) -> Iterator[tuple[str, memoryview, list[str]]]:
    """Name, bytes and data files of the parts that hold ``facts``; writes the packs that they name.
    There is at least one part, so that definitions are published for an empty table too.
    """
    encryption = None if target.encryption is None else target.encryption.encryption
    fields = _fields(definitions, schema, built, encryption)
    block: list[FileFacts] = []
    held, written = 0, False
    for fact in facts:
        if fact.error is not None and not fact.reasons:
            continue
        if not _storable(fact.id.path):
            log.warning("%r: no facts for a name that is not UTF-8; read in full", fact.id.path)
            continue
        size = _nbytes(fact)
        if block and held + size > PART_BYTES:
            yield _part(block, definitions, fields, target)
            block, held, written = [], 0, True
        block.append(fact)
        held += size
    if block or not written:
        yield _part(block, definitions, fields, target)


def _fields(
    definitions: Sequence[Index],
    schema: pa.Schema,
    built: int,
    encryption: IndexEncryption | None = None,
) -> list[FactField]:
    found = []
    kinds: dict[str, list[str]] = {}
    for index in definitions:
        label = None if encryption is None else encryption.label(index.name, index.column)
        stored = index.stored_type(schema.field(index.column).type)
        definition = Definition.of(index, schema, built, label)
        found.append(FactField.of_definition(definition, stored, index.sidecar))
        kinds.setdefault(index.column, []).append(index.name)
    for name, of in kinds.items():
        label = None if encryption is None else encryption.nulls_label(name, of)
        found.append(FactField.of_nulls(name, schema.field(name).type, label))
    return found


def _part(
    facts: Sequence[FileFacts],
    definitions: Sequence[Index],
    fields: Sequence[FactField],
    target: PartTarget,
) -> tuple[str, memoryview, list[str]]:
    coded: dict[FileSchema, str] = {}
    texts = [_text_of(fact.schema, coded) for fact in facts]
    columns = {
        OBJ_NAME: [f"{fact.id.path}#{fact.id.mtime_ns // 1_000_000}" for fact in facts],
        PATH: [fact.id.path for fact in facts],
        SIZE: [fact.id.size for fact in facts],
        MTIME: [int64(fact.id.mtime) for fact in facts],
        UNIT: [fact.id.unit for fact in facts],
        ETAG: [fact.id.etag for fact in facts],
        FINGERPRINT: [target.fingerprint] * len(facts),
        ROWS: [_count(fact.row_count) for fact in facts],
        REASONS: [_lasting(fact) or None for fact in facts],
        FOOTER_LENGTH: [fact.footer_length for fact in facts],
        PAGE_INDEX_OFFSET: [fact.page_index and fact.page_index[0] for fact in facts],
        PAGE_INDEX_LENGTH: [fact.page_index and fact.page_index[1] for fact in facts],
        ROW_GROUPS: [fact.row_groups for fact in facts],
        CHUNKS: [list(fact.chunks.items()) or None for fact in facts],
        SCHEMA: [text and _name_of(text) for text in texts],
        **_places(facts, PackWriter(target), definitions),
    }
    arrays = [pa.array(columns[name], type_) for name, type_ in OWN.items()]
    for index, column in zip(definitions, fields, strict=False):
        arrays.append(_values(index, column, [fact.values.get(index) for fact in facts], facts))
    of_groups = [
        (index, _of_row_groups(index, column))
        for index, column in zip(definitions, fields, strict=False)
        if any(index in fact.filter_places for fact in facts)
    ]
    for index, column in of_groups:
        places = [fact.filter_places.get(index) for fact in facts]
        arrays.append(_values(index, column, places, facts))
    counted = fields[len(definitions) :]
    fields = [*fields[: len(definitions)], *(column for _, column in of_groups), *counted]
    for column in counted:
        counts = [_count(fact.null_counts.get(column.nulls or "", -1)) for fact in facts]
        arrays.append(pa.array(counts, pa.int64()))
    limit = target.inline_limit if any(column.sidecar for column in fields) else None
    table = pa.Table.from_arrays(arrays, names=[*OWN, *map(str, range(len(fields)))])
    schemas = {_name_of(text): text for text in texts if text is not None}
    name, data = encode_part(
        table, fields, limit, target.encryption, schemas=schemas, job=target.job
    )
    return name, data, [fact.id.path for fact in facts]


def _text_of(schema: FileSchema | None, coded: dict[FileSchema, str]) -> str | None:
    if schema is None:
        return None
    if schema not in coded:
        coded[schema] = schema.to_text()
    return coded[schema]


def _name_of(text: str) -> str:
    """The name of a schema in a part; see ``part_columns``."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _places(
    facts: Sequence[FileFacts], pack: PackWriter, definitions: Sequence[Index]
) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for sidecar in SIDECARS:
        places = []
        for fact in facts:
            data: bytes | None = getattr(fact, sidecar)
            if data is None:
                places.append(SidecarPlace())
            else:
                segments = _segments(fact, sidecar, data, pack, definitions)
                places.append(pack.add(data, fact.id.path, segments))
        for at, name in enumerate(place_columns(sidecar)):
            columns[name] = [place[at] for place in places]
    pack.close()
    return columns


def _segments(
    fact: FileFacts, sidecar: str, data: bytes, pack: PackWriter, definitions: Sequence[Index]
) -> list[Segment]:
    """The pieces of a sidecar by key label: each index's blob, and the bytes between. Empty where
    the pack is in the clear."""
    if pack.encryption is None:
        return []
    from .encrypted_packs import Segment

    encryption, number = pack.encryption.encryption, pack.count
    footer = encryption.footer_key
    blobs = []
    for index in definitions:
        value = fact.place(index, sidecar)
        if value is None or not value[0].is_valid:
            continue
        place = value[0].as_py()
        if place["start"] is not None and place["start"] >= 0 and place["length"]:
            label = encryption.label(index.name, index.column)
            blobs.append((place["start"], place["length"], label, repr(index)))
    found, at = [], 0
    for start, length, label, name in sorted(blobs):
        if start < at or start + length > len(data):
            raise ValueError(f"{name} does not lie in its sidecar")
        if start > at:
            found.append(Segment(start - at, footer, f"{number}/{sidecar}"))
        found.append(Segment(length, label, f"{number}/{name}"))
        at = start + length
    if at < len(data):
        found.append(Segment(len(data) - at, footer, f"{number}/{sidecar}"))
    return found


def _of_row_groups(index: Index, column: FactField) -> FactField:
    """The column of the places of the filters of row groups, next to that of the index."""
    other, definition = index.of_row_groups(), column.definition
    assert other is not None
    assert definition is not None
    stored = other.stored_type(definition.type)
    return FactField.of_definition(definition, stored, other.sidecar, row_groups=True)


def _values(
    index: Index,
    column: FactField,
    values: Sequence[pa.Array | None],
    facts: Sequence[FileFacts],
) -> pa.Array:
    """The values of one index, null where it was left out; the type must be the kind's own."""
    type_ = column.arrow.type
    none = pa.nulls(1, type_)
    pieces = []
    for fact, value in zip(facts, values, strict=True):
        if value is not None and (value.type != type_ or len(value) != 1):
            raise FormatError(
                f"{index!r} of {fact.id.path}",
                expected=f"one value of {type_}",
                got=f"{len(value)} of {value.type}",
            )
        pieces.append(none if value is None else value)
    return pa.concat_arrays(pieces) if pieces else pa.nulls(0, type_)


def _lasting(fact: FileFacts) -> list[tuple[str, str]]:
    return [each for each in fact.reasons.items() if each[0] not in fact.passing]


def _count(value: int) -> int | None:
    return None if value < 0 else value


def _nbytes(fact: FileFacts) -> int:
    values: int = sum(value.nbytes for value in fact.values.values() if value is not None)
    return values + fact.sidecar_bytes


def _storable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


class SidecarPlace(NamedTuple):
    """Where a sidecar lies: ``length`` bytes from ``offset`` of ``pack``, or ``inline``. The order
    is that of ``place_columns``."""

    pack: str | None = None
    offset: int | None = None
    length: int | None = None
    inline: bytes | None = None


class PackWriter:
    """Collects sidecars and writes them as one object; nothing exists before ``close``."""

    def __init__(self, target: PartTarget) -> None:
        self.target, self.encryption = target, target.encryption
        self.name = f"{uuid.uuid4()}.pack"
        self._segments: list[Segment] = []
        self._sidecars: list[bytes] = []
        self._length = 0
        self._files: list[str] = []

    @property
    def count(self) -> int:
        """Sidecars in the pack so far."""
        return len(self._sidecars)

    def add(self, sidecar: bytes, file: str, segments: Sequence[Segment] = ()) -> SidecarPlace:
        """Add one sidecar of ``file``; returns its place. ``segments`` say how to encrypt it."""
        if self.encryption is not None:
            self._segments += segments
        elif len(sidecar) <= self.target.inline_limit:
            return SidecarPlace(inline=sidecar)
        place = SidecarPlace(self.name, self._length, len(sidecar))
        self._sidecars.append(sidecar)
        self._files.append(file)
        self._length += len(sidecar)
        return place

    def close(self) -> None:
        """Write the pack if it has any sidecar; call this before the part that names it appears."""
        if not self._sidecars:
            return
        data = b"".join(self._sidecars)
        if self.encryption is not None:
            from .encrypted_packs import encrypt_pack

            footer, keys = self.encryption.encryption.footer_key, self.encryption.keys
            data = encrypt_pack(self.name, data, self._segments, footer, keys)
        path = self.target.location.pack(self.name)
        self.target.packs.append(path)
        self.target.storage.put(path, data, self._files)
