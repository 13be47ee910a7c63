"""Tables whose files are encrypted, asked by the embedded engine: the rows of brute force or an
error that says which key is missing, and nothing in between.

The table of most tests, encrypted in its place with the AAD prefix "orders":

    day=1/a b.parquet    id 0 ... 199, row groups of 100 rows, pages of 25
    day=1/é%20.parquet   id 200 ... 399
    day=0/c=d.parquet    id 400 ... 599
"""

from __future__ import annotations

import io
import os
import pickle
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

import skipstone
from skipstone import Decryption, Encryption, Table
from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.facts.index_encryption import IndexEncryption
from skipstone.parquet.encryption.modules import AuthenticationError
from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from skipstone.pruning import costs as cost
from skipstone.rewrite import encrypt
from skipstone.rewrite.encrypted_file_list import TablePrefix
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.parquet.encryption.keys import InMemoryKms
from tests.predicate.bound_rows import opaques
from tests.table.brute_force import Question, build, lay, picked, questions, rows_of, skipstone_name
from tests.table.data import rows

KEY = b"0123456789012345"
OF_S = b"S" * 32
WRONG = b"another key 1234"
NAMES = ("day=1/a b.parquet", "day=1/é%20.parquet", "day=0/c=d.parquet")
SEALS = Encryption(footer_key=KEY, column_keys={"s": OF_S}, aad_prefix=b"orders")
FULL = Decryption(footer_key=KEY, column_keys={"s": OF_S})
NO_S = Decryption(footer_key=KEY)


def whole() -> pa.Table:
    """All rows, in the order of the listing."""
    order = sorted(range(len(NAMES)), key=lambda at: NAMES[at])
    return pa.concat_tables([rows(at) for at in order])


def laid(root: Path) -> Path:
    """The files in the clear, long ago, of no partitions: folders are renamed."""
    for number, name in enumerate(NAMES):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        sink = io.BytesIO()
        pq.write_table(
            rows(number), sink, row_group_size=100, max_rows_per_page=25, write_page_index=True
        )
        path.write_bytes(sink.getvalue())
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return root


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    root = laid(tmp_path / "orders")
    assert Table(str(root)).encrypt(encryption=SEALS).ok
    return root


def looking(patch: pytest.MonkeyPatch) -> None:
    """Small files are looked into, too."""
    patch.setattr("skipstone.table.planning.LOCAL", cost.FREE)


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


# -- rows ------------------------------------------------------------------------------------------


@given(questions(), st.data())
def test_rows_are_those_of_brute_force(question: Question, data: st.DataObject) -> None:
    files, where, written, indexes = question
    note(to_sql(where))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        looking(patch)
        root = Path(folder) / "t"
        rows = lay(root, files, written)
        try:
            expected = matching_rows(rows, where)
        except (SparkError, NotModelled, OverflowError):
            assume(False)
        schema = Table(str(root)).schema(Table(str(root)).listing())
        assume(schema.names == rows.column_names)
        if opaques(bind(where, schema)):
            return
        own = data.draw(st.sampled_from([None, rows.column_names[0]]))
        keys = {} if own is None else {skipstone_name(own): OF_S}
        stored = data.draw(st.booleans())
        seals = Encryption(
            footer_key=KEY,
            column_keys=keys,
            algorithm=data.draw(st.sampled_from(["AES_GCM_V1", "AES_GCM_CTR_V1"])),
            plaintext_footer=data.draw(st.booleans()),
            aad_prefix=TablePrefix(str(root), b"t"),
            store_aad_prefix=stored,
        )
        sealed = [each for each in files if data.draw(st.booleans())]
        for each in sealed:
            encrypt(str(root / each.name), encryption=seals)
        opens = Decryption(
            footer_key=KEY,
            column_keys=keys,
            aad_prefix=None if stored and data.draw(st.booleans()) else b"t",
            allow_plaintext_files=True,
        )
        table = Table(str(root), decryption=opens)
        build(table, indexes)  # of columns that some file encrypts there is none
        text = to_sql(where)
        assert rows_of(table.query(text)) == rows_of(picked(rows, expected))
        assert table.count(text) == len(expected)


