"""Coalescing of byte ranges: every range is served whole, by as few requests as may be."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from skipstone.storage import ByteRange, coalesce

RANGES = st.lists(
    st.builds(ByteRange, st.sampled_from(["/a", "/b"]), st.integers(0, 500), st.integers(0, 60)),
    max_size=30,
)


@given(RANGES, st.integers(0, 100), st.integers(0, 300))
def test_every_range_is_served_once_and_whole(
    ranges: list[ByteRange], gap: int, limit: int
) -> None:
    spans = coalesce(ranges, gap, limit)
    served = [member for span in spans for member in span.members]
    assert sorted(served) == sorted(set(ranges))
    for span in spans:
        content = bytes(i % 251 for i in range(span.offset, span.offset + span.length))
        for member, data in span.cut(memoryview(content)):
            wanted = range(member.offset, member.offset + member.length)
            assert bytes(data) == bytes(i % 251 for i in wanted)
        assert len(list(span.cut(memoryview(content)))) == len(span.members)
        assert span.length <= limit or len(span.members) == 1


@given(RANGES, st.integers(0, 100))
def test_spans_of_one_object_are_farther_apart_than_the_gap(
    ranges: list[ByteRange], gap: int
) -> None:
    spans = coalesce(ranges, gap, 10**9)
    for a, b in pairwise(spans):
        assert a.path != b.path or b.offset > a.offset + a.length + gap


def test_neighbours_become_one_request() -> None:
    ranges = [ByteRange("/a", 0, 10), ByteRange("/a", 14, 6), ByteRange("/a", 100, 1)]
    assert [(s.offset, s.length) for s in coalesce(ranges, 4, 1000)] == [(0, 20), (100, 1)]
    assert [(s.offset, s.length) for s in coalesce(ranges, 3, 1000)] == [(0, 10), (14, 6), (100, 1)]
    assert [(s.offset, s.length) for s in coalesce(ranges, 4, 19)] == [(0, 10), (14, 6), (100, 1)]


def test_a_short_read_serves_what_it_holds() -> None:
    (span,) = coalesce([ByteRange("/a", 0, 4), ByteRange("/a", 4, 4)], 0, 100)
    served = dict(span.cut(memoryview(b"123456")))
    assert {key.offset: bytes(value) for key, value in served.items()} == {0: b"1234"}
