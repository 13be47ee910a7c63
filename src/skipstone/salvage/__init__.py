"""Rows of Parquet files whose footer is lost: ``salvage`` writes what is whole to a new file.

>>> from skipstone.salvage import salvage
>>> report = salvage("torn.parquet", schema="whole.parquet")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import SalvageReport
    from .salvage_file import salvage

__all__ = ["SalvageReport", "salvage"]

_HOMES = {"SalvageReport": "skipstone.salvage.report", "salvage": "skipstone.salvage.salvage_file"}


if not TYPE_CHECKING:  # a type checker knows the names from above, and so sees a misspelt one

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
