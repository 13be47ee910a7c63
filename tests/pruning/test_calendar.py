"""Which old dates and timestamps are believed."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest

from skipstone.pruning.column_types import FIRST_DATE, FIRST_TIMESTAMP, ancient, proleptic

VERSION = b"org.apache.spark.version"
LEGACY = {b"org.apache.spark.legacyDateTime": b""}
LEGACY_INT96 = {b"org.apache.spark.legacyINT96": b""}


@pytest.mark.parametrize(
    "metadata, dates, int96",
    [
        (None, False, False),
        ({}, False, False),
        ({VERSION: b"2.4.8"}, False, False),
        ({VERSION: b"3.0.3"}, True, False),
        ({VERSION: b"3.1.0"}, True, True),
        ({VERSION: b"4.3.0"}, True, True),
        ({VERSION: b"4.3.0", **LEGACY}, False, True),
        ({VERSION: b"4.3.0", **LEGACY_INT96}, True, False),
        (LEGACY, False, False),
    ],
)
def test_what_a_footer_says(metadata: dict[bytes, bytes] | None, dates: bool, int96: bool) -> None:
    assert proleptic(metadata, int96=False) is dates
    assert proleptic(metadata, int96=True) is int96


def test_the_borders() -> None:
    assert (date(1582, 10, 15) - date(1970, 1, 1)).days == FIRST_DATE
    assert (datetime(1900, 1, 1) - datetime(1970, 1, 1)).total_seconds() * 1e6 == FIRST_TIMESTAMP
    assert ancient(pa.array([FIRST_DATE, None, 0], pa.date32())) is None
    assert ancient(pa.array([0, FIRST_DATE - 1], pa.date32())) is not None
    for unit, scale in (("us", 1), ("ms", 1_000), ("s", 1_000_000)):
        first = FIRST_TIMESTAMP // scale
        assert ancient(pa.array([first], pa.timestamp(unit, "UTC"))) is None
        assert ancient(pa.array([first - 1], pa.timestamp(unit))) is not None


def test_other_types_and_nulls_are_never_old() -> None:
    assert ancient(pa.array([None], pa.date32())) is None
    assert ancient(pa.array([-(2**31)], pa.int32())) is None
    assert ancient(pa.array([], pa.timestamp("us"))) is None
