"""Packs and what removes them; what a check finds."""

from __future__ import annotations

import os
import uuid
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.facts import Store
from skipstone.facts.check import check
from skipstone.facts.compact import compact
from skipstone.facts.encode import FileFacts
from skipstone.facts.part_columns import OWN, place_columns
from skipstone.facts.vacuum import vacuum
from skipstone.pruning import Cause
from skipstone.storage.atomic_replace import replace_atomically
from tests.facts.facts import MINMAX, Table, sidecar_at, sidecar_place
from tests.facts.test_compact import files_below, matched, spoil

# -- packs and vacuum ------------------------------------------------------------------------------


def age(path: Path, days: float) -> None:
    status = path.stat()
    os.utime(path, (status.st_atime, status.st_mtime - days * 86400))


def test_sidecars_lie_back_to_back_or_inline(table: Table) -> None:
    """500 bytes lie in the row; 501 and more in one pack, each byte for byte."""
    sidecars = [b"a" * 500, b"b" * 501, b"", b"d" * 9000]
    files = table.listing()
    facts = [
        FileFacts(id=files.object_id(i), container=sidecar, pm=sidecar[:600] or None)
        for i, sidecar in enumerate(sidecars)
    ]
    table.store.write_part(facts, [], pa.schema([]))
    (pack,) = files_below(table, "packs")
    assert pack.endswith(".pack")
    whole = (Path(table.store.location.packs) / pack).read_bytes()
    assert whole == sidecars[1] + sidecars[3] + sidecars[1] + sidecars[3][:600]
    for _ in range(2):
        found = matched(table)
        for file, sidecar in enumerate(sidecars):
            place = sidecar_place(found, "container", file)
            assert place is not None
            assert (place.inline is None) == (len(sidecar) > 500)
            assert sidecar_at(place, table.store.storage) == sidecar
        assert sidecar_place(found, "pm", 2) is None
        table.build(MINMAX)
        compact(table.store, table.listing)


def test_a_row_whose_pack_is_gone_says_nothing_of_it(table: Table) -> None:
    table.build(MINMAX, only=[0], container=b"x" * 600)
    (pack,) = files_below(table, "packs")
    (Path(table.store.location.packs) / pack).unlink()
    found = matched(table)
    place = sidecar_place(found, "container", 0)
    assert place is not None
    assert sidecar_at(place, table.store.storage) is None
    assert found.has_fact[0]
    checked = check(table.store, table.listing())
    assert checked.lost_packs == (pack,)
    assert not checked.ok


def test_a_place_outside_the_packs_is_no_place(table: Table) -> None:
    table.build(MINMAX, only=[0], container=b"x" * 600)
    names = place_columns("container")
    for forged in (("../facts/x", 0, 1), ("x", -1, 1), ("x", 0, -1)):
        snapshot = Store.of_table(str(table.root)).snapshot()
        for name, value in zip(names, forged, strict=False):
            assert snapshot.own(name)[0].is_valid
            snapshot._own[name] = pa.chunked_array([[value]], OWN[name])
        assert sidecar_place(snapshot.match(table.listing()), "container", 0) is None


def test_vacuum_removes_only_what_is_old_and_named_by_nobody(table: Table) -> None:
    """Two packs, one of them still named; temporary files of today and of last week."""
    table.build(MINMAX, only=[0], container=b"x" * 600)
    table.build(MINMAX, only=[1], container=b"y" * 600)
    named = sidecar_place(matched(table), "container", 1)
    (table.root / "a").unlink()
    compact(table.store, table.listing)
    facts, packs = Path(table.store.location.facts), Path(table.store.location.packs)
    old, new = (f"_tmp-x-{number:032x}" for number in (1, 2))
    for name in (old, new):
        (facts / name).write_bytes(b"half")
        (packs / name).write_bytes(b"half")
    young = vacuum(table.store)
    assert young.removed == {}
    unnamed = [path for path in packs.glob("*.pack") if named and path.name not in named.path]
    assert sorted(young.young) == sorted(
        map(str, (facts / old, facts / new, packs / old, packs / new, *unnamed))
    )
    for path in (
        facts / old,
        packs / old,
        *packs.glob("*.pack"),
        *facts.glob("part*"),
    ):
        age(path, 1.01)
    would = vacuum(table.store, dry_run=True).removed
    done = vacuum(table.store)
    assert done.removed == would
    assert sorted(done.removed.values()) == [4, 4, 600]
    assert done.reasons == ()
    assert named is not None
    assert files_below(table, "packs") == sorted([Path(named.path).name, new])
    assert matched(table).has_fact.tolist() == [True, False, False]
    assert vacuum(table.store).removed == {}


