"""The only cache that drops values: bounded by entries or bytes, the least recently used go first.

Threads may share a cache. It holds no lock while a value is made, so two threads may make the value
of one key: the later one stays.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Holds at most ``most`` values, and at most ``most_bytes`` as ``size`` measures them.

    The newest value stays however large it is. ``growing`` values are measured again whenever one
    is added; the sizes of others are added up once.
    """

    def __init__(
        self,
        most: float = math.inf,
        *,
        most_bytes: float = math.inf,
        size: Callable[[V], int] | None = None,
        growing: bool = False,
    ) -> None:
        self.most, self.most_bytes = most, most_bytes
        self._size, self._growing = size or _no_bytes, growing
        self._values: OrderedDict[K, V] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled cache is empty.
        return _empty, (self.most, self.most_bytes, self._size, self._growing)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value of ``key``, which becomes the most recently used; ``None`` if there is none."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def put(self, key: K, value: V) -> V:
        """Keeps ``value`` for ``key``, in place of an older one, and returns it."""
        with self._lock:
            self._remove(key)
            return self._add(key, value)

    def setdefault(self, key: K, value: V) -> V:
        """The value that the cache has for ``key``, else ``value``, which it then keeps."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                value = found
                self._remove(key)
            return self._add(key, value)

    def pop(self, key: K) -> V | None:
        """Drops ``key`` and returns its value, ``None`` if there is none."""
        with self._lock:
            return self._remove(key)

    def _remove(self, key: K) -> V | None:
        value = self._values.pop(key, None)
        if value is not None and not self._growing:
            self._bytes -= self._size(value)
        return value

    def _add(self, key: K, value: V) -> V:
        self._values[key] = value
        if not self._growing:
            self._bytes += self._size(value)
        while len(self._values) > 1 and not self._fits():
            self._remove(next(iter(self._values)))
        return value

    def _fits(self) -> bool:
        if len(self._values) > self.most:
            return False
        held = sum(map(self._size, self._values.values())) if self._growing else self._bytes
        return held <= self.most_bytes


def _no_bytes(value: object) -> int:
    return 0


def _empty(
    most: float, most_bytes: float, size: Callable[[Any], int], growing: bool
) -> LruCache[Any, Any]:
    return LruCache(most, most_bytes=most_bytes, size=size, growing=growing)
