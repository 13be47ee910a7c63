"""Makes small tables take the way of large ones: columns of many files, decoded together."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from skipstone.execution import batches, bulk_rows, forecast, plan_rows
from skipstone.parquet.reading import bulk_columns, file_reader
from skipstone.parquet.reading.bulk_chunks import KERNELS

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Taken:
    """How often columns were decoded together, and how often all of their files were."""

    calls: int = 0
    whole: int = 0


@contextlib.contextmanager
def together(
    few: int = 16, pieces: int = 32, small_chunk: int | None = 0, *, compiled: bool = True
) -> Iterator[Taken]:
    """More than ``few`` files, in batches of ``pieces``; chunks of more than ``small_chunk`` bytes
    are read by pages. Not ``compiled``: Arrow decodes them, however few files there are."""
    taken, lock = Taken(), threading.Lock()  # batches are read by several threads
    real = bulk_columns.read_bulk

    def counted(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        whole = bool(found.done.all())
        with lock:
            taken.calls += 1
            taken.whole += whole
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_rows, "read_bulk", counted)
        patch.setattr(batches, "_MOST_PIECES", pieces)
        patch.setattr(plan_rows, "_FEW", few)
        patch.setattr(KERNELS, "once", 0)
        patch.setattr(KERNELS, "disabled", not compiled)
        if not compiled:
            patch.setattr(bulk_rows, "_LEAST", 1)
        if small_chunk is not None:
            # A module that is first imported in here would keep the number behind the test.
            for each in (file_reader, forecast):
                patch.setattr(each, "SMALL_CHUNK", small_chunk)
        yield taken
