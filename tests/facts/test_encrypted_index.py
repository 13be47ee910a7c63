"""An encrypted index of a table: built, asked, kept and broken into, through ``Table``."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Decryption, Encryption, Table
from skipstone.errors import KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.facts.index_encryption import IndexEncryption
from skipstone.parquet.encryption.master_keys import LabelledKeys, arrow_decryption
from skipstone.planning.explain import Explanation
from skipstone.pruning import Cause
from skipstone.rewrite import encrypt

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {
    "kf": b"FOOTERFOOTERFOOT",
    "k1": b"11-key-of-id-111",
    "k2": b"22-key-of-s-222-and-a-bit-longer",
}
INDEXES = ["id:minmax", "s:valuelist", "s:bloom", "city:bitmap", "city:rangebitmap", "f:minmax"]
LABELS = IndexEncryption(
    footer_key="kf", key_metadata={"id:minmax": "k1", "s:valuelist": "k2", "city:bitmap": "k2"}
)
# The index that answers a predicate alone, the label of its key, and how many files it keeps.
ASKED = [("id = 1042", "k1", 1), ("s = 'secret-3-4'", "k2", 1)]
NAN = float("nan")


def rows(at: int) -> dict[str, list[Any]]:
    """File ``at``: ids apart, texts and cities of its own, NaN, both zeros and nulls in ``f``."""
    return {
        "id": [at * 1000 + i for i in range(100)],
        "s": [None if i % 11 == 0 else f"secret-{at}-{i % 9}" for i in range(100)],
        "city": [f"town-{at}-{i % 40:04d}" for i in range(100)],
        "f": [NAN if i % 7 == 0 else (-0.0, 0.0, None, i / 3)[i % 4] for i in range(100)],
    }


def table_at(home: Path, files: int = 5) -> Path:
    path = home / "t é=%41"
    path.mkdir(parents=True)
    for at in range(files):
        add(path, at)
    return path


def add(path: Path, at: int) -> None:
    file = path / f"part {at} é%.parquet"
    pq.write_table(pa.table(rows(at)), file, row_group_size=50)
    os.utime(file, (1_600_000_000 + at, 1_600_000_000 + at))


def without(*labels: str) -> dict[str, bytes]:
    return {label: key for label, key in KEYS.items() if label not in labels}


def index_of(table: Table) -> Path:
    from pathlib import Path

    return Path(table.location.root)


def everything(table: Table) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(index_of(table).rglob("*")) if p.is_file())


def kept(table: Table, where: str) -> int:
    return len(table.plan(where, inside=False).files)


def ids(table: Table, where: str) -> list[int]:
    found: list[int] = table.query(where, ["id"]).column("id").to_pylist()
    return sorted(found)


def truth(where: str, files: int = 5) -> list[int]:
    """By brute force: the same predicate over the rows in memory."""
    tests: dict[str, Any] = {
        "id = 1042": lambda r: r["id"] == 1042,
        "s = 'secret-3-4'": lambda r: r["s"] == "secret-3-4",
        "city = 'town-2-0007'": lambda r: r["city"] == "town-2-0007",
        "f = 0.0": lambda r: r["f"] is not None and r["f"] == 0.0,
        "f > 32.5 AND id < 2000": lambda r: (
            r["f"] is not None and (r["f"] != r["f"] or r["f"] > 32.5) and r["id"] < 2000
        ),
        "s IS NULL": lambda r: r["s"] is None,
    }
    found = []
    for at in range(files):
        columns = rows(at)
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            found += [row["id"]] if tests[where](row) else []
    return sorted(found)


QUERIES = (
    "id = 1042",
    "s = 'secret-3-4'",
    "city = 'town-2-0007'",
    "f = 0.0",
    "f > 32.5 AND id < 2000",
    "s IS NULL",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = table_at(tmp_path_factory.mktemp("built"))
    report = Table(str(path), index_keys=KEYS).build(indexes=INDEXES, encryption=LABELS)
    assert report.files_built == 5
    assert not report.left_out
    return path


@pytest.fixture
def copied(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built.parent, tmp_path / "copy", copy_function=shutil.copy2)
    moved = tmp_path / "copy" / built.name
    # Facts name paths: the copy is built anew, under the same labels.
    table = Table(str(moved), index_keys=KEYS)
    shutil.rmtree(index_of(table))
    Table(str(moved), index_keys=KEYS).build(indexes=INDEXES, encryption=LABELS)
    return moved


def test_rows_are_right_with_any_of_the_keys_missing(built: Path) -> None:
    for keys in (KEYS, without("k1"), without("k2"), without("k1", "k2"), without("kf"), {}):
        table = Table(str(built), index_keys=keys)
        for where in QUERIES:
            assert ids(table, where) == truth(where), (sorted(keys), where)


@pytest.mark.parametrize("where, label, files", ASKED)
def test_one_missing_key_silences_its_index_alone(
    built: Path, where: str, label: str, files: int
) -> None:
    """Five files of ids and texts of their own: with its key an index keeps one of them. The
    Bloom filter over ``s`` has the footer's key, and goes on without the value list."""
    assert kept(Table(str(built), index_keys=KEYS), where) == files
    table = Table(str(built), index_keys=without(label))
    plan = table.explain(where).plan
    said = [str(r) for r in plan.reasons if r.cause is Cause.UNDECRYPTABLE]
    assert any(f"needs the key labelled {label!r}" in text for text in said)
    assert label in str(Explanation(plan))
    if label == "k1":
        assert kept(table, where) == 5 or "_pm" in str(Explanation(plan))
    for other, its, count in ASKED:
        if its != label:
            assert kept(table, other) == count


