"""Build, refresh, describe, drop, check, compact, vacuum, export: as verbs of the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone import Table
from skipstone.indexes.minmax import MinMax
from skipstone.pruning.kind import Builder, Built, Chunk
from tests.accept.registry import point
from tests.accept.tables import FILES, ROWS, backdate, events, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench


class Liar(MinMax):
    """Says of every file that the column lies between 1 and 2."""

    def build(self, type: pa.DataType, budget: int) -> Builder:
        value = pa.array([{"min": 1, "max": 2}], self.stored_type(type))

        class Lies(Builder):
            def add(self, chunk: Chunk) -> None:
                pass

            def finish(self) -> Built:
                return Built(value)

        return Lies()


def indexed(bench: Workbench, *more: str) -> Path:
    """The table ``events`` with three indexes, built by the command without Spark."""
    root = events(bench.home / "events")
    ran = bench.skipstone(
        "build",
        root,
        "-c",
        "id:bloom",
        "-c",
        "day:minmax",
        "-c",
        "kind:valuelist",
        *more,
        "--no-spark",
    )
    assert ran.code == 0, ran.err
    return root


def document(bench: Workbench, *arguments: str | Path) -> dict[str, object]:
    """The one JSON document that a verb prints."""
    ran = bench.skipstone(*arguments, "--json")
    found: dict[str, object] = json.loads(ran.out)
    return found


@point("upkeep: build as one Spark job, and nothing is built twice")
def build_on_spark(bench: Workbench) -> None:
    root = events(bench.home / "events")
    arguments = ("build", root, "-c", "id:bloom", "-c", "day:minmax", "--master", "local[2]")
    first = document(bench, *arguments)
    assert (first["files_built"], first["files_total"]) == (FILES, FILES), first
    again = document(bench, *arguments)
    assert (again["files_built"], again["files_already"]) == (0, FILES), again
    assert not list(root.glob("_*")), "something was written into the table's directory"


@point("upkeep: refresh touches new and changed files only, and check says what is stale")
def refresh(bench: Workbench) -> None:
    root = indexed(bench)
    assert bench.skipstone("check", root).code == 0
    write(root / "part 90.parquet", {"id": [9_000_001], "day": [90], "kind": ["new"]})
    changed = next(root.glob("part 04*"))
    write(changed, {"id": [9_000_002] * ROWS, "day": [91] * ROWS, "kind": ["new"] * ROWS})
    backdate(changed, age=50)
    ran = bench.skipstone("check", root)
    assert ran.code == 3, ran
    found = document(bench, "explain", root, "id = 9000002")
    assert found["files"] == {"kept": 2, "total": FILES + 1}, found["files"]
    assert found["facts"] == {"fresh": FILES - 1, "stale": 1, "missing": 1}, found["facts"]
    report = document(bench, "refresh", root, "--no-spark")
    assert (report["files_built"], report["files_already"]) == (2, FILES - 1), report
    assert bench.skipstone("check", root).code == 0, "still not fresh after a refresh"
    assert document(bench, "explain", root, "id = 9000002")["files"] == {
        "kept": 1,
        "total": FILES + 1,
    }


@point("upkeep: check --deep proves facts true, and finds one that is not")
def deep(bench: Workbench) -> None:
    root = indexed(bench)
    ran = bench.skipstone("check", root, "--deep", "--sample", "4")
    assert ran.code == 0, ran
    assert f"4 of {FILES} files" in ran.out, ran.out
    other = events(bench.home / "other")
    Table(str(other)).build(indexes=[Liar("id")])
    assert bench.skipstone("check", other).code == 0, "only a deep check opens files"
    ran = bench.skipstone("check", other, "--deep", "--sample", "2")
    assert ran.code == 3, ran
    assert "says no row has id =" in ran.out, ran.out


@point("upkeep: adding and dropping one index leave the others alone")
def one_index(bench: Workbench) -> None:
    root = indexed(bench)
    assert bench.skipstone("build", root, "-c", "note:minmax", "--no-spark").code == 0
    names = {index["name"] for index in document(bench, "describe", root)["indexes"]}  # type: ignore[attr-defined]
    assert len(names) == 4, names
    ran = bench.skipstone("drop", root, "kind:valuelist", "--yes")
    assert ran.code == 0, ran
    left = document(bench, "describe", root)["indexes"]
    assert {i["name"] for i in left} == names - {"kind:valuelist"}, left  # type: ignore[attr-defined]
    assert all(index["files"] == FILES for index in left), left  # type: ignore[attr-defined]


@point("upkeep: compact and vacuum leave one part and no litter, and the answers as they were")
def tidy(bench: Workbench) -> None:
    root = indexed(bench)
    for kind in ("note:minmax", "x:minmax"):
        assert bench.skipstone("build", root, "-c", kind, "--no-spark").code == 0
    facts = bench.home / "_events.skipstone" / "facts"
    # What a killed writer leaves, and a file of the user's own: only the first is removed.
    (facts / f"_tmp-part-1-{'0' * 32}").write_bytes(b"PAR1")
    (facts / "_my own notes").write_bytes(b"PAR1")
    before = document(bench, "explain", root, "day = 3")["paths"]
    assert bench.skipstone("compact", root).code == 0
    assert bench.skipstone("vacuum", root, "--older-than", "0s").code == 0
    assert (facts / "_my own notes").exists()
    left = [each for each in facts.iterdir() if each.name != "_my own notes"]
    assert len(left) == 1, left
    assert document(bench, "explain", root, "day = 3")["paths"] == before


@point("upkeep: a table of Apache Hudi is refused with a hint")
def table_format(bench: Workbench) -> None:
    root = events(bench.home / "events")
    (root / ".hoodie").mkdir()
    (root / ".hoodie" / "hoodie.properties").write_text("")
    ran = bench.skipstone("build", root, "-c", "id:bloom", "--no-spark")
    assert ran.code == 1, ran
    assert "Hudi" in ran.err, ran.err
    assert "hint:" in ran.err, ran.err
