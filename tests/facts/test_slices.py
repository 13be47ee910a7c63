"""Bit slices of Bloom filters: the answers of the filters, from a few rows of bits, whatever
happens to the files, the facts and the slices.

A file here is an identity, and the columns that the test says it has. Two stores get the same
facts; one has slices. Every predicate must keep the same files of both, and each file that holds
the value.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.facts import Store
from skipstone.facts.check import check
from skipstone.facts.compact import Compaction, compact, drop_index
from skipstone.facts.encode import FileFacts
from skipstone.facts.index_encryption import IndexEncryption
from skipstone.facts.slice_upkeep import Slicing
from skipstone.facts.vacuum import vacuum
from skipstone.identity import ObjectId
from skipstone.indexes.bloom import Bloom
from skipstone.indexes.minmax import MinMax
from skipstone.indexes.sliced_bloom import SlicedBloom
from skipstone.parquet.encryption.master_keys import labelled_keys
from skipstone.planning.fact_runs import RunSettings
from skipstone.planning.table_facts import ObjectPlanRequest, plan_objects
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import ColumnRef, Membership
from skipstone.pruning import Cause
from skipstone.pruning.partitions import PartitionColumns
from skipstone.storage import Listing
from skipstone.storage.base import metered
from tests.facts.facts import facts
from tests.processes import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.predicate.tree import Expr
    from skipstone.pruning.plan import Plan

SCHEMA = pa.schema([("n", pa.int64()), ("f", pa.float64()), ("s", pa.string())])
INDEXES = [Bloom("n", fpp=0.1), Bloom("f", fpp=0.1), Bloom("s", fpp=0.1)]
ALL = Slicing(files=1, group=1)

Values = dict[str, list[Any]]


@dataclass
class Pair:
    """Two stores with the facts of the same files, one of which gets slices."""

    root: Path
    files: dict[str, tuple[int, Values]] = field(default_factory=dict)
    versions: int = 0

    def __post_init__(self) -> None:
        self.sliced = Store.of_table(str(self.root / "sliced" / "t"))
        self.plain = Store.of_table(str(self.root / "plain" / "t"))

    def put(self, name: str, values: Values) -> None:
        """A file, or another version of it."""
        self.versions += 1
        self.files[name] = (self.versions, values)

    def id(self, name: str) -> ObjectId:
        version, _ = self.files[name]
        return ObjectId(path=f"/t/{name}", size=100 + version, mtime=version, unit="ns")

    def listing(self) -> Listing:
        return Listing.of("/t", [self.id(name) for name in sorted(self.files)], "ns")

    def columns(self, name: str) -> dict[str, pa.Array]:
        return {c: pa.array(v, SCHEMA.field(c).type) for c, v in self.files[name][1].items()}

    def build(self, names: Sequence[str], indexes: Sequence[Any] = INDEXES) -> None:
        """Facts of these files in both stores, one part each."""
        made = [facts(self.id(name), self.columns(name), *indexes) for name in names]
        for store in (self.sliced, self.plain):
            store.write_part(made, indexes, SCHEMA)

    def compact(self, slicing: Slicing = ALL) -> Compaction:
        return compact(self.sliced, self.listing, slicing)

    def plan(self, store: Store, where: str | Expr, **more: Any) -> Plan:
        listing = self.listing()
        return plan_objects(
            ObjectPlanRequest(
                tree=bind(parse_sql(where) if isinstance(where, str) else where, SCHEMA),
                listing=listing,
                matches=[store.snapshot().match(listing)],
                partitions=PartitionColumns({}),
                table="/t",
                predicate=str(where),
                **more,
            )
        )

    def same(self, where: str | Expr, **more: Any) -> Plan:
        """The plan through slices; it keeps the files that the filters keep."""
        sliced, plain = self.plan(self.sliced, where, **more), self.plan(self.plain, where)
        assert sliced.keep.tolist() == plain.keep.tolist(), where
        assert sliced.must.tolist() == plain.must.tolist(), where
        return sliced

    def kept(self, where: str) -> list[str]:
        keep = self.same(where).keep.tolist()
        return [name for name, flag in zip(sorted(self.files), keep, strict=True) if flag]


def slice_files(store: Store) -> list[Path]:
    return sorted(Path(store.location.facts).glob("slices-*"))


def used(plan: Plan) -> list[str]:
    return [step.index for step in plan.steps if step.used and "bloom" in step.index]


def numbers(count: int, each: int = 20, first: int = 0) -> dict[str, Values]:
    """Files of ``each`` numbers of their own, with their texts."""
    found: dict[str, Values] = {}
    for i in range(first, first + count):
        n = [1_000 * i + k for k in range(each)]
        found[f"f{i:04d}"] = {"n": n, "f": [float(x) for x in n], "s": [f"t{x}" for x in n]}
    return found


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """300 files of 20 values: one group of equal filters."""
    made = Pair(tmp_path)
    for name, values in numbers(300).items():
        made.put(name, values)
    made.build(sorted(made.files))
    return made


# -- the same answers ------------------------------------------------------------------------------

FLOATS = st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5, -2.0])
COLUMNS: st.SearchStrategy[Values] = st.fixed_dictionaries(
    {
        "n": st.lists(st.one_of(st.none(), st.integers(-20, 20)), max_size=6),
        "f": st.lists(st.one_of(st.none(), FLOATS), max_size=6),
        "s": st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=6),
    }
)


def even(values: Values) -> Values:
    """Columns of one length."""
    rows = max(map(len, values.values()))
    return {name: column + [None] * (rows - len(column)) for name, column in values.items()}


def predicates(data: st.DataObject) -> list[str]:
    n = data.draw(st.integers(-25, 25))
    more = data.draw(st.lists(st.integers(-25, 25), min_size=1, max_size=5))
    s = data.draw(st.text("abé'", max_size=2)).replace("'", "''")
    return [
        f"n = {n}",
        f"n IN ({', '.join(map(str, more))})",
        f"n <=> {n}",
        f"NOT (n <> {n})",
        f"n = {n} AND s = '{s}'",
        f"n = {n} OR f = 0.0",
        f"s = '{s}'",
        f"s IN ('{s}', 'a', '')",
        "f = 0.0",
        "f = -0.0",
        "f = CAST('NaN' AS DOUBLE)",
        "f IN (1.5, CAST('Infinity' AS DOUBLE))",
        "n IS NULL",
        "n <=> NULL",
        f"n > {n}",
    ]


@given(st.data())
def test_slices_answer_as_the_filters_do_through_a_life(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Files are added, replaced, removed, indexed, compacted, dropped and vacuumed."""
    pair = Pair(tmp_path_factory.mktemp("life"))
    for name in "abcd":
        pair.put(name, even(data.draw(COLUMNS)))
    pair.build(list("abcd"))
    for _ in range(data.draw(st.integers(1, 5))):
        match data.draw(st.sampled_from(["put", "remove", "index", "compact", "drop", "vacuum"])):
            case "put":
                pair.put(data.draw(st.sampled_from("abcdefgh")), even(data.draw(COLUMNS)))
            case "remove" if len(pair.files) > 1:
                del pair.files[data.draw(st.sampled_from(sorted(pair.files)))]
            case "index":
                pair.build(data.draw(st.lists(st.sampled_from(sorted(pair.files)), unique=True)))
            case "compact":
                pair.compact(Slicing(files=1, group=data.draw(st.sampled_from([1, 2]))))
            case "drop":
                column = data.draw(st.sampled_from("nfs"))
                for store in (pair.sliced, pair.plain):
                    drop_index(store, "bloomfilter", column)
            case "vacuum":
                vacuum(pair.sliced, older_than=-60)
        for where in predicates(data):
            plan = pair.same(where)
            assert not [r for r in plan.reasons if r.cause is Cause.CORRUPT]
    for name in sorted(pair.files):
        _, values = pair.files[name]
        for n in values["n"]:
            assert n is None or name in pair.kept(f"n = {n}")


