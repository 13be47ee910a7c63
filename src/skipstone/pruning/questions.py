"""Evaluates one piece of evidence safely: reads in waves, checks answers, fails open.

A ``Question`` is evidence together with leaves and units. The byte ranges that all questions of a
stage need are fetched as one wave, round after round. On any failure (the evidence raises, never
stops needing bytes, or answers in the wrong shape; the store fails or returns too few bytes) that
evidence says nothing, with the reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone.storage import ByteRange

from . import Answer, Cause, Evidence, Fetched, Reason, RowSet, Units
from .plan import Step

if TYPE_CHECKING:
    from skipstone.predicate.tree import Leaf


log = logging.getLogger("skipstone")

Fetch: TypeAlias = Callable[[Sequence[ByteRange]], Fetched]

# Evidence that needs more rounds is broken; a Paimon range-bitmap needs four.
MAX_ROUNDS = 8
# After this many failed objects the store counts as down.
MAX_FAILURES = 4


def no_fetch(ranges: Sequence[ByteRange]) -> Fetched:
    """The ``fetch`` of levels whose evidence is all in memory: it fetches nothing."""
    if ranges:
        raise LookupError(f"{len(ranges)} byte ranges are needed, and nothing fetches them here")
    return {}


class Question:
    """Evidence, the leaves to answer, and the units to answer for."""

    def __init__(
        self,
        evidence: Evidence[Leaf],
        leaves: Sequence[Leaf],
        units: Units,
        flags: int | None,
    ) -> None:
        """``flags``: bounds are boolean arrays of this length; ``None``: they are ``RowSet``."""
        self.evidence, self.leaves, self.units, self.flags = evidence, leaves, units, flags
        self.bytes_read = 0
        self.requests = 0
        self.failure: Answer | None = None
        self.lost: set[ByteRange] = set()

    @property
    def name(self) -> str:
        """The name in reasons: ``minmax(ts)``."""
        return f"{self.evidence.name}({self.evidence.column})"

    def lose(self, need: ByteRange, error: Exception, said: set[str]) -> None:
        """Records that ``need`` did not arrive, because of ``error``; ``said`` prevents equal
        warnings.

        Evidence that ``tolerates_loss`` still answers for its other objects.
        """
        if self.evidence.tolerates_loss:
            self.lost.add(need)
        elif self.failure is None:
            self.fail(error, said)

    def fail(self, error: Exception, said: set[str] | None = None) -> None:
        """Makes this evidence say nothing from now on, because of ``error``."""
        warning = f"{self.name} says nothing: {type(error).__name__}: {error}"
        if said is None or warning not in said:
            log.warning("%s", warning)
        if said is not None:
            said.add(warning)
        cause = Cause.UNREADABLE if isinstance(error, OSError | LookupError) else Cause.CORRUPT
        text = f"{type(error).__name__}: {error}"
        self.failure = Answer.silent(cause, self.name, text, len(self.units))

    def needs(self, have: Fetched) -> Sequence[ByteRange]:
        """The byte ranges that the evidence still needs."""
        if self.failure is not None or not len(self.units):
            return ()
        try:
            needs = tuple(self.evidence.needs(self.leaves, self.units, have))
            if set(map(type, needs)) - {ByteRange}:
                raise TypeError("needs that are not byte ranges")
        except Exception as error:  # evidence is advice: without it the plan reads more
            self.fail(error)
            return ()
        if self.lost:
            needs = tuple([need for need in needs if need not in self.lost])
        return tuple([need for need in needs if need not in have]) if have else needs

    def answers(self, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf; silent ones, with the reason, when the evidence fails."""
        if not len(self.units):
            return [Answer(bounds=None)] * len(self.leaves)
        if self.failure is None:
            try:
                answers = self.evidence.answer(self.leaves, self.units, have)
                if len(answers) != len(self.leaves):
                    raise ValueError(f"{len(answers)} answers to {len(self.leaves)} leaves")
                return [self._checked(answer) for answer in answers]
            except Exception as error:  # as above
                self.fail(error)
        assert self.failure is not None
        return [self.failure] * len(self.leaves)

    def _checked(self, answer: Answer) -> Answer:
        if not all(isinstance(reason, Reason) for reason in answer.reasons):
            raise TypeError("reasons that are not Reason")
        if answer.bounds is None:
            if answer.reasons:
                return answer
            text = "says nothing of this predicate"
            return Answer.silent(Cause.NOT_APPLICABLE, self.name, text)
        may, must = answer.bounds.may, answer.bounds.must
        if self.flags is None:
            if not (isinstance(may, RowSet) and isinstance(must, RowSet)):
                raise TypeError(f"bounds of {type(may).__name__} where rows are asked")
        elif not (
            isinstance(may, np.ndarray)
            and isinstance(must, np.ndarray)
            and may.dtype == must.dtype == np.bool_
            and may.shape == must.shape == (self.flags,)
        ):
            raise ValueError(f"bounds that are not flags of {self.flags} units")
        return answer

    def step(
        self, used: bool, considered: int, kept: int, started: float, answers: Sequence[Answer]
    ) -> Step:
        """The step of this question, for ``explain``."""
        reasons = tuple(dict.fromkeys(reason for answer in answers for reason in answer.reasons))
        return Step(
            level=self.evidence.level,
            index=self.evidence.name,
            column=self.evidence.column,
            used=used,
            considered=int(considered),
            kept=int(kept),
            bytes_read=self.bytes_read,
            requests=self.requests,
            milliseconds=(time.perf_counter() - started) * 1e3,
            reasons=reasons,
        )


