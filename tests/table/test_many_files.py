"""Tables of many files, whose columns are decoded together, give the rows of brute force.

The way is for large tables. Here small ones take it (``together``); the tests hold that they do.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, event, given, note
from hypothesis import strategies as st

import skipstone
from skipstone.errors import FormatError, SkipstoneError, StaleError, UnsupportedError
from skipstone.parquet.reading.bulk_chunks import KERNELS, BulkChunks
from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from skipstone.rewrite.encrypt_file import encrypt
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.predicate.bound_rows import opaques
from tests.table.brute_force import picked, rows_of, skipstone_name
from tests.table.lakes import OLD, lakes, lay
from tests.table.together import together

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.predicate.tree import Expr

KERNELS.load()  # before Hypothesis draws: it takes constants from the modules that are loaded

_NULL = "__HIVE_DEFAULT_PARTITION__"


@given(lakes(), st.booleans(), st.booleans())
def test_rows_are_those_of_brute_force(
    lake: tuple[list[tuple[str, pa.Table, dict[str, Any]]], pa.Table, Expr, int],
    index: bool,
    compiled: bool,
) -> None:
    files, whole, where, pieces = lake
    text = to_sql(where)
    note(text)
    try:
        expected = matching_rows(whole, where)
    except (SparkError, NotModelled, OverflowError):
        assume(False)
    with (
        tempfile.TemporaryDirectory() as folder,
        together(1, pieces, compiled=compiled) as taken,
    ):
        root = Path(folder) / "t"
        lay(root, files)
        table = skipstone.Table(str(root))
        schema = table.schema(table.listing())
        assume(sorted(schema.names) == sorted(whole.column_names))
        if opaques(bind(where, schema)):
            return
        names = schema.names
        right = picked(whole, expected).select(names)
        if index:
            try:
                table.build(indexes=[f"{skipstone_name(names[0])}:minmax"])
            except SkipstoneError:
                event("no index")
        found = table.query(text)
        assert rows_of(found) == rows_of(right)
        found.validate(full=True)
        assert table.count(text) == len(expected)
        some: list[list[str]] = [names[-1:], names[::-1], []]
        for columns in some:
            asked = [skipstone_name(name) for name in columns]
            found = table.query(text, columns=asked)
            assert found.num_rows == len(expected)
            assert rows_of(found) == rows_of(right.select(columns))
        assert rows_of(table.query(text, limit=3)) == rows_of(right.slice(0, 3))
        assert rows_of(pa.Table.from_batches(
            table.scan(text).to_batches(), table.scan(text).schema
        )) == rows_of(right)  # fmt: skip
        assert rows_of(table.query()) == rows_of(whole.select(names))
        assert table.count() == len(whole)
    event(f"{'compiled' if compiled else 'Arrow'}, {'together' if taken.whole else 'one by one'}")


# -- one lake --------------------------------------------------------------------------------------

FILES, ROWS = 40, 300


def part(number: int, rows: int = ROWS) -> pa.Table:
    at = np.arange(rows) + number * ROWS
    return pa.table({
        "id": pa.array(at, pa.int64()),
        "x": pa.array(at / 4, mask=at % 7 == 0),
        "word": pa.array([f"w{each % 13} é" if each % 11 else None for each in at]),
        "unique": [f"row {each}" for each in at],
        "dot.ted": pa.array(at % 5, pa.int32()),
        "back`quoted": pa.array(at % 3, pa.int16()),
    })  # fmt: skip


def write(path: Path, table: pa.Table, **how: Any) -> None:
    pq.write_table(
        table, path, max_rows_per_page=50, write_batch_size=10, write_page_checksum=True,
        use_dictionary=["word"], **how,
    )  # fmt: skip
    os.utime(path, (OLD, OLD))


@pytest.fixture(scope="module")
def one_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many") / "lake"
    root.mkdir()
    for number in range(FILES):
        codec = ("snappy", "zstd", "none")[number % 3]
        write(
            root / f"{number:02}.parquet", part(number), compression=codec,
            data_page_version=("1.0", "2.0")[number % 2], row_group_size=ROWS // (1 + number % 2),
        )  # fmt: skip
    return root


@pytest.fixture
def lake(one_lake: Path, tmp_path: Path) -> Path:
    """A copy of it, which a test may change."""
    return Path(shutil.copytree(one_lake, tmp_path / "lake"))


@cache
def every() -> pa.Table:
    return pa.concat_tables([part(number) for number in range(FILES)])


@cache
def expected_rows(where: str) -> pa.Table:
    return picked(every(), matching_rows(every(), where))


CONDITIONS = (
    "word LIKE 'w1%'",
    "word LIKE '%2 _' AND x > 100.5",
    "word NOT LIKE '%1%' OR x IS NULL",
    "x <=> NULL AND word IS NOT NULL",
    "x >= CAST('NaN' AS DOUBLE)",
    "x IN (1.5D, 250.25D, 1000D) OR `dot.ted` = 3",
    "NOT (`back``quoted` IN (0, 1)) AND `dot.ted` <> 2",
    "word = 'nothing'",
    "unique LIKE 'row %77'",
)


@pytest.mark.parametrize("where", CONDITIONS)
def test_conditions_and_columns(lake: Path, where: str) -> None:
    right = expected_rows(where)
    table = skipstone.Table(str(lake))
    for small in (0, None):
        with together(small_chunk=small) as taken:
            assert table.query(where).equals(right)
            assert table.count(where) == len(right)
            for columns in ([], ["id"], ["`dot.ted`", "unique"], ["`back``quoted`", "word", "x"]):
                names = [each.strip("`").replace("``", "`") for each in columns]
                found = table.query(where, columns=columns)
                assert found.num_rows == len(right)
                assert found.equals(right.select(names)) or not names
            assert table.query(where, ["id"], limit=70).equals(right.select(["id"]).slice(0, 70))
            ordered = table.query(where, ["id"], order_by="id desc", limit=5)
            assert ordered["id"].to_pylist() == right["id"].to_pylist()[::-1][:5]
        assert taken.whole == taken.calls > 0


CASED = (
    "an Error", "ERROR", "error", "errOR é", "ÉRROR", "Disk", "DISK", "dis\u212a", "\u0130ce",
    "Ice", "ICE", "kilo", "\u212aILO", "tick\ntock", "TICK", "", None, "er%or", "ER_OR",
    "x" * 60 + "ErRoR",
)  # fmt: skip


@pytest.mark.parametrize("small", [0, None])
@pytest.mark.parametrize("dictionary", [True, False])
def test_texts_are_searched_in_any_case(
    tmp_path: Path, dictionary: bool, small: int | None
) -> None:
    """Also where another character has i or k in its lower case: İ, and the Kelvin sign."""
    root = tmp_path / "lake"
    root.mkdir()
    words = [CASED[each * 7 % 23 % len(CASED)] for each in range(1, 2_000)]
    for number in range(20):
        rows = pa.table({"word": words[number * 90 :][:90], "id": np.arange(90) + number * 90})
        pq.write_table(rows, root / f"{number:02}.parquet", use_dictionary=dictionary)
    lowered = [(word or "").lower() for word in words[: 20 * 90]]
    table = skipstone.Table(str(root))
    for text in ("error", "disk", "ice", "k", "é", "xerror", "none"):
        right = [at for at, word in enumerate(lowered) if text in word]
        with together(small_chunk=small) as taken:
            for where in (f"word ILIKE '%{text.upper()}%'", f"lower(word) LIKE '%{text}%'"):
                assert table.query(where, ["id"])["id"].to_pylist() == right
                assert table.count(where) == len(right)
                assert table.query(f"NOT ({where})", []).num_rows == sum(
                    word is not None for word in words[: 20 * 90]
                ) - len(right)
            assert table.count(f"lower(word) LIKE '%{text.upper()}%'") == (
                len(right) if text.upper() == text else 0
            )
        assert taken.calls > 0
    with together(small_chunk=small):
        assert table.count("word ILIKE '%er\\\\%or%'") == lowered.count("er%or")
        assert table.count("word ILIKE '%e%_\\\\_o%'") == lowered.count("er_or")


def test_rows_that_surely_match(lake: Path) -> None:
    table = skipstone.Table(str(lake))
    with together() as taken:
        assert table.query().equals(every())
        assert table.query("id >= 0", ["`dot.ted`"]).equals(every().select(["dot.ted"]))
        assert table.query("id >= 0", []).num_rows == table.count("id >= 0") == FILES * ROWS
        assert taken.whole == taken.calls > 0


ODD = ", ".join(map(str, range(1, 1_501, 2)))
#: by numbers, and doubles of which -1 is NaN; nulls are left out before
MANY_WORDS: dict[str, Callable[[Any, Any], Any]] = {
    f"n IN ({ODD})": lambda n, d: n % 2 == 1,
    "n <= 800": lambda n, d: n <= 800,
    "d >= 300": lambda n, d: (d >= 300) | (d == -1),
    f"d IN (0, {ODD})": lambda n, d: (d % 2 == 1) & (d != -1) | (d == 0),
    f"d IN (CAST('NaN' AS DOUBLE), {ODD})": lambda n, d: d % 2 == 1,
    f"NOT (n IN ({ODD})) AND d < 600": lambda n, d: (n % 2 == 0) & (d < 600) & (d != -1),
}


def test_many_values_of_a_dictionary_are_decided_by_its_entries(tmp_path: Path) -> None:
    """However many of the entries match, rows are not decoded: each entry stands for many."""
    root = tmp_path / "lake"
    root.mkdir()
    n, d, nulls = [], [], np.random.default_rng(7)
    for number in range(FILES):
        rng = np.random.default_rng(number)
        n.append(rng.integers(1, 1_501, ROWS))
        d.append(rng.integers(0, 1_500, ROWS) / 2)
        d[-1][:2] = -1, 0
        null = nulls.random(ROWS) < 0.05
        doubles = np.where(d[-1] == -1, np.nan, np.where(d[-1] == 0, -0.0, d[-1]))
        made = {"n": pa.array(n[-1].astype(np.int32), mask=null), "d": pa.array(doubles, mask=null)}
        made["id"] = pa.array(np.arange(ROWS) + number * ROWS)
        n[-1], d[-1] = n[-1][~null], d[-1][~null]
        pq.write_table(pa.table(made), root / f"{number:02}.parquet", use_dictionary=number < 32)
    ids = np.concatenate(
        [
            pq.read_table(each).filter(pc.field("n").is_valid())["id"]
            for each in sorted(root.iterdir())
        ]
    )
    table, values = skipstone.Table(str(root)), BulkChunks.values
    decoded: list[BulkChunks] = []

    def counted(chunks: BulkChunks) -> pa.Array | None:
        decoded.append(chunks)
        return values(chunks)

    with together() as taken, pytest.MonkeyPatch.context() as patch:
        patch.setattr(BulkChunks, "values", counted)
        for where, holds in MANY_WORDS.items():
            right = ids[holds(np.concatenate(n), np.concatenate(d))].tolist()
            decoded.clear()
            assert table.count(where) == len(right)
            # With NaN nothing tells which numbers may match.
            assert "NaN" in where or all((each.entries == 0).any() for each in decoded)
            assert table.query(where, ["id"])["id"].to_pylist() == right
        assert taken.whole == taken.calls > 0


def test_without_compiled_code_the_rows_are_the_same(lake: Path) -> None:
    """Work that does not pay for the kernels: the pieces of a batch are read one by one."""
    table = skipstone.Table(str(lake))
    right = expected_rows("x > 100")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KERNELS, "disabled", True)
        patch.setattr(KERNELS, "least", 1e18)
        assert table.query("x > 100").equals(right)
        assert table.query("x > 100", []).num_rows == table.count("x > 100") == len(right)


def test_folders_that_give_columns(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    parts = []
    for number in range(30):
        value = None if number >= 24 else number // 8
        folder = root / f"p={_NULL if value is None else value}"
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / f"{number:02}.parquet", part(number))
        parts.append(part(number).append_column("p", pa.array([value] * ROWS, pa.int32())))
    whole = pa.concat_tables(parts)
    table = skipstone.Table(str(root))
    with together() as taken:
        for where in ("x > 900", "p = 1 OR x > 1000", "p IS NULL AND x > 1", "p <=> 2 OR x < 7",
                      "p IN (0, 2) AND word LIKE 'w1%'", "NOT (p = 1) AND x > 4"):  # fmt: skip
            right = picked(whole, matching_rows(whole, where))
            assert table.query(where).equals(right), where
            assert table.query(where, ["p"]).equals(right.select(["p"])), where
            assert table.count(where) == len(right), where
        assert table.query().equals(whole)
        assert taken.whole > 0


def test_a_batch_without_a_match_is_read_once(lake: Path) -> None:
    """In bytes: what an analysis of the query says, and the chunks of the column."""
    table = skipstone.Table(str(lake))
    chunks = 0
    for path in sorted(lake.iterdir()):
        footer = pq.read_metadata(path)
        for group in range(footer.num_row_groups):
            chunks += footer.row_group(group).column(2).total_compressed_size
    with together() as taken:
        found = table.scan("word LIKE '%nothing_'", columns=["id"]).analyze()
    assert taken.whole == taken.calls > 0
    assert found.rows == 0
    # The footers are read by the explanation before.
    assert (found.read.bytes, found.files_read) == (chunks, FILES)
    assert found.read.requests == FILES + FILES // 2  # every second file has two row groups


def test_a_value_that_does_not_fit_names_its_file(tmp_path: Path) -> None:
    """Files of one type in one batch: only one of them has a value that the table's type lacks."""
    root = tmp_path / "lake"
    root.mkdir()
    for number in range(20):
        unit = "us" if number < 4 else "ms"
        x = pa.array([2**60 if number == 17 else number] * 4, pa.timestamp(unit))
        write(root / f"{number:02}.parquet", pa.table({"word": ["a"] * 4, "x": x}))
    table = skipstone.Table(str(root))
    with together() as taken, pytest.raises(UnsupportedError, match=r"17\.parquet") as raised:
        table.query("word LIKE 'a%'", ["x"])
    assert raised.value.hint
    assert taken.calls > 0
    with together(), pytest.raises(UnsupportedError, match=r"17\.parquet"):
        table.count("x > TIMESTAMP_NTZ '1970-01-01 00:00:00.010'")


