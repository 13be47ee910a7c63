"""The cache keeps what was used last, within its bounds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from skipstone._cache import LruCache


def test_what_was_not_used_for_longest_goes() -> None:
    cache = LruCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (1, None, 3, 2)
    assert cache.setdefault("a", 9) == 1
    cache.setdefault("d", 4)
    assert (cache.get("c"), cache.pop("a"), cache.pop("a")) == (None, 1, None)


def test_bytes_are_bounded_and_the_newest_stays() -> None:
    cache = LruCache[str, bytes](most_bytes=10, size=len)
    cache.put("a", bytes(6))
    cache.put("a", bytes(4))
    cache.put("b", bytes(6))
    assert len(cache) == 2
    cache.put("c", bytes(99))
    assert (len(cache), cache.get("c")) == (1, bytes(99))
    cache.put("d", b"")
    assert (len(cache), cache.get("c")) == (1, None)


def test_values_that_grow_are_measured_again() -> None:
    cache = LruCache[str, bytearray](most_bytes=10, size=len, growing=True)
    grown = cache.put("a", bytearray(1))
    cache.put("b", bytearray(1))
    grown += bytes(20)
    cache.setdefault("b", bytearray())
    assert (cache.get("a"), len(cache)) == (None, 1)


def test_threads_share_it() -> None:
    cache = LruCache[int, int](50, most_bytes=100, size=lambda value: 3)

    def use(start: int) -> None:
        for at in range(start, start + 2_000):
            cache.put(at % 97, at)
            cache.get((at * 7) % 97)
            cache.pop((at * 5) % 97)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    for at in range(33):
        cache.put(at, at)
    assert [cache.get(at) for at in range(33)] == list(range(33))
    cache.put(33, 33)
    assert len(cache) == 33
