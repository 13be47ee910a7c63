"""Whole tables encrypted, held against their places, decrypted; and salvaged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Decryption, Encryption, Table
from tests.accept.registry import point

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

KEY = b"0123456789012345"
NAMES = ("day=1/a b.parquet", "day=1/é.parquet", "day=2/a b.parquet")


def rows(number: int) -> pa.Table:
    """1,000 rows; ids count on from file to file."""
    ids = range(1_000 * number, 1_000 * number + 1_000)
    return pa.table({"id": pa.array(ids, pa.int64()), "city": [f"Oslo {i % 7}" for i in ids]})


def table(home: Path) -> Path:
    """Three files in two folders, in row groups of 400."""
    root = home / "orders"
    for number, name in enumerate(NAMES):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(number), path, row_group_size=400, write_page_index=True)
    return root


def exchange(one: Path, other: Path) -> None:
    """Each in the place of the other."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@point("rewrite: a table is encrypted and decrypted file by file, resumed, its index not in clear")
def there_and_back(bench: Workbench) -> None:
    root, key = table(bench.home), bench.home / "key"
    Table(str(root)).build(indexes=["id:minmax"])
    key.write_text(f"text:{KEY.decode()}")
    done = bench.skipstone("encrypt", root, "--footer-key", f"file:{key}", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["done"], told["dropped"]) == (3, ["id:minmax"])
    assert not any(b"Oslo" in (root / name).read_bytes() for name in NAMES)
    again = Table(str(root)).encrypt(encryption=Encryption(footer_key=KEY))
    assert len(again.of("already")) == 3
    assert bench.skipstone("decrypt", root, "--footer-key", f"file:{key}").code == 0
    for number, name in enumerate(NAMES):
        assert pq.ParquetFile(root / name).read().equals(rows(number))


@point("rewrite: check tells of files that lie in the place of another, are older, clear or gone")
def in_their_places(bench: Workbench) -> None:
    root, keys = table(bench.home), Decryption(footer_key=KEY)
    first, second = (root / name for name in NAMES[:2])
    clear = first.read_bytes()
    assert Table(str(root)).encrypt(encryption=Encryption(footer_key=KEY)).ok
    assert Table(str(root)).check(decryption=keys).ok
    exchange(first, second)
    found = Table(str(root)).check(decryption=keys).encryption
    assert found is not None
    assert len(found.misplaced) == 2
    exchange(first, second)
    older = first.read_bytes()
    first.write_bytes(clear)
    found = Table(str(root)).check(decryption=keys).encryption
    assert found is not None
    assert found.plaintext == (NAMES[0],)
    assert Table(str(root)).encrypt(encryption=Encryption(footer_key=KEY)).ok
    first.write_bytes(older)
    second.unlink()
    key = bench.home / "key"
    key.write_text(KEY.hex())
    told = bench.skipstone("check", root, "--footer-key", f"file:{key}", "--json")
    assert told.code == 3, told.err
    checked = json.loads(told.out)["encryption"]
    assert (checked["replaced"], checked["absent"]) == ([NAMES[0]], [NAMES[1]])


@point("rewrite: of a table only damaged files are salvaged, and none of it is touched")
def salvaged(bench: Workbench) -> None:
    root, saved = table(bench.home), bench.home / "saved"
    torn = root / NAMES[2]
    data = torn.read_bytes()
    torn.write_bytes(data[: len(data) - int.from_bytes(data[-8:-4], "little") - 8])
    before = [(root / name).read_bytes() for name in NAMES]
    done = bench.skipstone("salvage", root, "--output", saved, "--json")
    told = json.loads(done.out)
    assert told["already"] == 2, done.err
    assert [(root / name).read_bytes() for name in NAMES] == before
    found = pq.ParquetFile(saved / NAMES[2]).read()
    assert found.equals(rows(2).slice(0, found.num_rows))
    assert found.num_rows >= 800
