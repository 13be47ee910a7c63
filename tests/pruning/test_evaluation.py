"""One level: stages by cost, waves of bytes, only undecided units asked, and failing open."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.predicate.tree import And, Const, Leaf, Op, Opaque, Or
from skipstone.pruning import (
    Answer,
    BaseEvidence,
    Bounds,
    Cause,
    Fetched,
    Level,
    Reason,
    RowSet,
    Units,
)
from skipstone.pruning.bounds import Constants, row_constants
from skipstone.pruning.evaluation import (
    MAX_FAILURES,
    MAX_ROUNDS,
    Evaluation,
    RowTask,
    combine,
    evaluate,
    evaluate_rows,
    no_fetch,
)
from skipstone.storage import ByteRange
from tests.pruning.model import leaf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

A1, B1 = leaf("a", Op.EQ, 1), leaf("b", Op.EQ, 1)


def files(count: int) -> Units:
    return Units.objects(np.arange(count), np.full(count, 10))


@dataclass
class Told(BaseEvidence):
    """Answers every leaf with ``may`` and ``must`` flags, by file ordinal, after ``rounds``."""

    may: str  # "1" where the file may match, "0" where not
    must: str = ""
    column: str = "a"
    cost: float = 1.0
    name: str = "told"
    level: Level = Level.OBJECT
    rounds: Sequence[Sequence[ByteRange]] = ()
    log: list[str] = field(default_factory=list)
    asked: list[list[int]] = field(default_factory=list)

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        for ranges in self.rounds:
            if any(part not in have for part in ranges):
                return ranges
        return ()

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        assert all(part in have for ranges in self.rounds for part in ranges)
        self.log.append(self.name)
        self.asked.append(units.file.tolist())
        return [Answer(bounds=self.bounds(units)) for _ in leaves]

    def bounds(self, units: Units) -> Bounds[Any]:
        may = np.array([flag == "1" for flag in self.may])
        must = np.array([flag == "1" for flag in self.must or "0" * len(self.may)])
        return Bounds(must[units.file], may[units.file])


class Store:
    """Counts fetches; ``lost`` paths raise, ``short`` ones give a byte less."""

    def __init__(self, lost: set[str] | None = None, short: set[str] | None = None) -> None:
        self.calls: list[list[ByteRange]] = []
        self.lost, self.short = lost or set(), short or set()

    def __call__(self, ranges: Sequence[ByteRange]) -> Fetched:
        self.calls.append(list(ranges))
        for part in ranges:
            if part.path in self.lost:
                raise FileNotFoundError(part.path)
        return {p: bytes(p.length - (p.path in self.short)) for p in ranges}


def may_of(evaluation: Evaluation) -> str:
    return "".join("01"[flag] for flag in evaluation.bounds.may.astype(int))


def must_of(evaluation: Evaluation) -> str:
    return "".join("01"[flag] for flag in evaluation.bounds.must.astype(int))


# -- combining -------------------------------------------------------------------------------------


def test_combine_follows_the_tree() -> None:
    p = Bounds(np.array([True, False, False]), np.array([True, True, False]))
    q = Bounds(np.array([False, False, True]), np.array([True, False, True]))

    def shown(tree: Any) -> tuple[list[int], list[int]]:
        bounds = combine(tree, {A1: p, B1: q}, Constants(3))
        return bounds.must.astype(int).tolist(), bounds.may.astype(int).tolist()

    assert shown(A1) == ([1, 0, 0], [1, 1, 0])
    assert shown(And((A1, B1))) == ([0, 0, 0], [1, 0, 0])
    assert shown(Or((A1, B1))) == ([1, 0, 1], [1, 1, 1])
    assert shown(And((A1, Const(True)))) == ([1, 0, 0], [1, 1, 0])
    assert shown(Or((A1, Const(False)))) == ([1, 0, 0], [1, 1, 0])
    assert shown(Const(False)) == ([0, 0, 0], [0, 0, 0])
    opaque = Opaque("f(a)", "unknown")
    assert shown(And((A1, opaque))) == ([0, 0, 0], [1, 1, 0])
    assert shown(Or((A1, opaque))) == ([1, 0, 0], [1, 1, 1])
    assert shown(leaf("c", Op.EQ, 1)) == ([0, 0, 0], [1, 1, 1])
    assert shown(And(())) == ([1, 1, 1], [1, 1, 1])
    assert shown(Or(())) == ([0, 0, 0], [0, 0, 0])


def test_row_constants() -> None:
    constants = row_constants(4)
    unknown, nothing, everything = constants.unknown, constants.nothing, constants.everything
    assert (unknown.must, unknown.may) == (RowSet(), RowSet.all(4))
    assert (nothing.must, nothing.may) == (RowSet(), RowSet())
    assert (everything.must, everything.may) == (RowSet.all(4), RowSet.all(4))


# -- stages and who is asked -----------------------------------------------------------------------


def test_the_cheapest_are_asked_first_and_of_a_column_not_named_nobody() -> None:
    log: list[str] = []
    told = [
        Told("11", cost=3, name="bloom", log=log),
        Told("11", cost=1, name="minmax", log=log),
        Told("11", cost=2, name="list", log=log),
        Told("00", cost=0, name="other", log=log, column="b"),
    ]
    done = evaluate(A1, told, files(2))
    assert log == ["minmax", "list", "bloom"]
    assert [step.index for step in done.steps] == log
    assert may_of(done) == "11"


def test_only_undecided_units_are_asked_about() -> None:
    """Of 4 files the first stage excludes file 0 and decides file 1."""
    first = Told("0111", "0100", cost=1)
    second = Told("1101", cost=2)
    done = evaluate(A1, [second, first], files(4))
    assert (first.asked, second.asked) == ([[0, 1, 2, 3]], [[2, 3]])
    assert (may_of(done), must_of(done)) == ("0101", "0100")
    assert [(s.considered, s.kept, s.used) for s in done.steps] == [(4, 3, True), (3, 2, True)]


def test_what_one_leaf_decides_keeps_its_rows_when_others_are_asked_later() -> None:
    """a = 1 OR b = 1: file 0 is decided by a; what b says of files 1 and 2 must not reach it."""
    done = evaluate(
        Or((A1, B1)),
        [Told("111", "100", cost=1), Told("001", cost=2, column="b")],
        files(3),
    )
    assert (may_of(done), must_of(done)) == ("111", "100")
    both = evaluate(
        And((A1, B1)),
        [Told("110", cost=1), Told("100", "100", cost=2, column="b"), Told("111", cost=3)],
        files(3),
    )
    assert may_of(both) == "100"


def test_nobody_is_asked_when_all_is_decided() -> None:
    late = Told("11", cost=2, rounds=[[ByteRange("x", 0, 1)]])
    store = Store()
    done = evaluate(A1, [Told("01", "01", cost=1), late], files(2), fetch=store)
    assert late.asked == []
    assert store.calls == []
    assert must_of(done) == "01"
    assert done.steps[1].used is False
    assert done.steps[1].reasons == ()


def test_two_on_one_leaf_sharpen_each_other() -> None:
    done = evaluate(A1, [Told("0111", "0100"), Told("1011", "0001")], files(4))
    assert (may_of(done), must_of(done)) == ("0011", "0001")


def test_units_without_rows_hold_no_match_whatever_is_said() -> None:
    units = Units.objects(np.arange(3), np.array([0, -1, 5]))
    assert may_of(evaluate(A1, [], units)) == "011"
    assert must_of(evaluate(Const(True), [], units)) == "011"
    assert may_of(evaluate(A1, [Told("111", "111")], units)) == "011"


def test_inherited_bounds_hold_for_the_parts() -> None:
    """File 0 has no a = 1; of file 1 every row has b = 1. Parts: two of each."""
    coarse = evaluate(Or((A1, B1)), [Told("01"), Told("01", "01", column="b")], files(2))
    parts = Units(
        level=Level.ROW_GROUP,
        file=np.array([0, 0, 1, 1]),
        ordinal=np.array([0, 1, 0, 1]),
        first_row=np.array([0, 5, 0, 5]),
        rows=np.array([5, 5, 5, 5]),
    )
    parent = np.array([0, 0, 1, 1])
    inherited = coarse.descend(parent)
    fine = evaluate(And((A1, B1)), [], parts, inherited=inherited)
    assert may_of(fine) == "0011"
    assert inherited[B1].must.tolist() == [False, False, True, True]


# -- waves -----------------------------------------------------------------------------------------


def part(path: str, offset: int, length: int = 4) -> ByteRange:
    return ByteRange(path, offset, length)


def test_one_fetch_per_round_per_stage() -> None:
    """Two evidences of one stage, of three and one rounds; a third in a later stage."""
    three = Told("110", rounds=[[part("p", 0)], [part("p", 10), part("p", 20)], [part("p", 30)]])
    one = Told("011", rounds=[[part("q", 0), part("p", 0)]])
    late = Told("111", cost=2, rounds=[[part("r", 0, 8)]])
    store = Store()
    done = evaluate(A1, [three, late, one], files(3), fetch=store)
    assert store.calls == [
        [part("p", 0), part("q", 0)],  # asked by both, fetched once
        [part("p", 10), part("p", 20)],
        [part("p", 30)],
        [part("r", 0, 8)],
    ]
    assert may_of(done) == "010"
    assert [(s.requests, s.bytes_read) for s in done.steps] == [(4, 16), (1, 4), (1, 8)]


def test_an_empty_byte_range_arrives_too() -> None:
    done = evaluate(A1, [Told("01", rounds=[[part("p", 7, 0)]])], files(2), fetch=Store())
    assert may_of(done) == "01"


# -- failing open ----------------------------------------------------------------------------------


class Failing(Told):
    """Told, but something in it is replaced."""

    def __init__(self, *, cost: float = 1.0, **replaced: Callable[..., Any]) -> None:
        super().__init__("00", name="failing", cost=cost)
        for name, value in replaced.items():
            setattr(self, name, value)


def raises(error: Exception) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise error

    return call


def asks_for_ever(leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
    return [part("p", 4 * len(have))]


def flags(*values: object, dtype: Any = np.bool_) -> Bounds[Any]:
    array = np.array(values, dtype)
    return Bounds(np.zeros_like(array), array)


def answers(*given: Any) -> Callable[..., Any]:
    return lambda leaves, units, have: list(given)


BROKEN: dict[str, tuple[Failing, Cause, str]] = {
    "needs raises": (
        Failing(needs=raises(KeyError("dictionary"))),
        Cause.UNREADABLE,
        "KeyError: 'dictionary'",
    ),
    "needs is not a sequence": (
        Failing(needs=lambda *_: None),
        Cause.CORRUPT,
        "TypeError: 'NoneType' object is not iterable",
    ),
    "needs other things": (
        Failing(needs=lambda *_: [(0, 4)]),
        Cause.CORRUPT,
        "TypeError: needs that are not byte ranges",
    ),
    "needs has no end": (
        Failing(needs=asks_for_ever),
        Cause.CORRUPT,
        f"ValueError: still needs bytes after {MAX_ROUNDS} rounds",
    ),
    "answer raises": (
        Failing(answer=raises(ZeroDivisionError("division by zero"))),
        Cause.CORRUPT,
        "ZeroDivisionError: division by zero",
    ),
    "answer is an OSError": (
        Failing(answer=raises(TimeoutError("no answer"))),
        Cause.UNREADABLE,
        "TimeoutError: no answer",
    ),
    "no answer": (
        Failing(answer=lambda *_: None),
        Cause.CORRUPT,
        "TypeError: object of type 'NoneType' has no len()",
    ),
    "too few answers": (Failing(answer=answers()), Cause.CORRUPT, "0 answers to 1 leaves"),
    "not an answer": (
        Failing(answer=answers(flags(0, 0, 0))),
        Cause.CORRUPT,
        "AttributeError: 'Bounds' object has no attribute 'reasons'",
    ),
    "too few units": (
        Failing(answer=answers(Answer(bounds=flags(0, 0)))),
        Cause.CORRUPT,
        "bounds that are not flags of 3 units",
    ),
    "two dimensions": (
        Failing(answer=answers(Answer(bounds=flags([0], [0], [0])))),
        Cause.CORRUPT,
        "bounds that are not flags of 3 units",
    ),
    "numbers for flags": (
        Failing(answer=answers(Answer(bounds=flags(0, 0, 0, dtype=np.int64)))),
        Cause.CORRUPT,
        "bounds that are not flags of 3 units",
    ),
    "rows for flags": (
        Failing(answer=answers(Answer(bounds=Bounds(RowSet(), RowSet())))),
        Cause.CORRUPT,
        "bounds that are not flags of 3 units",
    ),
    "text for reasons": (
        Failing(answer=answers(Answer(bounds=None, reasons="why"))),  # type: ignore[arg-type]
        Cause.CORRUPT,
        "TypeError: reasons that are not Reason",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_says_nothing_and_hurts_nobody(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken, cause, text = BROKEN[name]
    good = Told("011", cost=2)
    with caplog.at_level(logging.WARNING, "skipstone"):
        done = evaluate(A1, [broken, good], files(3), fetch=Store())
    assert may_of(done) == "011"
    assert good.asked == [[0, 1, 2]]
    failed, fine = done.steps
    assert (failed.used, failed.considered, failed.kept) == (False, 3, 3)
    (reason,) = failed.reasons
    assert reason.cause is cause
    assert text in reason.text
    assert reason.subject == "failing(a)"
    assert reason.units == 3
    assert fine.used
    assert "failing(a) says nothing" in caplog.text


def test_silence_without_a_reason_gets_one() -> None:
    done = evaluate(A1, [Failing(answer=answers(Answer(bounds=None)))], files(2))
    assert done.steps[0].reasons == (
        Reason(
            cause=Cause.NOT_APPLICABLE,
            subject="failing(a)",
            text="says nothing about this predicate",
        ),
    )


def test_reasons_of_an_answer_that_is_used_are_kept() -> None:
    reason = Reason(cause=Cause.OVER_LIMIT, subject="list(a)", text="too many values", units=1)
    answer = Answer(bounds=flags(0, 1, 1), reasons=(reason, reason))
    done = evaluate(A1, [Failing(answer=answers(answer))], files(3))
    assert done.steps[0].used
    assert done.steps[0].reasons == (reason,)


def test_a_lost_object_silences_only_those_who_asked_for_it() -> None:
    """p is lost, q and r are there: one fetch for all, then one for each."""
    store = Store(lost={"p"})
    lost = Told("000", name="lost", rounds=[[part("p", 0)]])
    here = Told("011", name="here", rounds=[[part("q", 0)], [part("r", 0)]])
    done = evaluate(A1, [lost, here], files(3), fetch=store)
    assert may_of(done) == "011"
    assert [[p.path for p in call] for call in store.calls] == [["p", "q"], ["p"], ["q"], ["r"]]
    assert [step.used for step in done.steps] == [False, True]
    (reason,) = done.steps[0].reasons
    assert (reason.cause, reason.text) == (Cause.UNREADABLE, "FileNotFoundError: p")


def test_a_store_that_is_down_is_not_asked_for_each_object() -> None:
    paths = [f"p{i}" for i in range(40)]
    store = Store(lost=set(paths))
    told = [Told("000", name=path, rounds=[[part(path, 0)]]) for path in paths]
    done = evaluate(A1, told, files(3), fetch=store)
    assert may_of(done) == "111"
    assert len(store.calls) == 1 + MAX_FAILURES
    assert all(step.reasons[0].cause is Cause.UNREADABLE for step in done.steps)


@pytest.mark.parametrize("fetch", [lambda _: {}, lambda _: None, Store(short={"p"}), no_fetch])
def test_bytes_that_do_not_arrive_whole(fetch: Callable[..., Any]) -> None:
    needy = Told("000", rounds=[[part("p", 0)]])
    done = evaluate(A1, [needy, Told("011", cost=2)], files(3), fetch=fetch)
    assert may_of(done) == "011"
    assert needy.asked == []
    assert done.steps[0].used is False
    assert done.steps[0].reasons[0].cause in (Cause.UNREADABLE, Cause.CORRUPT)


def test_no_fetch_gives_nothing_and_says_so() -> None:
    assert no_fetch([]) == {}
    with pytest.raises(LookupError, match="2 byte ranges are needed"):
        no_fetch([part("p", 0), part("p", 9)])


# -- rows ------------------------------------------------------------------------------------------


@dataclass
class RowTold(BaseEvidence):
    """Answers every leaf with the same rows, after fetching ``rounds``."""

    may: Sequence[int]
    must: Sequence[int] = ()
    column: str = "a"
    cost: float = 1.0
    name: str = "bitmap"
    level: Level = Level.ROW
    rounds: Sequence[Sequence[ByteRange]] = ()

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        return [p for ranges in self.rounds for p in ranges if p not in have][:1]

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        return [Answer(bounds=Bounds(RowSet.of(self.must), RowSet.of(self.may))) for _ in leaves]


def task(file: int, rows: int, *told: Any, alive: RowSet | None = None, **leaves: Any) -> RowTask:
    return RowTask(
        unit=Units.objects(np.array([file]), np.array([rows])),
        rows=rows,
        alive=RowSet.all(rows) if alive is None else alive,
        evidence=told,
        leaves=leaves.get("leaves", {}),
    )


def test_rows_of_all_files_in_one_wave_per_stage() -> None:
    store = Store()
    tasks = [
        task(0, 9, RowTold([1, 2], [1], rounds=[[part("p", 0)], [part("p", 8)]])),
        task(1, 9, RowTold([3], [3], rounds=[[part("q", 0)]]), RowTold([5], cost=2, name="bsi")),
        task(2, 9, RowTold([7], column="b")),
        task(3, 9),
    ]
    (zero, one, two, three), steps = evaluate_rows(A1, tasks, fetch=store)
    assert [[p.path for p in call] for call in store.calls] == [["p", "q"], ["p"]]
    assert (zero.must, zero.may, zero.exact) == (RowSet.of([1]), RowSet.of([1, 2]), False)
    assert (one.may, one.exact) == (RowSet(), True)
    assert two.may == three.may == RowSet.all(9)
    bitmap, bsi = steps
    assert (bitmap.considered, bitmap.kept, bitmap.requests, bitmap.bytes_read) == (18, 3, 3, 12)
    assert (bsi.considered, bsi.kept, bsi.requests, bsi.bytes_read) == (1, 0, 0, 0)


def test_rows_that_are_dead_already_stay_dead() -> None:
    """Rows 0-3 were excluded by pages; the bitmap, and rows past the end, cannot revive them."""
    told = RowTold([2, 5, 99], [2, 5, 99])
    (bounds,), _ = evaluate_rows(A1, [task(0, 8, told, alive=RowSet([4], [8]))])
    assert bounds.may == bounds.must == RowSet.of([5])


def test_rows_sharpen_what_pages_said_of_each_leaf() -> None:
    """a = 1 OR b = 1: pages exclude b = 1 from rows 0-3, the bitmap knows a."""
    known = {B1: Bounds(RowSet(), RowSet([4], [8]))}
    (bounds,), _ = evaluate_rows(Or((A1, B1)), [task(0, 8, RowTold([1], [1]), leaves=known)])
    assert bounds.may == RowSet.of([1, 4, 5, 6, 7])
    assert bounds.must == RowSet.of([1])


@pytest.mark.parametrize("name", [n for n in BROKEN if "flags" not in n and "units" not in n])
def test_a_broken_file_index_costs_that_file_only(name: str) -> None:
    broken = BROKEN[name][0]
    results, steps = evaluate_rows(
        A1, [task(0, 4, broken), task(1, 4, RowTold([2]))], fetch=Store()
    )
    assert results[0].may == RowSet.all(4)
    assert results[1].may == RowSet.of([2])
    assert [step.index for step in steps] == ["failing", "bitmap"]


def test_flags_where_rows_are_asked_say_nothing() -> None:
    flagged = Failing(answer=answers(Answer(bounds=flags(0, 0, 0, 0))))
    (bounds,), (step,) = evaluate_rows(A1, [task(0, 4, flagged)])
    assert bounds.may == RowSet.all(4)
    assert step.reasons[0].text == "TypeError: bounds of ndarray instead of rows"


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=5))
def test_the_order_of_evidence_changes_nothing(told: list[tuple[int, bool, bool]]) -> None:
    """Any costs: the same sound answers come to the same bounds."""
    truth = [False, True]  # file 0 has no match, file 1 matches whole
    evidence = [
        Told(f"{int(not sharp)}1", f"0{int(sure)}", cost=cost) for cost, sharp, sure in told
    ]
    done = evaluate(A1, evidence, files(2))
    back = evaluate(A1, evidence[::-1], files(2))
    assert (may_of(done), must_of(done)) == (may_of(back), must_of(back))
    assert may_of(done) == ("01" if any(sharp for _, sharp, _ in told) else "11")
    assert must_of(done) == ("01" if any(sure for *_, sure in told) else "00")
    assert not any(done.bounds.must & ~np.array(truth))
