"""``FileMetaData``: written back to the byte, and equal to what hyparquet reads of its files."""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from skipstone.parquet.arrow.metadata_tables import readable
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.metadata import FileMetaData
from skipstone.parquet.format.schema import Schema
from skipstone.parquet.thrift.compact import read_struct, write_struct
from tests.parquet.format.files import golden_files
from tests.parquet.format.wire import footer_of

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.parquet.format.schema import ColumnDescriptor


def test_footers_are_written_back_to_the_byte(golden: Path) -> None:
    compared = 0
    for path in golden_files(golden):
        data, _ = footer_of(path)
        value, stop = read_struct(data)
        assert write_struct(value) == data[:stop], path.name
        assert FileMetaData.from_bytes(data).to_bytes() == data[:stop], path.name
        compared += 1
    assert compared > 95


def json_of(metadata: FileMetaData, length: int) -> dict[str, Any]:
    """In hyparquet's words: the length too, ``logical_type`` with its name inside, no orders."""
    found = metadata.to_dict()
    found.pop("column_orders", None)
    found["metadata_length"] = length
    for element in found["schema"]:
        logical = element.pop("logicalType", None)
        if logical:
            ((name, inside),) = logical.items()
            if "unit" in inside:
                inside["unit"] = next(iter(inside["unit"]))
            element["logical_type"] = {"type": name, **inside}
    return found


def bound(value: Any, data: str, leaf: ColumnDescriptor) -> None:
    """A bound in the JSON is the decoded value of ours."""
    raw = bytes.fromhex(data)
    text = readable(pa.array([raw], pa.binary()), leaf)[0].as_py()
    if isinstance(value, bool):
        assert raw == bytes([value])
    elif isinstance(value, list):
        assert raw == bytes(value)
    elif isinstance(value, str) and leaf.type in (Type.INT32, Type.INT64, Type.INT96):
        # JSON's instants have three digits of a second, which is cut, not rounded.
        shown = re.sub(r"^\+0*", "", value.rstrip("Z").replace("T", " "))
        assert shown.startswith(re.sub(r"(\.\d{3})\d+", r"\1", text.rstrip("Z")))
    elif isinstance(value, str):
        assert value == text if leaf.type_length == 16 else raw.decode()
    elif leaf.type in (Type.FLOAT, Type.DOUBLE):
        ours = struct.unpack("<f" if leaf.type is Type.FLOAT else "<d", raw)[0]
        assert ours == value
    else:
        assert float(text) == pytest.approx(value, rel=1e-12)


def test_metadata_is_what_the_json_beside_each_file_says(golden: Path) -> None:
    compared = 0
    for path in sorted((golden / "hyparquet").rglob("*.metadata.json")):
        file = path.with_name(path.name.replace(".metadata.json", ".parquet"))
        if not file.exists():
            continue
        data, _ = footer_of(file)
        metadata = FileMetaData.from_bytes(data)
        ours, theirs = json_of(metadata, len(data)), json.loads(path.read_text())
        schema = Schema.of(metadata.schema)
        for our_group, their_group in zip(ours["row_groups"], theirs["row_groups"], strict=True):
            for leaf, our, their in zip(
                schema.leaves, our_group["columns"], their_group["columns"], strict=True
            ):
                statistics = our["meta_data"].get("statistics", {})
                stated = their["meta_data"].get("statistics", {})
                for name in ("min", "max", "min_value", "max_value"):
                    if name in statistics:
                        bound(stated.pop(name), statistics.pop(name), leaf)
        assert ours == theirs, file.name
        compared += 1
    assert compared > 40


def test_the_scan_and_the_frozen_values_agree_on_the_whole_file(golden: Path) -> None:
    for path in golden_files(golden):
        data, offset = footer_of(path)
        footer, metadata = FooterArrays.scan(data, offset), FileMetaData.from_bytes(data)
        assert footer.metadata == metadata
        for name in ("version", "num_rows", "created_by", "key_value_metadata", "column_orders"):
            assert getattr(footer, name) == getattr(metadata, name)
        assert footer.encryption_algorithm == metadata.encryption_algorithm
        assert footer.footer_signing_key_metadata == metadata.footer_signing_key_metadata
        assert footer.schema_elements == metadata.schema
