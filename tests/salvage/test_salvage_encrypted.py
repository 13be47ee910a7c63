"""Encrypted files with a torn footer: with the keys, all that is whole is saved; else nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone import Decryption, Encryption, ParquetFile
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.parquet.format.footer import Tail
from skipstone.rewrite import encrypt
from skipstone.salvage import salvage
from tests.parquet.encryption.keys import decryption_of
from tests.parquet.format.files import same_table
from tests.parquet.whole_file import read_table
from tests.rewrite.encrypted_files import KEY, KEYS, equal, modules, plain, rows

if TYPE_CHECKING:
    from pathlib import Path

ALL: dict[str, dict[str, Any]] = {
    "one key": {},
    "column keys": {"column_keys": KEYS},
    "counter mode": {"column_keys": KEYS, "algorithm": "AES_GCM_CTR_V1"},
    "signed footer": {"plaintext_footer": True},
    "prefix given": {"aad_prefix": b"a prefix longer than a block", "store_aad_prefix": False},
    "prefix stored": {"aad_prefix": b"tester"},
    "others in the clear": {"column_keys": KEYS, "encrypt_others": False},
    "two in the clear": {"plaintext_columns": ["a", "x"]},
}


class EncryptedFiles:
    """One file encrypted in every way, and what is in it."""

    def __init__(self, home: Path) -> None:
        self.home, self.plain = home, plain(home / "plain.parquet")
        self.files: dict[str, bytes] = {}
        for name, options in ALL.items():
            path = home / f"{name}.parquet"
            encrypt(self.plain, path, encryption=Encryption(footer_key=KEY, **options))
            self.files[name] = path.read_bytes()

    def save(self, name: str, data: bytes, **options: Any) -> tuple[Any, Any]:
        torn, out = self.home / "torn", self.home / "out.parquet"
        torn.write_bytes(data)
        out.unlink(missing_ok=True)
        before = set(self.home.iterdir())
        given = ALL[name]
        prefix = None if "stored" in name else given.get("aad_prefix")
        keys = Decryption(
            footer_key=KEY, column_keys=given.get("column_keys", {}), aad_prefix=prefix
        )
        options = {"schema": self.plain, "decryption": keys, **options}
        report = salvage(str(torn), output=str(out), **options)
        assert set(self.home.iterdir()) - before <= {out}
        return (pq.read_table(out) if report.output else None), report


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> EncryptedFiles:
    return EncryptedFiles(tmp_path_factory.mktemp("encrypted"))


def footer_of(data: bytes) -> int:
    return Tail.from_bytes(data[-8:], len(data)).offset


def torn(data: bytes) -> bytes:
    """Without tail, and without the tag or the signature; what holds the file's AAD is there."""
    return data[:-36]


@pytest.mark.parametrize("name", ALL)
def test_all_rows_with_a_torn_footer(encrypted: EncryptedFiles, name: str) -> None:
    data = encrypted.files[name]
    found, report = encrypted.save(name, torn(data))
    assert equal(found, rows())
    assert len(report.saved) == len(report.row_groups) == 3
    assert "encrypted with AES_GCM" in str(report)


