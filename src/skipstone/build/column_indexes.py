"""Builds index values from the decoded columns of one file. It knows no file format.

``ColumnsBuilder`` feeds each column's values, in any Arrow type, to the builders of all definitions
on that column, and computes expressions from the columns that they read. An index on a list gets
the elements of all rows, without nulls; a file without the column has none.

A column gets no facts in this file, with the reason, if its values are not exactly values of the
table's type, or if the reader drops the column. An expression gets none if it fails in a row, or if
the file lacks a column that it reads. A definition gets none if it does not fit into the memory.
The others are not affected.

Columns that no expression combines may be added on threads of their own: these share only the sum
of the memory and the reasons, which a lock guards.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field
from threading import RLock
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import ExpressionError, SkipstoneError, UnsupportedError
from skipstone.indexes.bloom import COMPILED, BloomBuilder, HashKernels
from skipstone.indexes.text import TextBuilder
from skipstone.predicate.tree import ELEMENTS, is_expression
from skipstone.predicate.types import (
    EXISTS_DEFAULT,
    EXPRESSION,
    MapKey,
    column_path,
    has_text_keys,
    is_list,
    spark_type,
)
from skipstone.pruning.column_types import exactly
from skipstone.pruning.kind import Builder, Built, Chunk, Index, column_fields, expression_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.predicate.indexed import Expression
    from skipstone.questdb.pm_of_data_file import PmMode


# For a column that a file lacks, nulls are added in chunks of this many rows.
_NULLS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """How files are built.

    - ``memory``: bytes that one file may take, half for decoding, half for the builders;
    - ``case_sensitive``: as ``spark.sql.caseSensitive``: whether ``ID`` and ``id`` are two
      columns;
    - ``threads``: how many threads read and build the columns of a file;
    - ``settle``: seconds that a file must be unchanged before it is read;
    - ``inline_limit``: a sidecar of up to this many bytes is stored in the fact row itself;
    - ``compiled``: hash with compiled code, which takes half a second to load in each process;
      ``None``: only once the process has enough values to hash;
    - ``pm``: whether each Parquet file gets row group metadata (``_pm``), and whether that holds
      the file's Bloom filters or their places;
    - ``decryption``: the keys of encrypted files;
    - ``plaintext_index``: whether columns that their file encrypts are indexed.
    """

    memory: int = 512 * 1024 * 1024
    threads: int = 1
    case_sensitive: bool = False
    settle: float = 2.0
    inline_limit: int = 500
    compiled: bool | None = None
    pm: PmMode = "external"
    decryption: Decryption | None = field(default=None, compare=False)
    plaintext_index: bool = False

    def share(self, columns: int) -> int:
        """The bytes for the builders of each column, if there are ``columns``."""
        return max(self.memory // 2, 1) // max(columns, 1)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Columns:
    """What was built; the fields mean the same as in ``FileFacts``."""

    row_count: int
    null_counts: Mapping[str, int]
    values: Mapping[Index, pa.Array | None]
    reasons: Mapping[str, str]
    container: bytes | None = None
    filters: bytes | None = None
    filter_places: Mapping[Index, pa.Array] = field(default_factory=dict)


@dataclass(slots=True)
class _ColumnBuilders:
    type: pa.DataType
    builders: dict[Index, Builder] = field(default_factory=dict)
    rows: int = 0
    nulls: int = 0


@dataclass(slots=True)
class _Computed:
    """An expression, and the values that wait for those of its other columns; ``read`` has the
    types of the columns."""

    expression: Expression
    read: dict[str, pa.DataType]
    waiting: dict[str, list[pa.Array]]
    has_default: bool

    @property
    def of_elements(self) -> bool:
        """Whether it gives the elements of lists, not a value for each row."""
        return self.expression.typed.kernel == ELEMENTS

    def side(self, values: pa.Array) -> pa.Array:
        """The elements in the values of a column. Those of a list column are elements already."""
        kernel = self.expression.typed.args[0].kernel
        if kernel == "column" or not pa.types.is_map(values.type):
            return values
        side = values.keys if kernel == "map_keys" else values.items
        first, last = (values.offsets[at].as_py() for at in (0, -1))
        return side.slice(first, last - first)

    def take(self, column: str, values: pa.Array) -> pa.Array | None:
        """The next values of the expression, where all its columns have theirs; or ``None``."""
        self.waiting[column].append(values)
        ready = min(sum(map(len, parts)) for parts in self.waiting.values())
        if not ready:
            return None
        columns = {}
        for name, parts in self.waiting.items():
            whole = parts[0] if len(parts) == 1 else pa.concat_arrays(map(_dense, parts))
            columns[name] = whole.slice(0, ready)
            self.waiting[name] = [whole.slice(ready)] if len(whole) > ready else []
        return self._values(columns, ready)

    def _values(self, columns: dict[str, pa.Array], rows: int) -> pa.Array:
        from skipstone.predicate.kernels.rows import values_of
        from skipstone.predicate.kernels.text import doubtful_case

        def values(columns: dict[str, pa.Array], rows: int) -> pa.Array:
            expression = self.expression
            text = expression.name.rpartition(EXPRESSION)[0]
            found = values_of(expression.typed, columns, rows, expression.zone, text)
            if doubt := doubtful_case(expression.typed, columns.values()):
                raise UnsupportedError(doubt)
            return found

        ((name, column), *others) = columns.items()
        if not others and pa.types.is_dictionary(column.type) and rows > len(column.dictionary):
            # The dictionary may hold values that no row has, and the expression may fail on them.
            with suppress(ExpressionError):
                null = pa.nulls(1, column.type.value_type)
                if not values({name: null}, 1)[0].is_valid:
                    of_each = values({name: column.dictionary}, len(column.dictionary))
                    if not of_each.null_count:
                        return pa.DictionaryArray.from_arrays(column.indices, of_each)
        return values({name: _dense(column) for name, column in columns.items()}, rows)


def _dense(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


class ColumnsBuilder:
    """Builds the definitions of one file; see the module. ``rows`` estimates its row count,
    ``row_groups`` are the rows of its row groups."""

    def __init__(
        self,
        definitions: Sequence[Index],
        schema: pa.Schema,
        settings: BuildSettings,
        rows: int = 0,
        row_groups: Sequence[int] = (),
    ) -> None:
        self.definitions = tuple(definitions)
        self.fields = column_fields(definitions, schema)
        self.budget = settings.share(1)
        self.case_sensitive = settings.case_sensitive
        self.reasons: dict[str, str] = {}
        self.columns: dict[str, _ColumnBuilders] = {}
        self.computed: dict[str, _Computed] = {}
        self._lock = RLock()
        each = settings.share(len(self.fields))
        blooms = []
        for definition in definitions:
            type = self.fields[definition.column].type
            if is_expression(definition.column) and definition.column not in self.columns:
                found = expression_of(definition.column, schema)
                if found.typed.by_spark() is None:  # else its values come from Spark
                    read = dict(found.typed.columns())
                    waiting: dict[str, list[pa.Array]] = {name: [] for name in read}
                    tops = (schema.field(column_path(name)[0]) for name in read)
                    default = any(EXISTS_DEFAULT in (top.metadata or {}) for top in tops)
                    self.computed[definition.column] = _Computed(found, read, waiting, default)
            column = self.columns.setdefault(definition.column, _ColumnBuilders(type))
            builder = column.builders[definition] = definition.build(type, each)
            if isinstance(builder, BloomBuilder):
                blooms.append(builder)
            computed = self.computed.get(definition.column)
            if not (computed and computed.of_elements):
                builder.cut(row_groups)
        hashes = rows * sum(builder.per_row for builder in blooms)
        if blooms and (kernels := _compiled(settings, hashes)) is not None:
            for builder in blooms:
                builder.kernels = kernels

    @property
    def wanted(self) -> list[str]:
        """The columns of the file that are not dropped."""
        found = [column for column in self.columns if column not in self.computed]
        return list(dict.fromkeys([*found, *(c for e in self.computed.values() for c in e.read)]))

    def asks_pages(self, column: str) -> bool:
        """Whether an index on ``column`` asks how long the pages are."""
        state = self.columns.get(column)
        return state is not None and any(map(_asks_pages, state.builders.values()))

    def paged(self, column: str, rows: Sequence[int]) -> None:
        """Receives, before the first values, about how many rows a page of ``column`` has in each
        row group; 0 where that is unknown."""
        for builder in self.columns[column].builders.values():
            if isinstance(builder, TextBuilder):
                builder.paged(rows)

    def apart(self, columns: Iterable[str]) -> list[list[str]]:
        """Groups ``columns`` so that no expression reads columns of two groups."""
        groups = [[column] for column in columns]
        for read in (each.read for each in self.computed.values()):
            joined = [group for group in groups if not read.keys().isdisjoint(group)]
            groups = [group for group in groups if group not in joined]
            groups += [[column for group in joined for column in group]] if joined else []
        return groups

    def locate(self, schema: pa.Schema, column: str, rows: int) -> tuple[str, ...] | None:
        """The path of ``column`` in a file of ``rows`` rows. ``None``: the column is dropped with
        the reason, or it is null in every row."""
        if is_expression(column):
            self.drop(column, "only Spark computes it")
            return None
        lists = any(each.of_elements and column in each.read for each in self.computed.values())
        found = _locate(schema, column, self.case_sensitive, lists)
        if isinstance(found, str):
            self.drop(column, found)
            return None
        if found is None:
            for name, each in list(self.computed.items()):
                if column in each.read and (not each.of_elements or each.has_default):
                    self._drop_one(name, f"{column} is not in this file")
            # Spark reads the default, not null.
            field = self.fields.get(column)
            if field is not None and EXISTS_DEFAULT in (field.metadata or {}):
                self.drop(column, "not in this file, and the column has a default value")
            else:
                self.add_missing(column, rows)
        return found

    def add(self, column: str, values: pa.Array) -> None:
        """Adds the next decoded values of ``column``, or elements of a list. Ignores a dropped
        column."""
        if self.computed and len(values):
            self._compute(column, values)
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

    def _compute(self, column: str, values: pa.Array) -> None:
        """Gives ``values`` to the expressions that read ``column``."""
        with self._lock:
            computed = list(self.computed.items())
        for name, each in computed:
            type = each.read.get(column)
            if type is None:
                continue
            wanted = type.value_type if each.of_elements else type
            exact = exactly(each.side(values) if each.of_elements else values, wanted)
            if exact is None:
                what = f"an element of {column}" if each.of_elements else column
                text = f"{what} is {values.type} in this file, which is not exactly {wanted}"
                self._drop_one(name, text)
                continue
            if each.of_elements:
                self.add(name, exact.drop_null())
                continue
            try:
                found = each.take(column, exact)
            except (SkipstoneError, pa.ArrowException) as error:
                self._drop_one(name, f"failed: {getattr(error, 'message', error)}")
                continue
            if found is not None:
                self.add(name, found)

    def add_missing(self, column: str, rows: int) -> None:
        """Adds ``rows`` nulls: the file has no such column."""
        state = self.columns.get(column)
        while state is not None and rows > 0:
            count = min(rows, _NULLS)
            self.add(column, pa.nulls(count, state.type))
            rows -= count

    def drop(self, column: str, reason: str) -> None:
        """Leaves ``column`` of this file, and expressions over it, without facts, because of
        ``reason``."""
        with self._lock:
            for name in [name for name, each in self.computed.items() if column in each.read]:
                self._drop_one(name, f"{column}: {reason}")
            self._drop_one(column, reason)

    def _drop_one(self, column: str, reason: str) -> None:
        with self._lock:
            self.computed.pop(column, None)
            state = self.columns.pop(column, None)
            for definition in () if state is None else state.builders:
                self.reasons[repr(definition)] = reason

    def _fail(self, state: _ColumnBuilders, definition: Index, error: Exception) -> None:
        if isinstance(error, MemoryError):
            raise error  # the file gets no facts, and a later build tries it again
        with self._lock:
            state.builders.pop(definition, None)
            self.reasons[repr(definition)] = f"failed: {type(error).__name__}: {error}"

    def _stay_within(self) -> None:
        with self._lock:
            held = [(b.nbytes, d, c) for c in self.columns.values() for d, b in c.builders.items()]
            if sum(size for size, _, _ in held) <= self.budget:
                return
            size, definition, state = max(held, key=lambda each: each[0])
            del state.builders[definition]
            # ``facts/coverage.py`` reads this number: with no more memory, it would fail again.
            text = f"took {size:,} bytes, more than its share of memory ({self.budget:,} bytes)"
            self.reasons[repr(definition)] = text

    def finish(self, rows: int) -> Columns:
        """The index values of a file of ``rows`` rows."""
        for column, state in list(self.columns.items()):
            computed = self.computed.get(column)
            if computed is not None and computed.of_elements:
                # Elements have no nulls; without any, no row has a value.
                state.nulls = 0 if state.rows else rows
            elif state.rows != rows:
                self.drop(column, f"has {state.rows:,} values in a file of {rows:,} rows")
        values: dict[Index, pa.Array | None] = dict.fromkeys(self.definitions)
        with_blob: dict[Index, Built] = {}
        of_groups: dict[Index, tuple[bytes, int]] = {}
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
                if built.row_groups is not None:
                    of_groups[definition] = built.row_groups
        return Columns(
            row_count=rows,
            null_counts={name: state.nulls for name, state in self.columns.items()},
            values=values,
            container=self._bundle(with_blob, values) if with_blob else None,
            reasons=dict(self.reasons),
            filters=b"".join(data for data, _ in of_groups.values()) or None,
            filter_places=_places(of_groups),
        )

    def _bundle(
        self, built: Mapping[Index, Built], values: dict[Index, pa.Array | None]
    ) -> bytes | None:
        """The sidecar of all blobs; each value then holds the place of its blob."""
        from skipstone.paimon.container_builder import bundled

        found = bundled(built)
        for definition, value in found.values.items():
            type = self.fields[definition.column].type
            values[definition] = _checked(definition, Built(value), type)
        self.reasons.update({repr(index): reason for index, reason in found.reasons.items()})
        return found.container


def _asks_pages(builder: Builder) -> bool:
    return isinstance(builder, TextBuilder) and builder.groups is not None


def _places(built: Mapping[Index, tuple[bytes, int]]) -> dict[Index, pa.Array]:
    """The places of the filters of row groups, which lie one after the other."""
    start, found = 0, {}
    for definition, (data, head) in built.items():
        index = definition.of_row_groups()
        assert index is not None
        place = {"start": start, "length": len(data), "head": head}
        found[definition] = pa.array([place], index.stored_type(pa.string()))
        start += len(data)
    return found


def _locate(
    schema: pa.Schema, column: str, case_sensitive: bool, lists: bool
) -> tuple[str, ...] | str | None:
    """The path of ``column`` in a file; the reason where it is ambiguous or not atomic; ``None``
    where the file lacks it. With ``lists`` it must be a list or a map of atomic values, otherwise
    it must not be one.

    As in Spark: with case ignored, a name that fits several fields fits none.
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
            return f"several columns of this file are called {part!r}, in different case"
        if not fits:
            return None
        type = fits[0].type
        path.append(fits[0].name)
        fields = list(type) if pa.types.is_struct(type) else []
    if lists:
        elements = []
        if type is not None and pa.types.is_map(type):
            elements = [type.key_type, type.item_type]
            if any(map(pa.types.is_temporal, elements)):
                return f"{type} in this file, and a map of times has no index"
        elif type is not None and is_list(type):
            elements = [type.value_type]
        if not elements or any(spark_type(each) is None for each in elements):
            return f"{type} in this file, which is not a list of atomic values"
    elif type is not None and pa.types.is_nested(type) and not pa.types.is_struct(type):
        return f"inside {type} in this file"
    return tuple(path)


def _checked(definition: Index, built: Built, type: pa.DataType) -> pa.Array | None:
    """The value, if it has the kind's stated type; a third-party kind may be wrong."""
    value, wanted = built.value, definition.stored_type(type)
    if value is None:
        return None
    if len(value) != 1 or value.type != wanted:
        raise TypeError(
            f"{definition!r} built {len(value)} values of {value.type} instead of 1 of {wanted}"
        )
    return value


def _compiled(settings: BuildSettings, hashes: int) -> HashKernels | None:
    if settings.compiled is None:
        return COMPILED.for_work(hashes)
    return COMPILED.load() if settings.compiled else None
