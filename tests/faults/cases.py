"""The verbs over the index of a table: each with a small table, its rows, and what it leaves."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Encryption, IndexEncryption, Table
from skipstone.facts.compact import compact
from skipstone.facts.slice_upkeep import Slicing
from tests.parquet.encryption.keys import InMemoryKms

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = b"0123456789012345"
OLD = 1_600_000_000
FILES, ROWS = 2, 40
#: a filter that is too large for a part, so that it lies in a pack
LARGE = "s:paimonbloom(items=10000)"


def nothing(home: str) -> None:
    """Asserts nothing, does nothing."""


@dataclass(frozen=True)
class Case:
    """One verb. All functions get the folder; the last ones assert.

    ``rows``: the rows are right, whatever happened. ``whole``: the result is that of a run that
    ended. ``again``: the next run of the verb. ``stays``: names that may be left besides.
    ``verbs`` are names of the command line and of the package.
    """

    name: str
    verbs: tuple[str, ...]
    lay_out: Callable[[str], object]
    run: Callable[[str], object]
    rows: Callable[[str], object]
    whole: Callable[[str], object] = nothing
    again: Callable[[str], object] = nothing
    vacuum: Callable[[str], object] = nothing
    stays: tuple[str, ...] = ()
    durable: bool = True

    def __post_init__(self) -> None:
        if self.again is nothing:
            object.__setattr__(self, "again", self.run)


def rows_of(at: int) -> dict[str, list[Any]]:
    """The rows of file ``at``."""
    return {
        "id": [at * 100 + i for i in range(ROWS)],
        "s": [None if i % 11 == 0 else f"v{(at * 7 + i) % 9}" for i in range(ROWS)],
        "x": [float("nan") if i == 3 else i / 8 - at for i in range(ROWS)],
    }


def write(path: Path, at: int, age: int = 0) -> Any:
    """A data file that is old enough to be indexed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(rows_of(at)), path, row_group_size=ROWS // 2)
    os.utime(path, (OLD - age, OLD - age))


def table_at(home: str, **options: Any) -> Table:
    return Table(f"{home}/t", **options)


def lay_out(home: str, *indexes: str, files: int = FILES) -> Any:
    """A table of some files, and its indexes, each built by itself."""
    for at in range(files):
        write(Path(home, "t", f"p{at}.parquet"), at)
    for index in indexes:
        table_at(home).build(indexes=[index])


def check_rows(table: Table, numbers: tuple[int, ...] = (0, 1)) -> None:
    """Queries find the rows of the files, with the index and without."""
    every = [rows_of(at) for at in numbers]
    ids = [id for each in every for id in each["id"]]
    assert sorted(table.query(columns=["id"])["id"].to_pylist()) == ids
    where = "(id >= 30 AND id < 110 AND s <> 'v2') OR (s = 'v3' AND (x > 1 OR id < 9))"
    found = table.query(where, ["id", "s"])
    right = [
        (id, text)
        for each in every
        for id, text, x in zip(each["id"], each["s"], each["x"], strict=True)
        if (30 <= id < 110 and text not in (None, "v2"))
        or (text == "v3" and (x != x or x > 1 or id < 9))
    ]
    assert sorted(zip(found["id"].to_pylist(), found["s"].to_pylist(), strict=True)) == right


def in_place(*numbers: int, **options: Any) -> Callable[[str], None]:
    """``rows`` of a table that is opened with ``options``."""
    return lambda home: check_rows(table_at(home, **options), numbers or (0, 1))


def indexed(*names: str, files: int = FILES, **options: Any) -> Callable[[str], None]:
    """``whole``: these indexes and no other, over all files."""

    def check(home: str) -> None:
        found = table_at(home, **options).describe()
        there = {index.name.split("(")[0]: index.files for index in found.indexes}
        assert there == dict.fromkeys(names, files), there
        assert found.fresh == (files if names else 0)

    return check


def vacuum(home: str, **options: Any) -> object:
    return table_at(home, **options).vacuum(timedelta(0))


def without_traces(home: str) -> Any:
    """``whole`` of a vacuum."""
    listed = [each.name for each in Path(home).rglob("*")]
    assert not any(name.startswith("_tmp-") for name in listed), listed
    assert not any(each.startswith("part-deadbeef") for each in listed), listed


def lay_out_traces(home: str) -> None:
    """An index with what crashed writers leave: temporary files, and a pack."""
    lay_out(home, "id:minmax", LARGE)
    index = Path(home, "_t.skipstone")
    Path(home, "t", f"_tmp-p1.parquet-{uuid.uuid4().hex}").write_bytes(b"half")
    (index / "facts" / f"_tmp-part-x-{uuid.uuid4().hex}").write_bytes(b"half")
    (index / "packs" / f"deadbeef-{str(uuid.uuid4())[9:]}.pack").write_bytes(b"x" * 900)


