"""Bloom filters that are read in pieces: the answers of whole filters, few bytes, and damage that
is found wherever it matters.

A file here is an identity with some values; its filters are large, so that their part has pieces. A
store is asked twice: the first keys of a process in pieces, later ones by the whole column.
"""

from __future__ import annotations

import random
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.facts import Store
from skipstone.facts.check import check
from skipstone.facts.compact import compact
from skipstone.facts.filter_pieces import pieces_of
from skipstone.facts.index_encryption import IndexEncryption
from skipstone.facts.parts import PIECES
from skipstone.facts.read_ahead import Background
from skipstone.identity import ObjectId
from skipstone.indexes.bloom import Bloom
from skipstone.parquet.encryption.master_keys import labelled_keys
from skipstone.planning.table_facts import ObjectPlanRequest, plan_objects
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.pruning import Cause
from skipstone.pruning.partitions import PartitionColumns
from skipstone.storage import Listing
from skipstone.storage.base import metered
from tests.facts.facts import facts

if TYPE_CHECKING:
    from skipstone.facts import MatchedFacts
    from skipstone.facts.part_columns import FactColumn, FactField
    from skipstone.pruning.plan import Plan

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
INDEXES = [Bloom("n", fpp=1e-4), Bloom("s", fpp=1e-4)]
EACH = 10_000


def values(number: int) -> dict[str, pa.Array]:
    """The columns of a file: numbers and texts that no other file has."""
    n = np.arange(number * EACH, (number + 1) * EACH, dtype=np.int64) * 7
    return {"n": pa.array(n), "s": pa.array([f"text {x}" for x in n.tolist()])}


def identity(number: int) -> ObjectId:
    return ObjectId(path=f"/t/f{number:04d}", size=100 + number, mtime=number, unit="ns")


class Facts:
    """A store with the facts of ``count`` files, in parts of ``each``; some have only nulls."""

    def __init__(self, root: Path, count: int = 24, each: int = 24, empty: int = -1) -> None:
        self.root, self.count = root, count
        self.listing = Listing.of("/t", [identity(number) for number in range(count)], "ns")
        store = Store.of_table(str(root / "t"))
        for first in range(0, count, each):
            made = []
            for number in range(first, min(first + each, count)):
                columns = values(number)
                if number == empty:
                    columns = {name: pa.nulls(3, SCHEMA.field(name).type) for name in SCHEMA.names}
                made.append(facts(identity(number), columns, *INDEXES))
            store.write_part(made, INDEXES, SCHEMA)

    @property
    def store(self) -> Store:
        """Opened as a new process opens it."""
        return Store.of_table(str(self.root / "t"))

    def parts(self) -> list[Path]:
        return sorted(Path(self.store.location.facts).glob("part-*"))

    def matched(self) -> MatchedFacts:
        return self.store.snapshot().match(self.listing)

    def plan(self, where: str, matched: MatchedFacts | None = None) -> Plan:
        return plan_objects(
            ObjectPlanRequest(
                tree=bind(parse_sql(where), SCHEMA),
                listing=self.listing,
                matches=[self.matched() if matched is None else matched],
                partitions=PartitionColumns({}),
                table="/t",
                predicate=where,
            )
        )


def filters_held(matched: MatchedFacts) -> list[Any]:
    """The columns of filters in memory."""
    held = matched.snapshot._columns
    return [key for key, pieces in held.items() if pieces and "bloomfilter" in str(key)]