def test_a_wrong_key_is_told_and_never_believed(built: Path) -> None:
    table = Table(str(built), index_keys={**KEYS, "k1": b"0" * 16})
    plan = table.explain("id = 1042").plan
    [text] = [str(r) for r in plan.reasons if str(r).startswith("minmax(id)")]
    assert "'k1' is not the one that it was encrypted with" in text
    assert ids(table, "id = 1042") == [1042]
    closed = Table(str(built), index_keys={**KEYS, "kf": b"0" * 16}).explain("id = 1042").plan
    assert {r.cause for r in closed.reasons if "kf" in str(r)} == {Cause.UNDECRYPTABLE}


def test_without_keys_the_index_says_nothing_and_names_the_label(built: Path) -> None:
    table = Table(str(built))
    plan = table.explain("id = 1042").plan
    assert any("encrypted with the key labelled 'kf'" in str(r) for r in plan.reasons)
    assert ids(table, "id = 1042") == [1042]
    with pytest.raises(KeyUnavailableError, match="'kf'"):
        table.build(indexes=["id:bloom"])


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_no_value_and_no_key_lies_in_the_index(tmp_path: Path, plaintext_footer: bool) -> None:
    table = Table(str(table_at(tmp_path)), index_keys=KEYS)
    how = IndexEncryption(
        footer_key="kf", key_metadata=LABELS.key_metadata, plaintext_footer=plaintext_footer
    )
    table.build(indexes=INDEXES, encryption=how)
    table.compact()
    table.export()
    data = everything(table)
    secrets = [b"secret-", b"town-", b"part 1", *KEYS.values()]
    secrets += [(3000).to_bytes(8, "little"), (3099).to_bytes(8, "little")]
    assert [each for each in secrets if each in data] == []
    assert (b"city_bitmap" in data) is plaintext_footer  # names, and no values
    assert kept(table, "id = 1042") == 1