def fetch_wave(asked: Sequence[Question], fetch: Fetch) -> Fetched:
    """Fetches the byte ranges of all questions together, round after round."""
    have: dict[ByteRange, bytes | memoryview] = {}
    for _ in range(MAX_ROUNDS):
        wanted: dict[ByteRange, list[Question]] = {}
        for question in asked:
            for need in question.needs(have):
                askers = wanted.setdefault(need, [])
                if not askers:
                    question.bytes_read += need.length
                    question.requests += 1
                askers.append(question)
        if not wanted:
            return have
        errors = fetch_round(list(wanted), fetch, have)
        said: set[str] = set()
        for need, askers in wanted.items():
            if need not in have:
                text = f"{need.path}: bytes that were asked for did not arrive"
                error = errors.get(need.path) or LookupError(text)
                for question in askers:
                    question.lose(need, error, said)
    for question in asked:
        if question.needs(have):
            question.fail(ValueError(f"still asks for bytes after {MAX_ROUNDS} rounds"))
    return have


def fetch_round(
    wanted: Sequence[ByteRange], fetch: Fetch, have: dict[ByteRange, bytes | memoryview]
) -> dict[str, Exception]:
    """Fetches all ranges at once; path by path if that fails, so that one lost object affects
    only the evidence that needs it. Returns the error of each failed path."""
    errors: dict[str, Exception] = {}
    try:
        _take(have, wanted, fetch(wanted))
        return errors
    except Exception as error:  # a failed store only makes its indexes say nothing
        by_path: dict[str, list[ByteRange]] = {}
        for need in wanted:
            by_path.setdefault(need.path, []).append(need)
        errors.update(dict.fromkeys(by_path, error))
    if len(by_path) == 1:
        return errors
    failed = 0
    for path, needs in by_path.items():
        try:
            _take(have, needs, fetch(needs))
        except Exception as error:
            errors[path] = error
            failed += 1
            if failed == MAX_FAILURES:  # the store is down: do not try every path
                break
    return errors


def _take(
    have: dict[ByteRange, bytes | memoryview], wanted: Sequence[ByteRange], got: Fetched
) -> None:
    for need in wanted:
        part = got.get(need)
        if part is not None and len(part) == need.length:
            have[need] = part
