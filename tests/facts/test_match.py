"""Facts over a listing: which row is about which file, and what the evidence then is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.facts import MatchedFacts, Store
from skipstone.facts.compact import compact
from skipstone.facts.encode import FileFacts
from skipstone.identity import UNITS_PER_SECOND, ObjectId, TimeUnit
from skipstone.indexes.minmax import MinMax
from skipstone.indexes.valuelist import ValueList
from skipstone.pruning import Cause
from skipstone.storage import Listing
from tests.facts.facts import MINMAX, SCHEMA, VALUES, Strange, Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skipstone.pruning.kind import Index

# Two instants a second apart and one in between, each as every unit has it.
INSTANTS = [0, 999_999_999, 1_000_000_000, 1_000_000_001, 1_700_000_000_123_456_789, -1]


@st.composite
def identities(draw: st.DrawFn, listed: TimeUnit | None = None) -> ObjectId:
    """The identity of a file as listed in a unit, or of a fact in any unit."""
    units: list[TimeUnit] = ["s", "ms", "us", "ns"]
    unit: TimeUnit = draw(st.sampled_from(units)) if listed is None else listed
    nanoseconds = draw(st.sampled_from(INSTANTS))
    return ObjectId(
        path=f"/t/{draw(st.sampled_from(['a', 'a b', 'é', '%', 'p=1/x']))}",
        size=draw(st.sampled_from([1, 2] if listed else [1, 2, None])),
        mtime=nanoseconds // (10**9 // UNITS_PER_SECOND[unit]),
        unit=unit,
        etag=draw(st.sampled_from([None, "x", "y"])),
    )


@st.composite
def facts_and_files(draw: st.DrawFn) -> tuple[list[list[ObjectId]], list[ObjectId], TimeUnit]:
    """Fact identities by part, files, and the unit of the listing."""
    unit: TimeUnit = draw(st.sampled_from(["s", "ms", "us", "ns"]))
    parts = draw(st.lists(st.lists(identities(), max_size=5), min_size=1, max_size=3))
    files = draw(st.lists(identities(unit), max_size=5, unique_by=lambda each: each.path))
    return parts, sorted(files, key=lambda each: each.path), unit


def consistent(rows: Sequence[ObjectId]) -> bool:
    return all(a.same_version(b) for a in rows for b in rows)


@given(facts_and_files())
def test_it_is_same_version_on_arrays(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: tuple[list[list[ObjectId]], list[ObjectId], TimeUnit],
) -> None:
    parts, files, unit = drawn
    store = Store.of_table(str(tmp_path_factory.mktemp("m") / "t"))
    for ids in parts:
        store.write_part([FileFacts(id=each, row_count=5) for each in ids], [], pa.schema([]))
    matched = store.snapshot().match(Listing.of("/t", files, unit))
    rows = [row for ids in parts for row in ids]
    for at, file in enumerate(files):
        at_path = [row for row in rows if row.path == file.path]
        fitting = [row for row in at_path if row.same_version(file)]
        assert matched.has_fact[at] == (bool(fitting) and consistent(fitting)), (file, at_path)
        assert matched.stale[at] == (bool(at_path) and not matched.has_fact[at])
        assert matched.missing[at] == (not at_path)
        assert matched.rows[at] == (5 if matched.has_fact[at] else -1)
    paths = {file.path for file in files}
    assert matched.orphaned == len({row.path for row in rows} - paths)


def test_the_order_of_parts_and_of_paths_does_not_matter(tmp_path: Path) -> None:
    """Five files whose facts are in three parts, each in an order of its own."""
    table = Table(tmp_path / "t")
    for name in "abcde":
        table.write(name)
    for only in ([4, 0], [2], [3, 1]):
        table.build(MINMAX, only=only)
    matched = table.store.snapshot().match(table.listing())
    assert matched.has_fact.all()
    assert minima(matched) == [0, 10, 20, 30, 40]


def minima(matched: MatchedFacts, column: str = "id") -> list[int | None]:
    """The minimum that the facts give for each file."""
    found: list[int | None] = [None] * len(matched)
    for each in matched.evidence({column}):
        assert each.stored is not None
        if each.name == "minmax":
            for file, row in enumerate(each.stored.row_of_file.tolist()):
                if row >= 0:
                    found[file] = each.stored.values[row]["min"].as_py()
    return found


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "events")
    for name in ("a", "b", "c"):
        table.write(name)
    return table


def test_changed_files_are_stale_and_new_ones_missing(table: Table) -> None:
    """``a`` is replaced by one of equal size, ``c`` is gone, ``d`` new: only ``b`` is current."""
    table.build(MINMAX)
    table.write("new", b"tada")
    (table.root / "new").rename(table.root / "a")
    (table.root / "c").unlink()
    table.write("d")
    matched = table.store.snapshot().match(table.listing())
    assert matched.has_fact.tolist() == [False, True, False]
    assert matched.stale.tolist() == [True, False, False]
    assert matched.missing.tolist() == [False, False, True]
    assert matched.orphaned == 1
    assert minima(matched) == [None, 10, None]
    (reason,) = matched.reasons
    assert (reason.cause, reason.units) == (Cause.STALE, 1)


def as_spark(files: Listing) -> Listing:
    """The same listing as Spark has it: milliseconds, no etags."""
    return Listing(
        root=files.root,
        paths=files.paths,
        sizes=files.sizes,
        mtimes=files.mtimes // 10**6,
        unit="ms",
    )


def test_a_listing_that_knows_less_matches_too(table: Table) -> None:
    table.build(MINMAX)
    assert table.store.snapshot().match(as_spark(table.listing())).has_fact.all()


def test_facts_of_two_versions_that_a_listing_cannot_tell_apart_say_nothing(table: Table) -> None:
    """``a`` is replaced by one of equal size with its time restored, and indexed again.

    The full listing sees by the etag which fact is current; Spark's cannot, and one of the two
    facts is wrong.
    """
    table.build(MINMAX)
    status = (table.root / "a").stat()
    table.write("new", b"tada")
    (table.root / "new").rename(table.root / "a")
    os.utime(table.root / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
    files = table.listing()
    changed = FileFacts(
        id=files.object_id(0),
        row_count=7,
        values={MINMAX: pa.array([{"min": 5, "max": 6}], MINMAX.stored_type(pa.int64()))},
    )
    table.store.write_part([changed], [MINMAX], SCHEMA)
    snapshot = table.store.snapshot()
    assert minima(snapshot.match(files)) == [5, 10, 20]
    assert snapshot.match(files).rows.tolist() == [7, 11, 11]
    poor = snapshot.match(as_spark(files))
    assert poor.has_fact.tolist() == [False, True, True]
    assert poor.stale.tolist() == [True, False, False]
    assert minima(poor) == [None, 10, 20]
    assert "cannot distinguish" in str(poor.reasons[0])
    compact(table.store, table.listing)
    assert minima(table.store.snapshot().match(as_spark(files))) == [5, 10, 20]


SECOND: tuple[int, TimeUnit] = (1_700_000_000, "s")
NANOSECOND: tuple[int, TimeUnit] = (1_700_000_000_123_456_789, "ns")


@pytest.mark.parametrize(
    "other, same",
    [
        ((1_700_000_000_123_456_789, "ns"), True),
        ((1_700_000_000_123_456_790, "ns"), False),
        ((1_700_000_000_123_456, "us"), True),
        ((1_700_000_000_123_457, "us"), False),
        ((1_700_000_000_123, "ms"), True),
        ((1_700_000_000_124, "ms"), False),
        (SECOND, True),
    ],
)
@pytest.mark.parametrize("coarse_beside", [False, True])
def test_two_facts_of_one_file_have_one_time(
    tmp_path: Path, other: tuple[int, TimeUnit], same: bool, coarse_beside: bool
) -> None:
    """The listing knows seconds, and so may facts of another file."""
    store = Store.of_table(str(tmp_path / "t"))
    facts = [("a", NANOSECOND), ("a", other), ("b", NANOSECOND)]
    facts += [("b", SECOND)] * coarse_beside
    for name, (mtime, unit) in facts:
        store.write_part(
            [FileFacts(id=ObjectId(path=f"/t/{name}", size=1, mtime=mtime, unit=unit))],
            [],
            pa.schema([]),
        )
    files = [ObjectId(path=f"/t/{name}", size=1, mtime=SECOND[0], unit="s") for name in "ab"]
    matched = store.snapshot().match(Listing.of("/t", files, "s"))
    assert matched.has_fact.tolist() == [same, True]
    assert matched.stale.tolist() == [not same, False]


@pytest.mark.parametrize("extreme", [-(2**63), 2**63 - 1])
def test_times_out_of_range_match_nothing(tmp_path: Path, extreme: int) -> None:
    store = Store.of_table(str(tmp_path / "t"))
    id_ = ObjectId(path="/t/a", size=1, mtime=extreme, unit="ns")
    store.write_part([FileFacts(id=id_)], [], pa.schema([]))
    matched = store.snapshot().match(Listing.of("/t", [id_]))
    assert matched.has_fact.tolist() == [False]
    assert matched.stale.tolist() == [False]


def test_facts_under_other_options_say_nothing(table: Table) -> None:
    """File 0 is indexed as a header says, file 1 without, file 2 with both."""
    for fingerprint, only in (("header", [0, 2]), (None, [1, 2])):
        facts = table.facts(MINMAX, only=only)
        table.store.write_part(facts, [MINMAX], SCHEMA, fingerprint)
    snapshot, files = table.store.snapshot(), table.listing()
    assert snapshot.match(files, "header").has_fact.tolist() == [True, False, True]
    assert snapshot.match(files).has_fact.tolist() == [False, True, True]
    none = snapshot.match(files, "other")
    assert none.stale.all()
    assert "other reader options" in str(none.reasons[0])
    compact(table.store, table.listing)  # facts under any options are worth keeping
    snapshot = table.store.snapshot()
    assert snapshot.match(files, "header").has_fact.tolist() == [True, False, True]
    assert snapshot.match(files).has_fact.tolist() == [False, True, True]


def test_only_what_a_predicate_names_is_read(table: Table) -> None:
    table.build(MINMAX, VALUES)
    snapshot = table.store.snapshot()
    matched = snapshot.match(table.listing())
    assert [repr(each) for each in matched.evidence({"s"})] == ["valuelist(s)", "nulls(s)"]
    assert {
        field.key[1] for field in snapshot.fields if (field.key, frozenset()) in snapshot._columns
    } == {field.key[1] for field in snapshot.fields if "s_" in field.arrow.name}
    assert matched.evidence(set()) == []
    assert matched.evidence({"S", "elsewhere"}) == []


def test_every_file_gets_the_newest_value_that_it_has(table: Table) -> None:
    """Old facts for all three files; new ones for file 1, without an index value, and file 2."""
    table.build(MINMAX)
    id_ = table.listing().object_id
    typed = MINMAX.stored_type(pa.int64())
    newer = [
        FileFacts(id=id_(1), row_count=11, values={MINMAX: None}),
        FileFacts(id=id_(2), values={MINMAX: pa.array([{"min": 7, "max": 8}], typed)}),
    ]
    table.store.write_part(newer, [MINMAX], SCHEMA)
    assert minima(table.store.snapshot().match(table.listing())) == [0, 10, 7]


def test_the_most_recent_parameters_define_and_all_give_evidence(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One index over ``s`` with two limits, in two parts; the clock says which is newer."""
    ticks = iter(range(10**18, 10**19, 10**9))
    monkeypatch.setattr("skipstone.facts.store.time.time_ns", lambda: next(ticks))
    old, new = ValueList("s", max_values=5), ValueList("s", max_values=9)
    table.build(old, only=[0, 1])
    table.build(new, only=[1, 2])
    (definition,) = table.store.snapshot().definitions
    assert definition.index == new
    for _ in range(2):
        matched = table.store.snapshot().match(table.listing())
        found = {e: e.stored for e in matched.evidence({"s"}) if e.name == "valuelist"}
        assert found.keys() == {old, new}
        rows = {e: (s.row_of_file >= 0).tolist() for e, s in found.items() if s is not None}
        assert rows == {old: [True, True, False], new: [False, True, True]}
        compact(table.store, table.listing)
    (definition,) = table.store.snapshot().definitions
    assert definition.index == new


