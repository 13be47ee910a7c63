"""``pyarrow.compute``, imported on first use.

    from skipstone import _compute as pc          in place of ``import pyarrow.compute as pc``

The import makes a Python function for each kernel, which takes 20 ms: a tenth of a first query.
Methods such as ``take``, ``cast`` and ``is_valid`` of an array import it too. ``pays`` is the rule
for work that plain Python or NumPy does as well.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone._arrays import numbers

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

# Rows that plain Python goes through in less time than the import takes.
_FEW = 20_000


def __getattr__(name: str) -> Any:
    # Not kept in this module, where ``sum`` would hide the built-in function.
    import pyarrow.compute

    return getattr(pyarrow.compute, name)


def pays(rows: int) -> bool:
    """Whether kernels are worth it for one pass over so many rows: always, once imported."""
    return rows > _FEW or "pyarrow.compute" in sys.modules


def few_texts(*columns: pa.Array | pa.ChunkedArray) -> list[list[str | None]] | None:
    """The texts of columns in Python, or ``None`` where kernels are worth it.

    Damaged text, which Python cannot hold, is left to the kernels.
    """
    if pays(sum(map(len, columns))):
        return None
    try:
        return [column.to_pylist() for column in columns]
    except UnicodeDecodeError:
        return None


def numbered(texts: pa.Array) -> tuple[NDArray[np.int64], list[str]]:
    """The number of each text, -1 for null, and the different texts by number."""
    if (few := few_texts(texts)) is not None:
        known = [text for text in dict.fromkeys(few[0]) if text is not None]
        number: dict[str | None, int] = {text: at for at, text in enumerate(known)}
        number[None] = -1
        return np.array([number[text] for text in few[0]], np.int64), known
    encoded = texts.dictionary_encode()
    return numbers(encoded.indices, -1).astype(np.int64), encoded.dictionary.to_pylist()
