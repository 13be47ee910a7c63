"""Encrypted stores: read with the keys, described by labels without, never guessed."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from skipstone.errors import KeyUnavailableError, UnsupportedError
from skipstone.parquet.format.footer import find_footer
from skipstone.xskipper.format.bloom_probe import BlobColumn
from skipstone.xskipper.format.part import footer_key_label, read_footer, read_part, to_bytes
from skipstone.xskipper.format.rows import BloomRows, MinMaxRows, UnreadRows, ValueListRows, decode
from skipstone.xskipper.format.schema import ROW_METADATA_KEY, StoreSchema
from skipstone.xskipper.upgrade import upgrade
from tests.xskipper.format.reference_bloom import each_in

if TYPE_CHECKING:
    from pathlib import Path


class LocalKms(pe.KmsClient):  # type: ignore[misc]
    """parquet-mr's local wrapping: AES-GCM, the label as AAD, a nonce of 12 bytes in front."""

    def __init__(self, keys: dict[str, str]) -> None:
        super().__init__()
        self.keys = keys

    def _key(self, label: str) -> AESGCM:
        return AESGCM(base64.b64decode(self.keys[label]))

    def wrap_key(self, key: bytes, label: str) -> str:
        nonce = b"\x07" * 12
        sealed = self._key(label).encrypt(nonce, key, label.encode())
        return base64.b64encode(nonce + sealed).decode()

    def unwrap_key(self, wrapped: bytes, label: str) -> bytes:
        raw = base64.b64decode(wrapped)
        return self._key(label).decrypt(raw[:12], raw[12:], label.encode())


def decryption(keys: dict[str, str]) -> Any:
    factory = pe.CryptoFactory(lambda _config: LocalKms(keys))
    return factory.file_decryption_properties(pe.KmsConnectionConfig())


def golden_part(golden: Path) -> tuple[bytes, dict[str, Any]]:
    folder = golden / "xskipper" / "encrypted_spark400"
    [path] = (folder / "md_encrypted_footer").rglob("part-*.parquet")
    return path.read_bytes(), json.loads((folder / "case.json").read_text())


def test_a_golden_store_with_its_keys(golden: Path) -> None:
    data, case = golden_part(golden)
    part = read_part(data, decryption=decryption(case["keys"]))
    assert part.unreadable == ()
    schema = part.footer.schema
    assert schema.version == 4
    assert schema.encryption is not None
    assert schema.encryption.footer_key == "k1"
    assert schema.encryption.labels() == ("k1", "k2")
    assert not schema.encryption.plaintext_footer
    assert [[i.kind, i.columns[0], i.key_metadata] for i in schema.indexes] == case["indexes"]
    assert schema.encryption.paths()["k2"] == ("s_valuelist_1.list.element",)
    rows = decode(part)
    assert [each.column for each in schema.virtual_columns] == ["p"]
    ids, texts, filters = rows.indexes
    assert isinstance(ids, MinMaxRows)
    assert isinstance(texts, ValueListRows)
    assert isinstance(filters, BloomRows)
    assert not ids.empty.any()
    column = BlobColumn(filters.blobs)
    assert column.ok.all()
    for at, values in enumerate(texts.values.to_pylist()):
        assert each_in(column, [v.encode() for v in values])[:, at].all()
    with pytest.raises(UnsupportedError, match="encrypted"):
        to_bytes(part.table, schema)
    assert upgrade(part.table, schema)[1] == schema


def test_a_golden_store_without_keys_names_the_label_it_needs(golden: Path) -> None:
    data, _ = golden_part(golden)
    assert footer_key_label(find_footer(data)[1]) == "k1"
    assert footer_key_label(find_footer(data)[1][1_000:]) is None
    for read in (read_footer, read_part):
        with pytest.raises(KeyUnavailableError, match="labelled 'k1'"):
            read(data)


def test_a_golden_store_with_some_keys(golden: Path) -> None:
    data, case = golden_part(golden)
    some = {"k1": case["keys"]["k1"]}
    part = read_part(data, decryption=decryption(some))
    assert part.unreadable == (("s_valuelist_1", "needs the key labelled 'k2'"),)
    ids, texts, filters = decode(part).indexes
    assert isinstance(ids, MinMaxRows)
    assert isinstance(filters, BloomRows)
    assert isinstance(texts, UnreadRows)
    assert texts.reason == "needs the key labelled 'k2'"


def plaintext_footer(keys: dict[str, str], schema: str) -> bytes:
    """A store with a plaintext footer: obj_name and the index are encrypted all the same."""
    bounds = pa.array([{"min": 1, "max": 2}])
    table = pa.table({"obj_name": ["/t/a#1"], "temp_minmax_4": bounds})
    config = pe.EncryptionConfiguration(
        footer_key="k1",
        column_keys={
            "k1": ["obj_name"],
            "k2": ["temp_minmax_4.min", "temp_minmax_4.max"],
        },
        plaintext_footer=True,
    )
    factory = pe.CryptoFactory(lambda _config: LocalKms(keys))
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({ROW_METADATA_KEY: schema})
    return bytes(sink.getvalue())


def test_a_plaintext_footer_is_read_without_keys() -> None:
    long: list[dict[str, Any]] = [
        {"name": e, "type": "long", "nullable": True, "metadata": {}} for e in ("min", "max")
    ]
    encryption = {
        "encryption.column.keys": "k2:temp_minmax_4.min,temp_minmax_4.max;k1:obj_name",
        "encryption.footer.key": "k1",
        "encryption.plaintext.footer": "true",
    }
    master = {"tableIdentifier": "/t", "version": 4, "encryption": encryption}
    index = {"name": "minmax", "cols": ["temp"], "key_metadata": "k2"}
    schema = {
        "type": "struct",
        "fields": [
            {"name": "obj_name", "type": "string", "nullable": True, "metadata": master},
            {
                "name": "temp_minmax_4",
                "type": {"type": "struct", "fields": long},
                "nullable": True,
                "metadata": {"index": index},
            },
        ],
    }
    keys = {label: base64.b64encode(label.encode() * 8).decode() for label in ("k1", "k2")}
    data = plaintext_footer(keys, json.dumps(schema))
    footer = read_footer(data)
    assert footer.schema == StoreSchema.from_json(json.dumps(schema))
    assert footer.schema.encryption is not None
    assert footer.schema.encryption.labels() == ("k1", "k2")
    with pytest.raises(KeyUnavailableError, match="labelled 'k1'"):
        read_part(data)
    rows = decode(read_part(data, decryption=decryption(keys)))
    assert rows.path.to_pylist() == ["/t/a"]
    assert isinstance(rows.indexes[0], MinMaxRows)
