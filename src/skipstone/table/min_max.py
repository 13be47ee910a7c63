"""The least and the greatest value of a column among matching rows.

Of a file whose rows all match, and whose ``minmax`` was built of every value, the facts say it. Of
the others the row that comes first by the column is looked for, as ORDER BY with LIMIT 1 does: most
of their pages cannot hold it. Nulls do not count; NaN is the greatest value there is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.errors import UnsupportedError
from skipstone.planning.top_rows import Order
from skipstone.predicate.literals import from_key, stored
from skipstone.predicate.types import spark_type
from skipstone.pruning.column_types import is_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.pruning.interval import Intervals
    from skipstone.pruning.plan import Plan

    from .table import Table, Where

__all__ = ["extreme"]


def extreme(table: Table, column: str, where: Where, time_zone: str, *, greatest: bool) -> Any:
    """See ``Table.min`` and ``Table.max``."""
    from skipstone.execution import QueryReader
    from skipstone.execution.sort_tables import order_of

    way = "desc nulls last" if greatest else "asc nulls last"
    plan = table.plan(
        where, columns=[column], order_by=[f"{column} {way}"], limit=1, time_zone=time_zone
    )
    reader = plan.reader
    if not isinstance(reader, QueryReader):
        raise UnsupportedError(
            f"{table.path} must be read, which takes Spark",
            hint="ask with Table.read(spark, where)",
        )
    field = reader.schema.field(0)
    bounds = reader.bounds(column) if reader.bounds is not None else None
    told = np.zeros_like(plan.keep)
    type = spark_type(field.type)
    assert type is not None  # a column that can be sorted has one
    found: list[pa.Array] = []
    if bounds is not None and type == bounds.type and not is_text(type):
        told = plan.must & _exact(bounds, plan)
        ends = (bounds.hi if greatest else bounds.lo).take(told & bounds.lo.valid).to_list()
        keys = [key for key in ends if key is not None]
        if keys:
            value = from_key(max(keys) if greatest else min(keys), type)
            found.append(pa.array([_scalar(value, type)], type))
    rest = replace(plan, keep=plan.keep & ~told)
    if rest.keep.any():
        read = stored(reader.table_of(rest).column(0), type)
        found.append(read.drop_null())
    every = pa.concat_arrays(found) if found else pa.nulls(0, type)
    if not len(every):
        return None
    order = Order(column, descending=greatest, nulls_first=False)
    return every[int(order_of([every], [order], 1)[0])].as_py()


def _exact(bounds: Intervals, plan: Plan) -> NDArray[np.bool_]:
    """Files whose bounds are values of theirs: built here, and not cut (texts may be); or that are
    known to have none."""
    only_null = (bounds.nulls >= 0) & (bounds.nulls == plan.row_counts)
    return np.asarray((bounds.lo.valid & bounds.hi.valid) | only_null)


def _scalar(value: Any, type: pa.DataType) -> pa.Scalar:
    """A value of the stored domain as a scalar of its type."""
    if pa.types.is_decimal(type):
        from decimal import Decimal

        return pa.scalar(Decimal(value).scaleb(-type.scale), type)
    if pa.types.is_boolean(type):
        return pa.scalar(bool(value))
    if pa.types.is_date(type):
        return pa.scalar(int(value), pa.int32()).cast(type)
    if pa.types.is_timestamp(type) or pa.types.is_duration(type):
        return pa.scalar(int(value), pa.int64()).cast(type)
    return pa.scalar(value, type)
