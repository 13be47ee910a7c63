"""Local time and instants as Spark defines them: days, microseconds, session time zone.

Spark follows ``java.time``. A local time that the clocks skip moves forward by the length of the
gap. A repeated one takes the earlier instant. A date begins with its first instant. Python's
``zoneinfo`` with ``fold=0`` agrees on the first two.

Instants before 1970 and outside the years 1 to 9999 are not converted in a zone whose offset
changes: distributions of the time zone data differ on old rules, and ``zoneinfo`` knows no other
years. Then ``UnknownLocalTime`` is raised and the predicate prunes nothing.

**Casts carried back.** A cast between instants, local time and dates is not always monotonic.
Clocks go back, so ``CAST(ts AS TIMESTAMP_NTZ)`` and ``CAST(ts AS DATE)`` sometimes decrease. A
skipped local time moves forward by the gap, so ``CAST(ntz AS TIMESTAMP)`` decreases after it. Two
dates begin together where one was skipped. There Spark contradicts itself: its optimizer moves the
cast to the literal, which matches other rows than the cast as written. A bound where this can
happen raises ``UnknownLocalTime``. Elsewhere the cast is monotonic and has one value at the bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TypeAlias

from skipstone._dataclasses import dataclass

SECOND = 1_000_000
HOUR, DAY = 3_600 * SECOND, 86_400 * SECOND
_EPOCH = datetime(1970, 1, 1)
_FIRST, _LAST = 0, (date(9999, 1, 1) - date(1970, 1, 1)).days * DAY


class UnknownLocalTime(ValueError):
    """A local time that cannot be turned into an instant (or back) with certainty."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone: either ``fixed`` (an offset in microseconds) or a region's ``rules``."""

    name: str
    fixed: int | None
    rules: tzinfo | None = None

    def to_instant(self, local: int) -> int:
        """Microseconds since the epoch at local time ``local``, also counted in microseconds."""
        if self.fixed is not None:
            return local - self.fixed
        return local - self._offset_at_local(local, fold=0)

    def to_local(self, instant: int) -> int:
        """The local time that clocks show at ``instant``; both in microseconds."""
        if self.fixed is not None:
            return instant + self.fixed
        return instant + self._offset_at(instant)

    def start_of_day(self, day: int) -> int:
        """The first instant (microseconds) of the date ``day`` days after 1970-01-01."""
        local = day * DAY
        if self.fixed is not None:
            return local - self.fixed
        before = self._offset_at_local(local, fold=0)
        after = self._offset_at_local(local, fold=1)
        if before >= after:
            return local - before
        # Midnight is skipped: the day begins when the clocks change, between these two instants.
        return self._change(local - after, local - before, before)

    def changes(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """The instants between ``first`` and ``last``, days apart, when the offset changes.

        Each with the offset before it and the offset from it on.
        """
        if self.fixed is not None:
            return []
        found: list[tuple[int, int, int]] = []
        offset, at = self._offset_at(first), first
        while at < last:
            # Since 1970 no zone has changed its clocks twice within six days: Recife did in a week.
            ahead = min(at + DAY, last)
            after = self._offset_at(ahead)
            if after != offset:
                found.append((self._change(at, ahead, offset), offset, after))
                offset = after
            at = ahead
        return found

    def _change(self, low: int, high: int, before: int) -> int:
        """The first instant after ``low``, at most ``high``, whose offset is not ``before``."""
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset_at(middle) == before:
                low = middle
            else:
                high = middle
        return high

    def _offset_at_local(self, local: int, fold: int) -> int:
        assert self.rules is not None
        _check(local)
        at = (_EPOCH + timedelta(microseconds=local)).replace(tzinfo=self.rules, fold=fold)
        return _micros(at.utcoffset())

    def _offset_at(self, instant: int) -> int:
        assert self.rules is not None
        _check(instant)
        at = (_EPOCH + timedelta(microseconds=instant)).replace(tzinfo=UTC)
        return _micros(at.astimezone(self.rules).utcoffset())


def _check(micros: int) -> None:
    # Three days of tolerance: a local time and the window around it may begin before 1970.
    if not _FIRST - 3 * DAY <= micros <= _LAST:
        raise UnknownLocalTime("time zone rules are only certain from 1970 to 9998")


def _micros(offset: timedelta | None) -> int:
    return 0 if offset is None else offset // timedelta(microseconds=1)


_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)+")


