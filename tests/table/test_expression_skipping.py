"""What expressions skip, by kind of index: the table of ``docs/expressions.md``, row for row."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone
from tests.folders import ROOT

FILES, EACH = 8, 50
# Of numbers and times, and of text.
KINDS: dict[str, tuple[str | None, str]] = {
    "minmax": ("minmax", "minmax"),
    "valuelist": ("valuelist", "valuelist"),
    "bloom": ("bloom", "bloom"),
    "ngram": (None, "ngram(n=2)"),
    "row index": ("rangebitmap", "bitmap"),
}
DAYS = (date(1992, 1, 1) - date(1970, 1, 1)).days
FORMATS = {"yyyy": "Y", "MM": "m", "dd": "d"}
WORDS = ["abc", "bcd", "cde", "def", "efg", "fgh", "ghi", "hij"]


def file(part: int) -> pa.Table:
    """File ``part`` has its own year, numbers and words; every other one has capitals."""
    word = WORDS[part].upper() if part % 2 else WORDS[part]
    days = [DAYS + part * 366 + 7 * (n % 25) for n in range(EACH)]
    return pa.table(
        {
            "id": pa.array(range(part * EACH, part * EACH + EACH), pa.int64()),
            "c": pa.array([part * 10 + n % 2 for n in range(EACH)], pa.int32()),
            "e": pa.array([40] * EACH, pa.int64()),
            "dec": pa.array([part * 10 + n % 2 for n in range(EACH)], pa.int32()).cast(
                pa.decimal128(15, 2)
            ),
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
            "ts": pa.array([day * 86_400_000_000 for day in days], pa.int64()).cast(
                pa.timestamp("us", "UTC")
            ),
            "s": [word, f"{word}z"] * (EACH // 2),
            "tags": pa.array([[word, None], []] * (EACH // 2), pa.list_(pa.string())),
            "m": pa.array([[(word, part)], None] * (EACH // 2), pa.map_(pa.string(), pa.int32())),
        }
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, skipstone.Table]:
    found = {}
    for kind, (numbers, text) in KINDS.items():
        root = tmp_path_factory.mktemp(kind.replace(" ", ""))
        for part in range(FILES):
            pq.write_table(
                file(part), root / f"{part}.parquet", write_statistics=False, use_dictionary=False
            )
        table = skipstone.Table(root, index_location=root / "_index")
        columns = ("c", "e", "dec", "day", "ts")
        wanted = [f"{column}:{numbers}" for column in columns if numbers]
        # Lists and maps have indexes of whole files alone.
        lists = ["tags", "map_keys(m)", "map_values(m)"]
        lists = [f"{each}:{kind}" for each in lists if kind in ("minmax", "valuelist", "bloom")]
        table.build(indexes=[*wanted, f"s:{text}", *lists], pm="none")
        found[kind] = table
    return found


def documented() -> list[tuple[str, dict[str, bool]]]:
    """The table of the page: expressions, and what each index can do for them."""
    text = (Path(ROOT) / "docs" / "expressions.md").read_text(encoding="utf-8")
    lines = text[text.index("| expression |") :].split("\n\n")[0].splitlines()
    header = [each.strip() for each in lines[0].strip("|").split("|")]
    rows = []
    for line in lines[2:]:
        cells = [each.strip() for each in line.strip("|").split("|")]
        marks = dict(zip(header[1:], cells[1:], strict=True))
        said = {name: mark == "yes" for name, mark in marks.items()}
        rows += [(condition, said) for condition in re.findall(r"`([^`]+)`", cells[0])]
    return rows


DOCUMENTED = documented()


@pytest.mark.parametrize("condition, marks", DOCUMENTED, ids=[each for each, _ in DOCUMENTED])
def test_the_page_says_which_indexes_skip(
    tables: dict[str, skipstone.Table], condition: str, marks: dict[str, bool]
) -> None:
    brute = {row["id"] for row in _rows(condition)}
    skips = {}
    for kind, table in tables.items():
        plan = table.plan(condition)
        assert set(table.query(condition, columns=["id"]).column("id").to_pylist()) == brute
        left = int(plan.keep.sum())
        rows = 0
        for at in _kept(plan):
            found = plan.details[at].rows if at in plan.details else None
            rows += EACH if found is None else len(found)
        skips[kind] = bool(left < FILES or rows < FILES * EACH)
    assert skips == {kind: marks[kind] for kind in KINDS}
    assert marks["embedded"]


def _kept(plan: Any) -> list[int]:
    return [at for at, keep in enumerate(plan.keep) if keep]


def _rows(condition: str) -> list[dict[str, Any]]:
    """The rows as the kernels decide them, without files."""
    every = pa.concat_tables([file(part) for part in range(FILES)])
    formatted = re.search(r"date_format\((\w+), '([^']+)'\)", condition)
    if formatted is not None:  # which no kernel has
        plan = re.sub("yyyy|MM|dd", lambda found: "%" + FORMATS[found[0]], formatted[2])
        texts = pc.strftime(every.column(formatted[1]), plan)
        every = every.append_column("formatted", texts)
        condition = condition.replace(formatted[0], "formatted")
    if "m['abc']" in condition:
        every = every.append_column(
            "v", pc.map_lookup(every.column("m").combine_chunks(), "abc", "first")
        )
        condition = condition.replace("m['abc']", "v")
    from skipstone.predicate.binding import Binder
    from skipstone.predicate.kernels.rows import RowValues
    from skipstone.predicate.sql import parse_sql
    from skipstone.predicate.zones import zone

    binder = Binder(every.schema, False, zone("UTC"), True, None, True)
    typed = binder.typed(parse_sql(condition))
    columns = {name: every.column(name).combine_chunks() for name in every.column_names}
    flags = RowValues(columns, len(every), zone("UTC")).of(typed).to_pylist()
    return [row for row, flag in zip(every.to_pylist(), flags, strict=True) if flag]


@pytest.mark.parametrize(
    "condition, files",
    [
        ("c + 1 = 51", 1),
        ("c * 2 > 99", 3),
        ("year(ts) = 1994", 1),
        ("year(day) BETWEEN 1994 AND 1995", 2),
        ("date_trunc('year', ts) < TIMESTAMP '1994-01-01 00:00:00'", 2),
        ("coalesce(c, 50) = 50", 1),
        ("upper(s) = 'ABC'", 1),
        ("substr(s, 1, 2) = 'BC'", 1),
        ("s RLIKE '^cd[a-z]'", 1),
        ("CASE WHEN c < 10 THEN 'low' ELSE 'high' END = 'low'", 1),
        ("(c < 10) IS NOT TRUE", 7),
    ],
)
def test_exactly_the_files_expected_are_kept(
    tables: dict[str, skipstone.Table], condition: str, files: int
) -> None:
    plan = tables["minmax"].plan(condition, inside=False)
    assert sum(plan.keep) == files
