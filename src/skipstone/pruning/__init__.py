"""What an index can prove, and the planner that combines it. No module here knows a format or does
I/O: evidence names byte ranges, and the caller's ``fetch`` reads them."""

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
