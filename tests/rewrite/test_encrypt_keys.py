"""Keys on their way: from files and variables, through a KMS, and never into anything shown."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import signal
import traceback
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone import Decryption, Encryption, ParquetFile, Table
from skipstone.cli import cli
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.parquet.encryption.key_material import key_material_path
from skipstone.rewrite import decrypt, encrypt, rekey
from tests.folders import ROOT
from tests.parquet.encryption.keys import InMemoryKms, PlainKms
from tests.processes import killed_before_step, runs_of
from tests.rewrite.encrypted_files import KEY, KEYS, equal, plain, rows

if TYPE_CHECKING:
    from pathlib import Path

SECRETS = [KEY, *KEYS.values()]
KMS = "tests.parquet.encryption.keys:PlainKms"


def shows_no_key(text: str) -> None:
    for secret in SECRETS:
        for form in (secret.decode(), secret.hex(), base64.b64encode(secret).decode()):
            assert form not in text


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(cli, list(arguments))
    shows_no_key(done.stdout + done.stderr)
    return done


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = plain(tmp_path / "p q.parquet")
    folder = tmp_path / "d=1"
    folder.mkdir()
    (folder / "hex").write_text(KEY.hex() + "\n")
    (folder / "raw").write_bytes(bytes(range(128, 144)))
    monkeypatch.setenv("KEY_OF_S", "base64:" + base64.b64encode(KEYS["s"]).decode())
    keys = [
        "--footer-key", f"file:{folder}/hex",
        "--column-key", "s=env:KEY_OF_S",
        "--column-key", f"l.list.element=file:{folder}/raw",
    ]  # fmt: skip
    done = run("encrypt", str(path), *keys, "--aad-prefix", "orders", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["columns"]["s"] == "column key"
    assert run("encrypt", str(path), *keys).exit_code == 1
    opened = Decryption(footer_key=KEY, column_keys={"s": KEYS["s"], "l": bytes(range(128, 144))})
    assert equal(ParquetFile(path, decryption=opened).query(), rows())
    done = run("decrypt", str(path), *keys[:4], "--debug")
    assert done.exit_code == 1
    assert "l.list.element" in done.stderr
    assert run("decrypt", str(path), *keys).exit_code == 0
    assert equal(pq.read_table(path), rows())
    shows_no_key(caplog.text)


def test_a_key_is_never_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plain(tmp_path / "p.parquet")
    monkeypatch.setenv("WRONG", KEY.decode() + "x")
    for arguments, code in (
        (["--footer-key", KEY.decode()], 2),
        (["--footer-key", f"hex:{KEY.hex()}"], 2),
        (["--footer-key", "env:WRONG", "--column-key", f"s={KEY.hex()}"], 2),
        (["--footer-key", "env:WRONG"], 1),
        (["--footer-key", "env:NOT_SET"], 1),
        (["--footer-key", f"file:{path}"], 1),
        ([], 2),
    ):
        done = run("encrypt", str(path), *arguments, "--debug")
        assert done.exit_code == code, done.stderr
        assert "hint: " in done.stderr
    assert equal(pq.read_table(path), rows())


def test_nothing_shows_a_key(tmp_path: Path) -> None:
    path = plain(tmp_path / "p.parquet")
    encryption = Encryption(footer_key=KEY, column_keys=KEYS)
    shown = [repr(encryption), str(encryption)]
    report = encrypt(path, encryption=encryption)
    shown += [repr(report), str(report), json.dumps(report.to_dict())]
    for wrong in (Decryption(footer_key=KEY), Decryption(footer_key=KEY, column_keys={"s": KEY})):
        try:
            decrypt(path, decryption=wrong)
        except SkipstoneError as error:
            lines = traceback.TracebackException.from_exception(error, capture_locals=True)
            shown += [repr(error), str(error), "".join(lines.format())]
    with pytest.raises(ValueError, match="has 17 bytes") as caught:
        Encryption(footer_key=KEY + b"x")
    shown += [str(caught.value)]
    shows_no_key("\n".join(shown))
    for secret in SECRETS:
        assert secret not in path.read_bytes()


def test_a_kms_that_fails_with_the_key_in_its_hand(tmp_path: Path) -> None:
    class Talkative(PlainKms):
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            raise RuntimeError(f"cannot wrap {key_bytes.hex()} with {SECRETS[0].hex()}")

    path = plain(tmp_path / "p.parquet")
    with pytest.raises(SkipstoneError, match="RuntimeError") as caught:
        encrypt(path, encryption=Encryption(kms=Talkative(), footer_key_id="kf"))
    text = "".join(traceback.format_exception(caught.value))
    shows_no_key(text)
    assert "cannot wrap" not in text
    assert equal(pq.read_table(path), rows())


def test_choices_that_cannot_be(tmp_path: Path) -> None:
    kms = PlainKms()
    for arguments in (
        {},
        {"footer_key": KEY, "footer_key_id": "kf", "kms": kms},
        {"footer_key_id": "kf"},
        {"footer_key": KEY, "column_key_ids": {"a": "ka"}, "kms": kms},
        {"footer_key": KEY, "algorithm": "AES"},
        {"footer_key": KEY, "column_keys": {"a": KEY}, "plaintext_columns": ["a"]},
        {"footer_key": KEY, "column_key_metadata": {"a": "ka"}},
        {"footer_key_id": "kf", "kms": kms, "data_key_bits": 100},
    ):
        with pytest.raises(ValueError):
            Encryption(**arguments)


def test_it_pickles_with_its_keys_and_its_count(tmp_path: Path) -> None:
    encryption = Encryption(footer_key=KEY, column_keys=KEYS, plaintext_footer=True)
    encrypt(plain(tmp_path / "1.parquet"), encryption=encryption)
    copy = pickle.loads(pickle.dumps(encryption))
    assert copy.invocations == encryption.invocations > 50
    path = plain(tmp_path / "2.parquet")
    encrypt(path, encryption=copy)
    keys = Decryption(footer_key=KEY, column_keys=KEYS)
    assert equal(ParquetFile(path, decryption=keys).query(), rows())


@pytest.mark.parametrize("internal", [True, False])
@pytest.mark.parametrize("double_wrapping", [True, False])
@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_rekey(
    tmp_path: Path, internal: bool, double_wrapping: bool, plaintext_footer: bool
) -> None:
    masters = {"old": b"1" * 16, "new": b"2" * 16, "ks": b"3" * 16}
    kms = InMemoryKms(masters)
    path = plain(tmp_path / "p.parquet")
    encrypt(
        path,
        encryption=Encryption(
            kms=kms,
            footer_key_id="old",
            column_key_ids={"s": "ks", "x": "old"},
            internal_key_material=internal,
            double_wrapping=double_wrapping,
            plaintext_footer=plaintext_footer,
        ),
    )
    before, footer = path.read_bytes(), ParquetFile(path, decryption=Decryption(kms=kms)).tail
    report = rekey(path, kms=kms, master_keys={"old": "new"})
    assert (report.keys, report.master_keys) == (3, ("ks", "new"))
    after = path.read_bytes()
    beside = tmp_path / key_material_path(path.name)
    assert report.written == str(path if internal else beside)
    assert (before == after) != internal
    assert before[: footer.offset] == after[: footer.offset]
    # The old master key may go.
    rest = InMemoryKms({name: key for name, key in masters.items() if name != "old"})
    file = ParquetFile(path, decryption=Decryption(kms=rest))
    assert equal(file.query(), rows())
    assert file.verify().ok
    assert file.signature_verified == plaintext_footer


def test_rekey_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    path = plain(tmp_path / "p.parquet")
    done = run("encrypt", str(path), "--kms", KMS, "--footer-key-id", "kf")
    assert done.exit_code == 0, done.stderr
    done = run("rekey", str(path), "--kms", KMS, "--master-key", "kf=k2", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["master_keys"] == ["k2"]
    assert b'"masterKeyID":"k2"' in path.read_bytes()
    assert run("decrypt", str(path), "--kms", KMS).exit_code == 0
    assert equal(pq.read_table(path), rows())


def test_there_is_nothing_to_wrap(tmp_path: Path) -> None:
    path = plain(tmp_path / "p.parquet")
    encrypt(path, encryption=Encryption(footer_key=KEY, plaintext_footer=True))
    with pytest.raises(SkipstoneError):
        rekey(path, kms=PlainKms())
    plain(path)
    with pytest.raises(UnsupportedError, match="is not encrypted") as told:
        rekey(path, kms=PlainKms())
    assert told.value.hint == "there is no key in it"
    (failed,) = Table(tmp_path).rekey(kms=PlainKms()).of("failed")
    assert failed.why.endswith("is not encrypted")


KILLED = f"""{killed_before_step("writev", "fsync", "rename", after=True)}
from skipstone import Encryption
from skipstone.rewrite import encrypt
encrypt(sys.argv[1], encryption=Encryption(footer_key=b"0123456789012345"))
"""


def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    """Before and after every write, sync and rename."""
    path, killed, seen = tmp_path / "p.parquet", 0, set()
    with runs_of(KILLED) as run:
        for step in range(40):
            old = plain(path).read_bytes()
            code = run(path, step)
            if path.read_bytes() == old:
                seen.add("old")
                assert equal(pq.read_table(path), rows())
            else:
                seen.add("new")
                keys = Decryption(footer_key=KEY)
                assert equal(ParquetFile(path, decryption=keys).query(), rows())
            if code == 0:
                break
            assert code == -signal.SIGKILL
            killed += 1
    assert killed >= 6
    assert seen == {"old", "new"}
