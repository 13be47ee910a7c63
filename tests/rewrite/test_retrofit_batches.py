"""Pages made ready batch by batch in several threads: the file is that of one batch, errors end."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.format.bloom_filter import BloomFilter, optimal_bytes, xxh64_values
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.values import ByteArrays
from skipstone.parquet.writing import chunk_copier as chunk_copy
from skipstone.parquet.writing.chunk_statistics import BloomFilterBuilder
from skipstone.rewrite import retrofit
from skipstone.rewrite import retrofit_writer as refitting

if TYPE_CHECKING:
    from pathlib import Path

NAN = float("nan")


def lay(path: Path, *, version: str = "1.0", rows: int = 3_000) -> Path:
    """Pages of 60 rows, so that small windows hold one or two; a dictionary that falls back to
    plain values; lists; a long text that is larger than the window."""
    n = range(rows)
    data = pa.table(
        {
            "id": n,
            "d": [f"value {i * 7 % 50}" for i in n],
            "b": [f"{i:>40}" if i > 200 else "x" for i in n],
            "l": [[j + 0.5 for j in range(i % 5)] if i % 4 else None for i in n],
            "f": [NAN if i % 90 == 1 else -0.0 for i in n],
            "t": ["é" * 5_000 if i == 1_234 else None for i in n],
        }
    )
    pq.write_table(
        data,
        path,
        row_group_size=1_000,
        max_rows_per_page=60,
        dictionary_pagesize_limit=4_000,
        data_page_version=version,
    )
    return path


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("page_rows", [None, 25])
@pytest.mark.parametrize("window,ahead,held", [(40, 1, 1), (700, 50, 1 << 20), (90, 3, 1)])
def test_batches_of_any_size_give_the_same_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    page_rows: int | None,
    window: int,
    ahead: int,
    held: int,
) -> None:
    path = lay(tmp_path / "a.parquet", version=version)
    bloom = {"id": 0.01, "d": 0.01, "b": 0.001, "l": 0.1}
    retrofit(path, bloom=bloom, page_rows=page_rows, output=tmp_path / "one.parquet")
    monkeypatch.setattr(chunk_copy, "_WINDOW", window)
    monkeypatch.setattr(refitting, "_AHEAD", ahead)
    monkeypatch.setattr(refitting, "_HELD", held)
    retrofit(path, bloom=bloom, page_rows=page_rows, output=tmp_path / "many.parquet")
    assert (tmp_path / "many.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()


@pytest.mark.parametrize("column", ["d", "id", "l"])
def test_a_damaged_page_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    """The first page of a chunk: of ``d`` the dictionary, for which all others of it wait."""
    path = lay(tmp_path / "a.parquet")
    metadata = pq.ParquetFile(path).metadata
    group = metadata.row_group(1)
    at = next(
        each.dictionary_page_offset or each.data_page_offset
        for each in map(group.column, range(group.num_columns))
        if each.path_in_schema.startswith(column)
    )
    whole = bytearray(path.read_bytes())
    whole[at + 30 : at + 60] = b"\xff" * 30
    path.write_bytes(whole)
    monkeypatch.setattr(chunk_copy, "_WINDOW", 60)
    with pytest.raises(FormatError) as caught:
        retrofit(path, bloom={"d": 0.01})
    assert caught.value.file == str(path)
    assert path.read_bytes() == bytes(whole)
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]


@given(
    seed=st.integers(0, 1 << 30),
    count=st.sampled_from([0, 1, 50, 3_000, 65_536, 65_537, 200_000]),
    distinct=st.sampled_from([1, 40, 10_000, 1 << 40]),
    fpp=st.sampled_from([0.5, 0.01, 0.0001]),
    parts=st.integers(1, 7),
    kind=st.sampled_from(["<i8", "<f8", "<i4", "text"]),
)
def test_a_filter_is_that_of_its_distinct_values(
    seed: int, count: int, distinct: int, fpp: float, parts: int, kind: str
) -> None:
    """As if it had been filled at that size; as large as the number wants, unless that lies near
    to where the next size begins."""
    found = np.random.default_rng(seed).integers(0, distinct, count)
    values = (
        ByteArrays.from_arrow(pa.array(found.astype(str).tolist(), pa.binary()))
        if kind == "text"
        else found.astype(kind)
    )
    filling = BloomFilterBuilder(count, fpp)
    for part in range(parts):
        filling.add(values[count * part // parts : count * (part + 1) // parts])
    hashes = xxh64_values(values)
    number = len(np.unique(hashes))
    assert filling.ndv == pytest.approx(number, rel=0.01, abs=1)
    if count <= 65_536:
        assert filling.ndv == number
    made = filling.filter()
    sizes = {optimal_bytes(round(number * near), fpp) for near in (0.99, 1, 1.01)}
    assert made.num_bytes in sizes
    straight = BloomFilter.of_size(made.num_bytes)
    straight.insert(hashes)
    if kind == "<f8" and 0 in found:  # equal to a value, and stored otherwise
        straight.insert(xxh64_values(np.array([-0.0])))
    assert np.array_equal(made.blocks, straight.blocks)


def test_filters_of_a_file_that_does_not_pay_for_compiled_code(tmp_path: Path) -> None:
    """One process writes it twice: before numba is imported, and with the compiled loops."""
    n = np.arange(70_000)
    data = pa.table({"key": n * 7, "half": n / 2, "text": [f"name {i}" for i in n.tolist()]})
    pq.write_table(data, tmp_path / "data.parquet", use_dictionary=["text"])
    script = (
        "import sys\n"
        "from skipstone.parquet.format.bloom_filter import COMPILED\n"
        "from skipstone.rewrite import retrofit\n"
        "filters = dict.fromkeys(('key', 'half', 'text'), 0.01)\n"
        "report = retrofit('data.parquet', bloom=filters, output='plain.parquet')\n"
        "assert report.added['bloom filter'] == 3, report\n"
        "assert 'numba' not in sys.modules\n"
        "COMPILED.load()\n"
        "retrofit('data.parquet', bloom=filters, output='compiled.parquet')\n"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    plain, compiled = (tmp_path / f"{name}.parquet" for name in ("plain", "compiled"))
    assert plain.read_bytes() == compiled.read_bytes()
    for column in data.column_names:
        made = ParquetFile(plain).bloom_filter(0, column)
        assert made is not None
        values = data[column].combine_chunks()
        stored = (
            ByteArrays.from_arrow(values.cast(pa.binary()))
            if column == "text"
            else values.to_numpy()
        )
        assert made.check(xxh64_values(stored)).all()
