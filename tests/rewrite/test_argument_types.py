"""Arguments of other types: an error that names the argument and what it is, before any write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import write_table
from skipstone.rewrite import add_index_pages, encrypt, retrofit, split_columns
from skipstone.salvage import salvage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    "verb, arguments, message",
    [
        (retrofit, {"bloom": "a"}, "bloom maps columns to probabilities"),
        (retrofit, {"bloom": ["a"]}, "bloom maps columns to probabilities"),
        (retrofit, {"bloom": {"a": "0.01"}}, "the probability for a is a number, not '0.01'"),
        (retrofit, {"page_rows": 1.5}, r"page_rows is a whole number, not 1\.5"),
        (retrofit, {"page_rows": "100"}, "page_rows is a whole number, not '100'"),
        (retrofit, {"sorting": "a"}, "sorting is a sequence of sort keys, .* not 'a'"),
        (retrofit, {"sorting": 1}, "sorting is a sequence of sort keys"),
        (retrofit, {"sorting": [1]}, "a sort key is text, as 'ts:desc', not 1"),
        (add_index_pages, {"keys": "a"}, "keys is a sequence of columns, .* not 'a'"),
        (add_index_pages, {"keys": 1}, "keys is a sequence of columns"),
        (add_index_pages, {"roll_over": "1"}, "roll_over is a whole number of bytes, not '1'"),
        (encrypt, {"encryption": None}, r"encryption is a skipstone\.Encryption, not NoneType"),
        (encrypt, {"encryption": {"footer_key": b"k" * 16}}, "Encryption, not dict"),
    ],
)
def test_an_argument_of_another_type(
    tmp_path: Path, verb: Callable[..., object], arguments: dict[str, Any], message: str
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3]}), path)
    before = path.read_bytes()
    with pytest.raises(TypeError, match=message):
        verb(path, **arguments)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("files", [["a"], {"x": "a"}, {"x": 1}])
def test_the_files_of_split_columns(tmp_path: Path, files: Any) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3]}), path)
    with pytest.raises(TypeError, match=r"maps names of files|are a sequence"):
        split_columns(path, tmp_path / "y.parquet", files)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", [None, 1, True, b"x", ["x"]])
def test_a_place_that_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any
) -> None:
    # A file called "None", or "1", was written into the working directory.
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.parquet"
    rows = pa.table({"a": [1, 2, 3]})
    pq.write_table(rows, path)
    asked: list[Callable[[], object]] = [
        lambda: split_columns(path, place),
        lambda: write_table(rows, place),
    ]
    if place is not None:
        asked += [lambda: retrofit(path, output=place), lambda: salvage(path, output=place)]
        asked.append(lambda: add_index_pages(path, output=place))
    for ask in asked:
        with pytest.raises(TypeError):
            ask()
    assert list(tmp_path.iterdir()) == [path]
