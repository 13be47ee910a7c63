"""One line of a log per file scan: what was read of what, how long planning took, which indexes.

As text, ``key=value`` pairs behind the word ``scan``; a value with a blank, a quote or ``=`` is a
JSON string:

    scan table=db.events files=2/1240 bytes=11744051/7408512345 ms=38.2
         indexes="user_id:bloom 2/1240 files" where="(user_id = 'u-8814')"

As JSON, one object with ``"event": "scan"``. Both have the same values, and ``found`` reads both
back, wherever a log's own format puts them in a line.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from skipstone._dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skipstone.pruning.plan import Step


_EVENT: Final = '{"event": "scan"'
_WORD: Final = re.compile(r"(?:^|\s)scan (?=table=)")
_PAIR: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)(?:\s+|$)')
_PLAIN: Final = re.compile(r'[^\s"=\\]+')
_USE: Final = re.compile(r"(?P<index>.+) (?P<kept>\d+)/(?P<considered>\d+) (?P<unit>[a-z ]+)")
_OF: Final = re.compile(r"(\d+)/(\d+)")
_BETWEEN: Final = "; "
# Roots are absolute paths and URIs; their names may have commas.
_BETWEEN_ROOTS: Final = re.compile(r",(?=/|[a-z][a-z0-9+.-]*:/)")


@dataclass(frozen=True, slots=True)
class IndexUse:
    """What one index decided in a scan: it kept ``kept`` of ``considered`` units."""

    index: str
    kept: int
    considered: int
    unit: str = "files"

    def __str__(self) -> str:
        return f"{self.index} {self.kept}/{self.considered} {self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLine:
    """One file scan of a query.

    ``roots`` are the paths that it reads; ``execution`` is Spark's id of the query. ``reasons`` say
    why an index was not used, or what was read in full.
    """

    table: str
    files_kept: int
    files_total: int
    bytes_kept: int
    bytes_total: int
    milliseconds: float
    roots: tuple[str, ...] = ()
    format: str = "parquet"
    predicate: str | None = None
    indexes: tuple[IndexUse, ...] = ()
    reasons: tuple[str, ...] = ()
    execution: int | None = None
    time: str = ""

    @classmethod
    def now(cls) -> str:
        """The time for ``time``: UTC, in ISO's format."""
        return datetime.now(UTC).isoformat(timespec="milliseconds")

    def to_text(self) -> str:
        """As ``key=value`` pairs; the time is left to the log's own format."""
        pairs: dict[str, object] = {
            "table": self.table,
            "roots": ",".join(self.roots),
            "format": self.format,
            "files": f"{self.files_kept}/{self.files_total}",
            "bytes": f"{self.bytes_kept}/{self.bytes_total}",
            "ms": round(self.milliseconds, 1),
            "indexes": _BETWEEN.join(map(str, self.indexes)),
            "where": self.predicate,
            "reasons": _BETWEEN.join(self.reasons),
            "execution": self.execution,
        }
        told = (f"{key}={_value(value)}" for key, value in pairs.items() if value not in (None, ""))
        return f"scan {' '.join(told)}"

    def to_json(self) -> str:
        """As one JSON object."""
        return json.dumps(
            {
                "event": "scan",
                "time": self.time,
                "table": self.table,
                "roots": list(self.roots),
                "format": self.format,
                "files": {"kept": self.files_kept, "total": self.files_total},
                "bytes": {"kept": self.bytes_kept, "total": self.bytes_total},
                "milliseconds": round(self.milliseconds, 3),
                "indexes": [
                    {
                        "index": use.index,
                        "kept": use.kept,
                        "considered": use.considered,
                        "unit": use.unit,
                    }
                    for use in self.indexes
                ],
                "where": self.predicate,
                "reasons": list(self.reasons),
                "execution": self.execution,
            }
        )

    @classmethod
    def found(cls, line: str) -> Self | None:
        """The scan in a line of a log; ``None`` for other lines, and for damaged ones."""
        try:
            at = line.find(_EVENT)
            if at >= 0:
                return cls._of_json(json.JSONDecoder().raw_decode(line, at)[0])
            word = _WORD.search(line)
            return None if word is None else cls._of_text(line[word.end() :].rstrip("\n"))
        except (ValueError, KeyError, TypeError):
            return None

    @classmethod
    def _of_json(cls, found: dict[str, Any]) -> Self:
        return cls(
            table=str(found["table"]),
            roots=tuple(map(str, found["roots"])),
            format=str(found["format"]),
            files_kept=int(found["files"]["kept"]),
            files_total=int(found["files"]["total"]),
            bytes_kept=int(found["bytes"]["kept"]),
            bytes_total=int(found["bytes"]["total"]),
            milliseconds=float(found["milliseconds"]),
            predicate=found["where"],
            indexes=tuple(
                IndexUse(str(e["index"]), int(e["kept"]), int(e["considered"]), str(e["unit"]))
                for e in found["indexes"]
            ),
            reasons=tuple(map(str, found["reasons"])),
            execution=found["execution"],
            time=str(found["time"]),
        )

    @classmethod
    def _of_text(cls, text: str) -> Self:
        pairs = {
            key: json.loads(value) if value.startswith('"') else value
            for key, value in _PAIR.findall(text)
        }
        files_kept, files_total = _of(pairs["files"])
        bytes_kept, bytes_total = _of(pairs["bytes"])
        uses = [_USE.fullmatch(each) for each in _split(pairs.get("indexes", ""), _BETWEEN)]
        return cls(
            table=pairs["table"],
            roots=tuple(filter(None, _BETWEEN_ROOTS.split(pairs.get("roots", "")))),
            format=pairs.get("format", "parquet"),
            files_kept=files_kept,
            files_total=files_total,
            bytes_kept=bytes_kept,
            bytes_total=bytes_total,
            milliseconds=float(pairs["ms"]),
            predicate=pairs.get("where"),
            indexes=tuple(
                IndexUse(use["index"], int(use["kept"]), int(use["considered"]), use["unit"])
                for use in uses
                if use is not None
            ),
            reasons=tuple(_split(pairs.get("reasons", ""), _BETWEEN)),
            execution=int(pairs["execution"]) if "execution" in pairs else None,
        )


def uses_of(steps: Iterable[Step]) -> tuple[IndexUse, ...]:
    """The indexes that proved something, by the steps of a plan."""
    return tuple(
        IndexUse(f"{step.column}:{step.index}", step.kept, step.considered, step.level.unit)
        for step in steps
        if step.used
    )


def _value(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _split(text: str, between: str) -> list[str]:
    return text.split(between) if text else []


def _of(text: str) -> tuple[int, int]:
    match = _OF.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]), int(match[2])