def kept(plan: Plan) -> list[int]:
    return [int(at) for at in np.flatnonzero(plan.keep)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return Facts(tmp_path_factory.mktemp("pieces"), 24, 12, empty=5)


@given(st.data())
def test_pieces_answer_as_whole_filters_do(written: Facts, data: st.DataObject) -> None:
    """Keys that files have, and keys that none has, of parts with and without nulls."""
    matched, often = written.matched(), written.matched()
    often.snapshot.asked.update({each.key: 1_000 for each in often.snapshot.fields})
    for each in often.snapshot.fields:
        often.snapshot.values(each, often.sliced_parts(each))
    number = st.integers(-50, 24 * EACH * 7 + 50)
    n, more = data.draw(number), data.draw(st.lists(number, min_size=1, max_size=6))
    texts = ", ".join(f"'text {x}'" for x in more)
    for where in (
        f"n = {n}",
        f"n IN ({', '.join(map(str, more))})",
        f"s = 'text {n}'",
        f"s IN ({texts})",
        f"n = {n} AND s = 'text {n}'",
        f"n = {n} OR s IN ({texts})",
        f"NOT (n <> {n})",
        f"n <=> {n}",
    ):
        matched.snapshot.asked.clear()
        plan, whole = written.plan(where, matched), written.plan(where, often)
        assert not filters_held(matched), where
        assert filters_held(often), where
        assert kept(plan) == kept(whole), where
        assert plan.must.tolist() == whole.must.tolist(), where
        assert [str(each) for each in plan.reasons] == [str(each) for each in whole.reasons]
        of = [(each.index, each.considered, each.kept) for each in plan.steps if each.used]
        assert sum(kept_ for _, _, kept_ in of[-1:]) == plan.files_kept
    at = n // 7 // EACH
    if n >= 0 and n % 7 == 0 and at not in (5, 24):
        assert at in kept(written.plan(f"n = {n}"))


def test_eight_lookups_read_a_few_pieces_each_and_then_a_thread_reads_all(written: Facts) -> None:
    matched = written.matched()
    column = sum(path.stat().st_size for path in written.parts()) / 2
    for turn in range(8):
        with metered() as meter:
            assert kept(written.plan(f"n = {7 * EACH * 9 + 7 * turn}", matched)) == [9]
        assert meter.bytes_read < column / (2 if turn else 1)
        assert not filters_held(matched)
    assert not matched.snapshot.background.threads
    assert kept(written.plan(f"n = {7 * EACH * 9}", matched)) == [9]
    (reader,) = matched.snapshot.background.threads.values()
    reader.join()
    assert len(filters_held(matched)) == 1
    with metered() as meter:
        assert kept(written.plan(f"n = {7 * EACH * 4}", matched)) == [4]
    assert meter.bytes_read == 0
    assert len(matched.snapshot.background.threads) == 1


def test_callers_at_once_start_one_thread() -> None:
    """The second finds a thread that is not started yet, and reads by itself."""
    background, others, read = Background(), list[bool](), list[int]()

    class Slow(Thread):
        def start(self) -> None:
            others.append(background.is_running("key", lambda: read.append(2)))
            super().start()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skipstone.facts.read_ahead.Thread", Slow)
        background.is_running("key", lambda: read.append(1))
    background.threads["key"].join()
    assert (others, read) == ([False], [1])
    assert not background.is_running("key", lambda: read.append(3))


def test_a_lookup_does_not_wait_for_the_thread(written: Facts) -> None:
    matched, may_read = written.matched(), Event()
    matched.snapshot.asked.update({each.key: 1_000 for each in matched.snapshot.fields})
    real = matched.snapshot.values

    def values(field: FactField, without: frozenset[str] = frozenset()) -> list[FactColumn]:
        if "bloomfilter" in str(field.key) and not without:
            assert may_read.wait(60)
        return real(field, without)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matched.snapshot, "values", values)
        assert kept(written.plan(f"n = {7 * EACH * 9}", matched)) == [9]
        assert not filters_held(matched)
        may_read.set()
        for reader in matched.snapshot.background.threads.values():
            reader.join()
        assert kept(written.plan(f"n = {7 * EACH * 9}", matched)) == [9]
    assert len(filters_held(matched)) == 1


def test_a_list_of_keys_reads_whole_filters(written: Facts) -> None:
    matched = written.matched()
    wanted = ", ".join(
        str(7 * (EACH * number + at)) for number in range(0, 24, 2) for at in range(5)
    )
    assert kept(written.plan(f"n IN ({wanted})", matched)) == list(range(0, 24, 2))
    assert len(filters_held(matched)) == 1


def test_a_merge_makes_the_pieces_again(tmp_path: Path) -> None:
    made = Facts(tmp_path, 12, 3)
    compact(made.store, lambda: made.listing)
    (part,) = made.parts()
    names = pq.read_schema(pa.py_buffer(part.read_bytes())).names
    assert len([name for name in names if name.endswith(PIECES)]) == 2
    matched = made.matched()
    assert not [each for each in matched.snapshot.fields if each.arrow.name.endswith(PIECES)]
    for number in range(12):
        assert kept(made.plan(f"n = {7 * EACH * number + 70}")) == [number]
    assert kept(made.plan("s = 'text 35'", matched)) == [0]
    assert not filters_held(matched)


def test_parts_without_pieces_are_asked_beside_those_with_them(tmp_path: Path) -> None:
    """A refresh of two files writes a part of small filters."""
    made = Facts(tmp_path, 12)
    made.count = 14
    small = [
        facts(identity(at), {name: each[:9] for name, each in values(at).items()}, *INDEXES)
        for at in (12, 13)
    ]
    made.listing = Listing.of("/t", [identity(number) for number in range(14)], "ns")
    made.store.write_part(small, INDEXES, SCHEMA)
    for number in (0, 11, 12, 13):
        plan = made.plan(f"n = {7 * EACH * number + 7}")
        assert kept(plan) == [number]
        assert plan.facts_fresh == 14