def test_facts_of_a_column_under_two_types_stay_apart(table: Table) -> None:
    table.build(MINMAX, only=[0])
    narrow = pa.schema([("id", pa.int32())])
    from tests.facts.facts import facts

    fact = facts(table.listing().object_id(1), {"id": pa.array([3], pa.int32())}, MinMax("id"))
    table.store.write_part([fact], [MinMax("id")], narrow)
    for _ in range(2):
        matched = table.store.snapshot().match(table.listing())
        found = [(e.name, str(e.stored.type)) for e in matched.evidence({"id"}) if e.stored]
        assert sorted(found) == [
            ("minmax", "int32"),
            ("minmax", "int64"),
            ("nulls", "int32"),
            ("nulls", "int64"),
        ]
        counts = {
            str(e.stored.type): e.stored.nulls.tolist()
            for e in matched.evidence({"id"})
            if e.name == "minmax" and e.stored is not None
        }
        compact(table.store, table.listing)
    assert counts == {"int64": [1, -1], "int32": [-1, 0]}


def test_unknown_kinds_say_nothing_with_a_reason(table: Table) -> None:
    table.build(Strange("id", pa.int64()), MINMAX)
    matched = table.store.snapshot().match(table.listing())
    assert sorted(each.name for each in matched.evidence({"id"})) == ["minmax", "nulls"]
    (reason,) = matched.reasons
    assert reason.cause is Cause.UNSUPPORTED
    assert "'strange'" in reason.text


