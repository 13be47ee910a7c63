"""Stores of facts about files that need not exist: what tables of up to a million files would have.

Per file, drawn from one seed:

- ``ts`` (bigint, minmax): the files follow one another in time and overlap their neighbours;
- ``user`` (string, minmax): every file spans nearly all users, as keys that nobody sorts by do;
- ``tag`` (string, value list): 5 of 500 tags;
- ``code`` (int, value list): 10 of 10,000 codes;
- ``key`` (bigint, Bloom filter): 100 values of its own, in stores of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.facts import Definition, Location, Store
from skipstone.facts.compact import compact
from skipstone.facts.part_columns import (
    ETAG,
    FOOTER_LENGTH,
    MTIME,
    OWN,
    PATH,
    ROWS,
    SIZE,
    UNIT,
    FactField,
)
from skipstone.facts.part_writer import encode_part
from skipstone.facts.slice_upkeep import Slicing
from skipstone.indexes.bloom import sized
from skipstone.indexes.registry import parse_index
from skipstone.storage import Listing, open_storage
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
from skipstone.xskipper.format.naming import OBJ_NAME
from skipstone.xskipper.format.sketch import (
    SketchFilter,
    hash_longs,
    positions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from skipstone.pruning.kind import Index

__all__ = [
    "SCHEMA",
    "keys_of_file",
    "lay_facts",
    "lay_filters",
    "lay_ranges_and_lists",
    "lay_slices",
    "listing_of",
    "ranges",
    "store_at",
]

SEED = 20_241_027
TABLE = "/bench/table"
SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("user", pa.string()),
        ("tag", pa.string()),
        ("code", pa.int32()),
        ("key", pa.int64()),
    ]
)
RANGES_AND_LISTS = ("ts:minmax", "user:minmax", "tag:valuelist", "code:valuelist")
ROWS_PER_FILE = 100_000
ROWS_PER_PART = 250_000
KEYS_PER_FILE, FPP = 100, 0.01
STEP, SPAN = 1_000, 3_000


def listing_of(count: int) -> Listing:
    """A listing of ``count`` files, as a local directory would give it."""
    number = np.arange(count, dtype=np.int64)
    return Listing(
        root=TABLE,
        paths=[f"{TABLE}/part-{i:07d}.parquet" for i in range(count)],
        sizes=20_000_000 + number % 1_000,
        mtimes=1_700_000_000_000_000_000 + number * 1_000_003,
        unit="ns",
        etags=[f"{i + 77_000}-{1_700_000_000_000_000_000 + i * 1_000_003}" for i in range(count)],
    )


def store_at(home: Path) -> Store:
    """The store that was laid out at ``home``."""
    return Store(Location(str(home)), open_storage(str(home)))


def lay_ranges_and_lists(home: Path, count: int, *, shuffled: bool = False) -> None:
    """A store of min/max and value lists of ``count`` files; ``shuffled``: as tasks leave rows."""
    rng = np.random.default_rng(SEED)
    listing = listing_of(count)
    low = np.arange(count, dtype=np.int64) * STEP
    first_user = rng.integers(0, 2_000, count)
    last_user = rng.integers(998_000, 1_000_000, count)
    columns: list[pa.Array] = [
        ranges(pa.array(low), pa.array(low + SPAN)),
        ranges(_texts("user", first_user), _texts("user", last_user)),
        _lists(_texts("tag", rng.integers(0, 500, 5 * count)), 5),
        _lists(pa.array(rng.integers(0, 10_000, 10 * count), pa.int32()), 10),
    ]
    order = rng.permutation(count) if shuffled else np.arange(count)
    indexes = [parse_index(each) for each in RANGES_AND_LISTS]
    lay_facts(home, listing, SCHEMA, indexes, columns, order)


def keys_of_file(number: int) -> NDArray[np.int64]:
    """The keys of one file; no two files share any."""
    return np.arange(KEYS_PER_FILE, dtype=np.int64) * 1_000_003 + number * 7 * 10**9


def lay_slices(home: Path, count: int, fpp: float = FPP) -> None:
    """The store of ``lay_filters``, compacted: filters by bit position, too."""
    lay_filters(home, count, fpp)
    compact(store_at(home), lambda: listing_of(count), Slicing(files=1, group=1))


def lay_filters(home: Path, count: int, fpp: float = FPP) -> None:
    """A store of Bloom filters over ``key``, 100 distinct values in each of ``count`` files."""
    index = parse_index(f"key:bloom(fpp={fpp})")
    listing = listing_of(count)
    for start in range(0, count, ROWS_PER_PART):
        numbers = np.arange(start, min(start + ROWS_PER_PART, count))
        pieces = np.array_split(numbers, max(1, len(numbers) // 10_000))
        blobs = [_filters(piece, fpp) for piece in pieces]
        lay_facts(home, listing.where(numbers), SCHEMA, [index], [pa.concat_arrays(blobs)])


def _filters(numbers: NDArray[np.int64], fpp: float) -> pa.Array:
    """The serialised filters of these files: equal in all but their words, so made as arrays."""
    words, hashes = sized(KEYS_PER_FILE, fpp)
    empty = SketchFilter(version=1, num_hash_functions=hashes, words=np.zeros(words, np.uint64))
    blank = np.frombuffer(BloomFilterMetaData.of(empty).to_bytes(), np.uint8)
    keys = np.concatenate([keys_of_file(number) for number in numbers.tolist()])
    h1, h2 = hash_longs(keys)
    set_ = np.zeros((len(numbers), 64 * words), np.bool_)
    file = np.repeat(np.arange(len(numbers)), KEYS_PER_FILE)
    for j in range(1, hashes + 1):
        set_[file, positions(h1, h2, j, 1).astype(np.int64) % (64 * words)] = True
    # Java writes the words big-endian, at the end of the one block that such a small filter takes.
    packed = np.packbits(set_, axis=1, bitorder="little").reshape(len(numbers), words, 8)[
        :, :, ::-1
    ]
    out = np.tile(blank, (len(numbers), 1))
    end = len(blank) - 1
    out[:, end - 8 * words : end] = packed.reshape(len(numbers), 8 * words)
    offsets = pa.array(np.arange(0, out.size + 1, out.shape[1], dtype=np.int32))
    buffers = [None, offsets.buffers()[1], pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(numbers), buffers)


def lay_facts(
    home: Path,
    listing: Listing,
    schema: pa.Schema,
    indexes: Sequence[Index],
    columns: Sequence[pa.Array],
    order: NDArray[np.int64] | None = None,
    rows_per_file: int = ROWS_PER_FILE,
) -> None:
    """Publish facts about the files of ``listing`` in a store at ``home``.

    ``columns`` hold one value of each index per file; ``order`` is that of the fact rows.
    """
    store = store_at(home)
    fields = []
    for index, column in zip(indexes, columns, strict=True):
        stored = index.stored_type(schema.field(index.column).type)
        assert column.type == stored, (column.type, stored)
        fields.append(FactField.of_definition(Definition.of(index, schema, 1), stored))
    counted = dict.fromkeys(index.column for index in indexes)
    fields += [FactField.of_nulls(name, schema.field(name).type) for name in counted]
    order = np.arange(len(listing)) if order is None else order
    for start in range(0, len(order), ROWS_PER_PART):
        chosen = order[start : start + ROWS_PER_PART]
        count = len(chosen)
        files = listing.where(chosen)
        own: dict[str, Any] = {
            OBJ_NAME: [
                f"{path}#{mtime // 10**6}"
                for path, mtime in zip(files.paths, files.mtimes.tolist(), strict=True)
            ],
            PATH: files.paths,
            SIZE: files.sizes,
            MTIME: files.mtimes,
            UNIT: ["ns"] * count,
            ETAG: files.etags,
            ROWS: np.full(count, rows_per_file),
            FOOTER_LENGTH: np.full(count, 2_000),
        }
        arrays = [
            pa.array(own[name], type_) if name in own else pa.nulls(count, type_)
            for name, type_ in OWN.items()
        ]
        arrays += [column.take(pa.array(chosen)) for column in columns]
        arrays += [pa.array(np.zeros(count, np.int64))] * (len(fields) - len(indexes))
        names = [*OWN, *map(str, range(len(fields)))]
        name, data = encode_part(pa.Table.from_arrays(arrays, names=names), fields)
        store.storage.put(store.location.part(name), data)


def _texts(prefix: str, numbers: NDArray[np.int64]) -> pa.Array:
    distinct, at = np.unique(numbers, return_inverse=True)
    return pa.array([f"{prefix}-{i:07d}" for i in distinct.tolist()]).take(pa.array(at))


def ranges(low: pa.Array, high: pa.Array) -> pa.Array:
    """Values of ``minmax`` from the least and the largest of each file."""
    return pa.StructArray.from_arrays([low, high], names=["min", "max"])


def _lists(values: pa.Array, each: int) -> pa.Array:
    offsets = pa.array(np.arange(0, len(values) + 1, each, dtype=np.int32))
    return pa.ListArray.from_arrays(
        offsets, values, type=pa.list_(pa.field("element", values.type))
    )
