"""A forecast is an upper bound: of random plans, against what reading them did.

Files of all shapes: with and without page indexes, with dictionaries, of many small or few large
pages, of one or several row groups; predicates that an index, statistics, or only the rows decide;
some columns, an order, a limit.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skipstone
from skipstone.parquet.reading.bulk_chunks import KERNELS
from skipstone.storage.base import metered
from tests.s3 import s3_of_module, s3_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.s3 import S3

__all__ = ["s3_of_module", "s3_server"]  # fixtures

PREDICATES = [
    None,
    "id < 300",
    "id = 77",
    "k = 3",
    "text = 'word-7'",
    "text LIKE '%7'",
    "n IS NULL",
    "x < 0.01",
    "id > 100 AND k < 5",
    "k = 3 OR n = 2",
    "id >= 0",
    "NOT (k = 3)",
    "s.a = 7",
    "text = 'nothing'",
    "id IN (5, 77, 2000)",
    "k % 7 = 3 AND n = 2",
]
INDEXES = [
    [],
    ["id:minmax", "text:bloom"],
    ["k:bitmap", "id:minmax"],
    ["text:valuelist"],
    ["id:rangebitmap", "x:minmax"],
]
ORDERS = [None, None, "id", "id desc", "x", "k desc nulls last, id", "n, text desc", ["text"]]

# Sized for more values than a file has: by default Arrow writes a MiB for each chunk.
_FILTER = {"ndv": 5_000, "fpp": 0.01}

shapes = st.fixed_dictionaries(
    {
        "rows": st.sampled_from([50, 500, 2_000, 4_000]),
        "groups": st.sampled_from([1, 2, 7, 30]),
        "use_dictionary": st.sampled_from([True, False, ["text"]]),
        "data_page_size": st.sampled_from([300, 2_000, 1 << 20]),
        "write_batch_size": st.sampled_from([64, 250, 1_024]),
        "write_page_index": st.booleans(),
        "write_statistics": st.sampled_from([True, True, False]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "bloom_filter_options": st.sampled_from([None, {"id": _FILTER, "text": _FILTER}]),
        "compression": st.sampled_from(["none", "snappy"]),
    }
)
queries = st.fixed_dictionaries(
    {
        "where": st.sampled_from(PREDICATES),
        "columns": st.sampled_from(
            [None, ["id"], ["k", "blob"], ["text", "x", "n"], ["s", "list"], ["blob"], ["pairs"]]
        ),
        "order_by": st.sampled_from(ORDERS),
        "limit": st.sampled_from([None, None, 1, 3, 60]),
        "inside": st.sampled_from([True, True, False]),
    }
)


#: requests for the listing of a table and of its index, which read nothing
LISTINGS = 3


def content(seed: int, shape: dict[str, Any]) -> bytes:
    """One file; the rows follow from ``seed``."""
    made, count = np.random.default_rng(seed), shape["rows"]
    table = pa.table(
        {
            "id": np.arange(count) + seed * 100,
            "k": made.integers(0, 50, count).astype(np.int32),
            "text": [f"word-{word}" for word in made.integers(0, 400, count)],
            "x": made.random(count),
            "blob": [word.tobytes().hex() for word in made.integers(0, 1 << 60, (count, 4))],
            "n": pa.array(made.integers(0, 9, count), mask=made.random(count) < 0.3),
            "s": [{"a": int(a), "b": f"b-{a}"} for a in made.integers(0, 99, count)],
            "list": [list(range(size)) for size in made.integers(0, 5, count)],
            "pairs": [[{"p": 1, "q": ["x"]}] * size for size in made.integers(0, 3, count)],
        }
    )
    sink = io.BytesIO()
    how = {key: value for key, value in shape.items() if key not in ("rows", "groups")}
    pq.write_table(table, sink, row_group_size=-(-count // shape["groups"]), **how)
    return sink.getvalue()


def assert_holds(
    opened: Callable[[], skipstone.Table],
    query: dict[str, Any],
    *,
    look: bool,
    requests: Callable[[], int] | None = None,
) -> None:
    """Reading takes no more than was forecast, and the forecast no more than there is."""
    scan = opened().scan(**query)
    explanation = scan.explain(look=look)
    forecast, plan = explanation.forecast, explanation.plan
    assert forecast is not None
    with metered() as meter:
        for _ in scan.to_batches():
            pass
    assert meter.bytes_of_objects <= forecast.total.bytes <= plan.bytes_total
    assert plan.bytes_kept == forecast.total.bytes
    if not forecast.unopened:
        assert meter.requests <= forecast.total.requests
    assert "in about" not in str(explanation)
    del query["inside"]
    assert_holds_alone(opened, query, requests)


def assert_holds_alone(
    opened: Callable[[], skipstone.Table],
    query: dict[str, Any],
    requests: Callable[[], int] | None = None,
) -> None:
    """A query that plans for itself takes no more than ``explain`` says of planning and reading,
    together. ``requests``: what a server has answered so far; the listing is one of them."""
    with metered() as looked:
        explanation = opened().explain(**query)
    plan, forecast = explanation.plan, explanation.forecast
    assert forecast is not None
    assert forecast.total.bytes <= plan.bytes_total
    assert plan.planning == (looked.bytes_read, looked.requests)
    before = 0 if requests is None else requests()
    with metered() as meter:
        opened().query(**query)
    most = plan.planning[1] + forecast.total.requests
    assert meter.bytes_of_objects <= plan.planning[0] + forecast.total.bytes
    if not forecast.unopened:
        assert meter.requests <= most
        assert requests is None or requests() - before <= most + LISTINGS


@given(
    files=st.lists(shapes, min_size=1, max_size=4),
    query=queries,
    indexes=st.sampled_from(INDEXES),
    look=st.sampled_from([True, True, False]),
)
@settings(max_examples=12)
def test_local_files(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[dict[str, Any]],
    query: dict[str, Any],
    indexes: list[str],
    look: bool,
) -> None:
    root: Path = tmp_path_factory.mktemp("forecast") / "t"
    root.mkdir()
    for at, shape in enumerate(files):
        (root / f"{at}.parquet").write_bytes(content(at, shape))
    if indexes:
        skipstone.Table(root).build(indexes=indexes)
    assert_holds(lambda: skipstone.Table(root), query, look=look)


@given(
    files=st.lists(shapes, min_size=1, max_size=3),
    query=queries,
    indexes=st.sampled_from(INDEXES),
    number=st.integers(0, 1 << 60),
)
@settings(max_examples=3)
def test_objects(
    s3_of_module: S3,
    files: list[dict[str, Any]],
    query: dict[str, Any],
    indexes: list[str],
    number: int,
) -> None:
    for at, shape in enumerate(files):
        s3_of_module.fill(f"{number}/t/{at}.parquet", data=content(at, shape))

    def opened() -> skipstone.Table:
        url = f"{s3_of_module.base}/{number}/t"
        return skipstone.Table(url, storage_options=s3_of_module.options)

    if indexes:
        opened().build(indexes=indexes)

    def gets() -> int:
        return sum(each.startswith("GET") for each in s3_of_module.requests())

    assert_holds(opened, query, look=True, requests=gets)


@pytest.mark.parametrize(
    "shape, query",
    [
        (
            {"rows": 3_000, "groups": 1, "write_page_index": True, "use_dictionary": False},
            {"where": "id = 77", "columns": ["text", "x", "n"], "order_by": "blob", "limit": 1},
        ),
        (
            {"rows": 3_000, "groups": 30, "write_statistics": False, "data_page_size": 1 << 20},
            {"where": "id = 77", "columns": ["k"]},
        ),
        (
            {"rows": 3_000, "groups": 2, "write_page_index": True, "use_dictionary": True},
            {"where": "text = 'word-7'"},
        ),
    ],
    ids=["few rows of small chunks", "dictionaries left to the reader", "dictionaries"],
)
def test_a_query_with_compiled_loops(
    tmp_path: Path, shape: dict[str, Any], query: dict[str, Any]
) -> None:
    """With them small chunks are read whole, and of others some dictionaries are not asked."""
    KERNELS.load()
    root = tmp_path / "t"
    root.mkdir()
    for at in range(3):
        written = {"data_page_size": 2_000, "write_batch_size": 250, **shape}
        (root / f"{at}.parquet").write_bytes(content(at, written))
    assert_holds_alone(lambda: skipstone.Table(root), query)
    explanation = skipstone.Table(root).explain(**query)
    assert f"in {explanation.plan.planning[1]} requests" in explanation.headline