def test_values_that_are_not_of_their_kinds_type_say_nothing(table: Table) -> None:
    class Impostor(Strange):
        name = "minmax"

    table.build(Impostor("id", pa.int64()))
    matched = table.store.snapshot().match(table.listing())
    assert [each.name for each in matched.evidence({"id"})] == ["nulls"]
    assert "is expected" in matched.reasons[0].text


def test_a_kind_that_raises_says_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.build(MINMAX)
    matched = table.store.snapshot().match(table.listing())

    def broken(self: Index, type: pa.DataType) -> pa.DataType:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(MinMax, "stored_type", broken)
    assert [each.name for each in matched.evidence({"id"})] == ["nulls"]
    assert "oops" in matched.reasons[0].text


def test_what_kinds_derive_lives_as_long_as_the_snapshot(table: Table) -> None:
    table.build(MINMAX)
    snapshot = table.store.snapshot()
    first = snapshot.match(table.listing()).evidence({"id"})[0]
    assert first.stored is not None
    first.stored.cache["sorted"] = 1
    again = table.store.snapshot().match(as_spark(table.listing())).evidence({"id"})[0]
    assert again.stored is not None
    assert again.stored.cache == {"sorted": 1}


def test_an_empty_listing_and_an_empty_store(table: Table) -> None:
    nothing = table.listing().where([])
    assert len(table.store.snapshot().match(nothing)) == 0
    table.build(MINMAX)
    matched = table.store.snapshot().match(nothing)
    assert matched.orphaned == 3
    assert [e.stored.row_of_file.tolist() for e in matched.evidence({"id"}) if e.stored] == [[], []]


