"""`inspect` is tried through the command line: its fixture runs it."""

from __future__ import annotations

from tests.cli.conftest import run

__all__ = ["run"]
