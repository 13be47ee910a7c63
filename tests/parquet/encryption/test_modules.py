"""The layout of modules and of their AAD, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.encryption.modules import ModuleType, module_aad, module_length, split_module


@pytest.mark.parametrize(
    "module, ordinals, suffix",
    [
        (ModuleType.FOOTER, (), "00"),
        (ModuleType.COLUMN_META_DATA, (1, 2), "0101000200"),
        (ModuleType.DATA_PAGE, (1, 2, 3), "02010002000300"),
        (ModuleType.DICTIONARY_PAGE, (1, 2), "0301000200"),
        (ModuleType.DATA_PAGE_HEADER, (258, 32767, 0), "040201ff7f0000"),
        (ModuleType.DICTIONARY_PAGE_HEADER, (0, 0), "0500000000"),
        (ModuleType.COLUMN_INDEX, (0, 1), "0600000100"),
        (ModuleType.OFFSET_INDEX, (0, 1), "0700000100"),
        (ModuleType.BLOOM_FILTER_HEADER, (0, 1), "0800000100"),
        (ModuleType.BLOOM_FILTER_BITSET, (0, 1), "0900000100"),
    ],
)
def test_aad_is_file_type_and_ordinals(
    module: ModuleType, ordinals: tuple[int, ...], suffix: str
) -> None:
    assert module_aad(b"file", module, *ordinals) == b"file" + bytes.fromhex(suffix)


@pytest.mark.parametrize("ordinals", [(32768, 0, 0), (0, 32768, 0), (0, 0, 32768), (-1, 0, 0)])
def test_ordinals_have_sixteen_bits(ordinals: tuple[int, int, int]) -> None:
    with pytest.raises(FormatError, match="0 to 32767"):
        module_aad(b"", ModuleType.DATA_PAGE, *ordinals)


@pytest.mark.parametrize(
    "module, ordinals",
    [
        (ModuleType.FOOTER, (0,)),
        (ModuleType.COLUMN_INDEX, ()),
        (ModuleType.COLUMN_INDEX, (0, 0, 0)),
        (ModuleType.DATA_PAGE, (0, 0)),
    ],
)
def test_a_module_takes_its_own_ordinals(module: ModuleType, ordinals: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=module.name):
        module_aad(b"", module, *ordinals)


def test_parts_of_a_module() -> None:
    data = b"??" + (30).to_bytes(4, "little") + b"n" * 12 + b"cc" + b"t" * 16 + b"rest"
    parts = split_module(data, 2)
    assert (bytes(parts.nonce), bytes(parts.encrypted), parts.stop) == (
        b"n" * 12,
        b"cc" + b"t" * 16,
        36,
    )
    assert module_length(data, 2) == module_length(data[2:6]) == 34
    assert len(split_module(data, 2, ctr=True).encrypted) == 18


@pytest.mark.parametrize("length", [0, 27, 0x8000_0000, 0xFFFF_FFFF])
def test_lengths_that_cannot_be(length: int) -> None:
    with pytest.raises(FormatError, match="length of an encrypted module") as caught:
        module_length(length.to_bytes(4, "little") + bytes(64), base=100, file="a")
    assert (caught.value.file, caught.value.offset, caught.value.got) == ("a", 100, length)


def test_a_ctr_module_may_be_shorter_than_a_tag() -> None:
    data = (12).to_bytes(4, "little") + bytes(12)
    assert module_length(data, ctr=True) == 16
    with pytest.raises(FormatError, match="28 to"):
        module_length(data)


@given(st.binary(max_size=80), st.integers(-3, 90), st.booleans())
def test_any_bytes_are_a_module_within_them_or_a_format_error(
    data: bytes, at: int, ctr: bool
) -> None:
    try:
        parts = split_module(data, at, ctr=ctr)
    except FormatError:
        return
    assert at + (16 if ctr else 32) <= parts.stop <= len(data)
    assert bytes(parts.nonce) + bytes(parts.encrypted) == data[at + 4 : parts.stop]
