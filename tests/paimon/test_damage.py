"""Damage in packs, through the face of a table: a flipped bit costs time, and never a row.

Two files of 24,000 rows each, every kind of row index over columns whose blobs are beyond what is
read whole, so that a query reads parts of them.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone import Table
from skipstone.errors import FormatError
from skipstone.paimon import base
from skipstone.paimon import container_builder as bundle
from skipstone.paimon.base import BlockSums, VerifiedBlob
from skipstone.paimon.index_blob import SMALL
from skipstone.pruning.kind import Blob

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.pruning.plan import Plan

pytestmark = pytest.mark.fuzz

ROWS = 24_000
OLD = 1_600_000_000
INDEXES = [
    "k:bitmap",
    "t:bitmap(version=1)",
    "x:rangebitmap",
    "s:rangebitmap",
    "n:bsi",
    "b:paimonbloom(items=100000, fpp=0.01)",
]


def data(file: int) -> pa.Table:
    rng = np.random.default_rng(file)
    null = rng.random(ROWS) < 0.1
    k = rng.integers(0, 900, ROWS)
    return pa.table(
        {
            "k": pa.array(k, pa.int32(), mask=null),
            "t": pa.array([f"t-{v}" for v in k], mask=null),
            "x": pa.array(rng.integers(0, 4_000, ROWS) / 4, mask=null),
            "s": pa.array([f"name {v:05d}" for v in rng.integers(0, 9_000, ROWS)]),
            "n": pa.array(rng.integers(-70_000, 70_000, ROWS), mask=null),
            "b": pa.array([f"{file}/{v}" for v in rng.integers(0, 50_000, ROWS)]),
        }
    )


DATA = [data(0), data(1)]
THERE = [table["b"][5].as_py() for table in DATA]
# The predicate and the rows of a file for which it is true.
WHERE: dict[str, Any] = {
    "k = 77": pc.field("k") == 77,
    "k <> 77": pc.field("k") != 77,
    "t IN ('t-5', 't-899')": pc.field("t").isin(["t-5", "t-899"]),
    "x = 12.25": pc.field("x") == 12.25,
    "x >= 990": pc.field("x") >= 990.0,
    "s = 'name 00042'": pc.field("s") == "name 00042",
    "s < 'name 00100' AND k > 450": (pc.field("s") < "name 00100") & (pc.field("k") > 450),
    "n BETWEEN -3 AND 900": (pc.field("n") >= -3) & (pc.field("n") <= 900),
    f"b = '{THERE[1]}'": pc.field("b") == THERE[1],
    f"b = '{THERE[0]}' OR k IS NULL": (pc.field("b") == THERE[0]) | pc.field("k").is_null(),
}


def truth(where: str) -> list[set[int]]:
    found = []
    for table in DATA:
        numbered = table.append_column("row", pa.array(range(ROWS)))
        found.append(set(numbered.filter(WHERE[where])["row"].to_pylist()))
    return found


TRUTH = {where: truth(where) for where in WHERE}


@dataclass(eq=False)
class Packed:
    """A table's path, its packs, and their bytes as one."""

    path: str
    packs: tuple[Path, ...]
    raw: bytes

    def write(self, raw: bytes | bytearray) -> None:
        """Into the packs; the last ones get shorter where there is less of it."""
        at = 0
        for pack in self.packs:
            size = self.sizes[pack]
            pack.write_bytes(raw[at : at + size])
            at += size

    @cached_property
    def sizes(self) -> dict[Path, int]:
        return {pack: pack.stat().st_size for pack in self.packs}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    home = tmp_path_factory.mktemp("damage")
    (home / "t").mkdir()
    for file, table in enumerate(DATA):
        path = home / "t" / f"{file}.parquet"
        pq.write_table(table, path)
        os.utime(path, (OLD, OLD))
    Table(f"{home}/t").build(indexes=INDEXES)
    packs = tuple(sorted((home / "_t.skipstone" / "packs").iterdir()))
    raw = b"".join(pack.read_bytes() for pack in packs)
    found = Packed(f"{home}/t", packs, raw)
    assert sum(found.sizes.values()) == len(raw)
    return found


def loses_nothing(plan: Plan, where: str) -> bool:
    """Checks it; whether the plan knows all rows exactly."""
    exact = True
    for file, rows in enumerate(TRUTH[where]):
        detail = plan.details.get(file)
        if not plan.keep[file]:
            assert not rows, f"{where} has rows in file {file}"
        elif detail is None or detail.rows is None:
            exact = exact and bool(plan.must[file])
        else:
            found = set(detail.rows.positions().tolist())
            assert rows <= found, f"{where} loses {sorted(rows - found)[:9]} of file {file}"
            assert not detail.exact or rows == found
            exact = exact and detail.exact
    return exact


def test_what_is_whole_knows_every_row(built: Packed) -> None:
    path, raw = built.path, built.raw
    assert len(raw) > 12 * SMALL
    table = Table(path)
    for where, rows in TRUTH.items():
        plan = table.plan(where)
        assert loses_nothing(plan, where) == (not where.startswith("b"))
        assert table.count(where) == sum(map(len, rows))


@given(data=st.data())
def test_no_flipped_bit_costs_a_row(built: Packed, data: st.DataObject) -> None:
    path, raw = built.path, built.raw
    damaged = bytearray(raw)
    first, bit = data.draw(st.integers(0, len(raw) - 1)), 1 << data.draw(st.integers(0, 7))
    damaged[first] ^= bit
    # One bit is seldom where a query looks: every this many bytes there is another.
    for at in range(first % 9_000, len(raw), data.draw(st.sampled_from([60, 900, 9_000]))):
        damaged[at] ^= bit
    built.write(damaged)
    try:
        table = Table(path)
        for where in data.draw(st.lists(st.sampled_from(sorted(WHERE)), min_size=3, max_size=3)):
            loses_nothing(table.plan(where), where)
    finally:
        built.write(raw)


