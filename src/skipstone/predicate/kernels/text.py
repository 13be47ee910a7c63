"""Functions of text as Spark computes them. Positions count code points from one. Case follows the
full Unicode mappings (``ß`` becomes ``SS``), which Python has and Arrow lacks.

Spark takes case from Java or ICU, whose version of Unicode may differ from Python's. The case of a
character is **settled** if all these versions agree. It is for the signs and scripts without case
in ``CASELESS`` and ``_ALSO``. It is for a character of Unicode 3.2 (Python keeps its tables) that
is not a letter, or whose other case is in 3.2 too: such a pair never changes. A letter without
another case may get one (U+0264 and U+019B did), and so may a character that a version lacks.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import in_ascii_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..typed import Typed
    from ..zones import Zone


#: Hebrew to Myanmar, Hangul, punctuation, symbols, scripts of East Asia: without case
CASELESS: Final = (
    (0x300, 0x370), (0x590, 0x10A0), (0x1100, 0x1200), (0x2000, 0x2100), (0x2190, 0x2460),
    (0x2500, 0x2C00), (0x2E80, 0xA4D0), (0xAC00, 0xD7A4), (0xF900, 0xFB00),
)  # fmt: skip
# More: signs, Ethiopic, Khmer, Mongolian, private use, forms of Arabic and East Asia, pictures.
_ALSO: Final = (
    (0xA0, 0xB5), (0xB6, 0xC0), (0x2B0, 0x300), (0x1200, 0x1380), (0x1780, 0x18B0),
    (0xE000, 0xF900), (0xFB1D, 0xFF00), (0xFF61, 0x10000), (0x1F000, 0x110000),
)  # fmt: skip
_CASES: Final = ("upper", "lower")


@cache
def _is_settled(code: int) -> bool:
    from unicodedata import ucd_3_2_0

    if any(first <= code < last for first, last in (*CASELESS, *_ALSO)):
        return True
    char = chr(code)
    forms = {char, char.upper(), char.lower()}
    known = all(ucd_3_2_0.category(each) != "Cn" for form in forms for each in form)
    return known and (len(forms) > 1 or not char.isalpha())


def unsettled(text: str) -> str:
    """A character of a text whose case is not settled; empty if there is none."""
    if text.isascii():
        return ""
    seen = np.zeros(sys.maxunicode + 1, np.bool_)
    seen[np.frombuffer(text.encode("utf-32-le", "replace"), "<u4")] = True
    codes = np.flatnonzero(seen).tolist()
    return next((chr(code) for code in codes if not _is_settled(code)), "")


def doubtful_case(node: Typed, columns: Iterable[pa.Array]) -> str:
    """Why ``upper`` or ``lower`` may differ from Spark's over these columns; empty if not."""
    nodes = list(node.nodes())
    if not any(each.kernel in _CASES for each in nodes):
        return ""
    texts = [str(each.value) for each in nodes if each.is_constant]
    for array in columns:
        if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            plain = pc.string_is_ascii(array.view(pa.string()))
            if pc.all(plain, min_count=0).as_py() is False:
                words = array.view(pa.binary()).filter(pc.invert(plain)).unique()
                texts.append(b"".join(words.to_pylist()).decode("utf-8", "replace"))
    char = unsettled("".join(texts))
    return char and f"the case of {char!r} (U+{ord(char):04X}) depends on the version of Unicode"


def _cased(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    words = values[0]
    ascii = pc.string_is_ascii(words)
    found = in_ascii_case(words, upper=node.kernel == "upper")
    if pc.all(ascii, min_count=0).as_py() is not False:
        return found
    other = pc.and_(pc.invert(ascii), pc.is_valid(words))
    # Each distinct text once: few columns have many that are not ASCII.
    coded = words.filter(other).dictionary_encode()
    mapped = [getattr(text, node.kernel)() for text in coded.dictionary.to_pylist()]
    return pc.replace_with_mask(found, other, pa.array(mapped, words.type).take(coded.indices))


def _length(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    words = values[0]
    count = pc.utf8_length if pa.types.is_string(words.type) else pc.binary_length
    return count(words).cast(pa.int32())


def _trim(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """``value``: ``trim``, ``ltrim`` or ``rtrim``. Spark trims spaces alone."""
    trim = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}[node.value]
    return trim(values[0], " ")


def _substring(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """``value``: the position, from 1, or negative from the end; and the count, or ``None``."""
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
    **dict.fromkeys(_CASES, _cased),
    "length": _length,
    "trim": _trim,
    "substring": _substring,
    "concat": _concat,
    "startswith": _has,
    "endswith": _has,
    "contains": _has,
}
