"""Stores of Xskipper for tests: golden ones over data that was copied elsewhere, and by hand."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.xskipper.format.naming import column_name, directory_name
from skipstone.xskipper.format.naming import obj_name as row_name
from skipstone.xskipper.format.part import part_name, read_part, to_bytes
from skipstone.xskipper.format.schema import IndexColumn, StoreSchema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def copied(data: Path, to: Path) -> Path:
    """A copy of a directory of data files, with modification times of whole seconds."""
    shutil.copytree(data, to, ignore=shutil.ignore_patterns("_SUCCESS", ".*"))
    for at, path in enumerate(sorted(to.rglob("*.*"))):
        os.utime(path, (1_600_000_000 + at, 1_600_000_000 + at))
    return to


def obj_name(path: Path) -> str:
    """The name of the row of a local file, as Xskipper makes it."""
    return row_name(str(path), path.stat().st_mtime_ns // 10**6)


def relocated(store: Path, data: Path, base: Path) -> Path:
    """The same store (version 4) below ``base``, its rows about the files of the same relative
    path below ``data``; rows of other files stay as they are."""
    files = {str(path.relative_to(data)): path for path in data.rglob("*.*")}
    directory = base / directory_name(str(data))
    directory.mkdir(parents=True)
    for file in store.rglob("part-*.parquet"):
        part = read_part(file.read_bytes())
        root = f"{part.footer.schema.table_identifier}/"
        names = [
            name if path is None else obj_name(path)
            for name in part.table.column("obj_name").to_pylist()
            for path in (files.get(name.rpartition("#")[0].removeprefix(root)),)
        ]
        table = part.table.set_column(0, "obj_name", pa.array(names))
        kept = to_bytes(table, part.footer.schema, like=part.footer)
        (directory / file.name).write_bytes(kept)
    return directory


def write_store(
    directory: Path, rows: Mapping[str, pa.Array], indexes: Sequence[IndexColumn], **more: Any
) -> Path:
    """One part of a store that is not Skipstone's, with these columns."""
    directory.mkdir(parents=True, exist_ok=True)
    schema = StoreSchema.build(table_identifier=more.pop("table", "/t"), indexes=indexes)
    table = pa.table(dict(rows))
    path = directory / part_name()
    path.write_bytes(to_bytes(table, schema))
    # As Spark 4 would have written it.
    part = read_part(path.read_bytes())
    keys = (("org.apache.spark.version", "4.0.0"),)
    path.write_bytes(to_bytes(table, schema, like=_keyed(part.footer, keys)))
    return path


def _keyed(footer: Any, keys: tuple[tuple[str, str], ...]) -> Any:
    from dataclasses import replace

    return replace(footer, keys=keys)


def minmax_store(
    directory: Path, column: str, bounds: Mapping[str, tuple[Any, Any]], type: str = "long"
) -> Path:
    """A store with ``minmax`` over one column: ``obj_name`` -> (min, max)."""
    arrow = {"long": pa.int64(), "integer": pa.int32(), "date": pa.date32()}[type]
    ends = pa.array(
        [{"min": low, "max": high} for low, high in bounds.values()],
        pa.struct([("min", arrow), ("max", arrow)]),
    )
    fields = [
        f'{{"name":"{end}","type":"{type}","nullable":true,"metadata":{{}}}}'
        for end in ("min", "max")
    ]
    name = column_name("minmax", [column])
    index = IndexColumn(
        name=name,
        kind="minmax",
        columns=(column,),
        type=f'{{"type":"struct","fields":[{",".join(fields)}]}}',
    )
    return write_store(directory, {"obj_name": pa.array(list(bounds)), name: ends}, [index])