# -- files that change or are damaged --------------------------------------------------------------


@pytest.mark.parametrize("how", ["replaced", "removed", "truncated"])
@pytest.mark.parametrize("columns", [["id"], ["unique"]])
def test_a_file_that_changes_during_a_query(lake: Path, how: str, columns: list[str]) -> None:
    table = skipstone.Table(str(lake))
    target = lake / "35.parquet"
    with together(pieces=4) as taken:
        batches = table.scan("x > 1", columns=columns).to_batches()
        first = next(iter(batches))
        assert first.num_rows
        if how == "removed":
            target.unlink()
        elif how == "truncated":
            os.truncate(target, 100)
        else:
            write(target, part(35).slice(0, 7))
        with pytest.raises((StaleError, FormatError, FileNotFoundError), match=r"35\.parquet"):
            for _ in batches:
                pass
        assert taken.calls > 0
        if how == "replaced":  # and the next query sees the new one
            right = pa.concat_tables(
                [part(n).slice(0, 7 if n == 35 else ROWS) for n in range(FILES)]
            )
            assert table.count("x > 1") == len(matching_rows(right, "x > 1"))


def _flip(path: Path, text: bytes) -> None:
    raw = bytearray(path.read_bytes())
    raw[raw.index(text) + len(text) - 1] ^= 1
    path.write_bytes(raw)
    os.utime(path, (OLD, OLD))


