"""``check(deep=True)`` on indexes of texts: it accepts true filters, and finds wrong ones."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.facts.compact import compact
from skipstone.facts.slice_upkeep import Slicing
from skipstone.indexes.bloom import Bloom
from skipstone.indexes.row_group_filters import GroupFilters
from skipstone.indexes.text import NGrams, TextIndex, Tokens
from skipstone.indexes.text_keys import gram_keys, token_keys
from skipstone.pruning.kind import Builder, Built, Chunk
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Found = tuple[int, NDArray[np.uint64]]

FILES = 4


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """File f has 200 lines: each has words of its own, some are not ASCII, one is null."""
    home = tmp_path / "t"
    home.mkdir()
    for file in range(FILES):
        lines = [
            f"item {file}-{row}: 100% of a_b in Größe {row * 7919 % 997}" for row in range(198)
        ]
        texts = pa.array([*lines, None, "" if file else "The zebra stands alone"], pa.string())
        pq.write_table(pa.table({"m": texts}), home / f"{file}.parquet")
    return home


class _Lossy:
    """Leaves out the key of one word, or of one gram."""

    lost: NDArray[np.uint64]

    def without(self, found: Iterable[Found]) -> Iterable[Found]:
        for which, keys in found:
            yield which, keys[~np.isin(keys, self.lost)]


class LossyTokens(_Lossy, Tokens):
    lost = next(token_keys(np.frombuffer(b"zebra", np.uint8), np.array([0]), np.array([5])))

    def keys(self, codes, offsets):  # type: ignore[no-untyped-def]
        return self.without(super().keys(codes, offsets))


class LossyGrams(_Lossy, NGrams):
    lost = next(gram_keys(np.frombuffer(b"bra", np.uint8), np.array([0, 3]), 3))

    def keys(self, codes, offsets):  # type: ignore[no-untyped-def]
        return self.without(super().keys(codes, offsets))


class Swapped(Builder):
    """Builds from the texts of another file."""

    def __init__(self, real: Builder) -> None:
        self.real = real
        self.real.add(Chunk(pa.array(["other words of another file"] * 200, pa.string())))

    def add(self, chunk: Chunk) -> None:
        pass

    def finish(self) -> Built:
        return self.real.finish()


def swapped(kind: type[TextIndex]) -> TextIndex:
    class Other(kind):  # type: ignore[misc, valid-type]
        def build(self, type: pa.DataType, budget: int) -> Builder:
            return Swapped(super().build(type, budget))

    return Other("m", fpp=0.001)


def test_true_filters_are_true(root: Path) -> None:
    table = Table(str(root))
    table.build(indexes=["m:ngram", "m:tokens", "m:bloom"])
    report = table.check(deep=True)
    assert report.ok, str(report)
    assert report.sampled == FILES
    assert report.filters == 3 * FILES
    compact(table.store, table.listing, Slicing(text_files=2, text_group=2))
    assert Table(str(root)).check(deep=True).ok


@pytest.mark.parametrize("kind", [LossyTokens, LossyGrams])
def test_one_key_that_a_filter_lacks_is_found(root: Path, kind: type[TextIndex]) -> None:
    table = Table(str(root))
    table.build(indexes=[kind("m", fpp=0.001)])
    wrong = [text for text in table.check(deep=True).untrue if " lacks " in text]
    assert len(wrong) == 1
    assert "0.parquet" in wrong[0]
    assert wrong[0].endswith("that its values need: the first is 'The zebra stands alone'")


@pytest.mark.parametrize("kind", [Tokens, NGrams])
def test_the_filter_of_another_file_is_found(root: Path, kind: type[TextIndex]) -> None:
    table = Table(str(root))
    table.build(indexes=[swapped(kind)])
    report = table.check(deep=True)
    lacking = [text for text in report.untrue if "bits that its values need" in text]
    assert [text.split(": ")[0].rsplit("/", 1)[-1] for text in lacking] == [
        f"{file}.parquet" for file in range(FILES)
    ]
    assert len(report.untrue) > 10 * FILES  # and single predicates say so too


class OneBitLess(Builder):
    """Clears one of the bits of the filter, or of those of the row groups."""

    def __init__(self, real: Builder, place: float, of_row_groups: bool) -> None:
        self.real, self.place, self.of_row_groups = real, place, of_row_groups

    def cut(self, rows: Sequence[int]) -> None:
        self.real.cut(rows)

    def add(self, chunk: Chunk) -> None:
        self.real.add(chunk)

    def finish(self) -> Built:
        made = self.real.finish()
        if self.of_row_groups:
            assert made.row_groups is not None
            data, head = made.row_groups
            return replace(made, row_groups=(self._of_row_groups(data, head), head))
        assert made.value is not None
        blob = BloomFilterMetaData.from_bytes(made.value[0].as_py())
        words = self._without_one(blob.filter.words.copy().view(np.uint8)).view(np.uint64)
        blob = BloomFilterMetaData.of(replace(blob.filter, words=words))
        return replace(made, value=pa.array([blob.to_bytes()], pa.binary()))

    def _of_row_groups(self, data: bytes, head: int) -> bytes:
        table = GroupFilters.from_bytes(data[:head], len(data)).tables[0]
        end = table.start + table.blocks * table.stride
        rows = np.frombuffer(data[table.start : end], np.uint8).reshape(-1, table.stride).copy()
        rows[:, :-4] = self._without_one(rows[:, :-4].reshape(-1)).reshape(len(rows), -1)
        for row in rows:
            row[-4:] = np.frombuffer(zlib.crc32(row[:-4].tobytes()).to_bytes(4, "little"), np.uint8)
        return data[: table.start] + rows.tobytes() + data[end:]

    def _without_one(self, filter: NDArray[np.uint8]) -> NDArray[np.uint8]:
        bits = np.unpackbits(filter, bitorder="little")
        held = np.flatnonzero(bits)
        bits[held[int(self.place * (len(held) - 1))]] = 0
        return np.packbits(bits, bitorder="little")


@pytest.mark.parametrize("of_row_groups", [False, True])
@pytest.mark.parametrize("place", [0.0, 0.6])
@pytest.mark.parametrize("kind", [NGrams, Tokens])
def test_each_bit_that_is_cleared_is_found(
    tmp_path: Path, kind: type[TextIndex], place: float, of_row_groups: bool
) -> None:
    class Kind(kind):  # type: ignore[misc, valid-type]
        def build(self, type: pa.DataType, budget: int) -> Builder:
            return OneBitLess(super().build(type, budget), place, of_row_groups)

    home = tmp_path / "t"
    home.mkdir()
    lines = [f"{at * 7919:060x} and {at} of {at % 97}" * 2 for at in range(9_000)]
    pq.write_table(pa.table({"m": lines}), home / "0.parquet", row_group_size=3_000)
    table = Table(str(home))
    table.build(indexes=[Kind("m")])
    wrong = table.check(deep=True).untrue[0]
    assert ("row group" in wrong) is of_row_groups
    assert " lacks 1 of " in wrong


def test_all_values_of_a_bloom_filter_are_compared(tmp_path: Path) -> None:
    class Kind(Bloom):
        def build(self, type: pa.DataType, budget: int) -> Builder:
            return OneBitLess(super().build(type, budget), 0.5, False)

    home = tmp_path / "t"
    home.mkdir()
    pq.write_table(pa.table({"n": range(50_000)}), home / "0.parquet")
    table = Table(str(home))
    table.build(indexes=[Kind("n")])
    assert " lacks 1 of " in table.check(deep=True).untrue[0]
