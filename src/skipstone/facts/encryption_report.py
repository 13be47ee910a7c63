"""Whether each file of an encrypted table is the one that belongs in its place, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from skipstone.human import of_total

__all__ = ["SealReport"]

_SHOWN: Final = 5
_KINDS: Final = {
    "misplaced": "do not belong in their place",
    "unsealed": "are not encrypted, though they were or others are",
    "absent": "are gone that were encrypted",
    "replaced": "are another version than was encrypted",
    "unlisted": "are not on the list of encrypted files",
    "unfinished": "were to be encrypted, and it is not known that they were",
    "unopened": "could not be opened",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SealReport:
    """``sealed`` of ``files_total`` files authenticate, each with the AAD prefix of its place.

    ``listed`` says whether the list of the encrypted files was there; without it a file that is
    gone or was replaced by an older version is told by facts of an index alone. Of the others each
    is named in one of the tuples, with what was found: ``misplaced`` (it has the AAD prefix of
    another place or table), ``unsealed``, ``absent``, ``replaced``, ``unopened``. ``unlisted`` and
    ``unfinished`` are no faults: they were added, or are what a run that was killed left to do.
    """

    files_total: int
    sealed: int
    aad_prefix: bytes | None = None
    listed: bool = False
    misplaced: tuple[str, ...] = ()
    unsealed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    unopened: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when every file is in its place and none is missing, as far as that is known."""
        faults = (self.misplaced, self.unsealed, self.absent, self.replaced, self.unopened)
        return not any(faults)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        prefix = self.aad_prefix
        return {
            "files_total": self.files_total,
            "sealed": self.sealed,
            "aad_prefix": None if prefix is None else prefix.decode("utf-8", "backslashreplace"),
            "listed": self.listed,
            **{name: list(getattr(self, name)) for name in _KINDS},
            "notes": list(self.notes),
            "ok": self.ok,
        }

    def __str__(self) -> str:
        lines = [
            f"encrypted {of_total(self.sealed, self.files_total, 'files')},"
            " each with the AAD prefix of its place"
        ]
        for name, text in _KINDS.items():
            found: tuple[str, ...] = getattr(self, name)
            if not found:
                continue
            lines.append(f"{name:<9} {of_total(len(found), self.files_total, 'files')} {text}:")
            lines += [f"  {each}" for each in found[:_SHOWN]]
            if len(found) > _SHOWN:
                lines.append(f"  and {len(found) - _SHOWN:,} more")
        return "\n".join([*lines, *self.notes])