def lay_out_broken(home: str) -> None:
    """An index with a part that is cut short."""
    lay_out(home, "id:minmax", LARGE)
    index = Path(home, "_t.skipstone", "facts")
    whole = next(index.glob("part-*"))
    (index / f"part-deadbeef-{str(uuid.uuid4())[9:]}").write_bytes(whole.read_bytes()[:200])


def lay_out_for_refresh(home: str) -> None:
    """One file is new, one was replaced."""
    lay_out(home, "id:minmax", LARGE)
    write(Path(home, "t", "p2.parquet"), 2)
    Path(home, "t", "p0.parquet").unlink()
    write(Path(home, "t", "p0.parquet"), 0, age=9)


def lay_out_for_repair(home: str) -> None:
    """One part is cut short, and one file has no facts."""
    lay_out_broken(home)
    write(Path(home, "t", "p2.parquet"), 2)


def lay_out_for_compact(home: str) -> None:
    """Three parts, facts of a file that is gone, and a published store."""
    lay_out(home, "id:minmax", "s:valuelist", LARGE, files=3)
    table_at(home).export()
    Path(home, "t", "p2.parquet").unlink()


def one_part(home: str) -> None:
    indexed("id:minmax", "s:valuelist", "s:paimonbloom")(home)
    parts = list(Path(home, "_t.skipstone", "facts").glob("part-*"))
    assert len(parts) == 1, parts
    assert len(list(Path(home, "_t.skipstone", "xskipper").rglob("*.parquet"))) == 1


def compact_with_slices(home: str) -> None:
    """A compaction that makes bit slices, as of a table of many files."""
    table = table_at(home)
    table.store.remove_left_overs()
    compact(table.store, table.listing, Slicing(files=1, group=1))


def sliced(home: str) -> None:
    indexed("id:bloomfilter", "s:bloomfilter")(home)
    names = sorted(path.name for path in Path(home, "_t.skipstone", "facts").iterdir())
    assert [name.partition("-")[0] for name in names] == ["part", "slices"], names
    plan = table_at(home).plan("id = 7")
    assert "bloom slices" in {step.index for step in plan.steps if step.used}
    assert plan.keep[0]


def exported(pattern: str, count: int) -> Callable[[str], None]:
    """``whole`` of an export: this many files below ``home``."""

    def check(home: str) -> None:
        found = list(Path(home).glob(pattern))
        assert len(found) == count, found
        assert all(each.stat().st_size for each in found)

    return check


def summarised(home: str) -> None:
    metadata = pq.read_metadata(f"{home}/t/_metadata")
    assert metadata.num_rows == FILES * ROWS
    assert pq.read_metadata(f"{home}/t/_common_metadata").num_rows == 0


INDEX_KEYS = {"kf": b"F" * 16, "k1": b"1" * 16}


def kms() -> InMemoryKms:
    return InMemoryKms({"m": b"M" * 16, "n": b"N" * 16})


def outside() -> Encryption:
    """Wrapped keys beside each file."""
    return Encryption(kms=kms(), footer_key_id="m", internal_key_material=False)


def inside() -> Encryption:
    """Wrapped keys in the footers."""
    return Encryption(kms=kms(), footer_key_id="m")


def build_encrypted(home: str) -> object:
    how = IndexEncryption(footer_key="kf", key_metadata={"s:valuelist": "k1"})
    table = table_at(home, index_keys=INDEX_KEYS)
    return table.build(indexes=["id:minmax", "s:valuelist", LARGE], encryption=how)


def html(home: str) -> object:
    """The report of a query as a page."""
    from skipstone.report import write as draw

    return draw(table_at(home).scan("id > 110"), f"{home}/page.html")


