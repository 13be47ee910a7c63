"""Keys as the literals that they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.predicate.literals import to_domain
from skipstone.predicate.tree import Literal
from skipstone.predicate.types import spark_type

if TYPE_CHECKING:
    from typing import Any


def literal_list(keys: pa.Array) -> tuple[Literal, ...]:
    """The values as literals of the array's type."""
    type = keys.type.value_type if pa.types.is_dictionary(keys.type) else keys.type
    canonical = spark_type(type)
    assert canonical is not None
    found: list[Literal] = []
    for value in keys:
        plain: Any = value.as_py()
        if plain is not None and pa.types.is_timestamp(type):
            # Python's times end in the year 9999.
            plain = value.cast(pa.timestamp("us", type.tz)).value
        found.append(Literal(None if plain is None else to_domain(plain, canonical), canonical))
    return tuple(found)
