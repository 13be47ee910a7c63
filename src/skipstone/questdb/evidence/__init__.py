"""QuestDB's ``_pm`` as evidence of the row group level: a plan that reads no Parquet footer.

``PmFile`` is an opened snapshot with its data file, ``pm_source`` the level of the plan,
``OpenedPms`` keeps some open, and ``find_row_group`` looks an instant up. What of a ``_pm`` may be
believed is in ``columns.py``; what bounds say is decided by ``index/interval.py``, as everywhere.
"""

from .lookup import RowGroupPlace, find_row_group
from .pm_file import OpenedPms, PmFile, open_pm
from .source import PmSource, pm_source

__all__ = [
    "OpenedPms",
    "PmFile",
    "PmSource",
    "RowGroupPlace",
    "find_row_group",
    "open_pm",
    "pm_source",
]
