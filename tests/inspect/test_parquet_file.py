"""`inspect FILE` shows a Parquet file down to its page headers, in the specification's names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.inspect.inspection import InspectOptions
from skipstone.inspect.parquet_file import inspect_parquet
from skipstone.parquet.encryption.decryption import decryption_from_json
from tests.folders import GOLDEN
from tests.inspect.documents import shown

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

TESTING, HYPARQUET = GOLDEN / "parquet-testing" / "data", GOLDEN / "hyparquet" / "test" / "files"
golden = pytest.mark.skipif(not TESTING.is_dir(), reason="no golden files: ../shared/golden")

KEYS = {
    "footer_key": "text:0123456789012345",
    "column_keys": {
        "double_field": "text:1234567890123450",
        "float_field": "text:1234567890123451",
    },
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """2 row groups of 500 rows, ``id`` ascending over both, in pages of 100 rows with checksums,
    page index, and a Bloom filter on ``id``; ``s.t`` is text, null in every tenth row."""
    table = pa.table(
        {
            "id": np.arange(1000),
            "s": pa.array([{"t": None if at % 10 == 0 else f"t{at}"} for at in range(1000)]),
        }
    )
    path = tmp_path / "a b é%=.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=500,
        max_rows_per_page=100,
        write_batch_size=100,
        write_page_index=True,
        write_page_checksum=True,
        use_dictionary=["s.t"],
        bloom_filter_options={"id": {"ndv": 500, "fpp": 0.01}},
    )
    return path


def test_the_document_has_the_names_of_the_specification(run: Run, file: Path) -> None:
    found = shown(run, file)
    metadata = found["metadata"]
    assert (found["format"], found["size"]) == ("parquet", file.stat().st_size)
    assert found["footer"]["magic"] == "PAR1"
    assert metadata["num_rows"] == 1000
    assert [group["num_rows"] for group in metadata["row_groups"]] == [500, 500]
    assert [element["name"] for element in metadata["schema"]] == ["schema", "id", "s", "t"]
    chunk = metadata["row_groups"][1]["columns"][0]
    assert chunk["meta_data"]["path_in_schema"] == ["id"]
    statistics = chunk["meta_data"]["statistics"]
    assert statistics["min_value"] == (500).to_bytes(8, "little").hex()
    assert (statistics["min_text"], statistics["max_text"]) == ("500", "999")
    assert chunk["column_index_offset"] > 0
    assert [row["id"] for row in found["rows_shown"]] == [0, 1, 2]
    assert found["rows_shown"][0]["s"] == {"t": None}
    assert "chunks" not in found


def test_pages_have_headers_and_both_indexes(run: Run, file: Path) -> None:
    found = shown(run, file, "--pages", "--rows", 0)
    assert [(each["row_group"], each["column"]) for each in found["chunks"]] == [
        (0, "id"), (0, "s.t"), (1, "id"), (1, "s.t"),
    ]  # fmt: skip
    numbers, texts = found["chunks"][0], found["chunks"][1]
    assert [header["type"] for header in numbers["page_headers"]] == ["DATA_PAGE"] * 5
    assert [header["type"] for header in texts["page_headers"]] == [
        "DICTIONARY_PAGE",
        *["DATA_PAGE"] * 5,
    ]
    assert all("crc" in header for header in numbers["page_headers"])
    locations = numbers["offset_index"]["page_locations"]
    assert [each["first_row_index"] for each in locations] == [0, 100, 200, 300, 400]
    assert [each["offset"] for each in locations] == [
        header["offset"] for header in numbers["page_headers"]
    ]
    assert [each["compressed_page_size"] for each in locations] == [
        header["header_length"] + header["compressed_page_size"]
        for header in numbers["page_headers"]
    ]
    index = numbers["column_index"]
    assert index["boundary_order"] == "ASCENDING"
    assert index["min_texts"] == ["0", "100", "200", "300", "400"]
    assert texts["column_index"]["null_counts"] == [10] * 5
    assert numbers["bloom_filter_header"]["numBytes"] in (512, 1024)
    assert "bloom_filter_header" not in texts


def test_one_column_is_shown_alone_and_a_group_stands_for_its_leaves(run: Run, file: Path) -> None:
    for name in ("s", "s.t"):
        found = shown(run, file, "--column", name, "--pages")
        assert {each["column"] for each in found["chunks"]} == {"s.t"}
        columns = [group["columns"] for group in found["metadata"]["row_groups"]]
        assert [len(each) for each in columns] == [1, 1]
        assert list(found["rows_shown"][0]) == ["s"]
    done = run("inspect", file, "--column", "idd")
    assert done.exit_code == 1
    assert "did you mean 'id'?" in done.stderr


def test_the_text_has_counts_with_their_denominators(run: Run, file: Path) -> None:
    text = " ".join(run("inspect", file, "--pages").stdout.split())
    assert "1,000 in 2 row groups" in text
    assert "column index 4 of 4 chunks" in text
    assert "bloom filters 2 of 4 chunks" in text
    assert "on id" in text
    assert "pages of id, row group 1 (boundary order ASCENDING)" in text


def test_rows_are_shown_as_json_has_them_and_the_verdict_last(run: Run, tmp_path: Path) -> None:
    table = pa.table(
        {
            "b": [True],
            "text": ["it's, é"],
            "l": [["a, b", None]],
            "s": [{"x": 1, "l": []}],
            "m": pa.array([[("k", 1.5)]], pa.map_(pa.string(), pa.float64())),
            "none": pa.array([None], pa.int32()),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    text = run("inspect", tmp_path / "t.parquet", "--verify").stdout
    assert text.split("first rows\n")[1].splitlines()[:6] == [
        "  b     true",
        "  text  it's, é",
        '  l     ["a, b", null]',
        "  s     {x: 1, l: []}",
        "  m     {k: 1.5}",
        "  none  -",
    ]
    assert text.endswith("\n  no problems\n")


def test_verify_finds_nothing_in_a_good_file_and_the_flipped_byte_in_a_bad_one(
    run: Run, file: Path
) -> None:
    found = shown(run, file, "--verify")
    assert found["verification"]["ok"] is True
    offset = shown(run, file, "--pages")["chunks"][0]["page_headers"][2]["offset"]
    data = bytearray(file.read_bytes())
    data[offset + 60] ^= 1
    file.write_bytes(data)
    done = run("inspect", file, "--verify", "--json")
    assert done.exit_code == 3, done.stderr
    assert json.loads(done.stdout)["verification"]["ok"] is False
    assert "id" in run("inspect", file, "--verify").stdout


def test_a_damaged_footer_is_an_error_with_place_and_hint(run: Run, file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-30] ^= 0xFF
    data[-8:-4] = (len(data)).to_bytes(4, "little")
    file.write_bytes(data)
    done = run("inspect", file)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "at byte" in done.stderr
    assert "hint: " in done.stderr


def test_it_does_not_need_the_whole_file(tmp_path: Path, file: Path) -> None:
    big = tmp_path / "big.parquet"
    noise = np.random.default_rng(0).integers(0, 2**62, 4_000_000)
    pq.write_table(pa.table({"n": noise}), big, use_dictionary=False, compression="none")
    from skipstone.parquet.reading.file import ParquetFile

    opened = ParquetFile(str(big))
    assert opened.size > 30_000_000
    assert opened.bytes_read <= 65_536
    assert inspect_parquet(str(big), InspectOptions(pages=True, rows=1)).arrays is not None


@golden
def test_an_encrypted_file_shows_what_can_be_seen(run: Run, tmp_path: Path) -> None:
    path = TESTING / "encrypt_columns_and_footer.parquet.encrypted"
    sealed = shown(run, path)
    assert sealed["encryption"]["footer_key_label"] == "kf"
    assert "metadata" not in sealed
    assert sealed["notes"] == [
        "the footer cannot be read: the key of the footer (label 'kf') was not given"
    ]
    nothing = run("inspect", path, "--verify")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert "label 'kf'" in nothing.stderr
    assert "hint: give the keys with --keys FILE" in nothing.stderr
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(KEYS))
    opened = shown(run, path, "--keys", keys, "--pages")
    assert opened["metadata"]["num_rows"] == 50
    assert [each["unavailable"] for each in opened["encryption"]["columns"]] == [None, None]
    floats = next(each for each in opened["chunks"] if each["column"] == "float_field")
    assert floats["page_headers"]
    assert not floats.get("trouble")
    keys.write_text(json.dumps({"footer_key": KEYS["footer_key"]}))
    partly = shown(run, path, "--keys", keys, "--pages")
    assert any("float_field" in note and "kc2" in note for note in partly["notes"])
    floats = next(each for each in partly["chunks"] if each["column"] == "float_field")
    assert floats["page_headers"] == []
    assert "kc2" in floats["trouble"][0]
    assert "ba_field" in partly["rows_shown"][0]
    text = run("inspect", path, "--keys", keys, "--verify").stdout
    assert text.endswith("  no problems in what was read\n")


@golden
@pytest.mark.parametrize("name", sorted(p.name for p in TESTING.glob("*.parquet")))
def test_every_golden_file_is_shown_as_one_document(name: str) -> None:
    found = inspect_parquet(
        str(TESTING / name), InspectOptions(pages=True, rows=0 if "large" in name else 1)
    )
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    rows = sum(group["num_rows"] for group in document["metadata"]["row_groups"])
    assert found.arrays is not None
    assert rows == found.arrays.row_starts[-1]
    for chunk in document["chunks"]:
        assert not chunk.get("trouble"), chunk
    assert str(found).startswith("parquet   ")


@golden
@pytest.mark.parametrize(
    "path", sorted(HYPARQUET.glob("*.offset_indexes.json")), ids=lambda p: p.name
)
def test_indexes_equal_those_that_another_reader_found(path: Path) -> None:
    name = path.name.removesuffix(".offset_indexes.json")
    found = inspect_parquet(str(HYPARQUET / f"{name}.parquet"), InspectOptions(pages=True, rows=0))
    ours = [
        [
            (each["offset"], each["compressed_page_size"], each["first_row_index"])
            for each in chunk.offset_index["page_locations"]
        ]
        for chunk in found.chunks or ()
        if chunk.offset_index is not None
    ]
    theirs: list[list[tuple[int, int, int]]] = []
    pending: list[Any] = [json.loads(path.read_text())]
    while pending:
        node = pending.pop(0)
        if isinstance(node, list):
            pending = node + pending
        elif isinstance(node, dict) and "page_locations" in node:
            theirs.append(
                [
                    (int(e["offset"]), e["compressed_page_size"], int(e["first_row_index"]))
                    for e in node["page_locations"]
                ]
            )
    assert theirs
    assert ours == theirs


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"key": "text:0123456789012345"}',
        '{"footer_key": "0123456789012345x"}',
        '{"footer_key": "text:short"}',
        '{"column_keys": ["text:0123456789012345"]}',
        '{"column_keys": {"a": 5}}',
    ],
)
def test_a_wrong_key_file_is_an_error_that_shows_no_key(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        decryption_from_json(text, file="keys.json")
    assert "keys.json" in str(caught.value)
    assert "0123456789012345" not in str(caught.value)
    assert "short" not in str(caught.value)
