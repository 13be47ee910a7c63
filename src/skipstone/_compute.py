"""``pyarrow.compute``, imported on first use.

    from skipstone import _compute as pc          in place of ``import pyarrow.compute as pc``

The import makes a Python function for each kernel, which takes 20 ms. Methods such as ``take``,
``cast`` and ``is_valid`` of an array import it too.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # Not kept in this module, where ``sum`` would hide the built-in function.
    import pyarrow.compute

    return getattr(pyarrow.compute, name)
