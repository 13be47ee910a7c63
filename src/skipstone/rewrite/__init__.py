"""Data files, metadata and indexes written anew from what is there, without Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .retrofit_report import RetrofitReport
    from .retrofitting import retrofit

__all__ = ["RetrofitReport", "retrofit"]

_HOMES = {
    "RetrofitReport": "skipstone.rewrite.retrofit_report",
    "retrofit": "skipstone.rewrite.retrofitting",
}


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
