"""All cases, and the names of the package that are not among their verbs because they only read."""

from __future__ import annotations

import os
from pathlib import Path

from tests.faults.cases import CASES as OF_TABLES
from tests.faults.cases import Case
from tests.faults.file_cases import CASES as OF_FILES
from tests.faults.store_cases import CASES as OF_STORES
from tests.faults.together import CASES as OF_TWO
from tests.faults.with_spark import CASES as OF_SPARK
from tests.faults.with_spark import missing
from tests.folders import GOLDEN

ALL = [*OF_TABLES, *OF_FILES, *OF_STORES]
PAIRS = [*OF_TWO, *([] if missing() else OF_SPARK)]
# What the original Xskipper wrote is not part of the repository.
CASES = [each for each in ALL if not each.name.startswith("upgrade") or GOLDEN.is_dir()]

__all__ = ["ALL", "CASES", "OF_STORES", "OF_TABLES", "PAIRS", "READING", "covered"]
READING = {
    *("advise", "check", "count", "coverage", "describe", "doctor", "explain", "grep", "inspect"),
    *("disable", "enable", "last_scan", "usage"),
    *(
        "listing",
        "listing_and_facts",
        "match",
        "max",
        "min",
        "plan",
        "query",
        "read",
        "scan",
        "schema",
        "skip",
        "top",
    ),
    *("file_columns", "file_schema", "has_sidecars", "opened_with", "require_parquet"),
    *("retried", "sidecars_of", "with_folders", "with_lookup_of"),
    *("query_readable", "require_index", "require_whole", "required", "skip_files"),
    *("kept_at", "require_newest", "require_plain", "snapshots"),
    # They make a table of its own, which nobody else has; Spark commits that of cluster.
    *("demo", "cluster"),
    # It refreshes.
    "watch",
    *("LiveTable.close", "LiveTable.describe"),
}


def covered() -> set[str]:
    """The verbs that have a case."""
    return {verb.replace("-", "_") for each in ALL for verb in each.verbs}


def careless(home: str) -> None:
    """A writer that is wrong in every way, so that a test can see what is found."""
    place = Path(home, "_tmp-" + os.urandom(16).hex())
    with place.open("wb") as file:
        file.write(b"new" * 100)
    place.rename(Path(home, "a"))


def careless_rows(home: str) -> None:
    assert Path(home, "a").read_bytes() in (b"old", b"new" * 100)


def careless_whole(home: str) -> None:
    assert Path(home, "a").read_bytes() == b"new" * 100


if "SKIPSTONE_TEST_FAULTS_BAD" in os.environ:
    CASES = [
        Case(
            "careless",
            (),
            lambda home: Path(home, "a").write_bytes(b"old"),
            careless,
            careless_rows,
            careless_whole,
        )
    ]
