"""Indexes on expressions: the rows are those of brute force, and exactly the files expected are
left. ``tests/spark/test_expression_indexes.py`` compares with Spark itself."""

from __future__ import annotations

import itertools
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skipstone
from skipstone.errors import ExpressionError, PredicateError, SkipstoneError, UnsupportedError
from skipstone.predicate.binding import bind
from skipstone.predicate.indexed import fields_of_name, names_it, read_expression
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import leaves
from skipstone.pruning.residual import matching

FILES, EACH = 6, 40
START = datetime(2026, 1, 1, 22, tzinfo=UTC)


def file(part: int) -> pa.Table:
    numbers = range(part * EACH, part * EACH + EACH)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "Email": [None if n % 9 == 1 else f"User{n}@Example.ORG" for n in numbers],
            "ts": pa.array(
                [START + timedelta(days=part, minutes=5 * n) for n in range(EACH)],
                pa.timestamp("us", "UTC"),
            ),
            "n": pa.array([n * 7 % 50 for n in numbers], pa.int32()),
            "payload": pa.array(
                [[("type", f"Type{part}"), ("n", str(n % 3))] for n in numbers],
                pa.map_(pa.string(), pa.string()),
            ),
            "s": pa.array([{"a": f"A{part}", "b": n} for n in range(EACH)]),
        }
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "events"
    folder.mkdir()
    for part in range(FILES):
        pq.write_table(file(part), folder / f"{part}.parquet", row_group_size=16)
    return folder


def rows_of(root: Path, where: str, zone: str = "UTC") -> set[int]:
    """The ids that match, by the rows in memory alone."""
    paths = sorted(root.glob("*.parquet"))
    every = pa.concat_tables([pq.read_table(p) for p in paths], promote_options="permissive")
    tree = bind(parse_sql(where), every.schema, session_zone=zone, map_keys=True)
    if "payload['" in str(tree):
        pairs = every.column("payload").to_pylist()
        for key in ("type", "n", "none"):
            values = pa.array([dict(each or ()).get(key) for each in pairs], pa.string())
            every = every.append_column(f"payload['{key}']", pa.chunked_array([values]))
    if "s.a" in str(tree):
        every = every.append_column("s.a", pa.compute.struct_field(every.column("s"), "a"))
    columns = {name: every.column(name) for name in every.column_names}
    ids = every.column("id").to_pylist()
    return {
        n for n, flag in zip(ids, matching(tree, columns, len(every)).tolist(), strict=True) if flag
    }


def kept(table: skipstone.Table, where: str, zone: str = "UTC") -> list[str]:
    """The files that are left by indexes alone: no row group and page of a file is asked."""
    plan = table.plan(where, inside=False, time_zone=zone)
    return [Path(plan.listing.paths[at]).stem for at, keep in enumerate(plan.keep) if keep]


def check(root: Path, where: str, expected: list[int], zone: str = "UTC") -> None:
    table = skipstone.Table(root)
    found = table.query(where, columns=["id"], time_zone=zone).column("id").to_pylist()
    assert set(found) == rows_of(root, where, zone)
    assert kept(table, where, zone) == [str(part) for part in expected]


CASES = [
    ("lower(email)", "bloom(fpp=0.0001)", "lower(email) = 'user85@example.org'", [2]),
    ("lower(email)", "bloom(fpp=0.0001)", "lcase(Email) IN ('user3@example.org', 'x')", [0]),
    ("lower(email)", "bloom(fpp=0.0001)", "(lower(email) = 'user85@example.org') IS TRUE", [2]),
    ("lower(email)", "valuelist", "'user85@example.org' = lower(`EMAIL`)", [2]),
    ("lower(email)", "valuelist",
     "(n % 7 = n % 5 AND lower(email) = 'user85@example.org') IS TRUE", [2]),
    ("lower(email)", "valuelist", "(n % 7 = 1 OR lower(email) = 'none') IS TRUE", [*range(FILES)]),
    ("lower(email)", "minmax", "lower(email) LIKE 'user8%@example.org'", [0, 2]),
    ("lower(email)", "valuelist", "substr(lower(email), 1, 6) = 'user85'", [2]),
    ("lower(email)", "valuelist", "NOT (lower(email) <> 'user85@example.org')", [2]),
    ("to_date(ts)", "valuelist", "date(ts) = DATE '2026-01-03'", [1, 2]),
    ("to_date(ts)", "minmax", "CAST(ts AS DATE) < DATE '2026-01-02'", [0]),
    ("year(ts) * 100 + month(ts)", "minmax", "year(ts) * 100 + month(ts) > 202601", []),
    ("lower(payload['type'])", "valuelist", "lower(payload['type']) = 'type3'", [3]),
    ("lower(element_at(payload, 'type'))", "valuelist", "lower(payload.type) = 'type3'", [3]),
    ("concat(payload['type'], '/', s.a)", "bloom(fpp=0.0001)",
     "concat(payload['type'], '/', s.a) = 'Type4/A4'", [4]),
    ("lower(s.a)", "valuelist", "lower(S.A) = 'a5'", [5]),
    ("n % 25", "valuelist", "n % 25 + 1 = 0", []),
    ("n + 1 > 50", "valuelist", "n + 1 > 50", []),
    ("coalesce(email, 'none')", "valuelist", "coalesce(email, 'none') = 'User85@Example.ORG'", [2]),
    ("length(email) - 12", "minmax", "length(email) - 12 > 6", [2, 3, 4, 5]),
    ("payload['type']", "valuelist", "element_at(payload, 'type') = 'Type2'", [2]),
]  # fmt: skip


