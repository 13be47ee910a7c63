"""``PaimonFileIndex``: one index container of Paimon, as its users see it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, PredicateError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Bound, Leaf, Opaque, leaves, pieces
from skipstone.predicate.types import UNCOMPARABLE
from skipstone.pruning import Fetched, RowSet, Units
from skipstone.pruning.evaluation import RowTask, evaluate_rows
from skipstone.pruning.plan import SortKey, Step
from skipstone.pruning.residual import require_decidable
from skipstone.pruning.table_schema import schema_of_columns
from skipstone.storage import ByteRange, open_storage

from .format.keys import PaimonType
from .index_blob import row_count_of
from .sidecar import (
    PaimonColumnType,
    Sidecar,
    footer_and_schemas,
    of_bytes,
    open_sidecar,
    types_of,
)
from .sidecar_match import column_counts, type_in
from .top_rows import TopCandidate, top_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.pruning.kind import Blob


Types: TypeAlias = "Mapping[str, str | PaimonType] | pa.Schema"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowSelection:
    """The answer of a container to a predicate: of ``row_count`` rows, only those of ``rows`` may
    match, and all of them do if ``exact``. ``steps`` say what each index did."""

    rows: RowSet
    exact: bool
    row_count: int
    steps: tuple[Step, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)


class PaimonFileIndex:
    """One index container of Paimon: a file, a part of one, or bytes.

    >>> index = skipstone.PaimonFileIndex("data-0.parquet.index")  # types from data-0.parquet
    >>> index.select("city = 'Oslo' and age >= 40").rows  # of data-0.parquet
    >>> types = {"city": "STRING"}
    >>> skipstone.PaimonFileIndex(entry.embedded_index, types=types).count("city = 'Oslo'")

    Only the head of the container is read, and then those bytes of each blob that an answer needs.
    A container has no types: they come from the schema of its data file, or from ``types``. A
    column without a type is not used.

    ``source`` is a path or bytes; with ``offset`` and ``length`` the container lies inside the file
    at the path. ``types`` are Paimon's by column (``{"ts": "TIMESTAMP(3)"}``), or the data file's
    Arrow schema; by default those of the file ``data``, which for ``x.index`` is ``x`` where there
    is one. ``rows`` is the data file's row count where the caller knows it.

    ``FormatError`` for bytes that are not a container, ``UnsupportedError`` for a newer version.
    """

    def __init__(
        self,
        source: str | bytes | memoryview,
        *,
        types: Types | None = None,
        data: str | None = None,
        rows: int | None = None,
        offset: int = 0,
        length: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._rows = rows
        self._options = storage_options
        self.bytes_read = 0
        if isinstance(source, str):
            self.path = canonical_path(source)
            self._storage = open_storage(self.path, storage_options)
            id = self._storage.stat(self.path)
            assert id.size is not None  # every storage gives the size
            self._versions = {self.path: id}
            size = id.size - offset if length is None else length
            if not 0 <= offset <= offset + size <= id.size:
                raise FormatError(
                    "no such part of the file",
                    file=self.path,
                    offset=offset,
                    expected=f"at most {id.size} bytes",
                    got=f"{size} bytes from {offset}",
                )
            try:
                self.sidecar: Sidecar = open_sidecar(size, self.fetch, self.path, offset)
            except FormatError as error:
                raise error.in_file(self.path) from None
        else:
            self.path = ""
            self.sidecar = of_bytes(source)
        #: the data file that types were taken from
        self.data: str | None = None
        #: of each column whose type is known
        self.types: dict[str, PaimonColumnType] = {}
        if types is None:
            self.data = self._adjacent_data() if data is None else canonical_path(data)
            if self.data is not None:
                self.types = self._types_in(self.data)
        elif isinstance(types, pa.Schema):
            self.types = types_of(types)
        if types is not None and not isinstance(types, pa.Schema):
            for name, type in types.items():
                parsed = PaimonType.parse(type) if isinstance(type, str) else type
                self.types[name] = PaimonColumnType.of_paimon(parsed)

    def __repr__(self) -> str:
        where = repr(self.path) if self.path else "bytes"
        return f"PaimonFileIndex({where}, {len(self.sidecar.head.columns):,} columns)"

    @property
    def size(self) -> int:
        """Bytes of the container."""
        return self.sidecar.blob.length

    def blob(self, start: int, length: int) -> Blob | None:
        """The place of a part of the container."""
        return self.sidecar.blob.part(start, length)

    @cached_property
    def row_count(self) -> int:
        """Rows of the data file: as given, or as the first index states. Bloom filters do not: -1
        if there is no other index. An index with another count is not used."""
        if self._rows is not None:
            return self._rows
        for column in self.sidecar.head.columns:
            for entry in column.indexes:
                place = self.blob(entry.start, entry.length)
                rows = -1 if place is None else row_count_of(entry.kind, place, self.fetch)
                if rows >= 0:
                    return rows
        return -1

    def select(self, where: str | Bound, *, time_zone: str = "UTC") -> RowSelection:
        """The rows that may match ``where``: SQL text, or a bound tree. ``time_zone`` is that of
        timestamps in the text that name none.

        A damaged blob is not used; its step gives the reason. ``PredicateError`` for text that is
        not a predicate or names a column that the container does not have, or whose type is not
        known. ``UnsupportedError`` where the number of rows is not known.
        """
        tree = self._bound(where, time_zone) if isinstance(where, str) else where
        rows = self.row_count
        if rows < 0:
            raise UnsupportedError(
                "a container of Bloom filters does not store how many rows there are",
                hint="pass it: PaimonFileIndex(…, rows=…)",
            )
        task = RowTask(
            unit=Units.objects(np.zeros(1, np.int64), np.array([rows])),
            rows=rows,
            alive=RowSet.all(rows),
            evidence=self.sidecar.evidence(
                self.types, rows, {leaf.column for leaf in leaves(tree)}
            ),
            leaves={},
        )
        (bounds,), steps = evaluate_rows(tree, [task], fetch=self.fetch)
        return RowSelection(rows=bounds.may, exact=bounds.exact, row_count=rows, steps=steps)

    def count(self, where: str | Bound, *, time_zone: str = "UTC") -> int | None:
        """How many rows match, if the indexes decide it exactly; else ``None``.

        ``UnsupportedError`` where no index could: a part of ``where`` is not understood.
        """
        tree = self._bound(where, time_zone) if isinstance(where, str) else where
        require_decidable(tree)
        found = self.select(tree)
        return len(found.rows) if found.exact else None

    def top(self, column: str, limit: int, *, descending: bool = False) -> RowSet:
        """The first ``limit`` rows by a column with a range-bitmap; all, if there are fewer.

        Nulls are first in ascending and last in descending order, as in Spark. If values tie for
        the last place, the later rows are taken. ``UnsupportedError`` if there is no usable
        range-bitmap.
        """
        rows = self.row_count
        index = self.sidecar.top_file(self.types, rows, column)
        order = SortKey(column, descending, not descending)
        found = top_rows(
            [TopCandidate(file=0, rows=rows, index=index)], limit, order, fetch=self.fetch
        )
        if not found.exact:
            why = "; ".join(reason.text for reason in found.reasons)
            raise UnsupportedError(
                f"the first rows by {column!r} are not known: {why or 'it has no range-bitmap'}",
                hint="a range-bitmap of a column whose type is known has them",
            )
        return found.rows.get(0) or RowSet()

    def _bound(self, where: str, time_zone: str) -> Bound:
        parsed = parse_sql(where)
        try:
            return bind(parsed, self.schema, session_zone=time_zone, text=where)
        except PredicateError:
            unusable = self._unusable()
            every = pa.schema([*self.schema, *unusable.values()])
            tree = bind(parsed, every, session_zone=time_zone, text=where)
            for node in pieces(tree):
                name = node.column if isinstance(node, Leaf) else ""
                reason = f"no predicate supports column {name}" if name in unusable else ""
                if isinstance(node, Opaque):
                    reason = node.reason.replace("no index supports", "no predicate supports")
                if reason:
                    hint = "PaimonFileIndex(…, types={'ts': 'TIMESTAMP(3)'}) names a type"
                    raise PredicateError(reason, text=where, hint=hint) from None
            raise

    def _unusable(self) -> dict[str, pa.Field]:
        """The columns that predicates cannot use, as fields that say why."""
        found: dict[str, pa.Field] = {}
        for column in self.sidecar.head.columns:
            if column.name not in self.schema.names:
                known = self.types.get(column.name)
                why = f"it is {known.paimon}" if known else "its type is not known"
                metadata = {UNCOMPARABLE: why.encode()}
                found[column.name] = pa.field(column.name, pa.null(), metadata=metadata)
        return found

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of known type, by their names in predicates.

        ``a.b`` in a container is a column of that name, or part of a struct: it has both names.
        """
        known = {
            name: type.stored
            for name, type in self.types.items()
            if type.stored is not None and self.sidecar.head.of_column(name)
        }
        parts = {name for name in known if "." in name and name.partition(".")[0] not in known}
        nested = schema_of_columns({name: pa.field(name, known[name]) for name in parts})
        return pa.schema([*(pa.field(name, type) for name, type in known.items()), *nested])

    def _types_in(self, path: str) -> dict[str, PaimonColumnType]:
        """The types in the data file; for a column of milliseconds the footer decides the unit."""
        footer, *schemas = _described(path, self._options)
        found = types_of(*schemas)
        unsure = {
            name: type
            for name, type in types_of(*schemas, millis=True).items()
            if name not in found and self.sidecar.head.of_column(name)
        }
        for name, counts in column_counts(footer, unsure).items():
            try:
                type = type_in(
                    self.sidecar,
                    name,
                    unsure[name],
                    counts,
                    int(footer.row_starts[-1]),
                    self.fetch,
                )
            except (FormatError, UnsupportedError, OSError):
                continue
            if type is not None:
                found[name] = type
        return found

    def _adjacent_data(self) -> str | None:
        name = self.path.removesuffix(".index")
        if not self.path or name == self.path or not self._storage.exists(name):
            return None
        return name

    def fetch(self, ranges: Sequence[ByteRange]) -> Fetched:
        """Bytes of the file, of the version that was opened."""
        found: dict[ByteRange, Any] = dict(self._storage.read_ranges(ranges, self._versions))
        self.bytes_read += sum(each.length for each in found)
        return found


def _described(
    path: str, options: Mapping[str, str] | None
) -> tuple[FooterArrays, pa.Schema, pa.Schema]:
    """A data file's footer, its stored schema, and its schema as Spark reads it."""
    storage = open_storage(path, options)
    try:
        return footer_and_schemas(storage, storage.stat(path))
    except (FormatError, UnsupportedError) as error:
        raise FormatError(
            "types come from the data file, and this is not a Parquet file",
            file=path,
            got=str(getattr(error, "about", error)),
            hint="name the types instead",
        ) from error
