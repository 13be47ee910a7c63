"""Parquet files read page by page: metadata, pages, indexes, filters, encryption, inspection."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skipstone import Decryption, ParquetFile
from skipstone.errors import UnsupportedError
from tests.accept.registry import Missing, point
from tests.folders import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.accept.workbench import Workbench

TESTING, HYPARQUET = GOLDEN / "parquet-testing" / "data", GOLDEN / "hyparquet" / "test" / "files"
KEYS = Decryption(
    footer_key=b"0123456789012345",
    column_keys={"double_field": b"1234567890123450", "float_field": b"1234567890123451"},
)
ROWS, GROUP, PAGE = 100_000, 10_000, 500


def lookups(path: Path, **options: Any) -> Path:
    """100,000 rows, 10 row groups, pages of 500 rows, page index, Bloom filter on ``key``.

    ``id`` ascends; ``key`` is even and in no order; ``tag`` has 5 values, a dictionary of its own
    in each row group ("t<group>-0" …); ``f`` is NaN in row 77,777 and below 1 elsewhere; ``n`` is a
    list of structs, nested.
    """
    number = np.arange(ROWS)
    values = number / ROWS
    values[77_777] = np.nan
    table = pa.table(
        {
            "id": number,
            "key": np.random.default_rng(7).permutation(ROWS) * 2,
            "tag": [f"t{at // GROUP}-{at % 5}" for at in range(ROWS)],
            "f": values,
            "n": pa.array([[{"x": at, "y": None}] * (at % 3) for at in range(ROWS)]),
        }
    )
    pq.write_table(
        table,
        path,
        row_group_size=GROUP,
        max_rows_per_page=PAGE,
        write_batch_size=PAGE,
        write_page_index=True,
        use_dictionary=["tag"],
        bloom_filter_options={"key": {"ndv": GROUP, "fpp": 0.001}},
        **options,
    )
    return path


def golden(name: str) -> Path:
    if not TESTING.is_dir():
        raise Missing("no golden files: ../shared/golden is absent")
    return TESTING / name


def refusal(kind: type[Exception], call: Callable[[], object]) -> str:
    """What the call says when it refuses."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")


@point("parquet: a footer is read and written back byte for byte, what nobody knows included")
def footer_again(bench: Workbench) -> None:
    golden("")
    files = sorted(TESTING.glob("*.parquet"))
    assert len(files) > 40, len(files)
    for path in files:
        data = path.read_bytes()
        length = int.from_bytes(data[-8:-4], "little")
        written = ParquetFile(str(path)).metadata.to_bytes()
        assert data[-8 - length : -8] == written, path.name


@point("parquet: 20,000 column chunks are a table to query, and so are row groups and pages")
def tables(bench: Workbench) -> None:
    wide = bench.home / "wide.parquet"
    columns = {f"c{at:04}": np.arange(20.0) + at for at in range(1000)}
    pq.write_table(pa.table(columns), wide, row_group_size=1, use_dictionary=False)
    chunks = ParquetFile(str(wide)).chunks()
    assert len(chunks) == 20_000, len(chunks)
    one = chunks.filter(pc.equal(chunks["column"], "c0500"))
    assert one["min_text"].to_pylist() == [f"{at}" for at in range(500, 520)], one["min_text"]
    file = ParquetFile(str(lookups(bench.home / "lookups.parquet")))
    assert file.row_groups()["num_rows"].to_pylist() == [GROUP] * 10
    pages = file.pages(["id"])
    data = pages.filter(pc.is_valid(pages["first_row_index"]))
    assert len(data) == ROWS // PAGE, len(data)


@point("parquet: fields newer than pyarrow are read: NaN counts and IEEE 754 order prune rightly")
def newer_fields(bench: Workbench) -> None:
    path = golden("floating_orders_nan_count.parquet")
    file = ParquetFile(str(path))
    counts = file.chunks()["nan_count"].to_pylist()
    assert any(count is not None for count in counts), counts
    orders = {next(iter(order.to_dict()), None) for order in file.metadata.column_orders or ()}
    assert "IEEE_754_TOTAL_ORDER" in orders, orders


