"""Whole columns by Arrow equal those page by page, and errors name their file once."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.reading.file_reader import names_its_file
from skipstone.parquet.reading.whole_columns import read_whole
from skipstone.storage import LocalStorage
from skipstone.storage.base import metered
from tests.parquet.reading.tables import tables, write, writer_settings
from tests.parquet.reading.test_page_fetch import same

if TYPE_CHECKING:
    from collections.abc import Iterator


@given(data=st.data(), table=tables(depth=1), settings=writer_settings())
def test_the_same_as_page_by_page(data: st.DataObject, table: pa.Table, settings: Any) -> None:
    """Any types and settings; columns in any order. What is nested, or has a name with a dot beside
    it, is left to the pages."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "a é.parquet"
        write(table, path, settings)
        names = data.draw(st.lists(st.sampled_from(table.column_names), min_size=1, unique=True))
        file = ParquetFile(path)
        found = read_whole(file, file.selection.fields([f"`{each}`" for each in names]))
        flat = not any(pa.types.is_nested(table.schema.field(each).type) for each in names)
        dotted = any("." in each for each in table.column_names)
        if dotted or not flat:
            assert found is None
        elif found is not None:
            plain = file.read_rows(names).replace_schema_metadata(None)
            same(found.replace_schema_metadata(None), plain)
        else:
            assert not table.num_rows


def _file(path: Path) -> Path:
    table = pa.table({"n": range(1_000), "s": [f"s{n % 7}" for n in range(1_000)]})
    pq.write_table(table, path, row_group_size=300, write_page_checksum=True, compression="none")
    return path


def test_only_the_chunks_that_are_asked_for_are_read(tmp_path: Path) -> None:
    """Four row groups of two columns: four chunks are read, and nothing of the others."""
    file = ParquetFile(_file(tmp_path / "a.parquet"))
    (field,) = file.selection.fields(["s"])
    leaf = field.shape.leaves[0]
    places = [file.chunk_pages.place((group, leaf)) for group in range(4)]
    storage = file.reader.storage
    assert isinstance(storage, LocalStorage)
    storage.gap = 0
    with metered() as meter:
        found = read_whole(file, [field])
    assert found is not None
    assert found.column("s").to_pylist() == [f"s{n % 7}" for n in range(1_000)]
    assert meter.bytes_read == sum(place.stop - place.start for place in places)


def test_a_damaged_page_is_told_by_who_knows_the_place(tmp_path: Path) -> None:
    path = _file(tmp_path / "a.parquet")
    place = ParquetFile(path).chunk_pages.place((1, 0))
    held = bytearray(path.read_bytes())
    held[place.stop - 3] ^= 1
    path.write_bytes(held)
    file = ParquetFile(path)
    assert read_whole(file, file.selection.fields(["n"])) is None
    assert not file.verify().ok


class Reading:
    path = "/data/é.parquet"

    @names_its_file
    def fails(self, file: str | None) -> int:
        raise FormatError("a page", file=file, offset=7, expected=1, got=2)

    @names_its_file
    def gives(self, count: int) -> Iterator[int]:
        yield from range(count)
        raise FormatError("a page", offset=count)

    @names_its_file
    def answers(self) -> int:
        return 3


def test_the_file_is_added_and_nothing_lost() -> None:
    with pytest.raises(FormatError) as caught:
        Reading().fails(None)
    error = caught.value
    assert (error.file, error.offset, error.expected, error.got) == (Reading.path, 7, 1, 2)
    assert error.message == "/data/é.parquet: at byte 7: a page: expected 1, got 2"
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)


def test_another_file_stays() -> None:
    with pytest.raises(FormatError) as caught:
        Reading().fails("/data/other")
    assert caught.value.file == "/data/other"
    assert caught.value.__cause__ is None


def test_generators_while_they_are_read() -> None:
    seen: list[object] = []
    with pytest.raises(FormatError) as caught:
        seen.extend(Reading().gives(2))
    assert (caught.value.file, caught.value.offset) == (Reading.path, 2)
    assert list(_first(Reading().gives(2))) == [0]
    assert Reading().answers() == 3


def _first(values: Iterator[int]) -> Iterator[int]:
    yield next(values)
