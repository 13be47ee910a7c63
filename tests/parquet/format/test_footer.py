"""Where the footer of a file lies: the last eight bytes, and what they may not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import FormatError
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail, read_metadata

if TYPE_CHECKING:
    from pathlib import Path


def test_a_tail_says_where_the_footer_begins() -> None:
    tail = Tail.from_bytes((100).to_bytes(4, "little") + b"PAR1", 1_000)
    assert (tail.offset, tail.length, tail.encrypted) == (892, 100, False)
    assert Tail.from_bytes(tail.to_bytes(), 1_000) == tail
    encrypted = Tail.from_bytes((100).to_bytes(4, "little") + b"PARE", 1_000)
    assert encrypted.encrypted
    assert encrypted.to_bytes()[-4:] == b"PARE"


@pytest.mark.parametrize(
    "data, size",
    [
        (b"\x01\0\0\0PAR2", 1_000),
        (b"", 0),
        (b"PAR1", 4),
        (b"\0\0\0\0PAR1", 11),
        ((1_000).to_bytes(4, "little") + b"PAR1", 1_000),
        (b"\xff\xff\xff\xffPAR1", 1_000),
    ],
)
def test_a_tail_that_is_none(data: bytes, size: int) -> None:
    with pytest.raises(FormatError):
        Tail.from_bytes(data, size)


def test_a_footer_that_fills_the_file_to_the_first_magic_is_the_longest() -> None:
    longest = 1_000 - 12
    assert Tail.from_bytes(longest.to_bytes(4, "little") + b"PAR1", 1_000).offset == 4
    with pytest.raises(FormatError, match="longer than the file"):
        Tail.from_bytes((longest + 1).to_bytes(4, "little") + b"PAR1", 1_000)


def test_an_encrypted_footer_is_not_read_as_a_plain_one() -> None:
    with pytest.raises(FormatError, match="encrypted"):
        read_metadata(b"PARE" + b"x" * 20 + (20).to_bytes(4, "little") + b"PARE")
    assert TAIL_LENGTH == 8


def test_an_unknown_physical_type_is_named_with_its_column_and_place(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {"whole": pa.array([1, 2], pa.int32()), "half": pa.array([0.5, 1.5])}
    pq.write_table(pa.table(columns), path, store_schema=False)
    data = path.read_bytes()
    # Of the schema element: the field type (5: DOUBLE), optional, four bytes of name.
    place = data.index(b"\x15\x0a\x25\x02\x18\x04half") + 1
    path.write_bytes(data[:place] + b"\x0d" + data[place + 1 :])
    with pytest.raises(FormatError, match=r"unknown physical type -7 of column half") as found:
        skipstone.ParquetFile(path)
    assert (found.value.file, found.value.offset) == (str(path), place + 1)
    assert "without this column" in found.value.hint
