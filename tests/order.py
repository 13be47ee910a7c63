"""The longest modules begin first: one that began last would keep one worker busy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.folders import ROOT

if TYPE_CHECKING:
    import pytest

#: those of more than about 17 seconds of processor, roughly the longest first
LONGEST = (
    "tests/spark/test_expression_indexes.py",
    "tests/spark/test_nested_folders.py",
    "tests/test_spark_versions.py",
    "tests/spark/test_map_keys.py",
    "tests/spark/joins/test_files.py",
    "tests/spark/joins/test_any_join.py",
    "tests/bench/test_bench_smoke.py",
    "tests/live/test_kill.py",
    "tests/table_formats/test_connectors.py",
    "tests/test_wheel.py",
    "tests/table_formats/test_iceberg_spark.py",
    "tests/table_formats/test_connect.py",
    "tests/table_formats/test_delta_deletes.py",
    "tests/spark/test_enable.py",
    "tests/spark/test_two_workers.py",
    "tests/spark/test_sources.py",
    "tests/spark/test_data_source.py",
    "tests/spark/test_catalog_table.py",
    "tests/spark/test_cluster.py",
    "tests/faults/test_faults.py",
    "tests/facts/test_crashes.py",
    "tests/fuzz/test_golden_files.py",
    "tests/salvage/test_writers.py",
    "tests/test_end_to_end.py",
    "tests/test_shipping.py",
    "tests/test_demo.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the modules; tests keep their order within each."""
    place = {str(ROOT / name): at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(str(item.path), len(place)))