@lru_cache(maxsize=64)
def zone(name: str) -> Zone | None:
    """The zone that ``spark.sql.session.timeZone`` names; ``None`` when that is not certain."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return Zone(name, 0)
    if match := _OFFSET.fullmatch(name):
        sign, hours, minutes, seconds = match.groups()
        total = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
        if int(minutes or 0) > 59 or int(seconds or 0) > 59 or total > 18 * 3600:
            return None
        return Zone(name, (-total if sign == "-" else total) * SECOND)
    # Names without a slash (EST, CST, Japan) are read differently by different libraries.
    if not _REGION.fullmatch(name):
        return None
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        rules = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    if name.startswith("Etc/"):
        return Zone(name, _micros(rules.utcoffset(_EPOCH)))
    return Zone(name, None, rules)


def zone_text(zone: Zone) -> str:
    """The offset for all zones with one fixed offset; else the name of the region."""
    if not zone.fixed:
        return zone.name if zone.fixed is None else "UTC"
    minutes, seconds = divmod(abs(zone.fixed) // SECOND, 60)
    sign = "-" if zone.fixed < 0 else "+"
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}" + (f":{seconds:02}" if seconds else "")


def known_zone(session: Zone | None) -> Zone:
    """The session's zone; ``UnknownLocalTime`` where it is not certain."""
    if session is None:
        raise UnknownLocalTime("the session time zone is not one that is known with certainty")
    return session


# -- text, as Spark casts it -----------------------------------------------------------------------

_DATE = r"([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})%s)?)?"
_DATE_ONLY = re.compile(_DATE % r"(?:[ T].*)?", re.DOTALL | re.ASCII)
_DATE_TIME = re.compile(
    _DATE % r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?\s*([A-Za-z+-].*)?)?",
    re.ASCII,
)
# Java's whitespace and control characters, which Spark trims.
SPACE = "".join(map(chr, range(0x21))) + "\x7f"


def civil_day(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01, proleptic Gregorian, any year; ``None`` if there is no such date."""
    # 400 years are 146,097 days: move any year into the range of `date`.
    cycles, rest = divmod(year - 2000, 400)
    try:
        return (date(2000 + rest, month, day) - date(1970, 1, 1)).days + cycles * 146_097
    except ValueError:
        return None


def civil_date(day: int) -> tuple[int, int, int]:
    """The year, month and day of days since 1970-01-01, the inverse of ``civil_day``."""
    cycles, rest = divmod(day - 10_957, 146_097)
    known = date(2000, 1, 1) + timedelta(days=rest)
    return known.year + cycles * 400, known.month, known.day


def date_text(day: int) -> str:
    """Days since 1970-01-01 as Spark writes them."""
    year, month, of_month = civil_date(day)
    # Spark requires a sign before years of more than four digits.
    text = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{text}-{month:02}-{of_month:02}"


def parse_date(text: str) -> int | None:
    """Days of a string as ``CAST(text AS DATE)`` reads it; ``None`` when that is not certain."""
    match = _DATE_ONLY.fullmatch(text.strip(SPACE))
    if match is None:
        return None
    sign, year, month, day = match.groups()
    return civil_day(int(sign + year), int(month or 1), int(day or 1))


def parse_local(text: str) -> int | None:
    """Microseconds of a string as ``CAST(text AS TIMESTAMP_NTZ)`` reads it.

    ``None`` when that is not certain, and when the text names a zone.
    """
    found = _date_time(text)
    return None if found is None or found[1] is not None else found[0]


def parse_timestamp(text: str, session: Zone | None) -> int | None:
    """Microseconds of a string as ``CAST(text AS TIMESTAMP)`` reads it in the session zone.

    ``None`` when that is not certain. ``UnknownLocalTime`` as in the module, and where the text
    names no zone and the session's is not known.
    """
    found = _date_time(text)
    if found is None:
        return None
    local, suffix = found
    named = known_zone(session) if suffix is None else zone(suffix)
    return None if named is None else named.to_instant(local)


def _date_time(text: str) -> tuple[int, str | None] | None:
    """Local microseconds and the zone's name, if there is one."""
    match = _DATE_TIME.fullmatch(text.strip(SPACE))
    if match is None:
        return None
    sign, year, month, day, hour, minute, second, fraction, suffix = match.groups()
    days = civil_day(int(sign + year), int(month or 1), int(day or 1))
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    if days is None or h > 23 or m > 59 or s > 59:
        return None
    micros = int(((fraction or "") + "000000")[:6])
    local = days * DAY + ((h * 60 + m) * 60 + s) * SECOND + micros
    return local, None if suffix is None else suffix.strip()


Ranges: TypeAlias = "list[tuple[int, int]]"
# Returns the first value whose image is at least a bound.
First: TypeAlias = Callable[[int], int]

# Offsets stay within 18 hours; the largest change of one is a day.
_NEAR = 43 * HOUR
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_DOUBT = UnknownLocalTime("the clocks change there, and Spark contradicts itself about that")


def instants_of_local(zone: Zone, lo: int, hi: int) -> Ranges:
    """The instants at which clocks show a local time from ``lo`` to ``hi``."""

    def first(local: int) -> int:
        for at, before, after in zone.changes(local - _NEAR, local + _NEAR):
            if at + min(before, after) - 1 <= local <= at + max(before, after) + 1:
                raise _DOUBT
        return zone.to_instant(local)

    return _between(lo, hi, first)


def local_of_instants(zone: Zone, lo: int, hi: int) -> Ranges:
    """The local times of the instants from ``lo`` to ``hi``."""

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