def test_a_lookup_reads_rows_of_bits_and_no_filter(pair: Pair) -> None:
    done = pair.compact()
    assert (done.sliced.files, done.sliced.filters) == (900, 900)
    (path,) = slice_files(pair.sliced)
    assert path.name.removeprefix("slices-") in {p.name[5:] for p in path.parent.glob("part-*")}
    plan = pair.same("n = 7003")
    assert used(plan) == ["bloom slices"]
    (step,) = (each for each in plan.steps if each.index == "bloom slices")
    (column,) = {each.num_hash_functions for each in filters_of(pair)}
    assert (step.requests, step.bytes_read) == (column, column * (38 + 4))
    assert (step.considered, step.kept) == (300, plan.files_kept)
    assert "f0007" in pair.kept("n = 7003")
    assert plan.files_kept < 60
    # Nothing but the rows is read once the snapshot is known.
    with metered() as meter:
        pair.plan(pair.sliced, "n = 9004")
    assert meter.bytes_read <= 16 * 1024 * column
    snapshot = pair.sliced.snapshot()
    read = [key for key, pieces in snapshot._columns.items() if pieces]
    assert not [key for key in read if "bloomfilter" in str(key)]


def filters_of(pair: Pair) -> list[Any]:
    from skipstone.xskipper.format.java_bloom import BloomFilterMetaData

    snapshot = pair.plain.snapshot()
    (found,) = (f for f in snapshot.fields if f.definition and f.definition.column == "n")
    return [
        BloomFilterMetaData.from_bytes(blob.as_py()).filter
        for piece in snapshot.values(found)
        for blob in piece.values
    ]


