"""Tables of encrypted files, asked: rows with the keys, and what is said without them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Decryption, Encryption, ParquetFile, Table, write_table
from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from tests.accept.registry import point

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

KEY, OF_CITY, OF_INDEX = b"0123456789012345", b"C" * 32, b"I" * 16
NAMES = ("day=1/a b.parquet", "day=1/é.parquet", "day=2/a b.parquet")
SEALS = Encryption(footer_key=KEY, column_keys={"city": OF_CITY}, aad_prefix=b"orders")
FULL = Decryption(footer_key=KEY, column_keys={"city": OF_CITY})


def table(home: Path, *, sealed: bool = True) -> Path:
    """Three files in two folders, ids count on from file to file; in row groups of 400."""
    root = home / "orders"
    for number, name in enumerate(NAMES):
        ids = range(1_000 * number, 1_000 * number + 1_000)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "city": [f"Oslo {i % 7}" for i in ids]})
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, row_group_size=400, write_page_index=True)
    if sealed:
        assert Table(str(root)).encrypt(encryption=SEALS).ok
    return root


def keys(bench: Workbench) -> list[str]:
    """Key options of the command line."""
    footer, city = bench.home / "footer key", bench.home / "city key"
    footer.write_text(f"text:{KEY.decode()}")
    city.write_bytes(OF_CITY.hex().encode())
    return ["--footer-key", f"file:{footer}", "--column-key", f"city=file:{city}"]


@point("query: rows of an encrypted table, in Python and on the command line, and its explanation")
def rows_of_an_encrypted_table(bench: Workbench) -> None:
    root, given = table(bench.home), keys(bench)
    opened = Table(str(root), decryption=FULL)
    assert opened.query("id in (5, 2999)")["city"].to_pylist() == ["Oslo 5", "Oslo 3"]
    assert (opened.min("id"), opened.max("id")) == (0, 2_999)
    done = bench.skipstone("query", root, "id = 2999", *given, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"] == [[2999, "Oslo 3", 2]]
    counted = bench.skipstone("count", root, "city = 'Oslo 1'", *given, "--json")
    assert json.loads(counted.out)["rows"] == sum(i % 7 == 1 for i in range(3_000))
    for verb in ("explain", "report"):
        more: list[str] = ["-o", str(bench.home / "page.html")] if verb == "report" else []
        assert bench.skipstone(verb, root, "id = 7", *given, *more).code == 0
    advised = bench.skipstone("advise", root, *given, "--json")
    assert json.loads(advised.out)["sampled"] == 3


@point("query: a missing key fails what touches its column, and is named; a wrong one gives no row")
def keys_that_lack(bench: Workbench) -> None:
    root = table(bench.home)
    some = Table(str(root), decryption=Decryption(footer_key=KEY))
    assert some.query("id < 3", ["id"])["id"].to_pylist() == [0, 1, 2]
    with pytest.raises(KeyUnavailableError, match="column 'city'") as caught:
        some.count("city = 'Oslo 1'")
    assert "column_keys['city']" in caught.value.hint
    assert "prove nothing: the key of column 'city'" in str(some.explain("city = 'Oslo 1'"))
    with pytest.raises(FormatError, match="footer does not authenticate"):
        Table(str(root), decryption=Decryption(footer_key=KEY[::-1])).count("id = 1")
    done = bench.skipstone("count", root)
    assert done.code == 1
    assert "no key was given" in done.err


@point("query: other engines get no encrypted file, and no summary holds its footer")
def nothing_goes_out(bench: Workbench) -> None:
    root = table(bench.home, sealed=False)
    Table(str(root)).write_metadata()
    assert Table(str(root)).encrypt(encryption=SEALS).ok
    assert not (root / "_metadata").exists()
    opened = Table(str(root), decryption=FULL)
    for ask in (opened.scan("id = 1").to_pyarrow, opened.write_metadata):
        with pytest.raises(UnsupportedError, match="encrypted"):
            ask()


@point("rewrite: encrypt TABLE builds the index anew and encrypted; queries use it")
def an_index_encrypted_with_the_table(bench: Workbench) -> None:
    root, given = table(bench.home, sealed=False), keys(bench)
    Table(str(root)).build(indexes=["id:minmax", "city:bitmap"])
    label = bench.home / "index key"
    label.write_text(OF_INDEX.hex())
    index = ["--index-key", f"kf=file:{label}"]
    done = bench.skipstone("encrypt", root, *given, *index, "--index-footer-key", "kf", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["dropped"]
    explained = bench.skipstone("explain", root, "id = 2999", *given, *index, "--json")
    assert len(json.loads(explained.out)["paths"]) == 1
    checked = bench.skipstone("check", root, "--deep", *given, *index)
    assert checked.code == 0, checked.out


@point("rewrite: of an encrypted table damaged files are salvaged with its keys, elsewhere")
def salvaged_with_keys(bench: Workbench) -> None:
    root, given, saved = table(bench.home), keys(bench), bench.home / "saved"
    torn = root / NAMES[0]
    data = torn.read_bytes()
    torn.write_bytes(data[:-36])  # tail and tag
    done = bench.skipstone("salvage", root, *given, "--output", saved, "--json")
    assert json.loads(done.out)["already"] == 2, done.err
    assert pq.ParquetFile(saved / NAMES[0]).read()["id"].to_pylist() == list(range(1_000))
    assert torn.read_bytes() == data[: torn.stat().st_size]


@point("rewrite: a stream with late NaN, encrypted with checkpoints, has bounds in no row group")
def late_nan(bench: Workbench) -> None:
    numbers = [i / 100 for i in range(400)]
    numbers[399] = float("nan")
    rows = pa.table({"f": numbers, "id": range(400)})
    path = bench.home / "a.parquet"
    write_table(
        iter(rows.to_batches(100)),
        path,
        row_group_rows=100,
        checkpoint_every=1,
        encryption=Encryption(footer_key=KEY, plaintext_footer=True),
    )
    file = ParquetFile(path, decryption=Decryption(footer_key=KEY))
    told = [row for row in file.chunks().to_pylist() if row["column"] == "f"]
    assert [row["min_value"] for row in told] == [None] * 4
    assert file.count("f > 1000") == 1