@pytest.mark.parametrize("name", ALL)
def test_the_first_row_group_of_a_file_that_lost_bytes_from_the_second_on(
    encrypted: EncryptedFiles, name: str
) -> None:
    data = encrypted.files[name]
    footer = footer_of(data)
    found, report = encrypted.save(name, data[: footer // 2] + data[footer:])
    assert equal(found, rows().slice(0, 400))
    assert report.row_groups[1].why


@given(st.sampled_from(sorted(ALL)), st.integers(0, 1000), st.integers(1, 3000), st.randoms())
def test_overwritten_anywhere(
    encrypted: EncryptedFiles, name: str, part: int, length: int, random: Any
) -> None:
    whole = encrypted.files[name]
    data = bytearray(whole)
    at = 4 + part * (len(data) - 4) // 1001
    stop = min(at + length, len(data))
    data[at:stop] = random.randbytes(stop - at)
    try:
        found, report = encrypted.save(name, bytes(data))
    except (FormatError, UnsupportedError):
        # The AAD of the file is stored in its footer only.
        assert stop > footer_of(whole)
        return
    at_row = 0
    expected = rows()
    kept: list[int] = []
    for group in report.row_groups:
        if group.saved:
            size = group.num_rows
            number = next(
                r
                for r in range(3)
                if equal(found.slice(at_row, size), expected.slice(400 * r, 400))
            )
            kept.append(number)
            at_row += size
    untouched = [r for r in range(3) if not touched(encrypted, name, r, at, stop)]
    if "clear" not in name:
        assert set(untouched) <= set(kept), report


def touched(encrypted: EncryptedFiles, name: str, group: int, at: int, stop: int) -> bool:
    """Whether bytes ``at`` to ``stop`` lie within or right behind a row group."""
    given = ALL[name]
    keys = Decryption(
        footer_key=KEY,
        column_keys=given.get("column_keys", {}),
        aad_prefix=given.get("aad_prefix"),
    )
    file = ParquetFile(encrypted.home / f"{name}.parquet", decryption=keys)
    places = [file.chunk_pages.place((group, c)) for c in range(5)]
    first, last = min(p.start for p in places), max(p.stop for p in places)
    return at <= last and stop > first


def test_modules_from_elsewhere_are_not_believed(encrypted: EncryptedFiles) -> None:
    data = bytearray(encrypted.files["one key"])
    first, second = (
        [m for m in modules_of(encrypted) if m.row_group == r and m.column == 1] for r in (0, 1)
    )
    for one, other in zip(first, second, strict=False):
        if one.stop - one.start == other.stop - other.start:
            data[one.start : one.stop] = data[other.start : other.stop]
    found, report = encrypted.save("one key", torn(bytes(data)))
    assert equal(found, rows().slice(400))
    assert [group.saved for group in report.row_groups][1:] == [True, True]


def modules_of(encrypted: EncryptedFiles) -> list[Any]:
    path = encrypted.home / "one key.parquet"
    return list(modules(path, Decryption(footer_key=KEY)))


def test_wrong_and_missing_keys(encrypted: EncryptedFiles, tmp_path: Path) -> None:
    data = torn(encrypted.files["column keys"])
    with pytest.raises(FormatError, match="authenticates with the keys"):
        encrypted.save("column keys", data, decryption=Decryption(footer_key=bytes(16)))
    found, report = encrypted.save("column keys", data, decryption=Decryption(footer_key=KEY))
    assert found is None
    assert "column s: its pages open with no key" in report.row_groups[0].why
    for name in ("one key", "signed footer"):
        with pytest.raises(UnsupportedError, match="encrypted"):
            encrypted.save(name, torn(encrypted.files[name]), decryption=None)
    with pytest.raises(FormatError, match="not encrypted"):
        encrypted.save("one key", encrypted.plain.read_bytes()[:5000])
    keys = Decryption(footer_key=KEY, allow_plaintext_files=True)
    source = encrypted.plain.read_bytes()
    found, report = encrypted.save("one key", source[: footer_of(source)], decryption=keys)
    assert report.num_rows == 1000


@pytest.mark.parametrize("name", ALL)
def test_nothing_without_the_aad_of_the_file(encrypted: EncryptedFiles, name: str) -> None:
    """Encrypted bytes are random: about one file in a hundred has some that look like the AAD of a
    file, which then opens no page."""
    data = encrypted.files[name]
    lost = "unique part of its AAD is lost with its footer|no page of the file authenticates"
    with pytest.raises(SkipstoneError, match=lost):
        encrypted.save(name, data[: footer_of(data)])


def test_an_encrypted_sibling_tells_the_schema(encrypted: EncryptedFiles) -> None:
    data = encrypted.files["column keys"]
    sibling = encrypted.home / "one key.parquet"
    found, report = encrypted.save("column keys", torn(data), schema=sibling)
    assert equal(found, rows())
    assert report.schema_from == str(sibling)


def test_a_damaged_page_is_isolated(encrypted: EncryptedFiles) -> None:
    data = bytearray(encrypted.files["one key"])
    page = next(
        m
        for m in modules_of(encrypted)
        if m.row_group == 1 and m.column == 0 and m.type.name == "DATA_PAGE"
    )
    data[page.stop - 1] ^= 1
    found, report = encrypted.save("one key", bytes(data))
    assert equal(found.slice(0, 400), rows().slice(0, 400))
    assert found.num_rows == 600
    bad = report.bad_pages[0]
    assert (bad.column, bad.why) == ("a", "does not authenticate")
    assert page.start - 200 < bad.offset < page.start
    found, report = encrypted.save("one key", bytes(data), skip_bad_pages=True)
    assert found.num_rows == 1000
    assert equal(found.drop(["a"]), rows().drop(["a"]))


def test_golden_files(golden: Path, tmp_path: Path) -> None:
    done = 0
    for path in sorted((golden / "parquet-testing" / "data").rglob("*.parquet.encrypted")):
        if "external" in path.name:
            continue  # wrapped keys, of which the footer tells
        keys = decryption_of(path)
        data = path.read_bytes()
        damaged, out = tmp_path / f"{done}", tmp_path / f"{done}.parquet"
        damaged.write_bytes(torn(data))
        salvage(str(damaged), output=str(out), schema=path, decryption=keys)
        expected = ParquetFile(path, decryption=keys).query()
        assert same_table(read_table(out.read_bytes()), expected), path
        done += 1
    assert done == 10


@given(st.binary(max_size=2000))
def test_hostile_bytes(encrypted: EncryptedFiles, noise: bytes) -> None:
    try:
        found, report = encrypted.save("one key", b"PARE" + noise + bytes(8))
    except (FormatError, UnsupportedError):
        return
    assert found is None
    assert json.dumps(report.to_dict())
