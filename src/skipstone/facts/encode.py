"""From ``FileFacts`` to parts: one Arrow table per part, sidecars into packs or inline."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone._version import __version__
from skipstone.errors import FormatError
from skipstone.identity import UNITS_PER_SECOND
from skipstone.storage import int64

from .packs import INLINE_LIMIT, PackWriter
from .part_columns import (
    ETAG,
    FINGERPRINT,
    FOOTER_LENGTH,
    MTIME,
    OBJ_NAME,
    OWN,
    PAGE_INDEX_LENGTH,
    PAGE_INDEX_OFFSET,
    PATH,
    REASONS,
    ROW_GROUPS,
    ROWS,
    SIZE,
    UNIT,
    Definition,
    FactField,
    place_columns,
)
from .parts import encode_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from skipstone.pruning.kind import Index
    from skipstone.storage import Storage

    from .encrypted_packs import Segment
    from .file_facts import FileFacts
    from .index_encryption import IndexEncryption, Sealing
    from .location import Location

__all__ = ["PART_BYTES", "created_by", "facts_to_parts"]

log = logging.getLogger("skipstone")

#: Index values and sidecars that a new part names at most, before it is encoded.
PART_BYTES = 256 * 1024 * 1024


def created_by() -> str:
    """What parts say about their writer."""
    return f"skipstone {__version__}"


def facts_to_parts(
    facts: Iterable[FileFacts],
    definitions: Sequence[Index],
    schema: pa.Schema,
    fingerprint: str | None,
    built: int,
    location: Location,
    storage: Storage,
    inline_limit: int = INLINE_LIMIT,
    sealing: Sealing | None = None,
) -> Iterator[tuple[str, memoryview]]:
    """Name and bytes of the parts that hold ``facts``; writes the packs that they name, all of it
    encrypted by ``sealing``.

    At least one part, so that definitions are published over an empty table too.
    """
    fields = _fields(definitions, schema, built, None if sealing is None else sealing.encryption)

    def pack() -> PackWriter:
        return PackWriter(location, storage, inline_limit, sealing)

    block: list[FileFacts] = []
    held, written = 0, False
    for fact in facts:
        if fact.error is not None:
            continue
        if not _storable(fact.id.path):
            log.warning("%r: no facts for a name that is not UTF-8; read in full", fact.id.path)
            continue
        size = _nbytes(fact)
        if block and held + size > PART_BYTES:
            yield _part(block, definitions, fields, fingerprint, pack())
            block, held, written = [], 0, True
        block.append(fact)
        held += size
    if block or not written:
        yield _part(block, definitions, fields, fingerprint, pack())


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
    fingerprint: str | None,
    pack: PackWriter,
) -> tuple[str, memoryview]:
    columns = {
        OBJ_NAME: [f"{fact.id.path}#{_milliseconds(fact)}" for fact in facts],
        PATH: [fact.id.path for fact in facts],
        SIZE: [fact.id.size for fact in facts],
        MTIME: [int64(fact.id.mtime) for fact in facts],
        UNIT: [fact.id.unit for fact in facts],
        ETAG: [fact.id.etag for fact in facts],
        FINGERPRINT: [fingerprint] * len(facts),
        ROWS: [_count(fact.row_count) for fact in facts],
        REASONS: [_lasting(fact) or None for fact in facts],
        FOOTER_LENGTH: [fact.footer_length for fact in facts],
        PAGE_INDEX_OFFSET: [fact.page_index and fact.page_index[0] for fact in facts],
        PAGE_INDEX_LENGTH: [fact.page_index and fact.page_index[1] for fact in facts],
        ROW_GROUPS: [fact.row_groups for fact in facts],
        **_places(facts, pack, definitions),
    }
    arrays = [pa.array(columns[name], type_) for name, type_ in OWN.items()]
    for index, field in zip(definitions, fields, strict=False):
        arrays.append(_values(index, field, facts))
    for field in fields[len(definitions) :]:
        counts = [_count(fact.null_counts.get(field.nulls or "", -1)) for fact in facts]
        arrays.append(pa.array(counts, pa.int64()))
    names = [*OWN, *map(str, range(len(fields)))]
    limit = pack.inline_limit if any(field.sidecar for field in fields) else None
    table = pa.Table.from_arrays(arrays, names=names)
    return encode_part(table, fields, created_by(), limit, pack.sealing)


def _places(
    facts: Sequence[FileFacts], pack: PackWriter, definitions: Sequence[Index]
) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for sidecar in ("container", "pm"):
        places = [
            None
            if (data := getattr(fact, sidecar)) is None
            else pack.add(data, _segments(fact, sidecar, data, pack, definitions))
            for fact in facts
        ]
        in_pack = [place is not None and place.pack is not None for place in places]
        names = place_columns(sidecar)
        for name, attribute in zip(names, ("pack", "offset", "length", "inline"), strict=True):
            told = [
                place is not None and (yes or attribute == "inline")
                for place, yes in zip(places, in_pack, strict=True)
            ]
            columns[name] = [
                getattr(place, attribute) if yes else None
                for place, yes in zip(places, told, strict=True)
            ]
    pack.close()
    return columns


def _segments(
    fact: FileFacts, sidecar: str, data: bytes, pack: PackWriter, definitions: Sequence[Index]
) -> list[Segment]:
    """A sidecar cut by whose key each piece takes; nothing where packs are not sealed."""
    if pack.sealing is None:
        return []
    from .encrypted_packs import Segment

    encryption, number = pack.sealing.encryption, pack.count
    footer = encryption.footer_key
    blobs = []
    for index in definitions:
        value = fact.values.get(index)
        if index.sidecar != sidecar or value is None or not value[0].is_valid:
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


def _values(index: Index, field: FactField, facts: Sequence[FileFacts]) -> pa.Array:
    """The values of one index, null where it was left out; the type must be the kind's own."""
    type_ = field.arrow.type
    none = pa.nulls(1, type_)
    pieces = []
    for fact in facts:
        value = fact.values.get(index)
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


def _milliseconds(fact: FileFacts) -> int:
    return fact.id.mtime * 1000 // UNITS_PER_SECOND[fact.id.unit]


def _nbytes(fact: FileFacts) -> int:
    values: int = sum(value.nbytes for value in fact.values.values() if value is not None)
    return values + len(fact.container or b"") + len(fact.pm or b"")


def _storable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
