"""A table written as Parquet in memory, as evidence sees it, and all that its evidence says."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.parquet.evidence import IndexedFile, PageSource, RowGroupSource
from skipstone.parquet.format.footer import Tail, read_metadata
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.pruning import Units
from skipstone.pruning.planner import ObjectLevel, PlanInput, make_plan
from skipstone.storage import ByteRange, Listing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.format.metadata import ColumnMetaData, FileMetaData
    from skipstone.predicate.tree import Bound, Leaf
    from skipstone.pruning import Answer, Evidence, Fetched
    from skipstone.pruning.plan import Plan

OF_PAGES = ("page index", "sorted")


@dataclass
class Fetching:
    """Serves ranges of files in memory, and notes what was asked for."""

    files: dict[str, bytes]
    asked: list[ByteRange] = field(default_factory=list)

    def __call__(self, ranges: Sequence[ByteRange]) -> Fetched:
        self.asked += ranges
        found = {}
        for each in ranges:
            part = self.files[each.path][each.offset : each.offset + each.length]
            if len(part) == each.length:
                found[each] = part
        return found


def scan(data: bytes) -> FooterArrays:
    """The footer of a whole file in memory."""
    tail = Tail.from_bytes(data[-8:], len(data))
    return FooterArrays.scan(data[tail.offset : -8], tail.offset)


def write(
    table: pa.Table, *, group: int | None = None, page: int | None = None, **options: Any
) -> bytes:
    """``table`` as Parquet, ``group`` rows in a row group and ``page`` in a page."""
    sink = io.BytesIO()
    pages = {} if page is None else {"max_rows_per_page": page, "write_batch_size": 1}
    pq.write_table(
        table,
        sink,
        row_group_size=group,
        write_page_index=page is not None,
        **{"compression": "none", **pages, **options},
    )
    return sink.getvalue()


def rewritten(data: bytes, change: Callable[[FileMetaData], FileMetaData]) -> bytes:
    """The file with another footer."""
    tail = Tail.from_bytes(data[-8:], len(data))
    footer = change(read_metadata(data)).to_bytes()
    return data[: tail.offset] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def with_chunks(
    metadata: FileMetaData, change: Callable[[int, int, ColumnMetaData], ColumnMetaData]
) -> FileMetaData:
    """The metadata with another ``ColumnMetaData`` for each ``(row group, leaf)``."""
    groups = []
    for r, group in enumerate(metadata.row_groups):
        columns = []
        for c, chunk in enumerate(group.columns):
            assert chunk.meta_data is not None
            columns.append(replace(chunk, meta_data=change(r, c, chunk.meta_data)))
        groups.append(replace(group, columns=tuple(columns)))
    return replace(metadata, row_groups=tuple(groups))


class Written:
    """Files in memory, their sources, and plans over them."""

    def __init__(self, *files: bytes) -> None:
        self.fetching = Fetching({f"/t/{i}.parquet": data for i, data in enumerate(files)})
        self.files = {
            i: IndexedFile(path, scan(data), size=len(data))
            for i, (path, data) in enumerate(self.fetching.files.items())
        }
        self.row_groups = RowGroupSource(self.files)
        self.pages = PageSource(self.files, self.fetching)
        self.counts = np.array(
            [int(file.footer.row_starts[-1]) for file in self.files.values()], np.int64
        )

    def units(self, columns: frozenset[str], *, pages: bool = False) -> Units:
        """All row groups, or all runs of pages."""
        objects = Units.objects(np.arange(len(self.files)), self.counts)
        units, _ = self.row_groups.split(objects, columns)
        if not pages:
            return units
        return self.pages.split(units, columns)[0]

    def evidence(self, column: str, name: str) -> Evidence[Leaf] | None:
        """The evidence of this name about a column."""
        columns = frozenset((column,))
        source = self.pages if name in OF_PAGES else self.row_groups
        units = self.units(columns, pages=name in OF_PAGES)
        found = [each for each in source.evidence(units, columns) if each.name == name]
        assert len(found) <= 1
        return found[0] if found else None

    def ask(self, name: str, leaf: Leaf, units: Units | None = None) -> Answer:
        """What the evidence of this name says of a leaf."""
        columns = frozenset((leaf.column,))
        if units is None:
            units = self.units(columns, pages=name in OF_PAGES)
        evidence = self.evidence(leaf.column, name)
        assert evidence is not None, f"no {name}"
        have: dict[ByteRange, Any] = {}
        for _ in range(8):
            needs = [each for each in evidence.needs((leaf,), units, have) if each not in have]
            if not needs:
                break
            have.update(self.fetching(needs))
        (answer,) = evidence.answer((leaf,), units, have)
        return answer

    def may(self, name: str, leaf: Leaf) -> list[bool]:
        """Which units may match, as this evidence says."""
        bounds = self.ask(name, leaf).bounds
        assert bounds is not None
        found: list[bool] = bounds.may.tolist()
        return found

    def must(self, name: str, leaf: Leaf) -> list[bool]:
        """Which units surely match, as this evidence says."""
        bounds = self.ask(name, leaf).bounds
        assert bounds is not None
        found: list[bool] = bounds.must.tolist()
        return found

    def plan(self, tree: Bound) -> Plan:
        """The plan for a bound tree."""
        paths = list(self.fetching.files)
        listing = Listing(
            root="/t",
            paths=paths,
            sizes=np.array([len(self.fetching.files[path]) for path in paths], np.int64),
            mtimes=np.zeros(len(paths), np.int64),
        )
        return make_plan(
            PlanInput(
                tree=tree,
                listing=listing,
                table="/t",
                predicate="p",
                objects=ObjectLevel(row_counts=self.counts),
                finer=(self.row_groups, self.pages),
                fetch=self.fetching,
            )
        )

    def kept(self, plan: Plan) -> list[NDArray[np.int64]]:
        """The rows of each file that the plan keeps."""
        found = []
        for i, count in enumerate(self.counts.tolist()):
            detail = plan.details.get(i)
            if not plan.keep[i]:
                found.append(np.empty(0, np.int64))
            elif detail is None or detail.rows is None:
                found.append(np.arange(count))
            else:
                found.append(detail.rows.positions())
        return found
