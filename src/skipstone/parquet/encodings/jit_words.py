"""Eight bytes at any place of an array of bytes, as one little-endian number, for compiled code.

NumPy has no such access, and bytes one by one are several times slower. ``load(data, at)`` and
``store(data, at, word)`` need ``0 <= at <= len(data) - 8``: their callers see to that, and
``NUMBA_BOUNDSCHECK=1`` checks it, as it does for numba's own accesses.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

__all__ = ["CHECKED", "load", "store"]

#: Whether accesses are checked. Code that is must not be taken for code that is not, nor cached.
CHECKED = bool(config.BOUNDSCHECK)  # type: ignore[attr-defined]

_tools: Any = cgutils  # without types


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    held = context.make_array(kind)(context, builder, array)
    if CHECKED:
        length = builder.extract_value(held.shape, 0)
        least = context.get_constant(types.intp, 7)
        _tools.do_boundscheck(context, builder, at, builder.sub(length, least), 0)
    place = builder.gep(held.data, [at])
    return builder.bitcast(place, context.get_value_type(types.uint64).as_pointer())


def _load(typing_context: Any, data: Any, at: Any) -> Any:
    """The number at byte ``at``."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature.args[0], arguments[0], arguments[1])
        return builder.load(place, align=1)

    return types.uint64(data, types.intp), code


def _store(typing_context: Any, data: Any, at: Any, word: Any) -> Any:
    """Writes the number at byte ``at``."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature.args[0], arguments[0], arguments[1])
        builder.store(arguments[2], place, align=1)
        return context.get_dummy_value()

    return types.void(data, types.intp, types.uint64), code


# The typing context is numba's to pass: a type checker would ask the callers for it.
load: Any = intrinsic(_load)
store: Any = intrinsic(_store)
