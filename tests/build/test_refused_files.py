"""Files and requests of which there are no facts: why, and with which words."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from skipstone import Decryption, Encryption, ParquetFile
from skipstone.build.column_indexes import BuildSettings
from skipstone.build.data_file import build_file
from skipstone.build.footers import has_fine_times
from skipstone.errors import UnsupportedError
from skipstone.indexes.registry import parse_indexes
from skipstone.rewrite import encrypt
from skipstone.storage import LocalStorage
from tests.build.layout import build, values, written
from tests.parquet.encryption.arrow_kms import write_encrypted

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.identity import ObjectId


# -- what is wrong with a file --------------------------------------------------------------------

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize(
    "content, error",
    [
        (b"", "not readable as Parquet"),
        (b"PAR1", "not readable as Parquet"),
        (b"PAR1" + bytes(100) + b"PAR1", "not readable as Parquet"),
        (b"a,b\n1,2\n" * 10, "not readable as Parquet"),
    ],
)
def test_a_file_that_is_no_parquet(tmp_path: Path, content: bytes, error: str) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(content)
    os.utime(path, (1, 1))
    facts = build(path, ["id:minmax"], SCHEMA)
    assert facts.error is not None
    assert error in facts.error
    assert facts.values == {}


def test_a_file_with_damaged_pages(tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", pa.table({"id": range(10_000)}))
    data = bytearray(path.read_bytes())
    data[4:2_000] = bytes(1_996)
    path.write_bytes(data)
    os.utime(path, (1, 1))
    facts = build(path, ["id:minmax"], SCHEMA)
    assert facts.error is not None
    assert facts.values == {}


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", pa.table({"id": [1]}))
    storage = LocalStorage()
    id_ = storage.stat(str(path))
    path.unlink()
    error = build_file(id_, storage, parse_indexes("id:minmax"), SCHEMA).error
    assert error == f"{path} is gone since it was listed"


class Replacing(LocalStorage):
    """Local files, of which one is replaced by one of equal size and mtime once it is open."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def open(self, path: str, version: ObjectId | None = None) -> BinaryIO:
        source = super().open(path, version)
        other = self.path.with_suffix(".other")
        shutil.copy2(self.path, other)
        other.replace(self.path)
        return source


def test_a_file_replaced_while_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", pa.table({"id": [1]}))
    storage = Replacing(path)
    facts = build_file(storage.stat(str(path)), storage, parse_indexes("id:minmax"), SCHEMA)
    assert facts.error is not None
    assert "changed while it was read" in facts.error


def test_a_file_replaced_before_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", pa.table({"id": [1]}))
    storage = LocalStorage()
    id_ = storage.stat(str(path))
    other = written(tmp_path / "other", pa.table({"id": [1]}))
    other.replace(path)
    facts = build_file(id_, storage, parse_indexes("id:minmax"), SCHEMA)
    assert facts.error is not None
    assert "not the version that was listed" in facts.error


class Clock(LocalStorage):
    """Local files of a store whose clock is ``ahead`` nanoseconds of a file's mtime, and stands."""

    def __init__(self, mtime: int, ahead: int) -> None:
        super().__init__()
        self.time = mtime + ahead

    def now(self) -> int:
        return self.time


