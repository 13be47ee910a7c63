"""Random tables: files that differ, and their rows in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.soak.merged import NULL_FOLDER
from tests.soak.values import Column, array, chance, columns, fits, pick, value
from tests.soak.writers import write_file
from tests.strategies import TIMESTAMP, TIMESTAMP_NTZ

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from tests.soak.shape import Shape

#: the column that tells the rows of a table apart
ROW = "rid"


@dataclass(frozen=True)
class DataFile:
    """A file: its path below the table, its rows as written, who writes it and how."""

    path: str
    rows: pa.Table
    folders: tuple[tuple[str, str | None], ...] = ()
    writer: str = "pyarrow"
    how: tuple[tuple[str, Any], ...] = ()
    changed: int = 1_700_000_000
    #: "table", "below" (of the table only where all files below are), or "hidden"
    place: str = "table"

    def write(self, root: str) -> None:
        write_file(f"{root}/{self.path}", self.rows, self.writer, dict(self.how), self.changed)


def of_table(files: Mapping[str, DataFile], *, recursive: bool) -> dict[str, DataFile]:
    """The files of a table among those below its path; ``recursive`` without folders' columns."""
    if not recursive:
        return {path: each for path, each in files.items() if each.place == "table"}
    return {
        path: replace(each, folders=()) for path, each in files.items() if each.place != "hidden"
    }


