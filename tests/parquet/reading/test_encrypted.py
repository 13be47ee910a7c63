"""Encrypted files of parquet-testing, with the keys of its README."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skipstone.errors import FormatError, KeyUnavailableError
from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.reading.file import ParquetFile
from tests.parquet.encryption.keys import (
    COLUMN_KEYS,
    FOOTER_KEY,
    LABELS,
    InMemoryKms,
    decryption_of,
)
from tests.parquet.encryption.plain import open_bytes, plain_table
from tests.parquet.format.files import same

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    "aes256/encrypt_columns_and_footer_ctr",
    "aes256/encrypt_columns_and_footer_disable_aad_storage",
    "aes256/uniform_encryption",
    "encrypt_columns_and_footer",
    "encrypt_columns_and_footer_aad",
    "encrypt_columns_and_footer_bloom_filter",
    "encrypt_columns_and_footer_ctr",
    "encrypt_columns_and_footer_disable_aad_storage",
    "encrypt_columns_plaintext_footer",
    "uniform_encryption",
]


@pytest.fixture
def data(golden: Path) -> Path:
    return golden / "parquet-testing/data"


def opened(data: Path, name: str, decryption: Decryption | None = None) -> ParquetFile:
    path = data / f"{name}.parquet.encrypted"
    if not path.exists():
        pytest.skip(f"{name} is not among the golden files")
    return ParquetFile(str(path), decryption=decryption or decryption_of(path))


@pytest.mark.parametrize("name", NAMES)
def test_rows_and_predicates(data: Path, name: str) -> None:
    file = opened(data, name)
    whole = file.read_rows()
    assert not file.unavailable
    assert whole.num_rows == file.num_rows >= 50
    doubles = whole.column("double_field").to_pylist()
    floats = whole.column("float_field").to_pylist()
    if "bloom_filter" not in name:
        assert doubles == pytest.approx([n * 1.1111111 for n in range(50)], rel=1e-6)
        assert floats == pytest.approx([n * 1.1 for n in range(50)], rel=1e-6)
    for start, stop in [(0, 1), (7, 9), (48, 50)]:
        part = file.read_rows(row_ranges=[(start, stop)])
        assert part.equals(whole.slice(start, stop - start))
    found = file.query("float_field > 30 AND double_field < 40", ["double_field", "int32_field"])
    expected = [d for d, f in zip(doubles, floats, strict=True) if f > 30 and d < 40]
    assert found.column("double_field").to_pylist() == expected
    assert file.count("float_field < 0") == 0


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_of_the_decrypted_bytes(data: Path, name: str) -> None:
    """Each module is decrypted, the file is put together again in the clear, and pyarrow reads."""
    path = data / f"{name}.parquet.encrypted"
    found = opened(data, name).read_rows()
    content = path.read_bytes()
    expected, _ = plain_table(content, open_bytes(content, decryption_of(path)), instants=True)
    assert found.column_names == expected.column_names
    for one, other in zip(found.columns, expected.columns, strict=True):
        assert same(one.combine_chunks(), other.combine_chunks())


def test_an_encrypted_filter_proves_absence(data: Path) -> None:
    file = opened(data, "encrypt_columns_and_footer_bloom_filter")
    plan = file.plan("double_field = 7.25")
    assert plan.files_kept == 0
    assert any(step.index == "bloom filter" and step.used for step in plan.steps)
    found = file.bloom_filter(0, "double_field")
    assert found is not None
    assert found.num_bytes == 2048


def test_a_column_without_its_key_does_not_hide_the_others(data: Path) -> None:
    keys = {"float_field": COLUMN_KEYS["float_field"]}
    file = opened(
        data, "encrypt_columns_and_footer", Decryption(footer_key=FOOTER_KEY, column_keys=keys)
    )
    assert file.read_rows(["float_field", "int32_field"], [(3, 5)]).num_rows == 2
    with pytest.raises(KeyUnavailableError, match="double_field"):
        file.read_rows(["double_field"])
    with pytest.raises(KeyUnavailableError, match="double_field"):
        file.query("double_field > 3", ["int32_field"])
    assert "double_field" not in file.pages().column("column").to_pylist()


def test_a_signed_plaintext_footer_needs_no_key(data: Path) -> None:
    file = opened(data, "encrypt_columns_plaintext_footer", Decryption())
    assert file.read_rows(["int32_field"]).num_rows == 50
    with pytest.raises(KeyUnavailableError):
        file.read_rows(["float_field"])


def test_without_the_key_of_the_footer_nothing_opens(data: Path) -> None:
    with pytest.raises(KeyUnavailableError):
        opened(data, "encrypt_columns_and_footer", Decryption())


def test_a_wrong_key_is_an_error_that_names_the_file(data: Path) -> None:
    keys = {**COLUMN_KEYS, "float_field": b"x" * 16}
    file = opened(
        data, "encrypt_columns_and_footer", Decryption(footer_key=FOOTER_KEY, column_keys=keys)
    )
    with pytest.raises(FormatError, match="float_field"):
        file.read_rows(["float_field"])
    assert file.read_rows(["double_field"]).num_rows == 50


def test_external_key_material_is_found_beside_the_file(data: Path) -> None:
    kms = InMemoryKms({label.decode(): key for label, key in LABELS.items()})
    file = opened(data, "external_key_material_java", Decryption(kms=kms))
    assert file.read_rows().num_rows == file.num_rows > 0
    assert kms.calls == 3
