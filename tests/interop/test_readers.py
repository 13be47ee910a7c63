"""Files of ``write_table``, ``retrofit`` and ``encrypt``, read by readers that other people wrote.

Every reader gives every row of every kind of file, and the rows of a condition that it may skip by.
What a reader cannot do stands in ``LIMITS`` and ``COLUMNS``, with the reason. A file of ``LIMITS``
must give an error, and never other rows; where a new version reads it, the line goes. Spark opens
encrypted files through a KMS only, which ``tests/rewrite/test_encrypt_spark.py`` checks; ``make
interop`` runs it as well.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import datafusion
import duckdb
import fastparquet
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyspark.sql import SparkSession

import skipstone
from skipstone import Encryption
from skipstone.rewrite import encrypt, retrofit
from tests.interop.java_systems import java_tool
from tests.parquet.encryption.arrow_kms import ArrowKms
from tests.parquet.encryption.keys import PlainKms
from tests.rewrite.written import table

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.interop

COUNT = 2_000
KEY = b"0123456789012345"
KEYS = {"s": b"1234567890123450" * 2, "l.list.element": b"1234567890123451"}
LAYOUT: dict[str, Any] = {"row_group_rows": 700, "page_rows": 90}


def rows() -> pa.Table:
    """Flat and nested columns, both zeros, NaN, nulls, and types that have a logical type."""
    n, start = range(COUNT), datetime(2024, 5, 6)
    more: dict[str, pa.Array] = {
        "i8": pa.array([i % 200 - 100 for i in n], pa.int8()),
        "u32": pa.array([i * 1_048_573 % 2**32 for i in n], pa.uint32()),
        "day": pa.array([date(1960, 1, 1) + timedelta(days=i * 11) for i in n], pa.date32()),
        "at": pa.array([start + timedelta(microseconds=i * 7_777_777) for i in n]),
        "x": pa.array([None if i % 4 == 0 else bytes([i % 256] * (i % 5)) for i in n]),
        "d": pa.array([Decimal(i - 900).scaleb(-2) for i in n], pa.decimal128(9, 2)),
    }
    found = table(COUNT)
    for name, values in more.items():
        found = found.append_column(name, values)
    return found


ROWS = rows()


class Made(NamedTuple):
    """A way to make a file: the function, and what is needed to open it."""

    make: Callable[[Path], object]
    footer_key: bytes | None = None
    column_keys: dict[str, bytes] | None = None
    kms: bool = False


def _write(**options: Any) -> Made:
    return Made(lambda path: skipstone.write_table(ROWS, path, **(LAYOUT | options)))


def _retrofit(version: str = "1.0", **options: Any) -> Made:
    def make(path: Path) -> None:
        pq.write_table(
            ROWS, path, row_group_size=700, write_statistics=False, data_page_version=version
        )
        retrofit(path, bloom={"id": 0.01, "s": 0.01}, **options)

    return Made(make)


def _encrypt(**options: Any) -> Made:
    def make(path: Path) -> None:
        pq.write_table(ROWS, path, row_group_size=700, write_page_index=True)
        encrypt(path, encryption=Encryption(**options))

    return Made(make, options.get("footer_key"), options.get("column_keys"), "kms" in options)


FILES = {
    "written": _write(),
    "written, v2 pages, zstd, Bloom filters, in order": _write(
        compression="zstd",
        bloom={"id": 0.01, "s": 0.01, "k": 0.01},
        sorting=["id"],
        arrow_options={"data_page_version": "2.0"},
    ),
    "written, delta encodings, gzip": _write(
        compression="gzip",
        arrow_options={
            "use_dictionary": False,
            "column_encoding": {
                "id": "DELTA_BINARY_PACKED",
                "s": "DELTA_LENGTH_BYTE_ARRAY",
                "u": "DELTA_BYTE_ARRAY",
                "f": "BYTE_STREAM_SPLIT",
            },
        },
    ),
    "written, delta encodings, v2 pages, lz4": _write(
        compression="lz4",
        arrow_options={
            "use_dictionary": False,
            "data_page_version": "2.0",
            "column_encoding": {"id": "DELTA_BINARY_PACKED", "u": "DELTA_BYTE_ARRAY"},
        },
    ),
    "written, brotli": _write(compression="brotli"),
    "written, with index pages of 2013": _write(index_pages=["id", "s"], interleave=True),
    "written, with checkpoints": _write(checkpoint_every=1),
    "retrofitted": _retrofit(),
    "retrofitted, pages split": _retrofit(page_rows=60),
    "retrofitted, v2 pages": _retrofit("2.0", page_rows=60),
    "encrypted, one key": _encrypt(footer_key=KEY),
    "encrypted, keys of columns": _encrypt(footer_key=KEY, column_keys=KEYS),
    "encrypted, AES_GCM_CTR_V1": _encrypt(footer_key=KEY, algorithm="AES_GCM_CTR_V1"),
    "encrypted, plaintext footer": _encrypt(
        footer_key=KEY, plaintext_footer=True, column_keys=KEYS
    ),
    "encrypted, keys of a KMS": _encrypt(
        kms=PlainKms(), footer_key_id="kf", column_key_ids={"s": "ks", "l.list.element": "kl"}
    ),
    "encrypted, keys of a KMS, plaintext footer": _encrypt(
        kms=PlainKms(), footer_key_id="kf", column_key_ids={"s": "ks"}, plaintext_footer=True
    ),
    "written encrypted, a page per chunk": Made(
        lambda path: skipstone.write_table(
            ROWS, path, encryption=Encryption(footer_key=KEY), row_group_rows=700
        ),
        KEY,
    ),
    "written encrypted": Made(
        lambda path: skipstone.write_table(
            ROWS, path, encryption=Encryption(footer_key=KEY), **LAYOUT
        ),
        KEY,
    ),
}
ENCRYPTED = [name for name in FILES if "encrypted" in name]
WRAPPED = [name for name, made in FILES.items() if made.kms]

_FASTPARQUET_DELTA = "it lacks DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY and BYTE_STREAM_SPLIT"
_FASTPARQUET_V2 = "it fails at two v2 pages of nulls in a row group, Arrow's too"

#: what a reader cannot open, and why
LIMITS = {
    **{("DataFusion", name): "its wheel has no decryption" for name in ENCRYPTED},
    **{("fastparquet", name): "it has no decryption" for name in ENCRYPTED},
    **{("Spark", name): "it takes keys from a KMS only" for name in ENCRYPTED},
    **{
        (name, each): "it has no client of a KMS"
        for name in ("polars", "DuckDB")
        for each in WRAPPED
    },
    ("pyarrow", "encrypted, keys of columns"): "in Python it takes one key, or those of a KMS",
    ("pyarrow", "encrypted, plaintext footer"): "in Python it takes one key, or those of a KMS",
    ("Spark", "written, brotli"): "it comes without Brotli",
    # It also takes 64-bit numbers in DELTA_BINARY_PACKED of v2 pages, Arrow's too, for others.
    **{("fastparquet", name): _FASTPARQUET_DELTA for name in FILES if "delta" in name},
    **{("fastparquet", name): _FASTPARQUET_V2 for name in FILES if name.count("v2 pages")},
    ("polars", "encrypted, AES_GCM_CTR_V1"): "it decrypts AES_GCM_V1 only",
    ("DuckDB", "encrypted, AES_GCM_CTR_V1"): "it decrypts AES_GCM_V1 only",
    ("DuckDB", "written encrypted"): "it fails at two encrypted pages of a chunk, Arrow's too",
    ("DuckDB", "encrypted, keys of columns"): "it takes one key, that of the footer",
    ("DuckDB", "encrypted, plaintext footer"): "it takes no plaintext footer",
}
NESTED = ("l", "ll", "m", "st")
#: columns that a reader does not give as they are, and why; it is asked for the others
COLUMNS = {
    "fastparquet": {"d": "decimals become float64", **dict.fromkeys(NESTED, "no nested columns")},
    # So it is with Arrow's encrypted files.
    "DuckDB, encrypted": dict.fromkeys(NESTED, "nested columns have another ordinal there"),
}


def left_out(reader: str, name: str) -> dict[str, str]:
    """The columns that a reader is not asked for."""
    return COLUMNS.get(f"{reader}, encrypted" if name in ENCRYPTED else reader, {})


def by_pyarrow(path: Path, made: Made, names: list[str]) -> tuple[pa.Table, int]:
    keys = None
    if made.kms:
        keys = pe.CryptoFactory(ArrowKms).file_decryption_properties(
            pe.KmsConnectionConfig(), parquet_file_path=str(path)
        )
    elif made.footer_key:
        keys = pe.create_decryption_properties(footer_key=made.footer_key)
    found = pq.read_table(path, decryption_properties=keys, page_checksum_verification=True)
    few = pq.read_table(path, decryption_properties=keys, filters=[("id", "=", 577)])
    return found, few.num_rows


def by_polars(path: Path, made: Made, names: list[str]) -> tuple[pa.Table, int]:
    keys = None
    if made.footer_key:
        keys = polars.ParquetDecryptionProperties(
            footer_key=made.footer_key, column_keys=made.column_keys
        )
    lazy = polars.scan_parquet(path, decryption=keys)
    few = lazy.filter(polars.col("id") == 577).select(polars.len()).collect().item()
    return lazy.collect().to_arrow(), few


def by_duckdb(path: Path, made: Made, names: list[str]) -> tuple[pa.Table, int]:
    options = ""
    with duckdb.connect() as connection:
        if made.footer_key:
            connection.execute(f"PRAGMA add_parquet_key('k', '{made.footer_key.decode()}')")
            options = ", encryption_config = {footer_key: 'k'}"
        source = f"read_parquet('{path}'{options})"
        columns = ", ".join(f'"{name}"' for name in names)
        found = connection.sql(f"SELECT {columns} FROM {source}").to_arrow_table()
        if (
            made.footer_key
        ):  # it fails at a condition on any encrypted file, Arrow's and polars' too
            return found, found.filter(pc.equal(found["id"], 577)).num_rows
        return found, len(connection.sql(f"SELECT id FROM {source} WHERE id = 577"))


def by_datafusion(path: Path, made: Made, names: list[str]) -> tuple[pa.Table, int]:
    settings = datafusion.SessionConfig().set(
        "datafusion.execution.parquet.pushdown_filters", "true"
    )
    context: Any = datafusion.SessionContext(settings.with_target_partitions(1))
    context.register_parquet("t", str(path))
    few = context.sql("SELECT count(*) AS c FROM t WHERE id = 577").to_pydict()["c"]
    batches = context.sql("SELECT * FROM t").collect()
    return pa.Table.from_batches(batches, batches[0].schema), few[0]


def by_fastparquet(path: Path, made: Made, names: list[str]) -> tuple[pa.Table, int]:
    with ExitStack() as opened:  # it leaves files open
        file = fastparquet.ParquetFile(
            str(path), open_with=lambda name, mode="rb": opened.enter_context(Path(name).open(mode))
        )
        frame = file.to_pandas(columns=names)
        few = len(file.to_pandas(columns=["id"], filters=[("id", "==", 577)], row_filter=True))
    # Not from_pandas of a column of floating point, which would make nulls of NaN.
    found = {
        name: pa.array(frame[name], from_pandas=not pa.types.is_floating(ROWS.field(name).type))
        for name in names
    }
    return pa.table(found), few


def by_spark(path: Path, made: Made, names: list[str]) -> tuple[pa.Table, int]:
    frame = SparkSession.active().read.parquet(str(path))
    return frame.toArrow(), frame.where("id = 577").count()


READERS = {
    "pyarrow": by_pyarrow,
    "polars": by_polars,
    "DuckDB": by_duckdb,
    "DataFusion": by_datafusion,
    "fastparquet": by_fastparquet,
    "Spark": by_spark,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_gives_every_row_or_an_error_that_is_expected(
    reader: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if reader == "Spark":
        java_tool("java")
        request.getfixturevalue("spark")
    seen: Counter[str] = Counter()
    for number, (name, made) in enumerate(FILES.items()):
        path = tmp_path / f"{number}.parquet"
        made.make(path)
        without = left_out(reader, name)
        expected = ROWS.select([each for each in ROWS.schema.names if each not in without])
        if limit := LIMITS.get((reader, name)):
            with pytest.raises(Exception):  # noqa: B017  DataFusion raises this class
                READERS[reader](path, made, expected.schema.names)
            seen[f"refused: {limit}"] += 1
            continue
        found, few = READERS[reader](path, made, expected.schema.names)
        found = found.select(expected.schema.names).cast(expected.schema)
        for column, values in zip(expected.schema.names, expected, strict=True):
            same = repr(found[column].to_pylist()) == repr(values.to_pylist())
            assert same, f"{name}: {column}"
        assert few == 1, name
        seen["read"] += 1
        for column, reason in without.items():
            seen[f"without {column}: {reason}"] += 1
    print(f"\n{reader}: {dict(seen)}")
    assert sum(number for what, number in seen.items() if not what.startswith("without ")) == len(
        FILES
    )
