"""Random tables, as the original would have indexed them with all of its errors: no row is lost.

The original's ways, as far as they can mislead: bounds of numbers alone come from Parquet footers,
which leave NaN out and make a column of nothing else look empty; strings are ordered as UTF-16;
value lists keep both zeros apart, in any order; rows of a file may be there twice.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import event, given, settings
from hypothesis import strategies as st

from skipstone.facts.find import find_store
from skipstone.facts.location import XskipperLocation
from skipstone.planning.table_facts import ObjectPlanRequest, plan_objects
from skipstone.predicate.binding import bind
from skipstone.pruning.partitions import PartitionColumns
from skipstone.storage import Listing
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
from skipstone.xskipper.format.part import Calendar, PartFooter, to_bytes
from skipstone.xskipper.format.v4_store import (
    BloomFacts,
    Facts,
    MinMaxFacts,
    ValueListFacts,
    published,
    supports,
)
from tests import oracle, strategies
from tests.oracle import sort_key, values_of
from tests.xskipper.format.reference_bloom import SketchBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

TYPES = [type for type in strategies.SPARK_TYPES if type != pa.timestamp("us")]
KINDS = ("minmax", "valuelist", "bloomfilter")


def as_java(value: Any) -> Any:
    """The order that the original folds minima and maxima in."""
    return value.encode("utf-16-be", "surrogatepass") if isinstance(value, str) else sort_key(value)


def minmax(name: str, columns: Sequence[pa.Array], *, footers: bool) -> MinMaxFacts:
    type = columns[0].type
    picked: list[list[int | None]] = [[], []]
    for column in columns:
        keyed = [(as_java(v), at) for at, v in enumerate(values_of(column)) if v is not None]
        if footers and pa.types.is_floating(type):
            nan = [v != v for v in column.to_pylist()]
            keyed = [each for each in keyed if not nan[each[1]]]
        for ends, pick in zip(picked, (min, max), strict=True):
            ends.append(pick(keyed)[1] if keyed else None)
    low, high = (
        pa.concat_arrays(
            [
                pa.nulls(1, type) if at is None else column.slice(at, 1)
                for at, column in zip(ends, columns, strict=True)
            ]
        )
        for ends in picked
    )
    empty = np.array([at is None for at in picked[0]])
    return MinMaxFacts(column=name, minimum=low, maximum=high, empty=empty)


def valuelist(name: str, columns: Sequence[pa.Array]) -> ValueListFacts:
    type = pa.list_(columns[0].type)
    lists = [column.drop_null().unique() for column in columns]
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.int32)
    values = pa.ListArray.from_arrays(pa.array(offsets), pa.concat_arrays(lists), type=type)
    return ValueListFacts(column=name, values=values, empty=np.diff(offsets) == 0)


def bloomfilter(name: str, columns: Sequence[pa.Array]) -> BloomFacts:
    blobs = []
    for column in columns:
        builder = SketchBuilder.sized(20, 0.1)
        builder.put(column.drop_null())
        blobs.append(BloomFilterMetaData.of(builder.build()).to_bytes())
    return BloomFacts(
        column=name, blobs=pa.array(blobs, pa.binary()), type=columns[0].type, fpp=0.1, ndv=20
    )


def facts_of(chosen: Sequence[tuple[str, str]], files: Sequence[pa.Table]) -> list[Facts]:
    """What the original stores for these (column, kind)s; nothing is combined first."""
    first = files[0]
    numbers = all(
        kind == "minmax"
        and (pa.types.is_integer(t := first.column(name).type) or pa.types.is_floating(t))
        for name, kind in chosen
    )
    found: list[Facts] = []
    for name, kind in chosen:
        columns = [_one(file.column(name)) for file in files]
        if kind == "minmax":
            found.append(minmax(name, columns, footers=numbers))
        elif kind == "valuelist":
            found.append(valuelist(name, columns))
        else:
            found.append(bloomfilter(name, columns))
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([*column.chunks, pa.nulls(0, column.type)])


@settings(max_examples=80)
@given(st.data())
def test_no_matching_row_is_lost(data: st.DataObject) -> None:
    table = data.draw(strategies.tables(TYPES), label="table")
    atoms = [f.name for f in table.schema if f.type in TYPES and "." not in f.name]
    every = [
        (name, kind)
        for name in atoms
        for kind in KINDS
        if supports(kind, table.schema.field(name).type) is None
    ]
    if not every or len({name.lower() for name in table.column_names}) < len(table.column_names):
        return
    chosen = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True), label="indexes")
    files = [file.rows for file in data.draw(strategies.layouts(table), label="files")]
    predicate = data.draw(strategies.predicates(table), label="predicate")
    paths = [f"/t/{at}.parquet" for at in range(len(files))]
    facts = facts_of(chosen, files)
    names = pa.array([f"{path}#7" for path in paths])
    stored, schema = published(table_identifier="/t", obj_names=names, facts=facts)
    for index, fact in zip(schema.indexes, facts, strict=True):
        if isinstance(fact, ValueListFacts):  # as they are: publishing puts in both zeros
            at = stored.column_names.index(index.name)
            stored = stored.set_column(at, index.name, fact.values)
    footer = PartFooter(
        schema=schema,
        rows=len(files),
        calendar=Calendar(),
        own=False,
        keys=(("org.apache.spark.version", "4.0.0"),),
    )
    if data.draw(st.booleans(), label="twice"):
        stored = pa.concat_tables([stored, stored])
    listing = Listing(
        root="/t",
        paths=paths,
        sizes=np.ones(len(paths), np.int64),
        mtimes=np.full(len(paths), 7),
        unit="ms",
    )
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "part-0.parquet").write_bytes(to_bytes(stored, schema, like=footer))
        matched = find_store("/t", XskipperLocation(home)).snapshot().match(listing)
        assert matched.has_fact.all()
        found = plan_objects(
            ObjectPlanRequest(
                tree=bind(predicate, table.schema, session_zone="UTC"),
                listing=listing,
                matches=[matched],
                partitions=PartitionColumns({}),
                table="/t",
                predicate="",
            )
        )
    event("skips" if not found.keep.all() else "reads all")
    for at, rows in enumerate(files):
        try:
            surely = oracle.matching_rows(rows, predicate)
            may = oracle.matching_rows(rows, predicate, may=True)
        except (oracle.SparkError, oracle.NotModelled):
            event("no rule for it")
            return
        assert found.keep[at] or not surely, f"file {at} is skipped and holds rows {surely}"
        if found.must[at]:
            assert len(may) == len(rows), f"file {at}: not all rows match"
