"""What a user may ask of a damaged `_pm` or `_txn`; most is tried under a CRC that is right."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from skipstone.inspect.inspection import InspectOptions
from skipstone.inspect.questdb_files import inspect_pm, inspect_txn
from skipstone.questdb.evidence.opened_pm import OpenedPm
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.txn import Txn, commit, read
from skipstone.questdb.format.writer import PmFooter, append, outdated, upgrade
from skipstone.questdb.pm_of_data_file import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from skipstone.questdb.format.pm import PmSnapshot
    from tests.fuzz.batteries import Attempt, Damaged


_SIZES = (4_308,)


def repaired(data: bytes) -> bytes:
    """With a committed size and a CRC that are right, so that damage gets past both."""
    if len(data) < 80:
        return data
    out = struct.pack("<Q", len(data)) + data[8:]
    return out[:-8] + struct.pack("<I", zlib.crc32(out[8:-8])) + out[-4:]


def _inspected(damaged: Damaged, attempt: Attempt) -> None:
    for size in (None, *_SIZES):
        for crc in (True, False):
            call = lambda size=size, crc=crc: inspect_pm(  # noqa: E731
                damaged.path, InspectOptions(parquet_size=size, no_crc=not crc)
            )
            found = attempt(call)
            if found is not None:
                attempt(str, found)
                attempt(lambda found=found: json.dumps(found.to_dict(), allow_nan=False))


def _repaired(damaged: Damaged, attempt: Attempt) -> None:
    Path(damaged.path).write_bytes(repaired(damaged.data))
    found = attempt(inspect_pm, damaged.path, InspectOptions())
    if found is not None:
        attempt(str, found)
        attempt(lambda: json.dumps(found.to_dict(), allow_nan=False))


def _values(damaged: Damaged, attempt: Attempt) -> None:
    data = repaired(damaged.data)
    pm = attempt(lambda: Pm(data, file=damaged.path))
    snapshot: PmSnapshot | None = None if pm is None else attempt(pm.snapshot)
    if snapshot is None:
        return
    size = snapshot.parquet_size
    attempt(lambda: checked(data, size, file=damaged.path))
    if attempt(outdated, snapshot) is not None:
        new = attempt(upgrade, snapshot)
        if new is not None:
            attempt(lambda: Pm(new, file=damaged.path).snapshot(size).verify())
    kept = list(range(min(snapshot.row_group_count, 3)))
    footer = attempt(PmFooter.of, snapshot)
    if footer is not None:
        attempt(lambda: append(snapshot, kept, footer).applied(data))


def _evidence(damaged: Damaged, attempt: Attempt) -> None:
    data = repaired(damaged.data)
    pm = attempt(lambda: Pm(data, file=damaged.path))
    snapshot: PmSnapshot | None = None if pm is None else attempt(pm.snapshot)
    if snapshot is None:
        return
    names = attempt(lambda: snapshot.pm.names)
    if not names:
        return
    for own in (True, False):
        file = attempt(
            lambda own=own: OpenedPm.of(snapshot, path=damaged.path, schema=None, own=own)
        )
        if file is None:
            continue
        for name in names[:6]:
            attempt(file.columns.get, name)


def _txn(damaged: Damaged, attempt: Attempt) -> None:
    found = attempt(inspect_txn, damaged.path, InspectOptions())
    if found is not None:
        attempt(str, found)
        attempt(lambda: json.dumps(found.to_dict(), allow_nan=False))
    # The number must be right for more than the first check to be passed.
    data = bytearray(damaged.data)
    if len(data) < 64:
        return
    version = struct.unpack_from("<q", data)[0]
    offset = struct.unpack_from("<i", data, 32 if version & 1 else 8)[0]
    if 64 <= offset <= len(data) - 8:
        data[offset : offset + 8] = data[:8]
    txn: Txn | None = attempt(lambda: read(data, file=damaged.path))
    if txn is not None and txn.txn < 1 << 62:
        after = Txn(txn=txn.txn + 1)
        attempt(lambda: commit(data, after))


PM: Mapping[str, Callable[[Damaged, Attempt], None]] = {
    "pm inspected": _inspected,
    "pm repaired": _repaired,
    "pm values": _values,
    "pm evidence": _evidence,
    "pm repaired again": _repaired,
}
TXN: Mapping[str, Callable[[Damaged, Attempt], None]] = {"txn": _txn}
#: by name
QUESTDB = {**PM, **TXN}
