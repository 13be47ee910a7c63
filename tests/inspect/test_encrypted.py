"""`inspect` opens an encrypted index with its keys, label by label, and never shows one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.facts.index_encryption import IndexEncryption

if TYPE_CHECKING:
    from tests.cli.conftest import Run

KEYS = {"kf": b"FOOTERFOOTERFOOT", "k1": b"11-key-of-id-111"}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Two files; minmax of id under k1, and a bitmap of city in a pack, its blob under k1, too."""
    (tmp_path / "t").mkdir()
    for at in range(2):
        rows = {"id": [at * 10 + i for i in range(5)], "city": [f"town-{i:04}" for i in range(5)]}
        pq.write_table(pa.table(rows), tmp_path / "t" / f"p{at}.parquet")
    for label, key in KEYS.items():
        monkeypatch.setenv(label.upper(), f"text:{key.decode()}")
    monkeypatch.setenv("WRONG", "text:0123456789012345")
    table = Table(str(tmp_path / "t"), index_keys=KEYS)
    encryption = IndexEncryption(
        footer_key="kf", key_metadata={"id:minmax": "k1", "city:bitmap": "k1"}
    )
    table.build(None, ["id:minmax", "city:bitmap"], encryption=encryption)
    return table


def inspected(run: Run, path: object, *labels: str) -> dict[str, Any]:
    """What was found; no key is shown, as text or as JSON."""
    keys = [each for label in labels for each in ("--index-key", f"{label}=env:{label.upper()}")]
    done = run("inspect", path, "--json", *keys)
    assert done.exit_code == 0, done.stderr
    text = run("inspect", path, *keys).stdout
    assert not any(key.decode() in done.stdout + text for key in KEYS.values())
    [found] = json.loads(done.stdout)["found"]
    assert isinstance(found, dict)
    return found


def one(table: Table, folder: str) -> Path:
    return sorted((Path(table.location.root) / folder).iterdir())[0]


def test_a_part_with_all_keys(run: Run, table: Table) -> None:
    found = inspected(run, one(table, "facts"), "kf", "k1")
    assert (found["format"], found["key_labels"], found["notes"]) == (
        "fact part",
        ["k1", "kf"],
        [],
    )
    labels = {each["kind"]: each["key_label"] for each in found["columns"]}
    assert labels["minmax"] == "k1"
    [column] = [each["name"] for each in found["columns"] if each["kind"] == "minmax"]
    assert {row[column]["max"] - row[column]["min"] for row in found["rows_shown"]} == {4}


def test_a_part_without_one_key_shows_the_rest(run: Run, table: Table) -> None:
    found = inspected(run, one(table, "facts"), "kf")
    assert any("'k1'" in note for note in found["notes"])
    assert found["rows_shown"][0]["skipstone_rows"] == 5
    assert not any("minmax" in name for name in found["rows_shown"][0])


def test_a_part_without_the_footer_key(run: Run, table: Table) -> None:
    for keys in ((), ("--index-key", "k1=env:K1")):
        done = run("inspect", one(table, "facts"), *keys)
        assert done.exit_code != 0
        assert "'kf'" in done.stderr
    done = run("inspect", one(table, "facts"), "--index-key", "kf=env:WRONG")
    assert done.exit_code != 0
    assert "not the one" in done.stderr


def test_a_pack(run: Run, table: Table) -> None:
    path = one(table, "packs")
    found = inspected(run, path, "kf", "k1")
    assert (found["format"], found["key_labels"]) == ("encrypted pack", ["kf", "k1"])
    assert {each["opens"] for each in found["columns"]} == {"yes"}
    blobs = [each for each in found["columns"] if "bitmap" in each["name"]]
    assert {each["key_label"] for each in blobs} == {"k1"}
    assert sum(each["bytes"] for each in found["columns"]) == found["bytes_of_plaintext"]
    found = inspected(run, path, "kf")
    closed = {each["name"]: each["opens"] for each in found["columns"] if each["opens"] != "yes"}
    assert set(closed) == {each["name"] for each in blobs}
    assert all("'k1'" in why for why in closed.values())
    found = inspected(run, path)  # labels, and nothing else
    assert (found["key_labels"], found["columns"]) == (["kf", "k1"], [])
    assert "--index-key" in found["notes"][0]


def test_a_pack_that_was_altered(run: Run, table: Table) -> None:
    path = one(table, "packs")
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    found = inspected(run, path, "kf", "k1")
    assert [each["opens"].startswith("no: ") for each in found["columns"]].count(True) == 1
    data[-20] ^= 1  # in the keys
    path.write_bytes(data)
    done = run("inspect", path, "--index-key", "kf=env:KF")
    assert done.exit_code != 0
    assert "Traceback" not in done.stderr


def test_the_whole_store_and_what_is_published(run: Run, table: Table, tmp_path: Path) -> None:
    found = inspected(run, table.location.root, "kf", "k1")
    assert (found["format"], found["rows"]) == ("fact store", 2)
    assert found["key_labels"] == ["k1", "kf"]
    table.export(str(tmp_path / "x"))
    [home] = (tmp_path / "x").iterdir()
    found = inspected(run, home, "kf", "k1")
    assert (found["format"], found["rows"]) == ("Xskipper store", 2)
    assert any("minmax" in name for name in found["rows_shown"][0])
    found = inspected(run, home, "kf")
    assert any("'k1'" in note for note in found["notes"])
