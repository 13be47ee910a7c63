"""Reading by a ``_pm`` alone: which columns that goes for, and the file seen through them.

A column is read this way only where its rows are those that the footer would give: one that is
written as QuestDB writes its type (``index/questdb/columns.py``), under a name of its own, and of
the type that the schema says where ``OpenedPm`` was given one. Files of other writers have no IDs,
or types that a ``_pm`` cannot keep (unsigned, times of day, local timestamps, whatever lies in
groups): for these the footer is read.

Without a schema one thing is left to be told: whether an INT is a signed one, and a TIMESTAMP an
instant. QuestDB has no others, and writes them without a dictionary; other writers, whose files may
have been given IDs, use one unless they are told not to. So with a dictionary the footer is read.
"""

from __future__ import annotations

import logging
import mmap
import os
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from skipstone.errors import FormatError, SkipstoneError
from skipstone.identity import canonical_path
from skipstone.parquet.arrow.arrow_types import arrow_schema
from skipstone.parquet.evidence.indexed_file import why
from skipstone.parquet.format.footer import Tail
from skipstone.parquet.format.metadata import SchemaElement
from skipstone.parquet.format.schema import Schema
from skipstone.parquet.reading.opened_footer import OpenedFooter
from skipstone.predicate import from_dnf, parse_sql
from skipstone.predicate.tree import ColumnRef
from skipstone.predicate.types import column_name, column_path
from skipstone.pruning import Cause, Reason

from .evidence.columns import as_questdb_writes
from .evidence.opened_pm import OpenedPm, open_pm
from .format.pm import PmSnapshot
from .format.types import Tag
from .pm_footer import pm_footer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.parquet.reading.query import Where
    from skipstone.storage import Storage

    from .format.pm_header import Buffer

__all__ = ["PmGiven", "PmViews", "View", "open_given"]

log = logging.getLogger("skipstone")

# Of integers and bytes a type in Parquet may say more than QuestDB's does.
_OPEN = (Tag.INT, Tag.LONG, Tag.DATE, Tag.TIMESTAMP, Tag.BINARY, Tag.LONG128, Tag.LONG256)
_DICTIONARY = 1 << 1
# Sets of columns whose footers are kept.
_REMEMBERED = 64
# A footer is worth its bytes where so many times as many are left to read without it.
_WORTH = 4

#: ``_pm`` of a file: where it lies, its bytes, or what was opened before
PmGiven: TypeAlias = "str | os.PathLike[str] | Buffer | PmSnapshot | OpenedPm"


def open_given(pm: PmGiven, path: str, storage: Storage, size: int) -> OpenedPm | Reason:
    """The ``_pm`` of the data file of ``size`` bytes at ``path``; why not, where it is no use."""
    subject = "_pm"
    try:
        if isinstance(pm, OpenedPm | PmSnapshot):
            snapshot = pm if isinstance(pm, PmSnapshot) else pm.snapshot
            if snapshot.parquet_size != size:
                raise FormatError(
                    "a _pm of another version of the file", expected=size, got=snapshot.parquet_size
                )
            return pm if isinstance(pm, OpenedPm) else OpenedPm.of(pm, path=path)
        if isinstance(pm, str | os.PathLike):
            place = canonical_path(pm)
            subject = place
            return OpenedPm.of(
                open_pm(_bytes(place, storage), parquet_size=size, file=place), path=path
            )
        try:
            memoryview(pm).release()
        except TypeError:
            text = f"pm is a path, bytes, or what open_pm opened, not {type(pm).__name__}"
            raise TypeError(text) from None
        return OpenedPm.of(open_pm(pm, parquet_size=size), path=path)
    except FileNotFoundError:
        return Reason(cause=Cause.ABSENT, subject=subject, text="not there")
    except (SkipstoneError, ValueError) as error:
        return why(error, subject)
    except OSError as error:
        return Reason(cause=Cause.UNREADABLE, subject=subject, text=str(error))


def _bytes(path: str, storage: Storage) -> Buffer:
    if storage.remote:
        return storage.read(path)
    with Path(path).open("rb") as file:
        # Never truncated once it was published: an update appends, and a rewrite is a new file.
        if not os.fstat(file.fileno()).st_size:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def names_in(where: Where) -> list[str] | None:
    """Columns that a predicate names, ``None`` where one lies below another."""
    found: dict[str, None] = {}
    pending: list[Any] = [parse_sql(where) if isinstance(where, str) else where]
    if not isinstance(where, str) and not is_dataclass(where):
        pending = [from_dnf(where)]
    while pending:
        node = pending.pop()
        if isinstance(node, ColumnRef):
            if len(node.path) != 1:
                return None
            found[column_name(tuple(node.path))] = None
        elif isinstance(node, tuple | list):
            pending += node
        elif is_dataclass(node):
            pending += [getattr(node, each.name) for each in fields(node)]
    return list(found)


