"""The answers of the bitmaps of many files at once.

``row_evidence.py`` asks each blob in rounds: head, dictionary, bitmap. If an earlier plan has
parsed head and dictionary, one read is left. This module does it for all such files together: it
finds the places of the bitmaps, reads them in one wave, and decodes the rows. The answers are
cached and checked like those of ``row_evidence.py``: each block by its checksum, each bitmap by its
format and by the rows of its file.

Only ``=``, ``IN`` of few values and ``IS NULL`` over version 2 are answered. Everything else, and
everything damaged or missing, is left to ``row_evidence.py``, which gives the reasons.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pyroaring import BitMap

from skipstone.errors import SkipstoneError
from skipstone.parquet.values import ByteArrays
from skipstone.predicate.tree import Leaf
from skipstone.pruning import Bounds, Fetched, RowSet
from skipstone.pruning.column_types import restate

from .format import roaring
from .format.keys import Ask, In, Key, KeyArray, Null, safe
from .row_evidence import answers_to, asks_of, remembered_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.pruning.evaluation import Fetch
    from skipstone.pruning.kind import Blob
    from skipstone.storage import ByteRange

    from .base import Kept, PaimonIndex
    from .format.bitmap import BitmapIndex


# Fewer files are asked one by one. More values would need the union of many bitmaps.
_FEW, _MOST_KEYS = 16, 16


class _Place(NamedTuple):
    """``size`` bytes at ``at`` of a blob: ``held`` from an earlier plan, or within ``need``, which
    begins at ``start`` of the blob."""

    at: int
    size: int
    held: memoryview | None
    start: int
    need: ByteRange | None


class _File(NamedTuple):
    fact: int
    rows: int
    kept: Kept
    single: list[int]
    places: list[_Place]


def learn(
    index: PaimonIndex, leaf: Leaf, facts: Sequence[int], fetch: Fetch
) -> dict[str, Any] | None:
    """Reads the exact answers to ``leaf`` for those of ``facts`` (-1: none) that can be asked
    together, and caches them. Returns what that cost; ``None`` if too few can be asked together."""
    started = time.perf_counter()
    stored, ask = index.stored, _ask(index, leaf)
    if stored is None or ask is None:
        return None
    known, kept = remembered_rows(index, leaf) or {}, stored.cache.get("kept", {})
    left = [each for each in facts if each in kept and each not in known]
    if len(left) < _FEW:
        return None
    type = index.paimon_type(stored.type)
    blobs: dict[int, Blob | None] = stored.cache.setdefault("blobs", {})
    files: list[_File] = []
    for fact in left:
        if fact not in blobs:
            blobs[fact] = index.blob(fact)
        blob, head, rows = blobs[fact], kept[fact].opened, int(stored.rows[fact])
        if blob is None or blob.inline is not None or head is None or kept[fact].sums is None:
            continue
        if head.version == 2 and head.type == type and head.row_count == rows:
            found = _of_file(fact, head, kept[fact], blob, ask)
            if found is not None:
                files.append(found)
    if len(files) < _FEW:
        return None
    needs = {p.need: None for file in files for p in file.places if p.need is not None}
    try:
        have = fetch(list(needs)) if needs else {}
    except Exception:  # each file is then asked by itself, and gives its reason
        return None
    answers = answers_to(index, leaf)
    for file in files:
        bitmap = _rows(file, have)
        if bitmap is not None:
            both = RowSet.of_bitmap(bitmap)
            answers.add(file.fact, Bounds(both, both))
    return {
        "bytes_read": sum(each.length for each in needs),
        "requests": len(needs),
        "milliseconds": (time.perf_counter() - started) * 1e3,
    }


def answers_many(index: PaimonIndex, leaf: Leaf) -> bool:
    """Whether ``learn`` may find answers to ``leaf``."""
    return bool(index.stored and index.stored.cache.get("kept")) and _ask(index, leaf) is not None


def _ask(index: PaimonIndex, leaf: Leaf) -> Ask | None:
    """The question of ``leaf``, if many files can answer it together."""
    if index.paimon != "bitmap" or index.stored is None:
        return None
    type, local = index.paimon_type(index.stored.type), restate(leaf, index.stored.type)
    if not isinstance(local, Leaf) or not type.exact:
        return None
    asks = asks_of(local, type)
    if asks is None or len(asks) != 1:
        return None
    ask = safe(asks[0], type)
    few = isinstance(ask, In) and len(ask.keys) <= _MOST_KEYS
    return ask if few or isinstance(ask, Null) else None


def _of_file(fact: int, head: BitmapIndex, kept: Kept, blob: Blob, ask: Ask) -> _File | None:
    """Where the rows of one file are; ``None`` if its head does not say, or is damaged."""
    spans = _nulls(head) if isinstance(ask, Null) else _values(head, ask)
    if spans is None:
        return None
    single: list[int] = []
    places: list[_Place] = []
    for offset, size in spans:
        at = head.body + offset
        if offset < 0 and -1 - offset < head.row_count:
            single.append(-1 - offset)
        elif offset >= 0 and size >= 0 and at + size <= blob.length:
            places.append(_place(kept, blob, at, size))
        else:
            return None
    return _File(fact, head.row_count, kept, single, places)


def _nulls(head: BitmapIndex) -> list[tuple[int, int]] | None:
    if head.null_offset is None:
        return []
    return None if head.null_length is None else [(head.null_offset, head.null_length)]


def _values(head: BitmapIndex, ask: Ask) -> list[tuple[int, int]] | None:
    """Offset and length of the bitmaps of the keys; ``None`` where a block was not read yet."""
    assert isinstance(ask, In)
    found: list[tuple[int, int]] = []
    for key in ask.keys if head.cardinality else ():
        block = 0
        if len(head.firsts) > 1:
            below, same = _position(head.firsts, key)
            block = below if same else below - 1
        if block < 0:
            continue
        entries = head.blocks.get(block)
        if entries is None:
            return None
        at, same = _position(entries.keys, key)
        if same:
            found.append((int(entries.offsets[at]), int(entries.lengths[at])))
    return found


def _position(keys: KeyArray, key: Key) -> tuple[int, bool]:
    """How many of ``keys``, which ascend, are less than ``key``; and whether it is the next."""
    if isinstance(keys.values, ByteArrays):
        # Files of a table often have the same dictionary.
        return _among_texts(keys.values.data.tobytes(), keys.values.offsets.tobytes(), key)
    at = int(keys.values.searchsorted(key))
    return at, at < len(keys) and keys.values[at] == key


@lru_cache(maxsize=64)
def _among_texts(data: bytes, offsets: bytes, key: bytes) -> tuple[int, bool]:
    edges = np.frombuffer(offsets, np.int64).tolist()
    texts = [data[start:stop] for start, stop in pairwise(edges)]
    at = bisect_left(texts, key)
    return at, at < len(texts) and texts[at] == key


def _place(kept: Kept, blob: Blob, at: int, size: int) -> _Place:
    assert kept.sums is not None
    block = kept.sums.block
    start = at // block * block
    part = kept.held.get(start)
    if part is not None and at + size <= start + len(part):
        return _Place(at, size, memoryview(part)[at - start : at - start + size], start, None)
    stop = min(-(-(at + size) // block) * block, blob.length)
    return _Place(at, size, None, start, blob.span(start, stop - start))


def _rows(file: _File, have: Fetched) -> BitMap | None:
    """The rows of one file; ``None`` where its bytes are missing or damaged."""
    found = BitMap(file.single)
    assert file.kept.sums is not None
    try:
        for at, size, held, start, need in file.places:
            if need is not None:
                data = have.get(need)
                if data is None:
                    return None
                file.kept.sums.check(start, data)
                file.kept.add([(start, data)])
                held = memoryview(data)[at - start : at - start + size]
            assert held is not None
            rows = roaring.read(held, file.rows)
            found = rows if not found else found | rows
    except SkipstoneError:
        return None
    return found
