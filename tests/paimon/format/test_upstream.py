"""Index files of real Paimon jobs, against the rows that the jobs wrote, as their READMEs say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyroaring import BitMap

from skipstone.paimon.format import container
from skipstone.paimon.format.bitmap import BitmapIndex, write_bitmap
from skipstone.paimon.format.bsi import write_bsi
from skipstone.paimon.format.column_keys import CodedColumn, KeyColumn, key_of
from skipstone.paimon.format.keys import In, KeyArray, Null, PaimonType, Range, prefix
from skipstone.paimon.format.partial_blob import Pieces
from tests.paimon.format.blooms import write_bloom_filter
from tests.paimon.format.golden import ask_in_waves
from tests.paimon.format.strategies import coded

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["Alice", "Bob", "Emily", "Tony", "Lucy", "Bob", "Tony", "Alice"]
PLAIN: dict[str, list[Any]] = {
    "f0": NAMES,
    "f1": [10, 10, 10, 10, 20, 10, 20, 20],
    "f2": [1, 1, 0, 0, 1, 1, 0, None],
}
# Nanoseconds; the key is the microsecond, so that the first and the seventh row share one.
TIMED: dict[str, list[Any]] = {
    "f0": NAMES,
    "f1": [100, 200, 300, 50, 500, 100, None, 20],
    "f2": [-2, -3, 1, 1, -1, 2, -2, None],
    "f3": [11.1, 12.1, 13.1, 14.1, 15.1, 16.1, 17.1, 18.1],
    "f4": [
        1745542802000123000,
        1745542902000123000,
        1745542602000123000,
        -1744877000,
        -1764877000,
        None,
        1745542802000123001,
        -1724877000,
    ],
}
TABLES = {
    "append_with_bitmap_multi_stripes": (PLAIN, {"bitmap": 3}),
    "append_with_bitmap_no_embedding": (PLAIN, {"bitmap": 3}),
    "append_with_bloomfilter": (TIMED, {"bloom-filter": 5}),
    "append_with_bsi": (TIMED, {"bsi": 3}),
    "append_with_bsi_bitmap_bloomfilter": (TIMED, {"bitmap": 4, "bsi": 3, "bloom-filter": 5}),
}


def stored(type: PaimonType, value: Any) -> Any:
    return value // 1_000 if type.is_timestamp else value


def column_of(type: PaimonType, values: list[Any]) -> KeyColumn:
    rows = [row for row, value in enumerate(values) if value is not None]
    keys = KeyArray.of(type, [key_of(type, stored(type, values[row])) for row in rows])
    return KeyColumn(len(values), np.array(rows, np.uint32), keys)


def order_of_bitmaps(index: BitmapIndex, keys: KeyArray) -> list[int]:
    """The keys in the order in which their bitmaps lie."""
    entries = index.entries()
    placed = sorted((int(entries.offsets[i]), entries.keys[i]) for i in range(len(entries.keys)))
    return [keys.below(key) for _, key in placed]


@pytest.mark.parametrize("table", TABLES)
def test_tables(golden: Path, table: str) -> None:
    values, expected = TABLES[table]
    home = golden / "paimon" / "upstream" / table
    schema = json.loads((home / "schema" / "schema-0").read_text("utf-8"))
    types = {field["name"]: PaimonType.parse(field["type"]) for field in schema["fields"]}
    (file,) = home.rglob("*.index")
    raw = file.read_bytes()
    _, blobs = container.from_bytes(raw)
    kinds = [kind for _, kind in blobs]
    assert {kind: kinds.count(kind) for kind in kinds} == expected
    columns: dict[str, dict[str, bytes | None]] = {}
    for (name, kind), blob in blobs.items():
        assert blob is not None
        type, own = types[name], values[name]
        column = column_of(type, own)
        for value in {each for each in own if each is not None}:
            ask = In((key_of(type, stored(type, value)),))
            found, _ = ask_in_waves(kind, type, ask, blob)
            rows = {
                r
                for r, v in enumerate(own)
                if v is not None and stored(type, v) == stored(type, value)
            }
            assert found.may is None if kind == "bloom-filter" else set(found.may or ()) == rows
        if kind != "bloom-filter":
            nulls, _ = ask_in_waves(kind, type, Null(), blob)
            assert set(nulls.may or ()) == {row for row, value in enumerate(own) if value is None}
        if kind == "bsi":
            built = write_bsi(coded(column))
            above, _ = ask_in_waves(kind, type, Range(lo=0), blob)
            assert set(above.may or ()) == {
                r for r, v in enumerate(own) if v is not None and v >= 0
            }
        elif kind == "bitmap":
            factors = coded(column)
            order = order_of_bitmaps(BitmapIndex.open(type, Pieces.whole(blob)), factors.keys)
            built = write_bitmap(factors, version=blob[0], order=order)
        else:
            built = write_bloom_filter(type, [column.keys])
        assert built == blob
        columns.setdefault(name, {})[kind] = built
    assert container.to_bytes(columns, order=columns) == raw


@pytest.mark.parametrize("version", [1, 2])
def test_ten_thousand_strings(golden: Path, version: int) -> None:
    """One bitmap index of 100,000 rows: found by key without reading much, and written again."""
    blob = (golden / "paimon" / "upstream" / "file_index" / f"bitmap-index-v{version}").read_bytes()
    type = PaimonType.parse("STRING")
    index = BitmapIndex.open(type, Pieces.whole(blob))
    assert (index.version, index.row_count, index.cardinality) == (version, 100_000, 10_000)
    entries = index.entries()
    held = {
        bytes(entries.keys[i]): index.bitmap(int(entries.offsets[i]), int(entries.lengths[i]))
        for i in range(len(entries.keys))
    }
    assert sum(map(len, held.values())) == 100_000
    assert index.rows(Range()) == BitMap(range(100_000)) == index.rows(prefix(b"asdf"))
    key = b"asdfghjkl123_4761"
    found, read = ask_in_waves("bitmap", type, In((key,)), blob)
    assert found.may == held[key]
    if version == 2:
        assert sum(span.length for span in read) < 40_000
    ordered = sorted(held)
    codes = np.full(100_000, -1, np.int32)
    for code, each in enumerate(ordered):
        codes[np.array(held[each], np.uint32)] = code
    factors = CodedColumn(KeyArray.of(type, ordered), codes)
    order: list[int] | None = None
    if version == 1:
        places = {each: at for at, each in enumerate(ordered)}
        order = [places[each] for each in held]
    else:
        order = order_of_bitmaps(index, factors.keys)
    assert write_bitmap(factors, version=version, order=order) == blob
