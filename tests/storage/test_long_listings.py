"""Listings of more objects than one answer has: each object once, and pages side by side.

The gate of the server gives no answer before all requests of a round trip are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.storage.objects import ObjectStorage
    from tests.s3 import S3

# Answers of 1,000 keys; the last one has 500.
FLAT = [f"t/part-{number:05d}" for number in range(4_500)]
FOLDERS = [f"t/day={day}/part-{number:04d}" for day in range(4) for number in range(1_200)]


def listed(s3: S3, storage: ObjectStorage, known: Sequence[str] | None = None) -> list[str]:
    hint = None if known is None else lambda: [f"{s3.base}/{key}" for key in known]
    paths = storage.list_files(f"{s3.base}/t", hint).paths
    assert len(set(paths)) == len(paths)
    return [path.removeprefix(f"{s3.base}/") for path in paths]


def test_pages_of_a_flat_directory_come_one_after_another(s3: S3) -> None:
    s3.fill_many(*FLAT)
    with s3.gate.trips(1, 1, 1, 1, 1):
        assert listed(s3, s3.storage()) == FLAT


def test_a_second_listing_is_one_round_trip(s3: S3) -> None:
    s3.fill_many(*FLAT)
    storage = s3.storage()
    listed(s3, storage)
    with s3.gate.trips(5):
        assert listed(s3, storage) == FLAT


def test_known_names_divide_a_listing(s3: S3) -> None:
    """After two pages; names that are not there, or not known, cost no object."""
    s3.fill_many(*FLAT)
    known = [key for key in FLAT if not key.endswith("17")] + ["t/part-03000x", "t/z"]
    with s3.gate.trips(1, 1, 3):
        assert listed(s3, s3.storage(), sorted(known)) == FLAT
    with s3.gate.trips(1, 1, 1, 1, 1):
        assert listed(s3, s3.storage(), ["a", "t/part-00001"]) == FLAT


def test_folders_are_listed_side_by_side(s3: S3) -> None:
    """Two pages, the folders, and then two pages of each that is not complete."""
    s3.fill_many(*FOLDERS)
    with s3.gate.trips(1, 1, 1, 3, 3):
        assert listed(s3, s3.storage()) == FOLDERS


@pytest.mark.long
@pytest.mark.parametrize("shape", [FLAT, FOLDERS])
def test_objects_that_come_and_go(s3: S3, shape: list[str]) -> None:
    s3.fill_many(*shape)
    storage = s3.storage()
    listed(s3, storage)
    gone = set(shape[100:1_150] + shape[2_700:2_701] + shape[-3:])
    for start in range(0, len(gone), 1_000):
        keys = [{"Key": key} for key in sorted(gone)[start : start + 1_000]]
        s3.client.delete_objects(Bucket=s3.bucket, Delete={"Objects": keys})
    # More than an answer has room for, between two names that were remembered.
    new = [f"{shape[2_000]}-{number:04d}" for number in range(1_300)]
    s3.fill_many(*new, "t/a", "t/zz")
    expected = sorted({*shape, *new, "t/a", "t/zz"} - gone)
    assert listed(s3, storage) == expected
    assert listed(s3, storage) == listed(s3, s3.storage()) == expected


def test_a_store_without_an_order_is_listed_page_by_page(s3: S3) -> None:
    s3.fill_many(*FLAT)
    storage = s3.storage()
    storage._lister.ordered = False
    listed(s3, storage)
    with s3.gate.trips(1, 1, 1, 1, 1):
        assert listed(s3, storage) == FLAT
