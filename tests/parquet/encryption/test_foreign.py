"""Files of Arrow, polars and parquet-java decrypted here, and files sealed here read by them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from skipstone.errors import KeyUnavailableError
from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.encryption.key_material import key_material_path
from skipstone.parquet.encryption.modules import AuthenticationError
from tests.parquet.encryption.arrow_kms import ArrowKms
from tests.parquet.encryption.encrypted import seal
from tests.parquet.encryption.keys import PlainKms
from tests.parquet.encryption.plain import open_bytes, plain_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FLAT = pa.table(
    {
        "a": pa.array([None if i % 7 == 0 else i % 50 for i in range(1000)], pa.int32()),
        "s": pa.array([f"é{i}" for i in range(1000)], pa.string()),
        "x": pa.array([float("nan") if i % 9 == 0 else i / 3 for i in range(1000)], pa.float64()),
        "n": pa.nulls(1000, pa.int64()),
    }
)
NESTED = FLAT.append_column(
    "l", pa.array([[j * i for j in range(i % 3)] for i in range(1000)], pa.list_(pa.int64()))
)
KEY = b"0123456789012345"
PREFIX = "día/1".encode()
KEY_A = b"1234567890123450"
KEY_S = b"123456789012345678901234"


def equal(found: pa.Table, expected: pa.Table) -> bool:
    """NaN equals NaN."""
    return repr(found.cast(expected.schema).to_pydict()) == repr(expected.to_pydict())


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("prefix", [None, "stored", "supplied"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_arrow_with_one_key(
    algorithm: str, plaintext_footer: bool, prefix: str | None, version: str
) -> None:
    key = b"k" * (16 if prefix is None else 24 if prefix == "stored" else 32)
    properties = pe.create_encryption_properties(
        footer_key=key,
        aad_prefix=prefix and b"table/part 1",
        store_aad_prefix=prefix == "stored",
        encryption_algorithm=algorithm,
        plaintext_footer=plaintext_footer,
    )
    sink = io.BytesIO()
    pq.write_table(
        NESTED,
        sink,
        encryption_properties=properties,
        data_page_version=version,
        write_page_index=True,
        row_group_size=400,
        max_rows_per_page=100,
        compression="zstd",
    )
    decryption = Decryption(
        footer_key=key, aad_prefix=b"table/part 1" if prefix == "supplied" else None
    )
    opened = open_bytes(sink.getvalue(), decryption)
    table, seen = plain_table(sink.getvalue(), opened)
    assert opened.unavailable == {}
    assert opened.signature_verified == plaintext_footer
    assert equal(table, NESTED)
    # Three row groups of 400, 400 and 200 rows, 100 rows per page, five columns.
    assert (seen.pages, seen.offset_indexes) == (50, 15)
    assert seen.v2_pages == (50 if version == "2.0" else 0)


@pytest.mark.parametrize("double_wrapping", [False, True])
@pytest.mark.parametrize("internal", [False, True])
@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
def test_arrow_with_a_kms(
    tmp_path: Path, double_wrapping: bool, internal: bool, plaintext_footer: bool, algorithm: str
) -> None:
    path = tmp_path / "one é.parquet"
    factory = pe.CryptoFactory(ArrowKms)
    properties = factory.file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration(
            footer_key="kf",
            column_keys={"ka": ["a", "l.list.element"], "ks": ["s"]},
            double_wrapping=double_wrapping,
            internal_key_material=internal,
            plaintext_footer=plaintext_footer,
            encryption_algorithm=algorithm,
        ),
        parquet_file_path=str(path),
    )
    pq.write_table(NESTED, path, encryption_properties=properties, write_page_index=True)
    beside = path.parent / key_material_path(path.name)
    assert beside.exists() != internal
    content = path.read_bytes()
    for kms in (PlainKms(), ArrowKms(None)):
        opened = open_bytes(
            content, Decryption(kms=kms), file=str(path), load_key_material=beside.read_bytes
        )
        table, seen = plain_table(content, opened)
        assert opened.unavailable == {}
        assert opened.signature_verified == plaintext_footer
        assert equal(table, NESTED)
        assert (seen.column_indexes, seen.offset_indexes) == (3, 3)
        # A key encryption key per master key; single wrapping asks once per column.
        calls = kms.calls if isinstance(kms, PlainKms) else kms.kms.calls
        assert calls == (3 if double_wrapping else 4)

    class NotForA(PlainKms):
        def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
            if master_key_identifier == "ka":
                raise PermissionError
            return super().unwrap_key(wrapped_key, master_key_identifier)

    opened = open_bytes(content, Decryption(kms=NotForA()), load_key_material=beside.read_bytes)
    assert sorted(opened.footer.schema.leaves[c].name for c in opened.unavailable) == [
        "a",
        "l.list.element",
    ]
    for error in opened.unavailable.values():
        assert isinstance(error, KeyUnavailableError)
        assert "'ka': PermissionError" in error.message


@pytest.mark.parametrize(
    "column_keys", [None, {"a": KEY_A, "s": KEY_S + b"99999999", "l.list.element": KEY}]
)
@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("prefix", [None, "stored", "supplied"])
def test_polars(
    column_keys: dict[str, bytes] | None, plaintext_footer: bool, prefix: str | None
) -> None:
    sink = io.BytesIO()
    pl.DataFrame(NESTED).write_parquet(
        sink,
        row_group_size=300,
        encryption=pl.ParquetEncryptionProperties(
            footer_key=KEY,
            column_keys=column_keys,
            plaintext_footer=plaintext_footer,
            aad_prefix=None if prefix is None else b"p",
            store_aad_prefix=prefix == "stored",
        ),
    )
    decryption = Decryption(
        footer_key=KEY, column_keys=column_keys, aad_prefix=b"p" if prefix == "supplied" else None
    )
    opened = open_bytes(sink.getvalue(), decryption)
    table, seen = plain_table(sink.getvalue(), opened)
    assert opened.unavailable == {}
    assert opened.signature_verified == plaintext_footer
    assert equal(table, NESTED)
    assert seen.offset_indexes == 4 * (5 if column_keys is None else 3)
    if column_keys is not None:
        wrong = Decryption(
            footer_key=KEY,
            column_keys=column_keys | {"a": KEY_S},
            aad_prefix=b"p" if prefix else None,
        )
        (error,) = open_bytes(sink.getvalue(), wrong).unavailable.values()
        assert isinstance(error, AuthenticationError)


@pytest.mark.spark
@pytest.mark.parametrize("version", ["PARQUET_1_0", "PARQUET_2_0"])
@pytest.mark.parametrize("ctr", [False, True])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_parquet_java(
    spark: SparkSession, tmp_path: Path, version: str, ctr: bool, plaintext_footer: bool
) -> None:
    """Two columns of four have keys of their own; the levels of v2 pages stay in the clear."""
    path = tmp_path / "java.parquet"
    rows = _write_with_java(spark, path, version, ctr, plaintext_footer)
    content = path.read_bytes()
    decryption = Decryption(footer_key=KEY, column_keys={"a": KEY_A, "l": KEY_S}, aad_prefix=PREFIX)
    opened = open_bytes(content, decryption, file=str(path))
    table, seen = plain_table(content, opened)
    assert opened.unavailable == {}
    assert opened.signature_verified == plaintext_footer
    assert table.to_pylist() == rows
    assert seen.v2_pages == (seen.pages if version == "PARQUET_2_0" else 0)
    groups = opened.footer.num_row_groups
    assert groups > 1
    assert (seen.column_indexes, seen.offset_indexes) == (2 * groups, 2 * groups)
    assert set(seen.bloom_filters) == {(r, "a") for r in range(groups)}


def _write_with_java(
    spark: SparkSession, path: Path, version: str, ctr: bool, plaintext_footer: bool
) -> list[dict[str, Any]]:
    jvm: Any = spark._jvm
    parquet, crypto = jvm.org.apache.parquet, jvm.org.apache.parquet.crypto
    schema = parquet.schema.MessageTypeParser.parseMessageType(
        "message m { optional int32 a; optional binary s (UTF8);"
        " optional group l (LIST) { repeated group list { optional int32 element; } }"
        " required double d; }"
    )
    columns = jvm.java.util.HashMap()
    for name, key in (("a", KEY_A), ("l.list.element", KEY_S)):
        column = parquet.hadoop.metadata.ColumnPath.fromDotString(name)
        builder = crypto.ColumnEncryptionProperties.builder(column).withKey(key).withKeyID(name)
        columns.put(column, builder.build())
    properties = (
        crypto.FileEncryptionProperties.builder(KEY)
        .withFooterKeyID("kf")
        .withAADPrefix(PREFIX)
        .withoutAADPrefixStorage()
        .withEncryptedColumns(columns)
    )
    if ctr:
        properties = properties.withAlgorithm(crypto.ParquetCipher.valueOf("AES_GCM_CTR_V1"))
    if plaintext_footer:
        properties = properties.withPlaintextFooter()
    writer = (
        parquet.hadoop.example.ExampleParquetWriter.builder(
            jvm.org.apache.hadoop.fs.Path(str(path))
        )
        .withType(schema)
        .withEncryption(properties.build())
        .withWriterVersion(parquet.column.ParquetProperties.WriterVersion.valueOf(version))
        .withCompressionCodec(parquet.hadoop.metadata.CompressionCodecName.SNAPPY)
        .withPageRowCountLimit(40)
        .withRowGroupSize(1000)
        .withMinRowCountForPageSizeCheck(20)
        .withMaxRowCountForPageSizeCheck(20)
        .withDictionaryEncoding(True)
        .withDictionaryEncoding("a", False)
        .withBloomFilterEnabled("a", True)
        .withMaxBloomFilterBytes(256)
        .build()
    )
    factory = parquet.example.data.simple.SimpleGroupFactory(schema)
    rows: list[dict[str, Any]] = []
    for i in range(300):
        row: dict[str, Any] = {
            "a": None if i % 7 == 0 else i % 50,
            "s": f"v{i % 20}",
            "l": [i * j for j in range(i % 3)],
            "d": i + 0.5,
        }
        group = factory.newGroup()
        if row["a"] is not None:
            group.append("a", row["a"])
        group.append("s", row["s"])
        items = group.addGroup("l")
        for each in row["l"]:
            items.addGroup("list").append("element", each)
        group.append("d", row["d"])
        writer.write(group)
        rows.append(row)
    writer.close()
    return rows


@pytest.mark.parametrize("ctr", [False, True])
@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("prefix", [None, "stored", "supplied"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_arrow_reads_what_is_sealed(
    ctr: bool, plaintext_footer: bool, prefix: str | None, version: str
) -> None:
    content = _sealed(None, version, ctr, plaintext_footer, prefix)
    properties = pe.create_decryption_properties(
        footer_key=KEY, aad_prefix=b"p" if prefix == "supplied" else None
    )
    table = pq.read_table(io.BytesIO(content), decryption_properties=properties)
    assert equal(table, FLAT)


@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("prefix", [None, "stored", "supplied"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_polars_reads_what_is_sealed(
    plaintext_footer: bool, prefix: str | None, version: str
) -> None:
    keys = {"a": KEY_A, "s": KEY}
    content = _sealed(keys, version, False, plaintext_footer, prefix)
    frame = pl.scan_parquet(
        io.BytesIO(content),
        decryption=pl.ParquetDecryptionProperties(
            footer_key=KEY, column_keys=keys, aad_prefix=b"p" if prefix == "supplied" else None
        ),
    ).collect()
    assert equal(frame.to_arrow(), FLAT)


@pytest.mark.parametrize("ctr", [False, True])
@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_what_is_sealed_opens(ctr: bool, plaintext_footer: bool, version: str) -> None:
    keys = {"a": KEY_A, "s": KEY_S}
    content = _sealed(keys, version, ctr, plaintext_footer, "stored")
    opened = open_bytes(content, Decryption(footer_key=KEY, column_keys=keys))
    assert equal(plain_table(content, opened)[0], FLAT)
    # Without the key of "a" there is a table of the other three columns.
    opened = open_bytes(content, Decryption(footer_key=KEY, column_keys={"s": KEY_S}))
    assert equal(plain_table(content, opened)[0], FLAT.drop_columns(["a"]))
    assert list(opened.unavailable) == [0]


def _sealed(
    keys: dict[str, bytes] | None,
    version: str,
    ctr: bool,
    plaintext_footer: bool,
    prefix: str | None,
) -> bytes:
    sink = io.BytesIO()
    pq.write_table(FLAT, sink, row_group_size=400, data_page_version=version, max_rows_per_page=100)
    return seal(
        sink.getvalue(),
        KEY,
        keys,
        ctr=ctr,
        plaintext_footer=plaintext_footer,
        aad_prefix=None if prefix is None else b"p",
        store_aad_prefix=prefix == "stored",
    )