def test_a_wrong_checksum_is_an_error_with_the_name_of_the_file(lake: Path) -> None:
    """In a column of the predicate, and in one that is read for the rows alone."""
    _flip(lake / "20.parquet", b"row 6123")  # 20 is not compressed
    for where, columns in (
        ("unique LIKE 'row_6123'", ["id"]),
        ("word = 'w0 é' OR x > 7", ["unique"]),
    ):
        table = skipstone.Table(str(lake))
        with together(small_chunk=None), pytest.raises(FormatError, match="checksum") as raised:
            table.query(where, columns)
        assert "20.parquet" in str(raised.value)
        with together() as taken:
            trusting = skipstone.Table(str(lake), verify_checksums=False)
            trusting.query(where, columns)
            assert taken.whole == taken.calls > 0


def test_encrypted_files_among_others(lake: Path) -> None:
    key = b"0123456789012345"
    encryption = skipstone.Encryption(footer_key=key)
    whole = every()
    for number in range(0, FILES, 9):
        encrypt(str(lake / f"{number:02}.parquet"), encryption=encryption)
    table = skipstone.Table(
        str(lake), decryption=skipstone.Decryption(footer_key=key, allow_plaintext_files=True)
    )
    with together() as taken:
        right = picked(whole, matching_rows(whole, "word LIKE 'w1%'"))
        assert table.query("word LIKE 'w1%'").equals(right)
        assert table.count("word LIKE 'w1%'") == len(right)
        assert taken.whole > 0


