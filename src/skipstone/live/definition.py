"""The definition of a live table, which never changes: ``_live.json`` in its root.

    {"format": "skipstone live table", "version": 1, "schema": base64 of Arrow's IPC schema,
     "timestamp": "ts", "partition_by": "day", "sort_by": [["ts", "ascending"]],
     "row_group_rows": 100000, "compression": "zstd", "bloom_filters": ["id"]}

The designated timestamp is a top-level column, never null. Every top-level field has a field id
(its position, where the schema has none): the ``_pm`` identifies columns by them.

A partition is **ordered** if rows are sorted by the timestamp first: then its row groups follow one
another in time, and late rows go into the row groups of their time. Under another order only the
rows within each row group are sorted.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final, Literal, Self, TypeAlias, cast, get_args

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.questdb.format.txn import Partitioning

MARKER: Final = "_live.json"
ROW_GROUP_ROWS: Final = 100_000
LiveUnit: TypeAlias = Literal["none", "year", "month", "day", "hour"]
#: Names, each alone (ascending) or with "ascending" or "descending".
SortBy: TypeAlias = "tuple[str | tuple[str, str], ...] | list[str | tuple[str, str]]"

_FORMAT: Final = "skipstone live table"
_VERSION: Final = 1
_FIELD_ID: Final = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDefinition:
    """See the module; made by ``of``."""

    schema: pa.Schema
    timestamp: str
    partition_by: LiveUnit = "day"
    sort_by: tuple[tuple[str, str], ...] = ()
    row_group_rows: int = ROW_GROUP_ROWS
    compression: str = "zstd"
    bloom_filters: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        *,
        timestamp: str,
        partition_by: str = "day",
        sort_by: SortBy | str | None = None,
        row_group_rows: int = ROW_GROUP_ROWS,
        compression: str = "zstd",
        bloom_filters: tuple[str, ...] | list[str] = (),
    ) -> Self:
        """Checked and completed; ``SkipstoneError`` or ``UnsupportedError`` for invalid values."""
        names = schema.names
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise UnsupportedError(
                f"columns of one name: {', '.join(twice)}", hint="give each column its own name"
            )
        units = get_args(LiveUnit)
        if partition_by not in units:
            raise SkipstoneError(
                f"partition_by={partition_by!r}", hint=f"one of {', '.join(map(repr, units))}"
            )
        if not 1 <= row_group_rows < 1 << 31:
            raise SkipstoneError(
                f"row_group_rows={row_group_rows}", hint="at least 1; 100,000 is a good number"
            )
        keys = (
            [timestamp] if sort_by is None else [sort_by] if isinstance(sort_by, str) else sort_by
        )
        pairs = tuple([(key, "ascending") if isinstance(key, str) else key for key in keys])
        for name in (timestamp, *(name for name, _ in pairs), *bloom_filters):
            if name not in names:
                there = f"the columns are {', '.join(names)}" if names else "there are no columns"
                raise SkipstoneError(f"no column {name!r} in the rows", hint=there)
        for name, order in pairs:
            if order not in ("ascending", "descending"):
                raise SkipstoneError(
                    f"order {order!r} of {name!r}", hint="'ascending' or 'descending'"
                )
        if len({name for name, _ in pairs}) != len(pairs):
            raise SkipstoneError("a column twice in sort_by", hint="name each column once")
        return cls(
            schema=_completed(schema, timestamp),
            timestamp=timestamp,
            partition_by=cast("LiveUnit", partition_by),
            sort_by=pairs,
            row_group_rows=row_group_rows,
            compression=compression,
            bloom_filters=tuple(bloom_filters),
        )

    @property
    def unit(self) -> str:
        """The unit of the designated timestamp: "ms", "us" or "ns"."""
        return str(self.schema.field(self.timestamp).type.unit)

    @property
    def partitioning(self) -> Partitioning:
        """How partitions are named; ``_txn`` counts nanoseconds where the column does."""
        return Partitioning(self.partition_by, self.unit == "ns")

    @property
    def ordered(self) -> bool:
        """Whether the row groups of a partition follow one another in time."""
        return self.sort_by[:1] == ((self.timestamp, "ascending"),)

    def to_json(self) -> bytes:
        """The file."""
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "timestamp": self.timestamp,
            "partition_by": self.partition_by,
            "sort_by": [list(pair) for pair in self.sort_by],
            "row_group_rows": self.row_group_rows,
            "compression": self.compression,
            "bloom_filters": list(self.bloom_filters),
        }
        return json.dumps(document, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, *, file: str | None = None) -> Self:
        """From the file; ``FormatError`` where it is not such a document."""
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"not JSON: {type(error).__name__}", file=file) from None
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise FormatError("not the definition of a live table", file=file, expected=_FORMAT)
        if document.get("version") != _VERSION:
            raise UnsupportedError(
                f"{file}: version {document.get('version')} of a live table",
                hint="a later version of Skipstone made it",
            )
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["schema"])))
            return cls.of(
                schema,
                timestamp=document["timestamp"],
                partition_by=document["partition_by"],
                sort_by=[(name, order) for name, order in document["sort_by"]],
                row_group_rows=document["row_group_rows"],
                compression=document["compression"],
                bloom_filters=tuple(document["bloom_filters"]),
            )
        except (
            KeyError,
            ValueError,
            TypeError,
            OSError,
            SkipstoneError,
            pa.ArrowException,
        ) as error:  # Arrow raises OSError for bytes that are not a schema
            raise FormatError(f"the definition of a live table: {error}", file=file) from None


def _completed(schema: pa.Schema, timestamp: str) -> pa.Schema:
    """With field ids, and the timestamp never null."""
    type: Any = schema.field(timestamp).type
    if not pa.types.is_timestamp(type):
        raise UnsupportedError(
            f"the designated timestamp {timestamp!r} is of type {type}",
            hint="name a column of a timestamp type, or cast this one before",
        )
    fields = []
    for position, each in enumerate(schema):
        field = each
        metadata = dict(field.metadata or {})
        metadata.setdefault(_FIELD_ID, str(position).encode())
        if field.name == timestamp:
            field = field.with_nullable(False)
            if type.unit == "s":  # Parquet has no such unit
                field = field.with_type(pa.timestamp("ms", type.tz))
        fields.append(field.with_metadata(metadata))
    return pa.schema(fields, schema.metadata)
