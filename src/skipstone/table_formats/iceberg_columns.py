"""The columns of a table of Apache Iceberg: names, types, partition values and statistics.

**Names.** Iceberg identifies columns by ids, plans and facts by names. Both agree as long as no
schema of the table's history gives a name another id, or an id another name, and every writer
spells the names alike. The schemas are in the metadata and the manifests, so no data file is opened
for this. In some tables a column was renamed, or dropped and added again, or has a default, or the
list of schemas has a gap. There the ids in the footers of the data files say which name each column
has (``field_ids.py``). A difference in case is another name. Writers replace characters of a name
that Avro does not allow.

**Partitions.** A column is a partition column if all files are partitioned by its values. The
values of other transforms that keep the order are bounds of their source column.

**Statistics** of the manifests:

- bounds of floats leave NaN out, the largest of all: an upper bound counts where no NaN is counted;
- a bound may be older than a promotion of its column: 4 bytes for a bigint or a double;
- texts and binaries may be cut: a bound is then not a value, but still a bound.
"""

from __future__ import annotations

import math
import re
import struct
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.predicate.literals import order_keys
from skipstone.predicate.types import EXISTS_DEFAULT, MapKey, column_path
from skipstone.pruning.interval import Intervals
from skipstone.pruning.table_schema import find_field

from .field_ids import Fields, FieldWithId, FilesByIds, former_names
from .snapshot import FileStatistics, canonical_type

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from skipstone.predicate.naming import Naming

#: names that every writer keeps
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NAMING: Final = "schema.name-mapping.default"
_REWRITE: Final = "rewrite these files in Iceberg (rewrite_data_files), or read the table there"
#: transforms of times, as NumPy's units
_UNITS: Final = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
#: the types whose bounds are those of values in canonical types
_ORDERED: Final = re.compile(
    r"boolean|int|long|float|double|date|timestamp|timestamptz|string|binary|decimal\(.*\)"
)


@dataclass(frozen=True, eq=False)
class DataFile:
    """A data file or a delete file of a snapshot: its canonical path, what the manifest says of it,
    the number of the commit that added it, and the schema of the manifest."""

    path: str
    file: Any
    sequence: int
    schema: str

    @property
    def kind(self) -> str:
        """The format of the file."""
        return str(self.file.file_format.value)

    @property
    def of_values(self) -> bool:
        """Whether it deletes rows by the values of columns."""
        return str(self.file.content.name) == "EQUALITY_DELETES"


def schema_of(name: str, fields: Any) -> tuple[pa.Schema, dict[str, pa.Scalar]]:
    """The columns in canonical types, and the default values of those that files may lack; other
    defaults are marked."""
    tops = {each.field_id: each.initial_default for each in fields.fields}
    for id in fields.field_ids:
        field = fields.find_field(id)
        if "_ns" in str(field.field_type) and field.field_type.is_primitive:
            raise UnsupportedError(f"{name}: {field.name!r} has nanoseconds: not read here")
        if id not in tops and field.initial_default is not None:
            raise UnsupportedError(
                f"{name}: {field.name!r} has a default inside a struct, which is not applied here"
            )
    arrow = import_module("pyiceberg.io.pyarrow").schema_to_pyarrow(fields, include_field_ids=False)
    found, values = [], dict[str, pa.Scalar]()
    for field, default in zip(arrow, tops.values(), strict=True):
        type, marks = canonical_type(field.type), None
        if default is not None:
            value = _default(default, type)
            if value is None:
                marks = {EXISTS_DEFAULT: str(default).encode()}
            else:
                values[field.name] = value
        found.append(pa.field(field.name, type, metadata=marks))
    return pa.schema(found), values


def _default(value: Any, type: pa.DataType) -> pa.Scalar | None:
    """A default in the type of its column; ``None`` if its value is not certain."""
    if pa.types.is_nested(type):
        return None
    try:
        found = pa.scalar(getattr(value, "bytes", value), type)  # of a UUID
    except (pa.ArrowException, TypeError, ValueError):
        return None
    same = pa.types.is_floating(type) or found.as_py() == getattr(value, "bytes", value)
    return found if same else None


