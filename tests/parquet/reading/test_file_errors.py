"""Errors that leave a file's methods name the file, once, and keep where and what."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from skipstone.errors import FormatError
from skipstone.parquet.reading.file_reader import names_its_file

if TYPE_CHECKING:
    from collections.abc import Iterator


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