@point("parquet: every codec and encoding of the golden files decodes, checked page by page")
def decoded(bench: Workbench) -> None:
    golden("")
    for path in sorted(TESTING.glob("*.parquet")):
        if "large_string_map" in path.name:
            continue
        found = ParquetFile(str(path)).verify()
        assert found.ok == ("corrupt-checksum" not in path.name), f"{path.name}: {found}"
        assert found.chunks == found.chunks_total, f"{path.name}: {found}"


@point("parquet: LZO and unknown encodings are refused in words, not decoded into nonsense")
def refused(bench: Workbench) -> None:
    path = bench.home / "plain.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3]}), path, use_dictionary=False, compression="snappy")
    file = ParquetFile(str(path))
    group = file.metadata.row_groups[0]
    meta = group.columns[0].meta_data
    assert meta is not None
    data = path.read_bytes()
    # codec is field 4 of ColumnMetaData: 0x15 and the zigzag number, right after the path.
    at = data.index(b"\x19\x18\x01a\x15\x02") + 4
    path.write_bytes(data[: at + 1] + b"\x06" + data[at + 2 :])
    text = refusal(UnsupportedError, lambda: ParquetFile(str(path)).read_rows())
    assert "LZO" in text, text


@point("parquet: one row is found through the page index, and nothing but its pages are read")
def point_lookup(bench: Workbench) -> None:
    path = lookups(bench.home / "lookups.parquet")
    file = ParquetFile(str(path))
    plan = file.plan("id = 43210")
    detail = plan.details[0]
    assert detail.row_groups == (4,), detail
    assert detail.rows is not None
    assert len(detail.rows) == PAGE, detail
    before = file.bytes_read
    found = file.query("id = 43210", columns=["key", "tag", "n"])
    assert found.num_rows == 1, found
    assert found["n"].to_pylist() == [[{"x": 43210, "y": None}] * (43210 % 3)], found
    assert file.bytes_read - before < path.stat().st_size / 20, file.bytes_read - before


@point("parquet: an absent key is refused by 32 bytes of a Bloom filter in each row group")
def absent_key(bench: Workbench) -> None:
    path = lookups(bench.home / "lookups.parquet")
    file = ParquetFile(str(path))
    before = file.bytes_read
    assert file.query("key = 12345").num_rows == 0  # odd: within min and max, and in no row
    spent = file.bytes_read - before
    size = int(pc.sum(file.chunks()["bloom_filter_length"]).as_py())
    assert spent < size / 10, f"{spent} bytes read of filters of {size}"
    assert file.query("key = 12346", ["key"])["key"].to_pylist() == [12346]
    assert file.count("key IN (1, 3, 5, 7)") == 0


@point("parquet: a dictionary proves that a value is in no row of a row group")
def dictionaries(bench: Workbench) -> None:
    path = bench.home / "dictionary.parquet"
    groups = [[f"{group}-a", f"{group}-z"] * 5000 for group in range(8)]
    tags = [tag for group in groups for tag in ["a", *group[1:-1], "z"]]
    table = pa.table({"tag": tags, "wide": np.random.default_rng(1).random(80_000)})
    pq.write_table(table, path, row_group_size=10_000, write_page_index=False)
    plan = ParquetFile(str(path)).plan("tag = '5-a'")
    assert plan.details[0].row_groups == (5,), plan


@point("parquet: NaN is the largest and found, where statistics leave it out")
def nan_found(bench: Workbench) -> None:
    file = ParquetFile(str(lookups(bench.home / "lookups.parquet")))
    assert file.query("f > 100", ["id"])["id"].to_pylist() == [77_777]
    assert file.query("f = double('NaN')", ["id"])["id"].to_pylist() == [77_777]
    assert file.count("f < 0.5") == 50_000