def test_keys_stay_out_of_sight(
    built: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    with caplog.at_level(logging.DEBUG):
        for keys in (KEYS, {**KEYS, "k1": b"0" * 16}):
            table = Table(str(built), index_keys=keys)
            labelled = LabelledKeys(keys)
            shown += [repr(table), repr(table.store), repr(labelled), str(table.index_location)]
            shown += [str(table.explain("id = 1042")), str(table.describe()), str(table.check())]
    text = "".join([*shown, caplog.text, *capsys.readouterr()])
    for key in (*KEYS.values(), b"0" * 16):
        assert key.decode() not in text
        assert key.hex() not in text
    again = pickle.loads(pickle.dumps(LabelledKeys(KEYS)))
    assert again.unwrap_key(LabelledKeys(KEYS).wrap_key(b"d" * 16, "k2"), "k2") == b"d" * 16
    for bad in ({"k": b"short"}, {"k": "text"}):
        with pytest.raises((ValueError, TypeError), match="'k'") as caught:
            LabelledKeys(bad)  # type: ignore[arg-type]
        assert "short" not in str(caught.value)


def from_callback(label: str) -> bytes | None:
    return KEYS.get(label)


class Kms:
    """A service with rights: wraps all, and unwraps what it is told to."""

    def __init__(self, *closed: str) -> None:
        self.inner, self.closed = LabelledKeys(KEYS), closed

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return self.inner.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        if master_key_identifier in self.closed:
            raise PermissionError("no: 22-key-of-s-222")
        return self.inner.unwrap_key(wrapped_key, master_key_identifier)


def test_keys_come_from_a_callback_or_a_kms(built: Path) -> None:
    for source in (from_callback, Kms()):
        assert kept(Table(str(built), index_keys=source), "id = 1042") == 1
    plan = Table(str(built), index_keys=Kms("k2")).explain("s = 'secret-3-4'").plan
    [text] = [str(r) for r in plan.reasons if str(r).startswith("valuelist(s)")]
    assert "'k2'" in text
    assert "22-key" not in text


def test_refresh_and_compaction_keep_every_label(copied: Path) -> None:
    table = Table(str(copied), index_keys=KEYS)
    before = {i.name: i.key_metadata for i in table.describe().indexes}
    assert before["id:minmax"] == "k1"
    assert before["f:minmax"] == "kf"
    add(copied, 5)
    (copied / "part 0 é%.parquet").unlink()
    report = table.refresh()
    assert report.files_built == 1
    assert table.compact().parts_after == 1
    again = Table(str(copied), index_keys=KEYS)
    assert {i.name: i.key_metadata for i in again.describe().indexes} == before
    assert kept(again, "id = 5001") == 1
    assert "k1" in str(again.describe())
    assert again.check(deep=True).ok
    assert kept(Table(str(copied), index_keys=without("k1")), "s = 'secret-5-4'") == 1
    table.vacuum(timedelta(0))
    assert kept(again, "city = 'town-5-0003'") == 1


def test_a_refresh_without_a_key_leaves_its_index_to_another(copied: Path) -> None:
    add(copied, 5)
    some = Table(str(copied), index_keys=without("k2"))
    report = some.refresh()
    assert report.files_built == 1
    assert {r.subject for r in report.left_out} >= {"valuelist(s)", "bitmap(city)"}
    assert all("'k2'" in r.text for r in report.left_out if r.cause is Cause.UNDECRYPTABLE)
    with pytest.raises(KeyUnavailableError, match="'k2'"):
        some.compact()
    with pytest.raises(KeyUnavailableError, match="'k2'"):
        some.drop("id:minmax")
    full = Table(str(copied), index_keys=KEYS)
    assert kept(full, "s = 'secret-3-4'") == 1
    assert full.refresh().files_built == 1
    assert kept(full, "city = 'town-5-0003'") == 1
    assert full.check().ok


def test_an_index_is_added_dropped_and_never_mixed(copied: Path) -> None:
    table = Table(str(copied), index_keys={**KEYS, "k3": b"3" * 16})
    more = IndexEncryption(footer_key="kf", key_metadata={"id:bloom": "k3"})
    table.build(indexes=["id:bloom"], encryption=more)
    labels = {i.name: i.key_metadata for i in table.describe().indexes}
    assert {key for name, key in labels.items() if name.startswith("id:bloomfilter(")} == {"k3"}
    table.drop("id:bloom")
    assert "k3" not in str(table.describe())
    for other in (
        IndexEncryption(footer_key="k1"),
        IndexEncryption(footer_key="kf", plaintext_footer=True),
        IndexEncryption(footer_key="kf", key_metadata={"id:minmax": "k2"}),
    ):
        with pytest.raises(UnsupportedError):
            table.build(indexes=["id:bloom"], encryption=other)
    with pytest.raises(SkipstoneError, match="no index 'nope"):
        table.build(
            indexes=["id:bloom"],
            encryption=IndexEncryption(footer_key="kf", key_metadata={"nope": "k1"}),
        )
    with pytest.raises(KeyUnavailableError, match="'k9'"):
        table.build(
            indexes=["id:bloom"],
            encryption=IndexEncryption(footer_key="kf", key_metadata={"id:bloom": "k9"}),
        )
    with pytest.raises(UnsupportedError, match="encrypted"):
        table.export(str(copied.parent / "out"), kind="paimon")


def test_an_index_in_the_clear_is_not_believed_where_keys_are_given(tmp_path: Path) -> None:
    """Who has no key could have written it; and what is there is not encrypted afterwards."""
    path = table_at(tmp_path)
    Table(str(path)).build(indexes=["id:minmax"])
    table = Table(str(path), index_keys=KEYS)
    plan = table.explain("id = 1042").plan
    assert any("not encrypted" in str(r) for r in plan.reasons)
    assert kept(table, "id = 1042") == 5
    for how in (None, LABELS):
        with pytest.raises(UnsupportedError, match="in the clear"):
            table.build(indexes=["s:valuelist"], encryption=how)
    empty = Table(str(table_at(tmp_path / "other")), index_keys=KEYS)
    with pytest.raises(UnsupportedError, match="without an encryption"):
        empty.build(indexes=["id:minmax"])
    with pytest.raises(KeyUnavailableError, match="needs keys"):
        Table(empty.path).build(indexes=["id:minmax"], encryption=LABELS)


# -- tampering -------------------------------------------------------------------------------------


def broken(path: Path, how: str) -> None:
    """The packs or parts of an index, tampered with."""
    root = path.parent / f"_{path.name.replace('%', '%25').replace('=', '%3D')}.skipstone"
    packs, parts = sorted((root / "packs").iterdir()), sorted((root / "facts").iterdir())
    if how == "swap packs":
        one, two = packs[0].read_bytes(), packs[1].read_bytes()
        packs[0].write_bytes(two)
        packs[1].write_bytes(one)
    elif how == "swap parts":
        one, two = parts[0].read_bytes(), parts[1].read_bytes()
        parts[0].write_bytes(two)
        parts[1].write_bytes(one)
    else:
        for each in packs if "pack" in how else parts:
            data = bytearray(each.read_bytes())
            step = 17 if "pack" in how else 101
            for at in range(7, len(data) - (3000 if "pages" in how else 30), step):
                data[at] ^= 0x40
            each.write_bytes(data)


@pytest.mark.parametrize("how", ["swap packs", "swap parts", "flip packs", "flip pages of parts"])
def test_what_was_tampered_with_says_nothing(copied: Path, how: str) -> None:
    broken(copied, how)
    table = Table(str(copied), index_keys=KEYS)
    for where in QUERIES:
        assert ids(table, where) == truth(where)
    plan = table.explain("city = 'town-2-0007'").plan
    causes = {r.cause for r in plan.reasons}
    assert causes & {Cause.CORRUPT, Cause.UNDECRYPTABLE}, [str(r) for r in plan.reasons]
    report = table.check()
    assert not report.ok
    assert report.corrupt


# -- plaintext footer, and files of others ---------------------------------------------------------


def test_a_plaintext_footer_shows_names_alone(tmp_path: Path) -> None:
    path = table_at(tmp_path)
    table = Table(str(path), index_keys=KEYS)
    table.build(
        indexes=INDEXES,
        encryption=IndexEncryption(
            footer_key="kf", key_metadata=LABELS.key_metadata, plaintext_footer=True
        ),
    )
    assert kept(table, "id = 1042") == 1
    blind = Table(str(path))
    assert "minmax" in str(blind.describe())
    assert kept(blind, "id = 1042") == 5
    assert ids(blind, "id = 1042") == [1042]
    add(path, 5)
    table.refresh()
    assert kept(table, "id = 5001") == 1
    for part in sorted((index_of(table) / "facts").iterdir()):
        assert part.read_bytes()[-4:] == b"PAR1"


def test_arrow_reads_the_facts_with_its_own_key_tools(built: Path) -> None:
    """A part is one of Parquet's encrypted files, labelled as Xskipper labels its store."""
    import json

    from skipstone.xskipper.format.schema import ROW_METADATA_KEY

    table = Table(str(built), index_keys=KEYS)
    found = []
    for part in sorted((index_of(table) / "facts").iterdir()):
        with pytest.raises(OSError, match="decryption"):
            pq.read_table(part)
        keys = arrow_decryption(LabelledKeys(KEYS))
        file = pq.ParquetFile(part, decryption_properties=keys)
        found += file.read(["id_minmax_2"]).column(0).to_pylist()
        told = json.loads(file.metadata.metadata[ROW_METADATA_KEY.encode()])
        master = told["fields"][0]["metadata"]["encryption"]
        assert master["encryption.footer.key"] == "kf"
        assert "k1:id_minmax_2.min,id_minmax_2.max" in master["encryption.column.keys"]
    assert sorted(each["min"] for each in found) == [0, 1000, 2000, 3000, 4000]


# -- encrypted data --------------------------------------------------------------------------------


def encrypted_table(home: Path, plaintext_footer: bool) -> tuple[Path, Decryption]:
    path = table_at(home)
    for file in path.iterdir():
        how = Encryption(
            footer_key=b"DATADATADATADATA",
            column_keys={"s": b"SSSSSSSSSSSSSSSS"},
            plaintext_columns=["city"],
            plaintext_footer=plaintext_footer,
        )
        encrypt(file, encryption=how)
        os.utime(file, (1_600_000_000, 1_600_000_000))
    return path, Decryption(footer_key=b"DATADATADATADATA", column_keys={"s": b"SSSSSSSSSSSSSSSS"})


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_no_index_in_the_clear_over_an_encrypted_column(
    tmp_path: Path, plaintext_footer: bool
) -> None:
    path, keys = encrypted_table(tmp_path, plaintext_footer)
    table = Table(str(path))
    with pytest.raises(UnsupportedError, match="encrypts the column") as caught:
        table.build(indexes=["s:valuelist"], decryption=keys)
    assert "plaintext_index=True" in caught.value.hint
    assert not table.store.exists()
    # What the files leave in the clear is indexed.
    table.build(indexes=["city:minmax"], decryption=keys)
    assert kept(table, "city = 'town-2-0007'") == 1
    table.build(indexes=["s:valuelist", "id:minmax"], decryption=keys, plaintext_index=True)
    assert (kept(table, "s = 'secret-3-4'"), kept(table, "id = 1042")) == (1, 1)
    if not plaintext_footer:
        with pytest.raises(KeyUnavailableError, match="no key was given"):
            Table(str(path)).build(indexes=["city:bloom"])


def test_an_encrypted_index_over_encrypted_files(tmp_path: Path) -> None:
    path, keys = encrypted_table(tmp_path, False)
    table = Table(str(path), index_keys=KEYS)
    report = table.build(indexes=INDEXES, encryption=LABELS, decryption=keys)
    assert report.files_built == 5
    for where in ("id = 1042", "s = 'secret-3-4'", "city = 'town-2-0007'"):
        assert kept(table, where) == 1
    data = everything(table)
    assert [each for each in (b"secret-", b"town-", b"DATADATA", b"SSSSSSSS") if each in data] == []


def test_a_file_that_encrypts_more_than_the_first_loses_that_index_only(tmp_path: Path) -> None:
    """File 0 is in the clear; file 3 encrypts ``s``: its value list is left out, with the reason,
    and built once somebody says so."""
    path = table_at(tmp_path)
    file = path / "part 3 é%.parquet"
    how = Encryption(footer_key=b"D" * 16, column_keys={"s": b"S" * 16}, encrypt_others=False)
    encrypt(file, encryption=how)
    os.utime(file, (1_600_000_000, 1_600_000_000))
    keys = Decryption(
        footer_key=b"D" * 16, column_keys={"s": b"S" * 16}, allow_plaintext_files=True
    )
    table = Table(str(path))
    report = table.build(indexes=["s:valuelist", "id:minmax"], decryption=keys)
    [reason] = [r for r in report.left_out if r.subject == "valuelist(s)"]
    assert (reason.units, "plaintext_index=True" in reason.text) == (1, True)
    assert kept(table, "s = 'nowhere'") == 1
    assert kept(table, "id = 3001") == 1
    table.refresh(decryption=keys, plaintext_index=True)
    assert kept(table, "s = 'nowhere'") == 0
