"""The keys of encrypted tables on the command line: named by where they lie, and never shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone import Decryption, Encryption, Table
from skipstone.cli import cli
from tests.table.data import rows
from tests.table.test_encrypted_queries import KEY, NAMES, OF_S, SEALS, laid

KEYS = ("--footer-key", "env:FOOTER", "--column-key", "s=env:OF_S")
INDEX = b"I" * 16


@pytest.fixture
def clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOOTER", f"text:{KEY.decode()}")
    monkeypatch.setenv("OF_S", OF_S.hex())
    monkeypatch.setenv("OF_INDEX", f"text:{INDEX.decode()}")
    return laid(tmp_path / "orders")


@pytest.fixture
def orders(clear: Path) -> Path:
    assert Table(str(clear)).encrypt(encryption=SEALS).ok
    return clear


def run(*arguments: object) -> Any:
    done = CliRunner().invoke(cli, [str(each) for each in arguments])
    for secret in (KEY.decode(), OF_S.hex(), INDEX.decode()):
        assert secret not in done.stdout + done.stderr
    return done


def told(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_query_count_and_explain(orders: Path) -> None:
    found = told("query", orders, "id = 77 or id = 500", "--columns", "id,s", *KEYS)
    assert sorted(found["rows"]) == [[77, "é5"], [500, "é5"]]
    assert told("count", orders, "s = 'é1'", *KEYS)["rows"] == sum(i % 9 == 1 for i in range(600))
    explained = run("explain", orders, "s = 'é1'", "--footer-key", "env:FOOTER")
    assert explained.exit_code == 0, explained.stderr
    assert "key of column 's' was not given" in explained.stdout
    assert run("explain", orders, "id = 1", *KEYS, "--analyze").exit_code == 0
    assert told("count", orders, "id < 10", *KEYS, "--aad-prefix", "orders")["rows"] == 10


def test_what_is_missing_or_wrong_is_said(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for verb in ("query", "count", "explain", "advise"):
        done = run(verb, orders)
        assert done.exit_code == 1
        assert "is encrypted, and no key was given" in done.stderr
        assert "--footer-key" in done.stderr
    done = run("count", orders, "s = 'é1'", "--footer-key", "env:FOOTER")
    assert done.exit_code == 1
    assert "the key of column 's' was not given" in done.stderr
    monkeypatch.setenv("FOOTER", "text:another key 1234")
    done = run("count", orders, "id = 1", *KEYS)
    assert done.exit_code == 1
    assert "the footer does not authenticate" in done.stderr
    assert run("count", orders, "--footer-key", KEY.hex()).exit_code == 2
    assert run("count", orders, "--aad-prefix", "orders").exit_code == 2


def test_files_in_the_clear_take_a_word(orders: Path, tmp_path: Path) -> None:
    pq.write_table(rows(3), orders / "day=1/new.parquet")
    done = run("count", orders, "id >= 0", *KEYS)
    assert done.exit_code == 1
    assert "not encrypted" in done.stderr
    assert told("count", orders, "id >= 0", *KEYS, "--allow-plaintext-files")["rows"] == 800
    document = tmp_path / "keys.json"
    document.write_text(json.dumps({"footer_key": KEY.hex(), "column_keys": {"s": OF_S.hex()}}))
    assert told("count", orders, "s = 'é1'", "--keys", document)["rows"] > 0


def test_report(orders: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = told("report", orders, "id = 77", "-o", page, *KEYS)
    assert found["files"]["opened"] == found["files"]["kept"] > 0
    assert KEY.decode() not in page.read_text("utf-8")
    one = told("report", orders / NAMES[0], "id = 77", "-o", page, *KEYS)
    assert one["files"]["opened"] == 1
    assert run("report", orders / NAMES[0], "-o", page).exit_code == 1


def test_advise(orders: Path, tmp_path: Path) -> None:
    plain = laid(tmp_path / "plain")
    expected, found = told("advise", plain), told("advise", orders, *KEYS)
    assert found["sampled"] == 3
    assert not [each for each in found["notes"] if "could not be read" in each]

    def columns(advice: dict[str, Any]) -> Any:
        return [
            {key: each[key] for key in ("column", "type", "nulls", "distinct_per_file", "kinds")}
            for each in advice["columns"]
        ]

    assert columns(found) == columns(expected)
    assert [each["overlap"] for each in found["columns"] if each["column"] == "id"] == [0.0]
    queries = tmp_path / "queries"
    queries.write_text("id = 77\ns = 'é3' and id = 500\n", "utf-8")
    tried = told("advise", orders, "--queries", queries, *KEYS)
    assert tried["candidates"]
    assert not list(orders.parent.glob("_orders.skipstone*"))


def test_build_refresh_and_check(orders: Path) -> None:
    index = ("--index-key", "kf=env:OF_INDEX")
    built = told(
        "build", orders, "-c", "id:minmax", "-c", "s:bitmap", "--no-spark", *KEYS, *index,
        "--index-footer-key", "kf",
    )  # fmt: skip
    assert built["files_built"] == 3
    assert told("refresh", orders, "--no-spark", *KEYS, *index)["files_built"] == 0
    checked = told("check", orders, "--deep", *KEYS, *index)
    assert checked["ok"]
    assert checked["encryption"]["encrypted"] == 3
    explained = told("explain", orders, "id = 77", *KEYS, *index)
    assert len(explained["paths"]) == 1


def test_encrypt_builds_the_index_anew_and_encrypted(clear: Path) -> None:
    Table(str(clear)).build(indexes=["id:minmax", "s:bitmap"])
    footer = ("--footer-key", "env:FOOTER")
    sealed = ("--index-footer-key", "kf", "--index-key", "kf=env:OF_INDEX")
    for wrong in (
        ("--index-key-metadata", "id=k1"),
        (*sealed, "--plaintext-index"),
        ("--index-plaintext-footer",),
    ):
        assert run("encrypt", clear, *footer, *wrong).exit_code == 2
    assert run("encrypt", clear / NAMES[0], *footer, *sealed).exit_code == 2
    done = told("encrypt", clear, *footer, *sealed, "--index-key-metadata", "s=kf")
    assert (done["done"], sorted(done["dropped"])) == (3, ["id:minmax", "s:bitmap"])
    table = Table(str(clear), decryption=Decryption(footer_key=KEY), index_keys={"kf": INDEX})
    assert table.plan("id = 77", inside=False).files_kept == 1
    assert sorted(each.name for each in table.describe().indexes) == ["id:minmax", "s:bitmap"]
    for part in Path(table.location.root).rglob("*"):
        data = part.read_bytes() if part.is_file() else b""
        # One text of three bytes may stand in encrypted bytes by chance; not most of the nine.
        assert sum(f"é{i}".encode() in data for i in range(9)) < 5
    assert told("decrypt", clear, *footer, "--index-key", "kf=env:OF_INDEX")["ok"]


def test_salvage_of_an_encrypted_table(orders: Path, tmp_path: Path) -> None:
    """Of one file the footer is torn, of another a page is altered; the third is whole."""
    torn, flipped = orders / NAMES[0], orders / NAMES[1]
    data = torn.read_bytes()
    torn.write_bytes(data[:-36])  # tail and tag
    altered = bytearray(flipped.read_bytes())
    altered[len(altered) // 4] ^= 1
    flipped.write_bytes(altered)
    before = {name: (orders / name).read_bytes() for name in NAMES}
    done = run("salvage", orders, *KEYS)
    assert done.exit_code == 1
    assert "in the clear" in done.stderr
    saved = tmp_path / "saved"
    done = run("salvage", orders, *KEYS, "--output", saved, "--json")
    assert done.exit_code == 3, done.stderr
    found = json.loads(done.stdout)
    assert (found["already"], found["failed"]) == (1, 0), done.stdout
    assert {name: (orders / name).read_bytes() for name in NAMES} == before
    assert not list(orders.rglob("*.salvaged.parquet"))
    assert pq.ParquetFile(saved / NAMES[0]).read()["id"].to_pylist() == list(range(200))
    half = pq.ParquetFile(saved / NAMES[1]).read()["id"].to_pylist()
    assert half in (list(range(200, 300)), list(range(300, 400)))
    assert not (saved / NAMES[2]).exists()
    again = run("salvage", orders, *KEYS, "--output", saved, "--json")
    assert json.loads(again.stdout)["already"] == 3


@pytest.mark.parametrize("stored", [True, False])
def test_salvage_binds_files_to_their_places(clear: Path, tmp_path: Path, stored: bool) -> None:
    seals = Encryption(footer_key=KEY, aad_prefix=b"orders", store_aad_prefix=stored)
    assert Table(str(clear)).encrypt(encryption=seals).ok
    torn = clear / NAMES[0]
    data = torn.read_bytes()
    torn.write_bytes(data[:-36])  # tail and tag
    table = Table(str(clear), decryption=Decryption(footer_key=KEY, aad_prefix=b"orders"))
    report = table.salvage(output=str(tmp_path / "saved"))
    assert [each.path for each in report.of("done")] == [os.fspath(torn)], report
    assert pq.ParquetFile(tmp_path / "saved" / NAMES[0]).read().num_rows == 200
    wrong = Table(str(clear), decryption=Decryption(footer_key=b"another key 1234"))
    failed = wrong.salvage(output=str(tmp_path / "none"))
    assert len(failed.of("failed")) == 3
    assert "the list of the encrypted files does not open" in failed.notes[0]
    assert not list((tmp_path / "none").rglob("*.parquet"))
