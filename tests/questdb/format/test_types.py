"""Type codes both ways, how they lie in Parquet, and the JSON under `questdb`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import Type
from skipstone.questdb.format.pm_columns import QdbColumn, QdbMeta
from skipstone.questdb.format.types import ColumnType, Tag
from tests.questdb.format.strategies import column_types
from tests.questdb.questdb_json import to_json


@given(column_types())
def test_codes_go_both_ways(type: ColumnType) -> None:
    assert ColumnType.of(type.code) == type
    form = type.parquet
    assert type.fits(form.type, form.length)
    assert type.to_dict()["code"] == type.code
    assert (form.length > 0) == (form.type is Type.FIXED_LEN_BYTE_ARRAY)


@pytest.mark.parametrize(
    "code, expected",
    [
        (8, {"designated": False, "nanos": False}),
        (262152, {"nanos": True}),
        (131080, {"designated": True}),
        (393224, {"designated": True, "nanos": True}),
        (1179656, {"designated": True, "descending": True}),
        (2587, {"element": 10, "dimensions": 1}),
        (18971, {"element": 10, "dimensions": 2}),
        (66830, {"tag": Tag.GEOBYTE, "geo_bits": 5}),
        (80913, {"tag": Tag.GEOLONG, "geo_bits": 60}),
        (526622, {"tag": Tag.DECIMAL32, "precision": 9, "scale": 2}),
        (5262369, {"tag": Tag.DECIMAL256, "precision": 76, "scale": 20}),
    ],
)
def test_codes_of_questdb(code: int, expected: dict[str, object]) -> None:
    type = ColumnType.of(code)
    assert type is not None
    assert {name: getattr(type, name) for name in expected} == expected
    assert type.code == code


@given(st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-2, 300))
def test_a_code_is_known_whole_or_not_at_all(code: int) -> None:
    type = ColumnType.of(code)
    assert type is None or type.code == code


@pytest.mark.parametrize(
    "code",
    [
        *(-1, 0, 20, 23, 34, 40, 41, 255),
        5 | 1 << 17,  # an INT that is designated
        14 | 8 << 8 | 1 << 16,  # a GEOBYTE of 8 bits
        14 | 5 << 8,  # without the bit of a geohash
        28 | 3 << 8,  # a DECIMAL8 of 3 digits
        28 | 2 << 8 | 3 << 18,  # a scale beyond the precision
        27 | 6 << 8,  # an array of LONG
    ],
)
def test_codes_that_mean_nothing(code: int) -> None:
    assert ColumnType.of(code) is None


def test_decimals_take_the_smallest_tag_that_holds_them() -> None:
    found = [ColumnType.decimal(p, 0) for p in (1, 2, 3, 4, 5, 9, 10, 18, 19, 38, 39, 76)]
    assert [type.decimal_width for type in found if type] == [
        1,
        1,
        2,
        2,
        4,
        4,
        8,
        8,
        16,
        16,
        32,
        32,
    ]
    assert [ColumnType.decimal(*pair) for pair in ((0, 0), (77, 0), (5, 6), (5, -1))] == [None] * 4


@pytest.mark.parametrize(
    "tag, physical, length, fits",
    [
        (Tag.DATE, Type.INT32, 0, True),
        (Tag.TIMESTAMP, Type.INT96, 0, True),
        (Tag.ARRAY, Type.DOUBLE, 0, True),
        (Tag.ARRAY, Type.BYTE_ARRAY, 0, True),
        (Tag.LONG, Type.INT32, 0, False),
        (Tag.UUID, Type.FIXED_LEN_BYTE_ARRAY, 15, False),
        (Tag.VARCHAR, Type.INT64, 0, False),
    ],
)
def test_what_a_type_may_lie_in(tag: Tag, physical: Type, length: int, fits: bool) -> None:
    type = (
        ColumnType(tag=tag, element=10, dimensions=1) if tag is Tag.ARRAY else ColumnType(tag=tag)
    )
    assert type.fits(physical, length) == fits


I32 = st.integers(-(1 << 31), (1 << 31) - 1)
COLUMNS = st.builds(
    QdbColumn,
    column_type=I32,
    column_top=st.integers(0, 1 << 40),
    format=st.none() | st.just(1),
    ascii=st.none() | st.booleans(),
    id=st.integers(-1, (1 << 31) - 1),
)


@given(
    st.builds(
        QdbMeta,
        schema=st.lists(COLUMNS, max_size=4).map(tuple),
        unused_bytes=st.integers(0, 1 << 50),
        squash_tracker=st.integers(-(1 << 63), (1 << 63) - 1),
    )
)
def test_the_json_goes_both_ways(meta: QdbMeta) -> None:
    assert QdbMeta.from_json(to_json(meta)) == meta


def test_the_json_of_an_older_writer() -> None:
    text = '{"version": 1, "schema": [{"column_type": 12, "column_top": 3, "format": null}]}'
    meta = QdbMeta.from_json(text)
    assert meta.schema == (QdbColumn(column_type=12, column_top=3),)
    assert (meta.unused_bytes, meta.squash_tracker, meta.schema[0].id) == (0, -1, -1)


@pytest.mark.parametrize(
    "text, error",
    [
        ('{"version": 2, "schema": []}', UnsupportedError),
        ('{"version": 1, "schema": [{"column_type": 1, "format": 2}]}', UnsupportedError),
        ('{"version": true, "schema": []}', FormatError),
        ('{"schema": []}', FormatError),
        ('{"version": 1}', FormatError),
        ('{"version": 1, "schema": [1]}', FormatError),
        ('{"version": 1, "schema": [{}]}', FormatError),
        ('{"version": 1, "schema": [{"column_type": 4294967296}]}', FormatError),
        ('{"version": 1, "schema": [{"column_type": 1.0}]}', FormatError),
        ('{"version": 1, "schema": [{"column_type": 1, "ascii": 1}]}', FormatError),
        ("[]", FormatError),
        ("", FormatError),
        ("[" * 100_000, FormatError),
        ('{"version": ' + "9" * 10_000 + "}", FormatError),
    ],
)
def test_json_that_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        QdbMeta.from_json(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@pytest.mark.fuzz
@given(
    st.fixed_dictionaries(
        {"version": st.just(1) | JSON},
        optional={
            "schema": JSON
            | st.lists(
                st.dictionaries(
                    st.sampled_from(["column_type", "column_top", "format", "ascii", "id"]), JSON
                ),
                max_size=3,
            ),
            "unused_bytes": JSON,
            "squash_tracker": JSON,
        },
    )
)
def test_any_json_is_understood_or_refused(document: dict[str, object]) -> None:
    try:
        meta = QdbMeta.from_json(json.dumps(document))
    except (FormatError, UnsupportedError):
        return
    assert QdbMeta.from_json(to_json(meta)) == meta
