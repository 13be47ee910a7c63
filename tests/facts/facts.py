"""Facts by hand: data files of arbitrary bytes, and what an index would say of them.

The store never looks into a data file, so a "file" here is a few bytes with an identity, and the
value of an index is computed from the Arrow columns that the test says the file has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.facts import Store
from skipstone.facts.encode import FileFacts
from skipstone.indexes.minmax import MinMax
from skipstone.indexes.valuelist import ValueList
from skipstone.pruning.kind import Blob, Builder, Built, Chunk, Index
from skipstone.storage import list_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from skipstone.facts import MatchedFacts
    from skipstone.identity import ObjectId
    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import Answer, Fetched, Units
    from skipstone.storage import Listing, Storage

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("é.b", pa.float64())])
MINMAX, VALUES = MinMax("id"), ValueList("s")


class Strange(Index):
    """A kind of somebody's own, of any stored type, registered or not."""

    name = "strange"

    def __init__(self, column: str, stored: pa.DataType, **params: str) -> None:
        super().__init__(column)
        self.stored_as, self._params = stored, params

    @property
    def params(self) -> Mapping[str, str]:
        return self._params

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        return self.stored_as

    def build(self, type: pa.DataType, budget: int) -> Builder:
        return _Nothing()

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        raise NotImplementedError


class _Nothing(Builder):
    def add(self, chunk: Chunk) -> None:
        pass

    def finish(self) -> Built:
        return Built(None, "nothing to say")


def value(index: Index, column: pa.Array) -> pa.Array | None:
    """What ``index`` stores of a file with this column."""
    builder = index.build(column.type, 1 << 20)
    builder.add(Chunk(column))
    built: Built = builder.finish()
    return built.value


def facts(
    id_: ObjectId, columns: Mapping[str, pa.Array], *indexes: Index, **more: Any
) -> FileFacts:
    """The facts of a file with these columns, for these indexes."""
    counted = dict.fromkeys(index.column for index in indexes)
    return FileFacts(
        id=id_,
        row_count=len(next(iter(columns.values()))),
        null_counts={name: columns[name].null_count for name in counted},
        values={index: value(index, columns[index.column]) for index in indexes},
        **more,
    )


def sidecar_place(matched: MatchedFacts, kind: str, file: int) -> Blob | None:
    """Where the newest sidecar ("container", "pm") of a file lies; ``None`` for none."""
    row = int(matched.sidecar_rows(kind)[file])
    return None if row < 0 else matched.places(kind).at(row)


def sidecar_at(place: Blob | None, storage: Storage) -> bytes | None:
    """The bytes of a sidecar; ``None`` where they are gone."""
    if place is None:
        return None
    if place.inline is not None:
        return bytes(place.inline)
    span = place.span(0, place.length)
    found = storage.read_ranges([span]).get(span)
    return None if found is None else bytes(found)


class Table:
    """A directory of data files beside its store; file ``i`` has ids ``10 i`` to ``10 i + 9``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.mkdir(parents=True, exist_ok=True)
        self.store = Store.of_table(str(root))

    def write(self, name: str, data: bytes = b"data") -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    def listing(self) -> Listing:
        return list_files(str(self.root))

    def columns(self, number: int) -> dict[str, pa.Array]:
        ids = [None, *range(10 * number, 10 * number + 10)]
        return {
            "id": pa.array(ids, pa.int64()),
            "s": pa.array([f"v{number}", None]),
            "é.b": pa.array([float(number)]),
        }

    def facts(
        self, *indexes: Index, only: Sequence[int] | None = None, **more: Any
    ) -> list[FileFacts]:
        """Facts of the listed files, or of those at these positions."""
        files = self.listing()
        chosen = range(len(files)) if only is None else only
        return [facts(files.object_id(i), self.columns(i), *indexes, **more) for i in chosen]

    def build(
        self, *indexes: Index, only: Sequence[int] | None = None, **more: Any
    ) -> tuple[str, ...]:
        """One part with the facts of these files."""
        return self.store.write_part(self.facts(*indexes, only=only, **more), indexes, SCHEMA)
