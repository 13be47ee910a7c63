"""Encrypted stores of Xskipper: of all versions read, upgraded and published, labels kept."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.errors import KeyUnavailableError, UnsupportedError
from skipstone.facts.index_encryption import IndexEncryption
from skipstone.parquet.encryption.master_keys import (
    LabelledKeys,
    arrow_decryption,
    arrow_encryption,
)
from skipstone.pruning import Cause
from skipstone.storage import LocalStorage
from skipstone.xskipper.format.naming import directory_name
from skipstone.xskipper.format.part import leaves_of, read_footer, read_part
from skipstone.xskipper.format.schema import ROW_METADATA_KEY
from skipstone.xskipper.store import part_files
from skipstone.xskipper.upgrade import upgrade_store
from tests.xskipper.test_golden import ask_encrypted, encrypted

KEYS = {"kf": b"f" * 16, "k1": b"1" * 24, "k2": b"2" * 32}


def golden_keys(case: dict[str, Any], *labels: str) -> dict[str, bytes]:
    return {each: base64.b64decode(case["keys"][each]) for each in labels or case["keys"]}


# -- what the real one wrote -----------------------------------------------------------------------


@pytest.mark.parametrize("labels", [("k1", "k2"), ("k1",), ("k2",), ()])
def test_the_golden_store_by_labels(golden: Path, labels: tuple[str, ...], tmp_path: Path) -> None:
    """As with Arrow's own properties: ``k1`` is of the footer and of ``id``, ``k2`` of ``s``."""
    base, case = encrypted(golden)
    keys = {each: case["keys"][each] for each in labels}
    theirs = ask_encrypted(golden, keys, "id = 25 AND s = 'k25'")
    [directory] = base.iterdir()
    [path] = part_files(LocalStorage(), str(directory))
    source = LabelledKeys({each: base64.b64decode(key) for each, key in keys.items()})
    data = _read(path)
    if "k1" not in labels:
        with pytest.raises(KeyUnavailableError, match="'k1'"):
            read_part(data, decryption=arrow_decryption(source))
        assert any(r.cause is Cause.UNDECRYPTABLE for r in theirs.reasons)
        return
    part = read_part(data, decryption=arrow_decryption(source))
    lost = () if "k2" in labels else (("s_valuelist_1", "needs the key labelled 'k2'"),)
    assert part.unreadable == lost


def test_the_golden_store_upgraded_keeps_labels(golden: Path, tmp_path: Path) -> None:
    """Of version 4 already, copied elsewhere: the same labels, one index still in the clear."""
    base, case = encrypted(golden)
    [directory] = base.iterdir()
    out = tmp_path / "out"
    with pytest.raises(KeyUnavailableError, match="'k2'"):
        upgrade_store(str(directory), str(out), keys=golden_keys(case, "k1"))
    assert not out.exists()
    upgrade_store(str(directory), str(out), keys=golden_keys(case))
    [path] = part_files(LocalStorage(), str(out))
    keys = arrow_decryption(LabelledKeys(golden_keys(case)))
    [before] = part_files(LocalStorage(), str(directory))
    old, new = read_part(_read(before), decryption=keys), read_part(_read(path), decryption=keys)
    assert new.footer.schema.encryption is not None
    assert new.footer.schema.encryption.footer_key == "k1"
    assert [i.key_metadata for i in new.footer.schema.indexes] == ["k1", "k2", None]
    assert new.table.equals(old.table)
    with pytest.raises(KeyUnavailableError, match="'k1'"):
        read_footer(_read(path))


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


# -- versions 1 to 4 -------------------------------------------------------------------------------


