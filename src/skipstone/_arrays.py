"""Operations on arrays that NumPy and Arrow lack or do slowly."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    # PyArrow brings no types. These bases are anything without its stubs, and themselves with them.
    class ArrowBatch(pa.RecordBatch):  # type: ignore[misc]
        """A ``pyarrow.RecordBatch``, to a type checker."""

        num_rows: int
        num_columns: int
        nbytes: int
        schema: pa.Schema

        def __len__(self) -> int: ...
        def to_pydict(self) -> dict[str, list[Any]]: ...
        def to_pylist(self) -> list[dict[str, Any]]: ...

    class ArrowTable(pa.Table):  # type: ignore[misc]
        """A ``pyarrow.Table``, to a type checker."""

        num_rows: int
        num_columns: int
        nbytes: int
        column_names: list[str]
        schema: pa.Schema

        def __len__(self) -> int: ...
        def to_batches(self, max_chunksize: int | None = None) -> list[ArrowBatch]: ...
        def to_pydict(self) -> dict[str, list[Any]]: ...
        def to_pylist(self) -> list[dict[str, Any]]: ...


_T = TypeVar("_T", bound=np.generic)


def distinct(values: NDArray[_T]) -> NDArray[_T]:
    """The distinct values of an array without NaN, ascending.

    Since version 2.3 `numpy.unique` puts the values into a hash table and then sorts: 50,000
    64-bit integers take 5 ms there and 0.3 ms here.
    """
    ascending = np.sort(values, axis=None)
    if len(ascending) < 2:
        return ascending
    first = np.empty(len(ascending), np.bool_)
    first[0] = True
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return ascending[first]


def distinct_at(values: NDArray[_T]) -> tuple[NDArray[_T], NDArray[np.intp]]:
    """The distinct values, ascending, and where each is first. ``numpy.unique`` imports
    ``numpy.ma``, in 10 ms."""
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    first = np.ones(len(order), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return ascending[first], order[first]


def runs_up_to(
    sizes: Iterable[int], most: int, count: int | None = None
) -> Iterator[tuple[int, int]]:
    """Runs of items, first and one after the last, whose ``sizes`` are at most ``most`` together,
    or ``count`` items if that is less; a larger item is alone."""
    start, stop, held = 0, 0, 0
    for size in sizes:
        if stop > start and (held + size > most or stop - start == count):
            yield start, stop
            start, held = stop, 0
        stop, held = stop + 1, held + size
    if stop > start:
        yield start, stop


def within(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """``0 … counts[0] - 1, 0 … counts[1] - 1`` and so on: each element's place in its own run.

    ``np.repeat(starts, counts) + within(counts)`` are the elements of the runs from ``starts``.
    """
    ends = np.cumsum(counts, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written. Kernels get it where they only read: they would be compiled
    once more for arrays that can be written."""
    made = array.view()
    made.flags.writeable = False
    return made


@lru_cache(maxsize=2)
def ordinals(count: int) -> NDArray[np.int64]:
    """``0 … count - 1``, read-only and shared: an array of a million takes longer to allocate than
    to read."""
    found = np.arange(count, dtype=np.int64)
    found.flags.writeable = False
    return found


def arrow(values: NDArray[Any]) -> pa.Array:
    """Numbers, or booleans, as an Arrow array that shares their bytes.

    ``pa.array`` imports pandas where it is installed, to see whether it was given a Series: 0.2 s
    in the first call.
    """
    import pyarrow as pa

    if values.dtype == np.bool_:
        bits = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
    held = np.ascontiguousarray(values)
    type = pa.from_numpy_dtype(held.dtype)
    return pa.Array.from_buffers(type, len(held), [None, pa.py_buffer(held)])


def arrow_bytes(values: Iterable[bytes | None]) -> pa.Array:
    """Byte strings as ``large_binary``, without pandas as above."""
    import pyarrow as pa

    given = list(values)
    known, held = None, cast("list[bytes]", given)
    if None in given:
        valid = np.array([value is not None for value in given], np.bool_)
        known = pa.py_buffer(np.packbits(valid, bitorder="little"))
        held = [value or b"" for value in given]
    ends = np.zeros(len(held) + 1, np.int64)
    np.cumsum([len(value) for value in held], out=ends[1:])
    parts = [known, pa.py_buffer(ends), pa.py_buffer(b"".join(held))]
    return pa.Array.from_buffers(pa.large_binary(), len(held), parts)


def no_rows(schema: pa.Schema) -> pa.Table:
    """``schema.empty_table()``, which calls ``pa.array``."""
    import pyarrow as pa

    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array. ``combine_chunks`` calls ``pa.array`` where there are no chunks."""
    import pyarrow as pa

    return column.combine_chunks() if column.num_chunks else pa.nulls(0, column.type)


def in_ascii_case(text: pa.Array, *, upper: bool = False) -> pa.Array:
    """Text with its ASCII letters in lower, or upper, case.

    Arrow's kernels (as of 26) take the values of an array to begin with its data, which those of a
    cast slice do not: the result has offsets outside of its data.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wide = pa.types.is_large_string(text.type)
    valid, ends, data = text.buffers()
    if not text.offset and len(text) and data is not None:
        offsets = np.frombuffer(ends, np.int64 if wide else np.int32, len(text) + 1)
        first = int(offsets[0])
        if first:
            parts = [valid, pa.py_buffer(offsets - offsets[0]), data.slice(first)]
            text = pa.Array.from_buffers(text.type, len(text), parts)
    return pc.ascii_upper(text) if upper else pc.ascii_lower(text)


def validity(array: pa.Array) -> NDArray[np.bool_]:
    """Which values of ``array`` are not null, by its bitmap."""
    if array.null_count in (0, len(array)):
        return np.full(len(array), array.null_count == 0, np.bool_)
    bits = array.buffers()[0]
    flags = np.unpackbits(
        np.frombuffer(bits, np.uint8), count=array.offset + len(array), bitorder="little"
    )
    return flags[array.offset :].view(np.bool_)


def among(values: NDArray[np.int64], chosen: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """Which of ``values`` are in ``chosen``; both are in ``range(count)``.

    ``np.isin`` and ``np.setdiff1d`` import ``numpy.ma`` in the first call, which takes 15 ms.
    """
    held = np.zeros(count, np.bool_)
    held[chosen] = True
    return held[values]


def numbers(array: pa.Array, null: float = 0) -> NDArray[Any]:
    """Booleans, integers or floats as NumPy has them, ``null`` for null.

    They share the bytes of Arrow where they can. ``to_numpy`` and ``np.asarray`` import pandas, as
    ``pa.array`` does.
    """
    type = array.type
    width = type.bit_width
    start, stop = array.offset, array.offset + len(array)
    data = array.buffers()[1] if len(array) else b""
    found: NDArray[Any]
    if width == 1:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=stop, bitorder="little")
        found = bits[start:].view(np.bool_)
    else:
        found = np.frombuffer(data, type.to_pandas_dtype(), stop if len(array) else 0)[start:]
    return np.where(validity(array), found, found.dtype.type(null)) if array.null_count else found
