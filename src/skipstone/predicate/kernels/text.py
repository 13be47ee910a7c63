"""Functions of text as Spark has them: positions count code points from one, and case is that of
full Unicode mappings (``ß`` becomes ``SS``), which Python has and Arrow has not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import in_ascii_case

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..typed import Typed
    from ..zones import Zone


def _cased(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    words = values[0]
    ascii = pc.string_is_ascii(words)
    found = in_ascii_case(words, upper=node.kernel == "upper")
    if pc.all(ascii, min_count=0).as_py() is not False:
        return found
    other = pc.and_(pc.invert(ascii), pc.is_valid(words))
    # Each distinct text once: few columns have many that are not ASCII.
    coded = words.filter(other).dictionary_encode()
    mapped = [_map(node.kernel, text) for text in coded.dictionary.to_pylist()]
    return pc.replace_with_mask(found, other, pa.array(mapped, words.type).take(coded.indices))


def _map(kernel: str, text: str) -> str:
    return text.upper() if kernel == "upper" else text.lower()


def _length(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    words = values[0]
    count = pc.utf8_length if pa.types.is_string(words.type) else pc.binary_length
    return count(words).cast(pa.int32())


def _trim(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """``value``: which sides. Spark trims spaces alone."""
    trim = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}[node.value]
    return trim(values[0], " ")


def _substring(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """``value``: the place, from 1, from the end below 0; and how many, or ``None``."""
    place, count = node.value
    words = values[0]
    cut = pc.utf8_slice_codeunits if pa.types.is_string(words.type) else pc.binary_slice
    start = place - 1 if place > 0 else place
    if count is None:
        return cut(words, start)
    if count <= 0:
        return cut(words, 0, 0)
    if start < 0 <= start + count:
        return cut(words, start)
    return cut(words, start, start + count)


def _concat(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    empty = b"" if pa.types.is_binary(node.type) else ""
    return pc.binary_join_element_wise(*values, pa.scalar(empty, node.type))


def _has(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """``startswith``, ``endswith`` and ``contains`` of a constant."""
    words, wanted = values[0].cast(pa.binary()), node.value
    test = {
        "startswith": pc.starts_with,
        "endswith": pc.ends_with,
        "contains": pc.match_substring,
    }[node.kernel]
    return test(words, wanted)


KERNELS: dict[str, Callable[[Typed, Sequence[Any], Zone | None], pa.Array]] = {
    "upper": _cased,
    "lower": _cased,
    "length": _length,
    "trim": _trim,
    "substring": _substring,
    "concat": _concat,
    "startswith": _has,
    "endswith": _has,
    "contains": _has,
}