def sealed_copy(golden: Path, test: str, version: int, home: Path, plaintext_footer: bool) -> Path:
    """A golden store of some version, encrypted as its schema would say: ``kf`` for the footer,
    and by turns ``k1``, ``k2`` and no key for its indexes."""
    folder = golden / "xskipper" / test / "metadata" / f"version={version}"
    [directory] = folder.iterdir()
    out = home / directory.name
    out.mkdir(parents=True)
    for path in part_files(LocalStorage(), str(directory)):
        part = read_part(_read(path))
        schema = part.footer.schema
        labels = ["k1", "k2", None]
        schema = schema.encrypted(
            leaves_of(part.table.schema),
            footer_key="kf",
            key_metadata={
                index.name: labels[at % len(labels)] for at, index in enumerate(schema.indexes)
            },
            plaintext_footer=plaintext_footer,
        )
        assert schema.encryption is not None
        properties = arrow_encryption(
            LabelledKeys(KEYS), "kf", schema.encryption.paths(), plaintext_footer=plaintext_footer
        )
        target = out / path.rpartition("/")[2]
        with pq.ParquetWriter(
            target,
            part.table.schema,
            store_schema=False,
            use_deprecated_int96_timestamps=True,
            encryption_properties=properties,
        ) as writer:
            writer.write_table(part.table)
            keys = {**dict(part.footer.keys), ROW_METADATA_KEY: schema.to_json()}
            writer.add_key_value_metadata(keys)
    return out


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("test", ["testID=15", "testID=36"])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_versions_one_to_four(
    golden: Path, tmp_path: Path, version: int, test: str, plaintext_footer: bool
) -> None:
    """Read with every key, with one missing and with a wrong one; upgraded with every label."""
    store = sealed_copy(golden, test, version, tmp_path, plaintext_footer)
    plain = [
        read_part(_read(path)).table
        for path in part_files(
            LocalStorage(),
            str(golden / "xskipper" / test / "metadata" / f"version={version}" / store.name),
        )
    ]
    for keys in (KEYS, {**KEYS, "k1": b"0" * 16}, {k: v for k, v in KEYS.items() if k != "k1"}):
        whole = keys is KEYS
        source = arrow_decryption(LabelledKeys(keys))
        parts = [
            read_part(_read(path), decryption=source)
            for path in part_files(LocalStorage(), str(store))
        ]
        for part, table in zip(parts, plain, strict=True):
            lost = {name for name, _ in part.unreadable}
            labels = {index.name: index.key_metadata for index in part.footer.schema.indexes}
            assert lost == (set() if whole else {n for n, to in labels.items() if to == "k1"})
            assert part.table.equals(table.select(part.table.column_names))
    with pytest.raises(KeyUnavailableError, match="'kf'"):
        read_part(
            _read(next(iter(part_files(LocalStorage(), str(store))))),
            decryption=arrow_decryption(LabelledKeys({"k1": KEYS["k1"]})),
        )
    out = tmp_path / "upgraded"
    report = upgrade_store(str(store), str(out), keys=KEYS)
    assert report.versions == (version,)
    source = arrow_decryption(LabelledKeys(KEYS))
    for path in part_files(LocalStorage(), str(out)):
        data = _read(path)
        assert (data[-4:] == b"PAR1") is plaintext_footer
        part = read_part(data, decryption=source)
        assert (part.footer.schema.version, part.unreadable) == (4, ())
        found = [index.key_metadata for index in part.footer.schema.indexes]
        assert found == [["k1", "k2", None][at % 3] for at in range(len(found))]
        encryption = part.footer.schema.encryption
        assert encryption is not None
        sealed = {path for paths in encryption.paths().values() for path in paths}
        for index in part.footer.schema.indexes:
            leaves = leaves_of(part.table.schema)[index.name]
            assert sealed.issuperset(leaves) is (index.key_metadata is not None)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("footer", ["encrypted_footer", "plaintext_footer"])
def test_golden_schemas_give_their_labels(golden: Path, version: int, footer: str) -> None:
    from skipstone.xskipper.format.schema import StoreSchema

    folder = golden / "xskipper" / "schema_extraction" / f"version={version}" / footer
    schema = StoreSchema.from_json((folder / "schema.json").read_text())
    assert schema.encryption is not None
    assert schema.encryption.plaintext_footer is (footer == "plaintext_footer")
    again = type(schema.encryption).from_json(schema.encryption.to_json())
    assert again == schema.encryption
    labels = set(schema.encryption.labels())
    assert {index.key_metadata for index in schema.indexes} - {None} <= labels


# -- ours, published -------------------------------------------------------------------------------


