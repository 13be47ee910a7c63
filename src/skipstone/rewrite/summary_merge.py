"""What the files of a table say of themselves, merged: what a summary says of all.

| of the files | parquet-java | here |
|---|---|---|
| schemas | united, or refused where they conflict | one and the same, else refused |
| key-values | united; refused where values conflict | what all agree on; others left out, said |
| created_by | the set of them as one text | the same |
| column_orders | by the schema | kept where all agree, else left out: no bounds then |

A row group with fewer columns than the schema, as parquet-java writes it of a table whose columns
grew, is a trap: readers that find columns by their place take one for another. The name of the
schema's root means nothing, and may differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from skipstone.errors import UnsupportedError
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.metadata import KeyValue
from skipstone.parquet.format.summary_file import KEY
from skipstone.parquet.thrift.compact import (
    BINARY,
    LIST,
    STRUCT,
    Limits,
    ListOf,
    read_struct,
    write_struct,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.parquet.format.metadata import SchemaElement

__all__ = ["merged_top"]

_SCHEMA, _KEY_VALUES, _CREATED_BY, _COLUMN_ORDERS = 2, 5, 6, 7


def merged_top(heads: Mapping[bytes, str]) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """A footer without row groups for all files, the keys that are left out, and what else is to be
    said.

    ``heads`` are those of the files (``summary_file.py``), each with the path of a file that has
    it. ``UnsupportedError`` for schemas that differ.
    """
    footers = {path: FooterArrays.scan(head) for head, path in heads.items()}
    first, *others = footers
    for path in others:
        _same_schema(first, footers[first], path, footers[path])
    every = [footer.key_value_metadata or () for footer in footers.values()]
    agreed, dropped = _agreed(every)
    notes = []
    top = next(iter(heads))
    struct = read_struct(top, limits=Limits(values=max(1 << 16, 2 * len(top))))[0]
    struct = struct.without(_KEY_VALUES)
    if agreed:
        pairs = [read_struct(KeyValue(key=key, value=value).to_bytes())[0] for key, value in agreed]
        struct = struct.replace(_KEY_VALUES, LIST, ListOf(STRUCT, tuple(pairs)))
    writers = sorted({footer.created_by or "" for footer in footers.values()})
    if len(writers) > 1:
        text = f"[{', '.join(writers)}]".encode("utf-8", "surrogateescape")
        struct = struct.replace(_CREATED_BY, BINARY, text)
    if len({_field(footer, _COLUMN_ORDERS) for footer in footers.values()}) > 1:
        struct = struct.without(_COLUMN_ORDERS)
        notes.append("the files do not agree on column_orders: other readers will use no bounds")
    return write_struct(struct), dropped, tuple(notes)


def _field(footer: FooterArrays, id: int) -> bytes | None:
    place = footer.scanned.fields.get(id)
    return None if place is None else footer.data[place[1] : place[2]]


def _same_schema(path: str, one: FooterArrays, other_path: str, other: FooterArrays) -> None:
    if _field(one, _SCHEMA) == _field(other, _SCHEMA):
        return
    mine, theirs = _unnamed(one.schema_elements), _unnamed(other.schema_elements)
    if mine == theirs:
        return
    pairs = [(a, b) for a, b in zip(mine[1:], theirs[1:], strict=False) if a != b]
    if pairs:
        a, b = pairs[0]
        differ = f"column {a.name!r}" + (f" and {b.name!r}" if a.name != b.name else "")
    else:
        differ = f"{len(mine) - 1} and {len(theirs) - 1} columns"
    raise UnsupportedError(
        f"{path} and {other_path} have different schemas ({differ}): there is no summary of both",
        hint="give the files one schema, or make tables of those that agree",
    )


def _unnamed(elements: Sequence[SchemaElement]) -> list[SchemaElement]:
    root = replace(elements[0], name="", repetition_type=None)
    return [root, *elements[1:]]


def _agreed(
    every: Sequence[Sequence[KeyValue]],
) -> tuple[list[tuple[str, str | None]], tuple[str, ...]]:
    """Pairs that all have, in the first one's order; keys of all others."""
    maps = [{each.key: each.value for each in pairs if each.key != KEY} for pairs in every]
    names = dict.fromkeys(name for each in maps for name in each)
    agreed = [
        (name, maps[0][name])
        for name in maps[0]
        if all(name in each and each[name] == maps[0][name] for each in maps)
    ]
    kept = {name for name, _ in agreed}
    return agreed, tuple([name for name in names if name not in kept])
