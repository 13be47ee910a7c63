"""Tests of what only newer versions of Spark have."""

from __future__ import annotations

import pyspark
import pytest

_HERE = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def since(major: int, minor: int, what: str) -> pytest.MarkDecorator:
    """Skips a test on versions of Spark before ``major.minor``, which lack ``what``."""
    here = pyspark.__version__
    return pytest.mark.skipif((major, minor) > _HERE, reason=f"PySpark {here} lacks {what}")
