"""``InspectOptions``: what a caller of ``inspect`` wants to see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.parquet.encryption.master_keys import LabelledKeys

__all__ = ["InspectOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOptions:
    """What a caller wants to see.

    ``rows`` is for stores and Parquet files, ``columns`` to ``keys`` for Parquet files (``keys``
    is the path of a JSON file), ``where`` to ``data`` for file indexes, ``parquet_size`` and
    ``no_crc`` for a ``_pm``, ``index_keys`` for an encrypted index.
    """

    rows: int = 3
    columns: tuple[str, ...] = ()
    pages: bool = False
    verify: bool = False
    keys: str | None = None
    where: str | None = None
    types: tuple[tuple[str, str], ...] = ()
    data: str | None = None
    parquet_size: int | None = None
    no_crc: bool = False
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    index_keys: LabelledKeys | None = field(default=None, repr=False)

    @property
    def parquet_option(self) -> str | None:
        """The first option in use that only a Parquet file understands."""
        return _first({"--column": self.columns, "--pages": self.pages, "--verify": self.verify})

    @property
    def file_index_option(self) -> str | None:
        """The first option in use that only a file index understands."""
        return _first({"--where": self.where, "--type": self.types, "--data": self.data})

    @property
    def pm_option(self) -> str | None:
        """The first option in use that only a ``_pm`` understands."""
        return _first({"--parquet-size": self.parquet_size is not None, "--no-crc": self.no_crc})


def _first(options: Mapping[str, object]) -> str | None:
    return next((name for name, value in options.items() if value), None)
