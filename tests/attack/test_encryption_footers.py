"""Attacks on plaintext footers: a file that anybody can make is not believed for its algorithm."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Decryption, Encryption, ParquetFile
from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.format.metadata import AesGcmV1, EncryptionAlgorithm, FileMetaData
from skipstone.rewrite import encrypt
from tests.parquet.encryption.keys import InMemoryKms

if TYPE_CHECKING:
    from pathlib import Path

FOOTER, A = b"0123456789012345", b"column key of a!"
SIGNED = Encryption(footer_key=FOOTER, column_keys={"a": A}, plaintext_footer=True)
# Whoever reads has the key of a column, or asks for keys by their labels: none of them signs.
KEYS: dict[str, dict[str, Any]] = {
    "a key of the column": {"column_keys": {"a": A}},
    "a retriever": {"key_retriever": lambda label: None},
    "a KMS": {"kms": InMemoryKms({})},
}


def in_the_clear(path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}), path)


def with_footer(data: bytes, **changes: object) -> bytes:
    """The file with other fields in its footer, and a signature of random bytes."""
    length = int.from_bytes(data[-8:-4], "little")
    metadata = replace(FileMetaData.from_bytes(data[-8 - length : -8]), **changes)  # type: ignore[arg-type]
    footer = metadata.to_bytes() + os.urandom(28)
    return data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def forged(path: Path) -> None:
    """A file in the clear that says it is encrypted, signed with a key that nobody knows."""
    in_the_clear(path)
    algorithm = EncryptionAlgorithm(
        AES_GCM_V1=AesGcmV1(aad_prefix=None, aad_file_unique=b"12345678", supply_aad_prefix=None)
    )
    data = with_footer(
        path.read_bytes(), encryption_algorithm=algorithm, footer_signing_key_metadata=b"nobody"
    )
    path.write_bytes(data)


@pytest.mark.parametrize("keys", KEYS)
def test_a_file_in_the_clear_that_says_it_is_encrypted(tmp_path: Path, keys: str) -> None:
    forged(tmp_path / "x.parquet")
    with pytest.raises(FormatError, match="no column is encrypted"):
        ParquetFile(tmp_path / "x.parquet", decryption=Decryption(**KEYS[keys])).query()
    allowed = Decryption(**KEYS[keys], allow_plaintext_files=True)
    assert ParquetFile(tmp_path / "x.parquet", decryption=allowed).query().num_rows == 3


def test_one_column_of_an_encrypted_file_put_into_the_clear(tmp_path: Path) -> None:
    """b keeps its encryption, a is taken from a file in the clear: rows of both would be mixed."""
    path = tmp_path / "x.parquet"
    in_the_clear(path)
    clear = path.read_bytes()
    length = int.from_bytes(clear[-8:-4], "little")
    chunk = FileMetaData.from_bytes(clear[-8 - length : -8]).row_groups[0].columns[0]
    encrypt(path, encryption=SIGNED)
    sealed = path.read_bytes()
    length = int.from_bytes(sealed[-8:-4], "little")
    group = FileMetaData.from_bytes(sealed[-8 - length : -8 - 28]).row_groups[0]
    assert chunk.meta_data is not None
    first = chunk.meta_data.dictionary_page_offset or chunk.meta_data.data_page_offset
    body = clear[first : first + chunk.meta_data.total_compressed_size]
    # Its pages go behind the magic at the end of all modules, where the footer begins.
    moved = len(sealed) - 8 - length - first
    meta = replace(
        chunk.meta_data,
        data_page_offset=chunk.meta_data.data_page_offset + moved,
        dictionary_page_offset=None
        if chunk.meta_data.dictionary_page_offset is None
        else chunk.meta_data.dictionary_page_offset + moved,
    )
    spliced = sealed[: -8 - length] + body + sealed[-8 - length : -8]
    spliced += sealed[-8:]
    columns = (replace(chunk, meta_data=meta, file_offset=0), *group.columns[1:])
    path.write_bytes(
        with_footer(
            spliced,
            row_groups=(replace(group, columns=columns),),
            footer_signing_key_metadata=b"nobody",
        )
    )
    file = ParquetFile(path, decryption=Decryption(column_keys={"a": A}))
    with pytest.raises(SkipstoneError, match="key of column 'a' was given"):
        file.query(columns=["a"])
    with pytest.raises(FormatError, match="signature"):
        ParquetFile(path, decryption=Decryption(footer_key=FOOTER, column_keys={"a": A}))


def test_who_has_the_key_of_one_column_reads_that_one(tmp_path: Path) -> None:
    """As before: a true file, of which the signing key is not at hand."""
    path = tmp_path / "x.parquet"
    in_the_clear(path)
    some = Encryption(
        footer_key=FOOTER, column_keys={"a": A}, plaintext_footer=True, encrypt_others=False
    )
    encrypt(path, encryption=some)
    file = ParquetFile(path, decryption=Decryption(column_keys={"a": A}))
    assert file.query().to_pydict() == {"a": [1, 2, 3], "b": ["x", "y", "z"]}
    assert not file.signature_verified
