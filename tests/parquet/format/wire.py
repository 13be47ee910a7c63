"""Strategies of Thrift values, and footers of golden files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.thrift import compact as thrift
from skipstone.parquet.thrift.compact import Field, ListOf, MapOf, Struct

if TYPE_CHECKING:
    from pathlib import Path


_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    thrift.BYTE: st.integers(-128, 127),
    thrift.I16: st.integers(-(1 << 15), (1 << 15) - 1),
    thrift.I32: st.integers(-(1 << 31), (1 << 31) - 1),
    thrift.I64: st.one_of(
        st.integers(-100, 100),
        st.sampled_from([-(1 << 63), (1 << 63) - 1]),
        st.integers(0, 1 << 62),
    ),
    thrift.DOUBLE: st.floats(allow_nan=False),
    thrift.BINARY: st.binary(max_size=20),
    thrift.UUID: st.binary(min_size=16, max_size=16),
}


def _typed(depth: int) -> st.SearchStrategy[tuple[int, Any]]:
    """A wire type and a value of it, as an element of a list."""
    options = [st.tuples(st.just(kind), values) for kind, values in _SCALARS.items()]
    options.append(st.tuples(st.just(thrift.TRUE), st.booleans()))
    if depth:
        options += [
            st.tuples(st.just(thrift.STRUCT), structs(depth - 1)),
            st.tuples(st.sampled_from([thrift.LIST, thrift.SET]), _lists(depth - 1)),
            st.tuples(st.just(thrift.MAP), _maps(depth - 1)),
        ]
    return st.one_of(options)


def _of_kind(kind: int, depth: int) -> st.SearchStrategy[Any]:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind in (thrift.TRUE, thrift.FALSE):
        return st.booleans()
    if kind == thrift.STRUCT:
        return structs(depth)
    return _maps(depth) if kind == thrift.MAP else _lists(depth)


_KINDS = [*_SCALARS, thrift.TRUE, thrift.FALSE]
_NESTED = [*_KINDS, thrift.STRUCT, thrift.LIST, thrift.SET, thrift.MAP]


def _kinds(depth: int) -> st.SearchStrategy[int]:
    return st.sampled_from(_NESTED if depth > 0 else _KINDS)


def _lists(depth: int) -> st.SearchStrategy[ListOf]:
    return _kinds(depth).flatmap(
        lambda kind: st.lists(_of_kind(kind, depth - 1), max_size=20).map(
            lambda values: ListOf(kind, tuple(values))
        )
    )


def _maps(depth: int) -> st.SearchStrategy[MapOf]:
    def of(kinds: tuple[int, int]) -> st.SearchStrategy[MapOf]:
        pair = st.tuples(_of_kind(kinds[0], depth - 1), _of_kind(kinds[1], depth - 1))
        return st.lists(pair, min_size=1, max_size=4).map(
            lambda pairs: MapOf(kinds[0], kinds[1], tuple(pairs))
        )

    return st.one_of(st.just(MapOf(0, 0, ())), st.tuples(_kinds(depth), _kinds(depth)).flatmap(of))


def structs(depth: int = 2) -> st.SearchStrategy[Struct]:
    """Any struct: ids in any order, also twice, 32767 and negative ones."""
    id = st.one_of(st.integers(1, 40), st.sampled_from([32767, -32768, 0, -1]))

    def field(each: tuple[int, tuple[int, Any]]) -> Field:
        number, (kind, value) = each
        if kind == thrift.TRUE:
            kind = thrift.TRUE if value else thrift.FALSE
        return Field(number, kind, value)

    fields = st.tuples(id, _typed(depth)).map(field)
    return st.lists(fields, max_size=6).map(lambda found: Struct(tuple(found)))


def footer_of(path: Path) -> tuple[bytes, int]:
    """Everything between the data and the tail, and where it begins."""
    data = path.read_bytes()
    tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    return data[tail.offset : -TAIL_LENGTH], tail.offset
