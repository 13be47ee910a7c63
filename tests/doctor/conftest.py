"""A bucket per test, and the command line in this process."""

from __future__ import annotations

from tests.cli.conftest import run
from tests.s3 import s3, s3_server

__all__ = ["run", "s3", "s3_server"]
