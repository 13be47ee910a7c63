"""Modules that change places, of every type and between any two, and keys that are not those.

Both columns and both row groups of the files here hold the same values, so that a module is as long
as the one whose place it takes, and would give the same rows: nothing but the AAD tells them apart.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from skipstone import Decryption, Encryption, ParquetFile
from skipstone.errors import FormatError, KeyUnavailableError
from skipstone.parquet.encryption.modules import AuthenticationError, ModuleType
from skipstone.rewrite import decrypt, encrypt
from tests.rewrite.encrypted_files import KEY, Module, equal, modules, plain

if TYPE_CHECKING:
    from pathlib import Path

OWN = b"key of a and b 1"
VALUES = [(i * 7919) % 251 for i in range(400)] * 2
SAME = pa.table({"a": VALUES, "b": VALUES})
FORMS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "uniform, signed": {"plaintext_footer": True},
    "column keys": {"column_keys": {"a": OWN, "b": OWN}},
    "column keys, signed": {"column_keys": {"a": OWN, "b": OWN}, "plaintext_footer": True},
}
OPENS = Decryption(footer_key=KEY, column_keys={"a": OWN, "b": OWN})
UNIFORM = Decryption(footer_key=KEY)


def same(path: Path, form: str, **options: Any) -> Decryption:
    """Write the file, and say what opens it."""
    sizes = {"a": {"ndv": 300, "fpp": 0.1}, "b": {"ndv": 300, "fpp": 0.1}}
    plain(path, SAME, bloom_filter_options=sizes, write_page_checksum=False)
    encrypt(path, encryption=Encryption(footer_key=KEY, **(FORMS[form] | options)))
    return OPENS if "column" in form else UNIFORM


def all_modules(path: Path, opens: Decryption) -> list[Module]:
    """Those of ``modules``, and the metadata of columns where the footer is in the clear."""
    found, data = list(modules(path, opens)), path.read_bytes()
    file = ParquetFile(path, decryption=opens)
    if not file.encrypted_footer:
        for r, group in enumerate(file.metadata.row_groups):
            for c, chunk in enumerate(group.columns):
                sealed = chunk.encrypted_column_metadata
                if sealed is not None:
                    at = data.index(sealed)
                    found.append(
                        Module(ModuleType.COLUMN_META_DATA, r, c, -1, at, at + len(sealed))
                    )
    return found


def few(found: list[Module]) -> list[int]:
    """Places of a few modules of each type: the first and the last, and some between."""
    places = defaultdict(list)
    for at, each in enumerate(found):
        places[each.type].append(at)
    return [
        at
        for of_type in places.values()
        for at in sorted({*of_type[:: max(1, len(of_type) // 4)], of_type[-1]})
    ]


def name_of(type: ModuleType) -> str:
    return "the footer" if type == ModuleType.FOOTER else type.name


def no_rows(path: Path, opens: Decryption, module: Module) -> None:
    """What is said names the module; no rows come but the right ones."""
    lax = opens.replaced(check_footer_integrity=False)
    target = path.with_name("out.parquet")
    with pytest.raises(AuthenticationError) as caught:
        decrypt(path, target, decryption=lax)
    assert "does not authenticate" in caught.value.message
    assert name_of(module.type) in caught.value.message
    assert not target.exists()
    for where in (None, "a = 17", "b > 200"):
        with suppress(FormatError):
            found = ParquetFile(path, decryption=lax).query(where)
            expected = SAME if where is None else ParquetFile.query(CLEAN[0], where)
            assert equal(found, expected)
    if module.type == ModuleType.COLUMN_META_DATA:
        with pytest.raises(AuthenticationError, match="signature"):
            ParquetFile(path, decryption=opens)


CLEAN: list[ParquetFile] = []


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path) -> None:
    CLEAN[:] = [ParquetFile(plain(tmp_path / "clean.parquet", SAME))]


@pytest.mark.parametrize("between", ["pages", "columns", "row groups"])
@pytest.mark.parametrize("form", FORMS)
def test_two_that_change_places(tmp_path: Path, form: str, between: str) -> None:
    path = tmp_path / "t.parquet"
    opens = same(path, form)
    data, alike = path.read_bytes(), defaultdict(list)
    for each in all_modules(path, opens):
        place = {
            "pages": (each.row_group, each.column),
            "columns": (each.row_group, each.page),
            "row groups": (each.column, each.page),
        }[between]
        alike[each.type, place, each.stop - each.start].append(each)
    tried = set()
    for (kind, _, _), found in alike.items():
        for one, other in list(combinations(found, 2))[:3]:
            altered = bytearray(data)
            altered[one.start : one.stop] = data[other.start : other.stop]
            altered[other.start : other.stop] = data[one.start : one.stop]
            path.write_bytes(altered)
            no_rows(path, opens, one)
            tried.add(kind)
    expected = {ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER}
    if between != "pages":
        expected = set(ModuleType) - {ModuleType.FOOTER, ModuleType.COLUMN_META_DATA}
        if "signed" in form and between == "columns":  # offsets may be of different lengths
            expected.add(ModuleType.COLUMN_META_DATA)
    assert tried >= expected


@pytest.mark.parametrize("form", FORMS)
def test_each_of_another_file(tmp_path: Path, form: str) -> None:
    one, other = tmp_path / "1.parquet", tmp_path / "2.parquet"
    opens = same(one, form, aad_prefix=b"t")
    same(other, form, aad_prefix=b"t")
    data, foreign = one.read_bytes(), other.read_bytes()
    mine, theirs = all_modules(one, opens), all_modules(other, opens)
    assert [each.type for each in mine] == [each.type for each in theirs]
    for each, its in ((mine[at], theirs[at]) for at in few(mine)):
        altered = data[: each.start] + foreign[its.start : its.stop] + data[each.stop :]
        one.write_bytes(altered)
        no_rows(one, opens, each)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", ["nonce", "middle", "tag"])
def test_each_with_a_flipped_bit(tmp_path: Path, form: str, part: str) -> None:
    path = tmp_path / "t.parquet"
    opens = same(path, form)
    data = path.read_bytes()
    found = all_modules(path, opens)
    for each in (found[at] for at in few(found)):
        at = {
            "nonce": each.start + 5,
            "middle": (each.start + each.stop) // 2,
            "tag": each.stop - 1,
        }[part]
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        no_rows(path, opens, each)


def _said(path: Path, keys: Decryption, column: str, number: int) -> str:
    """Of keys that are missing or wrong, and nothing else; empty where there is an answer."""
    try:
        file = ParquetFile(path, decryption=keys)
        (
            lambda: file.query(columns=[column]),
            lambda: file.query(f"{column} = 17", columns=[column]),
            lambda: file.read_rows([column], [(5, 9)]),
            lambda: file.count(f"{column} = 17"),
            lambda: file.column_index(0, column),
        )[number]()
    except (KeyUnavailableError, AuthenticationError) as error:
        return error.message
    return ""


@pytest.mark.parametrize("form", FORMS)
def test_wrong_keys_and_missing_ones_give_no_rows(tmp_path: Path, form: str) -> None:
    path = tmp_path / "t.parquet"
    same(path, form)
    wrong, own = b"0123456789012346", "column" in form
    cases: list[tuple[Decryption, tuple[str, ...]]] = [
        (Decryption(), ("a", "b")),
        (Decryption(footer_key=wrong, column_keys={"a": OWN, "b": OWN}), ("a", "b")),
        (
            Decryption(column_keys={"a": OWN, "b": OWN}),
            () if form == "column keys, signed" else ("a", "b"),
        ),
    ]
    if own:
        cases += [
            (Decryption(footer_key=KEY, column_keys={"a": OWN}), ("b",)),
            (Decryption(footer_key=KEY, column_keys={"a": OWN, "b": wrong}), ("b",)),
            (Decryption(footer_key=KEY), ("a", "b")),
        ]
    for keys, locked in cases:
        for column in ("a", "b"):
            for number in range(5):
                said = _said(path, keys, column, number)
                assert said if column in locked else said == ""
        with pytest.raises((KeyUnavailableError, AuthenticationError)):
            decrypt(path, tmp_path / "out.parquet", decryption=keys)
        assert not (tmp_path / "out.parquet").exists()
