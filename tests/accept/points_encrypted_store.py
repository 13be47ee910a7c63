"""An encrypted index, used as a user would: by labels, with keys from variables and files."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Table, last_scan, skip
from skipstone.errors import UnsupportedError
from skipstone.facts import KeyedLocation
from skipstone.facts.index_encryption import IndexEncryption
from tests.accept.registry import point

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

KEYS = {"kf": b"F" * 16, "k1": b"1" * 24, "k2": b"2" * 32}
LABELS = IndexEncryption(footer_key="kf", key_metadata={"id:minmax": "k1", "s:valuelist": "k2"})


def table_at(home: Path) -> Path:
    """Four files of 100 rows: ids and texts apart."""
    path = home / "orders"
    path.mkdir()
    for at in range(4):
        ids = range(at * 1000, at * 1000 + 100)
        file = path / f"f{at}.parquet"
        pq.write_table(pa.table({"id": ids, "s": [f"secret-{i}" for i in ids]}), file)
        os.utime(file, (1_600_000_000, 1_600_000_000))
    return path


def in_files(home: Path) -> list[str]:
    """The keys in files of their own, as the command line is told of them."""
    told = []
    for label, key in KEYS.items():
        (home / f"{label}.key").write_text("base64:" + base64.b64encode(key).decode())
        told += ["--index-key", f"{label}=file:{label}.key"]
    return told


@point("store: an index is encrypted by labels, and one missing key silences its index alone")
def by_labels(bench: Workbench) -> None:
    path, keys = table_at(bench.home), in_files(bench.home)
    labels = ["--index-footer-key", "kf", "--key-metadata", "id:minmax=k1"]
    labels += ["--key-metadata", "s:valuelist=k2"]
    done = bench.skipstone(
        "build", path, "-c", "id:minmax", "-c", "s:valuelist", "--no-spark", *labels, *keys
    )
    assert done.code == 0, done.err
    index = bench.home / "_orders.skipstone"
    data = b"".join(p.read_bytes() for p in index.rglob("*") if p.is_file())
    assert [each for each in (b"secret-", b"f1.parquet", *KEYS.values()) if each in data] == []
    for given, locked in ((keys, None), (keys[:2] + keys[4:], "k1"), ([], "kf")):
        done = bench.skipstone("explain", path, "id = 1042", *given)
        assert done.code == 0, done.err
        rows = bench.skipstone("query", path, "id = 1042", *given)
        assert rows.code == 0, rows.err
        assert "secret-1042" in rows.out
        some = {k: v for k, v in KEYS.items() if f"{k}=file:{k}.key" in given} or None
        plan = Table(str(path), index_keys=some).plan("s = 'secret-3007'", inside=False)
        assert len(plan.files) == (4 if locked == "kf" else 1)
        for label in KEYS:
            assert (f"labelled {label!r}" in done.out + done.err) is (label == locked)
    described = bench.skipstone("describe", path, *keys)
    assert "k1" in described.out
    assert "k2" in described.out
    for text in (described.out, done.out, done.err):
        assert "1" * 24 not in text


@point("store: refresh, compaction and export of an encrypted index keep every label")
def labels_kept(bench: Workbench) -> None:
    path = table_at(bench.home)
    table = Table(str(path), index_keys=KEYS)
    table.build(indexes=["id:minmax", "s:valuelist", "s:bloom"], encryption=LABELS)
    file = path / "f9.parquet"
    pq.write_table(pa.table({"id": range(9000, 9100), "s": ["x"] * 100}), file)
    os.utime(file, (1_600_000_000, 1_600_000_000))
    keys = in_files(bench.home)
    for verb in (["refresh", "--no-spark"], ["compact"], ["check"]):
        done = bench.skipstone(verb[0], path, *verb[1:], *keys)
        assert done.code == 0, done.out + done.err
    again = Table(str(path), index_keys=KEYS)
    labels = {i.name.partition("(")[0]: i.key_metadata for i in again.describe().indexes}
    assert labels == {"id:minmax": "k1", "s:valuelist": "k2", "s:bloomfilter": "kf"}
    assert len(again.plan("id = 9042", inside=False).files) == 1
    out = again.export(str(bench.home / "md"))
    served = Table(str(path), index_location=out.destination, index_keys=KEYS)
    assert len(served.plan("id = 9042", inside=False).files) == 1
    assert len(Table(str(path), index_location=out.destination).plan("id = 9042").files) == 5


@point("store: tampered packs and parts of an encrypted index say nothing")
def tampered(bench: Workbench) -> None:
    path = table_at(bench.home)
    table = Table(str(path), index_keys=KEYS)
    how = IndexEncryption(footer_key="kf", key_metadata={"id": "k1", "s:bitmap": "k2"})
    table.build(indexes=["s:bitmap", "id:minmax"], encryption=how)
    assert len(table.plan("s = 'secret-2007'", inside=False).files) == 1
    for file in (bench.home / "_orders.skipstone").rglob("*"):
        if file.is_file():
            data = bytearray(file.read_bytes())
            data[len(data) // 3] ^= 1
            file.write_bytes(data)
    other = Table(str(path), index_keys=KEYS)
    assert other.query("s = 'secret-2007'").num_rows == 1
    assert not other.check().ok


@point("store: no index in the clear over a column that its file encrypts, unless asked")
def not_in_clear(bench: Workbench) -> None:
    path = table_at(bench.home)
    (bench.home / "data.key").write_text("text:0123456789abcdef")
    for file in path.iterdir():
        done = bench.skipstone(
            "encrypt", file, "--footer-key", "file:data.key", "--plaintext-footer"
        )
        assert done.code == 0, done.err
        os.utime(file, (1_600_000_000, 1_600_000_000))
    command: list[str | Path] = [
        "build",
        path,
        "-c",
        "id:minmax",
        "--no-spark",
        "--footer-key",
        "file:data.key",
    ]
    refused = bench.skipstone(*command)
    assert refused.code == 1
    assert "encrypts the column" in refused.err
    assert not (bench.home / "_orders.skipstone").exists()
    assert bench.skipstone(*command, "--plaintext-index").code == 0
    assert len(Table(str(path)).plan("id = 1042", inside=False).files) == 1


@point("store: Spark builds an encrypted index and reads by it")
def on_spark(bench: Workbench) -> None:
    path = table_at(bench.home)
    table = Table(str(path), index_keys=KEYS)
    report = table.build(bench.spark, ["id:minmax", "s:valuelist"], encryption=LABELS)
    assert report.files_built == 4
    data = b"".join(
        p.read_bytes() for p in (bench.home / "_orders.skipstone").rglob("*") if p.is_file()
    )
    assert b"secret-" not in data
    frame = table.read(bench.spark, "id = 1042")
    assert [row["s"] for row in frame.collect()] == ["secret-1042"]
    assert "read 1 of 4 files" in str(last_scan(bench.spark))
    assert table.store.keys is not None
    plain = skip(bench.spark.read.parquet(str(path)), KeyedLocation(None, table.store.keys))
    assert plain.where("s = 'secret-2007'").count() == 1
    assert "read 1 of 4 files" in str(last_scan(bench.spark))
    blind = skip(bench.spark.read.parquet(str(path)))
    assert blind.where("id = 1042").count() == 1
    try:
        Table(str(path), index_keys=KEYS).export(str(bench.home / "out"), kind="questdb")
    except UnsupportedError:
        return
    raise AssertionError("sidecars of an encrypted index went out in the clear")
