"""What an index can prove, for all levels: ``Bounds``, ``RowSet``, ``Evidence``, ``Reason``.

Nothing here does I/O, decides anything, or knows a format. The planner is the only place that
combines ``Bounds``.
"""

from .bounds import BoolArray, Bounds
from .evidence import Answer, BaseEvidence, Cause, Evidence, Fetched, Level, Reason, Units
from .row_set import RowSet

__all__ = [
    "Answer",
    "BaseEvidence",
    "BoolArray",
    "Bounds",
    "Cause",
    "Evidence",
    "Fetched",
    "Level",
    "Reason",
    "RowSet",
    "Units",
]
