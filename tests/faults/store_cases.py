"""The verbs over a table in an object store, each with a small table; data is only read there."""

from __future__ import annotations

import io
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Table
from skipstone.storage import open_storage
from skipstone.xskipper.format.part import read_part
from skipstone.xskipper.upgrade import upgrade_store
from tests.faults.cases import FILES, LARGE, ROWS, Case, rows_of
from tests.faults.object_store import PATIENCE
from tests.faults.readers import READERS, rows_in
from tests.folders import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.storage import Storage

OPTIONS = {"timeout": f"{PATIENCE}s"}
#: objects of this second are younger than nothing
PAST = timedelta(seconds=-60)


def table_at(home: str) -> Table:
    return Table(f"{home}/t", storage_options=OPTIONS)


def storage(home: str) -> Storage:
    return open_storage(home, OPTIONS)


def write(home: str, name: str, at: int) -> None:
    """The data file ``name`` with the rows of ``at``."""
    out = io.BytesIO()
    pq.write_table(pa.table(rows_of(at)), out, row_group_size=ROWS // 2)
    storage(home).put(f"{home}/t/{name}", out.getvalue())


def lay_out(home: str, *indexes: str, files: int = FILES) -> None:
    for at in range(files):
        write(home, f"p{at}.parquet", at)
    for index in indexes:
        table_at(home).build(indexes=[index])


def keys(home: str, below: str = "") -> list[str]:
    return [path.removeprefix(f"{home}/") for path in storage(home).list_all(home + below).paths]


def read(name: str, home: str, numbers: tuple[int, ...] = (0, 1)) -> None:
    """Assert what a reader gives for the rows of these files."""
    found, right = READERS[name].ask(table_at(home)), READERS[name].truth(rows_in(*numbers))
    assert found == right, (name, found, right)


def rows(*numbers: int) -> Callable[[str], None]:
    """``rows``: those of a predicate, which the indexes decide in part."""
    return lambda home: read("query", home, numbers or (0, 1))


def indexed(*names: str, files: int = FILES) -> Callable[[str], None]:
    """``whole``: these indexes and no other, over all files."""

    def check(home: str) -> None:
        found = table_at(home).describe()
        there = {index.name.split("(")[0]: index.files for index in found.indexes}
        assert there == dict.fromkeys(names, files), there
        assert found.fresh == (files if names else 0)

    return check


def vacuum(home: str) -> object:
    return table_at(home).vacuum(PAST)


def lay_out_for_refresh(home: str) -> None:
    """One object is new, one was replaced."""
    lay_out(home, "id:minmax", LARGE)
    write(home, "p2.parquet", 2)
    storage(home).delete(f"{home}/t/p0.parquet")
    out = io.BytesIO()
    pq.write_table(pa.table(rows_of(0)), out, compression="none")
    storage(home).put(f"{home}/t/p0.parquet", out.getvalue())


def lay_out_for_compact(home: str) -> None:
    """Three parts, facts of an object that is gone, and a published store."""
    lay_out(home, "id:minmax", "s:valuelist", LARGE, files=3)
    table_at(home).export()
    storage(home).delete(f"{home}/t/p2.parquet")


def one_part(home: str) -> None:
    indexed("id:minmax", "s:valuelist", "s:paimonbloom")(home)
    assert len(keys(home, "/_t.skipstone/facts")) == 1
    assert len(keys(home, "/_t.skipstone/xskipper")) == 1


def lay_out_traces(home: str) -> None:
    """A pack that no part names, a probe, and a part that is cut short."""
    lay_out(home, "id:minmax", LARGE)
    index, random = f"{home}/_t.skipstone", "-0000-4000-8000-000000000000"
    storage(home).put(f"{index}/packs/deadbeef{random}.pack", b"x" * 900)
    storage(home).put(f"{index}/facts/_probe-{'deadbeef' * 4}", b"?")
    part = next(key for key in keys(home, "/_t.skipstone/facts") if "/part-" in key)
    cut = storage(home).read(f"{home}/{part}")[:200]
    storage(home).put(f"{index}/facts/part-deadbeef{random}", cut)


def without_traces(home: str) -> None:
    """What is whole stays, and what is broken is gone."""
    indexed("id:minmax", "s:paimonbloom")(home)
    assert not [key for key in keys(home) if "deadbeef" in key], keys(home)


def drop_if_there(home: str, index: str | None) -> None:
    names = [each.name.split("(")[0] for each in table_at(home).describe().indexes]
    if (index in names) if index else names:
        table_at(home).drop(index)


def has(ending: str, count: int) -> Callable[[str], None]:
    """``whole``: this many objects end so."""

    def check(home: str) -> None:
        found = [key for key in keys(home) if key.endswith(ending)]
        assert len(found) == count, found
        assert all(storage(home).stat(f"{home}/{key}").size for key in found)

    return check


def summarised(home: str) -> None:
    held = io.BytesIO(storage(home).read(f"{home}/t/_metadata"))
    assert pq.read_metadata(held).num_rows == FILES * ROWS


def lay_out_store(version: str, home: str) -> None:
    """A store as the original wrote it."""
    folder = GOLDEN / "xskipper" / "refresh_and_upgrade_spark400" / f"upgrade_testID=01_{version}"
    [source] = (folder / "md_before").iterdir()
    for path in Path(source).glob("*.parquet"):
        storage(home).put(f"{home}/store/{path.name}", path.read_bytes())


def rows_of_store(home: str, *, whole: bool = False) -> None:
    """Parts of one version, or of two with equal index columns; ``whole``: all rows, version 4."""
    found = storage(home)
    parts = [
        read_part(found.read(f"{home}/{key}")) for key in keys(home, "/store") if "/_" not in key
    ]
    columns = {frozenset(i.name for i in part.footer.schema.indexes) for part in parts}
    assert len(columns) <= 1, columns
    if whole:
        assert {part.footer.schema.version for part in parts} == {4}
        assert sum(part.table.num_rows for part in parts) == 3


def upgrade(home: str) -> object:
    return upgrade_store(f"{home}/store", options=OPTIONS)


def reading(name: str) -> Case:
    """A verb that only reads: ``run`` asserts its rows."""
    return Case(
        f"S3 {name}",
        (),
        lambda home: lay_out(home, "id:minmax", "s:valuelist", LARGE),
        partial(read, name),
        rows(),
        again=partial(read, name),
    )


def case(name: str, verb: str, *given: Any, **more: Any) -> Case:
    return Case(f"S3 {name}", (verb,) if verb else (), *given, **{"vacuum": vacuum, **more})


INDEXED = ("id:minmax", "s:valuelist", LARGE)
CASES = [
    case(
        "build",
        "build",
        lay_out,
        lambda home: table_at(home).build(indexes=["id:minmax", "s:bloom", LARGE]),
        rows(),
        indexed("id:minmax", "s:bloomfilter", "s:paimonbloom"),
    ),
    case(
        "refresh",
        "refresh",
        lay_out_for_refresh,
        lambda home: table_at(home).refresh(),
        rows(0, 1, 2),
        indexed("id:minmax", "s:paimonbloom", files=3),
    ),
    case(
        "compact",
        "compact",
        lay_out_for_compact,
        lambda home: table_at(home).compact(),
        rows(),
        one_part,
    ),
    case(
        "drop one",
        "drop",
        lambda home: lay_out(home, *INDEXED),
        lambda home: table_at(home).drop("s:valuelist"),
        rows(),
        indexed("id:minmax", "s:paimonbloom"),
        again=lambda home: drop_if_there(home, "s:valuelist"),
    ),
    case(
        "drop all",
        "drop",
        lambda home: lay_out(home, "id:minmax", LARGE),
        lambda home: table_at(home).drop(),
        rows(),
        indexed(),
        again=lambda home: drop_if_there(home, None),
    ),
    case("vacuum", "vacuum", lay_out_traces, vacuum, rows(), without_traces),
    case(
        "export xskipper",
        "export",
        lambda home: lay_out(home, "id:minmax", "s:valuelist"),
        lambda home: table_at(home).export(),
        rows(),
        has("snappy.parquet", 1),
    ),
    case(
        "export paimon",
        "export",
        lambda home: lay_out(home, "s:bitmap"),
        lambda home: table_at(home).export(f"{home}/out", kind="paimon"),
        rows(),
        has(".index", FILES),
    ),
    case(
        "export questdb",
        "export",
        lambda home: lay_out(home, "id:minmax"),
        lambda home: table_at(home).export(f"{home}/out", kind="questdb"),
        rows(),
        has("._pm", FILES),
    ),
    case(
        "write-metadata",
        "write-metadata",
        lay_out,
        lambda home: table_at(home).write_metadata(),
        rows(),
        summarised,
    ),
    case(
        "migrate",
        "migrate",
        lay_out,
        lambda home: table_at(home).migrate(),
        rows(),
        has("_pm", FILES),
    ),
    *(reading(name) for name in READERS),
    case(
        "check",
        "",
        lambda home: lay_out(home, *INDEXED),
        lambda home: table_at(home).check(deep=True),
        rows(),
    ),
    case(
        "advise",
        "",
        lay_out,
        lambda home: table_at(home).advise(),
        rows(),
    ),
]
if GOLDEN.is_dir():
    CASES += [
        Case(
            f"S3 upgrade {version}",
            ("upgrade_store",),
            partial(lay_out_store, version),
            upgrade,
            rows_of_store,
            partial(rows_of_store, whole=True),
        )
        for version in ("from_v1", "from_v2")
    ]