@pytest.fixture
def published(tmp_path: Path) -> tuple[Table, Path]:
    path = tmp_path / "t"
    for p in (0, 1):
        for at in range(2):
            file = path / f"p={p}" / f"f{at}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            ids = range(1000 * (2 * p + at), 1000 * (2 * p + at) + 50)
            pq.write_table(pa.table({"id": ids, "s": [f"secret-{i}" for i in ids]}), file)
            os.utime(file, (1_600_000_000, 1_600_000_000))
    table = Table(str(path), index_keys=KEYS)
    table.build(
        indexes=["id:minmax", "s:valuelist", "s:bloom"],
        encryption=IndexEncryption(footer_key="kf", key_metadata={"id": "k1", "s:valuelist": "k2"}),
    )
    base = tmp_path / "md"
    report = table.export(str(base))
    assert report.files == 4
    return table, base / directory_name(table.path)


def test_a_published_store_is_encrypted_as_xskipper_has_it(published: tuple[Table, Path]) -> None:
    _, directory = published
    [path] = part_files(LocalStorage(), str(directory))
    data = _read(path)
    assert data[-4:] == b"PARE"
    for each in (b"secret-", b"f0.parquet", *KEYS.values()):
        assert each not in data
    part = read_part(data, decryption=arrow_decryption(LabelledKeys(KEYS)))
    schema = json.loads(part.footer.schema.to_json())
    master = schema["fields"][0]["metadata"]["encryption"]
    assert master["encryption.footer.key"] == "kf"
    groups = dict(each.split(":") for each in master["encryption.column.keys"].split(";"))
    assert groups["k1"] == "id_minmax_2.min,id_minmax_2.max"
    assert groups["k2"] == "s_valuelist_1.list.element"
    assert set(groups["kf"].split(",")) == {"obj_name", "virtual_p", "s_bloomfilter_1"}
    assert [i.key_metadata for i in part.footer.schema.indexes] == ["k1", "k2", "kf"]


def test_a_published_store_serves_again(published: tuple[Table, Path]) -> None:
    """Four files of ids of their own: with the key of ``id`` one is kept, without it four."""
    table, directory = published
    for keys, kept in ((KEYS, 1), ({"kf": KEYS["kf"], "k2": KEYS["k2"]}, 4)):
        other = Table(table.path, index_keys=keys, index_location=str(directory))
        plan = other.plan("id = 1010", inside=False)
        assert len(plan.files) == kept
        assert other.query("id = 1010").num_rows == 1
        locked = any("'k1'" in str(r) for r in plan.reasons)
        assert locked is (kept == 4)
        with pytest.raises(UnsupportedError, match="encrypted"):
            other.refresh()
    # Published anew with the first, and without the key of one index: that one is left out.
    some = Table(table.path, index_keys={k: v for k, v in KEYS.items() if k != "k1"})
    report = some.export(str(directory.parent))
    assert report.indexes == ("s:valuelist", "s:bloomfilter")
    assert any("'k1'" in str(r) for r in report.left_out)


def test_nothing_encrypted_is_written_in_the_clear(published: tuple[Table, Path]) -> None:
    from dataclasses import replace

    from skipstone.xskipper.format.part import to_bytes
    from skipstone.xskipper.format.schema import StoreSchema

    _, directory = published
    [path] = part_files(LocalStorage(), str(directory))
    part = read_part(_read(path), decryption=arrow_decryption(LabelledKeys(KEYS)))
    schema = part.footer.schema
    with pytest.raises(UnsupportedError, match="without their keys"):
        to_bytes(part.table, schema)
    with pytest.raises(KeyUnavailableError, match="'k2'"):
        to_bytes(part.table, schema, keys=LabelledKeys({"kf": b"f" * 16, "k1": b"1" * 16}))
    # A list of keys that forgets a column, or gives it another key than its index says.
    for text in ("k2:s_valuelist_1.list.element;", "id_minmax_2.max"):
        first = json.loads(schema.fields[0].metadata)
        listed = first["encryption"]["encryption.column.keys"]
        assert text.rstrip(";") in listed
        short = listed.replace(text.rstrip(";"), "").replace(",;", ";")
        first["encryption"]["encryption.column.keys"] = short
        bad = StoreSchema(
            fields=(replace(schema.fields[0], metadata=json.dumps(first)), *schema.fields[1:])
        )
        with pytest.raises(UnsupportedError, match="do not agree"):
            to_bytes(part.table, bad, keys=LabelledKeys(KEYS))