class View(NamedTuple):
    """Of what a file seen by its ``_pm`` was made: ``nulls`` bool (row groups, columns) says where
    a chunk is nothing but nulls."""

    file: OpenedPm
    nulls: NDArray[np.bool_]


class PmViews:
    """A data file by its ``_pm``: seen through the columns that are touched; see the module.

    ``page_index``: predicates go to the footer where the page index says more than it costs.
    """

    def __init__(self, base: ParquetFile, file: OpenedPm, *, page_index: bool) -> None:
        self.base, self.file, self._page_index = base, file, page_index
        self._made: dict[tuple[int, ...], ParquetFile] = {}

    @cached_property
    def _whole(self) -> ParquetFile:
        return self.base.through(None)

    def of(self, columns: Sequence[str] | None, where: Where) -> ParquetFile:
        """The file as these columns and this predicate take it: by the footer where need be."""
        if isinstance(columns, str):
            return self._whole  # says what is wrong with it
        named = names_in(where) if where is not None else []
        if named is None:
            return self._whole
        try:
            wanted = None if columns is None else [*columns, *named]
            found = _columns(self.file, wanted)
            view = None if found is None else self._view(found)
        except (SkipstoneError, ValueError) as error:
            log.warning("%s: the footer is read instead: %s", self.base.path, error)
            return self._whole
        pays = view is not None and where is not None and self._page_index
        if view is None or (pays and self._pays(view, where)):
            return self._whole
        return view

    def _view(self, columns: Mapping[int, SchemaElement]) -> ParquetFile:
        key = tuple(columns)
        known = self._made.get(key)
        if known is None:
            footer, nulls = pm_footer(self.file, key, list(columns.values()))
            snapshot = self.file.snapshot
            tail = Tail(
                length=snapshot.parquet_footer_length, encrypted=False, size=snapshot.parquet_size
            )
            opened = OpenedFooter(tail=tail, footer=footer)
            known = self.base.through(opened, View(self.file, nulls))
            if len(self._made) >= _REMEMBERED:
                self._made.clear()
            self._made[key] = known
        return known

    def _pays(self, view: ParquetFile, where: Where) -> bool:
        """Whether what is left to read after the row groups outweighs the footer."""
        plan = view.plan(where)
        detail = plan.details.get(0)
        if not plan.keep[0] or bool(plan.must[0]) or (detail is not None and detail.exact):
            return False
        stored = view.footer.chunk("total_compressed_size").sum(axis=1)
        groups = None if detail is None else detail.row_groups
        left = int(stored.sum() if groups is None else stored[list(groups)].sum())
        return left > _WORTH * self.file.snapshot.parquet_footer_length


def _columns(file: OpenedPm, names: Sequence[str] | None) -> dict[int, SchemaElement] | None:
    """Positions of these columns (raw or quoted names; ``None``: all), ascending, and the schema
    elements under which they are read; ``None`` where one takes the footer."""
    pm = file.snapshot.pm
    wanted: dict[int, str] = {}
    if names is None:
        if len(set(pm.names)) < pm.column_count:
            return None
        names = [column_name((name,)) for name in pm.names]
    for name in names:
        quoted = name if len(column_path(name)) == 1 else column_name((name,))
        known = file.stored(quoted)
        if known is None or not as_questdb_writes(pm, known[0]):
            return None
        wanted[known[0]] = quoted
    if file.schema is None and _may_be_anothers(file, sorted(wanted)):
        return None
    found: dict[int, SchemaElement] = {}
    for place in sorted(wanted):
        quoted = wanted[place]
        known = file.stored(quoted)
        assert known is not None
        (name,) = column_path(quoted)
        id = int(pm.descriptors[place]["ID"])
        if pm.name(place) != name:
            return None  # found by its ID, under another name: the footer has that one
        element = replace(known[1].column.element, name=name, field_id=id)
        if not _as_the_schema_says(file, name, element):
            return None
        found[place] = element
    return found


def _may_be_anothers(file: OpenedPm, places: Sequence[int]) -> bool:
    """Whether a column whose type leaves something open has a dictionary; see the module."""
    described = file.snapshot.pm.descriptors[places]
    at = np.flatnonzero(np.isin(described["TYPE"] & 0xFF, _OPEN))
    chunks = file.snapshot.chunks(np.asarray(places, np.int64)[at])
    return bool(np.any(chunks["ENCODINGS"] & _DICTIONARY))


def _as_the_schema_says(file: OpenedPm, name: str, element: SchemaElement) -> bool:
    if file.schema is None:
        return True
    elements = (SchemaElement(name="schema", num_children=1), element)
    read = arrow_schema(Schema.of(elements), elements, None).field(0).type
    return bool(file.schema.field(name).type == read)
