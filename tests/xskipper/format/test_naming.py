"""Names: columns by version, identifiers by style, rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.xskipper.format.naming import (
    clean,
    column_name,
    directory_name,
    file_identifier,
    obj_name,
    table_identifier,
    virtual_name,
)
from tests.xskipper.format.parsed_names import parse_column_name, parse_obj_name, unclean

if TYPE_CHECKING:
    from pathlib import Path

NAMES = st.text(
    st.sampled_from("#.$_ab9-: %é=😀İ") | st.characters(exclude_categories=["Cs"]), min_size=1
)


def test_the_example_of_the_specification() -> None:
    columns = ["lat#_.$_new", "$_lng.#"]
    name = column_name("SomeIndex", columns)
    assert name == "lat##_$#$$_new_$_lng$#$##_someindex_14-10"
    assert parse_column_name(name) == ("someindex", ("lat#_.$_new", "$_lng.#"))


@pytest.mark.parametrize(
    "version,name",
    [
        (0, "a:b_someindex"),
        (1, "a_b_someindex"),
        (2, "a_b_someindex_1-1"),
        (3, "a_b_someindex_1-1"),
        (4, "a_b_someindex_1-1"),
    ],
)
def test_each_version_names_the_same_index_its_own_way(version: int, name: str) -> None:
    assert column_name("SomeIndex", ["A", "b"], version) == name


def test_nested_columns_and_case_as_in_real_files() -> None:
    assert column_name("minmax", ["Nest.b.C"]) == "nest$#$b$#$c_minmax_12"
    assert column_name("MinMax", ["temp"], 1) == "temp_minmax"


def test_lengths_count_utf16_units_as_java_does() -> None:
    assert column_name("minmax", ["é😀"]) == "é😀_minmax_3"
    assert parse_column_name("é😀_minmax_3") == ("minmax", ("é😀",))
    assert parse_column_name("é😀_minmax_2") is None


def test_versions_that_nobody_knows_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="version 5"):
        column_name("minmax", ["a"], 5)
    with pytest.raises(ValueError):
        column_name("minmax", ["a"], -1)
    with pytest.raises(ValueError):
        column_name("minmax", [])


@given(NAMES)
def test_cleaning_can_be_undone(name: str) -> None:
    lower = name.lower()
    assert unclean(clean(name)) == lower


@pytest.mark.parametrize("text", ["#", "a#b", "$#", "#$", "$#$#$", "a.b"])
def test_what_no_name_cleans_to(text: str) -> None:
    with pytest.raises(FormatError):
        unclean(text)


@given(st.lists(NAMES, min_size=1, max_size=4), st.sampled_from([2, 3, 4]))
def test_names_are_parsed_back(columns: list[str], version: int) -> None:
    name = column_name("my_kind", columns, version)
    assert parse_column_name(name, version) == ("my_kind", tuple(c.lower() for c in columns))


@given(st.text(st.sampled_from("#$_ab.0123-😀")))
def test_parsing_a_name_never_guesses(name: str) -> None:
    parsed = parse_column_name(name)
    assert parsed is None or column_name(parsed[0], parsed[1]) == name
    # a_b_minmax may be one column or two: versions 0 and 1 do not say.
    assert parse_column_name(name, 1) is None


@pytest.mark.parametrize(
    "uri,path,cos,bucket",
    [
        ("/a/t/", "/a/t", "/a/t", "/a/t"),
        ("file:/a/t", "/a/t", "/a/t", "/a/t"),
        ("file:///a/t/", "/a/t", "/a/t", "/a/t"),
        ("/a b/p=a%2Fb%3Dc", "/a b/p=a%2Fb%3Dc", "/a b/p=a%2Fb%3Dc", "/a b/p=a%2Fb%3Dc"),
        ("cos://b.service/a/t/", "/a/t", "cos://b/a/t", "cos://b/a/t"),
        ("cos://b.with.dots.service/t", "/t", "cos://b.with.dots/t", "cos://b.with.dots/t"),
        ("cos://b/t", "/t", "cos://b/t", "cos://b/t"),
        ("s3a://b/a/t", "/a/t", "/a/t", "s3://b/a/t"),
        ("hdfs://name:8020/a//t", "/a/t", "/a/t", "hdfs://name:8020/a/t"),
        ("hdfs:/a/t", "/a/t", "/a/t", "/a/t"),
    ],
)
def test_identifiers_by_style(uri: str, path: str, cos: str, bucket: str) -> None:
    assert table_identifier(uri, "path") == path
    assert table_identifier(uri, "cos") == cos
    assert table_identifier(uri, "bucket") == table_identifier(uri) == bucket


def test_two_buckets_with_equal_paths_never_meet() -> None:
    tables = ["s3a://one/t", "s3a://two/t", "gs://one/t", "cos://one.s/t", "cos://two.s/t", "/t"]
    assert len({directory_name(table_identifier(uri)) for uri in tables}) == len(tables)
    # One bucket by three schemes is one table; and the original's own rule does not keep S3 apart.
    assert len({table_identifier(f"{s}://one/t") for s in ("s3", "s3a", "s3n")}) == 1
    assert table_identifier("s3a://one/t", "path") == table_identifier("s3a://two/t", "path")


def test_the_directory_of_a_real_store(golden: Path) -> None:
    case = json.loads((golden / "xskipper" / "testID=01" / "case.json").read_text())
    assert directory_name(case["table_identifier"]) == case["expected_md_dir"]


def test_virtual_columns_keep_the_case_of_the_table() -> None:
    assert virtual_name("Dt") == "virtual_Dt"


@given(st.text(), st.integers(0, 10**18 - 1))
def test_obj_names_come_back(path: str, mtime: int) -> None:
    assert parse_obj_name(obj_name(path, mtime)) == (path, mtime)


@pytest.mark.parametrize("text", ["", "/a", "/a#", "/a#x", "/a#-1", "/a#1.5", "/a#" + "9" * 19])
def test_texts_that_name_no_row(text: str) -> None:
    with pytest.raises(FormatError):
        parse_obj_name(text)


def test_rows_of_object_stores_are_named_as_the_original_names_them() -> None:
    assert file_identifier("s3a://b/t/p=1/é f.parquet") == "/t/p=1/é f.parquet"
    assert file_identifier("cos://b.s/t/f", "cos") == "cos://b/t/f"