@pytest.mark.parametrize(
    "column, kind, where, expected", CASES, ids=[f"{c[1]} {c[2]}" for c in CASES]
)
def test_a_condition_on_an_expression_uses_its_index(
    root: Path, column: str, kind: str, where: str, expected: list[int]
) -> None:
    report = skipstone.Table(root).build(indexes=[f"{column}:{kind}"], pm="none")
    assert report.files_built == FILES
    assert not report.left_out
    check(root, where, expected)


@pytest.mark.parametrize("kind", ["bitmap", "rangebitmap", "bsi"])
def test_row_indexes_answer_for_rows(root: Path, kind: str) -> None:
    spec = {"bitmap": "lower(email)", "rangebitmap": "lower(email)", "bsi": "n % 25"}[kind]
    where = "lower(email) = 'user85@example.org'" if kind != "bsi" else "n % 25 = 3"
    skipstone.Table(root).build(indexes=[f"{spec}:{kind}"], pm="none")
    table = skipstone.Table(root)
    plan = table.plan(where)
    found = sum(len(rows) for each in plan.details.values() if (rows := each.rows) is not None)
    expected = rows_of(root, where)
    assert set(table.query(where, columns=["id"]).column("id").to_pylist()) == expected
    assert found == len(expected)


def test_nulls_of_an_expression_are_known(root: Path) -> None:
    full = file(0).set_column(1, "Email", pa.array([f"u{n}" for n in range(EACH)]))
    pq.write_table(full, root / "0.parquet")
    skipstone.Table(root).build(indexes=["lower(email):minmax"], pm="none")
    check(root, "lower(email) IS NULL", [1, 2, 3, 4, 5])


def test_the_name_is_the_same_for_every_spelling(root: Path) -> None:
    table = skipstone.Table(root)
    table.build(indexes=["LOWER( `email` ):bloom", "lower(Email):minmax"], pm="none")
    again = skipstone.Table(root).build(indexes=["lcase(EMAIL):bloom"], pm="none")
    assert (again.files_built, again.files_already) == (0, FILES)
    names = {(each.column, each.kind) for each in skipstone.Table(root).describe().indexes}
    assert names == {
        ("lower(Email) :: string", "bloomfilter"),
        ("lower(Email) :: string", "minmax"),
    }
    assert skipstone.Table(root).drop("lower(email):bloom").dropped
    assert [each.kind for each in skipstone.Table(root).describe().indexes] == ["minmax"]


def test_a_row_that_fails_costs_the_facts_of_its_file_alone(root: Path) -> None:
    report = skipstone.Table(root).build(indexes=["100 / (n - 35):minmax", "n:minmax"], pm="none")
    assert report.files_built == FILES
    failing = [p for p in range(FILES) if 35 in file(p).column("n").to_pylist()]
    (left,) = report.left_out
    assert left.units == len(failing)
    assert "division by zero in 100 / (n - 35)" in left.text
    where = "n <> 35 AND 100 / (n - 35) > 1000"
    table = skipstone.Table(root)
    assert kept(table, where) == [str(part) for part in failing]
    assert set(table.query(where).column("id").to_pylist()) == rows_of(root, where)
    with pytest.raises(ExpressionError):
        table.query("100 / (n - 35) > 1000")
    assert skipstone.Table(root).refresh(pm="none").files_built == 0


