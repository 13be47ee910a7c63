"""Where facts lie: beside the table, out of everybody's sight, or where the user says."""

from __future__ import annotations

import pytest

from skipstone.errors import UnsupportedError
from skipstone.facts import Location
from skipstone.storage import hidden_by_spark


@pytest.mark.parametrize(
    "table, root",
    [
        ("/a/events", "/a/_events.skipstone"),
        ("/a/events/", "/a/_events.skipstone"),
        ("file:///a/events", "/a/_events.skipstone"),
        ("/events", "/_events.skipstone"),
        ("s3://b/p/events", "s3://b/p/_events.skipstone"),
        ("s3a://b/events/", "s3://b/_events.skipstone"),
        ("/a/b c/é", "/a/b c/_é.skipstone"),
        ("/a/x.parquet", "/a/_x.parquet.skipstone"),
        ("/a/dt=2024-01-01", "/a/_dt%3D2024-01-01.skipstone"),
        ("/a/dt%3D2024-01-01", "/a/_dt%253D2024-01-01.skipstone"),
    ],
)
def test_beside_the_table_and_hidden(table: str, root: str) -> None:
    location = Location.of_table(table)
    assert location.root == root
    assert hidden_by_spark(root.rpartition("/")[2])
    assert location.part("part-x") == f"{root}/facts/part-x"
    assert location.pack("y.pack") == f"{root}/packs/y.pack"


@pytest.mark.parametrize("table", ["/", "s3://bucket", "s3a://bucket/", "gs://bucket"])
def test_a_table_without_a_parent_needs_a_place_for_its_facts(table: str) -> None:
    with pytest.raises(UnsupportedError, match="no parent directory") as error:
        Location.of_table(table)
    assert "index_location" in error.value.hint
    assert Location.of_table(table, "/elsewhere/_x").root == "/elsewhere/_x"


def test_a_chosen_place_may_be_anywhere_but_among_the_data() -> None:
    assert Location.of_table("/a/t", "s3a://b/i/").root == "s3://b/i"
    assert Location.of_table("/a/t", "/a/t/_index").root == "/a/t/_index"
    assert Location.of_table("/a/t", "/a/t/x/.index/y").root == "/a/t/x/.index/y"
    assert Location.of_table("/a/t", "/a/t2").root == "/a/t2"
    for inside in ("/a/t", "/a/t/index", "/a/t/_x=1", "file:/a/t/"):
        with pytest.raises(UnsupportedError, match="would be read as data"):
            Location.of_table("/a/t", inside)
