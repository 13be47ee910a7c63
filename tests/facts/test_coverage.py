"""Which files have an index: from the footers of large columns as from the values themselves.

The layout: files 0 to 5 with facts in parts of two rows to a row group; file 4 is all null, of
file 5 the value list is left out; a bloom filter was added later, to files 0 to 2 only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from skipstone.facts import Snapshot, coverage, part_writer
from skipstone.indexes.bloom import Bloom
from skipstone.indexes.minmax import MinMax
from skipstone.indexes.valuelist import ValueList
from tests.facts.facts import SCHEMA, Table, facts

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.facts import MatchedFacts
    from skipstone.pruning.kind import Index

MINMAX, VALUES, BLOOM = MinMax("id"), ValueList("s", max_values=2), Bloom("id")


@pytest.fixture
def matched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MatchedFacts:
    monkeypatch.setattr(part_writer, "ROW_GROUP", 2)
    table = Table(tmp_path / "t")
    for number in range(6):
        table.write(f"{number}")
    listing = table.listing()
    found = []
    for number in range(6):
        ids = pa.array([None, None] if number == 4 else [number, None], pa.int64())
        texts = pa.array(["a", "b", "c"] if number == 5 else ["a", "b", "b"])
        columns = {"id": ids, "s": texts}
        why = {repr(VALUES): "more than 2 distinct values"} if number == 5 else {}
        found.append(facts(listing.object_id(number), columns, MINMAX, VALUES, reasons=why))
    table.store.write_part(found, [MINMAX, VALUES], SCHEMA)
    later = [facts(listing.object_id(n), {"id": pa.array([n])}, BLOOM) for n in range(3)]
    table.store.write_part(later, [BLOOM], SCHEMA)
    return table.store.snapshot().match(listing)


@pytest.mark.parametrize(
    "index, files",
    [(MINMAX, [0, 1, 2, 3, 4, 5]), (VALUES, [0, 1, 2, 3, 4]), (BLOOM, [0, 1, 2])],
)
@pytest.mark.parametrize("limit", [0, 2**40])
def test_files_with_a_value(
    matched: MatchedFacts,
    monkeypatch: pytest.MonkeyPatch,
    index: Index,
    files: list[int],
    limit: int,
) -> None:
    monkeypatch.setattr(coverage, "READ_BYTES", limit)
    assert coverage.valued(matched, index).nonzero()[0].tolist() == files
    assert coverage.covered(matched, VALUES).all()


def test_a_large_column_without_nulls_is_not_read(
    matched: MatchedFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage, "READ_BYTES", 0)
    read: list[object] = []

    def values(self: Snapshot, field: object) -> list[object]:
        read.append(field)
        return []

    monkeypatch.setattr(Snapshot, "values", values)
    assert coverage.valued(matched, BLOOM).sum() == 3
    assert read == []
    # Whether the struct of file 4 is null, or only what is in it, no footer says.
    coverage.valued(matched, MINMAX)
    assert len(read) == 1


def test_a_footer_tells_which_rows_have_a_value(matched: MatchedFacts) -> None:
    (bloom,) = (
        field
        for field in matched.snapshot.fields
        if field.definition is not None and field.definition.kind == BLOOM.name
    )
    (part,) = (part for part in matched.snapshot.parts if bloom.key in part.by_key)
    assert part.filled(part.by_key[bloom.key].arrow.name) is not None
    assert part.filled("obj_name") is None