def test_files_that_differ_have_no_facts_and_say_so(root: Path) -> None:
    pq.write_table(file(1).drop_columns("Email"), root / "1.parquet")
    odd = file(2)
    pq.write_table(odd.set_column(1, "Email", odd["Email"].cast(pa.binary())), root / "2.parquet")
    report = skipstone.Table(root).build(indexes=["lower(email):valuelist"], pm="none")
    said = sorted(each.text for each in report.left_out)
    assert said[0] == "Email is not in this file"
    check(root, "lower(email) = 'user3@example.org'", [0, 1] if len(said) == 1 else [0, 1, 2])
    check(root, "lower(email) IS NULL AND id = 50", list(range(FILES)))


def test_bytes_that_are_not_text_have_no_facts(root: Path) -> None:
    odd = file(1)
    raw = pa.array([b"\xff" if n == 3 else b"x" for n in range(EACH)]).view(pa.string())
    pq.write_table(odd.set_column(1, "Email", raw), root / "1.parquet")
    report = skipstone.Table(root).build(indexes=["lower(email):valuelist"], pm="none")
    assert [each.units for each in report.left_out] == [1]
    assert "1" in kept(skipstone.Table(root), "lower(email) = 'none'")


# Letters whose case is another one, or none, in other versions of Unicode.
UNSETTLED = ["\u1c89", "\u1c8a", "\u019b", "\u0264", "\ua7cb", "\U00010d50", "\u10d0", "\uab70"]


@pytest.mark.parametrize("letter", UNSETTLED)
def test_letters_of_unsettled_case_have_no_facts(root: Path, letter: str) -> None:
    odd, same = file(1), file(2)
    texts = [f"Straße {letter}" if n == 3 else f"ŻÓŁĆ 中，{n}" for n in range(EACH)]
    pq.write_table(odd.set_column(1, "Email", pa.array(texts)), root / "1.parquet")
    settled = [f"ŞIĞ Nº {n} — ΑΣ В" for n in range(EACH)]
    pq.write_table(same.set_column(1, "Email", pa.array(settled)), root / "2.parquet")
    indexes = [f"{f}(email):valuelist" for f in ("lower", "upper")]
    indexes += ["Email:valuelist", "length(Email):minmax"]
    report = skipstone.Table(root).build(indexes=indexes, pm="none")
    said = f"failed: the case of {letter!r} (U+{ord(letter):04X}) depends on the version of Unicode"
    assert [each.text for each in report.left_out] == [said] * 2
    table = skipstone.Table(root)
    for where in (f"lower(email) = '{letter}'", f"upper(email) = '{letter}'"):
        assert kept(table, where) == ["1"]
    # The list of the column's values knows the letter, but not its case.
    for other in UNSETTLED:
        assert "1" in kept(table, f"lower(email) LIKE '%ße {other}%'")
        assert "1" in kept(table, f"lower(email) RLIKE 'ße {other}'")
    assert kept(table, "lower(email) LIKE '%ße %'") == ["1"]
    assert kept(table, "lower(email) RLIKE 'ße[ ]'") == ["1"]
    assert kept(table, "lower(email) = 'şiğ nº 5 — ας в'") == ["1", "2"]


@pytest.mark.parametrize("letter", UNSETTLED)
def test_letters_of_unsettled_case_are_not_folded(letter: str) -> None:
    schema = pa.schema([("c", pa.string())])
    known = {read_expression("lower(c)", schema).typed: "lower(c) :: string"}
    tree = bind(parse_sql(f"c = '{letter}'"), schema, expressions=known)
    assert [leaf.column for leaf in leaves(tree)] == ["c"]
    tree = bind(parse_sql("c = 'É'"), schema, expressions=known)
    assert [leaf.values for leaf in leaves(tree)] == [("É",), ("é",)]
    assert leaves(bind(parse_sql(f"c = lower('{letter}')"), schema)) == []
    assert [leaf.values for leaf in leaves(bind(parse_sql("c = lower('É')"), schema))] == [("é",)]


def test_types_that_widen_change_the_expression(root: Path) -> None:
    """``n + 1`` of an int may overflow where that of a bigint does not."""
    skipstone.Table(root).build(indexes=["n + 1:valuelist"], pm="none")
    check(root, "n + 1 = 1000", [])
    wide = file(0)
    pq.write_table(wide.set_column(3, "n", wide["n"].cast(pa.int64())), root / "9.parquet")
    table = skipstone.Table(root)
    assert len(kept(table, "n + 1 = 1000")) == FILES + 1
    assert "in this session it is (n + 1) :: bigint /* n bigint */" in str(
        table.explain("n + 1 = 1")
    )
    table.refresh()
    check(root, "n + 1 = 1000", [])


