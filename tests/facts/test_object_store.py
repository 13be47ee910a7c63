"""The whole store on S3: the same answers, and few requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from skipstone.facts import Store
from skipstone.facts.check import check
from skipstone.facts.compact import compact, drop_index
from skipstone.facts.vacuum import vacuum
from tests.facts.facts import MINMAX, SCHEMA, VALUES, Table, facts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skipstone.pruning.kind import Index
    from skipstone.storage import Listing
    from tests.s3 import S3


class Remote:
    """Four objects in a bucket, and their store."""

    def __init__(self, s3: S3, table: Table) -> None:
        self.s3, self.table = s3, table
        s3.fill("p/t/a", "p/t/b c", "p/t/d=1/é", "p/t/e")
        self.root = f"{s3.base}/p/t"

    def store(self) -> Store:
        return Store.of_table(self.root, options=self.s3.options)

    def listing(self) -> Listing:
        return self.s3.storage().list_files(self.root)

    def build(self, *indexes: Index, only: Sequence[int]) -> None:
        files = self.listing()
        made = [
            facts(files.object_id(i), self.table.columns(i), *indexes, container=b"x" * 700)
            for i in only
        ]
        self.store().write_part(made, indexes, SCHEMA)


@pytest.fixture
def remote(s3: S3, tmp_path: Path) -> Remote:
    return Remote(s3, Table(tmp_path / "columns"))


def values(remote: Remote) -> list[object]:
    matched = remote.store().snapshot().match(remote.listing())
    found: list[object] = []
    for each in matched.evidence({"id"}):
        assert each.stored is not None
        if each.name == "minmax":
            rows = pa.array(each.stored.row_of_file, mask=each.stored.row_of_file < 0)
            found.append(each.stored.values.take(rows).to_pylist())
    return found


def test_build_read_compact_drop_vacuum_check(remote: Remote) -> None:
    remote.build(MINMAX, VALUES, only=[0, 1])
    remote.build(MINMAX, only=[2])
    assert remote.store().location.root == f"{remote.s3.base}/p/_t.skipstone"
    bounds = [{"min": 10 * i, "max": 10 * i + 9} for i in range(3)]
    assert values(remote) == [[*bounds, None]]
    checked = check(remote.store(), remote.listing())
    assert (checked.current, checked.damaged, checked.lost_packs) == (3, (), ())
    remote.s3.fill("p/t/b c", data=b"grown")
    assert values(remote) == [[bounds[0], None, bounds[2], None]]
    done = compact(remote.store(), remote.listing)
    assert (done.rows_after, done.parts_after) == (2, 1)
    assert values(remote) == [[bounds[0], None, bounds[2], None]]
    assert [str(each) for each in drop_index(remote.store(), "minmax", "id")] == ["minmax(id)"]
    assert values(remote) == []
    assert len(remote.s3.keys("p/_t.skipstone/packs/")) == 2
    assert len(vacuum(remote.store(), older_than=-60).removed) == 0  # both still named
    remote.store().drop()
    assert remote.s3.keys("p/_t.skipstone/") == []


def test_objects_appear_under_their_final_names_only(remote: Remote) -> None:
    remote.build(MINMAX, only=[0])
    names = [key.rpartition("/")[2] for key in remote.s3.keys("p/_t.skipstone/")]
    assert sorted(name.partition("-")[0] for name in names if name.startswith("part")) == ["part"]
    assert not [name for name in names if name.startswith("_")]
    place = f"PUT /{remote.s3.bucket}/p/_t.skipstone/"
    written = [each for each in remote.s3.requests() if each.startswith(place)]
    assert len(written) == 2  # the pack, then the part that names it


def test_few_requests(remote: Remote) -> None:
    """One part: a listing, its size, its footer; then identities and the columns asked for."""
    remote.build(MINMAX, VALUES, only=[0, 1, 2, 3])
    store, files = remote.store(), remote.listing()
    before = len(remote.s3.requests())
    snapshot = store.snapshot()
    assert len(remote.s3.requests()) - before <= 3
    before = len(remote.s3.requests())
    snapshot.match(files).evidence({"id"})
    assert len(remote.s3.requests()) - before <= 12
    before = len(remote.s3.requests())
    again = store.snapshot()
    again.match(files).evidence({"id"})
    assert len(remote.s3.requests()) - before == 1  # only the listing of the parts


def test_parts_that_go_while_they_are_read_say_nothing(remote: Remote) -> None:
    remote.build(MINMAX, only=[0])
    store = remote.store()
    snapshot = store.snapshot()
    snapshot.drop_read_ahead()
    for key in remote.s3.keys("p/_t.skipstone/facts/"):
        remote.s3.client.delete_object(Bucket=remote.s3.bucket, Key=key)
    matched = snapshot.match(remote.listing())
    assert not matched.has_fact.any()
    assert [reason.cause.value for reason in matched.reasons] == ["unreadable"]
