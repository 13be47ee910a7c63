"""`inspect` of a file index: what is in it, and what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, PredicateError, SkipstoneError, UnsupportedError
from skipstone.inspect.inspection import InspectOptions
from skipstone.inspect.paimon_index import inspect_file_index
from skipstone.paimon.format import container
from skipstone.paimon.format.bitmap import write_bitmap
from skipstone.paimon.format.bsi import write_bsi
from skipstone.paimon.format.column_keys import column_of
from skipstone.paimon.format.keys import PaimonType
from skipstone.paimon.format.range_bitmap import write_range_bitmap
from tests.inspect.documents import shown
from tests.paimon.format.blooms import write_bloom_filter
from tests.paimon.format.strategies import coded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

#: city is Oslo in rows 0, 4, 8 …; n counts from -5; day and small have types of their own widths
TABLE = pa.table(
    {
        "city": pa.array([["Oslo", "Bergen", None, "Å"][n % 4] for n in range(40)]),
        "n": pa.array([n - 5 for n in range(40)], pa.int32()),
        "day": pa.array([n % 3 for n in range(40)], pa.int32()).cast(pa.date32()),
        "small": pa.array([n % 7 for n in range(40)], pa.int16()),
    }
)


def container_of(table: pa.Table) -> bytes:
    types = {name: PaimonType.parse(text) for name, text in TYPES.items()}
    columns = {name: column_of(types[name], table[name]) for name in types}
    return container.to_bytes(
        {
            "city": {
                "bitmap": write_bitmap(coded(columns["city"])),
                "bloom-filter": write_bloom_filter(types["city"], [columns["city"].keys], items=50),
            },
            "n": {
                "range-bitmap": write_range_bitmap(coded(columns["n"])),
                "bsi": write_bsi(coded(columns["n"])),
            },
            "day": {"range-bitmap": write_range_bitmap(coded(columns["day"]))},
            "small": {"bitmap": write_bitmap(coded(columns["small"]))},
            "gone": {"bitmap": None},
            "later": {"hologram": b"???"},
        }
    )


TYPES = {"city": "STRING", "n": "INT", "day": "DATE", "small": "SMALLINT"}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """The container alone."""
    path = tmp_path / "x.parquet.index"
    path.write_bytes(container_of(TABLE))
    return path


@pytest.fixture
def beside(index: Path) -> Path:
    """The container beside its data file."""
    pq.write_table(TABLE, index.with_suffix(""))
    return index


def test_columns_kinds_sizes_values(run: Run, beside: Path) -> None:
    (found,) = shown(run, beside)["found"]
    assert found["format"] == "Paimon file index"
    assert found["bytes"] == beside.stat().st_size
    assert found["rows"] == 40
    assert found["types_from"] == str(beside.with_suffix(""))
    by = {(each["column"], each["kind"]): each for each in found["columns"]}
    city = by["city", "bitmap"]
    assert (city["type"], city["nulls"], city["distinct"]) == ("STRING", 10, 3)
    assert (city["min"], city["max"]) == ("Bergen", "Å")
    assert city["details"] == {"version": 2, "blocks": 1}
    ranged = by["n", "range-bitmap"]
    assert (ranged["min"], ranged["max"], ranged["distinct"]) == ("-5", "34", 40)
    assert ranged["details"] == {"version": 1, "chunks": 1, "slices": 6}
    bsi = by["n", "bsi"]
    assert (bsi["min"], bsi["max"], bsi["nulls"], bsi["distinct"]) == ("-5", "34", 0, None)
    assert (by["day", "range-bitmap"]["min"], by["day", "range-bitmap"]["max"]) == (
        "1970-01-01",
        "1970-01-03",
    )
    bloom = by["city", "bloom-filter"]
    assert bloom["details"]["hash_functions"] == 3
    assert bloom["rows"] is None
    assert by["gone", "bitmap"]["details"] == {"empty": True}
    assert any("hologram(later)" in note for note in found["notes"])
    assert (
        sum(each["bytes"] for each in found["columns"]) + found["bytes_of_head"] == found["bytes"]
    )


def test_the_text_says_the_same(run: Run, beside: Path) -> None:
    text = run("inspect", beside).stdout
    for word in ("Paimon file index", "range-bitmap", "Bergen", "1970-01-03", "slices=6"):
        assert word in text


def test_where_exact(run: Run, beside: Path) -> None:
    answer = shown(run, beside, "--where", "city = 'Oslo' AND n >= 20")["where"]
    assert (answer["exact"], answer["rows"], answer["rows_total"]) == (True, 3, 40)
    assert answer["ranges"] == [[28, 28], [32, 32], [36, 36]]
    text = run("inspect", beside, "--where", "n BETWEEN 0 AND 9").stdout
    assert "10 of 40 rows match: 5 to 14" in text


def test_where_inexact(run: Run, beside: Path) -> None:
    answer = shown(run, beside, "--where", "city LIKE '%slo' AND n < 0")["where"]
    assert (answer["exact"], answer["rows"]) == (False, 4)
    text = run("inspect", beside, "--where", "city LIKE '%slo' AND n < 0").stdout
    assert "4 of 40 rows may match" in text


def test_without_types_keys_are_shown_by_their_width(run: Run, index: Path) -> None:
    (found,) = shown(run, index)["found"]
    types = {each["column"]: each["type"] for each in found["columns"]}
    assert types == {
        "city": "STRING",
        "n": "INT",
        "day": "INT",
        "small": "SMALLINT",
        "gone": None,
        "later": None,
    }
    assert any(note.startswith("n: keys of 4 bytes, shown as INT") for note in found["notes"])
    assert not any(note.startswith("city") for note in found["notes"])


def test_without_types_only_what_is_sure_is_asked(run: Run, index: Path) -> None:
    assert shown(run, index, "--where", "city = 'Oslo'")["where"]["rows"] == 10
    assert shown(run, index, "--where", "small = 6")["where"]["rows"] == 5
    done = run("inspect", index, "--where", "n = 3")
    assert done.exit_code == 1
    assert "give --type n=TYPE" in done.stderr


def test_named_types(run: Run, index: Path) -> None:
    where = ("--where", "n = 3 AND day = DATE '1970-01-03'")
    answer = shown(run, index, "--type", "n=INT", "--type", "day=DATE", *where)["where"]
    assert (answer["exact"], answer["ranges"]) == (True, [[8, 8]])


def test_types_of_another_data_file(run: Run, index: Path, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "elsewhere.parquet")
    arguments = ("--data", tmp_path / "elsewhere.parquet", "--where", "n = 3")
    assert shown(run, index, *arguments)["where"]["ranges"] == [[8, 8]]


@pytest.mark.parametrize(
    "arguments, code, complaint",
    [
        (("--type", "n"), 2, "not of the form COLUMN=TYPE"),
        (("--type", "n=WIDGET"), 1, "WIDGET"),
        (("--type", "m=INT"), 1, "no column 'm'"),
        (("--where", "nope = 3"), 1, "nope"),
        (("--pages",), 2, "for Parquet files"),
    ],
)
def test_wrong_usage(
    run: Run, beside: Path, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    done = run("inspect", beside, *arguments)
    assert done.exit_code == code
    assert complaint in done.output


def test_where_is_for_file_indexes(run: Run, beside: Path) -> None:
    done = run("inspect", beside.with_suffix(""), "--where", "n = 3")
    assert done.exit_code == 2
    assert "is for file indexes" in done.output


@pytest.mark.parametrize("column", ["city", "n", "small"])
def test_damage_is_named_with_its_place(run: Run, beside: Path, column: str) -> None:
    raw = bytearray(beside.read_bytes())
    entry = container.ContainerHead.from_bytes(bytes(raw)).of_column(column)[0]
    raw[entry.start + entry.length // 2 :] = b"\xff" * (len(raw) - entry.start - entry.length // 2)
    beside.write_bytes(bytes(raw))
    done = run("inspect", beside)
    assert done.exit_code == 1
    assert str(beside) in done.stderr
    assert "internal" not in done.stderr


@pytest.mark.parametrize("length", [16, 40, 200])
def test_a_truncated_file(run: Run, beside: Path, length: int) -> None:
    beside.write_bytes(beside.read_bytes()[:length])
    assert run("inspect", beside).exit_code == 1


def test_files_of_paimon_itself(run: Run, golden: Path) -> None:
    """f1 is 100, 200, 300, 50, 500, 100, null, 20."""
    home = golden / "paimon" / "upstream" / "append_with_bsi_bitmap_bloomfilter"
    (file,) = home.rglob("*.index")
    arguments = ["--type", "f1=INT", "--type", "f0=STRING", "--where", "f1 >= 100 OR f0 = 'Bob'"]
    found = shown(run, file, *arguments)
    assert found["found"][0]["rows"] == 8
    assert found["where"]["ranges"] == [[0, 2], [4, 5]]
    assert found["where"]["exact"]


RAW = container_of(TABLE)


def looked(path: Path, raw: bytes) -> bool:
    """Whether all of the container can be shown. Damage is one of three errors, and in the name of
    a column that there is no such column."""
    path.write_bytes(raw)
    try:
        inspect_file_index(str(path), InspectOptions(where="n >= 3 AND city = 'Oslo'", types=TYPES))
    except (FormatError, UnsupportedError, PredicateError):
        return False
    except SkipstoneError as error:
        if " has no column " not in error.message:
            raise
        return False
    return True


@given(length=st.integers(0, len(RAW) - 1))
def test_cut_off_anywhere_it_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    assert not looked(tmp_path_factory.getbasetemp() / "cut.index", RAW[:length])


@given(flips=st.lists(st.integers(0, 8 * len(RAW) - 1), min_size=1, max_size=4))
def test_flipped_bits_are_shown_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, flips: list[int]
) -> None:
    """A container has no checksum: with another bit it may be another container."""
    raw = bytearray(RAW)
    for bit in flips:
        raw[bit >> 3] ^= 1 << (bit & 7)
    looked(tmp_path_factory.getbasetemp() / "flipped.index", bytes(raw))
    assert looked(tmp_path_factory.getbasetemp() / "whole.index", RAW)
