"""The small table of ``layout``, and settings of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.sources.layout import Indexed, small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Set a setting of the session for one test."""
    before: dict[str, str | None] = {}

    def change(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key, None))
        spark.conf.set(key, value)

    yield change
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Indexed:
    """``small`` for tests that only read it."""
    return small(spark, tmp_path_factory.mktemp("shared"))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Indexed:
    """``small`` for tests that change it."""
    return small(spark, tmp_path)
