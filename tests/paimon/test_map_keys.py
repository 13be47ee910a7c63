"""Keys of maps as columns: built, asked as SQL writes them, and carried like others.

The layout: three files of 300 rows; ``m`` maps ``color`` to one of five texts and ``it's`` to
another, a tenth of the rows lack a key, a tenth the map.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.errors import PredicateError, UnsupportedError
from skipstone.paimon.format import container
from skipstone.predicate.types import MapKey, column_name, column_path
from tests.facts.facts import sidecar_at, sidecar_place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OLD = 1_600_000_000
COLORS = ["red", "green", "blue", "", "été"]


def maps(file: int) -> list[dict[str, str | None] | None]:
    found: list[dict[str, str | None] | None] = []
    for n in range(300 * file, 300 * file + 300):
        if n % 10 == 3:
            found.append(None)
            continue
        each: dict[str, str | None] = {"it's": f"v{n % 50}"}
        if n % 10 != 7:
            each["color"] = None if n % 10 == 5 else COLORS[n % (3 + file)]
        found.append(each)
    return found


def value(row: dict[str, str | None] | None, key: str) -> str | None:
    return None if row is None else row.get(key)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    home = tmp_path / "t"
    home.mkdir()
    text = pa.map_(pa.string(), pa.string())
    numbers = pa.map_(pa.int32(), pa.string())
    for file in range(3):
        rows = [None if row is None else list(row.items()) for row in maps(file)]
        nested = pa.array([{"m": row} for row in rows], pa.struct([pa.field("m", text)]))
        columns = {"m": pa.array(rows, text), "nest": nested, "n": pa.array([[]] * 300, numbers)}
        pq.write_table(pa.table(columns), home / f"{file}.parquet", row_group_size=90)
        os.utime(home / f"{file}.parquet", (OLD, OLD))
    return Table(str(home))


QUESTIONS: list[tuple[str, Callable[[str | None], bool]]] = [
    ("{} = 'red'", lambda v: v == "red"),
    ("{} = 'été'", lambda v: v == "été"),
    ("{} <> 'red'", lambda v: v is not None and v != "red"),
    ("{} IN ('blue', 'nothing')", lambda v: v == "blue"),
    ("{} IS NULL", lambda v: v is None),
    ("{} >= 'green'", lambda v: v is not None and v.encode() >= b"green"),
    ("NOT ({} <=> 'red')", lambda v: v != "red"),
    ("{} LIKE 'bl%'", lambda v: v is not None and v.startswith("bl")),
]


@pytest.mark.parametrize("kind", ["bitmap", "rangebitmap"])
@pytest.mark.parametrize("column", ["m['color']", "nest.m['color']"])
def test_keys_answer_as_columns_do(table: Table, kind: str, column: str) -> None:
    report = table.build(indexes=[f"{column}:{kind}", f"{column}:minmax"])
    assert (report.files_built, report.left_out) == (3, ())
    for question, truth in QUESTIONS:
        plan = table.plan(question.format(column))
        for file in range(3):
            wanted = [at for at, row in enumerate(maps(file)) if truth(value(row, "color"))]
            assert bool(plan.keep[file]) == bool(wanted), question
            if wanted and not plan.must[file]:
                detail = plan.details[file]
                assert detail.rows is not None
                assert detail.exact
                assert detail.rows.positions().tolist() == wanted, question


def test_the_name_in_the_container_is_paimons(table: Table) -> None:
    table.build(
        options={
            "file-index.bitmap.columns": "m[color]",
            "file-index.bloom-filter.columns": "m[it's]",
        }
    )
    assert [str(each.column) for each in table.describe().indexes] == ["m['color']", "m['it\\'s']"]
    place = sidecar_place(table.match(table.listing()), "container", 0)
    assert place is not None
    raw = sidecar_at(place, table.store.storage)
    assert raw is not None
    assert set(container.from_bytes(raw)[1]) == {
        ("m[color]", "bitmap"),
        ("m[it's]", "bloom-filter"),
    }
    assert not table.plan("m['it\\'s'] = 'v50'").keep.any()
    assert table.plan("m['it\\'s'] = 'v5' AND m['color'] = 'été'").keep.tolist() == [
        False,
        False,
        True,
    ]


def test_they_survive_compaction_and_are_proved(table: Table) -> None:
    table.build(indexes=["m['color']:bitmap"])
    table.build(indexes=["nest.m['color']:rangebitmap"])
    table.compact()
    assert table.plan("m['color'] = 'été'").keep.tolist() == [False, False, True]
    assert table.plan("nest.m['color'] = 'été'").keep.tolist() == [False, False, True]
    assert table.refresh().files_built == 0
    deep = table.check(deep=True)
    assert (deep.untrue, deep.corrupt) == ((), ())
    assert table.drop("m['color']:bitmap").dropped


def test_without_an_index_nothing_is_said(table: Table) -> None:
    table.build(indexes=["m['color']:bitmap"])
    assert table.plan("m['other'] = 'x'").keep.all()
    assert table.plan("m['color'] = 'nothing' OR m['other'] = 'x'").keep.all()
    assert table.plan("upper(m['color']) = 'RED'").keep.all()


@pytest.mark.parametrize("column", ["n['1']", "m['color']['x']", "nothing['x']"])
def test_what_is_no_key_of_a_map_from_texts(table: Table, column: str) -> None:
    with pytest.raises((PredicateError, UnsupportedError)):
        table.build(indexes=[f"{column}:bitmap"])


@pytest.mark.parametrize(
    "path",
    [
        ("m", MapKey("k")),
        ("m", MapKey("")),
        ("a.b", MapKey("it's `x` \\ ['y']")),
        ("s", "m", MapKey("a.b\nc")),
        ("m['k']",),
        ("m", "['k']"),
        ("", MapKey("k")),
    ],
)
def test_names_and_paths(path: tuple[str, ...]) -> None:
    found = column_path(column_name(path))
    assert found == path
    assert [type(part) for part in found] == [type(part) for part in path]
    assert MapKey("k") != "k"
    assert len({MapKey("k"), "k"}) == 2
