"""Stores that stay open between the DataFrames of one Spark context: what was read is not read
again.

Every ``skip(df)`` looks for its facts anew, since an index may have come or gone. What it finds
is nearly always what the one before has found, with the columns that the last predicates needed
already in memory. A shelf keeps those stores, the one that was used longest ago goes first, and
nothing is kept past a number of bytes. A store lists its parts for every snapshot and keeps only
what belongs to the same parts, so nothing from a shelf is out of date.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from skipstone.facts import Store
from skipstone.planning.runs import IN_MEMORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Shelf", "shelf"]


class Shelf:
    """At most ``most`` stores, whose columns take at most ``limit`` bytes together."""

    def __init__(self, limit: int = IN_MEMORY, most: int = 16) -> None:
        self.limit, self.most = limit, most
        self._stores: OrderedDict[str, Store] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._stores)

    def kept(self, store: Store) -> Store:
        """``store``, or the one of the same place that was here before.

        Foreign and encrypted stores are not kept: they hold the keys that somebody gave for one of
        them.
        """
        if type(store) is not Store or store.keys is not None:
            return store
        root = store.location.root
        with self._lock:
            found = self._stores.setdefault(root, store)
            self._stores.move_to_end(root)
            while len(self._stores) > 1 and (
                len(self._stores) > self.most
                or sum(each.nbytes for each in self._stores.values()) > self.limit
            ):
                self._stores.popitem(last=False)
            return found


_SHELVES: WeakKeyDictionary[Any, Shelf] = WeakKeyDictionary()
_LOCK = threading.Lock()


def shelf(spark: SparkSession) -> Shelf:
    """The shelf of the session's context."""
    with _LOCK:
        return _SHELVES.setdefault(spark.sparkContext, Shelf())
