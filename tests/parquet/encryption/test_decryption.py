"""Where keys come from, in which order, how they are named, and that they never show."""

from __future__ import annotations

import pickle
import traceback

import pytest

from skipstone.errors import KeyUnavailableError
from skipstone.parquet.encryption.decryption import Decryption, FileKeys, key_label
from skipstone.parquet.encryption.key_material import KeyReference, wrap_dek
from tests.parquet.encryption.keys import InMemoryKms

KMS = InMemoryKms({"kf": b"m" * 16})


def keys_of(decryption: Decryption, file: str | None = "dir/a.parquet") -> FileKeys:
    return FileKeys(decryption, file, None)


def test_given_keys_come_before_the_retriever_and_it_before_the_kms() -> None:
    metadata = wrap_dek(b"3" * 16, "kf", KMS).to_json()
    asked: list[bytes] = []

    def retriever(key_metadata: bytes) -> bytes | None:
        asked.append(key_metadata)
        return b"2" * 16 if key_metadata == b"known" else None

    decryption = Decryption(
        footer_key=b"1" * 16, column_keys={"a": b"1" * 16}, key_retriever=retriever, kms=KMS
    )
    keys = keys_of(decryption)
    assert keys.key((), metadata).reveal() == b"1" * 16
    assert keys.key(("a",), b"known").reveal() == b"1" * 16
    assert asked == []
    assert keys.key(("b",), b"known").reveal() == b"2" * 16
    assert keys.key(("c",), metadata).reveal() == b"3" * 16
    assert asked == [b"known", metadata]


def test_a_key_is_looked_for_once() -> None:
    asked: list[bytes] = []

    def retriever(key_metadata: bytes) -> bytes:
        asked.append(key_metadata)
        raise KeyError(key_metadata)

    keys = keys_of(Decryption(key_retriever=retriever))
    for _ in range(3):
        with pytest.raises(KeyUnavailableError):
            keys.key(("a",), b"kc1")
    assert asked == [b"kc1"]


def test_the_key_of_a_group_opens_the_columns_in_it() -> None:
    keys = keys_of(
        Decryption(column_keys={"l": b"1" * 16, "l.list": b"2" * 16, "`x.y`": b"3" * 16})
    )
    assert keys.key(("l", "list", "element"), None).reveal() == b"2" * 16
    assert keys.key(("l", "other"), None).reveal() == b"1" * 16
    assert keys.key(("x.y",), None).reveal() == b"3" * 16
    with pytest.raises(KeyUnavailableError, match=r"column 'x\.y'"):
        keys.key(("x", "y"), None)


def test_a_missing_key_is_named_by_column_and_label() -> None:
    with pytest.raises(KeyUnavailableError) as caught:
        keys_of(Decryption()).key(("a", "b"), b"kc1")
    assert (
        caught.value.message == "dir/a.parquet: the key of column 'a.b' (label 'kc1') was not given"
    )
    assert caught.value.hint == (
        "pass it as column_keys['a.b'], on the command line --column-key a.b=SOURCE, "
        "or a key_retriever that knows 'kc1'"
    )
    with pytest.raises(KeyUnavailableError) as caught:
        keys_of(Decryption(), None).key((), None)
    assert caught.value.message == "the key of the footer was not given"
    assert caught.value.hint == "pass it as footer_key, on the command line --footer-key"


@pytest.mark.parametrize("answer", [b"short", "text of 16 bytes", 5])
def test_a_retriever_that_returns_no_key(answer: object) -> None:
    keys = keys_of(Decryption(key_retriever=lambda _: answer))  # type: ignore[arg-type, return-value]
    with pytest.raises(KeyUnavailableError, match=r"retriever returns for .* column 'a'"):
        keys.key(("a",), b"kc1")


