"""Listings as values: selection, order, names that Arrow cannot hold, clocks out of range."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.identity import ObjectId
from skipstone.storage import Listing, hidden_by_spark, int64

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12
) | st.sampled_from(["a b", "é", "%", "p=1", "a%2Fb", "new\nline", "=", "日本", "\U0001f600"])


def listing(paths: list[str], etags: list[str | None] | None = None) -> Listing:
    count = len(paths)
    numbers = np.arange(count, dtype=np.int64)
    return Listing(root="/t", paths=paths, sizes=numbers + 1, mtimes=numbers * 10, etags=etags)


def test_it_knows_its_files_and_bytes() -> None:
    files = listing(["/t/a", "/t/b"], ["x", None])
    assert (len(files), files.total_bytes) == (2, 3)
    assert files.object_id(1) == ObjectId(path="/t/b", size=2, mtime=10, unit="ns", etag=None)
    assert files.object_id(0).etag == "x"
    assert repr(files) == "Listing('/t', 2 files, 3 bytes)"


@pytest.mark.parametrize("keep", [np.array([False, True, True]), np.array([1, 2]), [1, 2]])
def test_where_takes_a_mask_or_positions(keep: NDArray[np.bool_]) -> None:
    some = listing(["/t/a", "/t/b", "/t/c"], ["x", "y", None]).where(keep)
    assert some.paths == ["/t/b", "/t/c"]
    assert some.sizes.tolist() == [2, 3]
    assert some.etags == ["y", None]
    assert some.path_array.to_pylist() == some.paths


def test_where_keeps_the_order_asked_for_and_may_be_empty() -> None:
    files = listing(["/t/a", "/t/b"])
    assert files.where([1, 0]).paths == ["/t/b", "/t/a"]
    assert len(files.where(np.zeros(2, np.bool_))) == 0
    assert len(files.where([])) == 0


@given(st.lists(NAMES, unique=True))
def test_paths_reach_arrow_as_they_are(names: list[str]) -> None:
    assert listing(names).path_array.to_pylist() == names


def test_a_name_that_is_no_text_is_null_in_arrow() -> None:
    undecodable = b"/t/\xff".decode("utf-8", "surrogateescape")
    assert listing(["/t/a", undecodable]).path_array.to_pylist() == ["/t/a", None]


def test_etags_reach_arrow_as_they_are() -> None:
    assert listing(["/t/a"]).etag_array.to_pylist() == [None]
    assert listing(["/t/a", "/t/b"], [None, '"é"']).etag_array.to_pylist() == [None, '"é"']
    assert listing([]).etag_array.to_pylist() == []


def test_arrays_must_be_of_one_length() -> None:
    with pytest.raises(ValueError, match="2 paths, 1 sizes"):
        Listing(
            root="/t", paths=["/a", "/b"], sizes=np.ones(1, np.int64), mtimes=np.ones(2, np.int64)
        )


def test_of_sorts_by_code_point_and_wants_one_unit() -> None:
    ids = [ObjectId(path=path, size=1, mtime=2, unit="s") for path in ("/t/é", "/t/Z", "/t/a")]
    assert Listing.of("/t", ids, "s").paths == ["/t/Z", "/t/a", "/t/é"]
    with pytest.raises(ValueError, match="one unit"):
        Listing.of("/t", ids, "ms")


@given(st.integers())
def test_a_clock_out_of_range_is_clamped(value: int) -> None:
    assert -(2**63) <= int64(value) < 2**63
    assert int64(value) == value or abs(value) >= 2**63 - 1


@pytest.mark.parametrize(
    "name, hidden",
    [
        ("part-0.parquet", False),
        ("_SUCCESS", True),
        ("_metadata", True),
        ("_common_metadata", True),
        ("_p=1", False),
        (".part-0.parquet.crc", True),
        (".p=1", True),
        ("x._COPYING_", True),
        ("x._copying_", False),
        ("=", False),
        ("é _", False),
    ],
)
def test_what_spark_hides(name: str, hidden: bool) -> None:
    assert hidden_by_spark(name) is hidden
