"""Attacks on an encrypted index by somebody who may write into its directory, and has no key.

Whatever lies there, no query with the keys loses a row: it reads more, and says why.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.facts.index_encryption import IndexEncryption
from skipstone.parquet.encryption.master_keys import (
    LabelledKeys,
    arrow_decryption,
    arrow_encryption,
)
from skipstone.storage import LocalStorage
from skipstone.xskipper.store import part_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEYS = {"kf": b"FOOTERFOOTERFOOT", "k1": b"11-key-of-id-111"}
LABELS = {"id:minmax": "k1"}
ASKED = ("id = 1042", "s = 'secret-2-7'", "city = 'town-1-3'")


def table_at(path: Path, files: int = 4) -> Path:
    """File n has the ids from 1000 n on, and texts and cities of its own."""
    path.mkdir(parents=True)
    for at in range(files):
        rows = {
            "id": [at * 1000 + i for i in range(100)],
            "s": [f"secret-{at}-{i % 9}" for i in range(100)],
            "city": [f"town-{at}-{i % 40}" for i in range(100)],
        }
        pq.write_table(pa.table(rows), path / f"part-{at}.parquet", row_group_size=50)
        os.utime(path / f"part-{at}.parquet", (1_600_000_000, 1_600_000_000))
    return path


def built(path: Path, *, plaintext_footer: bool = False) -> Table:
    table = Table(str(path), index_keys=KEYS)
    encryption = IndexEncryption(
        footer_key="kf", key_metadata=LABELS, plaintext_footer=plaintext_footer
    )
    table.build(None, ["id:minmax", "s:valuelist", "city:bitmap"], encryption=encryption)
    return table


def asks(table: Table) -> list[tuple[int, int]]:
    """Files that are read, and rows found."""
    return [
        (len(table.plan(where, inside=False).files), table.query(where, ["id"]).num_rows)
        for where in ASKED
    ]


TRUE = [1, 11, 3]


def parts_of(table: Table) -> list[Path]:
    from pathlib import Path

    return sorted(Path(table.location.facts).glob("part-*"))


def lying(part: Path, made: Callable[[pa.Table], Any]) -> None:
    """The facts of a part in the clear in its place, with bounds of nobody; ``made`` writes it."""
    stat = part.stat()
    source = arrow_decryption(LabelledKeys(KEYS))  # the attacker guesses right: the worst case
    rows = pq.ParquetFile(part, decryption_properties=source).read()
    for at, name in enumerate(rows.column_names):
        if "_minmax_" in name:
            values = [None if v is None else {"min": 9, "max": 9} for v in rows[name].to_pylist()]
            rows = rows.set_column(at, rows.field(at), pa.array(values, rows.field(at).type))
        elif "_valuelist_" in name:
            texts = [None if v is None else ["nothing"] for v in rows[name].to_pylist()]
            rows = rows.set_column(at, rows.field(at), pa.array(texts, rows.field(at).type))
    made(rows)
    os.utime(part, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_parts_that_are_replaced_while_a_table_is_open(
    tmp_path: Path, plaintext_footer: bool
) -> None:
    """Their footers were checked when the table was asked first; columns are read later."""
    table = built(table_at(tmp_path / "t"), plaintext_footer=plaintext_footer)
    opened = Table(str(tmp_path / "t"), index_keys=KEYS)
    assert opened.store.snapshot().definitions  # the footers are known now, and no column is
    for part in parts_of(table):
        lying(part, lambda rows, part=part: pq.write_table(rows, part))  # type: ignore[misc]
    assert [found for _, found in asks(opened)] == TRUE
    fresh = Table(str(tmp_path / "t"), index_keys=KEYS)
    assert asks(fresh) == [(4, found) for found in TRUE]


def test_parts_sealed_with_keys_of_the_attackers_own(tmp_path: Path) -> None:
    table = built(table_at(tmp_path / "t"))
    for part in parts_of(table):

        def sealed(rows: pa.Table, part: Path = part) -> None:
            own = arrow_encryption(
                LabelledKeys({"kf": b"e" * 16, "mine": b"m" * 16}), "mine", {"mine": ["obj_name"]}
            )
            with pq.ParquetWriter(part, rows.schema, encryption_properties=own) as writer:
                writer.write_table(rows)

        lying(part, sealed)
    fresh = Table(str(tmp_path / "t"), index_keys=KEYS)
    assert asks(fresh) == [(4, found) for found in TRUE]


def test_an_index_of_another_table_with_the_same_keys(tmp_path: Path) -> None:
    """Same file names, sizes and times, other rows: parts and packs change places."""
    one, other = table_at(tmp_path / "one"), table_at(tmp_path / "other")
    names = sorted(path.name for path in other.iterdir())
    for name, to in zip(names, reversed(names), strict=True):
        (other / name).rename(other / f"{to}.new")
    for name in names:
        (other / f"{name}.new").rename(other / name)
    built(one), built(other)
    homes = [tmp_path / f"_{name}.skipstone" for name in ("one", "other")]
    homes[0].rename(tmp_path / "away")
    homes[1].rename(homes[0])
    (tmp_path / "away").rename(homes[1])
    for path in (one, other):
        found = asks(Table(str(path), index_keys=KEYS))
        assert [rows for _, rows in found] == TRUE


def test_packs_that_change_their_names(tmp_path: Path) -> None:
    one, other = table_at(tmp_path / "one"), table_at(tmp_path / "other", 4)
    built(one), built(other)
    mine = sorted((tmp_path / "_one.skipstone" / "packs").iterdir())
    theirs = sorted((tmp_path / "_other.skipstone" / "packs").iterdir())
    assert len(mine) == len(theirs) > 0
    for a, b in zip(mine, theirs, strict=True):
        shutil.copy(b, a)
    table = Table(str(one), index_keys=KEYS)
    assert [rows for _, rows in asks(table)] == TRUE
    assert table.check().corrupt


def test_parts_and_packs_that_are_gone_doubled_or_old(tmp_path: Path) -> None:
    path = table_at(tmp_path / "t")
    table = built(path)
    home = tmp_path / "_t.skipstone"
    shutil.copytree(home, tmp_path / "old")
    # A file is rewritten with rows that it had not: same size and name, another time.
    pq.write_table(
        pa.table({"id": [1042] * 100, "s": ["secret-2-7"] * 100, "city": ["town-1-3"] * 100}),
        path / "part-3.parquet",
    )
    table.refresh()
    wanted = [101, 111, 103]
    assert [rows for _, rows in asks(Table(str(path), index_keys=KEYS))] == wanted
    now = tmp_path / "now"
    shutil.copytree(home, now)
    # Rolled back whole; old beside new; without packs; without parts; each pack cut short.
    for state in ("old", "both", "no packs", "one part", "cut"):
        shutil.rmtree(home)
        shutil.copytree(tmp_path / "old" if state == "old" else now, home)
        if state == "both":
            shutil.copytree(tmp_path / "old", home, dirs_exist_ok=True)
        elif state == "no packs":
            shutil.rmtree(home / "packs")
        elif state == "one part":
            for part in sorted((home / "facts").glob("part-*"))[1:]:
                part.unlink()
        elif state == "cut":
            for pack in (home / "packs").iterdir():
                pack.write_bytes(pack.read_bytes()[:-1])
        found = asks(Table(str(path), index_keys=KEYS))
        assert [rows for _, rows in found] == wanted, state


def test_a_store_of_xskipper_with_a_part_in_the_clear(tmp_path: Path) -> None:
    """An encrypted one, published and read by its keys; then somebody puts a part there."""
    path = table_at(tmp_path / "t")
    built(path).export(str(tmp_path / "x"))
    [home] = (tmp_path / "x").iterdir()
    whole = asks(Table(str(path), index_location=str(home), index_keys=KEYS))
    assert [rows for _, rows in whole] == TRUE
    assert whole[0][0] == 1
    for part in part_files(LocalStorage(), str(home)):
        from pathlib import Path

        lying(Path(part), lambda rows, part=part: pq.write_table(rows, part))  # type: ignore[misc]
    table = Table(str(path), index_location=str(home), index_keys=KEYS)
    assert asks(table) == [(4, found) for found in TRUE]
    assert any("not encrypted" in str(each) for each in table.store.snapshot().reasons)
