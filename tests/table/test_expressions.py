"""Expressions through ``Table.query`` and the command line: files that differ, errors, laziness."""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import ExpressionError, PredicateError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def rows(seed: int, count: int = 200) -> list[dict[str, Any]]:
    rng = random.Random(seed)

    def some(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    return [
        {
            "id": seed * 1_000 + at,
            "ship": some(dt.date(1998, 1, 1) + dt.timedelta(rng.randint(-400, 400))),
            "commit": some(dt.date(1998, 1, 1) + dt.timedelta(rng.randint(-400, 400))),
            "q": some(rng.randint(-50, 50)),
            "name": some(rng.choice(["Abc", "xyz", "straße", "", "a_b"])),
            "tags": some([rng.choice(["x", "y"]) for _ in range(rng.randint(0, 3))]),
            "place": some({"city": some(rng.choice(["Oslo", "Rome"]))}),
            "at": some(dt.datetime(1998, 1, 1) + dt.timedelta(minutes=rng.randint(0, 900_000))),
        }
        for at in range(count)
    ]


TYPES = [
    ("id", pa.int64()),
    ("ship", pa.date32()),
    ("commit", pa.date32()),
    ("q", pa.int32()),
    ("name", pa.string()),
    ("tags", pa.list_(pa.string())),
    ("place", pa.struct([("city", pa.string())])),
    ("at", pa.timestamp("us", "UTC")),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Partitions; one file has a narrower type, one a dictionary, one lacks columns."""
    root = tmp_path_factory.mktemp("lake")
    known: list[dict[str, Any]] = []
    for part in range(6):
        mine = rows(part)
        table = pa.Table.from_pylist(mine, schema=pa.schema(TYPES))
        if part == 1:
            place = table.schema.get_field_index("q")
            table = table.set_column(place, "q", table.column("q").cast(pa.int16()))
        if part == 2:
            table = table.drop_columns(["q", "tags"])
            mine = [{**row, "q": None, "tags": None} for row in mine]
        if part == 3:
            place = table.schema.get_field_index("name")
            table = table.set_column(place, "name", table.column("name").dictionary_encode())
        folder = root / f"year={1998 + part % 2}"
        folder.mkdir(exist_ok=True)
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=90)
        known += [{**row, "year": 1998 + part % 2} for row in mine]
    return root, known


def _year(value: dt.date | None) -> int | None:
    return None if value is None else value.year


QUESTIONS: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("ship > commit", lambda r: r["ship"] and r["commit"] and r["ship"] > r["commit"]),
    ("NOT (ship > commit)", lambda r: r["ship"] and r["commit"] and r["ship"] <= r["commit"]),
    ("q * 2 > 50", lambda r: r["q"] is not None and r["q"] * 2 > 50),
    ("-q > 10", lambda r: r["q"] is not None and -r["q"] > 10),
    ("q % 7 = -3", lambda r: r["q"] is not None and r["q"] < 0 and -r["q"] % 7 == 3),
    ("year(ship) = 1998", lambda r: _year(r["ship"]) == 1998),
    ("year(ship) = year", lambda r: _year(r["ship"]) == r["year"]),
    ("upper(name) = 'STRASSE'", lambda r: r["name"] == "straße"),
    ("name ILIKE 'AB%'", lambda r: r["name"] == "Abc"),
    ("name RLIKE '^[a-z]+$'", lambda r: r["name"] == "xyz"),
    ("length(name) = 3 AND q > 0", lambda r: len(r["name"] or "") == 3 and (r["q"] or 0) > 0),
    ("size(tags) = 0", lambda r: r["tags"] == []),
    ("array_contains(tags, 'x')", lambda r: r["tags"] and "x" in r["tags"]),
    ("place IS NULL", lambda r: r["place"] is None),
    ("place IS NOT NULL AND place.city IS NULL", lambda r: r["place"] and not r["place"]["city"]),
    ("upper(place.city) = 'OSLO'", lambda r: r["place"] and r["place"]["city"] == "Oslo"),
    ("coalesce(q, 9) = 9", lambda r: r["q"] in (None, 9)),
    ("(q > 0) IS NOT TRUE", lambda r: r["q"] is None or r["q"] <= 0),
    ("q IS NULL OR 100 / (q + 100) > 0.9", lambda r: r["q"] is None or 100 / (r["q"] + 100) > 0.9),
    ("hour(at) = 7", lambda r: r["at"] and r["at"].hour == 7),
    (
        "date_trunc('month', at) = TIMESTAMP '1998-05-01'",
        lambda r: r["at"] and (r["at"].year, r["at"].month) == (1998, 5),
    ),
    ("id IN (1, q, 5)", lambda r: r["id"] in (1, 5) or r["id"] == r["q"]),
]  # fmt: skip


@pytest.mark.parametrize("where, truth", QUESTIONS, ids=[where for where, _ in QUESTIONS])
def test_rows_and_counts_are_those_of_brute_force(
    lake: tuple[Path, list[dict[str, Any]]], where: str, truth: Callable[[dict[str, Any]], Any]
) -> None:
    root, known = lake
    table = skipstone.Table(root)
    expected = [row["id"] for row in known if truth(row)]
    found = table.query(where, columns=["id"])
    assert sorted(found.column("id").to_pylist()) == sorted(expected)
    assert table.count(where) == len(expected)
    assert 0 < len(expected) < len(known) or where.startswith("id IN")
    ordered = table.query(where, columns=["id", "name"], order_by="id desc", limit=5)
    assert ordered.column("id").to_pylist() == sorted(expected, reverse=True)[:5]


def test_expressions_in_one_file(lake: tuple[Path, list[dict[str, Any]]]) -> None:
    root, known = lake
    file = skipstone.ParquetFile(str(root / "year=1998" / "0.parquet"))
    expected = [row["id"] for row in known[:200] if (row["q"] or 0) * 2 > 50]
    assert file.query("q * 2 > 50", ["id"]).column("id").to_pylist() == expected
    assert file.count("q * 2 > 50") == len(expected)


def test_the_time_zone_of_the_session_counts(lake: tuple[Path, list[dict[str, Any]]]) -> None:
    root, known = lake
    found = skipstone.Table(root).query("hour(at) = 7", columns=["id"], time_zone="Asia/Kolkata")
    shift = dt.timedelta(hours=5, minutes=30)
    expected = [row["id"] for row in known if row["at"] and (row["at"] + shift).hour == 7]
    assert sorted(found.column("id").to_pylist()) == sorted(expected)


def test_a_row_that_fails_is_an_error_with_its_file(
    lake: tuple[Path, list[dict[str, Any]]],
) -> None:
    root, _ = lake
    with pytest.raises(ExpressionError, match=r"parquet: a division by zero in 1 / \(q"):
        skipstone.Table(root).query("1 / (q - q) > 1")
    with pytest.raises(ExpressionError, match=r"'[^0-9]*' cannot be cast to int in"):
        skipstone.Table(root).count("CAST(name AS INT) = 1")
    with pytest.raises(UnsupportedError, match=r"cannot decide name RLIKE '\(\?x\)a'"):
        skipstone.Table(root).query("name RLIKE '(?x)a'")
    with pytest.raises(UnsupportedError, match="cannot decide soundex"):
        skipstone.Table(root).query("soundex(name) = 'A'")
    # What another condition excludes does not fail.
    assert skipstone.Table(root).count("q > 0 AND 1 / q > 1") == 0


@pytest.mark.parametrize(
    "fails, hint, instead",
    [
        ("100 / (q - q) > 1", "nullif(x, 0)", "100 / nullif(q - q, 0) > 1"),
        ("id % (q - q) = 1", "nullif(x, 0)", "id % nullif(q - q, 0) = 1"),
        ("id DIV (q - q) = 1", "nullif(x, 0)", "id DIV nullif(q - q, 0) = 1"),
        ("CAST(name AS INT) = 1", "TRY_CAST", "TRY_CAST(name AS INT) = 1"),
        ("CAST(id * 1e15 AS INT) = 1", "TRY_CAST", "TRY_CAST(id * 1e15 AS INT) = 1"),
        ("q * q * 2147483647 = id", "AS BIGINT", "q * q * CAST(2147483647 AS BIGINT) = id"),
        (
            "(id + q) * 9223372036854775807 > q",
            "AS DECIMAL(20, 0)",
            "CAST(id + q AS DECIMAL(20, 0)) * 9223372036854775807 > q",
        ),
        (
            "(id + q) * 99999999999999999999999999999999999999BD > q",
            "AS DOUBLE",
            "CAST(id + q AS DOUBLE) * 99999999999999999999999999999999999999BD > q",
        ),
        ("abs(q + q - 2147483647 - 100) = id", "AS BIGINT", None),
        ("date_add(ship, 2147483647) > commit", "another condition", None),
    ],
)
def test_the_hint_of_a_failure_helps(
    lake: tuple[Path, list[dict[str, Any]]], fails: str, hint: str, instead: str | None
) -> None:
    table = skipstone.Table(lake[0])
    with pytest.raises(ExpressionError) as error:
        table.count(fails)
    assert error.value.hint.startswith("Spark fails on it too")
    assert hint in error.value.hint
    if instead is not None:
        table.count(instead)  # it does not fail


def test_explain_refuses_a_function_as_a_query_does(
    lake: tuple[Path, list[dict[str, Any]]],
) -> None:
    table = skipstone.Table(lake[0])
    for refuse in (table.explain, table.query, table.count, table.plan):
        with pytest.raises(PredicateError, match="no function yaer at position 0") as error:
            refuse("yaer(ship) = 1998")
        assert error.value.hint == "did you mean 'year'?"
    assert "only Spark computes soundex" in str(table.explain("soundex(name) = 'A'"))


def test_text_that_is_not_utf8_is_refused_by_functions_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    words = pa.array([b"\xff", b"a"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 2, words.buffers())
    pq.write_table(pa.table({"s": text, "t": text}), path)
    table = skipstone.Table(tmp_path)
    assert table.count("s = t") == 2
    with pytest.raises(UnsupportedError, match="column s has text that is not UTF-8"):
        table.count("length(s) = 1")
    # Bytes of a binary column, and of the values of a map, become text in a function.
    pairs = pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "k"]), text)
    pq.write_table(pa.table({"b": words, "m": pairs}), path)
    table = skipstone.Table(tmp_path)
    assert table.count("CAST(b AS STRING) = 'a' AND m['k'] = 'a' AND length(b) = 1") == 1
    for where, column in (
        ("lower(b) = 'a'", "b"),
        ("trim(b) = X'61'", "b"),
        ("upper(coalesce(CAST(b AS STRING), 'x')) = 'A'", "b"),
        ("length(m['k']) = 1", r"m\['k'\]"),
    ):
        with pytest.raises(UnsupportedError, match=f"column {column} has text that is not UTF-8"):
            table.count(where)


def test_a_plan_shows_why_no_index_helps(lake: tuple[Path, list[dict[str, Any]]]) -> None:
    root, _ = lake
    found = skipstone.Table(root).explain("ship > commit AND q * 2 > 50")
    assert "two columns are compared" in str(found)


def test_many_files_are_decided_together(tmp_path: Path) -> None:
    known = []
    for part in range(40):
        mine = rows(part, 100)
        known += mine
        schema = pa.schema([(name, type) for name, type in TYPES if name not in ("tags", "place")])
        pq.write_table(pa.Table.from_pylist(mine, schema=schema), tmp_path / f"{part:02}.parquet")
    table = skipstone.Table(tmp_path)
    for where, truth in QUESTIONS:
        if not any(word in where for word in ("tags", "place", "year", "CAST")):
            expected = [row["id"] for row in known if truth(row)]
            assert table.query(where, columns=["id"]).column("id").to_pylist() == expected, where


def test_the_end_of_a_text_is_before_its_last_line_terminator_too(tmp_path: Path) -> None:
    texts = ["a", "a\n", "a\r\n", "a\r", "a\n\n", "a\u2028", "ab\n", "\n", "", "b\x85"]
    raw = [*(text.encode() for text in texts), b"\xffa\n", b"\xff\r\n"]
    column = pa.array(raw, pa.binary()).view(pa.string())
    pq.write_table(pa.table({"at": range(len(raw)), "s": column}), tmp_path / "p.parquet")
    table = skipstone.Table(tmp_path)
    for pattern, expected in (
        ("a$", {0, 1, 2, 3, 5, 10}),
        ("^(a|b)$", {0, 1, 2, 3, 5, 9}),
        ("^$", {7, 8}),
        ("a$|b", {0, 1, 2, 3, 5, 6, 9, 10}),
        # Something follows.
        (r"a$\\n", {1, 10}),
        (r"(a$|b)\\s+", {1, 2, 3, 6, 10}),
        (r"\\r$", {3}),
        ("^.$", {0, 1, 2, 3, 5, 9, 11}),
    ):
        found = table.query(f"s RLIKE '{pattern}'", columns=["at"]).column("at").to_pylist()
        assert set(found) == expected, pattern
