"""Bloom filters of whole columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.paimon.format.bloom_filter import FPP, ITEMS, check_type, fill, sizing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skipstone.paimon.format.keys import KeyArray, PaimonType


def write_bloom_filter(
    type: PaimonType, columns: Iterable[KeyArray], *, items: int = ITEMS, fpp: float = FPP
) -> bytes:
    """A filter of all these keys, batch by batch."""
    check_type(type)
    size = sizing(items, fpp)
    raw = np.zeros(size.bits // 8, np.uint8)
    for keys in columns:
        fill(raw, size.k, keys)
    return size.k.to_bytes(4, "big") + raw.tobytes()
