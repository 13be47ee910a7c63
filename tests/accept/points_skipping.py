"""Predicates and index kinds: what is asked, what is skipped, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from skipstone import Table
from skipstone.errors import PredicateError, UnsupportedError
from tests.accept.registry import point
from tests.accept.tables import FILES, ROWS, events, write

if TYPE_CHECKING:
    from skipstone.table.open_table import Where
    from tests.accept.workbench import Workbench

INDEXES = ["id:bloom", "day:minmax", "kind:valuelist", "note:minmax", "x:minmax"]


def kept(table: Table, where: Where) -> list[int]:
    """The numbers of the files that a plan keeps."""
    return [int(path.rpartition("/")[2][5:7]) for path in table.plan(where).paths]


@point("predicates: SQL text and DNF tuples skip alike, in every form that the table supports")
def forms(bench: Workbench) -> None:
    table = Table(str(events(bench.home / "events")))
    table.build(indexes=[*INDEXES, "place.city:valuelist"])
    everything = list(range(FILES))
    cases: list[tuple[Where, list[int]]] = [
        ("day = 3", [3]),
        ([("day", "=", 3)], [3]),
        ([[("day", "<", 1)], [("day", ">", 10)]], [0, 11]),
        ("day IN (3, 5, NULL)", [3, 5]),
        ("day NOT IN (3, NULL)", []),
        ("day BETWEEN 2 AND 4", [2, 3, 4]),
        ("NOT (day < 10 OR day > 10)", [10]),
        ("kind = 'rare'", [7]),
        ("kind LIKE 'ra%'", [7]),
        ("startswith(kind, 'rar')", [7]),
        ("kind LIKE 'r\\_%'", []),
        ("note IS NOT NULL", [3]),
        ("note IS NULL AND day <= 3", [0, 1, 2]),
        ("note <=> 'here'", [3]),
        ("NOT (note <=> 'here')", [n for n in everything if n != 3]),
        ("place.city = 'c1' AND day < 5", [1, 4]),
        ("CAST(day AS BIGINT) >= 11L", [11]),
        ("day < 1.5", [0, 1]),
        ("day = 3 AND upper(kind) = 'ODD'", [3]),
        ("upper(kind) = 'RARE' OR day = 3", [3, 7]),
        ("concat(kind, note) = 'oddhere' OR day = 3", everything),
    ]
    for where, expected in cases:
        got = kept(table, where)
        assert got == expected, f"{where}: files {got}, expected {expected}"


@point("predicates: what no index can use is named, a wrong column gets its place and the nearest")
def named(bench: Workbench) -> None:
    root = events(bench.home / "events")
    table = Table(str(root))
    table.build(indexes=INDEXES)
    text = str(table.explain("concat(kind, note) = 'oddhere' AND day = 3"))
    assert "note: concat(kind, note) = 'oddhere'" in text, text
    with pytest.raises(PredicateError) as told:
        table.plan("day = 3 AND kynd = 'odd'")
    assert (told.value.position, told.value.nearest) == (12, "kind"), told.value
    ran = bench.skipstone("explain", root, "kynd = 'odd'")
    assert ran.code == 1, ran
    assert [line.split(":")[0] for line in ran.err.splitlines()] == ["error", "hint"], ran.err
    assert "kind" in ran.err, ran.err


@point("indexes: a key spread over all files is found in one, an absent one in none")
def needle(bench: Workbench) -> None:
    root = events(bench.home / "events")
    table = Table(str(root))
    table.build(indexes=["id:bloom(fpp=0.0001)"])
    for number in range(FILES):
        got = kept(table, f"id = {5 * FILES + number}")
        assert number in got, f"file {number} holds the key and is skipped"
        assert len(got) <= 2, f"{len(got)} files for one key"
    assert kept(table, f"id = {FILES * ROWS + 77}") == [], "an absent key reads files"
    assert len(kept(table, f"id IN (12, 13, {FILES * ROWS})")) in (2, 3), "an IN list reads more"


@point("indexes: NaN, both zeros and nulls are where Spark's order has them")
def floats(bench: Workbench) -> None:
    nan, zero = float("nan"), -0.0
    root = bench.home / "floats"
    write(root / "part 00.parquet", {"f": pa.array([1.0, nan])})
    write(root / "part 01.parquet", {"f": pa.array([zero, -5.0])})
    write(root / "part 02.parquet", {"f": pa.array([None, None], pa.float64())})
    write(root / "part 03.parquet", {"f": pa.array([], pa.float64())})
    for kind in ("minmax", "valuelist", "bloom"):
        table = Table(str(root), index_location=str(bench.home / kind))
        table.build(indexes=[f"f:{kind}"])
        assert kept(table, "f = double('NaN')") == [0], kind
        assert kept(table, "f = 0.0D") == [1], kind
        assert kept(table, "f IS NULL") == [2], kind
    ordered = Table(str(root), index_location=str(bench.home / "minmax"))
    assert kept(ordered, "f > 100D") == [0], "NaN is larger than every number"
    assert kept(ordered, "f <> 0.0D") == [0, 1], "<> skips files that hold other values"


@point("indexes: columns that are missing, narrower or nested, and files that are damaged")
def drift(bench: Workbench) -> None:
    root = bench.home / "drift"
    write(root / "part 00.parquet", {"a": pa.array([1, 2], pa.int32()), "b": ["x", "y"]})
    write(
        root / "part 01.parquet", {"b": ["x", "z"], "a": pa.array([2**40], pa.int64()).take([0, 0])}
    )
    write(root / "part 02.parquet", {"b": ["q", "q"]})
    (root / "part 03.parquet").write_bytes(b"PAR1 this is no Parquet file PAR1")
    write(root / "part 04.parquet", {"a": pa.array([7, 8]), "b": ["x", "x"]})
    table = Table(str(root))
    report = table.build(indexes=["a:minmax"])
    failed = [path.rpartition("/")[2] for path, _ in report.files_failed]
    assert (failed, report.files_built) == (["part 03.parquet"], 4), report
    assert kept(table, "a = 7") == [3, 4], "a damaged file is read, the others are told apart"
    assert kept(table, "a IS NULL") == [2, 3], "a missing column is all null"
    assert kept(table, "a > 100") == [1, 3], "a wider file is compared exactly"


@point("indexes: a type that a kind cannot take is refused with the kinds that can")
def refused(bench: Workbench) -> None:
    root = bench.home / "lists"
    write(root / "part 00.parquet", {"tags": pa.array([[["a"]], [["b"]]]), "n": [1, 2]})
    for index, error in (("tags:minmax", UnsupportedError), ("m:minmax", PredicateError)):
        with pytest.raises(error) as told:
            Table(str(root)).build(indexes=[index])
        assert told.value.hint, told.value


@point("explain: every count has its denominator, every index its reason, --json one document")
def explained(bench: Workbench) -> None:
    root = events(bench.home / "events")
    Table(str(root)).build(indexes=INDEXES)
    ran = bench.skipstone("explain", root, "day = 3 AND kind = 'odd'")
    assert ran.code == 0, ran
    assert f"read 1 of {FILES} files" in ran.out, ran.out
    assert "not used: no predicate on id" in ran.out, ran.out
    document = json.loads(bench.skipstone("explain", root, "day = 3", "--json").out)
    assert document["files"] == {"kept": 1, "total": FILES}, document["files"]
    assert len(document["paths"]) == 1, document["paths"]


@point("advise: proposes kinds with a reason and a size, and the command that builds them")
def advised(bench: Workbench) -> None:
    root = events(bench.home / "events")
    ran = bench.skipstone("advise", root)
    assert ran.code == 0, ran
    command = ran.out.strip().splitlines()[-1]
    assert command.startswith("skipstone build"), ran.out
    assert "-c id:bloom" in command, command
    assert "-c day:minmax" in command, command