def test_a_retriever_that_fails() -> None:
    def retriever(key_metadata: bytes) -> bytes:
        raise ConnectionError("no way to the KMS")

    with pytest.raises(
        KeyUnavailableError, match="the key retriever failed: ConnectionError"
    ) as caught:
        keys_of(Decryption(key_retriever=retriever)).key((), b"kf")
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_external_key_material_is_read_when_it_is_needed() -> None:
    reference = KeyReference(key_reference="columnKey0").to_json()
    decryption = Decryption(kms=KMS)
    with pytest.raises(KeyUnavailableError, match=r"_KEY_MATERIAL_FOR_a\.parquet\.json"):
        keys_of(decryption).key(("a",), reference)

    def absent() -> bytes:
        raise FileNotFoundError("dir/x")

    with pytest.raises(KeyUnavailableError, match="cannot be read: FileNotFoundError"):
        FileKeys(decryption, "dir/a.parquet", absent).key(("a",), reference)
    with pytest.raises(KeyUnavailableError, match="no entry 'columnKey0'"):
        FileKeys(decryption, "dir/a.parquet", lambda: b"{}").key(("a",), reference)


@pytest.mark.parametrize(
    "metadata, label",
    [
        (None, None),
        (b"", None),
        (b"kf", "kf"),
        ("clé é".encode(), "clé é"),
        (b"\x00\x01", "2 bytes of key metadata"),
        (b"\xff\xfe", "2 bytes of key metadata"),
        (b"a\nb", "3 bytes of key metadata"),
        (b"x" * 65, "65 bytes of key metadata"),
        (b'{"key":"abc"}', "13 bytes of key metadata"),
        (wrap_dek(b"d" * 16, "kf", KMS).to_json(), "kf"),
        (KeyReference(key_reference="columnKey0").to_json(), "columnKey0"),
        (b'{"keyMaterialType":"PKMT1"}', "damaged key material"),
    ],
)
def test_labels(metadata: bytes | None, label: str | None) -> None:
    assert key_label(metadata) == label


def test_keys_of_a_wrong_kind() -> None:
    with pytest.raises(ValueError, match="the footer key has 5 bytes"):
        Decryption(footer_key=b"12345")
    with pytest.raises(ValueError, match="the key of column 'a' has 5 bytes"):
        Decryption(column_keys={"a": b"12345"})
    with pytest.raises(TypeError, match="the footer key is bytes, not str"):
        Decryption(footer_key="0123456789012345")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="aad_prefix"):
        Decryption(aad_prefix="tester")  # type: ignore[arg-type]


def test_an_aad_prefix_may_depend_on_the_file() -> None:
    decryption = Decryption(aad_prefix=lambda file: file.rpartition("/")[2].encode())
    assert decryption.prefix_for("dir/a") == b"a"
    assert Decryption(aad_prefix=b"b").prefix_for("dir/a") == b"b"
    assert Decryption().prefix_for("dir/a") is None


def test_a_decryption_pickles_with_its_keys_and_without_what_it_remembers() -> None:
    decryption = Decryption(
        footer_key=b"1" * 16,
        column_keys={"`x.y`": b"2" * 32},
        aad_prefix=b"p",
        allow_plaintext_files=True,
    )
    again = pickle.loads(pickle.dumps(decryption))
    assert repr(again) == repr(decryption)
    assert keys_of(again).key(("x.y",), None).reveal() == b"2" * 32
    assert keys_of(again).key((), None).reveal() == b"1" * 16
    assert again.allow_plaintext_files
    assert again.check_footer_integrity
    assert again.aad_prefix == b"p"


def test_keys_never_show() -> None:
    secret = b"SECRETSECRETSECR"
    bad = b"SECRETSECRET"
    decryption = Decryption(
        footer_key=secret, column_keys={"a": secret}, key_retriever=lambda _: bad, kms=KMS
    )
    assert repr(decryption) == (
        "Decryption(footer_key=<AES key of 128 bits>, column_keys of a, key_retriever, kms)"
    )
    shown = [repr(decryption), repr(keys_of(decryption))]
    for call in (
        lambda: Decryption(footer_key=bad),
        lambda: Decryption(column_keys={"a": bad}),
        lambda: keys_of(decryption).key(("b",), b"kc1"),
    ):
        with pytest.raises((ValueError, KeyUnavailableError)) as caught:
            call()
        shown.append("".join(traceback.format_exception(caught.value)))
        shown.append(repr(caught.value))
    hidden = (secret.decode(), secret.hex(), bad.hex())
    # The tests' own source lines are in the tracebacks, and hold no key.
    assert not any(each in text for each in hidden for text in shown)
    assert not any("SECRET" in text for text in shown)
