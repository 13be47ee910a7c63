"""The ``_pm`` of a data file, made when it is indexed: of the bytes of its footer, which were read.

Leaves whose order a reader of the ``_pm`` alone would take wrongly keep their statistics to
themselves: those that ``Described.doubtful`` names, and dates and timestamps before the calendars
agree in a file that may be of the old one (``index/calendar.py``).

Leaves that would be read as another type by the ``_pm`` alone (unsigned integers, times of day,
local timestamps, durations) get no ID: what has none is not taken for a column of QuestDB's
(``columns.py``), and the footer is read for it.

Where the file has Bloom filters, their headers are read too, ``HEADER_BYTES`` each, together: a
``_pm`` says where bitsets begin, and a footer does not. ``inlined`` reads the filters whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from skipstone.errors import UnsupportedError
from skipstone.parquet.arrow.arrow_types import arrow_schema
from skipstone.parquet.format.enums import ConvertedType, Type
from skipstone.parquet.format.footer import Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.metadata import SchemaElement
from skipstone.parquet.format.schema import Schema
from skipstone.pruning.calendar import FIRST_DATE, FIRST_TIMESTAMP, proleptic
from skipstone.storage import ByteRange

from .evidence.columns import element_of_column
from .format.footer_arrays_to_pm import bloom_places_of, convert_arrays, describe
from .format.footer_to_pm import HEADER_BYTES, BloomPlace, convert
from .format.pm import Pm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from skipstone.parquet.format.schema import Leaf
    from skipstone.pruning import Fetched

    from .format.values import Column

__all__ = ["MOST_FILTERS", "PM", "PmMode", "made_as", "make_pm"]

#: What a ``_pm`` says of Bloom filters: where they lie, their bitsets; or: no ``_pm`` at all.
PmMode: TypeAlias = Literal["external", "inlined", "none"]
#: what reasons call it
PM = "_pm"
#: Filters of one file whose headers are read; a file with more has none in its ``_pm``.
MOST_FILTERS = 4_096


def make_pm(
    data: bytes,
    size: int,
    *,
    mode: PmMode = "external",
    path: str = "",
    fetch: Callable[[Sequence[ByteRange]], Fetched] | None = None,
) -> bytes:
    """The ``_pm`` of a file of ``size`` bytes whose ``FileMetaData`` is ``data``.

    ``fetch`` reads parts of the file at ``path``: Bloom filters; without it there are none.
    ``FormatError`` where the footer contradicts itself, ``UnsupportedError`` where a ``_pm`` cannot
    hold what it says.
    """
    tail = Tail(size, len(data), encrypted=False)
    footer = FooterArrays.scan(data, tail.offset)
    if footer.end != len(data):
        raise UnsupportedError("the footer is signed: columns may be encrypted")
    footer.check_extent(tail.offset)
    described = describe(footer)
    silent = {*described.doubtful(footer.column_orders), *_ancient(footer)}
    described = replace(described, columns=_identified(footer, described.columns))
    blooms = _blooms(footer, mode, path, fetch)
    if mode == "inlined" and blooms:
        made = convert(footer.metadata, tail, blooms=blooms, silent=silent, on_stale="ignore")
        return replace(made, head=replace(made.head, columns=described.columns)).to_bytes()
    return convert_arrays(footer, tail, described, blooms=blooms, silent=silent)


def made_as(data: bytes | memoryview) -> PmMode:
    """In which mode a ``_pm`` was made, as far as it shows."""
    pm = Pm(data)
    return "inlined" if pm.bloom_columns and not pm.bloom_external else "external"


def _identified(footer: FooterArrays, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns, without the IDs of those that a ``_pm`` alone would read as another type."""
    having = [column.id >= 0 for column in columns]
    if not any(having):
        return columns
    elements = [
        element_of_column(column) if has and len(leaf.path) == 1 else None
        for column, has, leaf in zip(columns, having, footer.schema.leaves, strict=True)
    ]
    flat = [replace(each, name=f"c{at}") for at, each in enumerate(elements) if each is not None]
    whole = (SchemaElement(name="schema", num_children=len(flat)), *flat)
    alone = {each.name: each.type for each in arrow_schema(Schema.of(whole), whole)}
    read = arrow_schema(footer.schema, footer.schema_elements, footer.key_value_metadata)
    roots = {node.path[0]: at for at, node in enumerate(footer.schema.root.children)}
    found = []
    for at, (column, leaf) in enumerate(zip(columns, footer.schema.leaves, strict=True)):
        same = alone.get(f"c{at}") == read.field(roots[leaf.path[0]]).type
        found.append(column if same else replace(column, id=-1))
    return tuple(found)


def _blooms(
    footer: FooterArrays,
    mode: PmMode,
    path: str,
    fetch: Callable[[Sequence[ByteRange]], Fetched] | None,
) -> dict[BloomPlace, bytes]:
    places = bloom_places_of(footer)
    if fetch is None or not places or len(places) > MOST_FILTERS:
        return {}
    most = max(place.length for place in places) if mode == "inlined" else HEADER_BYTES
    wanted = {place: ByteRange(path, place.offset, min(place.length, most)) for place in places}
    got = fetch(list(wanted.values()))
    return {place: bytes(got[need]) for place, need in wanted.items() if need in got}


def _ancient(footer: FooterArrays) -> Iterator[int]:
    """Dates and timestamps with a minimum that means another day in the other calendar."""
    pairs = footer.key_value_metadata or ()
    said = {pair.key.encode(): (pair.value or "").encode() for pair in pairs}
    if proleptic(said, int96=False):
        return
    for leaf in footer.schema.leaves:
        first = _first(leaf)
        if first is None:
            continue
        width = 4 if leaf.type is Type.INT32 else 8
        starts, lengths = footer.bytes_of("min_value", slice(None), leaf.ordinal)
        known = starts[lengths == width]
        raw = footer.buffer[known[:, None] + np.arange(width)]
        values = np.ascontiguousarray(raw).view(f"<i{width}")
        if values.size and int(values.min()) < first:
            yield leaf.ordinal


def _first(leaf: Leaf) -> int | None:
    """The first value that both calendars agree on, in the leaf's unit; ``None``: any."""
    logical, converted = leaf.element.logicalType, leaf.element.converted_type
    if leaf.type is Type.INT32:
        dated = logical is not None and logical.DATE is not None
        return FIRST_DATE if dated or converted == ConvertedType.DATE else None
    if leaf.type is not Type.INT64:
        return None
    if logical is not None and logical.TIMESTAMP is not None:
        unit = logical.TIMESTAMP.unit.arrow
        return {"ms": FIRST_TIMESTAMP // 1_000, "us": FIRST_TIMESTAMP}.get(unit or "")
    if converted == ConvertedType.TIMESTAMP_MILLIS:
        return FIRST_TIMESTAMP // 1_000
    return FIRST_TIMESTAMP if converted == ConvertedType.TIMESTAMP_MICROS else None
