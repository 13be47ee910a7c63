"""Bloom filters of a snapshot as a Puffin file: read by code of its own, hashes by ``mmh3``."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.types import LongType

import skipstone
from skipstone.cli import cli
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.table_formats.puffin import hash128
from tests.table_formats.iceberg_tables import (
    History,
    catalog,
    folder,
    ids,
    read,
    table_of,
)

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

__all__ = ["catalog"]

#: the bytes of a value, by the type of its column
PACKED: dict[str, Any] = {
    "string": str.encode,
    "int": struct.Struct(">i").pack,
    "long": struct.Struct(">q").pack,
}


def blobs_of(data: bytes) -> list[dict[str, Any]]:
    """The entries of the footer, each with its ``data``."""
    assert data[:4] == data[-4:] == b"PFA1"
    assert data[-8:-4] == bytes(4)
    (length,) = struct.unpack("<i", data[-12:-8])
    footer = json.loads(data[-12 - length : -12])
    assert data[-16 - length : -12 - length] == b"PFA1"
    at = 4
    for blob in footer["blobs"]:
        assert (blob["type"], blob["offset"]) == ("bloom-filter-v1", at)
        at += blob["length"]
        blob["data"] = data[blob["offset"] : at]
    assert at == len(data) - 16 - length
    return list(footer["blobs"])


def may_hold(blob: dict[str, Any], value: bytes) -> bool:
    bits, hashes = (int(blob["properties"][f"num-{name}"]) for name in ("bits", "hashes"))
    assert len(blob["data"]) == (bits + 7) // 8
    h1, h2 = mmh3.hash64(value, 0, signed=False)
    places = [((h1 + at * h2) % 2**64) % bits for at in range(hashes)]
    return all(blob["data"][place // 8] >> place % 8 & 1 for place in places)


def stored(table: Table, version: int | None = None) -> dict[str, pa.Table]:
    """The rows of each data file, by its path in the manifest."""
    found = {}
    for task in table.scan(snapshot_id=version).plan_files():
        path = task.file.file_path
        within = skipstone.ParquetFile(path.removeprefix("file://"))
        assert within.num_rows == task.file.record_count
        found[path] = within.query()
    return found


@given(st.lists(st.binary(max_size=70), max_size=30), st.integers(0, 3))
def test_hashes_are_those_of_mmh3(values: list[bytes], skipped: int) -> None:
    offsets = np.cumsum([0, *map(len, values)])[min(skipped, len(values)) :]
    h1, h2 = hash128(np.frombuffer(b"".join(values), np.uint8), offsets)
    expected = [mmh3.hash64(each, 0, signed=False) for each in values[skipped:]]
    assert list(zip(h1.tolist(), h2.tolist(), strict=True)) == expected


def test_filters_hold_the_values_of_their_files(catalog: SqlCatalog, tmp_path: Path) -> None:
    """Of columns that were renamed and got another type since, in all files or in none."""
    first = ids(*range(0, 4_000, 2), u=[f"ü-{at}" if at % 7 else None for at in range(2_000)])
    table = table_of(catalog, first.append_column("n", pa.array(range(2_000), pa.int32())))
    table.append(ids(5, 5, 6, u=["x" * 40, "", None], n=pa.array([1, None, -(2**31)], pa.int32())))
    table.append(ids(8, u=pa.nulls(1, pa.string()), n=pa.nulls(1, pa.int32())))
    with table.update_schema() as update:
        update.rename_column("u", "user")
        update.update_column("n", LongType())
    table.append(ids(7, user=["late"], n=[2**40]))
    table.delete("id = 6")
    path = folder(table)
    skipstone.Table(path).build(indexes=["id:bloom", "user:bloom(fpp=0.02)", "n:bloom"])
    report = skipstone.Table(path).export(str(tmp_path / "out"), kind="puffin")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    written = tmp_path / "out" / f"{snapshot.snapshot_id}.puffin"
    assert (report.destination, report.bytes) == (str(written), written.stat().st_size)
    files = stored(table)
    assert (report.files, report.files_total) == (len(files), len(files))
    fields = {each.field_id: each for each in table.schema().fields}
    seen = set()
    wrong, asked = 0, 0.0
    for blob in blobs_of(written.read_bytes()):
        assert blob["snapshot-id"] == snapshot.snapshot_id
        assert blob["sequence-number"] == snapshot.sequence_number
        ((id,), said) = blob["fields"], blob["properties"]
        field = fields[id]
        assert said["column-name"] == field.name
        rows = files[said["data-file"]]
        name = field.name if field.name in rows.schema.names else "u"
        values = [each for each in rows[name].to_pylist() if each is not None]
        assert int(said["num-values"]) == len(values) > 0
        pack = PACKED[str(field.field_type)]
        assert all(may_hold(blob, pack(each)) for each in values)
        if len(values) > 1_000:
            absent = [f"no {at}" if field.name == "user" else -1 - at for at in range(2_000)]
            wrong += sum(may_hold(blob, pack(each)) for each in absent)
            asked += float(said["fpp"]) * len(absent)
        seen.add((said["data-file"], id))
    assert 0 < wrong < 2 * asked
    # A file without a value of a column has no blob, and a reader leaves it out.
    expected = {
        (path, field.field_id)
        for path, rows in files.items()
        for field in fields.values()
        for name in ({"user": "u"}.get(field.name, field.name), field.name)
        if name in rows.schema.names and rows[name].null_count < rows.num_rows
    }
    assert seen == expected


def test_a_version_has_the_files_of_its_snapshot(catalog: SqlCatalog, tmp_path: Path) -> None:
    draws = History(catalog, 3, names=False)
    for _ in range(8):
        draws.step()
    table = draws.table.refresh()
    for snapshot in table.snapshots()[::3]:
        at = skipstone.Table(folder(table), version=snapshot.snapshot_id)
        at.build(indexes=["id:bloom"])
        at.export(str(tmp_path / "out"), kind="puffin")
        found = blobs_of((tmp_path / "out" / f"{snapshot.snapshot_id}.puffin").read_bytes())
        of_table = stored(table, snapshot.snapshot_id)
        assert {each["properties"]["data-file"] for each in found} == set(of_table)


def test_a_table_with_it_among_its_statistics(catalog: SqlCatalog, tmp_path: Path) -> None:
    """As the documentation says it is done: every reader still opens the table."""
    table = table_of(catalog, ids(1, 2, 3), ids(4))
    skipstone.Table(folder(table)).build(indexes=["id:bloom"])
    before = {each for each in Path(folder(table)).rglob("*") if each.is_file()}
    done = CliRunner().invoke(cli, ["export", folder(table), "--puffin", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "published 2 of 2 files as puffin" in done.output
    assert {each for each in Path(folder(table)).rglob("*") if each.is_file()} == before
    snapshot = table.current_snapshot()
    assert snapshot is not None
    path = tmp_path / "out" / f"{snapshot.snapshot_id}.puffin"
    data = path.read_bytes()
    with table.update_statistics() as update:
        statistics = StatisticsFile.model_validate(
            {
                "snapshot-id": snapshot.snapshot_id,
                "statistics-path": f"file://{path}",
                "file-size-in-bytes": len(data),
                "file-footer-size-in-bytes": int.from_bytes(data[-12:-8], "little") + 16,
                "blob-metadata": [],
            }
        )
        update.set_statistics(statistics)
    assert len(read(catalog.load_table("db.t"))) == 4
    assert skipstone.Table(folder(table)).count("id = 4") == 1


def test_names_that_predicates_quote(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = table_of(catalog, ids(1, 2, **{"user-id": ["a", "b"], "x.y": pa.array([1, 2])}))
    made = skipstone.Table(folder(table))
    made.build(indexes=["`user-id`:bloom", "`x.y`:bloom"])
    report = made.export(str(tmp_path), kind="puffin")
    assert report.indexes == ("user-id:bloomfilter", "x.y:bloomfilter")
    assert report.left_out == ()
    blobs = {
        each["properties"]["column-name"]: each
        for each in blobs_of(Path(report.destination).read_bytes())
    }
    assert may_hold(blobs["user-id"], b"b")
    assert not may_hold(blobs["user-id"], b"no")
    assert may_hold(blobs["x.y"], PACKED["long"](2))
    assert not may_hold(blobs["x.y"], PACKED["long"](3))


def test_what_cannot_be_exported(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = table_of(catalog, ids(1, 2, x=[0.5, 1.5], u=["a", "b"]))
    path, out = folder(table), str(tmp_path / "out")
    made = skipstone.Table(path)
    made.build(indexes=["x:bloom", "id:minmax"])
    with pytest.raises(UnsupportedError, match=r"no Bloom filters .*x: of type double"):
        made.export(out, kind="puffin")
    made.build(indexes=["u:bloom"])
    report = made.export(out, kind="puffin")
    assert report.indexes == ("u:bloomfilter",)
    assert [str(each) for each in report.left_out] == ["x: of type double"]
    with pytest.raises(UnsupportedError, match="within the table"):
        made.export(f"{path}/metadata", kind="puffin")
    with pytest.raises(UnsupportedError, match="needs a destination"):
        made.export(kind="puffin")
    plain = skipstone.Table(str(Path(path, "data")))
    plain.build(indexes=["u:bloom"])
    with pytest.raises(UnsupportedError, match="not a table of Apache Iceberg"):
        plain.export(out, kind="puffin")
    (file,) = Path(path, "data").glob("*.parquet")
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(SkipstoneError, match="is not read") as error:
        skipstone.Table(path).export(str(tmp_path / "other"), kind="puffin")
    assert error.value.hint == "a filter is published for all files or for none"
    assert not (tmp_path / "other").exists()