def test_another_time_zone_is_another_expression(root: Path) -> None:
    skipstone.Table(root).build(indexes=["hour(ts):valuelist"], pm="none")
    check(root, "hour(ts) = 5", [], "UTC")
    check(root, "hour(ts) = 5", list(range(FILES)), "Asia/Tokyo")
    check(root, "hour(ts) = 5", [], "Etc/UTC")
    asked = "the index on the expression was asked for it"
    assert asked in str(skipstone.Table(root).explain("hour(ts) = 5"))
    text = str(skipstone.Table(root).explain("hour(ts) = 5", time_zone="Asia/Tokyo"))
    assert asked not in text
    assert "in this session it is hour(ts) :: int /* ts timestamp, in Asia/Tokyo */" in text


def test_a_column_of_the_partitions_hides_that_of_the_files(tmp_path: Path) -> None:
    root = tmp_path / "events"
    (root / "Email=z").mkdir(parents=True)
    pq.write_table(file(0), root / "Email=z" / "0.parquet")
    skipstone.Table(root).build(indexes=["upper(email):valuelist"])
    table = skipstone.Table(root)
    assert table.count("upper(email) = 'Z'") == EACH
    assert "Email is a column of the partitions" in str(table.explain("upper(email) = 'Z'"))


def test_a_column_with_the_name_of_an_expression_is_another_one(tmp_path: Path) -> None:
    root = tmp_path / "events"
    root.mkdir()
    skipstone_name = "lower(Email) :: string"
    table = pa.table({"id": [1, 2], "Email": ["A", "B"], skipstone_name: ["q", "r"]})
    pq.write_table(table, root / "0.parquet")
    skipstone.Table(root).build(indexes=["lower(email):valuelist", f"`{skipstone_name}`:valuelist"])
    opened = skipstone.Table(root)
    assert opened.query(f"`{skipstone_name}` = 'q'").column("id").to_pylist() == [1]
    assert opened.query("lower(email) = 'b'").column("id").to_pylist() == [2]
    assert opened.count("lower(email) = 'q'") == 0
    assert opened.count(f"`{skipstone_name}` = 'a'") == 0
    assert opened.drop("lower(email):valuelist").dropped
    assert [each.column for each in opened.describe().indexes] == [f"`{skipstone_name}`"]


