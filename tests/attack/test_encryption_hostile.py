"""Hostile bytes in the files of an encrypted index, and in the list of an encrypted table."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Decryption, Encryption, Table
from skipstone.errors import SkipstoneError
from skipstone.parquet.format.metadata import AesGcmV1, EncryptionAlgorithm
from skipstone.rewrite.encrypted_file_list import (
    EncryptedFileList,
    list_path,
    read_list,
    write_list,
)
from tests.attack.test_encryption_footers import with_footer
from tests.attack.test_encryption_index import KEYS, TRUE, asks, built, table_at
from tests.parquet.encryption.keys import InMemoryKms

if TYPE_CHECKING:
    from pathlib import Path

KEY = b"0123456789012345"


def hostile(data: bytes, drawn: random.Random) -> bytes:
    """Cut, flipped, overwritten, lengthened, or nothing of it."""
    at, length = drawn.randrange(len(data)), drawn.choice((1, 1, 4, 64, 4096))
    # Lengths and magic lie at the end: half of what is done is done there.
    if drawn.random() < 0.5:
        at = max(0, len(data) - drawn.randrange(1, 120))
    how = drawn.randrange(6)
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + bytes([data[at] ^ 1 << drawn.randrange(8)]) + data[at + 1 :]
    if how == 2:
        return data[:at] + drawn.randbytes(length) + data[at + length :]
    if how == 3:
        return data[:at] + b"\xff" * length + data[at + length :]
    if how == 4:
        return data + drawn.randbytes(length)
    return data[at:] + data[:at]


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_any_damage_of_the_index_loses_no_row(tmp_path: Path, plaintext_footer: bool) -> None:
    table = built(table_at(tmp_path / "t", 3), plaintext_footer=plaintext_footer)
    home, whole = tmp_path / "_t.skipstone", tmp_path / "whole"
    home.rename(whole)
    drawn = random.Random(7)
    for _ in range(40):
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(whole, home)
        files = [path for path in sorted(home.rglob("*")) if path.is_file()]
        for path in drawn.sample(files, drawn.randrange(1, len(files) + 1)):
            path.write_bytes(hostile(path.read_bytes(), drawn))
        opened = Table(table.path, index_keys=KEYS)
        assert [rows for _, rows in asks(opened)] == TRUE
        opened.check()


def test_any_damage_of_the_list_is_an_error(tmp_path: Path) -> None:
    write_list(
        str(tmp_path / "t"),
        EncryptedFileList(beginning=b"t", files={"a": b"12345678", "b": b""}),
        Encryption(footer_key=KEY),
    )
    from pathlib import Path

    path, keys = Path(list_path(str(tmp_path / "t"))), Decryption(footer_key=KEY)
    whole, drawn, refused = path.read_bytes(), random.Random(7), 0
    for _ in range(300):
        path.write_bytes(hostile(whole, drawn))
        try:
            found = read_list(str(tmp_path / "t"), keys)
        except SkipstoneError:
            refused += 1
            continue
        assert found is not None
        assert dict(found.files) == {"a": b"12345678", "b": b""}
    assert refused > 250


def test_a_list_that_anybody_could_have_signed(tmp_path: Path) -> None:
    """With keys from a KMS, a footer may name a label that it does not know."""
    from pathlib import Path

    path = Path(list_path(str(tmp_path / "t")))
    rows = {"path": pa.array([b"a"]), "aad_file_unique": pa.array([b"12345678"])}
    pq.write_table(pa.table(rows), path)
    algorithm = EncryptionAlgorithm(
        AES_GCM_V1=AesGcmV1(aad_prefix=b"t/", aad_file_unique=b"1" * 8, supply_aad_prefix=None)
    )
    path.write_bytes(
        with_footer(
            path.read_bytes(), encryption_algorithm=algorithm, footer_signing_key_metadata=b"no"
        )
    )
    for keys in (Decryption(kms=InMemoryKms({"m": KEY})), Decryption(footer_key=KEY)):
        for each in (keys, keys.replaced(check_footer_integrity=False)):
            with pytest.raises(SkipstoneError):
                read_list(str(tmp_path / "t"), each)
