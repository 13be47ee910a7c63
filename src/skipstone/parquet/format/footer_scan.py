"""Runs the kernel over a footer: plain Python for small ones, compiled for large ones.

A hostile footer cannot make this allocate more than in proportion to its bytes: the row groups and
chunks that it announces must fit the bytes left, each at the smallest size that a valid one can
have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone._numba import CompiledKernels
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.thrift.compact import LIST, STRUCT, Reader
from skipstone.parquet.thrift.kernel_wire import STACK, cause, skip
from skipstone.parquet.thrift.structs import list_of, struct

from . import footer_kernel
from .footer_layout import FILE_ROW_GROUPS, FILE_SCHEMA, GROUP_SLOTS, NARROW_SLOTS, WIDE_SLOTS
from .metadata import SchemaElement
from .schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray


# Plain Python takes about 0.1 ms per 1,000 bytes, loading the compiled kernels 0.4 s once, most of
# it for numba.
LARGE = 4 << 20
LONGEST = (1 << 31) - 2


@dataclass(frozen=True, slots=True)
class FooterKernels:
    """``skip``, ``schema`` and ``row_groups``; ``over`` and ``zeros`` make the arrays that they
    take."""

    skip: Callable[..., Any]
    schema: Callable[..., Any]
    row_groups: Callable[..., Any]
    over: Callable[[bytes], Any]
    zeros: Callable[[int, Any], Any]


def _zero_list(size: int, dtype: Any) -> list[int]:
    return [0] * size


PLAIN = FooterKernels(
    skip=skip,
    schema=footer_kernel.schema,
    row_groups=footer_kernel.row_groups,
    over=lambda data: data,
    zeros=_zero_list,
)


COMPILED = CompiledKernels[FooterKernels](
    module=f"{__package__}.footer_jit", total=LARGE, share=1 / 4, patience=1.5
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """The results of a scan.

    ``fields``: by id, wire type, start and stop of each field of ``FileMetaData``; ``groups``
    (R, slots), ``wide`` and ``narrow`` (slots, R × C) as ``footer_layout`` says.
    """

    end: int
    leaves: int
    fields: Mapping[int, tuple[int, int, int]]
    groups: NDArray[np.int64]
    wide: NDArray[np.int64]
    narrow: NDArray[np.int32]
    types: NDArray[np.int64]


def _check(at: int, base: int) -> int:
    if at < 0:
        where, why = cause(at)
        raise FormatError(f"footer: {why}", offset=base + where)
    return at


def _name_the_column(data: bytes, start: int, failure: int, base: int) -> None:
    """Raises an error of the schema at ``start`` that has the column's name: for an unknown
    type."""
    try:
        elements = list_of(struct(SchemaElement)).read(Reader(data, start, base=base))
    except FormatError:
        return
    try:
        Schema.of(elements)
    except FormatError as error:
        raise error.at_byte(base + cause(failure)[0]) from None


def scan(data: bytes, base: int, kernels: FooterKernels) -> Scanned:
    """Over the Thrift bytes of ``FileMetaData``, which lie at ``base`` of their file."""
    if len(data) > LONGEST:
        raise UnsupportedError(f"a footer of {len(data)} bytes, more than 2 GiB")
    reader = Reader(data, base=base)
    source, end = kernels.over(data), len(data)
    stack = kernels.zeros(STACK, np.int64)
    fields: dict[int, tuple[int, int, int]] = {}
    types: Any = None
    groups: tuple[Any, Any, Any] | None = None
    previous = leaves = 0
    while True:
        kind, previous = reader.field_head(previous)
        if not kind:
            break
        start = reader.at
        if kind == LIST and previous in (FILE_SCHEMA, FILE_ROW_GROUPS):
            if previous in fields:
                raise reader.fail(f"field {previous} of FileMetaData twice")
            element, size = reader.list_head()
            if size and element != STRUCT:
                raise reader.fail("a list of other elements", expected=STRUCT, got=element)
        if kind == LIST and previous == FILE_SCHEMA:
            types = kernels.zeros(size, np.int64)
            leaves, at = kernels.schema(source, reader.at, end, size, types, stack)
            if at < 0:
                _name_the_column(data, start, at, base)
            reader.at = _check(at, base)
        elif kind == LIST and previous == FILE_ROW_GROUPS and types is not None:
            groups = _row_groups(kernels, source, reader, size, leaves, types, stack)
        else:
            reader.at = _check(kernels.skip(source, start, end, kind, stack), base)
        fields[previous] = kind, start, reader.at
    stop = reader.at
    if types is None or fields.get(FILE_ROW_GROUPS, (0,))[0] != LIST:
        raise FormatError("footer: a required field is missing: schema or row_groups", offset=base)
    if groups is None:  # the row groups lie before the schema
        reader.at = fields[FILE_ROW_GROUPS][1]
        _, size = reader.list_head()
        groups = _row_groups(kernels, source, reader, size, leaves, types, stack)
    return Scanned(
        end=stop,
        leaves=int(leaves),
        fields=fields,
        groups=groups[0],
        wide=groups[1],
        narrow=groups[2],
        types=np.asarray(types, np.int64)[:leaves],
    )


def _row_groups(
    kernels: FooterKernels,
    source: Any,
    reader: Reader,
    size: int,
    leaves: int,
    types: Any,
    stack: Any,
) -> tuple[Any, Any, Any]:
    chunks, left = size * leaves, reader.end - reader.at
    smallest = chunks * footer_kernel.SMALLEST_CHUNK + size * footer_kernel.SMALLEST_ROW_GROUP
    if smallest > left:
        raise reader.fail(
            f"{size} row groups of {leaves} columns in the bytes left", expected=smallest, got=left
        )
    groups = kernels.zeros(size * GROUP_SLOTS, np.int64)
    wide = kernels.zeros(chunks * WIDE_SLOTS, np.int64)
    narrow = kernels.zeros(chunks * NARROW_SLOTS, np.int32)
    reader.at = _check(
        kernels.row_groups(
            source, reader.at, reader.end, (size, leaves), types, groups, wide, narrow, stack
        ),
        reader.base,
    )
    return (
        np.asarray(groups, np.int64).reshape(size, GROUP_SLOTS),
        np.asarray(wide, np.int64).reshape(WIDE_SLOTS, chunks),
        np.asarray(narrow, np.int32).reshape(NARROW_SLOTS, chunks),
    )


def scan_one(data: bytes, expected: int, what: str) -> tuple[list[int], list[int]]:
    """Slots (wide, narrow) of one ``ColumnMetaData`` that was decrypted; ``what`` names it."""
    wide, narrow = [0] * WIDE_SLOTS, [0] * NARROW_SLOTS
    at = footer_kernel.meta_data(data, 0, len(data), wide, narrow, 1, 0, expected, [0] * STACK)
    if at < 0:
        where, why = cause(at)
        raise FormatError(f"decrypted metadata of {what}: {why}, at byte {where} of it")
    return wide, narrow
