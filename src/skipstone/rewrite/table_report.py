"""The report of a verb that rewrites the files of a table: one result per file, and the index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from skipstone.human import Report, duration, first_of, of_total, size

Verb: TypeAlias = Literal["encrypt", "decrypt", "rekey", "salvage"]
#: ``done``: rewritten now; ``partly``: saved in part; ``already``: nothing to do; ``failed``: why.
Outcome: TypeAlias = Literal["done", "partly", "already", "failed"]

_DONE: Final = {
    "encrypt": ("encrypted", "were already encrypted with these keys"),
    "decrypt": ("decrypted", "were already in the clear"),
    "rekey": ("wrapped the keys of", "had keys that were already wrapped with these master keys"),
    "salvage": ("salvaged", "are not damaged, or were salvaged before"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult(Report):
    """The result for one file: ``output`` is the path of the new file, ``why`` the error.

    ``modules`` counts the modules that were encrypted or decrypted; ``aad_file_unique`` is the
    unique part of the file's AAD, in hex.
    """

    path: str
    outcome: Outcome
    output: str | None = None
    why: str = ""
    modules: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    aad_file_unique: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport(Report):
    """What ``verb`` did to the files of a table.

    ``dropped`` are plaintext indexes of encrypted columns, which were deleted; ``refreshed`` is the
    report on the facts of the other indexes; ``aad_prefix`` is the beginning of the files' AAD
    prefixes. ``notes`` are further remarks.
    """

    table: str
    verb: Verb
    files: tuple[FileResult, ...]
    aad_prefix: bytes | None = None
    dropped: tuple[str, ...] = ()
    refreshed: Any = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    computed = ("modules", "ok")

    @property
    def ok(self) -> bool:
        """True if every file is now as requested."""
        return not any(each.outcome in ("failed", "partly") for each in self.files)

    @property
    def modules(self) -> int:
        """All modules encrypted or decrypted: they count as ``prior_invocations`` of the keys."""
        return sum(each.modules for each in self.files)

    def of(self, outcome: Outcome) -> tuple[FileResult, ...]:
        """The files with this outcome."""
        return tuple([each for each in self.files if each.outcome == outcome])

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values, with sums over the files."""
        counts = {outcome: len(self.of(outcome)) for outcome in get_args(Outcome)}
        return {**Report.to_dict(self), "files_total": len(self.files), **counts}

    def __str__(self) -> str:
        total, (done, already) = len(self.files), _DONE[self.verb]
        written = self.of("done")
        lines = [
            f"{done} {of_total(len(written), total, 'files')} of {self.table}",
            f"{of_total(len(self.of('already')), total, 'files')} {already}",
        ]
        partly, failed = self.of("partly"), self.of("failed")
        for found, title in (
            (partly, f"{of_total(len(partly), total, 'files')} only in part:"),
            (failed, f"failed, {of_total(len(failed), total, 'files')}:"),
        ):
            lines += first_of(title, [f"{each.path}: {each.why}" for each in found])
        if self.verb == "encrypt" and failed:
            encrypted = total - len(failed)
            lines.append(f"mixed: {of_total(encrypted, total, 'files')} are encrypted as requested")
        if self.aad_prefix is not None:
            shown = self.aad_prefix.decode("utf-8", "backslashreplace")
            lines.append(f"AAD prefixes: {shown}/ and the path of the file")
        read = sum(each.bytes_read for each in self.files)
        lines.append(
            f"{size(read)} read, {size(sum(each.bytes_written for each in self.files))} written"
            f" in {duration(1000 * self.seconds)}"
        )
        if self.dropped:
            lines.append(f"dropped plaintext indexes: {', '.join(self.dropped)}")
        lines += self.notes
        if self.refreshed is not None:
            lines.append(str(self.refreshed))
        return "\n".join(lines)
