"""Footers that are scanned together: each equal to what the scan of one gives, or left to it."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone._numba import CompiledKernels
from skipstone.parquet.format.footer import find_footer
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.footer_lanes import scan_many
from skipstone.parquet.format.footer_scan import COMPILED, FooterKernels
from skipstone.parquet.thrift.kernel_lanes import FEW
from tests.fuzz.mutate import mutated
from tests.parquet.format.files import golden_files
from tests.parquet.format.wire import footer_of

if TYPE_CHECKING:
    from pathlib import Path


def written(seed: int, **options: Any) -> bytes:
    """The footer of a file of random values; numbers of rows and lengths of texts differ."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 3_000))
    table = pa.table(
        {
            "i": pa.array(rng.integers(-(2**40), 2**40, rows), mask=rng.random(rows) < 0.1),
            "f": rng.random(rows),
            "s": [f"{'x' * int(n)}-{n}" for n in rng.integers(0, 30, rows)],
            "b": rng.random(rows) < 0.5,
            "l": [[1.5] * int(n) for n in rng.integers(0, 3, rows)],
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=-(-rows // 2), **options)
    return bytes(find_footer(file.getvalue())[1])


def assert_same(found: FooterArrays, footer: bytes, base: int) -> None:
    alone = FooterArrays.scan(footer, base)
    assert (found.data, found.base, found.end) == (alone.data, base, alone.end)
    assert found.scanned.fields == alone.scanned.fields
    for name in ("groups", "wide", "narrow", "types"):
        one, other = getattr(found.scanned, name), getattr(alone.scanned, name)
        assert one.dtype == other.dtype
        assert np.array_equal(one, other), name
    assert np.array_equal(found.row_starts, alone.row_starts)
    assert (found.num_rows, found.version, found.schema) == (
        alone.num_rows,
        alone.version,
        alone.schema,
    )
    for field in ("start", "stop", "num_values", "encrypted", "type", "codec"):
        assert np.array_equal(found.chunk(field), alone.chunk(field))


def checked(footers: list[bytes]) -> list[FooterArrays | None]:
    bases = [7 * at for at in range(len(footers))]
    found = scan_many(footers, bases)
    assert len(found) == len(footers)
    for each, footer, base in zip(found, footers, bases, strict=True):
        if each is not None:
            assert_same(each, footer, base)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False, "write_statistics": False},
        {"write_page_index": True, "store_schema": False, "compression": "none"},
        {"data_page_version": "2.0", "use_byte_stream_split": ["f"], "use_dictionary": ["s"]},
    ],
)
def test_files_of_one_writer_are_scanned_together(options: dict[str, Any]) -> None:
    footers = [written(seed, **options) for seed in range(3 * FEW)]
    found = checked(footers)
    assert sum(each is not None for each in found) >= 2 * FEW
    for each, footer in zip(found, footers, strict=True):
        if each is not None:
            assert each.metadata == FooterArrays.scan(footer).metadata


def test_few_footers_are_left_to_the_scan_of_one() -> None:
    assert scan_many([written(0)] * (FEW - 1), [0] * (FEW - 1)) == [None] * (FEW - 1)
    assert scan_many([], []) == []


def test_few_long_footers_are_left_to_loaded_kernels() -> None:
    COMPILED.load()
    footer = written(0)
    few, many = [footer] * (2 * FEW), [footer] * len(footer)
    assert scan_many(few, [0] * len(few), COMPILED) == [None] * len(few)
    assert None not in scan_many(many, [0] * len(many), COMPILED)
    absent = CompiledKernels[FooterKernels](module="skipstone.no_such_module")
    assert None not in scan_many(few, [0] * len(few), absent)
    assert absent.spent > len(footer)


def test_files_of_several_writers_are_told_apart() -> None:
    kinds = [
        [written(seed, **options) for seed in range(2 * FEW)]
        for options in ({}, {"write_page_index": True}, {"use_dictionary": False})
    ]
    found = checked([footer for footers in zip(*kinds, strict=True) for footer in footers])
    assert sum(each is not None for each in found) > 3 * FEW