@pytest.mark.parametrize(
    "spec, error, text",
    [
        ("lower(emial):bloom", PredicateError, "emial"),
        ("nonsense(email):bloom", PredicateError, "no function nonsense"),
        ("lowr(email):bloom", PredicateError, "did you mean 'lower'?"),
        ("1 + 1:minmax", UnsupportedError, "it has no column"),
        ("array(email):minmax", UnsupportedError, "its values are list"),
        ("map_keys(payload):bitmap", UnsupportedError, "elements of lists are not rows"),
        ("size(payload):minmax", UnsupportedError, "payload"),
        ("get_json_object(email, '$.a'):bloom", UnsupportedError, "needs a Spark build"),
        ("md5(email):bitmap", UnsupportedError, "without their positions"),
        ("lower(:bloom", SkipstoneError, ""),
    ],
)
def test_what_has_no_index_is_refused(
    root: Path, spec: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        skipstone.Table(root).build(indexes=[spec])
    assert text in str(caught.value)


def test_the_directory_of_xskipper_has_no_expressions(root: Path) -> None:
    skipstone.Table(root).build(indexes=["lower(email):minmax", "n:minmax"], pm="none")
    report = skipstone.Table(root).export()
    assert [each.text for each in report.left_out] == ["Xskipper has no index over an expression"]
    (part,) = [
        Path(folder) / name
        for folder, _, names in os.walk(root.parent / "_events.skipstone" / "xskipper")
        for name in names
        if name.endswith(".parquet")
    ]
    assert "lower" not in " ".join(pq.read_schema(part).names)


def test_a_deep_check_compares_expressions(root: Path) -> None:
    skipstone.Table(root).build(
        indexes=["lower(email):valuelist,bloom", "year(ts):minmax", "n % 25:minmax"], pm="none"
    )
    report = skipstone.Table(root).check(deep=True)
    assert not report.untrue
    assert report.compared > 500


# -- random expressions ----------------------------------------------------------------------------

TEXT = [
    *("lower(email)", "upper(s.a)", "substr(email, 5, 2)", "coalesce(email, 'z')", "trim(email)"),
    *("concat(s.a, '-', email)", "lower(payload['type'])"),
    "CASE WHEN n > 9 THEN s.a ELSE email END",
]
NUMBER = [
    *("n % 7", "n * 2 - 5", "length(email)", "hour(ts)", "day(ts)", "abs(n - 20)", "-n", "n DIV 4"),
    *("least(n, 30)", "CAST(n AS TINYINT)", "unix_timestamp(ts) % 86400", "100 / (n - 35)"),
]
TEXTS = st.sampled_from(
    ["user85@example.org", "a3", "A4", "type2", "12", "z", "", "User9@Example.ORG"]
)
NUMBERS = st.integers(-60, 120)


SHAPES = [
    *("{e} = {a}", "{e} <> {a}", "{e} > {a}", "{e} <= {a}", "{e} IN ({a}, {b})", "{e} <=> {a}"),
    *("{e} NOT IN ({a}, {b})", "{e} IS NULL", "{e} IS NOT NULL", "NOT ({e} < {a}) OR n = 5"),
    *("n < 20 AND {e} >= {a}", "({e} = {a}) IS NOT TRUE", "({e} > {a}) IS TRUE"),
]


@st.composite
def conditions(draw: st.DrawFn, expression: str, text: bool) -> str:
    def literal() -> str:
        return f"'{draw(TEXTS)}'" if text else str(draw(NUMBERS))

    shapes = SHAPES + (
        ["{e} LIKE 'us%'", "startswith({e}, 'User1')"] if text else ["{e} + 1 = {a}"]
    )
    shape = draw(st.sampled_from(shapes))
    return shape.format(e=expression, a=literal(), b=literal())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random") / "events"
    folder.mkdir()
    for part in range(FILES):
        pq.write_table(file(part), folder / f"{part}.parquet", row_group_size=16)
    kinds = itertools.cycle(["minmax", "valuelist", "bloom,bitmap"])
    wanted = [f"{each}:{kind}" for each, kind in zip(TEXT + NUMBER, kinds, strict=False)]
    skipstone.Table(folder).build(indexes=wanted, pm="none")
    return folder


@given(data=st.data())
def test_rows_are_those_of_brute_force(shared: Path, data: st.DataObject) -> None:
    text = data.draw(st.booleans())
    zone = data.draw(st.sampled_from(["UTC", "Asia/Tokyo"]))
    where = data.draw(conditions(data.draw(st.sampled_from(TEXT if text else NUMBER)), text))
    try:
        expected = rows_of(shared, where, zone)
    except ExpressionError:
        return
    found = skipstone.Table(shared).query(where, columns=["id"], time_zone=zone)
    assert set(found.column("id").to_pylist()) == expected


def test_ranges_of_a_column_say_nothing_of_its_texts(tmp_path: Path) -> None:
    """Texts of numbers and of times have another order than these."""
    root = tmp_path / "t"
    root.mkdir()
    for part in range(12):
        when = pa.array([part * 86_400_000_000] * 2, pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"n": [part, part], "ts": when}), root / f"{part}.parquet")
    table = skipstone.Table(root)
    table.build(indexes=["CAST(n AS STRING):valuelist", "CAST(ts AS STRING):valuelist"])
    assert table.count("n < 5") == table.query("n < 5").num_rows == 10
    assert table.count("ts >= TIMESTAMP '1970-01-05 00:00:00Z'") == 16
    assert table.plan("CAST(n AS STRING) = '11'").files_kept == 1


def test_a_name_keeps_a_zone_without_columns_and_a_column_of_the_name_in(tmp_path: Path) -> None:
    schema = pa.schema([("st", pa.string()), ("in", pa.int32()), ("n", pa.int64())])
    made = read_expression("to_date(CAST(st AS TIMESTAMP))", schema, "America/New_York")
    assert "in America/New_York" in made.name
    assert read_expression(made.name, schema, "UTC").name == made.name
    named = read_expression("n + `in`", schema, "UTC")
    assert set(fields_of_name(named.name)) == {"n", "in"}
    assert read_expression(named.name, schema, "Asia/Tokyo").name == named.name


def test_texts_of_a_definition_keep_their_case() -> None:
    name = read_expression("startswith(s, 'a')", pa.schema([("s", pa.string())])).name
    assert names_it("STARTSWITH(S, 'a')", name)
    assert not names_it("startswith(s, 'A')", name)
