"""Facts under the present names of a table's columns.

Facts describe files, and keep the names of the files (``predicate/naming.py``). ``under``
translates them to the names of the table: one ``MatchedFacts`` for the files of each naming. Plans
take these side by side, like those of several stores.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skipstone.predicate.naming import Naming, Namings

    from .part_columns import FactField
    from .snapshot import MatchedFacts, Snapshot


def under(matched: MatchedFacts, names: Namings | None) -> list[MatchedFacts]:
    """``matched`` by the table's names of columns, once per naming; ``names`` are those of the
    files."""
    if names is None:
        return [matched]
    found: list[MatchedFacts] | None = matched.renamed.get(names)
    if found is None:
        matched.renamed.clear()  # those of another snapshot of the table
        found = matched.renamed[names] = list(_views(matched, names))
    return found


def _views(matched: MatchedFacts, names: Namings) -> Iterator[MatchedFacts]:
    file = matched.file_of_row
    for number, naming in enumerate(names.distinct):
        mine = (file >= 0) & np.append(names.number == number, [False])[file]
        yield replace(
            matched,
            snapshot=_renamed(matched.snapshot, naming, names),
            file_of_row=np.where(mine, file, -1),
        )


def _renamed(snapshot: Snapshot, naming: Naming, names: Namings) -> Snapshot:
    """The snapshot of files with this naming, by the names of the table."""
    _ = snapshot.identities, snapshot.slices  # the copy shares what was read so far
    made = copy(snapshot)
    for name in ("definitions", "fields", "_matched"):
        made.__dict__.pop(name, None)
    made.naming = naming
    # A foreign store has its names in lower case, so they do not say which column is meant.
    known = snapshot.fields if snapshot.in_batches else ()
    made.fields = tuple(
        each
        for each in renamed_fields(known, naming)
        if not any(_is_former(name, naming, names) for name in _columns(each))
    )
    return made


def _is_former(name: str, naming: Naming, names: Namings) -> bool:
    """Whether other files use this name for a column that has another name in the table, and no
    column of the table has this name."""
    return (
        naming.to_table(name) == name
        and any(each.to_table(name) not in (name, None) for each in names.distinct)
        and all(each.to_file(name) == name for each in names.distinct)
    )


def _columns(field: FactField) -> Sequence[str]:
    if field.definition is not None:
        return field.definition.columns
    return () if field.nulls is None else (field.nulls,)


def renamed_fields(fields: Sequence[FactField], naming: Naming) -> Iterator[FactField]:
    """Fact columns by the names of the table, without those of columns that it lacks. They keep
    their keys, which parts use."""
    if not naming:
        yield from fields
        return
    for field in fields:
        definition, nulls = field.definition, field.nulls
        names = _columns(field)
        now = {name: naming.to_table(name) for name in names}
        if None in now.values():
            continue
        types = field.types
        if types is not None:
            types = pa.schema([each.with_name(now.get(each.name) or each.name) for each in types])
        if definition is not None:
            columns = tuple(str(now[name]) for name in names)
            definition = replace(definition, columns=columns, types=types or definition.types)
        nulls = None if nulls is None else now[nulls]
        yield replace(field, definition=definition, nulls=nulls, types=types)