CASES = [
    Case(
        "build",
        ("build",),
        lay_out,
        lambda home: table_at(home).build(indexes=["id:minmax", "s:bloom", LARGE]),
        in_place(),
        indexed("id:minmax", "s:bloomfilter", "s:paimonbloom"),
        vacuum=vacuum,
    ),
    Case(
        "build, more indexes",
        ("build",),
        lambda home: lay_out(home, "id:minmax"),
        lambda home: table_at(home).build(indexes=["s:bitmap", LARGE]),
        in_place(),
        indexed("id:minmax", "s:bitmap", "s:paimonbloom"),
        vacuum=vacuum,
    ),
    Case(
        "build, encrypted",
        ("build",),
        lay_out,
        build_encrypted,
        in_place(index_keys=INDEX_KEYS),
        indexed("id:minmax", "s:valuelist", "s:paimonbloom", index_keys=INDEX_KEYS),
        vacuum=lambda home: vacuum(home, index_keys=INDEX_KEYS),
    ),
    Case(
        "refresh",
        ("refresh",),
        lay_out_for_refresh,
        lambda home: table_at(home).refresh(),
        in_place(0, 1, 2),
        indexed("id:minmax", "s:paimonbloom", files=3),
        vacuum=vacuum,
    ),
    Case(
        "repair",
        ("repair",),
        lay_out_for_repair,
        lambda home: table_at(home).repair(),
        in_place(0, 1, 2),
        indexed("id:minmax", "s:paimonbloom", files=3),
        # What was corrupt is gone, and facts are missing.
        again=lambda home: table_at(home).refresh(),
        vacuum=vacuum,
    ),
    Case(
        "compact",
        ("compact",),
        lay_out_for_compact,
        lambda home: table_at(home).compact(),
        in_place(),
        one_part,
        vacuum=vacuum,
    ),
    Case(
        "compact with bit slices",
        ("compact",),
        lambda home: lay_out(home, "id:bloom", "s:bloom"),
        compact_with_slices,
        in_place(),
        sliced,
        vacuum=vacuum,
    ),
    Case(
        "drop one",
        ("drop",),
        lambda home: lay_out(home, "id:minmax", "s:bitmap", LARGE),
        lambda home: table_at(home).drop("s:bitmap"),
        in_place(),
        indexed("id:minmax", "s:paimonbloom"),
        again=lambda home: drop_if_there(home, "s:bitmap"),
        vacuum=vacuum,
    ),
    Case(
        "drop all",
        ("drop",),
        lambda home: lay_out(home, "id:minmax", LARGE),
        lambda home: table_at(home).drop(),
        in_place(),
        indexed(),
        again=lambda home: drop_if_there(home, None),
        vacuum=vacuum,
    ),
    Case(
        "vacuum",
        ("vacuum",),
        lay_out_traces,
        vacuum,
        in_place(),
        lambda home: (without_traces(home), exported("**/deadbeef*", 0)(home)),
        vacuum=vacuum,
    ),
    Case(
        "vacuum of a broken part",
        ("vacuum",),
        lay_out_broken,
        vacuum,
        in_place(),
        without_traces,
        vacuum=vacuum,
    ),
    Case(
        "export xskipper",
        ("export",),
        lambda home: lay_out(home, "id:minmax", "s:valuelist"),
        lambda home: table_at(home).export(),
        in_place(),
        exported("_t.skipstone/xskipper/*/*.parquet", 1),
        vacuum=vacuum,
    ),
    Case(
        "export xskipper again",
        ("export",),
        lambda home: (
            lay_out(home, "id:minmax"),
            table_at(home).export(),
            table_at(home).build(indexes=["s:valuelist"]),
        ),
        lambda home: table_at(home).export(),
        in_place(),
        exported("_t.skipstone/xskipper/*/*.parquet", 1),
        vacuum=vacuum,
    ),
    Case(
        "export paimon",
        ("export",),
        lambda home: lay_out(home, "s:bitmap"),
        lambda home: table_at(home).export(f"{home}/out", kind="paimon"),
        in_place(),
        exported("out/*.index", FILES),
        vacuum=vacuum,
    ),
    Case(
        "export questdb",
        ("export",),
        lambda home: lay_out(home, "id:minmax"),
        lambda home: table_at(home).export(f"{home}/out", kind="questdb"),
        in_place(),
        exported("out/*._pm", FILES),
        vacuum=vacuum,
    ),
    Case(
        "write-metadata",
        ("write-metadata",),
        lay_out,
        lambda home: table_at(home).write_metadata(),
        in_place(),
        summarised,
        vacuum=vacuum,
    ),
    Case(
        "write-metadata again",
        ("write-metadata",),
        lambda home: (
            lay_out(home, files=1),
            table_at(home).write_metadata(),
            write(Path(home, "t", "p1.parquet"), 1),
        ),
        lambda home: table_at(home).write_metadata(),
        in_place(),
        summarised,
        vacuum=vacuum,
    ),
    Case(
        "migrate",
        ("migrate",),
        lay_out,
        lambda home: table_at(home).migrate(),
        in_place(),
        exported("_t.skipstone/pm/**/*_pm", FILES),
        vacuum=vacuum,
    ),
    Case("report", ("report",), lay_out, html, in_place(), exported("page.html", 1)),
]


def drop_if_there(home: str, index: str | None) -> None:
    """The next drop: of an index that is gone there is nothing to drop."""
    names = [each.name.split("(")[0] for each in table_at(home).describe().indexes]
    if (index in names) if index else names:
        table_at(home).drop(index)