def test_a_file_too_fresh_to_be_believed(tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", pa.table({"id": [1]}))
    mtime = path.stat().st_mtime_ns
    settings = BuildSettings(settle=0.01)
    for ahead, fresh in ((10**7, False), (10**7 - 1, True), (-(10**12), False)):
        storage = Clock(mtime, ahead)
        id_ = storage.stat(str(path))
        facts = build_file(id_, storage, parse_indexes("id:minmax"), SCHEMA, settings)
        assert facts.too_fresh is fresh
        assert (facts.error is not None) is fresh


def test_fine_times_of_this_machine_need_no_long_wait(tmp_path: Path) -> None:
    """A fifth of a second after the change: enough, unless the time is one of whole seconds."""
    path = written(tmp_path / "f.parquet", pa.table({"id": [1]}))
    now = path.stat().st_mtime_ns
    if not has_fine_times(LocalStorage().stat(str(path))):
        pytest.skip("the filesystem of temporary files is not known, or its times are coarse")
    for mtime, fresh in ((now // 10**9 * 10**9 + 123_456_789, False), (now // 10**9 * 10**9, True)):
        os.utime(path, ns=(mtime, mtime))
        storage = Clock(mtime, 200_000_000)
        id_ = storage.stat(str(path))
        settings = BuildSettings(settle=0.5)
        facts = build_file(id_, storage, parse_indexes("id:minmax"), SCHEMA, settings)
        assert facts.too_fresh is fresh


def test_a_file_that_changes_right_after_it_was_read(tmp_path: Path) -> None:
    """In place, under the same size and inode: its time tells it from the file that was read."""
    path, storage = tmp_path / "f.parquet", LocalStorage()
    for turn in range(20):
        written(path, pa.table({"id": [turn]}))
        found = build_file(
            storage.stat(str(path)), storage, parse_indexes("id:minmax"), SCHEMA, BuildSettings()
        )
        with path.open("r+b") as file:
            file.write(b"PAR1")
        assert found.error is None
        assert not storage.stat(str(path)).same_version(found.id)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_an_encrypted_file_is_reported(tmp_path: Path, plaintext_footer: bool) -> None:
    table = pa.table({"id": [1], "clear": [2]})
    path = tmp_path / "f.parquet"
    write_encrypted(path, table, {"k": ["id"]}, plaintext_footer=plaintext_footer)
    os.utime(path, (1, 1))
    facts = build(path, ["id:minmax"], SCHEMA)
    if plaintext_footer:
        # The columns are known, and the one that is encrypted is not indexed in the clear.
        assert facts.error is None
        assert "encrypts the column" in facts.reasons["minmax(id)"]
        assert "minmax(id)" in facts.passing
        assert not any(facts.values.values())
        return
    assert facts.error is not None
    assert facts.error.startswith("encrypted")


@pytest.mark.parametrize("checksums", [False, True])
def test_an_encrypted_file_is_read_with_all_its_checks(tmp_path: Path, checksums: bool) -> None:
    """Struct members and nulls are read; a changed byte is found by a checksum, or by a tag."""
    a = [{"b": f"v{i}" if i % 3 else None} if i % 5 else None for i in range(90)]
    table = pa.table({"id": range(90), "a": a, "clear": [i % 7 for i in range(90)]})
    path = written(tmp_path / "f.parquet", table, write_page_checksum=checksums, row_group_size=40)
    keys = {"id": b"I" * 16, "a.b": b"A" * 16}
    indexes = ["id:minmax", "a.b:valuelist", "clear:minmax"]
    plain = values(build(path, indexes))
    how = Encryption(footer_key=b"D" * 16, column_keys=keys, encrypt_others=False)
    encrypt(path, encryption=how)
    os.utime(path, (1, 1))
    decryption = Decryption(footer_key=b"D" * 16, column_keys=keys)
    settings = {"decryption": decryption, "plaintext_index": True}
    schema = table.schema
    assert values(build(path, indexes, schema, **settings)) == plain
    data = path.read_bytes()
    file = ParquetFile(path, decryption=decryption)
    places = {}
    for column in ("id", "clear") if checksums else ("id",):
        page = file.pages([column]).filter(pc.field("row_group") == 1).slice(0, 1).to_pylist()[0]
        places[column] = page["offset"] + page["header_size"] + page["compressed_size"] // 2
    for column, at in places.items():
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        os.utime(path, (1, 1))
        facts = build(path, [f"{column}:minmax"], schema, **settings)
        assert facts.error is not None
        assert ("checksum of a page" if checksums else "authentic") in facts.error


# -- what is wrong with the request ---------------------------------------------------------------


@pytest.mark.parametrize(
    "index, words",
    [
        ("nope:minmax", "no column 'nope'"),
        ("list.element:minmax", "no column"),
        ("list:minmax", "cannot index column 'list' of type list"),
        ("flag:bloom", "cannot index column 'flag' of type bool"),
        ("low:minmax", "cannot index column 'low'"),
    ],
)
def test_what_cannot_be_built_at_all_is_an_error(tmp_path: Path, index: str, words: str) -> None:
    path = written(tmp_path / "f.parquet", pa.table({"flag": [True]}))
    mark = {b"skipstone.uncomparable": b"collation UTF8_LCASE"}
    schema = pa.schema(
        [
            ("flag", pa.bool_()),
            ("list", pa.list_(pa.int8())),
            pa.field("low", pa.string(), metadata=mark),
        ]
    )
    with pytest.raises(UnsupportedError, match=words):
        build(path, [index], schema)