def test_orders_limits_extremes_and_batches(orders: Path) -> None:
    table = Table(str(orders), decryption=FULL)
    assert table.query("id >= 190 and s = 'é3'", ["id"])["id"].to_pylist() == [
        each for each in [*range(400, 600), *range(190, 400)] if each % 9 == 3
    ]
    found = table.query(order_by="id desc", limit=3)
    assert found["id"].to_pylist() == [599, 598, 597]
    assert (table.min("id"), table.max("id", "s = 'é0'")) == (0, 594)
    assert table.count("x = double('NaN')") == 120
    batches = list(table.scan("id < 7").to_batches())
    assert sum(each.num_rows for each in batches) == 7
    assert table.schema(table.listing()).names[:3] == ["id", "x", "s"]


def test_pages_are_skipped_as_in_the_clear(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3 files, 6 row groups and 24 pages of id, one holds 77."""
    looking(monkeypatch)
    plan = Table(str(orders), decryption=FULL).explain("id = 77", columns=["x"]).plan
    assert plan.files_kept == 1
    (detail,) = plan.details.values()
    assert detail.rows is not None
    assert detail.rows.ranges()[0].tolist() == [75]
    assert len(detail.rows) == 25
    assert not [each for each in plan.reasons if each.cause == "undecryptable"]


@pytest.mark.parametrize("external", [False, True])
def test_a_kms_gives_the_keys(tmp_path: Path, external: bool) -> None:
    root, kms = laid(tmp_path / "orders"), InMemoryKms({"kf": KEY})
    for name in NAMES:
        if external and "=" in Path(name).name:
            (root / name).rename(root / "day=1" / "other.parquet")
    seals = Encryption(kms=kms, footer_key_id="kf", internal_key_material=not external)
    assert Table(str(root)).encrypt(encryption=seals).ok
    table = Table(str(root), decryption=lambda: Decryption(kms=kms))
    assert table.query("id in (3, 300, 500)", ["id"]).num_rows == 3


# -- files in the clear among them -----------------------------------------------------------------


def test_files_in_the_clear_are_read_where_that_is_said(orders: Path) -> None:
    clear = orders / "day=1/new.parquet"
    pq.write_table(rows(3), clear)
    os.utime(clear, (1_700_000_000, 1_700_000_000))
    with pytest.raises(FormatError, match=r"not encrypted.*allow_plaintext_files") as caught:
        Table(str(orders), decryption=FULL).count("id >= 0")
    assert str(clear) in str(caught.value)
    mixed = Table(str(orders), decryption=FULL.replaced(allow_plaintext_files=True))
    assert mixed.count("id >= 590") == 210
    assert ids(mixed.query("id between 599 and 601")) == [599, 600, 601]


def test_a_summary_in_the_clear_is_not_believed_where_there_are_keys(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the file in the clear could be in it; footers that are forged name any file."""
    looking(monkeypatch)
    other = laid(orders.parent / "other")
    Table(str(other)).write_metadata()
    (orders / "_metadata").write_bytes((other / "_metadata").read_bytes())
    scan = Table(str(orders), decryption=FULL).scan("id = 3")
    assert "in the clear, and keys were given" in str(scan.explain())
    assert scan.to_arrow()["id"].to_pylist() == [3]


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_no_file_index_in_the_clear_hides_rows(tmp_path: Path, plaintext_footer: bool) -> None:
    """One beside a file, of another file's rows. Arrow ends the process when it is asked about
    encrypted columns under a footer in the clear."""
    orders = laid(tmp_path / "orders")
    Table(str(orders)).encrypt(encryption=SEALS.replaced(plaintext_footer=plaintext_footer))
    other = orders.parent / "other"
    (other / "day=1").mkdir(parents=True)
    pq.write_table(rows(2), other / NAMES[0])
    made = Table(str(other))
    made.build(indexes=["id:bitmap"])
    made.export(str(orders), kind="paimon")
    table = Table(str(orders), decryption=FULL)
    assert table.has_sidecars()
    assert "a b.parquet" not in str(table.explain("id = 7"))
    assert table.count("id = 7") == 1
    table = Table(str(orders), decryption=FULL, sidecars=True)
    assert "crypt" in str(table.explain("id = 7"))  # they say nothing, and why
    assert table.count("id = 7") == 1


# -- keys that are missing or wrong ----------------------------------------------------------------


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_a_missing_key_fails_what_touches_its_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plaintext_footer: bool
) -> None:
    looking(monkeypatch)
    root = laid(tmp_path / "orders")
    Table(str(root)).encrypt(encryption=SEALS.replaced(plaintext_footer=plaintext_footer))
    table = Table(str(root), decryption=NO_S)
    assert table.query("id = 77 or id = 500", ["id", "x"]).num_rows == 2
    assert table.count("id < 10") == 10
    assert table.max("id") == 599
    for ask in (
        lambda: table.query("s = 'é1'", ["id"]),
        lambda: table.query("id = 77"),
        lambda: table.count("s = 'é1'"),
        lambda: table.max("s"),
    ):
        with pytest.raises(KeyUnavailableError, match="column 's' was not given") as caught:
            ask()
        assert "column_keys['s']" in caught.value.hint
    told = str(table.explain("s = 'é1' and id = 77"))
    assert "s: row groups and pages prove nothing: the key of column 's' was not given" in told
    # The other column says what it knows, and where that is nothing no key is needed.
    assert table.explain("s = 'é1' and id = 77").plan.files_kept == 1
    assert table.count("s = 'é1' and id = -1") == 0


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_no_key_at_all(tmp_path: Path, plaintext_footer: bool) -> None:
    root = laid(tmp_path / "orders")
    seals = SEALS.replaced(
        plaintext_footer=plaintext_footer, column_keys={"s": OF_S}, encrypt_others=False
    )
    Table(str(root)).encrypt(encryption=seals)
    table = Table(str(root))
    if plaintext_footer:  # id and x are in the clear, and readable
        assert table.query("id = 77", ["id"]).num_rows == 1
        with pytest.raises(KeyUnavailableError, match="column 's'"):
            table.query("id = 77")
        return
    for ask in (table.query, table.count, table.explain, lambda: table.min("id")):
        with pytest.raises(KeyUnavailableError, match="is encrypted, and no key was given") as it:
            ask()
        assert "decryption=" in it.value.hint
        assert "--footer-key" in it.value.hint


