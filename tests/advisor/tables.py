"""Small tables of known layout."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from skipstone.advisor import Advice, AdviceRequest, ColumnAdvice, advise
from skipstone.advisor.sampling import BUDGET
from skipstone.storage import list_files, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa


# Long ago, so that no build waits for the files to settle.
_OLD = 1_700_000_000


def write(
    root: Path, files: int, make: Callable[[int], pa.Table], name: str = "part-{:05d}.parquet"
) -> Path:
    """A table of `files` files, the i-th of them `make(i)`."""
    for i in range(files):
        path = root / name.format(i)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(make(i), path)
        os.utime(path, (_OLD, _OLD))
    return root


def advise_on(root: Path, **options: Any) -> Advice:
    """Advice on the table at `root`."""
    listing, storage = list_files(str(root)), open_storage(str(root))
    budget = options.pop("budget", BUDGET)
    return advise(AdviceRequest(listing=listing, storage=storage, **options), budget)


def by_column(advice: Advice) -> dict[str, ColumnAdvice]:
    """The columns of an advice by name."""
    return {column.column: column for column in advice.columns}
