"""Local time, instants and dates: what ``java.time`` says, on the days when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.predicate.zones import (
    DAY,
    HOUR,
    UnknownLocalTime,
    Zone,
    civil_day,
    parse_date,
    parse_local,
    parse_timestamp,
    zone,
)
from tests.oracle_values import start_of_day, to_instant, to_local

NAMES = [
    "Europe/Berlin",
    "America/St_Johns",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Casablanca",
    "Antarctica/Troll",
]


def at(text: str) -> int:
    """Microseconds of an ISO text, read as UTC."""
    return (
        datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    ) // (timedelta(microseconds=1))


def known(name: str) -> Zone:
    found = zone(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "name, local, instant",
    [
        ("Europe/Berlin", "2024-10-27 02:30", "2024-10-27 00:30"),  # twice: the earlier
        ("Europe/Berlin", "2024-10-27 01:59:59.999999", "2024-10-26 23:59:59.999999"),
        ("Europe/Berlin", "2024-10-27 03:00", "2024-10-27 02:00"),
        ("Europe/Berlin", "2024-03-31 02:30", "2024-03-31 01:30"),  # never: forward by the gap
        ("Pacific/Apia", "2011-12-30 12:00", "2011-12-30 22:00"),  # a day that is not
        ("America/St_Johns", "2010-11-07 00:00:30", "2010-11-07 02:30:30"),
        ("Australia/Lord_Howe", "2024-04-07 01:45", "2024-04-06 14:45"),  # half an hour
        ("UTC", "2024-10-27 02:30", "2024-10-27 02:30"),
        ("+05:30", "2024-01-01 00:00", "2023-12-31 18:30"),
        ("-3", "2024-01-01 00:00", "2024-01-01 03:00"),
        ("GMT+0230", "2024-01-01 00:00", "2023-12-31 21:30"),
        ("Etc/GMT+5", "2024-01-01 00:00", "2024-01-01 05:00"),
    ],
)
def test_to_instant(name: str, local: str, instant: str) -> None:
    assert known(name).to_instant(at(local)) == at(instant)


@pytest.mark.parametrize(
    "name, day, instant",
    [
        ("Europe/Berlin", "2024-03-31", "2024-03-30 23:00"),
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04 03:00"),  # begins at one o'clock
        ("Pacific/Apia", "2011-12-29", "2011-12-29 10:00"),
        ("Pacific/Apia", "2011-12-30", "2011-12-30 10:00"),
        ("Pacific/Apia", "2011-12-31", "2011-12-30 10:00"),
        ("America/Havana", "2024-11-03", "2024-11-03 04:00"),  # midnight twice
    ],
)
def test_start_of_day(name: str, day: str, instant: str) -> None:
    assert known(name).start_of_day(at(day) // DAY) == at(instant)


@given(
    st.sampled_from(NAMES),
    st.one_of(
        st.integers(0, 4_000_000_000_000_000),
        st.sampled_from(
            [
                at("2024-03-31"),
                at("2024-10-27"),
                at("2010-11-07"),
                at("2011-12-30"),
                at("2018-11-04"),
            ]
        ).flatmap(lambda day: st.integers(day - DAY, day + 2 * DAY)),
    ),
)
def test_against_the_oracle(name: str, micros: int) -> None:
    session = known(name)
    assert session.rules is not None
    assert session.to_instant(micros) == to_instant(micros, session.rules)
    assert session.to_local(micros) == to_local(micros, session.rules)
    day = micros // DAY
    assert session.start_of_day(day) == start_of_day(day, session.rules)
    changes = session.changes(micros - 43 * HOUR, micros + 43 * HOUR)
    for instant, before, after in changes:
        assert session.to_local(instant - 1) == instant - 1 + before
        assert session.to_local(instant) == instant + after
        assert before != after


@pytest.mark.parametrize(
    "name, year, count",
    [
        ("America/Recife", 2000, 3),  # two of them a week apart: the nearest two of any zone
        ("Africa/Casablanca", 2024, 2),
        ("America/Argentina/Tucuman", 2004, 2),
        ("Antarctica/Troll", 2024, 2),
        ("Pacific/Apia", 2011, 3),
        ("Asia/Kolkata", 2024, 0),
    ],
)
def test_every_change_of_a_year_is_found(name: str, year: int, count: int) -> None:
    session = known(name)
    first, last = at(f"{year}-01-01"), at(f"{year + 1}-01-01")
    quarters = range(first, last + 1, HOUR // 4)
    offsets = [session.to_local(each) - each for each in quarters]
    pairs = zip(quarters, offsets, offsets[1:], strict=False)
    expected = [(each + HOUR // 4, one, two) for each, one, two in pairs if one != two]
    assert session.changes(first, last) == expected
    assert len(expected) == count


@pytest.mark.parametrize(
    "name",
    ["EST", "CST6CDT", "Japan", "Mars/Olympus", "", "UTC+19", "+25:00", "+05:75", "../etc/x"],
)
def test_uncertain_names(name: str) -> None:
    assert zone(name) is None


@pytest.mark.parametrize("local", ["1969-12-01", "9999-06-01"])
def test_uncertain_times(local: str) -> None:
    with pytest.raises(UnknownLocalTime):
        known("Europe/Berlin").to_instant(at(local))
    assert known("+01:00").to_instant(at(local)) == at(local) - HOUR


@given(st.integers(-400_000_000, 400_000_000))
def test_civil_days(day: int) -> None:
    # 146,097 days are 400 years.
    cycles, rest = divmod(day, 146_097)
    known_date = datetime(1970, 1, 1) + timedelta(days=rest)
    year = known_date.year + 400 * cycles
    assert civil_day(year, known_date.month, known_date.day) == day


@pytest.mark.parametrize(
    "text, day",
    [
        ("2024-01-05", 19_727),
        ("2024-1-5", 19_727),
        (" \t2024-01-05\n", 19_727),
        ("2024-01-05 xyz", 19_727),
        ("2024-01-05T", 19_727),
        ("2024-01", 19_723),
        ("2024", 19_723),
        ("+2024-01-05", 19_727),
        ("0000-01-01", -719_528),
        ("-0001-12-31", -719_529),
        ("2024-02-30", None),
        ("2024-13-01", None),
        ("24-01-05", None),
        ("2024-01-05xyz", None),
        ("2024-001-05", None),
        ("today", None),
        ("", None),
    ],
)
def test_parse_date(text: str, day: int | None) -> None:
    assert parse_date(text) == day


@pytest.mark.parametrize(
    "text, instant",
    [
        ("2024-01-05", "2024-01-04 23:00"),
        ("2024-01-05 10", "2024-01-05 09:00"),
        ("2024-01-05 1:2:3.4", "2024-01-05 00:02:03.4"),
        ("2024-01-05T10:20", "2024-01-05 09:20"),
        ("2024-01-05 10:20:30.", "2024-01-05 09:20:30"),
        ("2024-01-05 10:20:30.1234567", "2024-01-05 09:20:30.123456"),
        ("2024-01-05 10:20:30Z", "2024-01-05 10:20:30"),
        ("2024-01-05 10:20:30 UTC", "2024-01-05 10:20:30"),
        ("2024-01-05 10:20:30+2", "2024-01-05 08:20:30"),
        ("2024-01-05 10:20:30-02:30", "2024-01-05 12:50:30"),
        ("2024-01-05 10:20:30 America/New_York", "2024-01-05 15:20:30"),
        ("2024-01-05 10:20:30PST", None),
        ("2024-01-05 24:00:00", None),
        ("2024-01-05 23:59:60", None),
        ("2024-01-05 10:", None),
        ("10:20", None),
        ("now", None),
    ],
)
def test_parse_timestamp(text: str, instant: str | None) -> None:
    found = parse_timestamp(text, known("Europe/Berlin"))
    assert found == (None if instant is None else at(instant))


def test_parse_local() -> None:
    assert parse_local("2024-01-05 10:20") == at("2024-01-05 10:20")
    assert parse_local("2024-01-05 10:20Z") is None
