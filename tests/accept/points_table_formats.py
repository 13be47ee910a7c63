"""Points about tables of table formats: they are written by the formats' own libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.accept.points_elsewhere import hold
from tests.accept.registry import point

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench

TESTS = "tests/table_formats/test_delta.py"
VECTORS = "tests/table_formats/test_delta_deletes.py"
ICEBERG = "tests/table_formats/test_iceberg.py"
ICEBERG_PRUNING = "tests/table_formats/test_iceberg_pruning.py"
MAPPING = "tests/table_formats/test_delta_columns.py"
COLUMNS = "tests/table_formats/test_iceberg_columns.py"
DELETES = "tests/table_formats/test_iceberg_deletes.py"
PAIMON = "tests/table_formats/test_paimon.py"
HUDI = "tests/table_formats/test_hudi.py"
PUFFIN = "tests/table_formats/test_puffin.py"
IN_SPARK = "tests/table_formats/test_iceberg_spark.py"


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
    name = "test_in_an_object_store"
    hold(*(f"{each}::{name}" for each in (TESTS, ICEBERG, PAIMON, HUDI)))


@point("table formats: rows that Delta's deletion vectors delete are in no result and no count")
def vectors(bench: Workbench) -> None:
    hold(
        f"{VECTORS}::test_every_version_of_a_history_with_deletion_vectors",
        f"{VECTORS}::test_deleted_rows_of_many_files",
        f"{VECTORS}::test_tables_of_the_writer_in_spark",
    )


@point(
    "table formats: Spark reads a Delta table without a jar of it, and watch follows its commits"
)
def spark(bench: Workbench) -> None:
    hold("tests/table_formats/test_delta_spark.py")


@point("table formats: under Spark Connect, without a jar of a format, reads have the right rows")
def connect(bench: Workbench) -> None:
    hold("tests/table_formats/test_connect.py")


@point("table formats: a connector opens the files of the plan, and reads one version")
def connectors(bench: Workbench) -> None:
    hold("tests/table_formats/test_connectors.py")


@point("table formats: while others commit, each result is one version, and no writer notices")
def concurrent(bench: Workbench) -> None:
    hold("tests/table_formats/test_commits.py")


@point("table formats: each snapshot of a random history of an Iceberg table has its own rows")
def snapshots(bench: Workbench) -> None:
    hold(f"{ICEBERG}::test_every_snapshot_of_a_random_history")


@point("table formats: an Iceberg table opens by its directory, or by its name in a catalog")
def catalogs(bench: Workbench) -> None:
    hold(
        f"{ICEBERG}::test_a_table_by_its_name_in_a_catalog",
        f"{ICEBERG}::test_in_an_object_store_whose_keys_the_catalog_has",
        f"{ICEBERG}::test_a_snapshot_by_id_branch_tag_and_time",
        f"{ICEBERG}::test_nothing_is_written_into_the_table",
    )


@point("table formats: values, hidden partitions and statistics of Iceberg's manifests prune")
def manifests(bench: Workbench) -> None:
    hold(
        f"{ICEBERG_PRUNING}::test_values_of_partitions_come_from_the_manifests",
        f"{ICEBERG_PRUNING}::test_hidden_partitions_prune_where_there_are_no_bounds",
        f"{ICEBERG_PRUNING}::test_statistics_prune_and_explain_says_so",
        f"{ICEBERG_PRUNING}::test_cut_old_and_missing_statistics_lose_no_row",
    )


@point("table formats: columns of Iceberg are found in files that have other names, by indexes too")
def names(bench: Workbench) -> None:
    hold(
        f"{COLUMNS}::test_a_column_under_the_name_of_another",
        f"{COLUMNS}::test_names_that_files_spell_otherwise",
        f"{COLUMNS}::test_files_without_ids",
    )


@point("table formats: files of Iceberg that lack a column have its default")
def defaults(bench: Workbench) -> None:
    hold(f"{COLUMNS}::test_values_of_columns_that_files_lack")


@point("table formats: columns of Delta are found by column mapping, and by indexes from before")
def mapping(bench: Workbench) -> None:
    hold(MAPPING)


@point("table formats: deleted rows of an Iceberg table are in no result")
def deletes(bench: Workbench) -> None:
    hold(
        f"{DELETES}::test_deleted_rows",
        f"{DELETES}::test_deletion_vectors_of_one_file",
        f"{DELETES}::test_equality_deletes",
        f"{DELETES}::test_equality_deletes_are_looked_up_in_files_of_the_plan",
    )


@point("table formats: Bloom filters of an Iceberg snapshot become a Puffin file outside the table")
def puffin(bench: Workbench) -> None:
    hold(
        f"{PUFFIN}::test_filters_hold_the_values_of_their_files",
        f"{PUFFIN}::test_a_table_with_it_among_its_statistics",
    )


@point("table formats: watch follows the commits of an Iceberg table, by directory or by catalog")
def watching(bench: Workbench) -> None:
    hold(
        f"{IN_SPARK}::test_a_watch_follows_commits",
        f"{IN_SPARK}::test_a_watch_of_a_server_of_connect",
    )


@point("table formats: Spark reads the columns of now, also where two swapped names after a commit")
def columns_of_now(bench: Workbench) -> None:
    hold(f"{IN_SPARK}::test_columns_that_change_without_a_snapshot")


@point("table formats: the newest metadata of Iceberg counts, also if pyiceberg does not know it")
def unknown_metadata(bench: Workbench) -> None:
    hold(f"{ICEBERG}::test_a_metadata_file_that_the_library_does_not_know")


@point("table formats: each snapshot of a Paimon table has its own rows, without the deleted ones")
def paimon(bench: Workbench) -> None:
    hold(
        f"{PAIMON}::test_every_snapshot_of_a_random_history",
        f"{PAIMON}::test_deleted_rows_are_in_no_result",
        f"{PAIMON}::test_a_snapshot_a_tag_and_a_time",
        f"{PAIMON}::test_branches_and_tags",
        f"{PAIMON}::test_nothing_is_written_into_the_table",
    )


@point("table formats: Paimon's partition values and statistics prune, and explain says so")
def paimon_statistics(bench: Workbench) -> None:
    hold(
        f"{PAIMON}::test_statistics_and_partition_values_prune_and_explain_says_so",
        f"{PAIMON}::test_bounds_lose_no_row",
    )


@point("table formats: what Paimon has to merge is refused in words, renamed columns are read")
def paimon_refusals(bench: Workbench) -> None:
    hold(
        f"{PAIMON}::test_a_primary_key_is_read_where_no_merge_is_needed",
        f"{PAIMON}::test_names_and_types_of_old_files",
        f"{PAIMON}::test_what_is_not_applied_is_refused",
    )


@point("table formats: each instant of a Hudi table has its own rows, and log files are refused")
def hudi(bench: Workbench) -> None:
    hold(
        f"{HUDI}::test_every_instant_has_the_rows_of_hudi",
        f"{HUDI}::test_log_files_are_refused",
        f"{HUDI}::test_a_column_that_got_another_type",
        f"{HUDI}::test_an_instant_whose_files_were_cleaned",
        f"{HUDI}::test_a_commit_and_a_cleaner_before_the_files_are_listed",
        f"{HUDI}::test_a_commit_that_is_being_written",
    )