def test_wrong_keys_are_told_by_file_and_module(orders: Path) -> None:
    with pytest.raises(AuthenticationError, match="the footer does not authenticate") as caught:
        Table(str(orders), decryption=Decryption(footer_key=WRONG)).count("id = 1")
    assert str(orders) in str(caught.value)
    other = Decryption(footer_key=KEY, column_keys={"s": WRONG})
    table = Table(str(orders), decryption=other)
    with pytest.raises(AuthenticationError, match="COLUMN_META_DATA of column 's'") as caught:
        table.count("s = 'é1'")
    assert str(orders) in str(caught.value)
    assert table.count("id < 10") == 10


def test_a_page_that_was_tampered_with_is_told(orders: Path) -> None:
    path = orders / NAMES[0]
    file = skipstone.ParquetFile(path, decryption=FULL)
    page = next(each for each in file.chunk_pages.walk((0, 0)) if each.header.data_page_header)
    data = bytearray(path.read_bytes())
    data[page.offset + page.size - 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"a b\.parquet.*DATA_PAGE.*does not authenticate"):
        Table(str(orders), decryption=FULL).query("id >= 0")


def test_files_are_bound_to_their_places_where_the_table_is_named(orders: Path) -> None:
    named = FULL.replaced(aad_prefix=b"orders")
    assert Table(str(orders), decryption=named).count() == 600
    one, other, aside = orders / NAMES[0], orders / NAMES[1], orders / "aside"
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    assert Table(str(orders), decryption=FULL).count("id >= 0") == 600  # they say it themselves
    with pytest.raises(FormatError, match="AAD prefix given is not that of the file"):
        Table(str(orders), decryption=named).count("id >= 0")


def test_what_keys_may_be(orders: Path) -> None:
    with pytest.raises(TypeError, match=r"decryption is a skipstone\.Decryption, not bytes"):
        Table(str(orders), decryption=KEY)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="keys are for Parquet files"):
        Table(str(orders), format="csv", decryption=FULL)

    def broken() -> Decryption:
        raise RuntimeError(KEY.decode())

    with pytest.raises(KeyUnavailableError, match="failed: RuntimeError") as caught:
        Table(str(orders), decryption=broken).count()
    assert KEY.decode() not in str(caught.value)
    table = Table(str(orders), decryption=FULL)
    assert KEY.decode() not in repr(table) + repr(table.keys) + str(table.explain("id = 1"))


# -- the keys of the table are those of all its calls ----------------------------------------------


