"""Whatever is done to a module of an encrypted file, it is noticed, and named."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from skipstone import Decryption, Encryption, ParquetFile
from skipstone.errors import FormatError, KeyUnavailableError
from skipstone.parquet.encryption.modules import AuthenticationError, ModuleType
from skipstone.rewrite import decrypt, encrypt
from tests.rewrite.encrypted_files import KEY, KEYS, Module, equal, modules, plain, rows

if TYPE_CHECKING:
    from pathlib import Path

DECRYPTION = Decryption(footer_key=KEY)
# Two columns of one type and width, so that modules of one can take the place of the other's.
TWINS = pa.table({name: pa.array([(i * 7919) % 256 for i in range(800)]) for name in "ab"})


def twins(path: Path, **options: Any) -> Path:
    """Two row groups of four pages in each of two columns, with dictionaries and filters."""
    sizes = {"a": {"ndv": 400, "fpp": 0.1}, "b": {"ndv": 400, "fpp": 0.1}}
    plain(path, TWINS, bloom_filter_options=sizes, write_page_checksum=False)
    encrypt(path, encryption=Encryption(footer_key=KEY, **options))
    return path


def refused(
    path: Path,
    data: bytes | bytearray,
    decryption: Decryption = DECRYPTION,
    *,
    pages_may_lie: bool = False,
) -> str:
    """What is said of altered bytes; no file comes of them, and no other rows."""
    path.write_bytes(data)
    target = path.with_name("out.parquet")
    with pytest.raises(FormatError) as caught:
        decrypt(path, target, decryption=decryption)
    assert not target.exists()
    with suppress(FormatError):
        if not pages_may_lie:
            assert equal(ParquetFile(path, decryption=decryption).query(), TWINS)
    return caught.value.message


def test_every_kind_of_module_is_there(tmp_path: Path) -> None:
    found = {each.type for each in modules(twins(tmp_path / "t.parquet"), DECRYPTION)}
    assert found == set(ModuleType) - {ModuleType.COLUMN_META_DATA}


def test_a_flipped_bit(tmp_path: Path) -> None:
    path = twins(tmp_path / "t.parquet")
    data = path.read_bytes()
    for module in list(modules(path, DECRYPTION)):
        altered = bytearray(data)
        altered[(module.start + module.stop) // 2] ^= 0x10
        said = refused(path, altered)
        assert "does not authenticate" in said
        name = "the footer" if module.type == ModuleType.FOOTER else module.type.name
        if module.type not in (ModuleType.DATA_PAGE_HEADER, ModuleType.DICTIONARY_PAGE_HEADER):
            assert name in said
        altered = bytearray(data)
        altered[module.start + 2] ^= 1  # its length
        refused(path, altered)
    path.write_bytes(data)
    assert equal(ParquetFile(path, decryption=DECRYPTION).query(), TWINS)


def _swapped(data: bytes, one: Module, other: Module) -> bytearray:
    altered = bytearray(data)
    altered[one.start : one.stop] = data[other.start : other.stop]
    altered[other.start : other.stop] = data[one.start : one.stop]
    return altered


@pytest.mark.parametrize("between", ["pages", "columns", "row groups"])
def test_modules_that_change_places(tmp_path: Path, between: str) -> None:
    path = twins(tmp_path / "t.parquet")
    data, alike = path.read_bytes(), defaultdict(list)
    for each in list(modules(path, DECRYPTION)):
        place = {
            "pages": (each.row_group, each.column),
            "columns": (each.row_group, each.page),
            "row groups": (each.column, each.page),
        }[between]
        alike[each.type, place, each.stop - each.start].append(each)
    tried = set()
    for (kind, _, _), found in alike.items():
        for one, other in pairwise(found):
            assert "does not authenticate" in refused(path, _swapped(data, one, other))
            tried.add(kind)
    pages = {ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER}
    rest = set(ModuleType) - {ModuleType.FOOTER, ModuleType.COLUMN_META_DATA}
    assert tried >= (pages if between == "pages" else rest - {ModuleType.COLUMN_INDEX})


def test_modules_of_another_file_with_the_same_keys(tmp_path: Path) -> None:
    one, other = twins(tmp_path / "1.parquet"), twins(tmp_path / "2.parquet")
    data, foreign = one.read_bytes(), other.read_bytes()
    mine, theirs = (list(modules(each, DECRYPTION)) for each in (one, other))
    assert mine == theirs
    for each in mine:
        altered = bytearray(data)
        altered[each.start : each.stop] = foreign[each.start : each.stop]
        assert "does not authenticate" in refused(one, altered)


def test_a_whole_file_in_the_place_of_another(tmp_path: Path) -> None:
    path = twins(tmp_path / "t.parquet", aad_prefix=b"orders 1")
    right = Decryption(footer_key=KEY, aad_prefix=b"orders 1")
    assert equal(ParquetFile(path, decryption=right).query(), TWINS)
    wrong = Decryption(footer_key=KEY, aad_prefix=b"orders 2")
    assert "AAD prefix" in refused(path, path.read_bytes(), wrong)
    plain(path, TWINS)
    assert "not encrypted" in refused(path, path.read_bytes(), right)


def test_a_plaintext_footer_is_signed(tmp_path: Path) -> None:
    path = twins(tmp_path / "t.parquet", plaintext_footer=True)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    for at in (len(data) - 8 - 10, len(data) - 8 - 28 - 30):  # signature; the end of created_by
        altered = bytearray(data)
        altered[at] ^= 1
        assert "signature" in refused(path, altered)
    # Without a look at the signature the metadata of a column are still a module of their own.
    chunk = ParquetFile(path).metadata.row_groups[1].columns[1]
    assert chunk.encrypted_column_metadata is not None
    at = data.index(chunk.encrypted_column_metadata, len(data) - 8 - length)
    altered = bytearray(data)
    altered[at + 40] ^= 1
    lax = Decryption(footer_key=KEY, check_footer_integrity=False)
    assert "COLUMN_META_DATA of column 'b'" in refused(path, altered, lax)


def test_ctr_leaves_pages_to_their_checksums(tmp_path: Path) -> None:
    path = plain(tmp_path / "t.parquet", TWINS)
    encrypt(path, encryption=Encryption(footer_key=KEY, algorithm="AES_GCM_CTR_V1"))
    data = path.read_bytes()
    for module in list(modules(path, DECRYPTION)):
        altered = bytearray(data)
        altered[(module.start + module.stop) // 2] ^= 0x10
        said = refused(path, altered, pages_may_lie=module.type.is_page)
        assert ("checksum of a page" if module.type.is_page else "not authenticate") in said


def test_wrong_and_missing_keys(tmp_path: Path) -> None:
    path, target = plain(tmp_path / "p.parquet"), tmp_path / "out.parquet"
    encrypt(path, encryption=Encryption(footer_key=KEY, column_keys=KEYS))
    right: dict[str, Any] = {"footer_key": KEY, "column_keys": KEYS}
    for wrong, said in (
        ({"footer_key": KEYS["s"]}, "the footer"),
        ({"column_keys": {**KEYS, "s": KEY}}, "COLUMN_META_DATA of column 's'"),
    ):
        decryption = Decryption(**(right | wrong))
        with pytest.raises(AuthenticationError, match=said):
            decrypt(path, target, decryption=decryption)
    for missing, said in (
        ({"footer_key": None}, "footer"),
        ({"column_keys": {"s": KEYS["s"]}}, "l.list.element"),
    ):
        decryption = Decryption(**(right | missing))
        with pytest.raises(KeyUnavailableError, match=said):
            decrypt(path, target, decryption=decryption)
    assert not target.exists()
    assert equal(ParquetFile(path, decryption=Decryption(**right)).query(), rows())
