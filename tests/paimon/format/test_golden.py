"""What Paimon's own classes wrote: parsed, built again byte for byte, and asked again."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyroaring import BitMap

from skipstone.errors import UnsupportedError
from skipstone.paimon.format import bloom_filter, container
from skipstone.paimon.format.bitmap import BitmapIndex, write_bitmap
from skipstone.paimon.format.bloom_filter import hashes_of
from skipstone.paimon.format.bsi import BsiIndex, write_bsi
from skipstone.paimon.format.column_keys import CodedColumn
from skipstone.paimon.format.keys import Ask, In, KeyArray, Null, PaimonType, Range, prefix
from skipstone.paimon.format.partial_blob import Pieces
from skipstone.paimon.format.range_bitmap import RangeBitmapIndex, write_range_bitmap
from tests.paimon.format.blooms import write_bloom_filter
from tests.paimon.format.golden import speaks
from tests.paimon.format.strategies import coded

from . import golden as g

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.paimon.format.column_keys import KeyColumn
    from skipstone.paimon.index_blob import RowAnswer


@pytest.fixture(scope="module")
def cases(golden: Path) -> list[dict[str, Any]]:
    return g.read_cases(golden)[0]


def blobs(case: dict[str, Any]) -> list[tuple[str, str, PaimonType, bytes]]:
    """Column, kind, type and bytes of each index of a case."""
    _, found = container.from_bytes(bytes.fromhex(case["index_hex"]))
    types = {field["name"]: PaimonType.parse(field["type"]) for field in case["schema"]}
    return [(name, kind, types[name], blob or b"") for (name, kind), blob in found.items()]


def test_containers_are_written_as_they_were(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        raw = bytes.fromhex(case["index_hex"])
        head, found = container.from_bytes(raw)
        assert container.head_length(raw[: container.HEAD_PREFIX]) == head.length
        assert container.ContainerHead.from_bytes(raw[: head.length], len(raw)) == head
        assert head.to_bytes() == raw[: head.length]
        columns: dict[str, dict[str, bytes | None]] = {}
        for (name, kind), blob in found.items():
            columns.setdefault(name, {})[kind] = blob
        assert container.to_bytes(columns, order=columns) == raw, case["name"]
        assert [(m["column"], m["type"], m["size"]) for m in case["metas"]] == [
            (name, kind, len(blob or b"")) for (name, kind), blob in found.items()
        ]
    assert len(cases) == 512


def codes_of_bitmap(index: BitmapIndex, found: dict[Any, BitMap], nulls: BitMap) -> CodedColumn:
    """The values and rows that were read, as they are given to a writer."""
    ordered = sorted(found)
    codes = np.full(index.row_count, -2, np.int32)
    codes[np.array(nulls, np.uint32)] = -1
    for code, key in enumerate(ordered):
        codes[np.array(found[key], np.uint32)] = code
    assert (codes >= -1).all()
    return CodedColumn(KeyArray.of(index.type, ordered), codes)


def rebuilt(
    kind: str, blob: bytes, column: KeyColumn, options: dict[str, str], name: str
) -> tuple[bytes, bytes]:
    """The index from the column's values, and from what was read of its own bytes (the first
    where the kind does not keep the values)."""
    prefix = f"file-index.{kind}.{name}."
    own = {option.removeprefix(prefix): value for option, value in options.items()}
    factors, pieces = coded(column), Pieces.whole(blob)
    if kind == "bloom-filter":
        opened = bloom_filter.BloomFilterIndex.open(column.keys.type, pieces)
        size = bloom_filter.sizing(int(own.get("items", "1000000")), float(own.get("fpp", "0.1")))
        assert (opened.bits, opened.k) == (size.bits, size.k)
        items, fpp = int(own.get("items", "1000000")), float(own.get("fpp", "0.1"))
        built = write_bloom_filter(column.keys.type, [column.keys], items=items, fpp=fpp)
        return built, built
    if kind == "range-bitmap":
        chunk = own.get("chunk-size")
        size_of_chunk = None if chunk is None else g.bytes_of(chunk)
        ranged = RangeBitmapIndex.open(column.keys.type, pieces)
        keys = ranged.open_dictionary().keys()
        read = {keys[i]: ranged.rows(In((keys[i],))) for i in range(len(keys))}
        if column.keys.type.is_float and {0, -1} <= set(read):  # asked together, never apart
            whole = BitMap(np.flatnonzero(factors.codes == factors.keys.below(0)))
            read[0], read[-1] = whole, read[-1] - whole
        again = codes_of_bitmap(ranged, read, ranged.rows(Null()))  # type: ignore[arg-type]
        return tuple(write_range_bitmap(f, chunk_size=size_of_chunk) for f in (factors, again))  # type: ignore[return-value]
    if kind == "bsi":
        BsiIndex.open(column.keys.type, pieces)
        return write_bsi(coded(column)), blob
    version, block = int(own.get("version", "2")), g.bytes_of(own.get("index-block-size", "16 kb"))
    index = BitmapIndex.open(column.keys.type, pieces)
    entries = index.entries()
    read = {
        entries.keys[i]: index.bitmap(int(entries.offsets[i]), int(entries.lengths[i]))
        for i in range(len(entries.keys))
    }
    again = codes_of_bitmap(index, read, index.rows(Null()))
    # Java's hash table decides the order of bitmaps, and of version 1's entries.
    as_it_lies = list(read) if version == 1 else sorted(
        read, key=lambda key: int(entries.offsets[list(read).index(key)])
    )  # fmt: skip
    order = [factors.keys.below(key) for key in as_it_lies]
    written = [
        write_bitmap(f, version=version, block_size=block, order=order) for f in (factors, again)
    ]
    assert len(write_bitmap(factors, version=version, block_size=block)) == len(blob)
    return written[0], written[1]


def test_indexes_are_built_as_they_were(cases: list[dict[str, Any]]) -> None:
    seen: Counter[str] = Counter()
    for case in cases:
        for name, kind, type, blob in blobs(case):
            column = g.column(type, case["columns"][name])
            built, again = rebuilt(kind, blob, column, case["options"], name)
            assert built == blob, case["name"]
            assert again == blob, case["name"]
            seen[kind] += 1
    assert seen == {"bitmap": 209, "bloom-filter": 112, "range-bitmap": 110, "bsi": 83}


class Asking:
    """The indexes of a case, asked leaf by leaf: ``must`` and ``may`` as a planner has them."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.everything = BitMap(range(case["row_count"]))
        self.indexes = blobs(case)
        self.asked: dict[tuple[str, PaimonType, Ask], RowAnswer] = {}
        self.types = {field["name"]: PaimonType.parse(field["type"]) for field in case["schema"]}

    def ask(self, kind: str, type: PaimonType, ask: Ask, blob: bytes) -> RowAnswer:
        """Each question once: a case asks most of them several times."""
        if (kind, type, ask) not in self.asked:
            self.asked[kind, type, ask] = g.ask_in_waves(kind, type, ask, blob)[0]
        return self.asked[kind, type, ask]

    def tree(self, where: dict[str, Any]) -> tuple[BitMap, BitMap]:
        if where["op"] in ("and", "or"):
            parts = [self.tree(child) for child in where["children"]]
            join = BitMap.intersection if where["op"] == "and" else BitMap.union
            return join(*(part[0] for part in parts)), join(*(part[1] for part in parts))
        must, may = BitMap(), self.everything
        for name, kind, type, blob in self.indexes:
            if name == where["field"]:
                one = self.leaf(where, kind, type, blob)
                must, may = must | one[0], may & one[1]
        return must, may

    def leaf(
        self, where: dict[str, Any], kind: str, type: PaimonType, blob: bytes
    ) -> tuple[BitMap, BitMap]:
        op = where["op"]
        literals = where.get("values", [where.get("value")] if "value" in where else [])
        if any(literal is None for literal in literals):
            return BitMap(), self.everything
        if op in ("ends_with", "contains", "like"):
            return BitMap(), self.everything
        keys = [g.key(type, literal) for literal in literals]
        first, last = (keys[0], keys[-1]) if keys else (None, None)
        asks: dict[str, list[Ask]] = {
            "eq": [In(tuple(keys))],
            "in": [In(tuple(keys))],
            "ne": [In(tuple(keys))],
            "not_in": [In(tuple(keys))],
            "lt": [Range(hi=last, hi_open=True)],
            "le": [Range(hi=last)],
            "gt": [Range(lo=first, lo_open=True)],
            "ge": [Range(lo=first)],
            "between": [Range(lo=first, hi=last)],
            "not_between": [Range(hi=first, hi_open=True), Range(lo=last, lo_open=True)],
            "is_null": [Null()],
            "is_not_null": [Range()],
        }
        if op == "is_nan":
            asks[op] = [In((g.key(type, "NaN"),))]
        if op == "starts_with":
            assert isinstance(first, bytes)
            asks[op] = [prefix(first)]
        if not all(speaks(kind, ask) for ask in asks[op]):
            return BitMap(), self.everything
        answers = [self.ask(kind, type, ask, blob) for ask in asks[op]]
        found = [one.may for one in answers if one.may is not None]
        if len(found) < len(answers):
            return BitMap(), self.everything
        may = BitMap.union(*found)
        must = may if all(one.exact for one in answers) else BitMap()
        if op in ("ne", "not_in"):
            if kind == "bloom-filter":
                return BitMap(), self.everything
            there = self.ask(kind, type, Range(), blob).may
            assert there is not None
            return there - may, there - must
        return must, may


