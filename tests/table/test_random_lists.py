"""Random lists and maps, in files that lay them out otherwise: conditions on their elements, keys
and values have the rows of brute force."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skipstone
from skipstone.pruning import costs
from tests.table.test_list_indexes import MAPS, TEXTS

WORDS = [*"abcdef", "", "é"]
NUMBERS = [-(2**31), -1, 0, 1, 7, 2**15, 2**31 - 1]
TEXT_TYPES = [
    *(TEXTS, pa.large_list(pa.string()), pa.list_(pa.large_string())),
    *(pa.list_(pa.dictionary(pa.int8(), pa.string())), None),
]
NUMBER_TYPES = [pa.list_(pa.int32()), pa.list_(pa.int64()), pa.large_list(pa.int32()), None]


@st.composite
def files(draw: st.DrawFn, texts: bool) -> list[tuple[pa.DataType | None, list[object]]]:
    element = st.one_of(st.none(), st.sampled_from(WORDS if texts else NUMBERS))
    rows = st.lists(st.one_of(st.none(), st.lists(element, max_size=4)), min_size=1, max_size=6)
    types = st.sampled_from(TEXT_TYPES if texts else NUMBER_TYPES)
    found = draw(st.lists(st.tuples(types, rows), min_size=1, max_size=4))
    own = TEXTS if texts else pa.list_(pa.int32())
    return [(own, draw(rows)), *found]


def holds(tags: list[object] | None, value: object) -> bool | None:
    if tags is None:
        return None
    return True if value in tags else None if None in tags else False


@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_rows_are_those_of_brute_force(data: st.DataObject) -> None:
    texts = data.draw(st.booleans())
    made = data.draw(files(texts))
    kind = data.draw(st.sampled_from(["valuelist", "minmax", "bloom", "bloom,minmax"]))
    value = st.sampled_from(WORDS if texts else NUMBERS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "events"
        root.mkdir()
        every: list[tuple[int, int, Any]] = []
        for part, (type, rows) in enumerate(made):
            first = 100 * part
            columns = {"id": pa.array(range(first, first + len(rows)), pa.int64())}
            if type is not None:
                columns["tags"] = pa.array(rows, type)
            pq.write_table(pa.table(columns), root / f"{part}.parquet", row_group_size=2)
            every += [(part, first + n, None if type is None else t) for n, t in enumerate(rows)]
        skipstone.Table(root).build(indexes=[f"tags:{kind}"], pm="none")
        table = skipstone.Table(root)
        for _ in range(2):
            a, b = data.draw(value), data.draw(value)
            literals = [f"'{each}'" if texts else str(each) for each in (a, b)]
            one, two = (f"array_contains(tags, {each})" for each in literals)
            cases: list[tuple[str, Any]] = [
                (one, lambda t, a=a: holds(t, a)),
                (f"NOT {one}", lambda t, a=a: holds(t, a) is False),
                (f"{one} AND {two}", lambda t, a=a, b=b: holds(t, a) and holds(t, b)),
                (f"{one} OR {two}", lambda t, a=a, b=b: holds(t, a) or holds(t, b)),
                (f"{one} AND NOT {two}", lambda t, a=a, b=b: holds(t, a) and holds(t, b) is False),
                (f"({one} AND {two}) IS NULL OR tags IS NULL",
                 lambda t, a=a, b=b: t is None or (
                     False not in (holds(t, a), holds(t, b)) and None in (holds(t, a), holds(t, b))
                 )),
            ]  # fmt: skip
            both = f"arrays_overlap(tags, array({', '.join(literals)}))"
            cases += [
                (both, lambda t, a=a, b=b: holds(t, a) or holds(t, b)),
                (f"NOT {both}", lambda t, a=a, b=b: holds(t, a) is False and holds(t, b) is False),
            ]
            for where, truth in cases:
                found = table.query(where, columns=["id"]).column("id").to_pylist()
                assert found == [n for _, n, t in every if truth(t)], where
            if kind == "valuelist":
                plan = table.plan(one, inside=False)
                kept = {
                    int(Path(plan.listing.paths[at]).stem)
                    for at, keep in enumerate(plan.keep)
                    if keep
                }
                assert kept == {part for part, _, t in every if t is not None and a in t}, one


def entries(m: dict[str, int | None] | None, side: str) -> list[object] | None:
    return None if m is None else list(m) if side == "map_keys" else list(m.values())


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_rows_by_keys_and_values_are_those_of_brute_force(data: st.DataObject) -> None:
    """With and without indexes, at every level, of files whose maps and lists are laid out
    otherwise."""
    value = st.one_of(st.none(), st.sampled_from(NUMBERS))
    one = st.one_of(st.none(), st.dictionaries(st.sampled_from(WORDS), value, max_size=4))
    spec = data.draw(st.sampled_from([(), ("map_keys(m):valuelist",), ("map_keys(m):bloom",
        "map_values(m):minmax"), ("m['a']:bitmap", "map_keys(m):minmax")]))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("skipstone.table.planning.LOCAL", costs.FREE)
        root = Path(folder) / "events"
        root.mkdir()
        every: list[tuple[int, dict[str, int | None] | None]] = []
        for part in range(data.draw(st.integers(1, 3))):
            rows = data.draw(st.lists(one, min_size=1, max_size=8))
            ids = pa.array(range(100 * part, 100 * part + len(rows)), pa.int64())
            maps = pa.array([None if m is None else list(m.items()) for m in rows], MAPS)
            there = part == 0 or data.draw(st.booleans())
            pq.write_table(
                pa.table({"id": ids, "m": maps} if there else {"id": ids}),
                root / f"{part}.parquet",
                row_group_size=data.draw(st.sampled_from([2, 4, 100])),
                data_page_size=1,
                write_batch_size=1,
                write_page_index=data.draw(st.booleans()),
                use_dictionary=data.draw(st.booleans()),
            )
            every += [(100 * part + n, m if there else None) for n, m in enumerate(rows)]
        if spec:
            skipstone.Table(root).build(indexes=list(spec), pm="none")
        table = skipstone.Table(root)
        key, other = data.draw(st.sampled_from(WORDS)), data.draw(st.sampled_from(WORDS))
        a, b = data.draw(st.sampled_from(NUMBERS)), data.draw(st.sampled_from(NUMBERS))
        keys, values = partial(entries, side="map_keys"), partial(entries, side="map_values")
        cases: list[tuple[str, Any]] = [
            (f"map_contains_key(m, '{key}')", lambda m: holds(keys(m), key)),
            (f"NOT map_contains_key(m, '{key}')", lambda m: holds(keys(m), key) is False),
            (f"array_contains(map_values(m), {a})", lambda m: holds(values(m), a)),
            (f"NOT array_contains(map_values(m), {a})", lambda m: holds(values(m), a) is False),
            (f"m['{key}'] = {a}", lambda m: m is not None and m.get(key) == a),
            (f"m['{key}'] <> {a}",
             lambda m: m is not None and m.get(key) is not None and m[key] != a),
            (f"m['{key}'] <= {a} OR m['{other}'] IN ({a}, {b})",
             lambda m: m is not None and ((m.get(key) is not None and m[key] <= a)
                                          or m.get(other) in (a, b))),
            (f"m['{key}'] IS NULL", lambda m: m is None or m.get(key) is None),
            (f"NOT (m['{key}'] IS NULL OR m['{other}'] > {a})",
             lambda m: m is not None and m.get(key) is not None
             and m.get(other) is not None and m[other] <= a),
            (f"coalesce(m['{key}'], {a}) = {a}",
             lambda m: m is None or m.get(key) is None or m[key] == a),
            (f"(m['{key}'] = {a}) IS NOT TRUE", lambda m: m is None or m.get(key) != a),
            (f"arrays_overlap(map_keys(m), array('{key}', '{other}'))",
             lambda m: m is not None and bool({key, other} & set(m))),
            (f"NOT arrays_overlap(map_values(m), array({a}, {b}))",
             lambda m: holds(values(m), a) is False and holds(values(m), b) is False),
            (f"size(map_keys(m)) = 2 AND map_contains_key(m, '{key}')",
             lambda m: m is not None and len(m) == 2 and key in m),
        ]  # fmt: skip
        for where, truth in cases:
            found = table.query(where, columns=["id"]).column("id").to_pylist()
            assert found == [n for n, m in every if truth(m)], where
            assert table.count(where) == len(found), where
