"""What becomes of the indexes of a table that is encrypted or decrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone import Encryption, Table
from skipstone.facts.index_encryption import IndexEncryption
from tests.rewrite.encrypted_files import KEY
from tests.table.encrypted_tables import NAMES, OPENS, OTHER, SEALS, table

if TYPE_CHECKING:
    from pathlib import Path


def _clear_bytes(root: Path) -> bytes:
    home = root.parent / f"_{root.name}.skipstone"
    return b"".join(path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file())


def test_no_index_is_left_in_the_clear_unsaid(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    Table(str(root)).build(indexes=["id:minmax", "s:valuelist"])
    assert _clear_bytes(root) != b""
    report = Table(str(root)).encrypt(encryption=SEALS)
    assert sorted(report.dropped) == ["id:minmax", "s:valuelist"]
    assert "dropped plaintext indexes" in str(report)
    assert _clear_bytes(root) == b""


def test_indexes_of_columns_in_the_clear_stay(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    Table(str(root)).build(indexes=["id:minmax", "s:valuelist"])
    encryption = Encryption(footer_key=KEY, plaintext_columns=["id"], plaintext_footer=True)
    report = Table(str(root)).encrypt(encryption=encryption)
    assert report.dropped == ("s:valuelist",)
    assert "vacuum" in str(report)
    names = [each.name for each in Table(str(root)).describe().indexes]
    assert [name for name in names if name.startswith("s")] == []


def test_an_index_in_the_clear_may_be_kept(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    Table(str(root)).build(indexes=["id:minmax"])
    report = Table(str(root)).encrypt(encryption=SEALS, plaintext_index=True)
    assert report.dropped == ()
    assert "kept in the clear" in str(report)
    assert report.refreshed is not None  # with the keys, for the files as they are now
    assert Table(str(root)).check(decryption=OPENS).ok
    assert [each.kind for each in Table(str(root)).store.snapshot().definitions] == ["minmax"]


def test_an_index_in_the_clear_is_built_anew_under_keys(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    Table(str(root)).build(indexes=["id:minmax", "s:valuelist"])
    keyed = Table(str(root), index_keys={"kf": OTHER})
    report = keyed.encrypt(encryption=SEALS, index_encryption=IndexEncryption(footer_key="kf"))
    assert sorted(report.dropped) == ["id:minmax", "s:valuelist"]
    assert report.refreshed is not None
    keyed = Table(str(root), index_keys={"kf": OTHER})
    assert {(each.kind, each.key_metadata) for each in keyed.store.snapshot().definitions} == {
        ("minmax", "kf"),
        ("valuelist", "kf"),
    }
    assert keyed.check(decryption=OPENS).ok
    assert not Table(str(root)).store.snapshot().definitions
    # Sealed already: the next run leaves it as it is.
    (root / "day=1/new.parquet").write_bytes((table(tmp_path / "more") / NAMES[0]).read_bytes())
    report = keyed.encrypt(encryption=SEALS)
    assert (report.dropped, len(report.of("done"))) == ((), 1)
    assert keyed.check(decryption=OPENS).ok


def test_facts_are_fresh_after_decryption(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    Table(str(root)).build(indexes=["id:minmax"])
    Table(str(root)).encrypt(encryption=SEALS, plaintext_index=True)
    report = Table(str(root)).decrypt(decryption=OPENS)
    assert report.refreshed is not None
    assert Table(str(root)).check().ok
    assert len(Table(str(root)).plan("id = 250").files) == 1