class IcebergNames:
    """The names of columns in the data files of a table; see the module."""

    def __init__(self, name: str) -> None:
        self.name, self._files = name, FilesByIds()
        #: files whose statistics may be those of another column that had the name before
        self.doubtful: frozenset[str] = frozenset()

    def of(self, table: Any, fields: Any, data: Sequence[DataFile]) -> dict[str, Naming]:
        """The naming of each file by its path; without one the files have the names of ``fields``.

        ``UnsupportedError`` for files that have no ids where the table does not give them some.
        """
        self.doubtful, same = frozenset(), self._same(table, fields, data)
        if same and _NAMING not in table.properties:
            return {}
        paths = {each.path: each.file.file_path for each in data if each.kind == "PARQUET"}
        opened = {at: table.io.new_input(path).open for at, path in paths.items()}
        mapping = table.name_mapping()
        assigned = None if mapping is None else list(mapping)
        found = self._files.of(_fields(fields.fields), opened, assigned)
        self.doubtful = frozenset() if same else self._files.without_ids
        return found

    def former(self, table: Any, fields: Any) -> dict[str, str]:
        """The columns of ``fields`` by names that older schemas had for them, and no column has."""
        past = (_fields(schema.fields) for _, schema in sorted(table.schemas().items()))
        return former_names(_fields(fields.fields), past)

    def _same(self, table: Any, fields: Any, data: Sequence[DataFile]) -> bool:
        """Whether, by all schemas, no file can have a column under another name."""
        schemas = import_module("pyiceberg.schema")
        named = schemas.index_name_by_id
        now: dict[int, str] = named(fields)
        ids = {each.lower(): id for id, each in now.items()}

        def other(names: Mapping[int, str]) -> bool:
            """Whether the name belonged to another column, or the column had another name."""
            return any(
                now.get(id, each) != each or ids.get(each.lower(), id) != id
                for id, each in names.items()
            )

        past = table.schemas()
        # Metadata of version 1 may lack former schemas.
        whole = table.format_version > 1 and sorted(past) == list(range(len(past)))
        if not whole:
            return False
        every = [fields.find_field(id) for id in now]
        if any(not _PLAIN.fullmatch(each.name) for each in every):
            return False
        if any(each.initial_default is not None for each in fields.fields):
            return False
        texts = {each.schema for each in data}
        written = [schemas.Schema.model_validate_json(each) for each in texts]
        return not any(other(named(each)) for each in [*past.values(), *written])


def _fields(fields: Sequence[Any]) -> Fields:
    found = []
    for each in fields:
        type = each.field_type
        inner = getattr(type, "fields", ())
        if hasattr(type, "element_field"):
            inner = (type.element_field,)
        elif hasattr(type, "key_field"):
            inner = type.key_field, type.value_field
        default = each.initial_default is not None
        found.append(FieldWithId(each.name, each.field_id, _fields(inner), default))
    return tuple(found)


def partitions_of(
    name: str, data: Sequence[DataFile], specs: Any, fields: Any, schema: pa.Schema
) -> dict[str, pa.Array]:
    """The columns by whose values all files are partitioned. Files may lack them."""
    found: dict[str, pa.Array] = {}
    for field in fields.fields:
        id = field.field_id
        places = {
            spec: dict(_sources(each, id)).get("identity", -1) for spec, each in specs.items()
        }
        at = [places[each.file.spec_id] for each in data]
        if data and min(at) >= 0:
            values = [each.file.partition[i] for each, i in zip(data, at, strict=True)]
            found[field.name] = _values(values, schema.field(field.name).type)
            continue
        for each, i in zip(data, at, strict=True):
            if i >= 0 and id not in (each.file.value_counts or ()):
                raise UnsupportedError(
                    f"{name}: {each.path} may lack {field.name!r}, by which not all files are"
                    " partitioned",
                    hint=_REWRITE,
                )
    return found


