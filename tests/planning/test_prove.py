"""``check(deep=True)`` on indexes of texts: it accepts true filters, and finds wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.facts.compact import compact
from skipstone.facts.slice_upkeep import Slicing
from skipstone.indexes.text import NGrams, TextIndex, Tokens
from skipstone.indexes.text_keys import gram_keys, token_keys
from skipstone.pruning.kind import Builder, Built, Chunk

if TYPE_CHECKING:
    from collections.abc import Iterable
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
    compact(table.store, table.listing, Slicing(text_files=2, text_group=2))
    assert Table(str(root)).check(deep=True).ok


@pytest.mark.parametrize("kind", [LossyTokens, LossyGrams])
def test_one_key_that_a_filter_lacks_is_found(root: Path, kind: type[TextIndex]) -> None:
    table = Table(str(root))
    table.build(indexes=[kind("m", fpp=0.001)])
    report = table.check(deep=True)
    wrong = [text for text in report.untrue if "says no row has" in text]
    assert wrong, str(report)
    assert all("0.parquet" in text and "zebra" in text for text in wrong)


@pytest.mark.parametrize("kind", [Tokens, NGrams])
def test_the_filter_of_another_file_is_found(root: Path, kind: type[TextIndex]) -> None:
    table = Table(str(root))
    table.build(indexes=[swapped(kind)])
    report = table.check(deep=True)
    assert len(report.untrue) > 100 * FILES
    assert {text.split(": ")[0].rsplit("/", 1)[-1] for text in report.untrue} == {
        f"{file}.parquet" for file in range(FILES)
    }
