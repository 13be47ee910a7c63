"""What transparent reading asks of an index: ``Pruner``, and the values that cross the border.

Spark's side lists files and reads predicates; a pruner matches the listing with its facts, once per
file index, and decides per predicate. It is handed in, so nothing here knows how facts are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from skipstone.predicate.tree import Expr
    from skipstone.pruning import Reason

    from .listing import FileListing, FileStats

__all__ = [
    "FACTS_MEMORY",
    "FILE_INDEX",
    "HARMLESS",
    "FindPruner",
    "Guarded",
    "Pruner",
    "Pruning",
    "ReadSettings",
    "RelationInfo",
]

#: The setting: bytes of fact columns that one predicate may take on the driver. Past that, they
#: are asked by a Spark job.
FACTS_MEMORY = "spark.skipstone.facts.memory"

#: The setting: ``false`` if Paimon's file indexes are not to be asked.
FILE_INDEX = "spark.skipstone.file-index.read.enabled"

#: Settings under which Spark reads other values than those that facts are about, each with the
#: value that is harmless. Spark looks at them when a query runs.
HARMLESS = {
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """The settings of the session that change what a query means, when it is planned.

    ``confs``: those of ``HARMLESS``, as they are then.
    """

    time_zone: str
    case_sensitive: bool
    confs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationInfo:
    """A file relation of a plan. Schemas are Spark's JSON.

    ``roots`` are canonical paths as the user named them: the table, a folder in it, single files.
    ``settings`` gives what the session says now of how values are read, where the format needs it.
    """

    roots: tuple[str, ...]
    format: str
    options: Mapping[str, str]
    schema: str
    data_schema: str
    partition_schema: str
    table: str | None = None
    confs: Mapping[str, str] | None = None
    settings: Callable[[], Mapping[str, str]] | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pruning:
    """What a pruner decided: ``keep`` (bool over the listing), and its report, a ``Plan``."""

    keep: NDArray[np.bool_]
    report: Any = None


class Pruner(Protocol):
    """See the module. Any exception makes the scan read every file, with its text as the reason."""

    def match(self, listing: FileListing) -> object:
        """The listing joined with the facts; handed back to ``prune``. Once per listing."""

    def prune(self, matched: object, predicate: Expr, settings: ReadSettings) -> Pruning:
        """Which files may hold a row for which ``predicate`` is TRUE; unknown ones are kept."""

    def still_valid(
        self, matched: object, indices: NDArray[np.int64], now: FileStats | None
    ) -> NDArray[np.bool_]:
        """For each of these files, about to be skipped: is it still the one that the fact is about?

        ``now`` is what the local file system says of them, in the order of ``indices``; ``None``
        where the files are elsewhere.
        """


@runtime_checkable
class Guarded(Protocol):
    """A pruner over files that Spark by itself may read wrong; see ``txn_scan.py``."""

    notes: tuple[Reason, ...]

    def before_listing(self) -> None:
        """Raises, and so fails the query, where no list of files gives the right rows."""


class FindPruner(Protocol):
    """Finds the index of a relation: at its roots, or at any folder above them."""

    def __call__(self, relation: RelationInfo) -> Pruner | None:
        """The pruner, or ``None`` where there is no index."""
