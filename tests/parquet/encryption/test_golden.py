"""parquet-testing's encrypted files, with the keys of its README.

All but the Bloom filter file and that with external key material hold the same 50 rows: what Arrow
reads from the uniformly encrypted one is what is expected of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from skipstone.errors import FormatError, KeyUnavailableError
from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.encryption.key_material import key_material_path
from skipstone.parquet.encryption.modules import AuthenticationError
from skipstone.parquet.encryption.open_footer import describe_encrypted_footer, describe_encryption
from skipstone.parquet.format.bloom_filter import BloomFilter, xxh64_values
from skipstone.parquet.format.footer import Tail
from tests.parquet.encryption.keys import (
    COLUMN_KEYS,
    FOOTER_KEY,
    FOOTER_KEY_256,
    LABELS,
    InMemoryKms,
    decryption_of,
)
from tests.parquet.encryption.plain import open_bytes, plain_table

if TYPE_CHECKING:
    from pathlib import Path

SAME_ROWS = [
    "uniform_encryption",
    "encrypt_columns_and_footer",
    "encrypt_columns_and_footer_aad",
    "encrypt_columns_and_footer_ctr",
    "encrypt_columns_and_footer_disable_aad_storage",
    "encrypt_columns_plaintext_footer",
]


@pytest.fixture(scope="session")
def data(golden: Path) -> Path:
    return golden / "parquet-testing" / "data"


def load(data: Path, name: str) -> tuple[Path, bytes]:
    path = data / f"{name}.parquet.encrypted"
    return path, path.read_bytes()


def arrow_table(path: Path, key: bytes) -> pa.Table:
    properties = pe.create_decryption_properties(footer_key=key)
    return pq.read_table(path, decryption_properties=properties)


@pytest.mark.parametrize("name", SAME_ROWS)
def test_files_with_the_same_rows(data: Path, name: str) -> None:
    path, content = load(data, name)
    opened = open_bytes(content, decryption_of(path), file=path.name)
    table, seen = plain_table(content, opened)
    expected = arrow_table(load(data, "uniform_encryption")[0], FOOTER_KEY)
    assert opened.unavailable == {}
    assert table.cast(expected.schema).equals(expected)
    assert opened.signature_verified == (name == "encrypt_columns_plaintext_footer")
    # Of the two columns with keys of their own; of all eight, one of which (INT96) has no order.
    uniform = name == "uniform_encryption"
    assert (seen.column_indexes, seen.offset_indexes) == ((7, 8) if uniform else (2, 2))


@pytest.mark.parametrize("name", SAME_ROWS[3:5])
def test_keys_of_256_bits(data: Path, name: str) -> None:
    path, content = load(data / "aes256", name)
    opened = open_bytes(content, decryption_of(path), file=path.name)
    table, seen = plain_table(content, opened)
    assert opened.unavailable == {}
    uniform = load(data / "aes256", "uniform_encryption")
    same, _ = plain_table(uniform[1], open_bytes(uniform[1], decryption_of(uniform[0])))
    # Arrow as the oracle of the one that it can read.
    expected = arrow_table(uniform[0], FOOTER_KEY_256)
    assert same.cast(expected.schema).equals(expected)
    assert (table.num_rows, seen.offset_indexes) == (50, 8)
    assert table.column("double_field").to_numpy() == pytest.approx(
        np.arange(50) * 1.1111111, rel=1e-6
    )
    assert table.column("float_field").to_numpy() == pytest.approx(np.arange(50) * 1.1, rel=1e-6)


def test_bloom_filters(data: Path) -> None:
    path, content = load(data, "encrypt_columns_and_footer_bloom_filter")
    table, seen = plain_table(content, open_bytes(content, decryption_of(path)))
    assert table.num_rows == 2000
    assert set(seen.bloom_filters) == {(0, "double_field"), (0, "float_field")}
    for (_, name), (header, bitset) in seen.bloom_filters.items():
        assert header.algorithm.BLOCK is not None
        assert header.hash.XXHASH is not None
        assert len(bitset) == 2048
        values = table.column(name).to_numpy()
        assert BloomFilter.from_bitset(bitset).check(xxh64_values(values)).all()
        assert BloomFilter.from_bitset(bitset).check(xxh64_values(values + 0.5)).mean() < 0.75


def test_a_retriever_and_no_other_key(data: Path) -> None:
    _, content = load(data, "encrypt_columns_and_footer")
    opened = open_bytes(content, Decryption(key_retriever=LABELS.__getitem__))
    table, _ = plain_table(content, opened)
    assert opened.unavailable == {}
    assert table.num_columns == 8


def test_external_key_material_of_parquet_java(data: Path) -> None:
    path, content = load(data, "external_key_material_java")
    kms = InMemoryKms({label.decode(): key for label, key in LABELS.items()})
    beside = path.parent / key_material_path(path.name)
    decryption = Decryption(kms=kms)
    opened = open_bytes(content, decryption, file=str(path), load_key_material=beside.read_bytes)
    table, seen = plain_table(content, opened)
    assert opened.unavailable == {}
    assert kms.calls == 3
    assert table.num_rows > 0
    assert seen.pages > 0
    open_bytes(content, decryption, file=str(path), load_key_material=beside.read_bytes)
    assert kms.calls == 3
    with pytest.raises(KeyUnavailableError, match="_KEY_MATERIAL_FOR_external"):
        open_bytes(content, decryption, file=str(path))
    with pytest.raises(KeyUnavailableError, match="master key 'kf': KeyError"):
        open_bytes(content, Decryption(kms=InMemoryKms({})), load_key_material=beside.read_bytes)


@pytest.mark.parametrize("name", SAME_ROWS[1:])
def test_without_a_columns_key_the_others_read(data: Path, name: str) -> None:
    path, content = load(data, name)
    full = decryption_of(path)
    decryption = Decryption(
        footer_key=FOOTER_KEY,
        column_keys={"float_field": COLUMN_KEYS["float_field"]},
        aad_prefix=full.aad_prefix,
    )
    opened = open_bytes(content, decryption, file=path.name)
    leaves = [leaf.name for leaf in opened.footer.schema.leaves]
    (leaf,) = opened.unavailable
    assert leaves[leaf] == "double_field"
    error = opened.unavailable[leaf]
    assert isinstance(error, KeyUnavailableError)
    assert (
        error.message
        == f"{path.name}: the key of column 'double_field' (label 'kc1') was not given"
    )
    assert opened.footer.chunk("has_meta_data").all() == (
        name == "encrypt_columns_plaintext_footer"
    )


@pytest.mark.parametrize("name", SAME_ROWS[1:])
def test_a_wrong_column_key(data: Path, name: str) -> None:
    path, content = load(data, name)
    decryption = Decryption(
        footer_key=FOOTER_KEY,
        column_keys=COLUMN_KEYS | {"double_field": b"w" * 16},
        aad_prefix=decryption_of(path).aad_prefix,
    )
    opened = open_bytes(content, decryption, file=path.name)
    (error,) = opened.unavailable.values()
    assert isinstance(error, AuthenticationError)
    assert "COLUMN_META_DATA of column 'double_field' (key label 'kc1')" in str(error)


@pytest.mark.parametrize("name", [*SAME_ROWS, "encrypt_columns_and_footer_bloom_filter"])
def test_a_wrong_footer_key(data: Path, name: str) -> None:
    path, content = load(data, name)
    decryption = Decryption(
        footer_key=b"w" * 16, column_keys=COLUMN_KEYS, aad_prefix=decryption_of(path).aad_prefix
    )
    with pytest.raises(AuthenticationError, match="the footer") as caught:
        open_bytes(content, decryption, file="a")
    assert caught.value.file == "a"


def test_no_footer_key(data: Path) -> None:
    _, content = load(data, "encrypt_columns_and_footer")
    with pytest.raises(KeyUnavailableError, match=r"the key of the footer \(label 'kf'\)"):
        open_bytes(content, Decryption(column_keys=COLUMN_KEYS))
    with pytest.raises(KeyUnavailableError, match=r"the key of the footer \(label 'kf'\)"):
        open_bytes(content, None)


@pytest.mark.parametrize("prefix", [None, b"other", b""])
def test_an_aad_prefix_that_is_not_the_files(data: Path, prefix: bytes | None) -> None:
    kinds = {
        "encrypt_columns_and_footer_disable_aad_storage": (
            KeyUnavailableError if prefix is None else AuthenticationError
        ),
        "encrypt_columns_and_footer_aad": None if prefix is None else FormatError,
        "encrypt_columns_and_footer": FormatError if prefix else None,
    }
    for name, kind in kinds.items():
        _, content = load(data, name)
        decryption = Decryption(footer_key=FOOTER_KEY, column_keys=COLUMN_KEYS, aad_prefix=prefix)
        if kind is None:
            assert open_bytes(content, decryption).unavailable == {}
        else:
            with pytest.raises(kind, match="AAD prefix"):
                open_bytes(content, decryption)


def test_a_plaintext_footer_needs_no_key(data: Path) -> None:
    _, content = load(data, "encrypt_columns_plaintext_footer")
    for decryption in (None, Decryption(), Decryption(column_keys=COLUMN_KEYS)):
        opened = open_bytes(content, decryption)
        assert not opened.signature_verified
        assert len(opened.unavailable) == (0 if decryption and decryption.has_keys else 2)


def test_an_altered_plaintext_footer(data: Path) -> None:
    _, content = load(data, "encrypt_columns_plaintext_footer")
    tail = Tail.from_bytes(content[-8:], len(content))
    at = content.index(b"int32_field", tail.offset)
    altered = content[:at] + b"INT32" + content[at + 5 :]
    keys = Decryption(footer_key=FOOTER_KEY)
    with pytest.raises(AuthenticationError, match="signature of the footer"):
        open_bytes(altered, keys)
    careless = Decryption(footer_key=FOOTER_KEY, check_footer_integrity=False)
    assert not open_bytes(altered, careless).signature_verified
    assert open_bytes(content, keys).signature_verified


def test_a_file_without_encryption_is_not_taken_for_one_with(data: Path) -> None:
    content = (data / "alltypes_plain.parquet").read_bytes()
    with pytest.raises(FormatError, match="not encrypted") as caught:
        open_bytes(content, Decryption(footer_key=FOOTER_KEY), file="a")
    assert "allow_plaintext_files" in (caught.value.hint or "")
    allowed = Decryption(footer_key=FOOTER_KEY, allow_plaintext_files=True)
    for decryption in (None, Decryption(), allowed):
        assert open_bytes(content, decryption).decryptor is None


def test_what_can_be_seen_without_keys(data: Path) -> None:
    _, content = load(data, "encrypt_columns_and_footer_disable_aad_storage")
    tail = Tail.from_bytes(content[-8:], len(content))
    found = describe_encrypted_footer(content[tail.offset : -8], base=tail.offset)
    assert found.to_dict() == {
        "algorithm": "AES_GCM_V1",
        "footer": "encrypted",
        "footer_key_label": "kf",
        "aad_prefix": "to be supplied",
    }
    _, content = load(data, "encrypt_columns_plaintext_footer")
    opened = open_bytes(
        content, Decryption(column_keys={"float_field": COLUMN_KEYS["float_field"]})
    )
    assert opened.decryptor is not None
    seen = describe_encryption(opened.decryptor, opened.footer, unavailable=opened.unavailable)
    assert seen.to_dict() == {
        "algorithm": "AES_GCM_V1",
        "footer": "plaintext, signed",
        "footer_key_label": "kf",
        "aad_prefix": "none",
        "signature": "not verified",
        "columns": [
            {
                "column": "float_field",
                "key": "column key",
                "key_label": "kc2",
                "unavailable": None,
            },
            {
                "column": "double_field",
                "key": "column key",
                "key_label": "kc1",
                "unavailable": "the key of column 'double_field' (label 'kc1') was not given",
            },
        ],
    }
    _, content = load(data, "encrypt_columns_and_footer_aad")
    keys = Decryption(footer_key=FOOTER_KEY, column_keys=COLUMN_KEYS)
    opened = open_bytes(content, keys)
    assert opened.decryptor is not None
    shown = describe_encryption(opened.decryptor, opened.footer).to_dict()
    assert (shown["aad_prefix"], shown["stored_aad_prefix"]) == ("stored", "tester")
    assert [each["column"] for each in shown["columns"]] == ["float_field", "double_field"]


def test_decrypted_metadata_brings_the_statistics(data: Path) -> None:
    """The statistics of an encrypted column are stripped from a plaintext footer."""
    _, content = load(data, "encrypt_columns_plaintext_footer")
    hidden = open_bytes(content, Decryption()).footer
    shown = open_bytes(content, Decryption(column_keys=COLUMN_KEYS)).footer
    for leaf, each in enumerate(shown.schema.leaves):
        if each.name in COLUMN_KEYS:
            assert hidden.value_bytes("min_value", 0, leaf) is None
            statistics = shown.column_chunk(0, leaf).meta_data
            assert statistics is not None
            assert statistics.statistics is not None
            assert shown.chunk("null_count")[0, leaf] == 0
            least = np.frombuffer(
                shown.value_bytes("min_value", 0, leaf) or b"", f"<f{4 + 4 * (each.name[0] == 'd')}"
            )
            assert least.tolist() == [0.0]