def test_answers(cases: list[dict[str, Any]]) -> None:
    """Right for every query, exact wherever the index can tell, and never worse than Java's."""
    verdicts: Counter[str] = Counter()
    for case in cases:
        asking = Asking(case)
        tells = all(kind != "bloom-filter" for _, kind, _, _ in asking.indexes)
        exact = all(type.exact for type in asking.types.values())
        for query in case["queries"]:
            where = query.get("where") or query.get("eval", {}).get("where")
            if where is None or query.get("eval", {}).get("row_count", 0) > 2**31 - 1:
                continue
            must, may = asking.tree(where)
            true = BitMap(g.truth(where, asking.types, case["columns"]))
            label = f"{case['name']}: {json.dumps(where, ensure_ascii=False)}"
            assert must <= true <= may, label
            silent = any(op in json.dumps(where) for op in ('"ends', '"contains', '"like', "null,"))
            if tells and exact and not silent and not case["name"].startswith(("null", "eval")):
                assert must == true == may, label
                verdicts["exact"] += 1
            java = query["answer"]
            null_literal = case["name"].startswith(
                "nullliteral"
            )  # folded before any index is asked
            if query.get("vs_sql_truth") in ("exact", "superset") and exact and not null_literal:
                verdicts[query["vs_sql_truth"]] += 1
                if java["result"] == "SKIP":
                    assert not may, label
                elif java["result"] == "BITMAP":
                    assert may <= BitMap(g.rows_of_runs(java["runs"])), label
            elif query.get("vs_sql_truth") == "MISSES_ROWS":
                verdicts["right where Java is not"] += 1
    assert verdicts == {"exact": 20_792, "superset": 4_800, "right where Java is not": 12}


