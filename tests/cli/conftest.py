"""The command line in this process, over a table that only notes what it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from skipstone.cli import cli
from skipstone.facts.reports import (
    BuildReport,
    CheckReport,
    CompactReport,
    Description,
    DropReport,
    ExportReport,
    IndexInfo,
    VacuumReport,
)

Run = Callable[..., Result]

DESCRIPTION = Description(
    table="/data/events",
    location="/data/_events.skipstone",
    files_total=10,
    fresh=8,
    missing=2,
    bytes_data=5_000_000,
    bytes_index=40_000,
    parts=1,
    indexes=(
        IndexInfo(
            column="id", kind="bloomfilter", params=(("fpp", "0.001"),), files=8, bytes=30_000
        ),
        IndexInfo(column="ts", kind="minmax", files=8, bytes=128),
    ),
)


@dataclass
class Noted:
    """What the fake table was made with but defaults, was asked for, and answers or raises."""

    made: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, dict[Any, Any]]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)

    @property
    def call(self) -> tuple[str, dict[Any, Any]]:
        """The only call."""
        assert len(self.calls) == 1, self.calls
        return self.calls[0]


def _positions(args: tuple[Any, ...]) -> dict[Any, Any]:
    return dict(enumerate(args))


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    """`skipstone.table` replaced by a module whose `Table` notes and answers."""
    notes = Noted()
    table = "/data/events"
    notes.answers = {
        "build": BuildReport(table=table, files_total=10, files_built=10),
        "refresh": BuildReport(table=table, files_total=10, files_built=2, files_already=8),
        "describe": DESCRIPTION,
        "explain": DESCRIPTION,
        "check": CheckReport(table=table, files_total=10, fresh=10),
        "drop": DropReport(table=table, dropped=("id:bloom",), remaining=("ts:minmax",)),
        "compact": CompactReport(table=table, parts_before=3, parts_after=1),
        "vacuum": VacuumReport(table=table),
        "export": ExportReport(
            table=table, destination="/x", kind="xskipper", files_total=10, files=10
        ),
        "advise": DESCRIPTION,
    }

    class Table:
        def __init__(self, path: str, **options: Any) -> None:
            said = {name: value for name, value in options.items() if value}
            notes.made = {"path": path, **said}

        def __getattr__(self, verb: str) -> Callable[..., Any]:
            def call(*args: Any, **options: Any) -> Any:
                notes.calls.append((verb, {**_positions(args), **options}))
                answer = notes.answers[verb]
                if isinstance(answer, BaseException):
                    raise answer
                return answer(*args, **options) if callable(answer) else answer

            return call

    monkeypatch.setattr("skipstone.cli.output.seconds_since_start", lambda: 0.0)
    module = ModuleType("skipstone.table")
    module.Table = Table  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "skipstone.table", module)
    return notes


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line with these arguments; `input` is what stdin holds."""
    for name in ("SKIPSTONE_MASTER", "SKIPSTONE_MEMORY", "SKIPSTONE_INDEX_LOCATION"):
        monkeypatch.delenv(name, raising=False)

    def runner(*arguments: object, input: str | None = None, **env: str) -> Result:
        return CliRunner().invoke(cli, [str(each) for each in arguments], input=input, env=env)

    return runner
