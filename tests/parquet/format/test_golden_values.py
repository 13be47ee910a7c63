"""Every golden file gives, through our own decoders, the values that are known for it.

pyarrow is the first witness; then the CSV files and twin columns of parquet-testing, and the rows
beside the files of hyparquet.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skipstone.errors import FormatError
from tests.parquet.format.files import LARGE, golden_files, same, same_table
from tests.parquet.whole_file import read_table, with_instants

if TYPE_CHECKING:
    from pathlib import Path

# Its keys are optional, which pyarrow refuses.
INCORRECT = "incorrect_map_schema.parquet"


def content(golden: Path, name: str) -> bytes:
    return (golden / "parquet-testing" / name).read_bytes()


def test_as_pyarrow_reads_them(golden: Path) -> None:
    read = 0
    for path in golden_files(golden):
        if path.name == INCORRECT:
            continue
        found = read_table(path.read_bytes())
        found.validate(full=True)
        arrow = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
        assert same_table(found, with_instants(arrow.read(), arrow.schema)), path
        read += 1
    assert read > 95


def test_what_arrow_refuses(golden: Path) -> None:
    path = golden / "hyparquet" / "test" / "files" / INCORRECT
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(path)
    table = read_table(path.read_bytes())
    assert table.schema == pa.schema({"my_map": pa.map_(pa.string(), pa.string())})
    assert table.to_pylist() == [{"my_map": [("parent", "another"), ("name", "report")]}]


@pytest.mark.soak
def test_two_gigabytes_of_strings_in_a_map(golden: Path) -> None:
    table = read_table(content(golden, f"data/{LARGE}"))
    (column,) = table.columns
    assert column.num_chunks > 1
    total = 0
    for chunk in column.chunks:
        total += pc.sum(pc.binary_length(chunk.keys)).as_py()
        chunk.validate()
    assert total >= 1 << 31


# -- bad data --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, what",
    [
        ("ARROW-GH-41317", "thrift"),
        ("ARROW-GH-41321", "run"),
        ("ARROW-GH-45185", "begin with a row"),
        ("ARROW-GH-47662", "100 values of 4 bytes"),
        ("ARROW-RS-GH-6229-DICTHEADER", "num_values is missing"),
        ("ARROW-RS-GH-6229-LEVELS", "run"),
    ],
)
def test_bad_data_is_refused(golden: Path, name: str, what: str) -> None:
    with pytest.raises(FormatError, match=what):
        read_table(content(golden, f"bad_data/{name}.parquet"))


def test_a_dictionary_of_bit_width_zero_is_harmless(golden: Path) -> None:
    path = golden / "parquet-testing" / "bad_data" / "ARROW-GH-43605.parquet"
    assert same_table(read_table(path.read_bytes()), pq.read_table(path))


# -- checksums -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, fails",
    [
        ("datapage_v1-corrupt-checksum", True),
        ("datapage_v1-uncompressed-checksum", False),
        ("datapage_v1-snappy-compressed-checksum", False),
        ("plain-dict-uncompressed-checksum", False),
        ("rle-dict-snappy-checksum", False),
    ],
)
def test_checksums_count_only_when_asked(golden: Path, name: str, fails: bool) -> None:
    data = content(golden, f"data/{name}.parquet")
    assert read_table(data).num_rows in (1000, 5120)
    if fails:
        with pytest.raises(FormatError, match="checksum"):
            read_table(data, verify_crc=True)
    else:
        assert read_table(data, verify_crc=True).num_rows in (1000, 5120)


# -- expected values -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "delta_binary_packed",
        "delta_byte_array",
        "delta_encoding_optional_column",
        "delta_encoding_required_column",
    ],
)
def test_delta_encodings_as_the_csv_beside_them(golden: Path, name: str) -> None:
    table = read_table(content(golden, f"data/{name}.parquet"))
    text = content(golden, f"data/{name}_expect.csv").decode()
    header, *lines = csv.reader(text.splitlines())
    assert [each.strip(" :") for each in header] == [
        name.strip(" :") for name in table.column_names
    ]
    for column, expected in zip(table.columns, zip(*lines, strict=True), strict=True):
        shown = ["" if value is None else str(value) for value in column.to_pylist()]
        assert shown == list(expected)


def test_byte_stream_split_equals_its_plain_twins(golden: Path) -> None:
    table = read_table(content(golden, "data/byte_stream_split_extended.gzip.parquet"))
    pairs = [name for name in table.column_names if name.endswith("_plain")]
    assert len(pairs) == 7
    for name in pairs:
        twin = name.removesuffix("_plain") + "_byte_stream_split"
        assert same(table[name].combine_chunks(), table[twin].combine_chunks())


def like(value: Any, shown: Any) -> bool:
    """Whether a value is what JavaScript showed of it: numbers as doubles, instants to the ms."""
    match value:
        case None:
            return shown is None
        case []:
            return shown in (None, [], {})
        case float() if math.isnan(value):
            return shown is None
        case dict():
            if not isinstance(shown, dict):
                return False
            return set(shown) <= set(value) and all(like(v, shown.get(k)) for k, v in value.items())
        case list() if isinstance(shown, dict):
            return like(dict(value), shown)
        case list():
            return (
                isinstance(shown, list)
                and len(value) == len(shown)
                and all(map(like, value, shown))
            )
        case bytes():
            return bool(list(value) == shown or value.decode("utf-8", "replace") == shown)
        case uuid.UUID():
            return bool(str(value) == shown)
        case dt.datetime():
            cut = value.replace(tzinfo=None, microsecond=value.microsecond // 1000 * 1000)
            return bool(cut == dt.datetime.fromisoformat(shown).replace(tzinfo=None))
        case dt.date():
            return bool(value.isoformat() == shown[:10])
        case bool() | str():
            return bool(value == shown)
        case int() | float() | Decimal():
            return isinstance(shown, int | float) and math.isclose(value, shown, rel_tol=1e-14)
    return False


def test_rows_of_hyparquet(golden: Path) -> None:
    files = golden / "hyparquet" / "test" / "files"
    equal: set[str] = set()
    different: set[str] = set()
    for path in sorted(files.glob("*.parquet")):
        expected = path.with_suffix(".json")
        if not expected.exists() or path.stem == "nested_structs.rust":
            continue  # of the latter, instants beyond what Python's datetime can hold
        columns = [column.to_pylist() for column in read_table(path.read_bytes()).columns]
        rows = [list(row) for row in zip(*columns, strict=True)]
        shown = json.loads(expected.read_text())
        (equal if like(rows, shown) else different).add(path.stem)
    # Decoded further by hyparquet: WKB to GeoJSON, variants to their values.
    assert different == {"geospatial"} | {name for name in different if "shredded" in name}
    assert len(equal) >= 35
