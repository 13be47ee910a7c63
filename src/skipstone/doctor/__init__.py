"""``diagnose``: whether this machine, Spark, a table and its index are fit for work.

>>> from skipstone.doctor import diagnose
>>> print(diagnose("lake/events"))

The command line calls it ``skipstone doctor``. It changes nothing, and never raises: what cannot be
examined becomes a finding. The result holds no secrets: of settings that may have one, it only
shows the names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .diagnosis import Diagnosis, Finding, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from skipstone.table import Table

__all__ = ["Diagnosis", "Finding", "diagnose"]


def diagnose(
    table: str | Table | Callable[[], Table] | None = None,
    *,
    spark: SparkSession | str | None = None,
    write: bool = False,
) -> Diagnosis:
    """Reports what works, what is slow or missing, and what to do.

    >>> diagnose("lake/events", spark="local[1]").ok

    ``table`` is a table, its path or URI, or a function that opens it; without it, the machine
    alone is examined. ``spark`` is a session, or a master: then a session is started and ended in a
    process of its own, which takes seconds. Python workers must start there too. ``write`` writes
    an empty object into the directory of the index, and removes it.
    """
    from . import machine, packages

    probes: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("python", machine.python),
        ("packages", packages.packages),
        ("java", packages.java),
        ("spark", lambda: packages.spark(spark)),
        ("caches", machine.caches),
        ("machine", machine.limits),
        ("storage", machine.storages),
    ]
    found = [each for area, probe in probes for each in guarded(area, probe)]
    if table is not None and any(packages.ENDS in each.text for each in found):
        text = "not examined, because a package ends the process"
        found.append(Finding(area="table", state="problem", text=text))
    elif table is not None:
        found += guarded("table", lambda: _of_table(table, write))
    return Diagnosis(findings=tuple(found))


def _of_table(named: str | Table | Callable[[], Table], write: bool) -> Iterable[Finding]:
    # Its imports fail where Arrow is broken.
    from .place import table

    return table(named, write=write)
