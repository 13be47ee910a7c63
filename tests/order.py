"""The longest modules begin first: one that began last would keep one worker busy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.folders import ROOT

if TYPE_CHECKING:
    import pytest

#: those of more than about 40 seconds on a slow machine, the longest first
LONGEST = (
    "tests/spark/test_expression_indexes.py",
    "tests/spark/test_nested_folders.py",
    "tests/bench/test_bench_smoke.py",
    "tests/test_spark_versions.py",
    "tests/table_formats/test_connectors.py",
    "tests/table_formats/test_iceberg_spark.py",
    "tests/test_wheel.py",
    "tests/spark/sources/test_skipped.py",
    "tests/spark/test_expression_settings.py",
    "tests/table/test_forecasts.py",
    "tests/live/test_kill.py",
    "tests/spark/test_clustering.py",
    "tests/spark/test_cluster.py",
    "tests/soak/test_soak.py",
    "tests/spark/test_two_workers.py",
    "tests/spark/test_map_keys.py",
    "tests/spark/test_enable.py",
    "tests/table/test_few_rows.py",
    "tests/table/test_query.py",
    "tests/table/test_many_files.py",
    "tests/spark/joins/test_shared_scans.py",
    "tests/test_end_to_end.py",
    "tests/fuzz/test_golden_files.py",
    "tests/facts/test_crashes.py",
    "tests/table_formats/test_delta_deletes.py",
    "tests/spark/test_catalog_table.py",
    "tests/table_formats/test_delta.py",
    "tests/salvage/test_writers.py",
    "tests/faults/test_faults.py",
    "tests/paimon/test_row_evidence.py",
    "tests/rewrite/test_encrypt_moved_modules.py",
    "tests/rewrite/test_retrofit.py",
    "tests/table/test_keys.py",
    "tests/spark/joins/test_any_join.py",
    "tests/spark/test_data_source.py",
    "tests/test_shipping.py",
    "tests/test_demo.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the modules; tests keep their order within each."""
    place = {str(ROOT / name): at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(str(item.path), len(place)))
