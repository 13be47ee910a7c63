"""`encrypt` and `decrypt`: the same rows for everybody who has the keys."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone import Decryption, Encryption, ParquetFile
from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.parquet.encryption.key_material import key_material_path
from skipstone.parquet.format.footer import read_metadata
from skipstone.rewrite import decrypt, encrypt
from tests.parquet.encryption.arrow_kms import ArrowKms
from tests.parquet.encryption.keys import PlainKms, decryption_of
from tests.rewrite.encrypted_files import KEY, KEY_192, KEYS, equal, modules, plain, rows

if TYPE_CHECKING:
    from pathlib import Path

ALGORITHMS = ["AES_GCM_V1", "AES_GCM_CTR_V1"]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("prefix", [None, "stored", "supplied"])
@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_key(
    tmp_path: Path, algorithm: Any, plaintext_footer: bool, prefix: str | None, version: str
) -> None:
    source = plain(tmp_path / "a é=%.parquet", data_page_version=version)
    before = source.read_bytes()
    sealed, back = tmp_path / "sealed.parquet", tmp_path / "back.parquet"
    report = encrypt(
        source,
        sealed,
        encryption=Encryption(
            footer_key=KEY,
            algorithm=algorithm,
            plaintext_footer=plaintext_footer,
            aad_prefix=None if prefix is None else b"table/part 1",
            store_aad_prefix=prefix != "supplied",
        ),
    )
    supplied = b"table/part 1" if prefix == "supplied" else None
    keys = Decryption(footer_key=KEY, aad_prefix=supplied)
    assert source.read_bytes() == before
    assert set(report.columns.values()) == {"footer key"}
    assert report.bytes_written == sealed.stat().st_size
    file = ParquetFile(sealed, decryption=keys)
    assert equal(file.query(), rows())
    assert file.query("a = 577").num_rows == 1
    # Three row groups: 577 is in the second of them, in the second of its four pages.
    steps = {step.index: step for step in file.plan("a = 577").steps}
    assert "bloom filter" in steps
    assert file.verify().ok
    assert file.signature_verified == plaintext_footer
    properties = pe.create_decryption_properties(footer_key=KEY, aad_prefix=supplied)
    assert equal(pq.read_table(sealed, decryption_properties=properties), rows())
    decrypt(sealed, back, decryption=keys)
    assert equal(pq.read_table(back, page_checksum_verification=True), rows())
    # Nothing is lost on the way.
    one, two = read_metadata(source.read_bytes()), read_metadata(back.read_bytes())
    assert (one.schema, one.key_value_metadata) == (two.schema, two.key_value_metadata)
    for mine, other in zip(one.row_groups, two.row_groups, strict=True):
        for a, b in zip(mine.columns, other.columns, strict=True):
            assert a.meta_data is not None
            assert b.meta_data is not None
            assert a.meta_data.statistics == b.meta_data.statistics
            assert a.meta_data.total_compressed_size == b.meta_data.total_compressed_size


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_column_keys(tmp_path: Path, plaintext_footer: bool, others: bool) -> None:
    source, sealed = plain(tmp_path / "p.parquet"), tmp_path / "s.parquet"
    report = encrypt(
        source,
        sealed,
        encryption=Encryption(
            footer_key=KEY,
            column_keys=KEYS,
            plaintext_footer=plaintext_footer,
            encrypt_others=others,
            plaintext_columns=["x"],
        ),
    )
    rest = "footer key" if others else "plaintext"
    own = dict.fromkeys(KEYS, "column key")
    assert report.columns == {"a": rest, "x": "plaintext", "n": rest} | own
    keys = Decryption(footer_key=KEY, column_keys=KEYS)
    assert equal(ParquetFile(sealed, decryption=keys).query(), rows())
    polars = pl.ParquetDecryptionProperties(footer_key=KEY, column_keys=KEYS)
    assert equal(_polars(sealed, polars), rows())
    partly = ParquetFile(sealed, decryption=Decryption(footer_key=KEY))
    assert equal(partly.query(columns=["a", "x", "n"]), rows().select(["a", "x", "n"]))
    for column in ("s", "l"):
        with pytest.raises(KeyUnavailableError, match=column):
            partly.query(columns=[column])
    with pytest.raises(KeyUnavailableError):
        decrypt(sealed, tmp_path / "no.parquet", decryption=Decryption(footer_key=KEY))
    assert not (tmp_path / "no.parquet").exists()
    if plaintext_footer and not others:
        # Whoever knows nothing of encryption reads the columns that are in the clear.
        assert equal(pq.read_table(sealed, columns=["a", "x"]), rows().select(["a", "x"]))
    _nothing_leaks(sealed, plaintext_footer)


def _polars(path: Path, keys: Any) -> pa.Table:
    return pl.scan_parquet(path, decryption=keys).collect().to_arrow()


def _nothing_leaks(sealed: Path, plaintext_footer: bool) -> None:
    """No bounds, counts or values of the text column anywhere, in whatever form."""
    data = sealed.read_bytes()
    assert "é39".encode() not in data
    if plaintext_footer:
        for group in ParquetFile(sealed).metadata.row_groups:
            for chunk in group.columns:
                if chunk.crypto_metadata is not None:
                    assert chunk.meta_data is not None
                    assert chunk.meta_data.statistics is None
                    assert chunk.meta_data.size_statistics is None
                    assert chunk.meta_data.encoding_stats is None


def test_the_key_of_a_group_opens_its_leaves(tmp_path: Path) -> None:
    source, sealed = plain(tmp_path / "p.parquet"), tmp_path / "s.parquet"
    report = encrypt(
        source, sealed, encryption=Encryption(footer_key=KEY, column_keys={"l": KEYS["s"]})
    )
    assert report.columns["l.list.element"] == "column key"
    keys = Decryption(footer_key=KEY, column_keys={"l": KEYS["s"]})
    assert equal(ParquetFile(sealed, decryption=keys).query(), rows())


def test_labels_bring_readers_to_the_keys(tmp_path: Path) -> None:
    source, sealed = plain(tmp_path / "p.parquet"), tmp_path / "s.parquet"
    encrypt(
        source,
        sealed,
        encryption=Encryption(
            footer_key=KEY,
            footer_key_metadata="kf",
            column_keys={"s": KEYS["s"]},
            column_key_metadata={"s": "ks"},
        ),
    )
    keys = {b"kf": KEY, b"ks": KEYS["s"]}
    assert equal(ParquetFile(sealed, decryption=Decryption(key_retriever=keys.get)).query(), rows())


@pytest.mark.parametrize("double_wrapping", [False, True])
@pytest.mark.parametrize("internal", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_arrow_reads_it_through_a_kms(
    tmp_path: Path, double_wrapping: bool, internal: bool, algorithm: Any, plaintext_footer: bool
) -> None:
    source, sealed = plain(tmp_path / "p.parquet"), tmp_path / "s é.parquet"
    report = encrypt(
        source,
        sealed,
        encryption=Encryption(
            kms=PlainKms(),
            footer_key_id="kf",
            column_key_ids={"s": "ks", "l.list.element": "ks", "a": "ka"},
            double_wrapping=double_wrapping,
            internal_key_material=internal,
            algorithm=algorithm,
            plaintext_footer=plaintext_footer,
            data_key_bits=256,
        ),
    )
    beside = tmp_path / key_material_path(sealed.name)
    assert beside.exists() != internal
    assert report.key_material == (None if internal else str(beside))
    factory = pe.CryptoFactory(ArrowKms)
    properties = factory.file_decryption_properties(
        pe.KmsConnectionConfig(), pe.DecryptionConfiguration(), str(sealed)
    )
    assert equal(pq.ParquetFile(sealed, decryption_properties=properties).read(), rows())
    assert equal(ParquetFile(sealed, decryption=Decryption(kms=PlainKms())).query(), rows())
    # Again into the same place: the keys beside the file are not to be lost.
    if not internal:
        with pytest.raises(UnsupportedError, match="exists already"):
            encrypt(
                source,
                sealed,
                encryption=Encryption(
                    kms=PlainKms(), footer_key_id="kf", internal_key_material=False
                ),
            )
        assert equal(ParquetFile(sealed, decryption=Decryption(kms=PlainKms())).query(), rows())


def test_files_of_arrow_are_decrypted_and_encrypted_anew(tmp_path: Path) -> None:
    path = tmp_path / "arrow.parquet"
    pq.write_table(
        rows(),
        path,
        write_page_index=True,
        encryption_properties=pe.create_encryption_properties(footer_key=KEY),
    )
    old = Decryption(footer_key=KEY)
    with pytest.raises(KeyUnavailableError):
        encrypt(path, encryption=Encryption(footer_key=KEYS["s"]))
    encrypt(path, encryption=Encryption(footer_key=KEYS["s"]), decryption=old)
    with pytest.raises(FormatError):
        ParquetFile(path, decryption=old)
    new = Decryption(footer_key=KEYS["s"])
    assert equal(ParquetFile(path, decryption=new).query(), rows())
    decrypt(path, decryption=new)
    assert equal(pq.read_table(path), rows())
    with pytest.raises(SkipstoneError, match="keys were given"):
        decrypt(path, decryption=new)


def test_golden_files_are_decrypted(golden: Path, tmp_path: Path) -> None:
    """Column keys, CTR, prefixes, filters: what Arrow and parquet-java wrote."""
    data = golden / "parquet-testing/data"
    sources = [
        path
        for path in sorted([*data.glob("*.encrypted"), *data.glob("aes256/*.encrypted")])
        if "external_key_material" not in path.name
    ]
    assert len(sources) >= 8
    for source in sources:
        keys, target = decryption_of(source), tmp_path / "plain.parquet"
        expected = ParquetFile(source, decryption=keys).query()
        decrypt(source, target, decryption=keys)
        # INT96 is an instant in microseconds.
        found = pq.read_table(target, coerce_int96_timestamp_unit="us")
        assert equal(found.select(expected.column_names), expected), source.name
        assert equal(ParquetFile(target).query(), expected), source.name
        assert ParquetFile(target).verify().ok, source.name


def _bodies(path: Path) -> list[bytes]:
    """Of all pages, as they lie in the file."""
    file, data = ParquetFile(path), path.read_bytes()
    return [
        data[page.offset + page.header_length : page.offset + page.size]
        for r in range(file.num_row_groups)
        for c in range(len(file.footer.schema.leaves))
        for page in file.chunk_pages.walk((r, c))
    ]


def test_golden_files_are_encrypted(golden: Path, tmp_path: Path) -> None:
    """Whatever writers, encodings and codecs; what nobody reads is left alone."""
    sealed, back = tmp_path / "sealed.parquet", tmp_path / "back.parquet"
    keys, done, refused = Decryption(footer_key=KEY), 0, []
    for source in sorted((golden / "parquet-testing/data").glob("*.parquet")):
        if "large_string_map" in source.name:
            continue  # gigabytes, once decoded
        try:
            expected = ParquetFile(source).query()
        except SkipstoneError:
            continue
        try:
            encrypt(source, sealed, encryption=Encryption(footer_key=KEY))
        except SkipstoneError as error:
            refused.append((source.name, error.message))
            continue
        assert equal(ParquetFile(sealed, decryption=keys).query(), expected), source.name
        decrypt(sealed, back, decryption=keys)
        assert equal(ParquetFile(back).query(), expected), source.name
        assert _bodies(back) == _bodies(source), source.name
        done += 1
    assert done >= 40, refused
    for name, said in refused:
        assert "checksum of a page" in said or "more than 32,768 pages" in said, name
    assert len(refused) <= 2


def test_in_place_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = plain(tmp_path / "p.parquet")
    path.chmod(0o640)
    encrypt(path, encryption=Encryption(footer_key=KEY))
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["p.parquet"]
    assert path.read_bytes()[:4] == path.read_bytes()[-4:] == b"PARE"
    with pytest.raises(KeyUnavailableError):
        encrypt(path, encryption=Encryption(footer_key=KEY))


def test_a_damaged_page_is_not_made_to_look_whole(tmp_path: Path) -> None:
    path = plain(tmp_path / "p.parquet")
    before = bytearray(path.read_bytes())
    page = next(each for each in ParquetFile(path).chunk_pages.walk((1, 2)) if each.ordinal == 1)
    before[page.offset + page.size - 1] ^= 1
    path.write_bytes(before)
    with pytest.raises(FormatError, match="checksum"):
        encrypt(path, encryption=Encryption(footer_key=KEY))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["p.parquet"]


def test_names_of_no_column_are_refused(tmp_path: Path) -> None:
    path = plain(tmp_path / "p.parquet")
    for arguments in ({"column_keys": {"S": KEY}}, {"plaintext_columns": ["l.elemnt"]}):
        with pytest.raises(SkipstoneError, match="no column"):
            encrypt(path, encryption=Encryption(footer_key=KEY, **arguments))
    assert equal(pq.read_table(path), rows())


def test_an_empty_file(tmp_path: Path) -> None:
    for number, count in enumerate((0, 1)):
        path = plain(tmp_path / f"{number}.parquet", rows(count))
        encrypt(path, encryption=Encryption(footer_key=KEY, column_keys=KEYS))
        keys = Decryption(footer_key=KEY, column_keys=KEYS)
        assert equal(ParquetFile(path, decryption=keys).query(), rows(count))
        decrypt(path, decryption=keys)
        assert equal(pq.read_table(path), rows(count))


@settings(max_examples=15)
@given(data=st.data())
def test_any_choice_comes_back(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    source = plain(
        folder / "p.parquet",
        compression=data.draw(st.sampled_from(["none", "snappy", "zstd"])),
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        use_dictionary=data.draw(st.booleans()),
        write_page_index=data.draw(st.booleans()),
        write_page_checksum=data.draw(st.booleans()),
        write_statistics=data.draw(st.booleans()),
    )
    leaves = ["a", "s", "x", "n", "l.list.element"]
    owned = data.draw(st.sets(st.sampled_from(leaves)))
    column_keys = {
        leaf: data.draw(st.sampled_from([*KEYS.values(), KEY_192, KEY])) for leaf in owned
    }
    free = data.draw(st.sets(st.sampled_from(leaves)).map(lambda found: found - owned))
    encryption = Encryption(
        footer_key=KEY,
        column_keys=column_keys,
        plaintext_columns=sorted(free),
        algorithm=data.draw(st.sampled_from(["AES_GCM_V1", "AES_GCM_CTR_V1"])),
        plaintext_footer=data.draw(st.booleans()),
    )
    sealed, back = folder / "s.parquet", folder / "b.parquet"
    encrypt(source, sealed, encryption=encryption)
    keys = Decryption(footer_key=KEY, column_keys=column_keys)
    file = ParquetFile(sealed, decryption=keys)
    assert equal(file.query(), rows())
    assert equal(
        file.query("a > 100 AND a < 120"), ParquetFile(source).query("a > 100 AND a < 120")
    )
    decrypt(sealed, back, decryption=keys)
    assert equal(pq.read_table(back, page_checksum_verification=True), rows())
    shutil.rmtree(folder)


def test_no_nonce_twice(tmp_path: Path) -> None:
    encryption, seen = Encryption(footer_key=KEY), []
    for number in range(3):
        path = plain(tmp_path / f"{number}.parquet")
        encrypt(path, encryption=encryption)
        data = path.read_bytes()
        seen += [
            data[each.start + 4 : each.start + 16]
            for each in modules(path, Decryption(footer_key=KEY))
        ]
    assert len(seen) == len(set(seen)) == encryption.invocations > 300


def test_a_key_stops_at_its_limit(tmp_path: Path) -> None:
    """Of 2^32 invocations all but 50 are behind the key: half the file, and it stays as it was."""
    path = plain(tmp_path / "p.parquet")
    before = path.read_bytes()
    encryption = Encryption(footer_key=KEY, prior_invocations=2**32 - 50)
    with pytest.raises(UnsupportedError, match="may encrypt no more"):
        encrypt(path, encryption=encryption)
    assert encryption.invocations == 2**32
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["p.parquet"]
