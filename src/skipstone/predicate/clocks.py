"""Casts between instants, local time and dates, backwards, where the clocks leave no doubt.

Clocks go back, so ``CAST(ts AS TIMESTAMP_NTZ)`` and ``CAST(ts AS DATE)`` fall at times; a local
time that is skipped moves forward by the gap, so ``CAST(ntz AS TIMESTAMP)`` falls after it; and two
dates begin together where one was skipped. There Spark contradicts itself: its optimizer moves the
cast to the literal, which matches other rows than the cast that was written. A bound that lies
where this can happen raises ``UnknownLocalTime``; elsewhere the cast rises, with one value there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from .zones import DAY, HOUR, UnknownLocalTime

if TYPE_CHECKING:
    from .zones import Zone

__all__ = ["days_of_instants", "instants_of_days", "instants_of_local", "local_of_instants"]

Ranges: TypeAlias = "list[tuple[int, int]]"
# How to find the first value whose image is at least a bound.
First: TypeAlias = Callable[[int], int]

# Offsets stay within 18 hours; the largest change of one is a day.
_NEAR = 43 * HOUR
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_DOUBT = UnknownLocalTime("the clocks change there, and Spark is of two minds about that")


def instants_of_local(zone: Zone, lo: int, hi: int) -> Ranges:
    """The instants at which clocks show a local time from ``lo`` to ``hi``."""

    def first(local: int) -> int:
        for at, before, after in zone.changes(local - _NEAR, local + _NEAR):
            if at + min(before, after) - 1 <= local <= at + max(before, after) + 1:
                raise _DOUBT
        return zone.to_instant(local)

    return _between(lo, hi, first)


def local_of_instants(zone: Zone, lo: int, hi: int) -> Ranges:
    """The local times that stand for an instant from ``lo`` to ``hi``."""

    def first(instant: int) -> int:
        for at, before, after in zone.changes(instant - _NEAR, instant + _NEAR):
            if abs(instant - at) <= abs(after - before) + 1:
                raise _DOUBT
        return zone.to_local(instant)

    return _between(lo, hi, first)


def instants_of_days(zone: Zone, lo: int, hi: int) -> Ranges:
    """The instants at which the local date is from ``lo`` to ``hi``."""
    start, end = max(lo * DAY, _LOWEST), min(hi * DAY + DAY - 1, _HIGHEST)
    return instants_of_local(zone, start, end) if start <= end else []


def days_of_instants(zone: Zone, lo: int, hi: int) -> Ranges:
    """The dates whose first instant is from ``lo`` to ``hi``."""

    def first(instant: int) -> int:
        for at in (instant - 1, instant):
            day = zone.to_local(at) // DAY
            if not zone.start_of_day(day) <= at < zone.start_of_day(day + 1):
                raise _DOUBT
        day += zone.start_of_day(day) < instant
        if zone.start_of_day(day - 1) == zone.start_of_day(day):
            raise _DOUBT
        return day

    return _between(lo, hi, first)


def _between(lo: int, hi: int, first: First) -> Ranges:
    start = _LOWEST if lo <= _LOWEST else first(lo)
    end = _HIGHEST if hi >= _HIGHEST else first(hi + 1) - 1
    return [(start, end)] if start <= end else []