def test_little_memory_gives_the_rows_or_an_error(lake: Path) -> None:
    right = expected_rows("word LIKE 'w1%'").select(["id", "unique"])
    with together():
        for memory in (1 << 16, 1 << 20):
            table = skipstone.Table(str(lake), memory=memory)
            assert table.query("word LIKE 'w1%'", ["id", "unique"]).equals(right)
        with pytest.raises(SkipstoneError, match="memory"):
            skipstone.Table(str(lake), memory=1 << 8).query("word LIKE 'w1%'", ["id", "unique"])


@pytest.mark.parametrize("type", [pa.string(), pa.large_string(), pa.large_binary()])
def test_a_word_that_repeats_is_not_copied_without_limit(tmp_path: Path, type: pa.DataType) -> None:
    """A file of kilobytes, of one long word for each of many rows."""
    root = tmp_path / "lake"
    root.mkdir()
    rows = 200
    for number in range(20):
        words = pa.array(["x" * 30_000] * rows).cast(type)
        part = pa.table({"word": words, "id": np.arange(rows) + number * rows})
        write(root / f"{number:02}.parquet", part)
    for memory, enough in ((9 << 20, True), (3 << 20, False)):
        table = skipstone.Table(str(root), memory=memory)
        with together() as taken:
            for where in (None, "word IS NULL OR id <> -1 AND NOT (word IS NULL)"):
                assert table.count(where) == 20 * rows
                if enough:  # for one file, and not for a batch
                    found = table.query(where)
                    assert found["id"].to_pylist() == list(range(20 * rows))
                    assert found["word"].slice(4, 1).to_pylist() == words.slice(0, 1).to_pylist()
                else:
                    with pytest.raises(SkipstoneError, match=r"\.parquet.*memory"):
                        table.query(where)
            assert taken.whole > 0


def test_several_threads_ask_one_table(lake: Path) -> None:
    table = skipstone.Table(str(lake))
    with together(pieces=3) as taken, ThreadPoolExecutor(4) as pool:
        asked = [*CONDITIONS] * 3
        for where, found in zip(asked, pool.map(table.query, asked), strict=True):
            assert found.equals(expected_rows(where))
    assert taken.whole == taken.calls > 0
