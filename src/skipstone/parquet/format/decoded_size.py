"""How much memory chunks take once they are decoded, from the footer alone.

    fixed width   num_values × width
    byte arrays   unencoded_byte_array_data_bytes + 8 × num_values     with size statistics
                  total_uncompressed_size + 8 × num_values             without them

and an eighth of a byte per value for validity. Without size statistics, the estimate for byte
arrays is too low where a dictionary stands for long values many times: only the writer knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .enums import Type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .footer_arrays import FooterArrays

__all__ = ["decoded_size"]

_WIDTHS = {
    Type.BOOLEAN: 1,
    Type.INT32: 4,
    Type.INT64: 8,
    Type.INT96: 8,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
}
_OFFSET = 8


def decoded_size(footer: FooterArrays) -> NDArray[np.int64]:
    """Bytes of every chunk when decoded, int64 (R, C); 0 where its metadata are not there."""
    leaves = footer.schema.leaves
    widths = np.array([_WIDTHS.get(leaf.type, leaf.type_length) for leaf in leaves], np.float64)
    texts = np.array([leaf.type is Type.BYTE_ARRAY for leaf in leaves], np.bool_)
    values = np.maximum(footer.chunk("num_values"), 0).astype(np.float64)
    said = footer.chunk("unencoded_byte_array_data_bytes")
    plain = np.maximum(footer.chunk("total_uncompressed_size"), 0)
    content = np.where(said >= 0, said, plain) + _OFFSET * values
    # Floats, because counts that lie must not wrap around to small ones.
    sizes = np.where(texts, content, values * widths) + values / 8
    return np.minimum(sizes, 2.0**50).astype(np.int64)
