"""One chunk's modules: their places, both forms of v2 pages, dictionaries, sizes, and errors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.encryption.file_decryptor import EncryptedFooter, FileDecryptor
from skipstone.parquet.encryption.modules import AuthenticationError, ModuleType
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.format.metadata import (
    AesGcmCtrV1,
    AesGcmV1,
    ColumnCryptoMetaData,
    DataPageHeaderV2,
    DictionaryPageHeader,
    EncryptionAlgorithm,
    EncryptionWithColumnKey,
    FileCryptoMetaData,
    PageHeader,
)
from skipstone.parquet.thrift.structs import Empty

if TYPE_CHECKING:
    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor

FOOTER = ColumnCryptoMetaData(ENCRYPTION_WITH_FOOTER_KEY=Empty())
IN_COLUMN = [module for module in ModuleType if module != ModuleType.FOOTER]


def file_of(ctr: bool = False, **given: object) -> FileDecryptor:
    algorithm = (
        EncryptionAlgorithm(AES_GCM_CTR_V1=AesGcmCtrV1(aad_file_unique=b"unique"))
        if ctr
        else EncryptionAlgorithm(AES_GCM_V1=AesGcmV1(aad_file_unique=b"unique"))
    )
    decryption = Decryption(**({"footer_key": b"k" * 16} | given))  # type: ignore[arg-type]
    return FileDecryptor(decryption, algorithm, b"kf", encrypted_footer=True, file="f")


def column_of(row_group: int = 0, column: int = 1, ctr: bool = False) -> ColumnDecryptor:
    found = file_of(ctr).column(("a", "b"), row_group, column, FOOTER)
    assert found is not None
    return found


def v2_header(levels: tuple[int, int], size: int) -> PageHeader:
    return PageHeader(
        type=PageType.DATA_PAGE_V2,
        uncompressed_page_size=0,
        compressed_page_size=size,
        data_page_header_v2=DataPageHeaderV2(
            num_values=1,
            num_nulls=0,
            num_rows=1,
            encoding=Encoding.PLAIN,
            repetition_levels_byte_length=levels[0],
            definition_levels_byte_length=levels[1],
        ),
    )


@given(st.sampled_from(IN_COLUMN), st.binary(max_size=200), st.booleans(), st.integers(0, 32767))
def test_every_module_comes_back(module: ModuleType, plain: bytes, ctr: bool, ordinal: int) -> None:
    column = column_of(ordinal, 32767 - ordinal, ctr)
    page = ordinal if module.has_page_ordinal else None
    sealed = column.encrypt(module, plain, page)
    assert len(sealed) == column.encrypted_length(len(plain), module)
    assert column.decrypt(module, sealed, page) == plain
    assert column.is_ctr(module) == (ctr and module.name in ("DATA_PAGE", "DICTIONARY_PAGE"))
    with pytest.raises(FormatError, match=f"bytes after the {module.name} of column 'a.b'"):
        column.decrypt(module, sealed + b"\0", page)


@pytest.mark.parametrize("module", IN_COLUMN)
def test_a_module_from_elsewhere_does_not_authenticate(module: ModuleType) -> None:
    page = 3 if module.has_page_ordinal else None
    sealed = column_of(1, 2).encrypt(module, b"plain", page)
    elsewhere: list[tuple[ColumnDecryptor, ModuleType, int | None]] = [
        (column_of(1, 2), other, page)
        for other in IN_COLUMN
        if other != module and other.has_page_ordinal == module.has_page_ordinal
    ]
    elsewhere += [(column_of(1, 3), module, page), (column_of(2, 2), module, page)]
    if page is not None:
        elsewhere.append((column_of(1, 2), module, page + 1))
    for column, other, ordinal in elsewhere:
        with pytest.raises(AuthenticationError) as caught:
            column.decrypt(other, sealed, ordinal)
        assert (caught.value.file, caught.value.offset) == ("f", 0)
    assert column_of(1, 2).decrypt(module, sealed, page) == b"plain"


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40), st.booleans())
def test_v2_pages_sealed_whole_and_with_clear_levels(
    repetition: bytes, definition: bytes, values: bytes, ctr: bool
) -> None:
    column = column_of(ctr=ctr)
    levels = repetition + definition
    whole = column.encrypt(ModuleType.DATA_PAGE, levels + values, 5)
    java = levels + column.encrypt(ModuleType.DATA_PAGE, values, 5)
    for body in (whole, java):
        header = v2_header((len(repetition), len(definition)), len(body))
        assert column.decrypt_page(header, body, 5) == levels + values


def test_v2_levels_that_look_like_the_length_of_a_module() -> None:
    column = column_of()
    values = column.encrypt(ModuleType.DATA_PAGE, b"values", 0)
    levels = (len(values)).to_bytes(4, "little")
    header = v2_header((0, 4), 4 + len(values))
    assert column.decrypt_page(header, levels + values, 0) == levels + b"values"
    with pytest.raises(AuthenticationError):
        column.decrypt_page(header, levels + values, 1)


def test_v2_pages_of_levels_alone() -> None:
    column = column_of()
    assert column.decrypt_page(v2_header((1, 2), 3), b"123", 0) == b"123"
    with pytest.raises(FormatError):
        column.decrypt_page(v2_header((1, 2), 4), b"1234", 0)


def test_the_first_page_may_be_a_dictionary() -> None:
    column = column_of()
    header = PageHeader(
        type=PageType.DICTIONARY_PAGE,
        uncompressed_page_size=3,
        compressed_page_size=35,
        dictionary_page_header=DictionaryPageHeader(num_values=3, encoding=Encoding.PLAIN),
    )
    plain = header.to_bytes()
    chunk = b"." + column.encrypt(ModuleType.DICTIONARY_PAGE_HEADER, plain)
    page = column.encrypt(ModuleType.DICTIONARY_PAGE, b"abc")
    found = column.decrypt_page_header(chunk + page, 1, 0, may_be_dictionary=True)
    assert found == (plain, len(chunk), True)
    assert column.decrypt_page(header, page) == b"abc"
    with pytest.raises(AuthenticationError, match=r"DATA_PAGE_HEADER 0 of column 'a\.b'"):
        column.decrypt_page_header(chunk, 1, 0, may_be_dictionary=False)
    data = column.encrypt(ModuleType.DATA_PAGE_HEADER, b"h", 7)
    assert column.decrypt_page_header(data, 0, 7, may_be_dictionary=True) == (b"h", 33, False)


@pytest.mark.parametrize(
    "crypto, error, match",
    [
        (ColumnCryptoMetaData(), FormatError, "one kind of key"),
        (
            replace(
                FOOTER,
                ENCRYPTION_WITH_COLUMN_KEY=EncryptionWithColumnKey(path_in_schema=("a", "b")),
            ),
            FormatError,
            "one kind of key",
        ),
        (
            ColumnCryptoMetaData(
                ENCRYPTION_WITH_COLUMN_KEY=EncryptionWithColumnKey(path_in_schema=("c",))
            ),
            FormatError,
            r"that of another: expected a\.b, got c",
        ),
        (
            ColumnCryptoMetaData(
                ENCRYPTION_WITH_COLUMN_KEY=EncryptionWithColumnKey(path_in_schema=("a", "b"))
            ),
            KeyUnavailableError,
            r"the key of column 'a\.b' was not given",
        ),
    ],
)
def test_crypto_metadata_that_leads_to_no_key(
    crypto: ColumnCryptoMetaData, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        file_of().column(("a", "b"), 0, 0, crypto)


def test_a_column_with_the_footer_key_that_is_missing() -> None:
    with pytest.raises(KeyUnavailableError, match="is encrypted with the footer key"):
        file_of(footer_key=None).column(("a", "b"), 0, 0, FOOTER)
    assert file_of(footer_key=None).column(("a", "b"), 0, 0, None) is None


def test_algorithms_that_are_none_or_two() -> None:
    both = EncryptionAlgorithm(AES_GCM_V1=AesGcmV1(), AES_GCM_CTR_V1=AesGcmCtrV1())
    with pytest.raises(FormatError, match="two encryption algorithms"):
        FileDecryptor(None, both, None, encrypted_footer=True)
    with pytest.raises(UnsupportedError, match="unknown algorithm"):
        FileDecryptor(None, EncryptionAlgorithm(), None, encrypted_footer=True)


def test_footers_come_back() -> None:
    file = file_of()
    assert file.decrypt_footer(file.encrypt_footer(b"metadata")) == b"metadata"
    file.verify_signature(b"metadata" + file.sign_footer(b"metadata"), 8)
    for footer in (b"metadatA" + file.sign_footer(b"metadata"), b"metadata" + bytes(28)):
        with pytest.raises(AuthenticationError, match=r"signature of the footer .*'kf'"):
            file.verify_signature(footer, 8)
    with pytest.raises(FormatError, match="not 28 bytes"):
        file.verify_signature(b"metadata" + bytes(27), 8)


def test_an_encrypted_footer_fills_its_place() -> None:
    file = file_of()
    crypto = FileCryptoMetaData(
        encryption_algorithm=EncryptionAlgorithm(AES_GCM_V1=AesGcmV1()), key_metadata=b"kf"
    )
    data = crypto.to_bytes() + file.encrypt_footer(b"metadata")
    found = EncryptedFooter.from_bytes(data, base=10)
    assert found.crypto == crypto
    assert found.offset == 10 + len(crypto.to_bytes())
    for other in (data + b"\0", data[:-1]):
        with pytest.raises(FormatError, match="does not fill its place"):
            EncryptedFooter.from_bytes(other)
    with pytest.raises(FormatError):
        EncryptedFooter.from_bytes(crypto.to_bytes())


def test_reprs_tell_no_keys() -> None:
    column = column_of()
    for each in (column, file_of(), column.cipher):
        assert "kkkk" not in repr(each)
    assert repr(column) == "<ColumnDecryptor of 'a.b', row group 0>"
