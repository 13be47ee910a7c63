"""The counts of Spark itself for a query, which are independent of Skipstone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Scanned", "scanned"]


@dataclass(frozen=True, slots=True)
class Scanned:
    """What the file scans of a query read: files, their size in bytes, and the rows of their row
    groups before any filter."""

    files: int
    bytes: int
    rows: int = 0


def scanned(df: DataFrame) -> Scanned:
    """Spark's own counts of the file scans of a classic DataFrame that was just collected."""
    plan = df._jdf.queryExecution().executedPlan()
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    leaves = plan.collectLeaves()
    files = size = rows = 0
    for number in range(leaves.size()):
        metrics = leaves.apply(number).metrics()
        if metrics.contains("numFiles"):
            files += metrics.apply("numFiles").value()
            size += metrics.apply("filesSize").value()
            rows += metrics.apply("numOutputRows").value()
    return Scanned(files, size, rows)
