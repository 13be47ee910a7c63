"""What is inside a ``_txn``: ``inspect_txn`` reads its current record, ``TxnInspection`` shows it.

The directories of the partitions are named where the unit can be inferred from those beside it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import FormatError
from skipstone.human import aligned, of_total, size
from skipstone.identity import canonical_path
from skipstone.questdb.format.partition_names import directory, infer_partitioning
from skipstone.questdb.format.txn import NO_MAX, NO_MIN, read
from skipstone.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.questdb.format.partition_names import Partitioning
    from skipstone.questdb.format.txn import Txn

__all__ = ["TxnInspection", "inspect_txn"]

_MOST = 40
# A commit may come while the file is read; one that never holds still is damaged.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnInspection:
    """The current record of the ``_txn`` at ``path``, a file of ``physical_length`` bytes.

    ``directories`` name those of the partitions, ``None`` where they cannot be told.
    """

    path: str
    physical_length: int
    txn: Txn
    partitioning: Partitioning | None = None
    directories: tuple[str | None, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """One document, JSON-ready."""
        txn = self.txn
        found = asdict(txn)
        partitions, rows = found.pop("partitions"), txn.row_counts
        symbols = found.pop("symbols")
        return {
            "path": self.path,
            "format": "_txn",
            "physical_length": self.physical_length,
            "record": "B" if txn.txn & 1 else "A",
            **found,
            "row_count": txn.row_count,
            "lag_checksum": txn.lag_checksum,
            "symbols": [{"count": count, "transient_count": other} for count, other in symbols],
            "partition_by": None if self.partitioning is None else self.partitioning.unit,
            "timestamp_unit": _unit(self.partitioning),
            "partitions": [
                {**each, "rows": count, "directory": name}
                for each, count, name in zip(partitions, rows, self.directories, strict=True)
            ],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        txn, total = self.txn, len(self.txn.partitions)
        parquet = sum(each.parquet_format for each in txn.partitions)
        unit = "unknown" if self.partitioning is None else self.partitioning.unit
        lines = [
            ("txn", f"{txn.txn:,} in record {'B' if txn.txn & 1 else 'A'}"),
            ("size", size(self.physical_length)),
            ("rows", f"{txn.row_count:,}, {txn.transient_row_count:,} in the last partition"),
            ("from", _instant(txn.min_timestamp, self.partitioning)),
            ("to", _instant(txn.max_timestamp, self.partitioning)),
            ("partitioned by", unit),
            ("parquet", of_total(parquet, total, "partitions")),
            ("symbols", f"{len(txn.symbols):,} columns"),
            ("structure, data", f"version {txn.structure_version}, {txn.data_version}"),
            ("seq txn", str(txn.seq_txn)),
            ("lag", f"{txn.lag_row_count:,} rows in {abs(txn.lag_txn_count):,} transactions"),
        ]
        parts = [f"_txn   {self.path}\n{_indented(aligned(lines))}"]
        if total:
            parts.append(self._partitions())
        return "\n\n".join([*parts, *(f"note: {note}" for note in self.notes)])

    def _partitions(self) -> str:
        heads = ["partition", "timestamp", "rows", "parquet size", "name txn", "flags"]
        rows = []
        known = zip(self.txn.partitions, self.txn.row_counts, self.directories, strict=True)
        for each, count, name in list(known)[:_MOST]:
            flags = ["parquet"] * each.parquet_format + ["generated"] * each.parquet_generated
            flags += ["read-only"] * each.read_only
            rows.append(
                [
                    name or "?",
                    _instant(each.timestamp, self.partitioning),
                    f"{count:,}",
                    f"{each.parquet_file_size:,}" if each.parquet_file_size >= 0 else "-",
                    str(each.name_txn) if each.name_txn >= 0 else "-",
                    ", ".join(flags) or "-",
                ]
            )
        total = len(self.txn.partitions)
        more = f"\n  … {total - _MOST:,} more of {total:,} partitions: see --json"
        shown = _indented(aligned([heads, *rows], numbers=(2, 3, 4)))
        return f"partitions\n{shown}{more if total > _MOST else ''}"


def inspect_txn(path: str, *, storage_options: Mapping[str, str] | None = None) -> TxnInspection:
    """Look into the ``_txn`` at ``path``; ``FormatError`` where it is damaged."""
    path = canonical_path(path)
    storage = open_storage(path, storage_options)
    for _ in range(_ATTEMPTS):
        data = storage.read(path)
        txn = read(data, file=path)
        if txn is not None:
            break
    else:
        raise FormatError(
            "the current record of _txn",
            file=path,
            expected="whole, and of its version",
            got="cut short, or of another",
        )
    partitioning, notes = None, []
    names: list[str | None] = [None] * len(txn.partitions)
    if names and "://" not in path:
        there = [each.name for each in Path(path).parent.iterdir() if each.is_dir()]
        try:
            partitioning = infer_partitioning(txn.partitions, there)
            names = [directory(each, partitioning) for each in txn.partitions]
        except FormatError as error:
            notes.append(f"directories of partitions cannot be told: {error.message}")
    return TxnInspection(
        path=path,
        physical_length=len(data),
        txn=txn,
        partitioning=partitioning,
        directories=tuple(names),
        notes=tuple(notes),
    )


def _unit(partitioning: Partitioning | None) -> str | None:
    return None if partitioning is None else "ns" if partitioning.nanos else "us"


def _instant(number: int, partitioning: Partitioning | None) -> str:
    if number in (NO_MIN, NO_MAX):
        return "-"
    if partitioning is None:
        return f"{number:,}"
    return f"{np.datetime64(number, 'ns' if partitioning.nanos else 'us')}Z"


def _indented(value: str) -> str:
    return "\n".join(f"  {line}" for line in value.splitlines())