def test_vacuum_keeps_what_a_process_is_writing_however_old_it_is(tmp_path: Path) -> None:
    """A refresh writes a part, and a vacuum that spares no age runs meanwhile."""
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "part-0.parquet")
    table = skipstone.Table(tmp_path)
    table.build(indexes=["id:minmax"])
    facts = Path(table.location.facts)
    with replace_atomically(facts / "part-0") as written:
        written.write(b"half")
        written.flush()
        left = facts / f"_tmp-part-1-{1:032x}"
        left.write_bytes(b"half")
        assert table.vacuum(timedelta(0)).removed == (str(left),)
    assert (facts / "part-0").read_bytes() == b"half"


def test_vacuum_of_nothing(table: Table) -> None:
    assert vacuum(table.store).removed == {}
    assert not Path(table.store.location.root).exists()


def test_broken_parts_go_once_they_are_old_and_hold_the_packs_until_then(table: Table) -> None:
    """A part cut short, one of a newer version, and a pack that no readable part names."""
    (cut,) = table.build(MINMAX, only=[0])
    table.build(MINMAX, only=[1])
    facts, packs = Path(table.store.location.facts), Path(table.store.location.packs)
    content = (facts / cut).read_bytes()
    (facts / cut).write_bytes(content[: len(content) // 2])
    packs.mkdir()
    pack = f"{uuid.uuid4()}.pack"
    (packs / pack).write_bytes(b"x")
    age(packs / pack, 2)
    store = Store.of_table(str(table.root))
    done = vacuum(store)
    assert done.removed == {}
    assert [reason.cause for reason in done.reasons] == [Cause.CORRUPT]
    age(facts / cut, 2)
    assert list(vacuum(store).removed) == [str(facts / cut), str(packs / pack)]


def test_parts_of_a_newer_version_are_left_alone_and_hold_the_packs(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skipstone.facts.part_writer.VERSION", 2)
    (newer,) = table.build(MINMAX, container=b"x" * 600)
    monkeypatch.undo()
    for path in Path(table.store.location.root).rglob("*"):
        age(path, 9)
    store = Store.of_table(str(table.root))
    assert vacuum(store).removed == {}
    compact(store, table.listing)
    assert files_below(table, "facts") == [newer]
    assert len(files_below(table, "packs")) == 1


# -- check -----------------------------------------------------------------------------------------


def test_check_finds_what_has_drifted(table: Table) -> None:
    """One file changed, one deleted, one new, one as indexed."""
    table.build(MINMAX, only=[0, 1, 2])
    table.write("a", b"changed")
    (table.root / "b").unlink()
    checked = check(table.store, table.listing())
    root = str(table.root)
    assert not checked.ok
    assert (checked.files, checked.current, checked.parts) == (3, 1, 1)
    assert checked.stale == (f"{root}/a",)
    assert checked.orphaned == (f"{root}/b",)
    assert checked.missing == (f"{root}/d",)
    assert (checked.damaged, checked.lost_packs) == ((), ())


def test_check_of_a_whole_and_of_no_index(table: Table) -> None:
    checked = check(table.store, table.listing())
    assert len(checked.missing) == 4
    table.build(MINMAX)
    checked = check(table.store, table.listing())
    assert checked.ok
    assert checked.current == 4


@pytest.mark.parametrize(
    "column", ["id_minmax_2.min", "skipstone_path", "skipstone_rows", "obj_name"]
)
def test_check_reads_every_column(table: Table, column: str) -> None:
    """Damage in a column that no query of today has asked for."""
    table.build(MINMAX)
    spoil(table.store.snapshot().parts[0].path, column)
    checked = check(Store.of_table(str(table.root)), table.listing())
    assert not checked.ok
    assert [reason.cause for reason in checked.damaged] == [Cause.CORRUPT]