def _sources(spec: Any, id: int) -> list[tuple[str, int]]:
    """The transforms of a column, with their places in a partition."""
    fields = enumerate(spec.fields)
    return [(str(each.transform), at) for at, each in fields if each.source_id == id]


def _values(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Values as ``pyiceberg`` has them: days and microseconds are numbers."""
    if pa.types.is_date(type):
        return pa.array(values, pa.int32()).cast(type)
    if pa.types.is_timestamp(type):
        return pa.array(values, pa.int64()).cast(type)
    return pa.array(values, type)


class IcebergStatistics(FileStatistics):
    """The statistics of the manifests, column by column."""

    def __init__(
        self,
        data: Sequence[DataFile],
        specs: Any,
        fields: Any,
        schema: pa.Schema,
        without: Collection[str] = (),
    ) -> None:
        """``without`` are files of which they are not used."""
        super().__init__()
        self.specs, self.fields, self.schema = specs, fields, schema
        self.files = [None if each.path in without else each.file for each in data]
        self.rows = np.array([each.file.record_count for each in data], np.int64)

    def read(self, column: str) -> Intervals | None:
        """See ``FileStatistics``."""
        field: Any = None
        fields: Any = self.fields.fields
        for part in column_path(column):
            field = next((each for each in fields if each.name == part), None)
            if field is None or isinstance(part, MapKey):
                return None
            fields = getattr(field.field_type, "fields", ())
        known = find_field(self.schema, column)
        if known is None or not _ORDERED.fullmatch(str(field.field_type)):
            return None
        inside = known.type
        sources = {id: _sources(spec, field.field_id) for id, spec in self.specs.items()}
        found = [
            (None, None, -1) if each is None else _of_file(each, field, sources[each.spec_id])
            for each in self.files
        ]
        return Intervals.checked(
            type=inside,
            lo=order_keys(_values([each[0] for each in found], inside), inside),
            hi=order_keys(_values([each[1] for each in found], inside), inside),
            rows=self.rows,
            nulls=np.array([each[2] for each in found], np.int64),
        )


def _of_file(file: Any, field: Any, sources: Sequence[tuple[str, int]]) -> tuple[Any, Any, int]:
    """The lower and the upper bound, and the null count."""
    id, type = field.field_id, field.field_type
    lo = _bound(type, (file.lower_bounds or {}).get(id))
    hi = _bound(type, (file.upper_bounds or {}).get(id))
    if isinstance(hi, float) and (file.nan_value_counts or {}).get(id) != 0:
        hi = None
    for transform, at in sources:
        low, high = _of_partition(transform, str(type), file.partition[at])
        lo, hi = low if lo is None else lo, high if hi is None else hi
    return lo, hi, (file.null_value_counts or {}).get(id, -1)


def _bound(type: Any, value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return _number(import_module("pyiceberg.conversions").from_bytes(type, value))
    except (ValueError, struct.error):  # for example, of a date that is now a timestamp
        return None


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _of_partition(transform: str, type: str, value: Any) -> tuple[Any, Any]:
    """The bounds of a column in a file with this value of a transform of it."""
    if value is None:
        return None, None
    if transform == "identity":
        return _number(value), _number(value)
    if transform in _UNITS:
        # Old writers gave times before 1970 the next unit.
        ends = np.array([value - (value <= 0), value + 1], np.int64)
        unit = f"datetime64[{'D' if type == 'date' else 'us'}]"
        ends = ends.astype(f"datetime64[{_UNITS[transform]}]").astype(unit).astype(np.int64)
        return int(ends[0]), int(ends[1]) - 1
    width = re.fullmatch(r"truncate\[(\d+)\]", transform)
    if width is not None and type in ("int", "long"):
        largest = np.iinfo(np.int32 if type == "int" else np.int64).max
        return value, min(value + int(width[1]) - 1, int(largest))
    return None, None
