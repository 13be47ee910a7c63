"""Decoded values: a NumPy array for the types of fixed length, ``ByteArrays`` for BYTE_ARRAY.

========================  =========================================================
physical type             ``Values``
========================  =========================================================
BOOLEAN                   ``(n,)`` bool
INT32, INT64              ``(n,)`` int32, int64
FLOAT, DOUBLE             ``(n,)`` float32, float64
INT96                     ``(n, 12)`` uint8
FIXED_LEN_BYTE_ARRAY(k)   ``(n, k)`` uint8
BYTE_ARRAY                ``ByteArrays``: value ``i`` is ``data[offsets[i]:offsets[i + 1]]``
========================  =========================================================
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from _typeshed import ReadableBuffer


_LARGE = 1 << 15
# Strings whose bytes are copied at a time.
_COPIED: Final = 1_024
U8: TypeAlias = npt.NDArray[np.uint8]
I32: TypeAlias = npt.NDArray[np.int32]
I64: TypeAlias = npt.NDArray[np.int64]
#: 1970-01-01 among the Julian days of INT96
JULIAN_EPOCH: Final = 2_440_588
#: Bytes of a page: an array of uint8, or another object with a buffer.
Buffer: TypeAlias = "ReadableBuffer | npt.NDArray[Any]"


def as_bytes(data: Buffer) -> U8:
    """The buffer as a read-only array of bytes, not copied where it is contiguous.

    Always read-only: for writable arrays the kernels would be compiled once more.
    """
    if isinstance(data, np.ndarray) and data.dtype == np.uint8 and _is_fixed(data):
        return data
    view = memoryview(data)  # type: ignore[arg-type]  # arrays do, which NumPy tells from 3.12 on
    if not view.c_contiguous:
        view = memoryview(bytes(view))
    made = np.frombuffer(view.cast("B") if view.nbytes else b"", np.uint8)
    made.flags.writeable = False
    return made


def _is_fixed(data: npt.NDArray[Any]) -> bool:
    return data.ndim == 1 and data.flags.c_contiguous and not data.flags.writeable


def room(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An uninitialised array, in Arrow's memory where it is large.

    Arrow keeps freed memory. NumPy returns it to the system, which clears every page again: that
    takes longer than most decoding.
    """
    size = count * np.dtype(dtype).itemsize
    if size < _LARGE:
        return np.empty(count, dtype)
    import pyarrow as pa

    return np.frombuffer(pa.allocate_buffer(size), dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ByteArrays:
    """``n`` byte strings: ``data`` uint8, ``offsets`` int64 ``(n + 1,)`` that never decrease.

    The first offset need not be 0, nor the last the end of ``data``: slices share both arrays.
    """

    data: U8
    offsets: I64

    def __post_init__(self) -> None:
        if self.data.dtype != np.uint8 or self.offsets.dtype != np.int64:
            raise TypeError("byte arrays are uint8 data and int64 offsets")
        if self.data.ndim != 1 or self.offsets.ndim != 1 or not len(self.offsets):
            raise ValueError("offsets of n byte arrays are n + 1")
        if not 0 <= self.offsets[0] <= self.offsets[-1] <= len(self.data):
            raise ValueError("offsets of byte arrays outside their data")

    @classmethod
    def from_list(cls, values: Iterable[bytes]) -> ByteArrays:
        """The byte strings, in order."""
        held = list(values)
        offsets = np.zeros(len(held) + 1, np.int64)
        np.cumsum([len(each) for each in held], out=offsets[1:])
        return cls(np.frombuffer(b"".join(held), np.uint8), offsets)

    @classmethod
    def from_arrow(cls, array: pa.Array) -> ByteArrays:
        """An Arrow array of binary or strings without nulls; its bytes are shared, not copied."""
        import pyarrow as pa

        if array.null_count:
            raise ValueError("byte arrays have no nulls")
        if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            width: type[np.signedinteger[Any]] = np.int32
        else:
            width = np.int64
            if not pa.types.is_large_string(array.type) and not pa.types.is_large_binary(
                array.type
            ):
                array = array.cast(pa.large_binary())
        _, ends, data = array.buffers()
        start, stop = array.offset, array.offset + len(array) + 1
        if ends is None or not ends.size:  # no offsets are needed for no values
            return cls(np.empty(0, np.uint8), np.zeros(1, np.int64))
        offsets = np.frombuffer(ends, width)[start:stop].astype(np.int64, copy=False)
        return cls(as_bytes(data if data is not None else b""), offsets)

    @classmethod
    def concat(cls, parts: Sequence[ByteArrays]) -> ByteArrays:
        """All values of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        offsets = room(sum(map(len, parts)) + 1, np.int64)
        data = room(sum(part.nbytes for part in parts), np.uint8)
        offsets[0] = at = base = 0
        for part in parts:
            here = offsets[at + 1 : at + 1 + len(part)]
            np.add(part.offsets[1:], base - part.offsets[0], out=here)
            data[base : base + part.nbytes] = part.content
            at, base = at + len(part), base + part.nbytes
        return cls(data, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: slice) -> ByteArrays:
        """The values ``start:stop``, with the same data and no copy."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError("byte arrays are sliced without a step")
        return ByteArrays(self.data, self.offsets[start : max(start, stop) + 1])

    def __iter__(self) -> Iterator[bytes]:
        for first in range(0, len(self), _COPIED):
            # A slice of bytes takes half as long as one of a view that then becomes bytes.
            offsets = self.offsets[first : first + _COPIED + 1]
            data = self.data[offsets[0] : offsets[-1]].tobytes()
            for start, stop in pairwise((offsets - offsets[0]).tolist()):
                yield data[start:stop]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByteArrays):
            return NotImplemented
        return bool(
            np.array_equal(self.lengths, other.lengths)
            and np.array_equal(self.content, other.content)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ByteArrays({len(self)} values, {self.nbytes} bytes)"

    @property
    def lengths(self) -> I64:
        """Bytes of each value."""
        return np.diff(self.offsets)

    @property
    def content(self) -> U8:
        """The bytes of all values, without bytes before the first and after the last."""
        return self.data[self.offsets[0] : self.offsets[-1]]

    @property
    def nbytes(self) -> int:
        """The number of bytes of all values."""
        return int(self.offsets[-1] - self.offsets[0])

    def to_list(self) -> list[bytes]:
        """The byte strings, in order."""
        return list(self)

    def to_arrow(self, type_: pa.DataType | None = None) -> pa.Array:
        """An Arrow array that shares the bytes: large_binary, or ``type_``.

        ``type_`` is one of binary, string and their large kinds. Those of 32-bit offsets get
        offsets of their own, and hold less than 2 GiB (OverflowError). UTF-8 is not checked: the
        caller may use Arrow's ``validate(full=True)``.
        """
        import pyarrow as pa

        wanted = pa.large_binary() if type_ is None else type_
        data, offsets = self.data, self.offsets
        if pa.types.is_binary(wanted) or pa.types.is_string(wanted):
            if self.nbytes > np.iinfo(np.int32).max:
                raise OverflowError(f"{self.nbytes} bytes in an Arrow array of {wanted}")
            data, offsets = self.content, (offsets - offsets[0]).astype(np.int32)
        buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
        return pa.Array.from_buffers(wanted, len(self), buffers)


#: what decoders return; see the table of the module
Values: TypeAlias = npt.NDArray[Any] | ByteArrays


def concat(parts: Sequence[Values]) -> Values:
    """All values of all parts (one or more, of one kind), in order."""
    if len(parts) == 1:
        return parts[0]
    texts = [part for part in parts if isinstance(part, ByteArrays)]
    if texts:
        return ByteArrays.concat(texts)
    arrays = [part for part in parts if not isinstance(part, ByteArrays)]
    shape = (sum(map(len, arrays)), *arrays[0].shape[1:])
    out = room(int(np.prod(shape)), arrays[0].dtype).reshape(shape)
    return np.concatenate(arrays, out=out)


def plain_values(values: Values) -> ByteArrays:
    """Decoded values as their PLAIN bytes, byte arrays without their lengths."""
    if isinstance(values, ByteArrays):
        return values
    plain = np.ascontiguousarray(values)
    if plain.ndim == 1:
        plain = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
    width = plain.itemsize * (plain.shape[1] if plain.ndim == 2 else 1)
    return ByteArrays(
        plain.view(np.uint8).ravel(), np.arange(len(plain) + 1, dtype=np.int64) * width
    )


def sign_extended(data: U8, starts: I64, lengths: I64, width: int) -> U8:
    """Big-endian numbers of 1 to ``width`` bytes each, in two's complement, as ``(n, width)`` bytes
    with the lowest first."""
    ends = starts + lengths
    sign = np.where(data[starts] > 127, 255, 0).astype(np.uint8)
    made = np.repeat(sign[:, np.newaxis], width, axis=1)
    for place in range(int(lengths.max()) if len(lengths) else 0):
        has = lengths > place
        made[has, place] = data[ends[has] - 1 - place]
    return made


#: Most bytes of the strings of one page. A few bytes can repeat a long string without end, so there
#: has to be a limit; Arrow's own, for arrays with 32-bit offsets, is the same.
MAX_BYTES: Final = (1 << 31) - 1


def check_count(count: int) -> None:
    """FormatError for a negative number of values."""
    if count < 0:
        raise FormatError("number of values", expected="0 or more", got=count)


def check_room(what: str, needed: int, available: int, offset: int = 0) -> None:
    """FormatError where fewer than ``needed`` bytes are ``available``."""
    if needed > available:
        raise too_short(what, offset, f"{needed} bytes", f"{available} bytes")


def too_short(what: str, offset: int, expected: object, got: object) -> FormatError:
    """The error for data that are too short at ``offset``."""
    return FormatError(what, offset=offset, expected=expected, got=got)
