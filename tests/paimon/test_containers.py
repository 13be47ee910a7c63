"""Containers of row indexes in the store: built, carried along, lost and damaged.

The table: four files of 1,000 rows. ``k`` is 0 … 99 and one null in 100, in no order; ``x`` is the
file's number and a fraction; ``s`` are 300 texts, those of file i begin with i.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.build.column_indexes import BuildSettings
from skipstone.build.job import BuildJob
from skipstone.indexes.registry import parse_indexes
from skipstone.paimon.format import container
from skipstone.pruning import Cause
from tests.facts.facts import sidecar_at, sidecar_place
from tests.oracle import matching_rows

if TYPE_CHECKING:
    from skipstone.pruning.kind import Blob
    from skipstone.pruning.plan import Plan

OLD = 1_600_000_000
FILES, ROWS = 4, 1_000
BOTH = ["k:bitmap", "x:rangebitmap"]


def rows_of(file: int) -> pa.Table:
    rng = np.random.default_rng(file)
    n = np.arange(ROWS)
    return pa.table(
        {
            "k": pa.array(rng.permutation(n) % 100, mask=n % 100 == 7),
            "x": pa.array(file + rng.permutation(n) / ROWS),
            "s": pa.array([f"{file}-{i:03d}" for i in rng.permutation(n) % 300]),
        }
    )


DATA = [rows_of(file) for file in range(FILES)]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    home = tmp_path / "t"
    home.mkdir()
    for file, data in enumerate(DATA):
        path = home / f"{file}.parquet"
        pq.write_table(data, path, row_group_size=300)
        os.utime(path, (OLD, OLD))
    return Table(str(home))


def expected(where: str) -> list[list[int]]:
    return [matching_rows(data, where) for data in DATA]


def decided(plan: Plan, where: str) -> bool:
    """Checks that the plan loses no row; whether it knows all rows exactly."""
    whole = True
    for file, rows in enumerate(expected(where)):
        detail = plan.details.get(file)
        if not plan.keep[file]:
            assert not rows
        elif detail is None or detail.rows is None:
            whole = whole and bool(plan.must[file])
        else:
            assert set(rows) <= set(detail.rows.positions().tolist())
            whole = whole and detail.exact
            assert not detail.exact or detail.rows.positions().tolist() == rows
    return whole


def places(table: Table) -> list[Blob | None]:
    matched = table.match(table.listing())
    return [sidecar_place(matched, "container", file) for file in range(FILES)]


def step(plan: Plan, index: str, level: str) -> dict[str, Any]:
    (found,) = [s for s in plan.to_dict()["steps"] if (s["index"], s["level"]) == (index, level)]
    return dict(found)


def test_one_container_per_file_in_one_pack(table: Table) -> None:
    report = table.build(indexes=[*BOTH, "s:paimonbloom(items=300)"])
    assert (report.files_built, report.left_out) == (FILES, ())
    found = places(table)
    assert len({place.path for place in found if place is not None}) <= 2  # one per task
    for place in found:
        assert place is not None
        raw = sidecar_at(place, table.store.storage)
        assert raw is not None
        head, blobs = container.from_bytes(raw)
        assert [column.name for column in head.columns] == ["k", "s", "x"]
        assert set(blobs) == {("k", "bitmap"), ("s", "bloom-filter"), ("x", "range-bitmap")}


def test_explain_says_what_each_index_did(table: Table) -> None:
    """``x`` tells file 2 by its bounds alone, ``k`` ten of its rows, and ``x`` two of those."""
    table.build(indexes=BOTH)
    where = "k = 5 AND x BETWEEN 2.1 AND 2.3"
    plan = table.explain(where).plan
    assert decided(plan, where)
    assert plan.keep.tolist() == [False, False, True, False]
    zone, bits = step(plan, "rangebitmap", "files"), step(plan, "bitmap", "rows")
    assert (zone["considered"], zone["kept"], zone["bytes_read"]) == (4, 1, 0)
    assert (bits["considered"], bits["kept"]) == (ROWS, len(matching_rows(DATA[2], "k = 5")))
    assert bits["bytes_read"] > 0
    assert bits["requests"] >= 1
    rows = step(plan, "rangebitmap", "rows")
    assert (rows["considered"], rows["kept"]) == (bits["kept"], len(expected(where)[2]))


def test_a_bloom_filter_tells_files_by_few_bytes(table: Table) -> None:
    table.build(indexes=["s:paimonbloom"])
    plan = table.explain("s IN ('1-007', '1-400')").plan
    assert plan.keep.tolist() == [False, True, False, False]
    asked = step(plan, "paimonbloom", "files")
    # Two values of three probes each, in a filter of 599,071 bytes with checksums of 4 KiB each.
    assert asked["bytes_read"] <= FILES * 2 * 3 * 4_096
    assert asked["requests"] <= FILES * 2 * 3
    many = ", ".join(f"'1-{i:03d}'" for i in range(100))
    assert table.explain(f"s IN ({many})").plan.keep.tolist() == [False, True, False, False]


def test_an_index_that_is_added_later_shares_the_container(table: Table) -> None:
    table.build(indexes=["k:bitmap"])
    table.build(indexes=["x:rangebitmap"])
    where = "k < 10 AND x >= 1.5"
    assert decided(table.plan(where), where)
    for place in places(table):
        assert place is not None
        raw = sidecar_at(place, table.store.storage)
        assert raw is not None
        assert set(container.from_bytes(raw)[1]) == {("k", "bitmap"), ("x", "range-bitmap")}
    table.compact()
    assert decided(table.plan(where), where)
    again = table.build(indexes=["k:bitmap"])
    assert again.files_built == 0


def build_apart(table: Table, index: str) -> None:
    """As a process does that does not see what another has just published."""
    listing = table.listing()
    job = BuildJob(
        table=table.path,
        location=table.location.root,
        storage_options={},
        definitions=tuple(parse_indexes(index)),
        schema=table.schema(listing),
        settings=BuildSettings(),
    )
    assert all(outcome.built for outcome in job.run([listing.object_id(f) for f in range(FILES)]))


def test_two_builds_at_once_never_mix_their_containers(table: Table) -> None:
    """Each has a row and a container of its own, and keeps it until a build writes both anew."""
    for index in BOTH:
        build_apart(table, index)
    where = "k = 3 OR x > 3.9"
    assert decided(table.plan(where), where)
    assert table.compact().facts_after == 2 * FILES
    assert decided(table.plan(where), where)
    assert table.refresh().files_built == 0
    assert table.build(indexes=["s:bitmap"]).files_built == FILES
    assert table.compact().facts_after == FILES
    assert decided(table.plan(where), where)


def test_other_parameters_replace_the_blob(table: Table) -> None:
    table.build(indexes=["k:bitmap", "x:rangebitmap"])
    table.build(indexes=["k:bitmap(version=1)"])
    table.compact()
    where = "k = 3 AND x < 1.5"
    assert decided(table.plan(where), where)
    (place, *_) = places(table)
    assert place is not None
    raw = sidecar_at(place, table.store.storage)
    assert raw is not None
    assert container.from_bytes(raw)[1]["k", "bitmap"][:1] == b"\x01"  # type: ignore[index]


def test_small_containers_lie_in_the_facts(table: Table) -> None:
    threshold = {"file-index.in-manifest-threshold": "10 mb"}
    table.build(indexes=BOTH, options=threshold)
    assert all(place is not None and place.inline for place in places(table))
    where = "k = 3 OR x > 3.9"
    plan = table.plan(where)
    assert decided(plan, where)
    assert sum(each.requests for each in plan.steps) == 0
    table.compact()
    assert decided(table.plan(where), where)


def test_a_lost_pack_counts_as_no_fact(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    table.build(indexes=[*BOTH, "s:paimonbloom"], pm="none")
    packs = table.store.storage.list_all(table.location.packs).paths
    for path in packs:
        table.store.storage.delete(path)
    where = "k = 3"
    plan = table.plan(where)
    assert not decided(plan, where)
    assert plan.keep.all()
    reasons = [reason for each in plan.steps for reason in each.reasons]
    assert any(reason.cause is Cause.UNREADABLE for reason in reasons)
    lost = table.plan("s = '1-007'")
    assert lost.keep.sum() == FILES
    assert len(caplog.messages) == len(set(caplog.messages))
    assert table.check().corrupt
    assert table.refresh().files_built == FILES
    assert decided(table.plan(where), where)


def test_one_lost_pack_of_two_costs_its_own_files_only(table: Table) -> None:
    table.build(indexes=["s:paimonbloom(items=3000)"])
    gone = places(table)[0]
    assert gone is not None and gone.inline is None  # noqa: PT018
    table.store.storage.delete(gone.path)
    alike = [place is not None and place.path == gone.path for place in places(table)]
    assert table.plan("s = 'nowhere in between'").keep.tolist() == alike or all(alike)


def test_damaged_packs_never_lose_a_row(table: Table) -> None:
    """Zeros, a short pack, bits flipped here and there: rows stay, and the deep check sees it."""
    table.build(indexes=[*BOTH, "s:paimonbloom(items=300)"])
    questions = ["k = 3", "x > 3.9", "s = '1-007'", "k <> 3 AND x < 0.5"]
    paths = table.store.storage.list_all(table.location.packs).paths
    whole = {path: Path(path).read_bytes() for path in paths}
    rng = np.random.default_rng(5)
    for kind in ("zeros", "short", *["bit"] * 8):
        for path, data in whole.items():
            damaged = bytearray(data)
            if kind == "zeros":
                damaged = bytearray(len(data))
            elif kind == "short":
                damaged = damaged[: len(data) // 3]
            else:
                at = int(rng.integers(0, 8 * len(data)))
                damaged[at >> 3] ^= 1 << (at & 7)
            Path(path).write_bytes(damaged)
        for where in questions:
            decided(Table(table.path).plan(where), where)
        if kind != "bit":
            assert not decided(Table(table.path).plan("k = 3"), "k = 3")
    assert Table(table.path).check(deep=True).untrue
    for path, data in whole.items():
        Path(path).write_bytes(data)
    deep = Table(table.path).check(deep=True)
    assert (deep.untrue, deep.corrupt) == ((), ())


def test_vacuum_keeps_packs_that_are_named(table: Table) -> None:
    from datetime import timedelta

    table.build(indexes=BOTH)
    table.compact()
    removed = table.vacuum(timedelta(0))
    assert not [path for path in removed.removed if path.endswith(".pack")]
    assert decided(table.plan("k = 3"), "k = 3")


def test_dropping_one_of_two(table: Table) -> None:
    table.build(indexes=BOTH)
    before = {each.kind: each.bytes for each in table.describe().indexes}
    assert sum(before.values()) > sum(place.length for place in places(table) if place) - 400
    assert table.describe().bytes_index > sum(before.values())
    table.drop("k:bitmap")
    assert decided(table.plan("x > 3.9"), "x > 3.9")
    assert not decided(table.plan("k = 3"), "k = 3")
    assert [each.kind for each in table.describe().indexes] == ["rangebitmap"]


def test_what_does_not_fit_is_left_out_with_the_reason(table: Table) -> None:
    report = table.build(indexes=[*BOTH, "s:minmax"], memory=48 * 1024)
    assert report.files_built == FILES
    assert {(str(r.subject), r.units) for r in report.left_out} == {
        ("bitmap(k)", FILES),
        ("rangebitmap(x)", FILES),
    }
    assert all("share of memory" in reason.text for reason in report.left_out)
    assert table.plan("k = 3").keep.all()
    # The same command tries no file again, and one with more memory all of them.
    same = table.build(indexes=[*BOTH, "s:minmax"], memory=48 * 1024)
    assert same.files_built == 0
    assert table.refresh(memory=2**30).files_built == 0
    assert table.build(indexes=BOTH, memory=2**30).files_built == FILES
    assert decided(table.plan("k = 3"), "k = 3")
    assert table.plan("s < '1'").keep.tolist() == [True, False, False, False]


def test_facts_past_their_memory_are_asked_run_by_run(table: Table) -> None:
    table.build(indexes=[*BOTH, "s:paimonbloom(items=3000)"])
    for where in ("k = 3 AND x < 1", "s = '1-007'", "x > 3.9"):
        plan = table.plan(where, memory=1)
        decided(plan, where)
        assert plan.keep.sum() < FILES


def test_the_least_bigint_and_what_is_deprecated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "t"
    home.mkdir()
    pq.write_table(pa.table({"v": [-(2**63), 5]}), home / "a.parquet")
    os.utime(home / "a.parquet", (OLD, OLD))
    table = Table(str(home))
    report = table.build(indexes=["v:bsi", "v:rangebitmap"])
    (reason,) = report.left_out
    assert str(reason.subject) == "bsi(v)"
    assert "cannot store" in reason.text
    assert [m for m in caplog.messages if "deprecated" in m and "v:rangebitmap" in m]
    plan = table.plan("v = 5")
    detail = plan.details[0]
    assert detail.rows is not None
    assert detail.rows.positions().tolist() == [1]
