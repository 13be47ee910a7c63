"""Whole tables encrypted, decrypted and wrapped anew, and what `check` tells of their files."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from skipstone import Decryption, Encryption, ParquetFile, Table
from skipstone.cli import cli
from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError
from skipstone.parquet.encryption.modules import MAX_INVOCATIONS
from skipstone.rewrite import encrypt
from skipstone.rewrite.encrypted_file_list import TablePrefix, list_path, read_list
from skipstone.rewrite.file_jobs import file_budget
from tests.parquet.encryption.keys import InMemoryKms
from tests.processes import killed_before_step, runs_of
from tests.rewrite.encrypted_files import KEY, KEYS, equal
from tests.table.data import rows
from tests.table.encrypted_tables import NAMES, OPENS, OTHER, SEALS, bodies, files, same_rows, table

# -- there and back -------------------------------------------------------------------------------


def test_every_file_is_bound_to_its_place(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    seen: list[tuple[int, int]] = []
    report = Table(str(root)).encrypt(
        encryption=SEALS, progress=lambda done, total: seen.append((done, total))
    )
    assert [each.outcome for each in report.files] == ["done"] * 4
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert report.aad_prefix is not None
    assert report.aad_prefix.startswith(b"events-")
    place = TablePrefix(str(root), report.aad_prefix)
    assert same_rows(root, OPENS.replaced(aad_prefix=place))
    for number, name in enumerate(NAMES):
        prefix = report.aad_prefix + b"/" + name.encode()
        assert equal(
            ParquetFile(root / name, decryption=OPENS.replaced(aad_prefix=prefix)).query(),
            rows(number),
        )
        # Whoever knows nothing of it takes the prefix that is stored.
        properties = pe.create_decryption_properties(footer_key=KEY)
        found = pq.ParquetFile(root / name, decryption_properties=properties).read()
        assert equal(found, rows(number))
    assert {each.name for each in tmp_path.iterdir()} == {"events", "_events.encrypted"}
    assert b"day=1" not in (tmp_path / "_events.encrypted").read_bytes()


def test_a_name_that_is_not_stored_is_for_the_reader_to_give(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    bare = Encryption(footer_key=KEY, store_aad_prefix=False)
    with pytest.raises(SkipstoneError, match="must be given"):
        Table(str(root)).encrypt(encryption=bare)
    named = bare.replaced(aad_prefix=b"orders")
    assert Table(str(root)).encrypt(encryption=named).aad_prefix == b"orders"
    with pytest.raises(KeyUnavailableError):
        ParquetFile(root / NAMES[0], decryption=OPENS)
    properties = pe.create_decryption_properties(
        footer_key=KEY, aad_prefix=b"orders/" + NAMES[1].encode()
    )
    found = pq.ParquetFile(root / NAMES[1], decryption_properties=properties).read()
    assert equal(found, rows(1))
    assert len(Table(str(root)).encrypt(encryption=named).of("already")) == 4
    assert Table(str(root)).check(decryption=OPENS.replaced(aad_prefix=b"orders")).ok
    with pytest.raises(SkipstoneError, match="list"):
        Table(str(root)).check(decryption=OPENS)
    report = Table(str(root)).decrypt(decryption=OPENS.replaced(aad_prefix=b"orders"))
    assert report.ok
    assert same_rows(root, None)


def test_decrypted_pages_are_those_that_were(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    before = {name: bodies(root / name) for name in NAMES}
    encryption = Encryption(footer_key=KEY, column_keys={"s": KEYS["s"]}, aad_prefix=b"e")
    Table(str(root)).encrypt(encryption=encryption)
    keys = encryption.decryption()
    report = Table(str(root)).decrypt(decryption=keys)
    assert report.ok
    assert {name: bodies(root / name) for name in NAMES} == before
    assert same_rows(root, None)
    assert not Path(list_path(str(root))).exists()
    assert len(Table(str(root)).decrypt(decryption=keys).of("already")) == 4


def test_what_is_encrypted_so_is_passed_over(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    Table(str(root)).encrypt(encryption=SEALS)
    before = files(root)
    (root / "day=1/new.parquet").write_bytes((table(tmp_path / "more") / NAMES[0]).read_bytes())
    report = Table(str(root)).encrypt(encryption=SEALS)
    assert (len(report.of("done")), len(report.of("already"))) == (1, 4)
    assert files(root) == before
    assert Table(str(root)).check(decryption=OPENS).ok


@pytest.mark.parametrize(
    "other",
    [
        {"footer_key": OTHER},
        {"algorithm": "AES_GCM_CTR_V1"},
        {"plaintext_footer": True},
        {"column_keys": {"s": KEYS["s"]}},
        {"plaintext_columns": ["id"]},
        {"footer_key_metadata": "kf"},
        {"aad_prefix": b"another name"},
        {"column_keys": {"s": KEYS["s"]}, "column_key_metadata": {"s": "k"}},
    ],
    ids=lambda other: "+".join(other),
)
def test_what_is_encrypted_otherwise_needs_its_keys(tmp_path: Path, other: dict[str, Any]) -> None:
    root = table(tmp_path / "events")
    Table(str(root)).encrypt(encryption=SEALS)
    before, wanted = files(root), SEALS.replaced(**other)
    if "footer_key" in other:
        with pytest.raises(SkipstoneError, match="list"):
            Table(str(root)).encrypt(encryption=wanted)
    else:
        report = Table(str(root)).encrypt(encryption=wanted)
        assert len(report.of("failed")) == 4
        assert all(each.why for each in report.files)
        assert "mixed: 0 of 4 files" in str(report)
    assert files(root) == before
    assert Table(str(root)).encrypt(encryption=wanted, decryption=OPENS).ok
    keys = wanted.decryption().replaced(aad_prefix=None)
    assert same_rows(root, keys)
    assert len(Table(str(root)).encrypt(encryption=wanted).of("already")) == 4
    assert Table(str(root)).check(decryption=wanted.decryption()).ok


def test_one_bad_file_stops_no_other(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    (root / "day=1/bad.parquet").write_bytes(b"PAR1 no")
    report = Table(str(root)).encrypt(encryption=SEALS)
    (bad,) = report.of("failed")
    assert bad.path.endswith("bad.parquet")
    assert len(report.of("done")) == 4
    assert "mixed: 4 of 5 files" in str(report)
    assert (root / "day=1/bad.parquet").read_bytes() == b"PAR1 no"


# -- keys -----------------------------------------------------------------------------------------


def make() -> Encryption:
    return Encryption(footer_key=KEY, aad_prefix=b"made")


def fails() -> Encryption:
    raise ValueError(f"the key is {KEY!r}")


def test_keys_may_be_functions(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    assert Table(str(root)).encrypt(encryption=make).aad_prefix == b"made"
    report = Table(str(root)).decrypt(decryption=functools.partial(Decryption, footer_key=KEY))
    assert report.ok
    with pytest.raises(KeyUnavailableError) as caught:
        Table(str(root)).encrypt(encryption=fails)
    assert "ValueError" in caught.value.message
    assert KEY.decode() not in str(caught.value)


def own_prefix(path: str) -> bytes:
    return b"mine:" + os.fsencode(Path(path).name)


def test_prefixes_of_ones_own(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    encryption = Encryption(footer_key=KEY, aad_prefix=own_prefix)
    assert Table(str(root)).encrypt(encryption=encryption).ok
    assert len(Table(str(root)).encrypt(encryption=encryption).of("already")) == 4
    keys = OPENS.replaced(aad_prefix=own_prefix)
    report = Table(str(root)).check(decryption=keys)
    assert report.ok
    assert report.encryption is not None
    assert not report.encryption.listed
    assert Table(str(root)).decrypt(decryption=keys).ok
    assert same_rows(root, None)


@given(
    sizes=st.lists(st.integers(0, 1 << 45), min_size=1, max_size=50),
    spent=st.integers(0, MAX_INVOCATIONS),
    attempts=st.sampled_from([1, 4]),
)
def test_all_files_together_keep_a_key_within_its_limit(
    sizes: list[int], spent: int, attempts: int
) -> None:
    given_out = sum(
        attempts * file_budget(size, len(sizes), sum(sizes), spent, attempts) for size in sizes
    )
    assert 0 <= given_out <= MAX_INVOCATIONS - spent


def test_a_key_that_is_used_up_encrypts_nothing(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    before = files(root)
    spent = SEALS.replaced(prior_invocations=MAX_INVOCATIONS - (1 << 16) - 8)
    report = Table(str(root)).encrypt(encryption=spent)
    assert len(report.of("failed")) == 4
    assert "may encrypt no more" in report.files[0].why
    assert files(root) == before


@pytest.mark.parametrize("internal", [True, False])
def test_wrapped_keys_of_a_table(tmp_path: Path, internal: bool) -> None:
    names = NAMES[:3]
    root = table(tmp_path / "events", names)
    kms = InMemoryKms({"kf": bytes(16), "ks": bytes(range(16)), "new": bytes(range(1, 17))})
    encryption = Encryption(
        kms=kms,
        footer_key_id="kf",
        column_key_ids={"s": "ks"},
        internal_key_material=internal,
    )
    assert Table(str(root)).encrypt(encryption=encryption).ok
    assert len(Table(str(root)).encrypt(encryption=encryption).of("already")) == 3
    before, keys = files(root, names), Decryption(kms=kms)
    report = Table(str(root)).rekey(kms=kms, master_keys={"kf": "new"})
    assert [each.outcome for each in report.files] == ["done"] * 3
    assert (files(root, names) == before) is not internal
    again = Table(str(root)).rekey(kms=kms, master_keys={"kf": "new"})
    assert len(again.of("already")) == 3
    assert same_rows(root, keys, names)
    assert Table(str(root)).check(decryption=keys).ok
    other = InMemoryKms({"new": bytes(16), "ks": bytes(range(2, 18))})
    assert Table(str(root)).rekey(kms=kms, new_kms=other).ok
    assert len(Table(str(root)).rekey(kms=kms, new_kms=other).of("already")) == 3
    assert same_rows(root, Decryption(kms=other), names)
    with pytest.raises(SkipstoneError):
        Table(str(root)).check(decryption=keys)
    assert Table(str(root)).check(decryption=Decryption(kms=other)).ok


def test_spark_would_read_some_files_of_wrapped_keys(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    kms = InMemoryKms({"kf": bytes(16)})
    encryption = Encryption(kms=kms, footer_key_id="kf", internal_key_material=False)
    (failed,) = Table(str(root)).encrypt(encryption=encryption).of("failed")
    assert failed.path.endswith("day=0/c=d.parquet")
    assert len(Table(str(root)).listing()) == 4


# -- check ----------------------------------------------------------------------------------------


def _swap(root: Path, one: str, other: str) -> None:
    a, b = (root / one).read_bytes(), (root / other).read_bytes()
    (root / one).write_bytes(b)
    (root / other).write_bytes(a)


@pytest.mark.parametrize(
    "what, expected",
    [
        ("names", {"misplaced": ["day=0/c=d.parquet", "day=1/a b.parquet"]}),
        ("folders", {"misplaced": ["day=1/a b.parquet", "day=2/a b.parquet"]}),
        ("tables", {"misplaced": ["day=1/a b.parquet"]}),
        ("clear", {"plaintext": ["day=1/a b.parquet"]}),
        ("gone", {"absent": ["day=1/a b.parquet"]}),
        ("older", {"replaced": ["day=1/a b.parquet"]}),
        ("copied", {"misplaced": ["day=1/new.parquet"]}),
        ("foreign", {"unopened": ["day=1/a b.parquet"]}),
        ("torn", {"unopened": ["day=1/a b.parquet"]}),
        ("moved", {"misplaced": ["day=1/new.parquet"], "absent": ["day=1/a b.parquet"]}),
    ],
)
@pytest.mark.parametrize("footer", ["encrypted", "signed"])
def test_files_that_are_not_those(
    tmp_path: Path, what: str, expected: dict[str, list[str]], footer: str
) -> None:
    root, twin = table(tmp_path / "1/events"), table(tmp_path / "2/events")
    clear, first = (root / NAMES[0]).read_bytes(), root / NAMES[0]
    seals = Encryption(footer_key=KEY, plaintext_footer=footer == "signed")
    for each in (root, twin):
        assert Table(str(each)).encrypt(encryption=seals).ok
    assert Table(str(root)).check(decryption=OPENS).ok
    if what == "names":
        _swap(root, NAMES[0], NAMES[3])
    elif what == "folders":
        _swap(root, NAMES[0], NAMES[2])
    elif what == "tables":
        first.write_bytes((twin / NAMES[0]).read_bytes())
    elif what == "clear":
        first.write_bytes(clear)
    elif what == "gone":
        first.unlink()
    elif what == "older":
        older = first.read_bytes()
        first.write_bytes(clear)
        assert Table(str(root)).encrypt(encryption=seals).ok
        first.write_bytes(older)
    elif what == "copied":
        (root / "day=1/new.parquet").write_bytes(first.read_bytes())
    elif what == "foreign":
        first.write_bytes(clear)
        encrypt(first, encryption=seals.replaced(footer_key=OTHER))
    elif what == "torn":
        first.write_bytes(first.read_bytes()[:-40])
    else:
        first.rename(root / "day=1/new.parquet")
    report = Table(str(root)).check(decryption=OPENS)
    assert not report.ok
    assert report.encryption is not None
    kinds = ("misplaced", "plaintext", "absent", "replaced", "unopened")
    found = {
        kind: sorted(each.partition(": ")[0] for each in getattr(report.encryption, kind))
        for kind in kinds
        if getattr(report.encryption, kind)
    }
    assert found == expected
    shown = str(report)
    assert "not well" in shown
    assert all(name in shown for names in expected.values() for name in names)
    assert KEY.decode() not in shown + json.dumps(report.to_dict())


def test_without_a_list_an_index_tells_what_is_gone(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    Table(str(root)).build(indexes=["id:minmax"])
    Table(str(root)).encrypt(encryption=SEALS, plaintext_index=True)
    Path(list_path(str(root))).unlink()
    (root / NAMES[0]).unlink()
    _swap(root, NAMES[1], NAMES[2])
    checked = Table(str(root)).check(decryption=OPENS).encryption
    assert checked is not None
    assert checked.absent == (NAMES[0],)
    assert len(checked.misplaced) == 2
    assert "no list" in str(checked)


def test_the_list_cannot_be_made_without_the_key(tmp_path: Path) -> None:
    root, twin = table(tmp_path / "1/events"), table(tmp_path / "2/events")
    for each in (root, twin):
        Table(str(each)).encrypt(encryption=SEALS)
    place, good = Path(list_path(str(root))), Path(list_path(str(root))).read_bytes()
    assert read_list(str(root), OPENS) is not None
    for at in range(4, len(good) - 8, max(1, len(good) // 60)):
        place.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        with pytest.raises((SkipstoneError, FormatError)):
            Table(str(root)).check(decryption=OPENS)
    pq.write_table(
        pa.table({"path": pa.array([], pa.binary()), "aad_file_unique": pa.array([], pa.binary())}),
        place,
    )
    with pytest.raises(SkipstoneError, match="list"):
        Table(str(root)).check(decryption=OPENS)
    # That of another table says so of every file.
    place.write_bytes(Path(list_path(str(twin))).read_bytes())
    checked = Table(str(root)).check(decryption=OPENS).encryption
    assert checked is not None
    assert len(checked.misplaced) == 4
    with pytest.raises(SkipstoneError):
        Table(str(root)).check(decryption=Decryption(footer_key=OTHER))


def test_a_plaintext_table_has_no_encrypted_files(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    checked = Table(str(root)).check(decryption=OPENS).encryption
    assert checked is not None
    assert (checked.ok, checked.encrypted, checked.plaintext) == (True, 0, ())


# -- kills ----------------------------------------------------------------------------------------

KILLED = f"""{killed_before_step("writev", "fsync", "rename")}
from skipstone import Table
from skipstone import Encryption
from skipstone.facts.index_encryption import IndexEncryption
from tests.parquet.encryption.keys import InMemoryKms
root, external = sys.argv[1], sys.argv[3] == "external"
if external:
    kms = InMemoryKms(dict(kf=bytes(16)))
    how = Encryption(kms=kms, footer_key_id="kf", internal_key_material=False)