@point("parquet: any rows and columns, nested too, equal the slice of the whole, page by page")
def page_fetch(bench: Workbench) -> None:
    path = lookups(bench.home / "lookups.parquet")
    whole = pq.read_table(path)
    for rows in ([(0, 1)], [(99_999, 100_000)], [(4_990, 5_010), (50_000, 50_001)]):
        found = ParquetFile(str(path)).read_rows(["n", "tag", "f"], rows)
        wanted = pa.concat_tables([whole.slice(a, b - a) for a, b in rows])
        wanted = wanted.select(["n", "tag", "f"]).combine_chunks()
        assert found.combine_chunks().to_pydict()["n"] == wanted.to_pydict()["n"], rows
        assert found["tag"].to_pylist() == wanted["tag"].to_pylist(), rows
    file = ParquetFile(str(path))
    before = file.bytes_read
    file.read_rows(["id"], [(31_234, 31_300)])
    assert file.bytes_read - before < 3 * PAGE * 8, file.bytes_read - before


@point("parquet: rows are found in files without a page index, nested v1 pages too")
def without_index(bench: Workbench) -> None:
    path = bench.home / "old.parquet"
    values = [[at] * (at % 4) for at in range(30_000)]
    table = pa.table({"id": np.arange(30_000), "l": pa.array(values)})
    pq.write_table(table, path, data_page_size=2_000, write_batch_size=100, use_dictionary=False)
    found = ParquetFile(str(path)).read_rows(["l", "id"], [(17_000, 17_003)])
    assert found["l"].to_pylist() == values[17_000:17_003], found
    assert found["id"].to_pylist() == [17_000, 17_001, 17_002], found


@point("parquet: _metadata summaries are read, and reads follow file_path")
def summaries(bench: Workbench) -> None:
    parts: list[Any] = []
    for at in range(3):
        one = pa.table({"x": np.arange(10) + 10 * at})
        path = bench.home / f"part {at}.parquet"
        pq.write_table(one, path, metadata_collector=parts)
        parts[-1].set_file_path(path.name)
    pq.write_metadata(one.schema, bench.home / "_metadata", metadata_collector=parts)
    file = ParquetFile(str(bench.home / "_metadata"))
    assert file.read_rows(["x"], [(9, 12), (29, 30)])["x"].to_pylist() == [9, 10, 11, 29]
    assert file.chunks()["file_path"].to_pylist() == [f"part {at}.parquet" for at in range(3)]


@point("parquet: encrypted files are read with keys given directly; a column without key is named")
def encrypted(bench: Workbench) -> None:
    reference: pa.Table | None = None
    for name in ("and_footer", "and_footer_ctr", "plaintext_footer", "and_footer_aad"):
        path = golden(f"encrypt_columns_{name}.parquet.encrypted")
        rows = ParquetFile(str(path), decryption=KEYS).read_rows(["float_field", "ba_field"])
        assert rows.num_rows == 50, (name, rows.num_rows)
        reference = rows if reference is None else reference
        assert rows["float_field"].to_pylist() == reference["float_field"].to_pylist(), name
    only = Decryption(footer_key=b"0123456789012345")
    path = golden("encrypt_columns_and_footer.parquet.encrypted")
    partly = ParquetFile(str(path), decryption=only)
    assert partly.read_rows(["ba_field"]).num_rows == 50
    text = refusal(LookupError, lambda: partly.read_rows(["float_field"]))
    assert "kc2" in text, text
    assert "float_field" in text, text


@point("parquet: inspect shows a file down to its pages as one document in the spec's names")
def inspect(bench: Workbench) -> None:
    path = lookups(bench.home / "a b é%=.parquet", write_page_checksum=True)
    ran = bench.skipstone("inspect", path, "--pages", "--column", "id", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["metadata"]["num_rows"] == ROWS
    locations = document["chunks"][3]["offset_index"]["page_locations"]
    assert [each["first_row_index"] for each in locations] == list(range(0, GROUP, PAGE))
    assert document["chunks"][3]["column_index"]["boundary_order"] == "ASCENDING"
    text = bench.skipstone("inspect", path, "--verify")
    assert text.code == 0, text.err
    assert "no problems" in text.out, text.out[-500:]
    data = bytearray(path.read_bytes())
    data[locations[0]["offset"] + 100] ^= 4
    path.write_bytes(data)
    assert bench.skipstone("inspect", path, "--verify", "--column", "id").code == 3
