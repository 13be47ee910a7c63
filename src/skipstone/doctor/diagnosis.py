"""Findings, and the report of all of them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.human import Report, aligned, one_line, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


#: the states of a finding
State: TypeAlias = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Report):
    """One thing that was examined.

    ``state`` is ``"ok"``, ``"note"`` (it works, but is slow, or lacks something that is not always
    needed) or ``"problem"``. ``hint`` says what to do. ``values`` are for programs.
    """

    area: str
    text: str
    state: State = "ok"
    hint: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Report):
    """All findings, in the order in which they were made."""

    findings: tuple[Finding, ...]

    computed = ("ok",)

    @property
    def ok(self) -> bool:
        """True without a problem; notes are none."""
        return not self._of("problem")

    def _of(self, state: str) -> list[Finding]:
        return [each for each in self.findings if each.state == state]

    def __str__(self) -> str:
        lines = [aligned([(each.area, each.state, each.text) for each in self.findings])]
        problems, notes = self._of("problem"), self._of("note")
        hints = dict.fromkeys(each.hint for each in (*problems, *notes) if each.hint)
        if hints:
            lines += ["", "what to do:", *(f"  {hint}" for hint in hints)]
        lines += ["", f"{plural(len(problems), 'problem')}, {plural(len(notes), 'note')}"]
        return "\n".join(lines)


def guarded(area: str, probe: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of ``probe``; if it raises, the exception is the last finding."""
    try:
        yield from probe()
    except (Exception, SystemExit) as error:
        yield failed(area, "could not be examined", error)


def failed(area: str, what: str, error: BaseException) -> Finding:
    """The finding that ``error`` becomes."""
    known = isinstance(error, SkipstoneError)
    text = error.message if isinstance(error, SkipstoneError) else str(error)
    hint = error.hint if isinstance(error, SkipstoneError) else ""
    kind = "" if known else type(error).__name__
    said = ": ".join(filter(None, (what, kind, one_line(text))))
    return Finding(area=area, state="problem", text=said, hint=one_line(hint))