else:
    how = Encryption(footer_key=b"0123456789012345")
assert Table(root).encrypt(encryption=how).ok
"""


@pytest.mark.parametrize("keys", ["direct", "external"])
def test_a_kill_leaves_every_file_old_or_new(tmp_path: Path, keys: str) -> None:
    """Before every write, sync and rename of a run over two files; the next run ends it."""
    names, kills = NAMES[:2], 0
    kms = InMemoryKms({"kf": bytes(16)})
    how, opens = (
        (SEALS, OPENS)
        if keys == "direct"
        else (
            Encryption(kms=kms, footer_key_id="kf", internal_key_material=False),
            Decryption(kms=kms),
        )
    )
    states = set()
    with runs_of(KILLED) as run:
        for step in range(0, 60, 3 if keys == "direct" else 6):
            root = table(tmp_path / "events", names)
            old = files(root, names)
            code = run(root, step, keys)
            now = files(root, names)
            state = tuple(now[name] == old[name] for name in names)
            states.add(state)
            for number, name in enumerate(names):
                key = None if now[name] == old[name] else opens
                assert equal(ParquetFile(root / name, decryption=key).query(), rows(number))
            if code == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
            report = Table(str(root)).encrypt(encryption=how)
            assert report.ok
            assert len(report.of("done")) == sum(state)
            assert Table(str(root)).check(decryption=opens).ok
            left = [each.name for each in root.rglob("_tmp-*") if ".parquet-" in each.name]
            assert left == []
            shutil.rmtree(root)
            Path(list_path(str(root))).unlink()
    assert kills >= 4
    assert states >= {(True, True), (False, True), (False, False)}


# -- salvage ------------------------------------------------------------------------------------


def _without_footer(path: Path) -> bytes:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - int.from_bytes(data[-8:-4], "little") - 8])
    return path.read_bytes()


def test_what_is_damaged_is_salvaged_beside_itself(tmp_path: Path) -> None:
    """The only file of its folder is torn: the schema is that of the rest of the table."""
    root = table(tmp_path / "events")
    torn, flipped = root / NAMES[2], root / NAMES[1]
    left = _without_footer(torn)
    page = next(iter(ParquetFile(flipped).chunk_pages.walk((1, 0))))
    data = bytearray(flipped.read_bytes())
    data[page.offset + page.size - 1] ^= 1
    flipped.write_bytes(data)
    report = Table(str(root)).salvage(footer_only=True)
    assert len(report.of("already")) == 2
    assert torn.read_bytes() == left
    assert flipped.read_bytes() == data
    assert equal(pq.ParquetFile(torn.with_name("a b.salvaged.parquet")).read(), rows(2))
    (partly,) = report.of("partly")
    assert "saved 1 of 2 complete row groups with 120 rows" in partly.why
    half = pq.ParquetFile(flipped.with_name("é%20.salvaged.parquet")).read()
    assert equal(half, rows(1).slice(0, 120))
    again = Table(str(root)).salvage(footer_only=True)
    assert len(again.of("already")) == 6
    assert again.ok


def test_a_table_that_is_encrypted_is_not_salvaged(tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    Table(str(root)).encrypt(encryption=SEALS)
    report = Table(str(root)).salvage()
    assert len(report.of("failed")) == 4
    assert not list(root.rglob("*.salvaged.parquet"))


# -- the command line -----------------------------------------------------------------------------


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = table(tmp_path / "events")
    monkeypatch.setenv("FOOTER", f"text:{KEY.decode()}")
    key = ["--footer-key", "env:FOOTER"]

    def run(*arguments: str) -> Any:
        done = CliRunner().invoke(cli, [*arguments, "--json"])
        assert KEY.decode() not in done.stdout + done.stderr
        return done

    refused = run("encrypt", str(root), *key, "--output", "x")
    assert refused.exit_code == 2
    done = run("encrypt", str(root), *key, "--aad-prefix", "orders")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["done"], told["aad_prefix"], told["ok"]) == (4, "orders", True)
    assert json.loads(run("encrypt", str(root), *key).stdout)["already"] == 4
    assert run("check", str(root), *key).exit_code == 0
    _swap(root, NAMES[0], NAMES[2])
    found = run("check", str(root), *key)
    assert found.exit_code == 3
    assert len(json.loads(found.stdout)["encryption"]["misplaced"]) == 2
    partly = run("decrypt", str(root), *key)
    assert partly.exit_code == 3
    assert json.loads(partly.stdout)["failed"] == 2
    _swap(root, NAMES[0], NAMES[2])
    assert run("decrypt", str(root), *key).exit_code == 0
    assert same_rows(root, None)
