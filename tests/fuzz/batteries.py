"""What a user may ask of a file, in batteries of calls: each is made although others failed.

A battery makes its calls by ``attempt(function, *arguments)``, which gives ``None`` where the
function was refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from skipstone.inspect.inspection import InspectOptions
from skipstone.inspect.parquet_file import inspect_parquet
from skipstone.parquet.format.footer import find_footer
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.footer_lanes import scan_many
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.thrift.kernel_lanes import FEW
from skipstone.predicate.types import column_name
from skipstone.salvage import salvage
from tests.parquet.whole_file import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from skipstone.inspect.file_description import FileInspection
    from skipstone.parquet.encryption.decryption import Decryption


Attempt: TypeAlias = "Callable[..., Any]"

_VALUES: tuple[Any, ...] = (3, "a", 0.5, True)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A damaged file: its place, its bytes, and the keys of the file that it was."""

    path: str
    data: bytes
    decryption: Decryption | None

    def open(self) -> ParquetFile:
        """As a user would."""
        return ParquetFile(self.path, decryption=self.decryption)

    def inspect(self) -> FileInspection:
        """As ``skipstone inspect --pages`` would."""
        return inspect_parquet(self.path, InspectOptions(pages=True), self.decryption)


def _metadata(damaged: Damaged, attempt: Attempt) -> None:
    file = attempt(damaged.open)
    if file is not None:
        attempt(lambda: file.metadata.to_bytes())
        attempt(lambda: json.dumps(file.metadata.to_dict(), allow_nan=False))
        attempt(lambda: file.schema)
        attempt(lambda: file.row_groups().validate())
        attempt(lambda: file.chunks().validate())
        attempt(repr, file)


def _footers_together(damaged: Damaged, attempt: Attempt) -> None:
    """The footer among copies of it, and alone: the same, or left to the scan of one."""

    def scanned() -> None:
        tail, footer = find_footer(damaged.data)
        together = scan_many([bytes(footer)] * FEW, [tail.offset] * FEW)
        alone = FooterArrays.scan(footer, tail.offset)
        for each in together:
            if each is not None:
                assert each.scanned.fields == alone.scanned.fields
                assert np.array_equal(each.scanned.groups, alone.scanned.groups)
                assert np.array_equal(each.scanned.wide, alone.scanned.wide)
                assert np.array_equal(each.scanned.narrow, alone.scanned.narrow)

    attempt(scanned)


def _inspection(damaged: Damaged, attempt: Attempt) -> None:
    found = attempt(damaged.inspect)
    if found is not None:
        attempt(str, found)
        attempt(lambda: json.dumps(found.to_dict(), allow_nan=False))


def _indexes(damaged: Damaged, attempt: Attempt) -> None:
    file = attempt(damaged.open)
    if file is None:
        return
    attempt(lambda: file.pages().validate())
    for row_group in range(min(file.num_row_groups, 2)):
        for leaf in file.footer.schema.leaves[:8]:
            name = column_name(leaf.path)
            attempt(file.column_index, row_group, name)
            attempt(file.offset_index, row_group, name)
            attempt(file.bloom_filter, row_group, name)
            attempt(file.page_headers, row_group, name)


def _asked(path: tuple[str, ...]) -> str:
    """What a predicate calls a leaf: bytes that are no text are replaced, as in the schema."""
    name = column_name(path)
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _plans(damaged: Damaged, attempt: Attempt) -> None:
    file = attempt(damaged.open)
    if file is None:
        return
    for leaf in file.footer.schema.leaves[:4]:
        name = _asked(leaf.path)
        attempt(file.plan, [(name, "is not", None)])
        attempt(file.plan, [(name, "<", _VALUES[0])])
        for value in _VALUES:
            attempt(file.plan, [(name, "=", value)])


def _query(damaged: Damaged, attempt: Attempt) -> None:
    file = attempt(damaged.open)
    if file is None:
        return
    for leaf in file.footer.schema.leaves[:2]:
        where = [(_asked(leaf.path), "is not", None)]
        attempt(lambda where=where: file.query(where).validate())
        attempt(file.count, where)


def _fetch(damaged: Damaged, attempt: Attempt) -> None:
    file = attempt(damaged.open)
    if file is None:
        return
    middle = file.num_rows // 2
    attempt(lambda: file.read_rows(None, [(middle, middle + 1)]).validate())
    attempt(lambda: file.read_rows(None, [(0, 3), (middle, middle + 20)]).validate())
    attempt(lambda: [each.validate() for each in file.iter_rows()])


def _verification(damaged: Damaged, attempt: Attempt) -> None:
    file = attempt(damaged.open)
    if file is not None:
        attempt(lambda: json.dumps(file.verify().to_dict()))


def _salvage(damaged: Damaged, attempt: Attempt) -> None:
    out = Path(f"{damaged.path}.saved")

    def saved(skip_bad_pages: bool) -> None:
        report = salvage(
            damaged.path,
            output=str(out),
            skip_bad_pages=skip_bad_pages,
            decryption=damaged.decryption,
        )
        json.dumps(report.to_dict())
        str(report)
        if report.output is not None:
            read_table(out.read_bytes()).validate()

    for skip in (False, True):
        attempt(saved, skip)
        out.unlink(missing_ok=True)


def _own(damaged: Damaged, attempt: Attempt) -> None:
    attempt(lambda: read_table(damaged.data).validate())


#: by name
BATTERIES: Mapping[str, Callable[[Damaged, Attempt], None]] = {
    "metadata": _metadata,
    "footers_together": _footers_together,
    "inspection": _inspection,
    "indexes": _indexes,
    "plans": _plans,
    "query": _query,
    "fetch": _fetch,
    "verification": _verification,
    "salvage": _salvage,
    "own": _own,
}
#: Those that decode pages, and so take as much memory as the content of a file does.
DECODING = frozenset({"inspection", "query", "fetch", "verification", "salvage", "own"})
