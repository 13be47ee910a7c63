"""What the formats share: the options of ``inspect``, the results for stores, and text layout.

A store is a fact store, an encrypted pack or an Xskipper store. Each has a function::

    def inspect_…(
        storage: Storage, path: str, rows: int, keys: LabelledKeys | None = None
    ) -> list[StoreInspection] | None

``path`` is canonical and exists; ``keys`` open an encrypted index. The function returns ``None``
for another format and raises ``FormatError`` for a damaged file of its own. It decodes at most
``rows`` rows of each store.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from skipstone._dataclasses import dataclass
from skipstone.human import Report, aligned, cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage


_WIDEST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOptions:
    """The options of ``inspect``; most apply to one format only.

    ``rows`` is for stores and Parquet files; ``columns`` to ``keys`` are for Parquet files, and
    ``keys`` is the path of a JSON file. ``where`` to ``data`` are for file indexes,
    ``parquet_size`` and ``no_crc`` for a ``_pm``, ``index_keys`` for an encrypted index.
    """

    rows: int = 3
    columns: tuple[str, ...] = ()
    pages: bool = False
    verify: bool = False
    keys: str | None = None
    where: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    data: str | None = None
    parquet_size: int | None = None
    no_crc: bool = False
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    index_keys: LabelledKeys | None = field(default=None, repr=False)

    @property
    def parquet_option(self) -> str | None:
        """The first option in use that is only for Parquet files."""
        return _first({"--column": self.columns, "--pages": self.pages, "--verify": self.verify})

    @property
    def file_index_option(self) -> str | None:
        """The first option in use that is only for file indexes."""
        return _first({"--where": self.where, "--type": self.types, "--data": self.data})

    @property
    def pm_option(self) -> str | None:
        """The first option in use that is only for a ``_pm``."""
        return _first({"--parquet-size": self.parquet_size is not None, "--no-crc": self.no_crc})


def _first(options: Mapping[str, object]) -> str | None:
    return next((name for name, value in options.items() if value), None)


class InspectionReport(Report):
    """The base of all results of ``inspect``."""

    __slots__ = ()

    @property
    def ok(self) -> bool:
        """False if a check that was asked for found a problem."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInspection(InspectionReport):
    """The metadata of one store, or of one file of it. All values are JSON-ready.

    ``columns`` describe its columns, all with the same keys; ``rows`` are its first rows;
    ``notes`` name what cannot be shown, with the reason.
    """

    path: str
    format: str
    properties: Mapping[str, Any]
    columns: tuple[Mapping[str, Any], ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "format": self.format,
            **self.properties,
            "columns": [dict(column) for column in self.columns],
            "rows_shown": [dict(row) for row in self.rows],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [f"{self.format}   {self.path}"]
        shown = {name: _shown(value) for name, value in self.properties.items()}
        lines.append(aligned([(f"  {name.replace('_', ' ')}", v) for name, v in shown.items()]))
        if self.columns:
            heads = [name.replace("_", " ") for name in self.columns[0]]
            cells = [[_shown(value) for value in column.values()] for column in self.columns]
            lines += ["", indented(aligned([heads, *cells]), 4)]
        for row in self.rows:
            cells = [[name, cut(_shown(value), _WIDEST)] for name, value in row.items()]
            lines += ["", indented(aligned(cells), 4)]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection(InspectionReport):
    """The stores at ``path``."""

    path: str
    found: tuple[StoreInspection, ...]

    def __str__(self) -> str:
        return "\n\n".join(str(each) for each in self.found)


def is_file(storage: Storage, path: str) -> bool:
    """True for a file, false for a directory; a local directory also ``exists``."""
    return not storage.has_children(path) and storage.exists(path)


def more(count: int, most: int, unit: str) -> str:
    """The line below a list that shows ``most`` of ``count``; nothing if it shows all."""
    return "" if count <= most else f"\n  … {count - most:,} more of {count:,} {unit}: see --json"


def indented(text: str, by: int = 2) -> str:
    """The lines, each indented by ``by`` blanks."""
    return "\n".join(f"{' ' * by}{line}" for line in text.splitlines())


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_shown(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return str(value)
