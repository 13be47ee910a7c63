"""Keys as an argument: the rows of brute force, of the list of literals, and of every other way to
give the same keys; over tables whose files differ, with every kind of index."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

import skipstone
from skipstone.errors import PredicateError, UnsupportedError
from skipstone.parquet.reading.bulk_chunks import KERNELS
from skipstone.predicate.binding import bind
from skipstone.predicate.tree import ColumnRef, Membership
from skipstone.predicate.types import column_name
from skipstone.pruning import costs as cost
from tests.predicate.bound_rows import opaques
from tests.predicate.keys import literal_list
from tests.strategies import ARROW_TYPES, leaf_columns, values
from tests.table.brute_force import indexed, picked, questions, rows_of
from tests.table.together import together

if TYPE_CHECKING:
    from collections.abc import Callable

INDEXES = ["minmax", "valuelist", "bloom", "bitmap"]


@given(st.data(), questions(), st.booleans())
def test_rows_are_those_of_brute_force(data: Any, question: Any, always: bool) -> None:
    files, _, written, indexes = question
    whole = pa.concat_tables([each.rows for each in files])
    path, type = data.draw(st.sampled_from(leaf_columns(whole.schema)), "column")
    other = data.draw(st.sampled_from([type, type, type, *ARROW_TYPES]), "type of the keys")
    each = values(other)
    if other == type:
        column = whole.column(path[0])
        own = [value for value in column.to_pylist() if value is not None] if path[1:] == () else []
        each = st.one_of(each, st.sampled_from(own)) if own else each
    keys = pa.array(data.draw(st.lists(st.none() | each, max_size=12), "keys"), other)
    where = Membership(ColumnRef(path), literal_list(keys))
    assume(not opaques(bind(Membership(ColumnRef(path), keys), whole.schema)))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("skipstone.predicate.value_array.FEW", data.draw(st.sampled_from([0, 100])))
        if always:  # or else small files are not looked into
            patch.setattr("skipstone.table.planning.LOCAL", cost.FREE)
        found = indexed(Path(folder) / "t", (files, where, written, indexes))
        if found is None:
            return
        table, listed, expected = found
        asked = {column_name(path): keys}
        assert rows_of(table.query(keys=asked)) == rows_of(picked(listed, expected))
        assert table.count(keys=asked) == len(expected)
        plan = table.plan(keys=asked)
        note(str(plan))
        first = table.query(keys=asked, limit=2)
        assert rows_of(first) == rows_of(picked(listed, expected[:2]))


# -- tables that are written once -----------------------------------------------------------------

EACH = 2_000


def content(number: int) -> pa.Table:
    """Ids that no other file has, in no order; texts and times of the file; the rest repeats."""
    at = np.arange(EACH)
    ids = (at * 7_919) % EACH + number * EACH
    return pa.table(
        {
            "id": pa.array(ids, pa.int32() if number % 2 else pa.int64()),
            "user": [f"u-{n:06d}" for n in ids.tolist()],
            "ts": pa.array(ids * 1_000_000, pa.timestamp("us", "UTC")),
            "day": pa.array((ids // 500).astype(np.int32), pa.date32()),
            "amount": pa.array(ids / 4, pa.float32() if number % 2 else pa.float64()),
            "price": pa.array([Decimal(n).scaleb(-2) for n in ids.tolist()], pa.decimal128(12, 2)),
            "kind": [f"k-{n % 7}" for n in ids.tolist()],
        }
    )


@pytest.fixture(scope="module", params=["plain", "indexed", "page index and filters"])
def table(request: Any, tmp_path_factory: pytest.TempPathFactory) -> skipstone.Table:
    root = tmp_path_factory.mktemp("keys") / "t"
    root.mkdir()
    for number in range(6):
        options: dict[str, Any] = {}
        if request.param == "page index and filters":
            filters = {name: {"ndv": EACH} for name in ("id", "user", "ts", "price")}
            options = {"write_page_index": True, "bloom_filter_options": filters}
        pq.write_table(content(number), root / f"{number}.parquet", row_group_size=700, **options)
    made = skipstone.Table(str(root))
    if request.param == "indexed":
        made.build(indexes=[f"{name}:bloom" for name in ("id", "user", "ts", "amount", "price")])
        made.build(indexes=["id:minmax", "kind:valuelist", "day:minmax", "user:minmax"])
    return made


def everything() -> list[dict[str, Any]]:
    tables = [content(number).cast(content(0).schema) for number in range(6)]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return rows


ROWS = everything()


def ids(found: pa.Table) -> list[int]:
    return sorted(found.column("id").to_pylist())


def holding(column: str, keys: set[Any]) -> list[int]:
    return sorted(row["id"] for row in ROWS if row[column] in keys)


MANY = [*range(0, 3_000, 3), 7_777, 99_999]
GIVEN: dict[str, Callable[[], Any]] = {
    "list": lambda: MANY,
    "set": lambda: set(MANY),
    "generator": lambda: (n for n in MANY),
    "NumPy": lambda: np.array(MANY),
    "NumPy of 32 bits": lambda: np.array(MANY, np.uint32),
    "doubles": lambda: np.array(MANY, float),
    "Array": lambda: pa.array(MANY),
    "ChunkedArray": lambda: pa.chunked_array([MANY[:10], MANY[10:], []], pa.int64()),
    "dictionary": lambda: pa.array(MANY).dictionary_encode(),
    "unsigned": lambda: pa.array([*MANY, 2**64 - 1], pa.uint64()),
    "decimals": lambda: pa.array(MANY).cast(pa.decimal128(19, 0)),
    "texts": lambda: [str(n) for n in MANY],
    "pandas": lambda: pd.Series(MANY),
    "polars": lambda: pl.Series("any name", MANY),
    "with nulls": lambda: pa.array([None, *MANY]),
}


@pytest.mark.parametrize("given_as", GIVEN)
def test_keys_of_every_kind(table: skipstone.Table, given_as: str) -> None:
    wanted = holding("id", set(MANY))
    assert len(wanted) == 1_001
    assert ids(table.query(keys={"id": GIVEN[given_as]()})) == wanted
    assert table.count(keys={"ID": GIVEN[given_as]()}) == 1_001


@pytest.mark.parametrize(
    "type", [pa.int64(), pa.uint64(), pa.float64(), pa.decimal128(19, 0)], ids=str
)
@pytest.mark.parametrize("count", [3, 400])
def test_a_null_in_a_dictionary_is_no_key(
    table: skipstone.Table, type: pa.DataType, count: int
) -> None:
    """Its ``null_count`` is that of the indices; and a slice has an offset."""
    some = MANY[1 : count + 1]
    values = pa.array([None, *some], pa.int64()).cast(type)
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 0, *range(len(values))], pa.int32()), values)
    assert not keys.null_count
    assert 0 not in some
    for each in (keys, keys.slice(1), values, values.slice(0), pa.chunked_array([keys])):
        assert ids(table.query(keys={"id": each})) == some


@pytest.mark.parametrize("type", [pa.string_view(), pa.large_string(), pa.string()], ids=str)
def test_texts_of_every_layout(table: skipstone.Table, type: pa.DataType) -> None:
    keys = pa.array([None, "u-000003", "x"], type)
    assert ids(table.query(keys={"user": keys})) == holding("user", {"u-000003"})
    assert ids(table.query(keys={"user": keys.slice(1)})) == holding("user", {"u-000003"})


def test_a_time_that_cannot_be_is_refused_in_words(table: skipstone.Table) -> None:
    keys = pa.array([2**62], pa.timestamp("s", "UTC"))
    with pytest.raises(skipstone.errors.SkipstoneError, match="keys of type timestamp"):
        table.query(keys={"ts": keys})


def test_keys_of_every_type(table: skipstone.Table) -> None:
    some = sorted({row["id"] for row in ROWS[::9]})
    users = [f"u-{n:06d}" for n in some]
    assert ids(table.query(keys={"user": [*users, "u-", "v", ""]})) == some
    assert ids(table.query(keys={"user": pa.array(users, pa.large_string())})) == some
    assert ids(table.query(keys={"user": np.array(users)})) == some
    instants = [datetime.fromtimestamp(n, UTC) for n in some]
    assert ids(table.query(keys={"ts": instants})) == some
    assert ids(table.query(keys={"ts": pd.Series(instants)})) == some
    nanoseconds = pa.array([n * 10**9 + 1 for n in some] + [0], pa.timestamp("ns", "UTC"))
    assert ids(table.query(keys={"ts": nanoseconds})) == [0]
    prices = [Decimal(n).scaleb(-2) for n in some]
    assert ids(table.query(keys={"price": prices})) == some
    assert ids(table.query(keys={"price": [float(each) for each in prices]})) == some
    assert ids(table.query(keys={"price": [Decimal("0.011"), Decimal("0.020")]})) == [2]
    amounts = [n / 4 for n in some]
    assert ids(table.query(keys={"amount": [*amounts, float("nan"), 0.1]})) == some
    assert ids(table.query(keys={"amount": np.array([-0.0])})) == [0]
    days = [date(1970, 1, 1), date(1970, 1, 20), date(1999, 1, 1)]
    wanted = holding("day", set(days))
    assert ids(table.query(keys={"day": days})) == wanted
    assert ids(table.query(keys={"day": [f"{each}" for each in days]})) == wanted
    assert ids(table.query(keys={"kind": [f"k-{n}" for n in range(3, 9)]})) == holding(
        "kind", {"k-3", "k-4", "k-5", "k-6"}
    )


def test_columns_must_all_be_found(table: skipstone.Table) -> None:
    users = pa.table({"user": [f"u-{n:06d}" for n in range(500)], "kind": ["k-1", "k-2"] * 250})
    wanted = sorted(n for n in range(500) if n % 7 in (1, 2))
    assert ids(table.query(keys=users)) == wanted
    for same in (users.to_pandas(), pl.from_arrow(users), users.to_batches()[0]):
        assert ids(table.query(keys=same)) == wanted
    assert ids(table.query("id >= 100", keys=users)) == [n for n in wanted if n >= 100]
    assert ids(table.query([("id", "<", 100)], keys=users)) == [n for n in wanted if n < 100]


def test_no_key_is_no_row(table: skipstone.Table) -> None:
    assert table.count(keys={"id": [2**40]}) == 0
    for none in ([], [None], pa.array([], pa.int32()), pa.nulls(3), np.array([])):
        assert table.query(keys={"id": none}).num_rows == 0
        assert table.count(keys={"id": none}) == 0
        assert not table.plan(keys={"id": none}).keep.any()


def test_every_verb_takes_keys(table: skipstone.Table) -> None:
    keys = {"id": np.array([5, 2_500, 2_501])}
    assert [batch.num_rows for batch in table.scan(keys=keys).to_batches()] != []
    assert ids(table.scan(keys=keys).to_arrow()) == [5, 2_500, 2_501]
    assert ids(table.retried(lambda scan: scan.to_arrow(), keys=keys)) == [5, 2_500, 2_501]
    assert table.min("id", keys=keys) == 5
    assert table.max("id", "id < 2501", keys=keys) == 2_500
    assert len(table.top("id desc", 2, keys=keys).rows) > 0
    exported = table.scan(keys=keys).to_duckdb()
    assert exported.filter("id IN (5, 2500, 2501)").fetchall() != []
    assert "id IN (3 keys)" in str(table.explain(keys=keys))
    best = table.query(columns=["id"], keys=keys, order_by="id desc", limit=1)
    assert best.to_pydict() == {"id": [2_501]}


def test_only_files_that_may_hold_a_key_are_read(tmp_path: Path) -> None:
    for number in range(6):
        pq.write_table(content(number), tmp_path / f"{number}.parquet")
    table = skipstone.Table(str(tmp_path))
    table.build(indexes=["id:minmax", "user:bloom", "kind:valuelist", "ts:bloom", "ts:minmax"])
    near = np.append(np.arange(2 * EACH, 2 * EACH + 900, 2), [-5, 10**9])
    plan = table.plan(keys={"id": near}, inside=False)
    assert [Path(path).stem for path in plan.paths] == ["2"]
    absent = [f"u-{n:06d}x" for n in range(200)]
    users = pa.array([*absent, "u-000003", f"u-{5 * EACH:06d}"])
    plan = table.plan(keys={"user": users}, inside=False)
    kept = {Path(path).stem for path in plan.paths}
    assert {"0", "5"} <= kept
    assert len(kept) < 6
    assert table.count(keys={"user": users}) == 2
    # Of many keys a filter is asked for those within the bounds of its file.
    few = pa.array(np.arange(3_000) * 4_000_000 + 7, pa.timestamp("us", "UTC"))
    plan = table.plan(keys={"ts": few}, inside=False)
    (step,) = (each for each in plan.steps if each.index == "bloomfilter" and each.column == "ts")
    assert step.used or step.kept == step.considered
    assert not step.reasons
    odd = pa.array(np.arange(EACH * 6 * 10) * 100_000 + 7, pa.timestamp("us", "UTC"))
    plan = table.plan(keys={"ts": odd}, inside=False)
    (step,) = (each for each in plan.steps if each.index == "bloomfilter" and each.column == "ts")
    assert not step.used
    assert "holds one by chance" in " ".join(map(str, step.reasons))
    assert table.count(keys={"ts": odd}) == 0


@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("ending", ["", "-and-more"])
def test_tens_of_thousands_of_keys_over_files_that_are_read_together(
    tmp_path: Path, coded: bool, ending: str
) -> None:
    """Some keys share the bytes that are compared first; others are in no row, or in all files."""
    rows, files = 4_000, 18
    rng = np.random.default_rng(11)
    numbers = rng.integers(0, 300_000, (files, rows))
    for number, mine in enumerate(numbers):
        table = pa.table(
            {
                "user": [f"user-{n:06d}{ending}{n % 3}" for n in mine],
                "id": mine,
                "amount": pa.array(mine / 4, mask=mine % 50 == 0),
            }
        )
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table, path, use_dictionary=coded)
    table = skipstone.Table(str(tmp_path))
    table.build(indexes=["id:minmax"])
    chosen = rng.choice(300_000, 60_000, replace=False)
    known = np.sort(numbers[np.isin(numbers, chosen)])
    KERNELS.load()
    with together() as taken:
        users = [f"user-{n:06d}{ending}{n % 3}" for n in chosen]
        others = [f"user-{n:06d}{ending}{(n + 1) % 3}" for n in range(0, 300_000, 9)]
        found = table.query(columns=["id"], keys={"user": [*users, *others]})
        assert sorted(found["id"].to_pylist()) == known.tolist()
        found = table.query(columns=["id"], keys={"id": chosen})
        assert sorted(found["id"].to_pylist()) == known.tolist()
        found = table.query(columns=["id"], keys={"amount": chosen / 4})
        assert sorted(found["id"].to_pylist()) == known[known % 50 != 0].tolist()
    assert taken.whole == taken.calls > 0


def test_keys_that_are_none(table: skipstone.Table) -> None:
    with pytest.raises(PredicateError, match="no column usr"):
        table.query(keys={"usr": [1]})
    with pytest.raises(UnsupportedError, match=r"cannot decide user IN \(2 keys\)"):
        table.query(keys={"user": [1, 2]})
    with pytest.raises(PredicateError, match="keys of id are not values of one type"):
        table.query(keys={"id": [1, "a"]})
    with pytest.raises(TypeError, match="a mapping from columns to arrays, or a table, not list"):
        table.query(keys=[1, 2])
    with pytest.raises(TypeError, match="one series, without the name of a column"):
        table.query(keys=pl.Series([1]))
    with pytest.raises(TypeError, match="an array or a list, not str"):
        table.query(keys={"user": "u-000001"})
    with pytest.raises(PredicateError, match="names no column"):
        table.query(keys={})
    with pytest.raises(UnsupportedError, match="cannot be read as bigint"):
        table.query(keys={"id": ["1", "two"]})