def test_build_refresh_check_and_decrypt_take_the_keys_of_the_table(orders: Path) -> None:
    table = Table(str(orders), decryption=FULL, index_keys={"kf": b"F" * 16})
    report = table.build(
        indexes=["id:minmax", "s:bitmap"], encryption=IndexEncryption(footer_key="kf")
    )
    assert (report.files_built, report.files_failed) == (3, ())
    assert table.plan("id = 77").files_kept == 1
    assert table.count("s = 'é1'") == sum(i % 9 == 1 for i in range(600))
    found = table.check(deep=True)
    assert found.ok, found
    assert found.sampled == 3
    assert found.compared > 100
    assert found.encryption is not None
    os.utime(orders / NAMES[0], (1_700_000_001, 1_700_000_001))
    assert table.refresh().files_built == 1
    clear = table.decrypt()
    assert clear.ok, clear.of("failed")
    assert pq.ParquetFile(orders / NAMES[0]).read().num_rows == 200
    with pytest.raises(SkipstoneError, match="no keys were given"):
        Table(str(orders)).decrypt()
    with pytest.raises(FormatError, match="allow_plaintext_files"):
        table.query()
    assert Table(str(orders)).count("id >= 0") == 600


def test_an_index_in_the_clear_serves_where_it_was_asked_for(orders: Path) -> None:
    table = Table(str(orders), decryption=FULL)
    with pytest.raises(UnsupportedError, match="would be in the clear"):
        table.build(indexes=["id:minmax"])
    table.build(indexes=["id:minmax"], plaintext_index=True)
    # No key is needed for what the index knows: here that no file has such a row.
    assert Table(str(orders), decryption=NO_S).count("id = -5") == 0
    assert table.check(deep=True).ok


def test_other_engines_are_handed_no_encrypted_file(tmp_path: Path) -> None:
    root = laid(tmp_path / "orders")
    for plaintext_footer in (True, False):
        Table(str(root)).encrypt(
            encryption=SEALS.replaced(plaintext_footer=plaintext_footer), decryption=FULL
        )
        scan = Table(str(root), decryption=FULL).scan("id = 77")
        for hand in (scan.to_duckdb, scan.to_polars, scan.to_pyarrow):
            with pytest.raises(UnsupportedError, match="is encrypted: its keys are not passed"):
                hand()
        assert scan.to_arrow().num_rows == 1


def test_scan_tasks_hold_no_key(orders: Path) -> None:
    from skipstone.spark.data_source import scan_tasks

    scan = Table(str(orders), decryption=FULL).scan("id >= 0")
    assert scan.query is not None
    (task,) = scan_tasks(scan.plan, scan.query, {})
    data = pickle.dumps(task)
    assert KEY not in data
    assert OF_S not in data


# -- summaries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_of_encrypted_files_no_summary_is_written(tmp_path: Path, plaintext_footer: bool) -> None:
    root = laid(tmp_path / "orders")
    Table(str(root)).write_metadata()
    for name in ("_metadata", "_common_metadata"):
        assert (root / name).exists()
    seals = SEALS.replaced(plaintext_footer=plaintext_footer)
    report = Table(str(root)).encrypt(encryption=seals)
    assert any("_metadata" in each for each in report.notes)
    for name in ("_metadata", "_common_metadata"):
        assert not (root / name).exists()
    for keys in (None, FULL):
        with pytest.raises(UnsupportedError, match="encrypted, and a summary would show"):
            Table(str(root), decryption=keys).write_metadata()
    assert not (root / "_metadata").exists()


@pytest.mark.parametrize("internal", [True, False])
def test_a_key_that_a_kms_lacks_is_told_with_its_file_and_column(
    tmp_path: Path, internal: bool
) -> None:
    masters = {"mf": b"f" * 16, "ma": b"a" * 16}
    for name in ("0.parquet", "1.parquet"):
        pq.write_table(pa.table({"a": [1, 2], "b": [3, 4]}), tmp_path / name)
    encrypt(
        tmp_path / "1.parquet",
        encryption=Encryption(
            kms=InMemoryKms(masters),
            footer_key_id="mf",
            column_key_ids={"a": "ma"},
            internal_key_material=internal,
        ),
    )
    for lost, whose in (("ma", "column 'a'"), ("mf", "the footer")):
        kms = InMemoryKms({name: key for name, key in masters.items() if name != lost})
        table = Table(tmp_path, decryption=Decryption(kms=kms, allow_plaintext_files=True))
        with pytest.raises(KeyUnavailableError) as told:
            table.query("a = 1")
        assert f"{tmp_path / '1.parquet'}: the key of {whose} (label " in str(told.value)
        assert f"did not unwrap a key of master key {lost!r}: KeyError" in str(told.value)
