"""Key material: what key tools write, wrapped once or twice, inside the file or beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, KeyUnavailableError
from skipstone.parquet.encryption.key_material import (
    KeyMaterial,
    KeyReference,
    key_material_path,
    read_key_material_file,
    read_key_metadata,
    unwrap_dek,
    unwrap_locally,
    wrap_dek,
    wrap_locally,
    write_key_material_file,
)
from skipstone.parquet.encryption.modules import AuthenticationError, Cipher
from tests.parquet.encryption.keys import FOOTER_KEY, InMemoryKms

if TYPE_CHECKING:
    from pathlib import Path

KMS = InMemoryKms({"kf": FOOTER_KEY, "naïve key": b"m" * 32})
KEYS = st.sampled_from([16, 24, 32]).flatmap(lambda size: st.binary(min_size=size, max_size=size))


@given(KEYS, st.booleans(), st.booleans(), st.sampled_from(["kf", "naïve key"]))
def test_wrapped_keys_come_back(key: bytes, double: bool, footer: bool, master: str) -> None:
    material = wrap_dek(key, master, KMS, double_wrapping=double, is_footer_key=footer)
    read = read_key_metadata(material.to_json())
    assert isinstance(read, KeyMaterial)
    assert (read.is_footer_key, read.double_wrapping) == (footer, double)
    assert unwrap_dek(read, KMS, {}).reveal() == key
    entries = read_key_material_file(write_key_material_file({"columnKey0": material}))
    assert unwrap_dek(entries["columnKey0"], KMS, {}).reveal() == key


def test_a_reference_comes_back() -> None:
    reference = KeyReference(key_reference="columnKey7")
    assert json.loads(reference.to_json()) == {
        "keyMaterialType": "PKMT1",
        "internalStorage": False,
        "keyReference": "columnKey7",
    }
    assert read_key_metadata(reference.to_json()) == reference


def test_the_material_file_of_parquet_java(golden: Path) -> None:
    folder = golden / "parquet-testing" / "data"
    name = "external_key_material_java.parquet.encrypted"
    path = key_material_path(str(folder / name))
    assert path == str(folder / f"_KEY_MATERIAL_FOR_{name}.json")
    with open(path, "rb") as file:  # noqa: PTH123
        entries = read_key_material_file(file.read())
    assert {name: each.master_key_id for name, each in entries.items()} == {
        "footerKey": "kf",
        "columnKey0": "kc1",
        "columnKey1": "kc2",
    }
    assert entries["footerKey"].is_footer_key
    assert all(each.double_wrapping for each in entries.values())


def test_one_call_of_the_kms_per_kek() -> None:
    kms = InMemoryKms({"kf": FOOTER_KEY})
    keks: dict[tuple[str, str], Cipher] = {}
    material = wrap_dek(b"d" * 16, "kf", kms)
    for _ in range(3):
        assert unwrap_dek(material, kms, keks).reveal() == b"d" * 16
    assert (kms.calls, len(keks)) == (1, 1)
    assert "dddd" not in repr(keks)


@pytest.mark.parametrize("answer", [b"short", "text of 16 bytes", None, 5])
def test_a_kms_that_returns_no_key(answer: object) -> None:
    class Odd(InMemoryKms):
        def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
            return answer  # type: ignore[return-value]

    material = wrap_dek(b"d" * 16, "kf", KMS)
    with pytest.raises(KeyUnavailableError, match="no AES key for master key 'kf'"):
        unwrap_dek(material, Odd({}), {})


def test_a_kms_that_refuses() -> None:
    material = wrap_dek(b"d" * 16, "kf", KMS, double_wrapping=False)
    with pytest.raises(KeyUnavailableError, match="master key 'kf': KeyError") as caught:
        unwrap_dek(material, InMemoryKms({}), {})
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_kms_with_another_key_is_asked_again() -> None:
    class Wrong(InMemoryKms):
        def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
            return b"w" * 16

    material = wrap_dek(b"d" * 16, "kf", KMS)
    keks: dict[tuple[str, str], Cipher] = {}
    with pytest.raises(AuthenticationError, match="master key 'kf'"):
        unwrap_dek(material, Wrong({}), keks)
    assert keks == {}
    assert unwrap_dek(material, KMS, keks).reveal() == b"d" * 16


@pytest.mark.parametrize("text", ["", "AAAA", "%%%%", "A" * 60, "é" * 44])
def test_wrapped_keys_that_are_none(text: str) -> None:
    with pytest.raises(FormatError):
        unwrap_locally(text, Cipher(b"k" * 16), b"")


def test_a_key_wrapped_for_another_purpose() -> None:
    kek = Cipher(b"k" * 16)
    wrapped = wrap_locally(b"d" * 16, kek, b"one")
    assert unwrap_locally(wrapped, kek, b"one") == b"d" * 16
    with pytest.raises(AuthenticationError):
        unwrap_locally(wrapped, kek, b"two")


@pytest.mark.parametrize(
    "metadata",
    [b"", b"kf", b"\xff\xfe", b"{", b"{}", b"[]", b'{"keyMaterialType":"PKMT2"}', b"[" * 100_000],
)
def test_other_metadata_is_not_key_material(metadata: bytes) -> None:
    assert read_key_metadata(metadata) is None


WHOLE = {
    "keyMaterialType": "PKMT1",
    "internalStorage": True,
    "isFooterKey": True,
    "kmsInstanceID": "DEFAULT",
    "kmsInstanceURL": "DEFAULT",
    "masterKeyID": "kf",
    "wrappedDEK": "x",
    "doubleWrapping": True,
    "keyEncryptionKeyID": "x",
    "wrappedKEK": "x",
}


@pytest.mark.parametrize(
    "name", sorted(WHOLE.keys() - {"keyMaterialType", "isFooterKey", "internalStorage"})
)
@pytest.mark.parametrize("value", [None, 5, ["x"]])
def test_key_material_with_a_wrong_field(name: str, value: object) -> None:
    assert isinstance(read_key_metadata(json.dumps(WHOLE).encode()), KeyMaterial)
    with pytest.raises(FormatError, match=name):
        read_key_metadata(json.dumps(WHOLE | {name: value}).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"a":5}',
        b'{"a":"b"}',
        b'{"a":"{}"}',
        b"[" * 100_000,
        b" " * (2 << 20),
    ],
)
def test_key_material_files_that_are_none(data: bytes) -> None:
    with pytest.raises(FormatError):
        read_key_material_file(data)


@pytest.mark.fuzz
@given(st.data())
def test_mutated_material_is_read_or_a_format_error(data: st.DataObject) -> None:
    text = bytearray(wrap_dek(b"d" * 16, "kf", KMS, is_footer_key=True).to_json())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(st.sampled_from(b'"{}[],:ntf0\\ u\0\xff'))
    try:
        material = read_key_metadata(bytes(text))
        if isinstance(material, KeyMaterial):
            assert len(unwrap_dek(material, KMS, {}).reveal()) == 16
    except (FormatError, KeyUnavailableError):
        pass
