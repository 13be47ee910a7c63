"""What ``inspect`` says with ``--json``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def shown(run: Run, *arguments: object) -> dict[str, Any]:
    done = run("inspect", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document
