"""The fingerprint changes with what changes values, and with nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from skipstone.spark.relation import CORRUPT_NAME, JVM_ZONE, fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

ZONE = "spark.sql.session.timeZone"
SETTINGS = {
    ZONE: "UTC",
    CORRUPT_NAME: "_corrupt_record",
    JVM_ZONE: "Etc/UTC",
    "spark": "4",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.orc.impl": "native",
}


def schema(**columns: Any) -> str:
    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in columns.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


PLAIN = schema(a="integer", b="string")
TIMED = schema(a="integer", at="timestamp")
DAYS = schema(a="integer", day="date")
LOCAL = schema(a="integer", at="timestamp_ntz")
NESTED = schema(
    s={
        "type": "struct",
        "fields": [{"name": "at", "type": {"type": "array", "elementType": "timestamp"}}],
    }
)


def of(
    format: str = "csv",
    columns: str = PLAIN,
    options: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> str:
    return fingerprint(format, options or {}, columns, {**SETTINGS, **(settings or {})})


def test_it_is_a_sha256_and_depends_on_nothing_else() -> None:
    assert len(of()) == 64
    assert set(of()) <= set("0123456789abcdef")
    assert of() == of()


@pytest.mark.parametrize(
    "other",
    [
        of("json"),
        of("orc"),
        of(columns=schema(a="string", b="string")),
        of(columns=schema(b="string", a="integer")),
        of(columns=schema(a="integer")),
        of(columns=schema(A="integer", b="string")),
        of(columns=PLAIN.replace('"metadata": {}', '"metadata": {"EXISTS_DEFAULT": "1"}', 1)),
        of(options={"header": "true"}),
        of(options={"sep": ";"}),
        of(options={"nullValue": "-"}),
        of(options={"somethingNew": "x"}),
        of(settings={"spark.sql.ansi.enabled": "false"}),
        of(settings={"spark": "5"}),
    ],
)
def test_what_changes_values_changes_it(other: str) -> None:
    assert other != of()


@pytest.mark.parametrize(
    "option, value",
    [
        ("path", "/elsewhere"),
        ("pathGlobFilter", "*.csv"),
        ("recursiveFileLookup", "true"),
        ("mode", "FAILFAST"),
        ("mode", "DROPMALFORMED"),
        ("columnNameOfCorruptRecord", "_bad"),
        ("ignoreCorruptFiles", "true"),
        ("inferSchema", "true"),
        ("mergeSchema", "true"),
        ("serialization.format", "1"),
    ],
)
def test_what_leaves_whole_records_alone_leaves_it_alone(option: str, value: str) -> None:
    for format in ("csv", "json", "orc"):
        assert of(format, options={option: value}) == of(format)


def test_options_are_the_same_in_any_case_and_order() -> None:
    one = of(options={"Header": "true", "sep": ";"})
    assert one == of(options={"sep": ";", "header": "true"})
    assert one != of(options={"sep": ";", "header": "TRUE"})


def test_nullability_and_comments_do_not_matter() -> None:
    commented = PLAIN.replace('"metadata": {}', '"metadata": {"comment": "an id"}', 1)
    assert of(columns=commented) == of()
    assert of(columns=PLAIN.replace("true", "false")) == of()


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("columns", [TIMED, DAYS, NESTED])
def test_the_session_zone_matters_where_text_becomes_an_instant(format: str, columns: str) -> None:
    berlin = {ZONE: "Europe/Berlin"}
    assert of(format, columns) != of(format, columns, settings=berlin)
    zoned = {"timeZone": "Asia/Tokyo"}
    assert of(format, columns, zoned) == of(format, columns, zoned, settings=berlin)
    assert of(format, columns, zoned) != of(format, columns, {"timezone": "UTC"})


@pytest.mark.parametrize("columns", [PLAIN, LOCAL])
def test_the_session_zone_is_nothing_to_other_types(columns: str) -> None:
    assert of(columns=columns) == of(columns=columns, settings={ZONE: "Europe/Berlin"})


def test_orc_shows_timestamps_in_the_zone_of_the_jvm() -> None:
    assert of("orc", TIMED) != of("orc", TIMED, settings={JVM_ZONE: "Europe/Berlin"})
    assert of("orc", TIMED) == of("orc", TIMED, settings={ZONE: "Europe/Berlin"})
    assert of("orc", DAYS) == of("orc", DAYS, settings={JVM_ZONE: "Europe/Berlin"})
    assert of("csv", TIMED) == of("csv", TIMED, settings={JVM_ZONE: "Europe/Berlin"})


def test_columns_by_position_in_orc_are_other_columns() -> None:
    for key in ("orc.force.positional.evolution", "spark.hadoop.orc.force.positional.evolution"):
        assert of("orc") != of("orc", settings={key: "true"})


def test_a_column_that_is_the_corrupt_record_is_another_column() -> None:
    columns = schema(a="integer", _bad="string")
    assert of(columns=columns) != of(columns=columns, options={"columnNameOfCorruptRecord": "_BAD"})
    assert of(columns=columns) != of(columns=columns, settings={CORRUPT_NAME: "_bad"})
    assert of(columns=columns) == of(columns=columns, options={"columnNameOfCorruptRecord": "x"})