@dataclass
class Generator:
    """Makes the files of one table, and later more of them."""

    rng: np.random.Generator
    shape: Shape
    columns: tuple[Column, ...] = ()
    folders: tuple[tuple[str, tuple[str | None, ...]], ...] = ()
    next_row: int = 0
    next_file: int = 0
    pools: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    differ: float = 0.0
    lacking: float = 0.0
    int96: bool = False
    inner: bool = False
    recursive: bool = False

    def lake(self) -> tuple[DataFile, ...]:
        """The files of a new table; ``recursive`` says whether all files below are its."""
        rng, shape = self.rng, self.shape
        self.columns = columns(rng, shape)
        self.folders = tuple(self.partition_columns())
        self.differ = float(pick(rng, (0.0, 0.2, 0.6)))
        lacks = shape.has("missing") or shape.has("nested_added")
        self.lacking = float(pick(rng, (0.0, 0.0, 0.2, 0.6))) if lacks else 0.0
        if shape.often:
            self.differ = self.differ or 0.6
            self.lacking = self.lacking or (0.4 if lacks else 0.0)
        zoned = [c for c in self.leaves() if TIMESTAMP in c.types]
        local = [c for c in self.leaves() if TIMESTAMP_NTZ in c.types]
        odds = 0.95 if "int96" in shape.often else 0.5
        self.int96 = shape.has("int96") and bool(zoned) and not local and chance(rng, odds)
        often = shape.often & {"nested_folders", "recursive"}
        self.inner = shape.has("nested_folders") and chance(rng, 0.9 if often else 0.12)
        odds = 0.9 if "recursive" in often else 0.5 if self.inner else 0.05
        self.recursive = shape.has("recursive") and chance(rng, odds)
        most = 60 if shape.has("many_files") and chance(rng, 0.12) else 8
        files = [self.file(inner=0.0), *(self.file() for _ in range(int(rng.integers(0, most))))]
        if "nested_folders" in shape.often:
            files.append(self.file(inner=1.0))
        return tuple(files)

    def leaves(self) -> list[Column]:
        found: list[Column] = []
        todo = list(self.columns)
        while todo:
            column = todo.pop()
            found.append(column)
            todo.extend(column.fields)
        return found

    # -- folders -----------------------------------------------------------------------------------

    def partition_columns(self) -> list[tuple[str, tuple[str | None, ...]]]:
        """Up to two folders' columns, each with its texts (``None`` for the null folder)."""
        rng, shape = self.rng, self.shape
        kinds = [each for each in _FOLDERS if shape.has(each)]
        if not kinds or chance(rng, 0.65):
            return []
        found = []
        names = ["p", "Day"]
        if shape.has("partition_overlap") and chance(rng, 0.15):
            plain = [c.name for c in self.columns if c.name in _PLAIN and not c.fields]
            if plain:
                names[0] = plain[0]
        for name in names[: int(rng.integers(1, 3))]:
            kind = pick(rng, kinds)
            texts: list[str | None] = list(rng.permutation(_FOLDERS[kind]))[: rng.integers(1, 5)]
            texts = [str(each) for each in texts]
            if shape.has("partition_nulls") and chance(rng, 0.3):
                texts.append(None)
            found.append((name, tuple(texts)))
        return found

    # -- files -------------------------------------------------------------------------------------

    def file(self, *, inner: float | None = None) -> DataFile:
        """One more file; ``inner`` is how probably a folder that gives no column has it."""
        rng, shape = self.rng, self.shape
        size = int(rng.integers(1, shape.rows + 1))
        if shape.has("empty_files") and chance(rng, 0.05):
            size = 0
        if shape.has("look_inside") and chance(rng, 0.15):
            size *= 4
        arrays: dict[str, pa.Array] = {
            ROW: array(range(self.next_row, self.next_row + size), pa.int64())
        }
        self.next_row += size
        for column in self.columns:
            if shape.has("missing") and chance(rng, self.lacking):
                continue
            name = self.spelled(column.name, "case")
            arrays[name] = self.column(column, column.name, size)
        names = list(arrays)
        if shape.has("reordered") and self.differ and chance(rng, self.differ):
            names = [str(each) for each in rng.permutation(names)]
        rows = pa.table({name: arrays[name] for name in names})
        folders = tuple((name, pick(rng, texts)) for name, texts in self.folders)
        path = "".join(
            f"{name}={NULL_FOLDER if text is None else escaped(text)}/" for name, text in folders
        )
        place = "table"
        if chance(rng, 0.4 * self.inner if inner is None else inner):
            path, place = self.placed(path)
        writer, how = self.writing(rows)
        self.next_file += 1
        order = int(rng.integers(1000))
        return DataFile(
            path=f"{path}{order:03}-{self.next_file}.parquet",
            rows=rows,
            folders=folders,
            writer=writer,
            how=how,
            changed=1_600_000_000 + self.next_file * 1000,
            place=place,
        )

    def placed(self, folders: str) -> tuple[str, str]:
        """A folder without ``=`` below partition folders or the path, and what it means there."""
        names = ("sub/", "sub/deep/", "s p/", "_hidden/", ".hidden/")
        name = str(pick(self.rng, (*names, "") if folders else names))
        if name[:1] in ("_", "."):
            return folders + name, "hidden"
        if not folders:
            return name, "below"
        # A file beside partition folders is not of the table; a folder there contradicts them.
        return (folders + name, "table") if name else ("", "below")

    def again(self, old: DataFile) -> DataFile:
        """Other rows for the file at the same path."""
        return replace(self.file(), path=old.path, folders=old.folders, place=old.place)

    def spelled(self, name: str, feature: str) -> str:
        if self.shape.has(feature) and chance(self.rng, self.differ / 2):
            other = name.upper() if chance(self.rng, 0.5) else name.swapcase()
            if other != name and other.lower() == name.lower():
                return other
        return name

    def column(self, column: Column, path: str, size: int) -> pa.Array:
        rng = self.rng
        if column.fields:
            return self.struct(column, path, size)
        type = column.types[0]
        if len(column.types) > 1 and chance(rng, max(self.differ, 0.3)):
            type = pick(rng, column.types)
        pool = self.pool(column, path, type)
        some = [pick(rng, pool) for _ in range(int(rng.integers(1, 5)))]
        nulls = float(pick(rng, (0.0, 0.0, 0.0, 0.2, 0.2, 1.0)))
        drawn = [None if chance(rng, nulls) else pick(rng, some) for _ in range(size)]
        if chance(rng, 0.2) and not pa.types.is_list(type):
            drawn.sort(key=lambda each: (each is None, each if each == each else 0))
        return array(drawn, type)

    def struct(self, column: Column, path: str, size: int) -> pa.Array:
        children: list[pa.Array] = []
        names: list[str] = []
        for each in column.fields:
            lacks = self.shape.has("nested_added") and chance(self.rng, self.lacking)
            if lacks and (names or each is not column.fields[-1]):
                continue
            if not self.shape.has("nested_widened"):
                each = replace(each, types=each.types[:1])
            children.append(self.column(each, f"{path}.{each.name}", size))
            names.append(self.spelled(each.name, "nested_case"))
        mask = pa.array([chance(self.rng, 0.15) for _ in range(size)], pa.bool_())
        return pa.StructArray.from_arrays(children, names=names, mask=mask)

    def pool(self, column: Column, path: str, type: pa.DataType) -> list[Any]:
        """The values of a column of one type; narrow ones occur in wider types too."""
        found = self.pools.get((path, str(type)))
        if found is None:
            many = int(self.rng.integers(1, 12))
            found = [value(self.rng, self.shape, type, column.feature) for _ in range(many)]
            if type != column.types[0]:
                narrow = self.pool(column, path, column.types[0])
                stated = [restated(each, column.types[0], type) for each in narrow]
                found += [each for each in stated if fits(each, type)]
            self.pools[path, str(type)] = found
        return found

    def writing(self, rows: pa.Table) -> tuple[str, tuple[tuple[str, Any], ...]]:
        """Who writes a file, and how."""
        rng, shape = self.rng, self.shape
        nested = any(pa.types.is_nested(field.type) for field in rows.schema)
        foreign = [name for name in ("duckdb", "polars") if shape.has(name)]
        if "invalid_utf8" in {each.feature for each in self.leaves()}:
            foreign = []
        odd = any(map(unusual, rows.schema.types))
        group = int(pick(rng, (1, 3, 8, 1000)))
        plain = not odd and not any(map(unknown_to_spark, rows.schema.types))
        if (
            shape.has("spark")
            and foreign
            and plain
            and rows.num_rows
            and chance(rng, 0.6 if "spark" in shape.often else 0.15)
        ):
            return "spark", (
                ("timestamps", pick(rng, ("INT96", "TIMESTAMP_MICROS"))),
                ("compression", pick(rng, ("snappy", "none", "zstd"))),
                ("parquet.page.row.count.limit", str(group)),
                ("parquet.enable.dictionary", str(chance(rng, 0.5)).lower()),
                ("parquet.writer.version", pick(rng, ("PARQUET_1_0", "PARQUET_2_0"))),
            )
        if foreign and chance(rng, 0.1) and not nested and not odd and rows.num_rows:
            writer = pick(rng, foreign)
            if writer == "duckdb":
                return writer, (("row_group_size", 2048),)
            return writer, (("row_group_size", group), ("statistics", chance(rng, 0.7)))
        how: dict[str, Any] = {
            "row_group_size": group,
            "max_rows_per_page": int(rng.integers(1, 9)),
            "write_batch_size": 1,
            "write_page_index": chance(rng, 0.5),
            "use_dictionary": chance(rng, 0.5),
            "store_schema": chance(rng, 0.5),
            "write_statistics": chance(rng, 0.85),
            "data_page_version": pick(rng, ("1.0", "2.0")),
            "compression": pick(rng, ("snappy", "none", "zstd", "gzip", "lz4")),
            "write_page_checksum": chance(rng, 0.3),
            "store_decimal_as_integer": chance(rng, 0.4),
        }
        if shape.has("encodings") and chance(rng, 0.25):
            # Spark's reader has no BYTE_STREAM_SPLIT.
            how["column_encoding"] = encodings(rng, rows.schema, floats=not shape.has("spark"))
            how["use_dictionary"] = False
        bare = not rows.num_rows and not self.int96 and shape.has("no_row_groups")
        if bare and chance(rng, 0.7):
            return "pyarrow-no-row-groups", ()
        if self.int96 and chance(rng, 0.6):
            how["use_deprecated_int96_timestamps"] = True
        return "pyarrow", tuple(how.items())


