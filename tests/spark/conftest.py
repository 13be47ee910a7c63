"""What tests with Spark share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["classic", "connect"])
def session(request: pytest.FixtureRequest) -> SparkSession:
    found: SparkSession = request.getfixturevalue(
        "spark" if request.param == "classic" else "spark_connect"
    )
    return found
