"""Mutated encrypted files: the keys are right, the bytes are not."""

from __future__ import annotations

import io
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.encryption.modules import ModuleType
from skipstone.parquet.encryption.open_footer import (
    chunk_decryptor,
    describe_encrypted_footer,
    describe_encryption,
)
from skipstone.parquet.format.footer import Tail
from skipstone.parquet.format.metadata import PageHeader
from tests.parquet.encryption.encrypted import seal
from tests.parquet.encryption.plain import open_bytes

KEY, KEYS = b"k" * 16, {"a": b"a" * 16, "s": b"s" * 32}
ALLOWED = (FormatError, KeyUnavailableError, UnsupportedError)


@cache
def whole(ctr: bool, plaintext_footer: bool) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"a": [1, 2, None] * 9, "s": ["x", "yy", ""] * 9, "n": [1.5, None, 2.5] * 9})
    pq.write_table(table, sink, row_group_size=14, store_schema=False)
    keys = KEYS if plaintext_footer else None
    return seal(sink.getvalue(), KEY, keys, ctr=ctr, plaintext_footer=plaintext_footer)


def touch(data: bytes, decryption: Decryption) -> int:
    """Everything that a reader would decrypt; how many modules were."""
    opened = open_bytes(data, decryption)
    if opened.decryptor is None:
        return 0
    describe_encryption(opened.decryptor, opened.footer, unavailable=opened.unavailable).to_dict()
    count = 0
    footer = opened.footer
    for r in range(footer.num_row_groups):
        for c in range(footer.num_leaves):
            try:
                column = chunk_decryptor(footer, opened.decryptor, r, c)
                at, stop = int(footer.chunk("start")[r, c]), int(footer.chunk("stop")[r, c])
                if column is None or c in opened.unavailable or not 0 <= at < stop <= len(data):
                    continue
                ordinal = 0
                while at < stop:
                    head, at, is_dictionary = column.decrypt_page_header(
                        data, at, ordinal, may_be_dictionary=ordinal == 0
                    )
                    header = PageHeader.from_bytes(head)
                    body = data[at : at + max(0, header.compressed_page_size)]
                    column.decrypt_page(header, body, None if is_dictionary else ordinal)
                    at += len(body)
                    ordinal += not is_dictionary
                    count += 2
                column.decrypt(ModuleType.COLUMN_INDEX, data[at : at + 50])
            except ALLOWED:
                continue
    return count


@pytest.mark.parametrize("ctr", [False, True])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_whole_files(ctr: bool, plaintext_footer: bool) -> None:
    # Two row groups of three or two encrypted columns, each of a dictionary and a data page.
    decryption = Decryption(footer_key=KEY, column_keys=KEYS)
    expected = 2 * 2 * 2 * (2 if plaintext_footer else 3)
    assert touch(whole(ctr, plaintext_footer), decryption) == expected


@pytest.mark.fuzz
@given(st.data(), st.booleans(), st.booleans(), st.booleans())
def test_mutated_files(data: st.DataObject, ctr: bool, plaintext: bool, verify: bool) -> None:
    content = bytearray(whole(ctr, plaintext))
    tail = Tail.from_bytes(bytes(content[-8:]), len(content))
    for _ in range(data.draw(st.integers(1, 4))):
        low = data.draw(st.sampled_from([0, tail.offset, len(content) - 8]))
        at = data.draw(st.integers(low, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    decryption = Decryption(
        footer_key=KEY,
        column_keys=KEYS,
        check_footer_integrity=verify,
        allow_plaintext_files=not verify,
    )
    try:
        count = touch(bytes(content), decryption)
    except ALLOWED:
        return
    assert count <= 24


@pytest.mark.fuzz
@given(st.data())
def test_cut_files(data: st.DataObject) -> None:
    content = whole(False, data.draw(st.booleans()))
    tail = Tail.from_bytes(content[-8:], len(content))
    start = data.draw(st.integers(tail.offset - 40, len(content) - 9))
    stop = data.draw(st.integers(start, len(content) - 8))
    cut = content[:start] + content[stop:-8]
    size = data.draw(st.sampled_from([tail.length, tail.length - (stop - start)]))
    cut += max(0, size).to_bytes(4, "little") + content[-4:]
    try:
        count = touch(cut, Decryption(footer_key=KEY, column_keys=KEYS))
    except ALLOWED:
        return
    assert count <= 24


@pytest.mark.fuzz
@given(st.binary(max_size=100), st.booleans())
def test_any_bytes_for_an_encrypted_footer(junk: bytes, prefixed: bool) -> None:
    content = whole(False, False)
    tail = Tail.from_bytes(content[-8:], len(content))
    footer = content[tail.offset : tail.offset + 20] + junk if prefixed else junk
    try:
        shown = describe_encrypted_footer(footer).to_dict()
    except ALLOWED:
        return
    assert shown["footer"] == "encrypted"


def test_every_byte_of_a_signed_footer_counts() -> None:
    content = whole(False, True)
    tail = Tail.from_bytes(content[-8:], len(content))
    keys = Decryption(footer_key=KEY)
    for at in range(tail.offset, len(content) - 8):
        altered = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        with pytest.raises((FormatError, UnsupportedError)):
            open_bytes(altered, keys)