def test_sizes_that_few_files_have_are_asked_too(pair: Pair) -> None:
    """300 files of 20 values, 30 of 90 and one of none: the last 31 are not sliced."""
    for name, values in numbers(30, each=90, first=300).items():
        pair.put(name, values)
    pair.put("none", {"n": [None], "f": [None], "s": [None]})
    pair.build([name for name in pair.files if name not in numbers(300)])
    pair.compact(Slicing(files=1, group=100))
    for i in (0, 150, 299, 300, 329):
        assert f"f{i:04d}" in pair.kept(f"n = {1000 * i + 3}")
    assert pair.kept("n IS NULL") == ["none"]
    assert used(pair.same("s = 't310005'")) == ["bloom slices"]


def test_a_long_list_reads_the_filters(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.compact()
    wanted = ", ".join(str(1000 * i) for i in range(0, 300, 7))
    assert pair.same(f"n IN ({wanted})").files_kept >= 43
    monkeypatch.setattr("skipstone.indexes.sliced_bloom._MOST_BYTES", 1_000)
    plan = pair.same(f"n IN ({wanted})")
    reasons = [str(reason) for step in plan.steps for reason in step.reasons]
    assert any("43 values: their filters are read instead" in text for text in reasons)


# -- upkeep ----------------------------------------------------------------------------------------


def test_new_facts_are_asked_by_their_filters_until_a_compaction(pair: Pair) -> None:
    """1 % new files: their slices are made, and those of the others stay."""
    pair.compact()
    for name, values in numbers(3, first=300).items():
        pair.put(name, values)
    pair.build(["f0300", "f0301", "f0302"])
    assert used(pair.same("n = 301005")) == ["bloom slices", "bloomfilter"]
    assert "f0301" in pair.kept("n = 301005")
    pair.compact()
    assert used(pair.same("n = 301005")) == ["bloom slices"]
    assert "f0301" in pair.kept("n = 301005")


def test_a_large_part_keeps_its_slices(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that a compaction leaves as it is keeps the object; only the new part gets one."""
    pair.compact()
    (first,) = slice_files(pair.sliced)
    size = max(part.uncompressed for part in pair.sliced.snapshot().parts)
    monkeypatch.setattr("skipstone.facts.compact.PART_BYTES", size)
    written = first.stat().st_ino
    for name, values in numbers(3, first=300).items():
        pair.put(name, values)
    pair.build(["f0300", "f0301", "f0302"])
    pair.compact()
    both = slice_files(pair.sliced)
    assert len(both) == 2
    assert first.stat().st_ino == written
    (new,) = (path for path in both if path != first)
    assert new.stat().st_size < first.stat().st_size / 5
    assert used(pair.same("n = 301005")) == ["bloom slices"]


def test_few_filters_and_other_kinds_have_no_slices(pair: Pair) -> None:
    assert pair.compact(Slicing(files=301, group=1)).sliced.files == 0
    assert slice_files(pair.sliced) == []
    assert pair.compact(Slicing(files=300, group=301)).sliced.files == 0
    drop_index(pair.sliced, "bloomfilter", "n")
    pair.sliced.write_part([], [MinMax("n")], SCHEMA)
    pair.compact()
    assert used(pair.plan(pair.sliced, "n = 5")) == []


def test_an_encrypted_index_has_no_slices(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    for name, values in numbers(50).items():
        pair.put(name, values)
    keys = labelled_keys({"k": b"K" * 16})
    store = Store(pair.sliced.location, pair.sliced.storage, keys)
    made = [facts(pair.id(name), pair.columns(name), *INDEXES) for name in pair.files]
    how = store.encryption_to_write(IndexEncryption(footer_key="k"))
    store.write_part(made, INDEXES, SCHEMA, encryption=how)
    done = compact(store, pair.listing, ALL)
    assert (done.sliced.files, slice_files(store)) == (0, [])
    # Slices that somebody put there are not used.
    (part,) = store.snapshot().parts
    Path(store.location.slices(part.name)).write_bytes(b"SKSLICES" * 9)
    assert used(pair.plan(store, "n = 7003")) == ["bloomfilter"]


def test_drop_and_vacuum_leave_nothing(pair: Pair) -> None:
    pair.compact()
    (path,) = slice_files(pair.sliced)
    lone = path.with_name("slices-01234567-89ab-cdef-0123-456789abcdef")
    lone.write_bytes(path.read_bytes())
    broken = path.read_bytes()[:-3]
    done = vacuum(pair.sliced)
    assert (done.removed, done.young) == ({}, (str(lone),))
    assert vacuum(pair.sliced, older_than=-60, dry_run=True).removed == {
        str(lone): lone.stat().st_size
    }
    assert set(vacuum(pair.sliced, older_than=-60).removed) == {str(lone)}
    assert slice_files(pair.sliced) == [path]
    path.write_bytes(broken)
    assert set(vacuum(pair.sliced, older_than=-60).removed) == {str(path)}
    pair.compact()
    drop_index(pair.sliced, "bloom", "n")
    pair.sliced.snapshot()
    assert slice_files(pair.sliced) == []
    pair.compact()
    assert len(slice_files(pair.sliced)) == 1
    pair.sliced.drop()
    assert not Path(pair.sliced.location.root).exists()


# -- damage ----------------------------------------------------------------------------------------


def spoil(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("how", ["rows", "directory", "cut", "empty", "gone", "other", "newer"])
def test_damaged_slices_fall_back_to_the_filters(pair: Pair, how: str, tmp_path: Path) -> None:
    pair.compact()
    (path,) = slice_files(pair.sliced)
    data = path.read_bytes()
    known = pair.sliced.snapshot() if how in ("rows", "gone") else None
    if how == "rows":
        # Every row of every column: the directory lies behind them.
        end = len(data) - 4096
        path.write_bytes(bytes(b ^ 0x10 for b in data[8:end]).join([data[:8], data[end:]]))
    elif how == "directory":
        spoil(path, len(data) - 30)
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "gone":
        pair.plan(pair.sliced, "n = 7003")
        path.unlink()
        # A reader that has listed them before.
        listing = pair.listing()
        assert known is not None
        plan = plan_objects(
            ObjectPlanRequest(
                tree=bind(parse_sql("n = 7003"), SCHEMA),
                listing=listing,
                matches=[known.match(listing)],
                partitions=PartitionColumns({}),
                table="/t",
                predicate="n = 7003",
            )
        )
        assert plan.keep.tolist() == pair.plan(pair.plain, "n = 7003").keep.tolist()
        reasons = [str(reason) for step in plan.steps for reason in step.reasons]
        assert any("asked one by one" in text for text in reasons)
        assert used(pair.same("n = 7003")) == ["bloomfilter"]
        return
    elif how == "other":
        other = Pair(tmp_path / "other")
        for name, values in numbers(300, first=500).items():
            other.put(name, values)
        other.build(sorted(other.files))
        other.compact()
        path.write_bytes(slice_files(other.sliced)[0].read_bytes())
    else:
        from tests.facts.newer_slices import newer

        path.write_bytes(newer(data))
    pair.sliced = Store(pair.sliced.location, pair.sliced.storage)
    for i in (0, 7, 299):
        plan = pair.same(f"n = {1000 * i + 3}")
        told = [*plan.reasons, *(reason for step in plan.steps for reason in step.reasons)]
        assert any("slices" in str(reason) for reason in told), told
        assert plan.files_kept < 60
        assert plan.keep[i]
    found = check(pair.sliced, pair.listing())
    assert any("bit slices" in str(reason) for reason in found.damaged)
    path.unlink()
    assert check(pair.sliced, pair.listing()).ok
    pair.compact()
    assert used(pair.same("n = 7003")) == ["bloom slices"]
    assert check(pair.sliced, pair.listing()).ok


def test_one_damaged_row_costs_only_lookups_of_it(pair: Pair) -> None:
    pair.compact()
    (path,) = slice_files(pair.sliced)
    spoil(path, 20)  # in the first row of the first column
    pair.sliced = Store(pair.sliced.location, pair.sliced.storage)
    told = 0
    for i in range(300):
        plan = pair.same(f"n = {1000 * i + 3}")
        reasons = [reason for step in plan.steps for reason in step.reasons]
        told += any("checksum" in str(reason) for reason in reasons)
    assert 0 < told < 100
    assert [r.cause for r in check(pair.sliced, pair.listing()).damaged] == [Cause.CORRUPT]


# -- facts that do not fit in memory ---------------------------------------------------------------


def test_run_by_run_without_the_filters(pair: Pair) -> None:
    """With slices the filters do not count against the memory limit; what is left is asked in
    runs."""
    index = MinMax("n")
    made = [facts(pair.id(name), pair.columns(name), index) for name in pair.files]
    for store in (pair.sliced, pair.plain):
        store.write_part(made, [index], SCHEMA)
    pair.compact()
    limit = RunSettings(limit=5_000)
    plan = pair.same("n = 7003", runs=limit)
    assert "bloom slices" in used(plan)
    assert any("evaluated run by run" in str(reason) for reason in plan.reasons)
    assert "bloomfilter" not in used(plan)
    plan = pair.same("s = 't7003'", runs=limit)
    assert used(plan) == ["bloom slices"]
    assert not any("run by run" in str(reason) for reason in plan.reasons)
    # New facts are asked in runs, next to the slices.
    for name, values in numbers(40, first=300).items():
        pair.put(name, values)
    pair.build([f"f{i:04d}" for i in range(300, 340)])
    plan = pair.same("s = 't320003'", runs=replace(limit, limit=100))
    assert {"bloom slices", "bloomfilter"} <= set(used(plan))
    assert plan.keep[320]


# -- a kill ----------------------------------------------------------------------------------------

LOOP = """
import sys, itertools
from pathlib import Path
from tests.facts.test_slices import Pair, numbers
pair = Pair(Path(sys.argv[1]))
for name, values in numbers(300).items():
    pair.put(name, values)
print("ready", flush=True)
for turn in itertools.count():
    pair.build([f"f{turn % 300:04d}"])
    pair.compact()
"""


def test_a_killed_compaction_leaves_facts_that_are_true(pair: Pair) -> None:
    for turn in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(pair.root)],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.02 * turn**2)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for i in (0, 7, 299):
            plan = pair.same(f"n = {1000 * i + 3}")
            assert plan.keep[i]
            assert not [r for r in plan.reasons if r.cause is Cause.CORRUPT]
    pair.compact()
    vacuum(pair.sliced, older_than=-60)
    left = Path(pair.sliced.location.facts).iterdir()
    assert sorted(path.name.partition("-")[0] for path in left) == ["part", "slices"]
    assert used(pair.same("n = 7003")) == ["bloom slices"]


def test_the_evidence_holds_little(pair: Pair) -> None:
    pair.compact()
    found = pair.sliced.snapshot().match(pair.listing()).evidence({"n"})
    (sliced,) = (each for each in found if isinstance(each, SlicedBloom))
    assert sliced.stored is not None
    assert np.array_equal(sliced.known(sliced.stored), np.ones(300, np.bool_))
    assert sliced.stored.values.nbytes == 0


def test_facts_without_files_are_no_trouble(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.put("a", {"n": [1], "f": [None], "s": [None]})
    store = pair.sliced
    store.write_part([FileFacts(id=pair.id("a"), row_count=1)], INDEXES, SCHEMA)
    assert pair.compact().sliced.files == 0
    assert pair.plan(store, "n = 5").files_kept == 1


@pytest.mark.parametrize("column", ["n", "f", "s"])
def test_keys_in_an_array_are_asked_through_slices(tmp_path: Path, column: str) -> None:
    pair = Pair(tmp_path)
    for name, values in numbers(60).items():
        pair.put(name, values)
    indexes = [Bloom(each, fpp=0.001) for each in ("n", "f", "s")]
    pair.build(sorted(pair.files), indexes)
    pair.compact()
    held = [*range(3_000, 3_020), *range(7_005, 7_010)]
    keys: list[Any] = [*held, *(-each for each in range(1, 200))]
    if column == "s":
        keys = [f"t{each}" for each in keys]
    array = pa.array([None, *keys], SCHEMA.field(column).type)
    plan = pair.same(Membership(ColumnRef((column,)), array))
    assert used(plan) == ["bloom slices"]
    kept = {name for name, flag in zip(sorted(pair.files), plan.keep, strict=True) if flag}
    assert {"f0003", "f0007"} <= kept
    assert len(kept) < 40
    # Of this many keys every filter holds one by chance.
    many = pa.array(np.arange(1_000_000, 1_020_000)).cast(pa.string())
    if column != "s":
        many = many.cast(pa.int64()).cast(SCHEMA.field(column).type)
    plan = pair.same(Membership(ColumnRef((column,)), many))
    assert used(plan) == []
    assert "holds one by chance" in str(plan.steps)
