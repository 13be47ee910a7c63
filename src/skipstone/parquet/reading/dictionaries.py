"""Dictionaries that were decoded to pick a few rows, kept for the next few: a bounded store.

A dictionary is as large as a page and is needed whole for a single row, so that a lookup in the
same row group would fetch, decompress and decode it again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skipstone.parquet.encodings.values import Values

__all__ = ["Dictionaries"]

_MOST_BYTES = 32 << 20


class Dictionaries:
    """By row group and leaf; what was used longest ago goes first."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.most_bytes, self.bytes = most_bytes, 0
        self._held: OrderedDict[tuple[int, int], Values] = OrderedDict()

    def get(self, key: tuple[int, int]) -> Values | None:
        """The dictionary of a chunk, if it is here."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def put(self, key: tuple[int, int], values: Values) -> None:
        """Keep the dictionary of a chunk, unless it is larger than all that may be kept."""
        if key in self._held or values.nbytes > self.most_bytes:
            return
        self._held[key] = values
        self.bytes += values.nbytes
        while self.bytes > self.most_bytes:
            _, dropped = self._held.popitem(last=False)
            self.bytes -= dropped.nbytes
