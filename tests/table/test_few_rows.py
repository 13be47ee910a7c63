"""Some rows of many files, chosen by row indexes or by the predicate, are those of brute force.

A few rows are read value by value in compiled code; of a part of the rows, which the predicate has
yet to decide, the pages are searched. Here small tables take these ways too (``together``), and the
tests hold that they do.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, event, given, note
from hypothesis import strategies as st

import skipstone
from skipstone.errors import FormatError
from skipstone.execution import bulk_rows
from skipstone.parquet.format.page_index import OffsetIndex, PageLocation
from skipstone.parquet.reading import few_rows
from skipstone.parquet.reading.bulk_chunks import KERNELS
from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.predicate.bound_rows import opaques
from tests.table.brute_force import build, picked, rows_of, skipstone_name
from tests.table.lakes import lakes, lay
from tests.table.together import together

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skipstone.predicate.tree import Expr

KERNELS.load()  # Hypothesis takes constants from the modules that are loaded


@contextlib.contextmanager
def counted(name: str, module: Any = few_rows) -> Iterator[list[bool]]:
    """Whether a function of ``module`` has read the rows, each time that it was asked."""
    taken: list[bool] = []
    real = getattr(module, name)

    def asked(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        taken.append(found is not None)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_rows, name, asked)
        yield taken


@contextlib.contextmanager
def few(share: float = 1.0) -> Iterator[list[bool]]:
    """Up to this ``share`` of the rows are read one by one; whether they were, each time."""
    with together(), counted("read_few_rows") as taken, pytest.MonkeyPatch.context() as patch:
        patch.setattr("skipstone.execution.batches.MANY", share)
        patch.setattr("skipstone.execution.bulk_rows.MANY", share)
        yield taken


@given(lakes())
def test_rows_that_indexes_choose_are_those_of_brute_force(
    lake: tuple[list[tuple[str, pa.Table, dict[str, Any]]], pa.Table, Expr, int],
) -> None:
    files, whole, where, _ = lake
    text = to_sql(where)
    note(text)
    try:
        expected = matching_rows(whole, where)
    except (SparkError, NotModelled, OverflowError):
        assume(False)
    with tempfile.TemporaryDirectory() as folder, few() as taken:
        root = Path(folder) / "t"
        lay(root, files)
        table = skipstone.Table(str(root))
        schema = table.schema(table.listing())
        assume(sorted(schema.names) == sorted(whole.column_names))
        if opaques(bind(where, schema)):
            return
        for kind in ("bitmap", "rangebitmap"):
            build(table, [f"{skipstone_name(name)}:{kind}" for name in schema.names])
        right = picked(whole, expected).select(schema.names)
        # The second time, exact answers of the indexes are known.
        for _ in range(2):
            found = table.query(text)
            found.validate(full=True)
            assert rows_of(found) == rows_of(right)
            assert table.count(text) == len(expected)
        last = [skipstone_name(schema.names[-1])]
        assert rows_of(table.query(text, columns=last)) == rows_of(right.select([-1]))
    event("one by one" if taken else "otherwise")


USUAL_TYPES = (
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.decimal128(9, 2),
)


@st.composite
def some_rows(draw: st.DrawFn, count: int) -> list[int]:
    """Runs of rows, single rows, and all but some."""
    edges = st.integers(0, count)
    chosen: set[int] = set()
    for start, stop in draw(st.lists(st.tuples(edges, edges), min_size=1, max_size=3)):
        chosen.update(range(start, stop))
    return sorted((chosen | draw(st.sets(edges))) - draw(st.sets(edges)) - {count})


@given(lakes(USUAL_TYPES), st.booleans(), st.data())
def test_a_part_of_the_rows_is_decided_as_by_brute_force(
    lake: tuple[list[tuple[str, pa.Table, dict[str, Any]]], pa.Table, Expr, int],
    compiled: bool,
    data: st.DataObject,
) -> None:
    """A row index leaves any rows of the files, and the predicate decides these."""
    files, whole, where, pieces = lake
    assume("place" not in whole.column_names)
    wanted = data.draw(some_rows(len(whole)))
    try:
        expected = set(matching_rows(whole, where)).intersection(wanted)
    except (SparkError, NotModelled, OverflowError):
        assume(False)
    starts = np.cumsum([0, *(len(rows) for _, rows, _ in files)])
    placed = [
        (name, rows.append_column("place", pa.array(np.arange(start, start + len(rows)))), how)
        for (name, rows, how), start in zip(files, starts.tolist(), strict=False)
    ]
    whole = whole.append_column("place", pa.array(np.arange(len(whole))))
    with (
        tempfile.TemporaryDirectory() as folder,
        together(1, pieces, compiled=compiled),
        counted(
            "read_pages" if compiled else "_taken", few_rows if compiled else bulk_rows
        ) as taken,
    ):
        root = Path(folder) / "t"
        lay(root, placed)
        table = skipstone.Table(str(root))
        schema = table.schema(table.listing())
        assume(sorted(schema.names) == sorted(whole.column_names))
        if opaques(bind(where, schema)):
            return
        table.build(indexes=["place:bitmap"])
        text = f"({to_sql(where)}) AND place IN ({', '.join(map(str, [*wanted, -1]))})"
        note(text)
        right = picked(whole, sorted(expected)).select(schema.names)
        some: list[list[str] | None] = [None, schema.names[-1:], schema.names[:1], []]
        for columns in some:
            asked = None if columns is None else [skipstone_name(name) for name in columns]
            found = table.query(text, columns=asked)
            found.validate(full=True)
            assert found.num_rows == len(expected)
            assert rows_of(found) == rows_of(right if columns is None else right.select(columns))
        assert table.count(text) == len(expected)
        assert rows_of(table.query(text, limit=2)) == rows_of(right.slice(0, 2))
        last = table.query(text, columns=["place"], order_by="place desc", limit=3)
        assert last["place"].to_pylist() == sorted(expected, reverse=True)[:3]
    event(f"{'pages are searched' if compiled else 'rows are taken'}: {any(taken)}")


FILES, ROWS = 30, 400


def part(number: int) -> pa.Table:
    at = np.arange(ROWS) + number * ROWS
    return pa.table({
        "id": pa.array(at, pa.int64()),
        "kind": pa.array([f"k{each}" if each % 9 else None for each in at * 7 % 23]),
        "x": pa.array(at / 3, mask=at % 5 == 0),
        "small": pa.array(at % 100, pa.int8()),
        "unique": [f"row {each} {'é' * (each % 30)}" for each in at],
    })  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dictionaries that end in the middle of a chunk, so that plain pages follow. Each codec is in
    six files in a row, which differ in their page versions and indexes."""
    root = tmp_path_factory.mktemp("few") / "lake"
    root.mkdir()
    for number in range(FILES):
        table = part(number)
        if number % 4 == 1:
            table = table.drop_columns("x")
        pq.write_table(
            table, root / f"{number:02}.parquet",
            compression=("snappy", "zstd", "none")[number // 6 % 3],
            data_page_version=("1.0", "2.0")[number % 2], max_rows_per_page=70,
            write_batch_size=10, dictionary_pagesize_limit=1000, write_page_index=number % 3 > 0,
            write_page_checksum=number % 5 > 0, row_group_size=ROWS // (1 + number % 2),
        )  # fmt: skip
    return root


@pytest.fixture(scope="module")
def indexed(lake: Path) -> skipstone.Table:
    table = skipstone.Table(str(lake), index_location=str(lake.with_name("index")))
    table.build(indexes=["kind:bitmap", "small:bitmap", "id:rangebitmap"])
    return table


@cache
def every() -> pa.Table:
    return pa.concat_tables(
        [
            part(number).set_column(2, "x", pa.nulls(ROWS, pa.float64()))
            if number % 4 == 1
            else part(number)
            for number in range(FILES)
        ]
    )


CONDITIONS = (
    "kind = 'k3' AND small = 7",
    "kind IS NULL AND small IN (1, 2, 99)",
    "small = 50",
    "NOT (small <> 51) AND kind IS NOT NULL",
    "id = 4321 OR id = 17",
    "unique = 'row 1205 ééééé'",
)


@cache
def rows_for(where: str) -> pa.Table:
    return picked(every(), matching_rows(every(), where))


@pytest.mark.parametrize("where", ["small <> 50", "kind <> 'k3' AND id >= 100", "id < 333"])
def test_many_rows_that_an_index_chooses(indexed: skipstone.Table, where: str) -> None:
    """They are most rows of their pages, which are decoded whole."""
    with together(), counted("read_pages") as taken:
        assert indexed.query(where).equals(rows_for(where))
    assert taken
    assert all(taken)


@pytest.mark.parametrize("where", CONDITIONS)
def test_lookups(lake: Path, indexed: skipstone.Table, where: str) -> None:
    right = rows_for(where)
    assert 0 < len(right) < 150
    for table in (skipstone.Table(str(lake)), indexed):
        for columns in (None, ["unique"], ["x", "small"]):
            with few(0.2) as taken, pytest.MonkeyPatch.context() as patch:
                # All rows are read together, then those of a few parts at a time.
                for together_ in (few_rows._TOGETHER, 10_000):
                    patch.setattr(few_rows, "_TOGETHER", together_)
                    found = table.query(where, columns=columns)
                    assert found.equals(right if columns is None else right.select(columns))
                assert table.count(where) == len(right)
            # A file without x is read by itself, and a column of the predicate only once.
            assert all(taken)
            assert taken or columns is not None


def test_files_beside_one_that_differs_are_read_together(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fourth file lacks x, and is read by itself."""
    files: list[int] = []
    real = few_rows.read_few_rows

    def asked(parts: Any, *arguments: Any, **options: Any) -> Any:
        files.append(len({part.path for part in parts}))
        return real(parts, *arguments, **options)

    monkeypatch.setattr(bulk_rows, "read_few_rows", asked)
    with together():
        found = skipstone.Table(str(lake)).query("small = 50", columns=["x", "small"])
    assert found.equals(rows_for("small = 50").select(["x", "small"]))
    assert sum(files) == FILES - len(range(1, FILES, 4))
    assert max(files) == 3


@pytest.mark.parametrize("where", ["unique LIKE 'row 1%'", "unique LIKE 'row 1%' AND kind <> 'k3'"])
def test_many_rows_of_some_files_that_differ(
    lake: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole columns of those with a match are decoded; the others of a batch have none."""
    whole: list[int] = []
    real = bulk_rows.read_columns

    def asked(pieces: Any, names: Any, *arguments: Any, **options: Any) -> Any:
        found = real(pieces, names, *arguments, **options)
        if "x" in names and found is not None:
            whole.append(len(pieces))
        return found

    monkeypatch.setattr(bulk_rows, "read_columns", asked)
    with together():
        found = skipstone.Table(str(lake)).query(where, columns=["x", "small"])
    assert found.equals(rows_for(where).select(["x", "small"]))
    assert 0 < sum(whole) < FILES // 2


def test_texts_that_do_not_fit_into_one_array(
    indexed: skipstone.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of each file do."""
    where = CONDITIONS[0]
    monkeypatch.setattr(few_rows, "MOST_STRINGS", 1)
    with few(0.2) as taken:
        assert indexed.query(where).equals(rows_for(where))
    assert taken
    assert not any(taken)


# A row index leaves six of ten rows in runs, or three of four.
RUNS = f"small IN ({', '.join(map(str, range(60)))})"
MOST = f"small IN ({', '.join(str(each) for each in range(100) if each % 4)})"
PARTS = (
    f"{RUNS} AND unique LIKE '%7 é%'",
    f"{MOST} AND unique LIKE '%7 é%'",
    f"{RUNS} AND (unique LIKE '%1__5%' OR unique LIKE '%99 éé%' OR unique LIKE 'row 3%')",
    f"{RUNS} AND kind LIKE '%k1%' AND unique NOT LIKE '%éé%'",
    f"{MOST} AND kind NOT LIKE '%2' AND x > 100",
    f"{RUNS} AND (kind IS NULL OR x IS NULL) AND id > 3000",
    f"{MOST} AND x IN (7D, 11D, 12.5D) OR {RUNS} AND kind = 'k3' AND unique LIKE '%0 %'",
    f"{RUNS} AND unique LIKE '%nothing%'",
)


@pytest.mark.parametrize("where", PARTS)
def test_the_pages_of_a_part_of_the_rows_are_searched(
    lake: Path, indexed: skipstone.Table, where: str
) -> None:
    right = rows_for(where)
    with together(), counted("read_pages") as taken:
        for columns in (None, ["unique"], ["x", "small"]):
            found = indexed.query(where, columns=columns)
            assert found.equals(right if columns is None else right.select(columns))
        assert indexed.count(where) == len(right)
        first = indexed.query(where, ["id"], limit=5)
        assert first.equals(right.select(["id"]).slice(0, 5))
        last = indexed.query(where, ["id"], order_by="id desc", limit=5)
        assert last["id"].to_pylist() == right["id"].to_pylist()[::-1][:5]
    assert all(taken)
    assert taken


def test_patterns_without_case_and_expressions(indexed: skipstone.Table) -> None:
    texts = every()["unique"].to_pylist()
    for where, pattern in (
        ("unique ILIKE '%ROW 3%'", r"row 3"),
        ("unique RLIKE '[39]9 éé+$'", r"[39]9 éé+$"),
        ("unique RLIKE '[39]9 éé+$' OR unique ILIKE 'ROW _7%'", r"[39]9 éé+$|^row .7"),
    ):
        right = [at for at, text in enumerate(texts) if at % 100 < 60 and re.search(pattern, text)]
        assert right
        with together(), counted("read_pages") as taken:
            assert indexed.query(f"{RUNS} AND ({where})")["id"].to_pylist() == right
            assert indexed.count(f"{RUNS} AND ({where})") == len(right)
        assert taken
        assert all(taken)


ORDERS = ("id desc", "x desc", "x", "kind desc, id", "unique", "small, x desc nulls last")


@pytest.mark.parametrize("order", ORDERS)
def test_the_rows_of_a_top_list(lake: Path, order: str) -> None:
    """Their places are found first; then the other columns are read, of these rows alone."""
    table = skipstone.Table(str(lake))
    whole = table.query(order_by=order)
    assert whole.num_rows == FILES * ROWS
    with few() as taken:
        assert table.query(order_by=order, limit=7).equals(whole.slice(0, 7))
    # A file without x is read by itself: it holds the last ids.
    assert all(taken)
    assert taken or order == "id desc"


def test_a_row_of_one_file_that_the_predicate_finds(tmp_path: Path) -> None:
    """The page index leaves a few pages; the column of the predicate finds the row in them."""
    whole = pa.concat_tables([part(number) for number in range(3)])
    pq.write_table(
        whole, tmp_path / "0.parquet", max_rows_per_page=50, write_page_index=True,
        row_group_size=700,
    )  # fmt: skip
    table = skipstone.Table(str(tmp_path))
    for where in ("id = 777", "id IN (3, 1100)", "id BETWEEN 690 AND 710 AND x IS NULL"):
        right = picked(whole, matching_rows(whole, where))
        with few() as taken:
            assert table.query(where).equals(right)
            assert table.query(where, ["unique", "id"]).equals(right.select(["unique", "id"]))
        assert taken == [True] * 2


def test_a_chunk_that_goes_back_to_its_dictionary(tmp_path: Path) -> None:
    """No writer does it: the last page, which is plain, becomes the first. The dictionary is not
    read for it, and the page of indices is left to the reader of single files."""
    count, page = 5_600, 70
    words = [f"{row % 5 if row < 2_000 else row} {'x' * 200}" for row in range(count)]
    path = tmp_path / "0.parquet"
    pq.write_table(
        pa.table({"id": range(count), "s": words}), path, compression="none", use_dictionary=["s"],
        dictionary_pagesize_limit=20_000, write_batch_size=10, max_rows_per_page=page,
        write_page_index=True,
    )  # fmt: skip
    data = path.read_bytes()
    chunk = skipstone.ParquetFile(path).metadata.row_groups[0].columns[1]
    at, length = chunk.offset_index_offset, chunk.offset_index_length
    assert at is not None
    assert length is not None
    index = OffsetIndex.from_bytes(data[at : at + length])
    sizes = [each.compressed_page_size for each in index.page_locations]
    assert sizes[0] < 100 < 10_000 < sizes[-1]
    start, stop = index.page_locations[0].offset, index.page_locations[-1].offset
    end, sizes = stop + sizes[-1], [sizes[-1], *sizes[:-1]]
    words_of = index.unencoded_byte_array_data_bytes
    assert words_of is not None
    moved = OffsetIndex(
        unencoded_byte_array_data_bytes=(words_of[-1], *words_of[:-1]),
        page_locations=tuple(
            PageLocation(offset=offset, compressed_page_size=size, first_row_index=row)
            for offset, size, row in zip(
                np.cumsum([start, *sizes[:-1]]).tolist(), sizes, range(0, count, page), strict=True
            )
        ),
    ).to_bytes()
    assert len(moved) == length
    pages = data[stop:end] + data[start:stop]
    path.write_bytes(data[:start] + pages + data[end:at] + moved + data[at + length :])
    whole = [*words[-page:], *words[:-page]]
    table = skipstone.Table(str(tmp_path))
    for rows, quick in (([3, 9], True), ([100, 200], True), ([3, 100], False)):
        with few() as taken:
            found = table.query(f"id IN ({rows[0]}, {rows[1]})")
        assert found["s"].to_pylist() == [whole[row] for row in rows]
        assert taken == [quick]
    # The pages that are searched need the dictionary.
    for first in (0, page):
        where = f"id BETWEEN {first} AND 300 AND s LIKE '%3 xxx%'"
        with together(), counted("read_pages") as taken:
            found = table.query(where, ["id"])
        assert found["id"].to_pylist() == [
            row for row in range(first, 301) if "3 xxx" in whole[row]
        ]  # fmt: skip
        assert taken == [True]


@pytest.mark.parametrize(
    "where",
    [
        "small IN (1, 2, 3, 50, 51, 98) AND unique LIKE '%é'",
        "kind IN ('k1', 'k5', 'k19') AND x > 700.5",
        "id BETWEEN 300 AND 9000 AND unique LIKE 'row %1%'",
    ],
)
def test_without_compiled_code_dense_rows_are_taken_from_whole_columns(
    indexed: skipstone.Table, where: str
) -> None:
    with together(compiled=False), counted("_taken", bulk_rows) as taken:
        found = indexed.query(where)
        assert found.equals(rows_for(where))
        assert indexed.count(where) == found.num_rows > 0
    assert any(taken)


def test_known_answers_are_of_the_versions_that_were_indexed(tmp_path: Path) -> None:
    """A file that is replaced has no fact: its rows are read, whatever was known of them."""
    for number in range(4):
        pq.write_table(part(number), tmp_path / f"{number}.parquet")
    table = skipstone.Table(str(tmp_path))
    table.build(indexes=["small:bitmap"])
    assert [table.count("small = 50") for _ in range(3)] == [16] * 3
    pq.write_table(part(0).slice(0, 20), tmp_path / "0.parquet")
    assert [table.count("small = 50") for _ in range(2)] == [12] * 2
    table.refresh()
    assert [table.count("small = 50") for _ in range(2)] == [12] * 2
    pq.write_table(part(7), tmp_path / "1.parquet")
    assert [table.count("small = 50") for _ in range(2)] == [12] * 2
    assert table.query("small = 50", ["id"])["id"].to_pylist() == [
        *range(2850, 3200, 100), *range(850, 1600, 100),
    ]  # fmt: skip


def test_a_damaged_page_is_an_error(tmp_path: Path) -> None:
    """Compiled code leaves it to the reader of single files, whose error names the file."""
    for number in range(20):
        pq.write_table(
            part(number), tmp_path / f"{number:02}.parquet", use_dictionary=False,
            write_page_checksum=True,
        )  # fmt: skip
    table = skipstone.Table(str(tmp_path))
    table.build(indexes=["small:bitmap"])
    path = tmp_path / "07.parquet"
    place = pq.ParquetFile(path).metadata.row_group(0).column(4)
    data = bytearray(path.read_bytes())
    data[place.data_page_offset + place.total_compressed_size - 20] ^= 0x55
    path.write_bytes(data)
    table.build(indexes=["small:bitmap"])
    with few(), pytest.raises(FormatError, match=r"07\.parquet"):
        table.query("small = 50", ["unique"])
    with few():
        assert table.query("small = 50", ["id"]).num_rows == 80
