"""The longest modules begin first: one that began last would keep one worker busy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.folders import ROOT

if TYPE_CHECKING:
    import pytest

#: those of more than about 30 seconds on a slow machine, the longest first
LONGEST = (
    "tests/bench/test_bench_smoke.py",
    "tests/table_formats/test_connectors.py",
    "tests/test_spark_versions.py",
    "tests/test_wheel.py",
    "tests/spark/test_clustering.py",
    "tests/spark/joins/test_files.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_two_workers.py",
    "tests/spark/test_nested_folders.py",
    "tests/spark/test_expression_indexes.py",
    "tests/table_formats/test_iceberg_spark.py",
    "tests/spark/test_enable.py",
    "tests/table_formats/test_iceberg.py",
    "tests/spark/sources/test_skipped.py",
    "tests/spark/test_data_source.py",
    "tests/docs/test_examples.py",
    "tests/docs/test_shell_lines.py",
    "tests/table/test_arrow_types.py",
    "tests/table/test_few_rows.py",
    "tests/table/test_many_files.py",
    "tests/doctor/test_doctor.py",
    "tests/table/test_forecasts.py",
    "tests/spark/test_expression_settings.py",
    "tests/spark/joins/test_shared_scans.py",
    "tests/facts/test_crashes.py",
    "tests/fuzz/test_golden_files.py",
    "tests/spark/test_catalog_table.py",
    "tests/predicate/test_expressions_against_spark.py",
    "tests/faults/test_faults.py",
    "tests/rewrite/test_retrofit_readers.py",
    "tests/test_interrupted.py",
    "tests/cli/test_beginners.py",
    "tests/spark/test_keys.py",
    "tests/spark/test_map_keys.py",
    "tests/soak/test_soak.py",
    "tests/test_shipping.py",
    "tests/test_demo.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the modules; tests keep their order within each."""
    place = {str(ROOT / name): at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(str(item.path), len(place)))