def test_golden_footers_of_every_writer(golden: Path) -> None:
    together = 0
    for path in golden_files(golden):
        found = checked([footer_of(path)[0]] * FEW)
        together += all(each is not None for each in found)
    assert together > 80


FOOTERS = [written(seed) for seed in range(FEW)]


@given(st.integers(0, 1 << 32), st.integers(0, 2 * FEW))
def test_damaged_footers_are_refused_or_read_and_never_differently(seed: int, sound: int) -> None:
    damaged = [mutated(FOOTERS[at % FEW], seed + at) for at in range(2 * FEW)]
    found = checked([*damaged, *(FOOTERS * 2)[:sound]])
    for each, footer in zip(found, damaged, strict=False):
        if each is None:
            continue
        FooterArrays.scan(footer)


@given(st.integers(0, 1 << 32))
def test_copies_of_a_damaged_footer(seed: int) -> None:
    checked([mutated(FOOTERS[0], seed)] * (FEW + 1) + FOOTERS)


def test_values_at_the_ends_of_their_ranges() -> None:
    """A row count in the footer is a varint: each is replaced by one of another length."""
    footer = FOOTERS[0]
    scanned = FooterArrays.scan(footer)
    kind, start, stop = scanned.scanned.fields[3]
    assert kind == 6
    made = []
    for value in (0, 1, 63, 64, 1 << 20, 1 << 40, 1 << 60, (1 << 63) - 1, *range(2 * FEW)):
        zigzag, number = bytearray(), value << 1
        while number >= 0x80:
            zigzag.append(number & 0x7F | 0x80)
            number >>= 7
        made.append(footer[:start] + bytes([*zigzag, number]) + footer[stop:])
    # Negative, and longer than 64 bits.
    made += [footer[:start] + b"\x01" + footer[stop:]] * 2
    made += [footer[:start] + b"\xff" * 10 + b"\x01" + footer[stop:]]
    found = checked(made)
    assert [each is None for each in found[-3:]] == [True] * 3
    assert all(each is not None for each in found[:-3])


@pytest.mark.parametrize("cut", [1, 2, 10, 100])
def test_cut_footers(cut: int) -> None:
    found = checked([each[:-cut] for each in FOOTERS] + FOOTERS)
    assert [each is None for each in found[:FEW]] == [True] * FEW


def test_derived_values_are_those_of_each_footer() -> None:
    def derive(footer: FooterArrays, leaf: int) -> np.ndarray[Any, Any]:
        return footer.chunk("num_values")[:, leaf] * 2

    for each, footer in zip(checked(FOOTERS), FOOTERS, strict=True):
        assert each is not None
        alone = FooterArrays.scan(footer)
        for leaf in (0, 2):
            for one in (each, alone):
                assert np.array_equal(one.by_row_group(derive, leaf), derive(alone, leaf))
        chosen = each.select([1])
        assert np.array_equal(chosen.by_row_group(derive, 0), derive(alone, 0)[1:])


def test_a_table_of_many_files_reads_the_same(tmp_path: Path) -> None:
    """Among files of one writer are files of others, one that is no Parquet, and long footers."""
    import skipstone

    for at in range(3 * FEW):
        options: dict[str, Any] = {} if at % 5 else {"compression": "zstd", "use_dictionary": False}
        table = pa.table({"k": np.arange(at + 1) + 100 * at, "t": [f"t{at}" * 3] * (at + 1)})
        if at == 7:  # a footer longer than what is read at first
            table = table.replace_schema_metadata({"long": "x" * 200_000})
        pq.write_table(table, tmp_path / f"f{at:03}.parquet", **options)
    table = skipstone.Table(str(tmp_path))
    assert table.count() == sum(range(1, 3 * FEW + 1))
    assert table.query("k = 705")["t"].to_pylist() == ["t7" * 3]
    assert table.count("k >= 700 and k < 1100") == 8 + 9 + 10 + 11
    (tmp_path / "f001.parquet").write_bytes(b"PAR1 nothing of the kind PAR1")
    os.utime(tmp_path)
    with pytest.raises(skipstone.SkipstoneError, match="f001"):
        skipstone.Table(str(tmp_path)).count("k = 705")
