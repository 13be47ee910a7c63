"""Hostile bytes: every parser gives a value, FormatError or UnsupportedError, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.xskipper.format.bloom_probe import BlobColumn
from skipstone.xskipper.format.java_bloom import METADATA, BloomFilterMetaData, header, impl_class
from skipstone.xskipper.format.part import footer_key_label, read_part, to_bytes
from skipstone.xskipper.format.rows import decode
from skipstone.xskipper.format.schema import StoreSchema
from skipstone.xskipper.format.sketch import SketchFilter
from skipstone.xskipper.format.v4_store import BloomFacts, MinMaxFacts, ValueListFacts, published
from tests.xskipper.format.parsed_names import parse_column_name, parse_obj_name, unclean
from tests.xskipper.format.reference_bloom import SketchBuilder, each_in, might_contain_longs

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.fuzz


def sketch(version: int) -> bytes:
    builder = SketchBuilder(words=140, num_hash_functions=3, version=version, seed=version - 1)
    builder.put_longs(np.arange(9, dtype=np.int64))
    return builder.build().to_bytes()


def store() -> tuple[bytes, str]:
    names = pa.array(["/t/a#1", "/t/b#2"])
    none = np.zeros(2, np.bool_)
    ends = pa.array(["a", "b"])
    blob = BloomFilterMetaData.of(SketchFilter.from_bytes(sketch(1))).to_bytes()
    table, schema = published(
        table_identifier="/t",
        obj_names=names,
        facts=[
            MinMaxFacts(column="a.b", minimum=ends, maximum=ends, empty=none),
            ValueListFacts(column="a.b", values=pa.array([["a"], ["b"]]), empty=none),
            BloomFacts(
                column="a.b",
                blobs=pa.array([blob, blob], pa.binary()),
                type=pa.string(),
                fpp=0.1,
                ndv=9,
            ),
        ],
        virtual={"p": pa.array([1, 2])},
    )
    return to_bytes(table, schema).to_pybytes(), schema.to_json()


SKETCHES = [sketch(1), sketch(2)]
BLOBS = [BloomFilterMetaData.of(SketchFilter.from_bytes(data)).to_bytes() for data in SKETCHES]
BLOBS.append(header(METADATA, impl_class(1)))
PART, SCHEMA = store()


def mangled(seeds: list[bytes]) -> st.SearchStrategy[bytes]:
    """A seed with a few bytes changed, a piece cut out or doubled, or the end cut off."""

    @st.composite
    def draw_one(draw: st.DrawFn) -> bytes:
        data = bytearray(draw(st.sampled_from(seeds)))
        for _ in range(draw(st.integers(0, 4))):
            if not data:
                break
            # Mostly near the front, where headers are.
            reach = draw(st.sampled_from([16, 64, 400, len(data)]))
            at = draw(st.integers(0, min(reach, len(data)) - 1))
            action = draw(st.sampled_from(["flip", "byte", "cut", "drop", "double"]))
            if action == "flip":
                data[at] ^= 1 << draw(st.integers(0, 7))
            elif action == "byte":
                data[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
            elif action == "cut":
                del data[at:]
            else:
                piece = data[at : at + draw(st.integers(1, 40))]
                data[at : at + len(piece)] = piece * 2 if action == "double" else b""
        return bytes(data)

    return draw_one()


def survives(act: Callable[[], object]) -> object:
    try:
        return act()
    except (FormatError, UnsupportedError):
        return None


@given(mangled(SKETCHES) | st.binary(max_size=60))
def test_sketches(data: bytes) -> None:
    read = survives(lambda: SketchFilter.from_bytes(data))
    if read is not None:
        assert isinstance(read, SketchFilter)
        assert read.to_bytes() == data
        assert len(might_contain_longs(read, np.arange(3, dtype=np.int64))) == 3


@given(mangled(BLOBS) | st.binary(max_size=60))
def test_blobs_alone_and_in_a_column(data: bytes) -> None:
    read = survives(lambda: BloomFilterMetaData.from_bytes(data))
    column = BlobColumn(pa.array([BLOBS[0], data, BLOBS[1]], pa.binary()))
    items = np.arange(7, 12, dtype=np.int64)
    found = each_in(column, items)
    assert column.ok.tolist()[::2] == [True, True]
    if column.ok[1]:
        # What the column understands, the parser does too, and both say the same.
        assert isinstance(read, BloomFilterMetaData)
        assert np.array_equal(found[:, 1], might_contain_longs(read.filter, items))
    else:
        assert found[:, 1].all()


@given(mangled([SCHEMA.encode()]) | st.binary(max_size=60))
def test_schemas(data: bytes) -> None:
    schema = survives(lambda: StoreSchema.from_json(data))
    if schema is not None:
        assert isinstance(schema, StoreSchema)
        assert StoreSchema.from_json(schema.to_json()) == schema
        for index in schema.indexes:
            survives(index.value_type)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.data())
def test_schemas_with_one_value_replaced(data: st.DataObject) -> None:
    document = json.loads(SCHEMA)
    at = document
    while isinstance(at, dict | list) and at:
        keys = sorted(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        below = at[key]
        if not isinstance(below, dict | list) or not below or data.draw(st.booleans()):
            at[key] = data.draw(JSON)
            break
        at = below
    schema = survives(lambda: StoreSchema.from_json(json.dumps(document)))
    if isinstance(schema, StoreSchema):
        assert StoreSchema.from_json(schema.to_json()) == schema
        for index in schema.indexes:
            survives(index.value_type)


@given(mangled([PART]) | mangled([PART[-2_000:]]))
def test_parts(data: bytes) -> None:
    try:
        rows = decode(read_part(data))
    except (FormatError, UnsupportedError, KeyUnavailableError):
        return
    for index in rows.indexes:
        if hasattr(index, "blobs"):
            assert len(BlobColumn(index.blobs)) == len(rows)


@given(st.text(), st.binary(max_size=200))
def test_names_and_labels(text: str, data: bytes) -> None:
    survives(lambda: parse_obj_name(text))
    survives(lambda: unclean(text))
    for version in range(6):
        parse_column_name(text, version)
    label = footer_key_label(data)
    assert label is None or isinstance(label, str)
