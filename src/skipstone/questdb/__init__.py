"""QuestDB's ``_pm``, the metadata of a Parquet partition, and ``_txn``, the list of partitions.

``format`` has the bytes of both. ``evidence`` and ``partition_evidence`` turn a ``_pm`` into bounds
of row groups for the planner; ``pm_file`` is the public class for one ``_pm``. ``pm_of_data_file``
makes a ``_pm`` for a data file, and ``migrate`` makes those that a table lacks. ``txn_snapshot``
reads a table at one commit, and opens its files as they were at that commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skipstone.errors import in_words

if TYPE_CHECKING:
    from skipstone.storage import Storage


TXN: Final = "_txn"


def is_txn_table(root: str, storage: Storage) -> bool:
    """True when ``root`` is a directory with a ``_txn`` in it."""
    path = f"{root}/{TXN}"
    try:
        return storage.exists(path)
    except OSError as error:  # the user named the table
        raise OSError(f"{root}: {in_words(error, path)}") from error
