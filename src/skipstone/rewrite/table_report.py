"""What was done with each file of a table, and with the table's index, as a value."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from skipstone.human import duration, of_total, size

__all__ = ["Fate", "FileFate", "TableReport", "Verb"]

Verb: TypeAlias = Literal["encrypt", "decrypt", "rekey", "salvage"]
#: ``done`` now, ``partly`` saved; as it should be ``already``; ``failed`` with a reason.
Fate: TypeAlias = Literal["done", "partly", "already", "failed"]

_SHOWN: Final = 5
_DONE: Final = {
    "encrypt": ("encrypted", "were encrypted so already"),
    "decrypt": ("decrypted", "were in the clear already"),
    "rekey": ("wrapped the keys of", "had their keys wrapped so already"),
    "salvage": ("salvaged", "are not damaged, or were salvaged before"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFate:
    """What became of one file: ``output`` is where the new one lies, ``why`` what went wrong.

    ``modules`` were encrypted or decrypted, ``aad_file_unique`` is the file's own part of the AAD,
    in hex.
    """

    path: str
    fate: Fate
    output: str | None = None
    why: str = ""
    modules: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    aad_file_unique: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """What ``verb`` did to the files of a table.

    ``dropped`` are indexes that were in the clear over encrypted columns and are gone;
    ``refreshed`` is what became of the facts of the others; ``aad_prefix`` is what the AAD prefixes
    of the files begin with. ``notes`` are what else there is to know.
    """

    table: str
    verb: Verb
    files: tuple[FileFate, ...]
    aad_prefix: bytes | None = None
    dropped: tuple[str, ...] = ()
    refreshed: Any = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True where every file is now as it was asked for."""
        return not any(each.fate in ("failed", "partly") for each in self.files)

    @property
    def modules(self) -> int:
        """Encrypted or decrypted, in all: what counts as ``prior_invocations`` of the keys."""
        return sum(each.modules for each in self.files)

    def of(self, fate: Fate) -> tuple[FileFate, ...]:
        """The files that met this fate."""
        return tuple([each for each in self.files if each.fate == fate])

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        counts = Counter(each.fate for each in self.files)
        prefix = self.aad_prefix
        return {
            "table": self.table,
            "verb": self.verb,
            "files_total": len(self.files),
            **{fate: counts[fate] for fate in ("done", "partly", "already", "failed")},
            "aad_prefix": None if prefix is None else prefix.decode("utf-8", "backslashreplace"),
            "modules": self.modules,
            "dropped": list(self.dropped),
            "refreshed": None if self.refreshed is None else self.refreshed.to_dict(),
            "notes": list(self.notes),
            "seconds": self.seconds,
            "ok": self.ok,
            "files": [each.to_dict() for each in self.files],
        }

    def __str__(self) -> str:
        total, (done, already) = len(self.files), _DONE[self.verb]
        written = self.of("done")
        lines = [
            f"{done} {of_total(len(written), total, 'files')} of {self.table}",
            f"{of_total(len(self.of('already')), total, 'files')} {already}",
        ]
        partly = self.of("partly")
        if partly:
            lines.append(f"{of_total(len(partly), total, 'files')} only in part:")
            lines += _some([f"{each.path}: {each.why}" for each in partly])
        failed = self.of("failed")
        if failed:
            lines.append(f"failed, {of_total(len(failed), total, 'files')}:")
            lines += _some([f"{each.path}: {each.why}" for each in failed])
        if self.verb == "encrypt" and failed:
            sealed = total - len(failed)
            lines.append(f"mixed: {of_total(sealed, total, 'files')} are encrypted as asked")
        if self.aad_prefix is not None:
            shown = self.aad_prefix.decode("utf-8", "backslashreplace")
            lines.append(f"AAD prefixes: {shown}/ and the path of the file")
        read = sum(each.bytes_read for each in self.files)
        lines.append(
            f"{size(read)} read, {size(sum(each.bytes_written for each in self.files))} written"
            f" in {duration(1000 * self.seconds)}"
        )
        if self.dropped:
            lines.append(f"dropped what was in the clear: {', '.join(self.dropped)}")
        lines += self.notes
        if self.refreshed is not None:
            lines.append(str(self.refreshed))
        return "\n".join(lines)


def _some(texts: list[str]) -> list[str]:
    rest = len(texts) - _SHOWN
    more = [f"  and {rest:,} more"] if rest > 0 else []
    return [*(f"  {text}" for text in texts[:_SHOWN]), *more]