def encodings(rng: np.random.Generator, schema: pa.Schema, *, floats: bool) -> dict[str, str]:
    """Encodings other than PLAIN of plain columns."""
    t, found = pa.types, {}
    for each in schema:
        if t.is_integer(each.type) and each.type.bit_width >= 32:
            found[each.name] = "DELTA_BINARY_PACKED"
        elif t.is_string(each.type) or t.is_binary(each.type):
            found[each.name] = pick(rng, ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"))
        elif t.is_floating(each.type) and floats:
            found[each.name] = "BYTE_STREAM_SPLIT"
    return found


def unusual(type: pa.DataType) -> bool:
    """Whether other writers than pyarrow lack the type, or write another one."""
    t = pa.types
    return bool(
        t.is_dictionary(type)
        or t.is_float16(type)
        or t.is_large_string(type)
        or t.is_large_binary(type)
        or t.is_fixed_size_binary(type)
        or (t.is_timestamp(type) and type.unit == "ns")
    )


def unknown_to_spark(type: pa.DataType) -> bool:
    """Whether Spark has no such type, here or in a field."""
    if pa.types.is_struct(type):
        return any(unknown_to_spark(each.type) for each in type)
    return bool(pa.types.is_unsigned_integer(type))


def restated(value: Any, narrow: pa.DataType, wide: pa.DataType) -> Any:
    """A value of the narrower type for ``pa.array`` of the wider."""
    t = pa.types
    if t.is_date(narrow) and t.is_timestamp(wide):
        return value * 86_400_000_000
    if t.is_timestamp(narrow) and t.is_timestamp(wide) and narrow.unit != wide.unit:
        per = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
        return value * per[narrow.unit] // per[wide.unit]
    if t.is_floating(wide) and t.is_floating(narrow):
        return float(value)
    if t.is_integer(narrow) and t.is_floating(wide):
        return float(value)
    if t.is_integer(narrow) and t.is_decimal(wide):
        return Decimal(value)
    return value


def escaped(text: str) -> str:
    """A folder's value as Spark writes it, one character at a time."""
    return "".join(f"%{ord(c):02X}" if c in "\"#%'*/:=?\\{}[]^\x7f" else c for c in text)


_PLAIN = {"a", "b", "Amount", "c1", "deepValue", "k", "nest", "tags"}
_FOLDERS = {
    "partitions": ["1", "2", "3", "07", "-5"],
    "partition_dates": ["2024-01-01", "2024-01-02", "2023-12-31", "1969-12-31"],
    "partition_texts": ["a", "b/c", "é", "x=y", "50%", "with blank", "A", "2024-01"],
    "partition_doubles": ["1.5", "2", "-0.25", "10.0", "3000000000", "1e-3"],
    "partition_longs": ["1", "3000000000", "-3000000000", "7", "1e3", "12345678901234567890"],
    # Integers beside dates are typed by the session's settings, so no dates.
    "partition_mixed": ["1", "a", "01", "x2024-01-01"],
}
