"""Encrypted from the first byte: pages, indexes and filters; read by us, and by others who can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skipstone import Decryption, Encryption, ParquetFile, write_table
from skipstone.errors import KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.parquet.encryption.key_material import key_material_path
from skipstone.rewrite import decrypt
from tests.parquet.encryption.keys import PlainKms
from tests.rewrite.encrypted_files import KEY, KEYS, equal, modules, rows
from tests.rewrite.written import page_rows_of, same_everywhere
from tests.strategies import ARROW_TYPES, tables

if TYPE_CHECKING:
    from pathlib import Path

ALGORITHMS = ["AES_GCM_V1", "AES_GCM_CTR_V1"]
LAYOUT: dict[str, Any] = {
    "row_group_rows": 400,
    "page_rows": 100,
    "bloom": {"a": 0.01, "s": 0.01},
    "sorting": ["a"],
}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("prefix", [None, "stored", "supplied"])
@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_key(
    tmp_path: Path, algorithm: Any, plaintext_footer: bool, prefix: str | None, version: str
) -> None:
    """1,000 rows in row groups of 400, pages of 100: row 577 is in the second of either."""
    path = tmp_path / "a é=%.parquet"
    report = write_table(
        rows(),
        path,
        encryption=Encryption(
            footer_key=KEY,
            algorithm=algorithm,
            plaintext_footer=plaintext_footer,
            aad_prefix=None if prefix is None else b"table/part 1",
            store_aad_prefix=prefix != "supplied",
        ),
        arrow_options={"data_page_version": version},
        **LAYOUT,
    )
    assert report.algorithm == algorithm
    supplied = b"table/part 1" if prefix == "supplied" else None
    keys = Decryption(footer_key=KEY, aad_prefix=supplied)
    file = ParquetFile(path, decryption=keys)
    assert equal(file.query(), rows())
    assert file.query("a = 577").num_rows == 1
    (planned,) = file.plan("a = 577").files
    assert planned.detail.rows is not None
    assert [each.tolist() for each in planned.detail.rows.ranges()] == [[500], [600]]
    assert page_rows_of(file) == {(100,) * 4, (100,) * 2}
    assert file.bloom_filter(0, "s") is not None
    assert file.verify().ok
    assert file.signature_verified == plaintext_footer
    properties = pe.create_decryption_properties(footer_key=KEY, aad_prefix=supplied)
    assert equal(pq.read_table(path, decryption_properties=properties), rows())
    data = path.read_bytes()
    # Some of 40 short texts may stand in ciphertext by chance.
    assert not all(f"é{each}".encode() in data for each in range(40))
    with pytest.raises((KeyUnavailableError, SkipstoneError)):
        ParquetFile(path, decryption=Decryption(footer_key=KEY[::-1], aad_prefix=supplied)).query()
    decrypt(path, tmp_path / "clear.parquet", decryption=keys)
    same_everywhere(tmp_path / "clear.parquet", rows())


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_column_keys(tmp_path: Path, plaintext_footer: bool) -> None:
    """s and the list have keys of their own, n is in the clear: polars reads it, and who has only
    the footer key reads the rest."""
    path = tmp_path / "a.parquet"
    encryption = Encryption(
        footer_key=KEY,
        column_keys=KEYS,
        column_key_metadata={name: name for name in KEYS},
        footer_key_metadata="footer",
        plaintext_columns=["n"],
        plaintext_footer=plaintext_footer,
    )
    write_table(rows(), path, encryption=encryption, checkpoint_every=1, **LAYOUT)
    file = ParquetFile(path, decryption=Decryption(footer_key=KEY, column_keys=KEYS))
    assert equal(file.query(), rows())
    assert file.verify().ok
    theirs = pl.ParquetDecryptionProperties(footer_key=KEY, column_keys=KEYS)
    assert equal(pl.scan_parquet(path, decryption=theirs).collect().to_arrow(), rows())
    some = ParquetFile(path, decryption=Decryption(footer_key=KEY))
    names = ["a", "x", "n"]
    assert equal(some.query(columns=names), rows().select(names))
    with pytest.raises(KeyUnavailableError):
        some.query(columns=["s"])
    keys = Decryption(footer_key=KEY, column_keys=KEYS)
    assert {module.type.name for module in modules(path, keys)} >= {
        "DATA_PAGE",
        "DICTIONARY_PAGE",
        "COLUMN_INDEX",
        "OFFSET_INDEX",
        "BLOOM_FILTER_HEADER",
        "BLOOM_FILTER_BITSET",
    }


def test_wrapped_keys(tmp_path: Path) -> None:
    """In the file, or in one beside it that is there before the file is."""
    path = tmp_path / "a.parquet"
    options: dict[str, Any] = {"kms": PlainKms(), "footer_key_id": "kf"}
    write_table(rows(), path, encryption=Encryption(**options), **LAYOUT)
    assert equal(ParquetFile(path, decryption=Decryption(kms=PlainKms())).query(), rows())
    outside = Encryption(**options, internal_key_material=False)
    other = tmp_path / "b.parquet"
    report = write_table(rows(), other, encryption=outside, **LAYOUT)
    assert report.key_material == key_material_path(str(other))
    assert equal(ParquetFile(other, decryption=Decryption(kms=PlainKms())).query(), rows())
    with pytest.raises(UnsupportedError, match="may be needed"):
        write_table(rows(), other, encryption=outside)
    with pytest.raises(UnsupportedError, match="unfinished file"):
        write_table(rows(), tmp_path / "c.parquet", encryption=outside, checkpoint_every=1)


def test_what_is_refused(tmp_path: Path) -> None:
    encryption = Encryption(footer_key=KEY, column_keys={"zz": KEY})
    with pytest.raises(SkipstoneError, match="no column 'zz' to encrypt"):
        write_table(rows(), tmp_path / "a.parquet", encryption=encryption)
    with pytest.raises(UnsupportedError, match="index pages cannot be encrypted"):
        write_table(
            rows(),
            tmp_path / "a.parquet",
            encryption=Encryption(footer_key=KEY),
            index_pages=["a"],
        )
    with pytest.raises(UnsupportedError, match="more than 32,768 pages"):
        write_table(
            pa.table({"a": pa.nulls(32_769, pa.int8())}),
            tmp_path / "a.parquet",
            encryption=Encryption(footer_key=KEY),
            page_rows=1,
        )
    assert list(tmp_path.iterdir()) == []


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_table(tmp_path: Path, data: st.DataObject) -> None:
    """The same rows as without encryption, every module authentic."""
    drawn = data.draw(tables(ARROW_TYPES, max_rows=20))
    path = tmp_path / "a.parquet"
    encryption = Encryption(
        footer_key=KEY,
        algorithm=data.draw(st.sampled_from(ALGORITHMS)),
        plaintext_footer=data.draw(st.booleans()),
    )
    write_table(
        drawn,
        path,
        encryption=encryption,
        row_group_rows=data.draw(st.integers(1, 9)),
        page_rows=data.draw(st.sampled_from([None, 1, 2])),
        checkpoint_every=data.draw(st.integers(0, 2)),
    )
    file = ParquetFile(path, decryption=Decryption(footer_key=KEY))
    pq.write_table(drawn, tmp_path / "b.parquet")
    whole = pq.read_table(tmp_path / "b.parquet")
    assert repr(file.query().to_pydict()) == repr(whole.to_pydict())
    assert file.verify().ok
    properties = pe.create_decryption_properties(footer_key=KEY)
    theirs = pq.read_table(path, decryption_properties=properties)
    assert repr(theirs.to_pydict()) == repr(whole.to_pydict())
    assert theirs.schema.equals(pa.schema(whole.schema))


# -- NaN ----------------------------------------------------------------------------------------


def _with_nan() -> pa.Table:
    """400 rows: f and the floats of l ascend, with a NaN in row 250; g ascends without any."""
    numbers = [i / 100 for i in range(400)]
    numbers[250] = float("nan")
    return pa.table(
        {
            "f": numbers,
            "g": pa.array([i / 100 for i in range(400)], pa.float32()),
            "l": [[each] for each in numbers],
            "id": range(400),
        }
    )


@pytest.mark.parametrize("every", [0, 1, 3])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("own", [True, False])
def test_no_reader_loses_nan(
    tmp_path: Path, own: bool, plaintext_footer: bool, whole: bool, every: int
) -> None:
    """4 row groups of 100 rows, NaN in the third. What is said of a column with its own key, or
    under a plaintext footer, is sealed with each checkpoint, before the NaN comes."""
    path, table = tmp_path / "a.parquet", _with_nan()
    columns = dict.fromkeys(("f", "g", "l"), KEY[::-1]) if own else {}
    write_table(
        table if whole else iter(table.to_batches(100)),
        path,
        row_group_rows=100,
        page_rows=10,
        checkpoint_every=every,
        encryption=Encryption(
            footer_key=KEY, column_keys=columns, plaintext_footer=plaintext_footer
        ),
    )
    keys = Decryption(footer_key=KEY, column_keys=columns)
    file = ParquetFile(path, decryption=keys)
    assert equal(file.query(), table)
    assert file.verify().ok
    told = file.chunks()
    bounded = {
        name: {
            row["row_group"]
            for row in told.to_pylist()
            if row["column"].partition(".")[0] == name and row["min_value"] is not None
        }
        for name in table.column_names
    }
    every_group = {0, 1, 2, 3}
    assert bounded["id"] == every_group
    assert bounded["f"] == bounded["l"] == set()
    sealed_before = (own or plaintext_footer) and every > 0
    assert bounded["g"] == (set() if sealed_before and not whole else every_group)
    assert file.count("f > 3.5") == 50
    leaves = {"f": KEY[::-1], "g": KEY[::-1], "l.list.element": KEY[::-1]} if own else {}
    theirs = pl.ParquetDecryptionProperties(footer_key=KEY, column_keys=leaves)
    scan = pl.scan_parquet(path, decryption=theirs)
    assert scan.filter(pl.col("f") > 3.5).collect().height == 50
    assert scan.filter(pl.col("g") > 3.5).collect().height == 49
    if not own:  # pyarrow takes keys of columns from a KMS alone
        properties = pe.create_decryption_properties(footer_key=KEY)
        found = pq.read_table(path, decryption_properties=properties, filters=[("g", ">", 3.5)])
        assert equal(found, table.slice(351))
    decrypt(path, tmp_path / "clear.parquet", decryption=keys)
    clear = pl.scan_parquet(tmp_path / "clear.parquet").filter(pl.col("f") > 3.5)
    assert clear.collect().height == 50