def test_facts_of_other_tables_at_the_same_place_are_no_orphans(tmp_path: Path) -> None:
    one, two = Table(tmp_path / "one"), Table(tmp_path / "one more")
    two.store = one.store = Store.of_table(str(one.root), str(tmp_path / "index"))
    one.write("a")
    two.write("a")
    one.build(MINMAX)
    two.build(MINMAX)
    assert one.store.snapshot().match(one.listing()).orphaned == 0
    compact(one.store, one.listing)
    assert two.store.snapshot().match(two.listing()).has_fact.tolist() == [True]


def test_values_beyond_a_gibibyte_come_in_pieces(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is lowered to a few bytes: each part becomes evidence of its own."""
    monkeypatch.setattr("skipstone.facts.part_columns._PIECE", 8)
    for at in range(3):
        table.build(MINMAX, only=[at])
    matched = table.store.snapshot().match(table.listing())
    pieces = [each for each in matched.evidence({"id"}) if each.name == "minmax"]
    assert len(pieces) == 3
    assert minima(matched) == [0, 10, 20]
    assert all(e.stored is not None and len(e.stored.values) == 1 for e in pieces)


def test_sizes_that_nobody_knows_fit_any(tmp_path: Path) -> None:
    store = Store.of_table(str(tmp_path / "t"))
    store.write_part(
        [FileFacts(id=ObjectId(path="/t/a", size=None, mtime=5, unit="ms"))], [], pa.schema([])
    )
    file = ObjectId(path="/t/a", size=9, mtime=5_000_001, unit="ns", etag="e")
    assert store.snapshot().match(Listing.of("/t", [file])).has_fact.tolist() == [True]


def test_rows_are_counted_per_file(table: Table) -> None:
    table.build(MINMAX, only=[2, 0])
    matched = table.store.snapshot().match(table.listing())
    assert matched.rows.tolist() == [11, -1, 11]
    assert matched.rows.dtype == np.int64


# -- snapshots -------------------------------------------------------------------------------------


def test_a_snapshot_is_kept_while_the_parts_are_the_same(table: Table) -> None:
    table.build(MINMAX, only=[0])
    store = table.store
    first = store.snapshot()
    assert store.snapshot() is first
    table.build(MINMAX, only=[1])
    second = store.snapshot()
    assert second is not first
    assert second.parts[0] is first.parts[0]  # its footer is not read again


def test_a_snapshot_with_a_broken_part_is_kept_too(table: Table) -> None:
    table.build(MINMAX, only=[0])
    (name,) = table.build(MINMAX, only=[1])
    table.store.storage.put(table.store.location.part(name), b"broken")
    first = table.store.snapshot()
    assert len(first.parts) == 1
    assert table.store.snapshot() is first


def test_a_part_that_the_store_did_not_give_is_asked_for_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.build(MINMAX, only=[0])
    store = Store.of_table(str(table.root))
    real = store.storage.open

    def away(path: str, version: ObjectId | None = None) -> object:
        raise TimeoutError(110, "Connection timed out")

    monkeypatch.setattr(store.storage, "open", away)
    (reason,) = store.snapshot().reasons
    assert reason.cause is Cause.UNREADABLE
    monkeypatch.setattr(store.storage, "open", real)
    assert store.snapshot().reasons == ()
    assert store.snapshot().match(table.listing()).has_fact[0]


def test_a_store_that_cannot_be_listed_says_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.build(MINMAX)

    def refusing(path: object) -> object:
        raise PermissionError(13, "Permission denied", path)

    files = table.listing()
    monkeypatch.setattr(os, "scandir", refusing)
    matched = table.store.snapshot().match(files)
    assert not matched.has_fact.any()
    (reason,) = matched.reasons
    assert reason.cause is Cause.UNREADABLE
    assert "Permission denied" in reason.text


def test_a_part_that_goes_between_listing_and_reading_is_made_up_for(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction replaces both parts after they were listed: the next listing has its part."""
    table.build(MINMAX, only=[0])
    table.build(MINMAX, only=[1])
    store = Store.of_table(str(table.root))
    names = store.part_names
    compacted: list[object] = []

    def listed() -> dict[str, tuple[int, int]]:
        found = names()
        if not compacted:
            compacted.append(compact(table.store, table.listing))
        return found

    monkeypatch.setattr(store, "part_names", listed)
    snapshot = store.snapshot()
    assert snapshot.reasons == ()
    assert snapshot.match(table.listing()).has_fact.tolist() == [True, True, False]
