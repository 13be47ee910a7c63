"""``pyarrow.compute``, imported on first use.

    from skipstone import _compute as pc          in place of ``import pyarrow.compute as pc``

The import makes a Python function for each kernel, which takes 30 ms. Methods such as ``take``,
``cast`` and ``is_valid`` of an array import it too. The kernels of a short query are called without
it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable


# Kernels that a short query calls: how many values they take, and the class of their options.
_SETS, _TEXTS = (1, "SetLookupOptions"), (1, "MatchSubstringOptions")
_KERNELS: Final[dict[str, tuple[int, str | None]]] = {
    **dict.fromkeys(("and_", "equal", "fill_null", "greater", "greater_equal"), (2, None)),
    **dict.fromkeys(("less", "less_equal", "not_equal", "or_"), (2, None)),
    **dict.fromkeys(("binary_length", "invert", "list_flatten"), (1, None)),
    "list_value_length": (1, None),
    "cast": (1, "CastOptions"),
    "dictionary_encode": (1, "DictionaryEncodeOptions"),
    "ends_with": _TEXTS,
    "index_in": _SETS,
    "is_in": _SETS,
    "match_substring": _TEXTS,
    "match_substring_regex": _TEXTS,
    "min_max": (1, "ScalarAggregateOptions"),
    "sort_indices": (1, "SortOptions"),
    "starts_with": _TEXTS,
    "struct_field": (1, "StructFieldOptions"),
    "take": (2, "TakeOptions"),
}
_NAMED: Final = {"and_": "and", "fill_null": "coalesce", "or_": "or"}


def __getattr__(name: str) -> Any:
    # Not kept in this module, where ``sum`` would hide the built-in function.
    if name in _KERNELS and "pyarrow.compute" not in sys.modules:
        try:
            return _kernel(name, *_KERNELS[name])
        except (ImportError, AttributeError):  # the module is not public
            pass
    import pyarrow.compute

    return getattr(pyarrow.compute, name)


def _kernel(name: str, count: int, options: str | None) -> Callable[..., Any]:
    import pyarrow._compute as kernels

    named = _NAMED.get(name, name)
    made: Any = None if options is None else getattr(kernels, options)
    if name == "cast":
        made = made.safe

    def call(*values: Any, **given: Any) -> Any:
        how = None if made is None else made(*values[count:], **given)
        return kernels.call_function(named, list(values[:count]), how)

    return call
