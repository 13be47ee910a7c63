"""Decoded columns of one file -> its index values. Knows no file format.

``ColumnsBuilder`` feeds each column's values, in whatever Arrow type they were decoded to, to the
builders of all definitions on that column. A column is left without facts in this file, with the
reason, where its values are not exactly values of the table's type, or where whoever reads says
so; a definition, where it does not fit the memory. The others go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.indexes.bloom import COMPILED, BloomBuilder
from skipstone.predicate.types import EXISTS_DEFAULT, MapKey, column_path
from skipstone.pruning.column_types import exactly
from skipstone.pruning.kind import Builder, Built, Chunk, column_fields
from skipstone.pruning.table_schema import has_text_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from skipstone.indexes.bloom import Kernels
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.pruning.kind import Index
    from skipstone.questdb.pm_of_data_file import PmMode

__all__ = ["BuildSettings", "Columns", "ColumnsBuilder", "build_columns"]

# Rows of a column that a file lacks, handed over at a time.
_NULLS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """How files are built.

    - ``memory``: bytes that one file may take at a time, half for decoding, half for what builders
      hold;
    - ``case_sensitive``: as ``spark.sql.caseSensitive``: whether ``ID`` is another column than
      ``id``;
    - ``settle``: seconds that a file must have been left alone before it is read;
    - ``inline_limit``: bytes of a sidecar that are kept in the fact row itself;
    - ``compiled``: hash with compiled code, which takes half a second to load in each process;
      ``None``: once the process has, in one file or in all so far, enough to hash;
    - ``pm``: whether each Parquet file gets its row group metadata (``_pm``), and whether that says
      where the file's Bloom filters lie or has them;
    - ``decryption``: the keys of encrypted files;
    - ``plaintext_index``: whether columns are indexed that their file encrypts.
    """

    memory: int = 512 * 1024 * 1024
    case_sensitive: bool = False
    settle: float = 2.0
    inline_limit: int = 500
    compiled: bool | None = None
    pm: PmMode = "external"
    decryption: Decryption | None = field(default=None, compare=False)
    plaintext_index: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Columns:
    """What was built; the fields mean the same as in ``FileFacts``."""

    row_count: int
    null_counts: Mapping[str, int]
    values: Mapping[Index, pa.Array | None]
    reasons: Mapping[str, str]
    container: bytes | None = None


@dataclass(slots=True)
class _Column:
    type: pa.DataType
    builders: dict[Index, Builder] = field(default_factory=dict)
    rows: int = 0
    nulls: int = 0


class ColumnsBuilder:
    """Builds the definitions of one file; see the module. ``rows``: a guess at its rows."""

    def __init__(
        self,
        definitions: Sequence[Index],
        schema: pa.Schema,
        settings: BuildSettings,
        rows: int = 0,
    ) -> None:
        self.definitions = tuple(definitions)
        self.fields = column_fields(definitions, schema)
        self.budget = max(settings.memory // 2, 1)
        self.case_sensitive = settings.case_sensitive
        self.reasons: dict[str, str] = {}
        self.columns: dict[str, _Column] = {}
        each = self.budget // max(len(self.fields), 1)
        blooms = []
        for definition in definitions:
            type = self.fields[definition.column].type
            column = self.columns.setdefault(definition.column, _Column(type))
            builder = column.builders[definition] = definition.build(type, each)
            if isinstance(builder, BloomBuilder):
                blooms.append(builder)
        if blooms and (kernels := _compiled(settings, rows * len(blooms))) is not None:
            for builder in blooms:
                builder.kernels = kernels

    @property
    def wanted(self) -> list[str]:
        """The columns that are still being built."""
        return list(self.columns)

    def locate(self, schema: pa.Schema, column: str, rows: int) -> tuple[str, ...] | None:
        """The path of ``column`` in a file of ``rows`` rows. ``None`` where there is nothing to
        read: the column is dropped with the reason, or null in every row."""
        found = _locate(schema, column, self.case_sensitive)
        if isinstance(found, str):
            self.drop(column, found)
            return None
        if found is None:
            # Spark reads the default there, and not null.
            if EXISTS_DEFAULT in (self.fields[column].metadata or {}):
                self.drop(column, "not in this file, and the column has a default value")
            else:
                self.add_missing(column, rows)
        return found

    def add(self, column: str, values: pa.Array) -> None:
        """Take in the next values of ``column``, as decoded; nothing if it was dropped."""
        state = self.columns.get(column)
        if state is None or not len(values):
            return
        exact = exactly(values, state.type)
        if exact is None:
            self.drop(column, f"{values.type} in this file, which is not exactly {state.type}")
            return
        chunk = Chunk(exact)
        state.rows += len(exact)
        state.nulls += chunk.null_count
        for definition, builder in list(state.builders.items()):
            try:
                builder.add(chunk)
            except Exception as error:  # a kind that fails is left out of this file
                self._fail(state, definition, error)
        self._stay_within()

    def add_missing(self, column: str, rows: int) -> None:
        """The file has no such column: all of its ``rows`` are null."""
        state = self.columns.get(column)
        while state is not None and rows > 0:
            count = min(rows, _NULLS)
            self.add(column, pa.nulls(count, state.type))
            rows -= count

    def drop(self, column: str, reason: str) -> None:
        """No facts about ``column`` of this file, because of ``reason``."""
        state = self.columns.pop(column, None)
        for definition in () if state is None else state.builders:
            self.reasons[repr(definition)] = reason

    def _fail(self, state: _Column, definition: Index, error: Exception) -> None:
        state.builders.pop(definition)
        self.reasons[repr(definition)] = f"failed: {type(error).__name__}: {error}"

    def _stay_within(self) -> None:
        held = [(b.nbytes, d, c) for c in self.columns.values() for d, b in c.builders.items()]
        if sum(size for size, _, _ in held) <= self.budget:
            return
        size, definition, state = max(held, key=lambda each: each[0])
        del state.builders[definition]
        self.reasons[repr(definition)] = f"took more than its share of memory ({size:,} bytes)"

    def finish(self, rows: int) -> Columns:
        """What was built of a file of ``rows`` rows."""
        for column, state in list(self.columns.items()):
            if state.rows != rows:
                self.drop(column, f"has {state.rows:,} values in a file of {rows:,} rows")
        values: dict[Index, pa.Array | None] = dict.fromkeys(self.definitions)
        with_blob: dict[Index, Built] = {}
        for state in self.columns.values():
            for definition, builder in list(state.builders.items()):
                try:
                    built = builder.finish()
                    if built.blob is not None:
                        with_blob[definition] = built
                        continue
                    values[definition] = _checked(definition, built, state.type)
                except Exception as error:  # as above
                    self._fail(state, definition, error)
                    continue
                if built.value is None:
                    self.reasons[repr(definition)] = built.reason or "left out"
        return Columns(
            row_count=rows,
            null_counts={name: state.nulls for name, state in self.columns.items()},
            values=values,
            container=self._bundle(with_blob, values) if with_blob else None,
            reasons=dict(self.reasons),
        )

    def _bundle(
        self, built: Mapping[Index, Built], values: dict[Index, pa.Array | None]
    ) -> bytes | None:
        """The sidecar of what was built with a blob; each value then says where its blob lies."""
        from skipstone.paimon.container_builder import bundled

        found = bundled(built)
        for definition, value in found.values.items():
            type = self.fields[definition.column].type
            values[definition] = _checked(definition, Built(value), type)
        self.reasons.update({repr(index): reason for index, reason in found.reasons.items()})
        return found.container


def _locate(schema: pa.Schema, column: str, case_sensitive: bool) -> tuple[str, ...] | str | None:
    """The names of ``column`` in a file: a path, why it cannot be told, or ``None`` where it is
    not.

    As Spark does: with case ignored, a name that several fields have is none of them.
    """
    fields: list[pa.Field] = list(schema)
    path: list[str] = []
    type: pa.DataType | None = None
    for part in column_path(column):
        if isinstance(part, MapKey):
            if type is None or not has_text_keys(type):
                return f"an element of {type} in this file"
            path.append(part)
            type, fields = type.item_type, []
            continue
        if type is not None and pa.types.is_nested(type) and not pa.types.is_struct(type):
            return f"inside {type} in this file"
        fits = [
            each
            for each in fields
            if each.name == part or (not case_sensitive and each.name.lower() == part.lower())
        ]
        if len(fits) > 1:
            return f"several columns of this file are called {part!r} but for case"
        if not fits:
            return None
        type = fits[0].type
        path.append(fits[0].name)
        fields = list(type) if pa.types.is_struct(type) else []
    if type is not None and pa.types.is_nested(type) and not pa.types.is_struct(type):
        return f"inside {type} in this file"
    return tuple(path)


def _checked(definition: Index, built: Built, type: pa.DataType) -> pa.Array | None:
    """The value, if it is what the kind says; an own kind may be wrong about itself."""
    value, wanted = built.value, definition.stored_type(type)
    if value is None:
        return None
    if len(value) != 1 or value.type != wanted:
        raise TypeError(
            f"{definition!r} built {len(value)} values of {value.type}, and said 1 of {wanted}"
        )
    return value


def _compiled(settings: BuildSettings, hashes: int) -> Kernels | None:
    if settings.compiled is None:
        return COMPILED.for_work(hashes)
    return COMPILED.load() if settings.compiled else None


def build_columns(
    batches: Iterable[pa.RecordBatch],
    definitions: Sequence[Index],
    schema: pa.Schema,
    settings: BuildSettings | None = None,
) -> Columns:
    """The index values of one file that comes as record batches, from Spark say.

    The batches have a column for each that has a definition, by its dotted name; one that they lack
    is all null.
    """
    builder = ColumnsBuilder(definitions, schema, settings or BuildSettings())
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        for column in builder.wanted:
            at = batch.schema.get_field_index(column)
            if at < 0:
                builder.add_missing(column, batch.num_rows)
            else:
                builder.add(column, batch.column(at))
    return builder.finish(rows)
