"""Builds, compactions, drops and vacuums in any order, cut off anywhere or entered by another.

The model knows the version of every data file. At any moment, what the facts say of a file must be
true of its version of that moment; and what was published of that version must be there, unless an
index was dropped since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from skipstone.facts import Store
from skipstone.facts.compact import compact, drop_index
from skipstone.facts.encode import FileFacts
from skipstone.facts.vacuum import vacuum
from skipstone.identity import ObjectId
from skipstone.indexes.minmax import MinMax
from skipstone.storage import Listing
from tests.facts.facts import SCHEMA, Strange, sidecar_at, sidecar_place
from tests.facts.memory import Crash, Interrupted, MemoryStorage

if TYPE_CHECKING:
    from skipstone.pruning.kind import Index

NAMES = ["/t/a", "/t/b b", "/t/é"]
OTHER = MinMax("é.b")
INDEXES: list[Index] = [MinMax("id"), OTHER, Strange("id", pa.list_(pa.int64()))]
CUT = st.tuples(st.integers(1, 12), st.booleans(), st.booleans())
SOME = st.lists(st.sampled_from(INDEXES), unique=True, min_size=1)
PLACE = st.sampled_from([0, 20, 600])


def fact(id_: ObjectId, version: int, indexes: list[Index], sidecar: int) -> FileFacts:
    """What a build would find in this version of a file: every value tells the version."""
    values = {
        INDEXES[0]: pa.array(
            [{"min": version, "max": version}], INDEXES[0].stored_type(pa.int64())
        ),
        OTHER: pa.array([{"min": version, "max": version}], OTHER.stored_type(pa.float64())),
        INDEXES[2]: pa.array([[version, None, version]], pa.list_(pa.int64())),
    }
    return FileFacts(
        id=id_,
        row_count=version,
        null_counts=dict.fromkeys(("id", "é.b"), version),
        values={index: values[index] for index in indexes},
        container=version.to_bytes(4, "big") * (sidecar // 4) if sidecar else None,
    )


class Life(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.store = self.fresh()
        self.files: dict[str, tuple[ObjectId, int]] = {}
        self.versions = 0
        self.expected: set[tuple[str, int, Index]] = set()
        self.slow: list[tuple[list[FileFacts], list[Index]]] = []

    def fresh(self, storage: MemoryStorage | None = None) -> Store:
        """Another process: nothing is remembered."""
        return Store("/_t.skipstone", storage or self.storage)

    def listing(self) -> Listing:
        return Listing.of("/t", [id_ for id_, _ in self.files.values()])

    def facts(self, indexes: list[Index], sidecar: int) -> list[FileFacts]:
        return [fact(id_, version, indexes, sidecar) for id_, version in self.files.values()]

    # -- the data ---------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for name in NAMES:
            self.write(name, restore=False)

    @rule(name=st.sampled_from(NAMES), restore=st.booleans())
    def write(self, name: str, restore: bool) -> None:
        """A new version, of equal size; with ``restore`` only the etag tells it from the last."""
        self.versions += 1
        before = self.files.get(name)
        mtime = before[0].mtime if before and restore else self.storage.now()
        id_ = ObjectId(path=name, size=7, mtime=mtime, unit="ns", etag=str(self.versions))
        self.files[name] = (id_, self.versions)

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    # -- builds -----------------------------------------------------------------------------------

    @rule(indexes=SOME, sidecar=PLACE)
    def build(self, indexes: list[Index], sidecar: int) -> None:
        self.publish(self.store, self.facts(indexes, sidecar), indexes)

    def publish(self, store: Store, facts: list[FileFacts], indexes: list[Index]) -> None:
        store.write_part(facts, indexes, SCHEMA)
        for each in facts:
            for index in indexes:
                self.expected.add((each.id.path, each.row_count, index))

    @rule(indexes=SOME, sidecar=PLACE)
    def begin_slow_build(self, indexes: list[Index], sidecar: int) -> None:
        """A task reads the files as they are now and publishes much later."""
        self.slow.append((self.facts(indexes, sidecar), indexes))

    @rule()
    def end_slow_build(self) -> None:
        if self.slow:
            self.publish(self.fresh(), *self.slow.pop(0))

    # -- upkeep -----------------------------------------------------------------------------------

    @rule()
    def compact(self) -> None:
        compact(self.store, self.listing)

    @rule(index=st.sampled_from(INDEXES))
    def drop(self, index: Index) -> None:
        self.forget(index)
        drop_index(self.store, index.name, index.column)

    def forget(self, index: Index) -> None:
        """A drop has begun: from here on its facts may be there or not."""
        self.expected = {each for each in self.expected if each[2] != index}

    @rule()
    def vacuum(self) -> None:
        vacuum(self.store, older_than=-1)

    @rule(days=st.booleans())
    def restart(self, days: bool) -> None:
        self.store = self.fresh()
        self.storage.time += 2 * 86400 * 10**9 * days

    # -- what goes wrong --------------------------------------------------------------------------

    def work(self, kind: str, index: Index, storage: MemoryStorage | None = None) -> None:
        """One operation by a process of its own."""
        store = self.fresh(storage)
        if kind == "build":
            self.publish(store, self.facts([index], 600), [index])
        elif kind == "compact":
            compact(store, self.listing)
        elif kind == "drop":
            self.forget(index)
            drop_index(store, index.name, index.column)
        else:
            # Nothing is older than a day but what the clock has left behind.
            vacuum(store)

    @rule(
        kind=st.sampled_from(["build", "compact", "drop", "vacuum"]),
        index=st.sampled_from(INDEXES),
        cut=CUT,
    )
    def crash(self, kind: str, index: Index, cut: tuple[int, bool, bool]) -> None:
        self.cut_off(kind, index, cut)

    def cut_off(self, kind: str, index: Index, cut: tuple[int, bool, bool]) -> bool:
        """Run ``kind`` until it dies; False when it was done before."""
        at, halfway, late = cut

        def die() -> None:
            raise Crash

        broken = Interrupted(self.storage, at, die, halfway=halfway, late=late)
        try:
            self.work(kind, index, broken)
        except Crash:
            self.store = self.fresh()
            return True
        return False

    @rule(
        one=st.sampled_from(["build", "compact", "drop", "vacuum"]),
        two=st.sampled_from(["build", "compact", "drop", "vacuum", "write"]),
        index=st.sampled_from(INDEXES),
        other=st.sampled_from(INDEXES),
        at=st.integers(1, 12),
        late=st.booleans(),
    )
    def both(self, one: str, two: str, index: Index, other: Index, at: int, late: bool) -> None:
        """Operation ``two`` happens as a whole between two storage operations of ``one``."""
        dropping = [i for kind, i in ((one, index), (two, other)) if kind == "drop"]

        def enter() -> None:
            if two == "write":
                self.write(NAMES[0], restore=True)
            else:
                self.work(two, other)

        self.work(one, index, Interrupted(self.storage, at, enter, late=late))
        for each in dropping:
            self.forget(each)

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def facts_are_true_and_there(self) -> None:
        for store in (self.store, self.fresh()):
            matched = store.snapshot().match(self.listing())
            assert all(str(r).startswith(("/t", "strange", "/_t")) for r in matched.reasons)
            said = self.said(matched)
            for at, path in enumerate(matched.listing.paths):
                version = self.files[path][1]
                assert matched.rows[at] in (-1, version)
                place = sidecar_place(matched, "container", at)
                if place is not None:
                    data = sidecar_at(place, self.storage)
                    assert data is not None
                    assert data == version.to_bytes(4, "big") * (len(data) // 4)
                for index in INDEXES:
                    found = said.get((path, index))
                    assert found in (None, value_of(index, version))
                    if (path, version, index) in self.expected:
                        assert found is not None, f"{index!r} of {path} is lost"

    def said(self, matched: object) -> dict[tuple[str, Index], object]:
        """Every value that a current fact has, known kind or not, by file and index."""
        from skipstone.facts import MatchedFacts

        assert isinstance(matched, MatchedFacts)
        found: dict[tuple[str, Index], object] = {}
        for each in matched.evidence({"id", "é.b"}):
            assert each.stored is not None
            for at, row in enumerate(each.stored.row_of_file.tolist()):
                if row >= 0:
                    version = self.files[matched.listing.paths[at]][1]
                    assert each.stored.nulls[row] in (-1, version)
        for field in matched.snapshot.fields:
            for index in INDEXES:
                definition = field.definition
                if definition and (definition.kind, definition.columns) == (
                    index.name,
                    (index.column,),
                ):
                    for piece in matched.snapshot.values(field):
                        for at, value in zip(piece.at, piece.values.to_pylist(), strict=True):
                            file = matched.file_of_row[at]
                            if file >= 0 and value is not None:
                                found[matched.listing.paths[file], index] = value
        return found


def value_of(index: Index, version: int) -> object:
    if isinstance(index, Strange):
        return [version, None, version]
    return {"min": version, "max": version}


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=25)


@pytest.mark.long
def test_every_operation_cut_off_at_every_point() -> None:
    """The same without chance: each operation, each of its storage operations, each way to die."""
    deaths = 0
    for kind in ("build", "compact", "drop", "vacuum"):
        for halfway, late in ((False, False), (True, False), (False, True)):
            for at in range(1, 100):
                life = Life()
                life.begin()
                life.build([INDEXES[0]], 600)
                life.build([INDEXES[1], INDEXES[2]], 20)
                life.write(NAMES[1], restore=True)
                life.build([INDEXES[0]], 600)
                life.storage.time += 2 * 86400 * 10**9
                died = life.cut_off(kind, INDEXES[0], (at, halfway, late))
                life.facts_are_true_and_there()
                if not died:
                    break
                deaths += 1
                life.work(kind, INDEXES[0])
                life.facts_are_true_and_there()
    assert deaths > 100
