"""Points about tables of table formats: they are written by the formats' own libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.accept.points_elsewhere import hold
from tests.accept.registry import point

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench

TESTS = "tests/table_formats/test_delta.py"


@point("table formats: each version of a random history of a Delta table has its own rows")
def histories(bench: Workbench) -> None:
    hold(f"{TESTS}::test_every_version_of_a_random_history")


@point("table formats: a Delta table opens at a version or a time, and nothing is written into it")
def versions(bench: Workbench) -> None:
    hold(f"{TESTS}::test_a_version_and_a_time", f"{TESTS}::test_nothing_is_written_into_the_table")


@point("table formats: partition values and statistics of Delta's log prune, and explain says so")
def statistics(bench: Workbench) -> None:
    hold(
        f"{TESTS}::test_values_of_partitions_come_from_the_log",
        f"{TESTS}::test_statistics_of_the_log_prune_and_explain_says_so",
        f"{TESTS}::test_cut_and_missing_statistics_lose_no_row",
    )


@point("table formats: builds keep to a version of a Delta table, and vacuumed files are named")
def commits(bench: Workbench) -> None:
    hold(
        f"{TESTS}::test_a_build_keeps_to_its_snapshot",
        f"{TESTS}::test_files_that_a_vacuum_removed",
        f"{TESTS}::test_files_are_vacuumed_between_plan_and_read",
        f"{TESTS}::test_queries_while_others_commit",
    )


@point("table formats: all of it in an object store")
def in_a_store(bench: Workbench) -> None:
    hold(f"{TESTS}::test_in_an_object_store")


@point("table formats: rows that Delta's deletion vectors delete are in no result and no count")
def vectors(bench: Workbench) -> None:
    hold(
        f"{TESTS}::test_every_version_of_a_history_with_deletion_vectors",
        f"{TESTS}::test_deleted_rows_of_many_files",
        f"{TESTS}::test_tables_of_the_writer_in_spark",
    )


@point(
    "table formats: Spark reads a Delta table without a jar of it, and watch follows its commits"
)
def spark(bench: Workbench) -> None:
    hold("tests/table_formats/test_delta_spark.py")