@given(data=st.data())
def test_no_truncation_costs_a_row(built: Packed, data: st.DataObject) -> None:
    path, raw = built.path, built.raw
    built.write(raw[: data.draw(st.integers(0, len(raw) - 1))])
    try:
        table = Table(path)
        for where in data.draw(st.lists(st.sampled_from(sorted(WHERE)), min_size=2, max_size=2)):
            loses_nothing(table.plan(where), where)
    finally:
        built.write(raw)


@pytest.mark.parametrize("where", ["k = 77", "t IN ('t-5', 't-899')", "x = 12.25", "n = 900"])
def test_a_bit_of_a_bitmap_is_noticed(
    built: Packed, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each bit of 4 KiB in turn would be too many: one bit of every block of the pack. The index
    says nothing then, says why, and warns once; the count is right, for the data is read."""
    path, raw = built.path, built.raw
    before = Table(path).count(where)
    damaged = bytearray(raw)
    for at in range(1_000, len(raw), 4_096):
        damaged[at] ^= 4
    built.write(damaged)
    try:
        table = Table(path)
        with caplog.at_level(logging.WARNING, "skipstone"):
            plan = table.plan(where)
        (step,) = [step for step in plan.steps if step.level.name == "ROW"]
        assert not step.used
        assert [reason.cause for reason in step.reasons] == ["corrupt"]
        assert plan.count() is None
        assert len(caplog.records) == 1
        assert table.count(where) == before
    finally:
        built.write(raw)


def test_the_first_rows_do_not_come_from_damage(built: Packed) -> None:
    path, raw = built.path, built.raw
    best = Table(path).top("x DESC", 5)
    assert best.exact
    damaged = bytearray(raw)
    for at in range(1_000, len(raw), 4_096):
        damaged[at] ^= 4
    built.write(damaged)
    try:
        top = Table(path).top("x DESC", 5)
    finally:
        built.write(raw)
    assert not top.exact
    for file, rows in best.rows.items():
        assert rows is not None
        assert top.rows[file] is None or not rows - (top.rows[file] or rows)


@given(st.integers(0, 5 * SMALL), st.data())
def test_sums_notice_every_bit(length: int, data: st.DataObject) -> None:
    blob = np.random.default_rng(length).bytes(length)
    sums = BlockSums.from_bytes(BlockSums.of(blob).to_bytes(), length)
    assert sums.to_bytes() == BlockSums.of(blob).to_bytes()
    sums.check(0, blob)
    if not length:
        return
    arrivals = VerifiedBlob(Blob(path="p", offset=7, length=length), sums)
    spans = st.tuples(st.integers(0, length - 1), st.integers(1, length))
    wanted = [(at, min(size, length - at)) for at, size in data.draw(st.lists(spans, min_size=1))]
    pack = b"1234567" + blob
    asked = arrivals.ask(wanted)
    have = {each: pack[each.offset : each.offset + each.length] for each in asked}
    pieces = arrivals.take(have)
    for at, size in wanted:
        assert pieces.take(at, size) == blob[at : at + size]
    assert not arrivals.unsure
    again = VerifiedBlob(arrivals.blob, sums)
    asked = again.ask(wanted)
    flipped = data.draw(st.sampled_from(asked))
    bad = bytearray(have[flipped])
    at = data.draw(st.integers(0, len(bad) - 1))
    bad[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(FormatError, match="checksum"):
        again.take({**have, flipped: bytes(bad)})


@given(st.binary(max_size=40), st.integers(0, 200_000))
def test_sums_of_another_blob_are_no_sums(raw: bytes, length: int) -> None:
    try:
        sums = BlockSums.from_bytes(raw, length)
    except FormatError:
        return
    assert len(sums.values) * sums.block >= length > (len(sums.values) - 1) * sums.block


def test_facts_hold_four_kib_of_sums_at_most() -> None:
    for length in (0, 1, SMALL, SMALL + 1, 1 << 22, (1 << 22) + 1, 37_000_000):
        raw = BlockSums.of(bytes(length)).to_bytes()
        assert len(raw) <= 4 + 4 * 1_024
        assert BlockSums.from_bytes(raw or b"", length).block >= 4_096


def test_facts_from_before_the_sums_are_read_and_say_so(
    built: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the table was built then, the other half now: both serve."""
    (tmp_path / "t").mkdir()
    paths = [tmp_path / "t" / f"{file}.parquet" for file in range(2)]
    placed = bundle._placed
    with monkeypatch.context() as before:
        before.delitem(base.PLACE, "sums")
        before.setattr(bundle, "_placed", lambda value, place: placed(value, place[:3]))
        pq.write_table(DATA[0], paths[0])
        os.utime(paths[0], (OLD, OLD))
        Table(f"{tmp_path}/t").build(indexes=INDEXES)
    pq.write_table(DATA[1], paths[1])
    os.utime(paths[1], (OLD, OLD))
    table = Table(f"{tmp_path}/t")
    assert table.refresh().files_built == 1
    kept = [where for where in TRUTH if not where.startswith("b")]
    for _ in range(2):
        for where in kept:
            plan = table.plan(where)
            assert loses_nothing(plan, where)
            said = [reason.text for step in plan.steps for reason in step.reasons]
            trusted = any("built before there were checksums" in text for text in said)
            assert trusted == (not where.startswith("n"))  # a bsi is always read whole
        assert table.top("x DESC", 5).exact
        table.compact()
        table = Table(f"{tmp_path}/t")
    assert all(
        "checksums" not in reason.text
        for step in Table(built.path).plan(kept[0]).steps
        for reason in step.reasons
    )
