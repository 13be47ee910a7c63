"""What ``write_table`` did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skipstone.human import duration, plural, size

__all__ = ["WriteReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """Of one file: ``sorted_groups`` of its row groups say how they are sorted, ``checkpoints``
    footers lie within it. ``algorithm`` is ``None`` in the clear; ``key_material`` is the file with
    the wrapped keys."""

    path: str
    rows: int
    row_groups: int
    pages: int
    bytes: int
    seconds: float
    sorted_groups: int = 0
    checkpoints: int = 0
    algorithm: str | None = None
    key_material: str | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {**found, "notes": list(self.notes)}

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {plural(self.rows, 'row')} in {plural(self.row_groups, 'row group')},"
            f" {plural(self.pages, 'page')}, {size(self.bytes)}"
            f" in {duration(1000 * self.seconds)}"
        ]
        if self.algorithm is not None:
            lines.append(f"encrypted with {self.algorithm}")
        if self.key_material is not None:
            lines.append(f"wrapped keys in {self.key_material}")
        if self.checkpoints:
            lines.append(f"{plural(self.checkpoints, 'checkpoint')} within it")
        if self.sorted_groups:
            lines.append(f"{self.sorted_groups:,} of {self.row_groups:,} row groups are sorted")
        return "\n".join((*lines, *self.notes))