def test_an_encrypted_index_has_no_pieces(tmp_path: Path) -> None:
    plain = Store.of_table(str(tmp_path / "t"))
    store = Store(plain.location, plain.storage, labelled_keys({"k": b"K" * 16}))
    made = [facts(identity(number), values(number), *INDEXES) for number in range(12)]
    how = store.encryption_to_write(IndexEncryption(footer_key="k"))
    store.write_part(made, INDEXES, SCHEMA, encryption=how)
    snapshot = store.snapshot()
    assert not [name for part in snapshot.parts for name in part.schema.names if PIECES in name]


# -- damage ----------------------------------------------------------------------------------------


def filters_of(part: Path) -> tuple[int, int]:
    """Where the chunk of the filters of ``n`` lies."""
    footer = pq.read_metadata(pa.py_buffer(part.read_bytes()))
    for at in range(footer.num_columns):
        column = footer.row_group(0).column(at)
        if column.path_in_schema.startswith("n_bloomfilter") and "~" not in column.path_in_schema:
            return column.data_page_offset, column.total_compressed_size
    raise AssertionError("no filters")


def test_a_damaged_byte_never_costs_a_file(tmp_path: Path) -> None:
    """Any byte of the filters: the plan keeps the file of the key, and where a damaged piece was
    needed, all files of the part, with the reason that the whole column gives."""
    made = Facts(tmp_path, 12)
    (part,) = made.parts()
    good = part.read_bytes()
    start, length = filters_of(part)
    rng = random.Random(7)
    found = 0
    for _ in range(30):
        at = start + rng.randrange(length)
        bad = bytearray(good)
        bad[at] ^= 1 << rng.randrange(8)
        part.write_bytes(bad)
        for number in (0, 7, 11):
            plan = made.plan(f"n = {7 * EACH * number + 21}")
            assert number in kept(plan)
            corrupt = [
                each
                for each in (*plan.reasons, *(r for s in plan.steps for r in s.reasons))
                if each.cause is Cause.CORRUPT
            ]
            if corrupt:
                assert kept(plan) == list(range(12))
                assert any(part.name in str(each) for each in corrupt)
            else:
                assert kept(plan) == [number]
            found += bool(corrupt)
        assert not check(made.store, made.listing).ok
    assert found


def test_filters_full_of_zeros_are_found_damaged(tmp_path: Path) -> None:
    """Every bit of every filter is unset: no plan may believe it."""
    made = Facts(tmp_path, 12)
    (part,) = made.parts()
    data = bytearray(part.read_bytes())
    start, length = filters_of(part)
    data[start + 2_000 : start + length] = bytes(length - 2_000)
    part.write_bytes(data)
    plan = made.plan(f"n = {7 * EACH * 6}")
    assert kept(plan) == list(range(12))


@pytest.mark.parametrize("left", [0.3, 0.9])
def test_a_part_that_is_cut_proves_nothing(tmp_path: Path, left: float) -> None:
    """The facts were opened, then the part loses its end."""
    made = Facts(tmp_path, 12)
    matched = made.matched()
    assert len(matched.snapshot.identities) == 12
    (part,) = made.parts()
    data = part.read_bytes()
    part.write_bytes(data[: int(len(data) * left)])
    assert 6 in kept(made.plan(f"n = {7 * EACH * 6}", matched))


def test_a_part_that_is_gone_after_it_was_opened_proves_nothing(tmp_path: Path) -> None:
    made = Facts(tmp_path, 12)
    matched = made.matched()
    assert kept(made.plan(f"n = {7 * EACH * 6}", matched)) == [6]
    (part,) = made.parts()
    part.unlink()
    assert kept(made.plan(f"n = {7 * EACH * 7}", matched)) == list(range(12))


def test_pieces_of_other_filters_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that put the pieces of each file beside the filter of another."""

    def mistaken(filters: pa.ChunkedArray) -> pa.Array | None:
        return pieces_of(filters.take(pa.array(range(len(filters))[::-1])))

    monkeypatch.setattr("skipstone.facts.part_writer.pieces_of", mistaken)
    made = Facts(tmp_path, 12)
    for number in range(12):
        assert kept(made.plan(f"n = {7 * EACH * number}")) == [number]
