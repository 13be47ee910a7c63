"""Recognises and inspects QuestDB's ``_pm`` and ``_txn`` files.

The name decides which of the two a file is; with any other name its content decides.
``inspect_pm`` shows one snapshot and the chain of earlier ones. It computes all CRCs of the chain
in one pass over the file. ``inspect_txn`` shows the current record. It names the directories of the
partitions if the partition unit can be inferred from the directories next to the file.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, in_words
from skipstone.human import aligned, of_total, size
from skipstone.identity import canonical_path
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.txn import NO_MAX, NO_MIN, directory, infer_partitioning
from skipstone.questdb.format.txn import read as read_txn
from skipstone.storage import open_storage

from .inspection import InspectionReport, indented, is_file, more
from .pm_description import CheckedSnapshot, PmInspection

if TYPE_CHECKING:
    from skipstone.questdb.format.pm import PmSnapshot
    from skipstone.questdb.format.txn import Partitioning, Txn
    from skipstone.storage import Storage

    from .inspection import InspectOptions


Kind: TypeAlias = Literal["_pm", "_txn"]

# The content of a larger file with another name is not checked.
_LARGEST = 1 << 28
_MOST_PARTITIONS = 40
# A commit may change the file while it is read; after this many attempts it counts as damaged.
_ATTEMPTS = 5


def kind_by_name(storage: Storage, path: str) -> Kind | None:
    """The kind by the name: ``_pm``, ``x._pm``, ``x.pm``, ``_txn``, ``x._txn``."""
    name = path.rpartition("/")[2]
    if name == "_pm" or name.endswith(("._pm", ".pm")):
        return "_pm" if is_file(storage, path) else None
    if name == "_txn" or name.endswith("._txn"):
        return "_txn" if is_file(storage, path) else None
    return None


def kind_by_content(storage: Storage, path: str) -> Kind | None:
    """The kind by the bytes; neither has a magic number, so the whole structure is checked."""
    if not is_file(storage, path) or (storage.stat(path).size or 0) > _LARGEST:
        return None
    data = storage.read(path)
    try:
        Pm(data).snapshot().verify()
    except SkipstoneError:
        pass
    else:
        return "_pm"
    try:
        return None if read_txn(data) is None else "_txn"
    except SkipstoneError:
        return None


def inspect_questdb(path: str, kind: Kind, options: InspectOptions) -> PmInspection | TxnInspection:
    """Inspect the ``_pm`` or ``_txn`` at ``path``."""
    return (inspect_txn if kind == "_txn" else inspect_pm)(path, options)


def inspect_pm(path: str, options: InspectOptions) -> PmInspection:
    """Inspect the ``_pm`` at ``path``.

    ``parquet_size`` selects the snapshot of a Parquet file of that size, ``None`` the newest.
    ``FormatError`` if the file is damaged; with ``no_crc`` a wrong CRC does not raise.
    """
    parquet_size = options.parquet_size
    path = canonical_path(path)
    storage = open_storage(path, options.storage_options)
    data = storage.read(path)
    pm = Pm(data, file=path)
    snapshot = pm.snapshot(parquet_size)
    notes: list[str] = []
    chain = _chain(snapshot, notes)
    if not options.no_crc and not chain[0].ok:
        raise FormatError(
            "CRC32",
            file=path,
            offset=snapshot.size - 8,
            expected=f"{chain[0].crc:#010x}",
            got=f"{snapshot.crc:#010x}",
            hint="the file is damaged: --no-crc shows it anyway",
        )
    data_file = f"{path.rpartition('/')[0]}/data.parquet"
    if parquet_size is None and path.endswith("/_pm") and storage.exists(data_file):
        byte_count = storage.stat(data_file).size
        if byte_count is not None and byte_count != snapshot.parquet_size:
            notes.append(
                f"data.parquet next to it has {byte_count:,} bytes, but this snapshot describes"
                f" one of {snapshot.parquet_size:,}: --parquet-size selects another"
            )
    return PmInspection(
        path=path,
        physical_length=len(data),
        snapshot=snapshot,
        chain=chain,
        notes=tuple(notes),
    )


def _chain(snapshot: PmSnapshot, notes: list[str]) -> tuple[CheckedSnapshot, ...]:
    """The snapshot and the earlier ones, with the CRC of each."""
    pm, found, listed = snapshot.pm, [], 0
    try:
        for each in pm.snapshots():
            if each.size > snapshot.size:
                continue
            # Footers do not overlap, so all their entries take no more bytes than the file.
            listed += each.row_group_count
            if 4 * listed > pm.size:
                raise FormatError("footers that overlap", file=pm.file, offset=each.footer_offset)
            found.append(each)
    except SkipstoneError as error:
        notes.append(f"the chain of snapshots ends early: {in_words(error, pm.file)}")
    links, crc, done = [], 0, 8
    for each in reversed(found or [snapshot]):
        crc = zlib.crc32(pm.data[done : each.size - 8], crc)
        done = each.size - 8
        links.append(CheckedSnapshot(snapshot=each, crc=crc))
    return tuple(reversed(links))


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnInspection(InspectionReport):
    """The current record of the ``_txn`` at ``path``, a file of ``physical_length`` bytes.

    ``directories`` are those of the partitions, ``None`` where they are not known.
    """

    path: str
    physical_length: int
    txn: Txn
    partitioning: Partitioning | None = None
    directories: tuple[str | None, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
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
        parts = [f"_txn   {self.path}\n{indented(aligned(lines))}"]
        if total:
            parts.append(self._partitions())
        return "\n\n".join([*parts, *(f"note: {note}" for note in self.notes)])

    def _partitions(self) -> str:
        heads = ["partition", "timestamp", "rows", "parquet size", "name txn", "flags"]
        rows = []
        known = zip(self.txn.partitions, self.txn.row_counts, self.directories, strict=True)
        for each, count, name in list(known)[:_MOST_PARTITIONS]:
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
        shown = indented(aligned([heads, *rows], numbers=(2, 3, 4)))
        return f"partitions\n{shown}{more(total, _MOST_PARTITIONS, 'partitions')}"


def inspect_txn(path: str, options: InspectOptions) -> TxnInspection:
    """Inspect the ``_txn`` at ``path``; ``FormatError`` if it is damaged."""
    path = canonical_path(path)
    storage = open_storage(path, options.storage_options)
    for _ in range(_ATTEMPTS):
        data = storage.read(path)
        txn = read_txn(data, file=path)
        if txn is not None:
            break
    else:
        raise FormatError(
            "the current record of _txn",
            file=path,
            expected="complete, and of its version",
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
            notes.append(f"the directories of partitions are not known: {error.message}")
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