def test_first_rows(cases: list[dict[str, Any]]) -> None:
    """Top-N: the very rows that Java chooses, ties and all."""
    checked = 0
    for case in cases:
        for query in case["queries"]:
            asked = query if "topn" in query else query.get("eval", {})
            if "topn" not in asked or asked.get("row_count", 0) > 2**31 - 1 or "dv64" in asked:
                continue
            top = asked["topn"]
            order = top["orders"][0]
            found = [b for b in blobs(case) if b[:2] == (order["field"], "range-bitmap")]
            if not found or query["answer"]["result"] == "REMAIN":
                continue
            among = None
            if "found" in asked:
                among = BitMap(asked["found"])
            elif "dv" in asked:
                among = BitMap(range(case["row_count"])) - BitMap(asked["dv"])
            index = RangeBitmapIndex.open(found[0][2], Pieces.whole(found[0][3]))
            rows = index.first(
                top["k"],
                descending=not order["asc"],
                nulls_first=order["nulls_first"],
                ties=len(top["orders"]) > 1,
                among=among,
            )
            java = g.rows_of_runs(query["answer"].get("runs", []))
            if index.cardinality or len(top["orders"]) > 1:
                assert set(rows) == java, f"{case['name']}: {asked}"
            else:  # only nulls, all alike: Java takes all of them, k will do
                assert set(rows) <= java
                assert len(rows) == min(top["k"], len(java))
            checked += 1
    assert checked > 1_600


def test_hashes(golden: Path) -> None:
    checked = 0
    for text, vectors in g.read_cases(golden)[1].items():
        if "error" in vectors:
            with pytest.raises(UnsupportedError):
                hashes_of(KeyArray.of(PaimonType.parse(text), [0]))
            continue
        type = PaimonType.parse(text)
        keys = [g.key(type, value) for value in vectors["values"]]
        expected = [int(value, 16) for value in vectors["hashes"]]
        assert hashes_of(KeyArray.of(type, keys)).tolist() == expected, text
        assert [hashes_of(KeyArray.of(type, [key])).tolist() for key in keys] == [
            [each] for each in expected
        ], text
        checked += len(keys)
    assert checked > 250
