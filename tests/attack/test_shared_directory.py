"""Between users who share a directory: what they see of each other's files, and what they can make
Skipstone write or remove."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone import Decryption, Encryption, Table, report, write_table
from skipstone.cli import cli
from skipstone.rewrite import decrypt, encrypt, retrofit
from skipstone.rewrite.column_splitter import split_columns
from skipstone.salvage import salvage
from skipstone.storage.atomic_replace import replace_atomically
from tests.processes import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = b"0123456789012345"
STRANGER = 65534
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a file to another user"
)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory in which every user may create files, as /tmp."""
    home = Path(tempfile.mkdtemp())
    home.chmod(0o1777)
    yield home
    shutil.rmtree(home)


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def data_file(path: Path, mode: int = 0o600) -> Path:
    path.parent.mkdir(exist_ok=True)
    rows = {"id": list(range(2_000)), "s": [f"secret {i % 700}" for i in range(2_000)]}
    pq.write_table(pa.table(rows), path, write_page_index=True)
    path.chmod(mode)
    os.utime(path, (1_600_000_000, 1_600_000_000))
    return path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def readable_by_others(home: Path) -> list[str]:
    files = [path for path in sorted(home.rglob("*")) if path.is_file()]
    return [path.name for path in files if mode_of(path) & 0o077]


# -- temporary files -------------------------------------------------------------------------------


def test_a_temporary_file_has_a_random_name_and_is_private(shared: Path) -> None:
    path = data_file(shared / "t" / "a.parquet")
    seen = set()
    for _ in range(2):
        with replace_atomically(path, sources=[path]) as out:
            out.write(path.read_bytes())
            out.flush()
            (made,) = set(path.parent.iterdir()) - {path}
            assert mode_of(made) == 0o600
            seen.add(made.name)
    assert len(seen) == 2
    assert list(path.parent.iterdir()) == [path]


@needs_root
@pytest.mark.parametrize("ending", ["", "-" + 32 * "0"])
def test_nobody_reads_the_plaintext_through_a_file_that_he_made_before(
    shared: Path, ending: str
) -> None:
    path = data_file(shared / "a.parquet")
    encrypt(path, encryption=Encryption(footer_key=KEY))
    trap = shared / f"_tmp-a.parquet{ending}"
    trap.write_bytes(b"")
    os.chown(trap, STRANGER, STRANGER)
    trap.chmod(0o666)
    with trap.open("rb") as held:
        decrypt(path, decryption=Decryption(footer_key=KEY))
        assert held.read() == b""
        assert not os.path.samestat(os.fstat(held.fileno()), path.stat())
    assert trap.exists()
    assert (mode_of(path), path.stat().st_uid) == (0o600, os.geteuid())
    assert pq.read_table(path).num_rows == 2_000


@needs_root
def test_a_link_of_somebody_else_leads_nowhere(shared: Path) -> None:
    path, elsewhere = data_file(shared / "a.parquet"), shared / "elsewhere"
    elsewhere.write_bytes(b"as it was")
    link = shared / "_unfinished-b.parquet"
    link.symlink_to(elsewhere)
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(Exception, match="another user's"):
        write_table(pq.read_table(path), shared / "b.parquet", checkpoint_every=1)
    assert elsewhere.read_bytes() == b"as it was"


# -- modes -----------------------------------------------------------------------------------------


def test_what_is_made_from_a_private_file_is_private(shared: Path) -> None:
    path, made = data_file(shared / "t" / "a.parquet"), shared / "made"
    made.mkdir()
    encrypt(path, made / "sealed", encryption=Encryption(footer_key=KEY))
    decrypt(made / "sealed", made / "opened", decryption=Decryption(footer_key=KEY))
    retrofit(path, bloom={"id": 0.01}, output=made / "retrofitted")
    split_columns(path, made / "split.parquet")
    broken = shared / "broken"
    broken.write_bytes(path.read_bytes()[:-100])
    broken.chmod(0o600)
    salvage(str(broken), schema=str(path), output=str(made / "salvaged"))
    table = Table(str(path.parent))
    table.build(None, ["id:minmax", "s:bitmap"])
    table.export()
    table.export(str(made / "paimon"), kind="paimon")
    table.export(str(made / "questdb"), kind="questdb")
    table.write_metadata()
    table.migrate()
    table.build(None, ["id:bloom"])
    table.compact()
    report.write_file(str(path), made / "report.html")
    assert len(list(shared.rglob("*"))) > 20
    assert readable_by_others(shared) == []


def test_files_that_all_may_read_make_files_that_all_may_read(shared: Path) -> None:
    path = data_file(shared / "t" / "a.parquet", 0o644)
    table = Table(str(path.parent))
    table.build(None, ["id:minmax", "s:bitmap"])
    table.write_metadata()
    facts = [each for each in shared.rglob("*") if each.is_file()]
    assert {mode_of(each) for each in facts} == {0o644}


def test_a_private_directory_makes_its_files_private(shared: Path) -> None:
    path = data_file(shared / "t" / "a.parquet", 0o644)
    path.parent.chmod(0o700)
    Table(str(path.parent)).build(None, ["id:minmax"])
    assert readable_by_others(shared / "_t.skipstone") == []


@needs_root
def test_another_group_is_not_given_what_is_for_one(shared: Path) -> None:
    path = data_file(shared / "t" / "a.parquet", 0o640)
    os.chown(path, 0, STRANGER)
    retrofit(path, bloom={"id": 0.01}, output=shared / "b.parquet")
    found = (shared / "b.parquet").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o640, STRANGER)


def test_the_umask_counts(shared: Path) -> None:
    path = data_file(shared / "t" / "a.parquet", 0o644)
    os.umask(0o077)
    retrofit(path, bloom={"id": 0.01}, output=shared / "b.parquet")
    assert mode_of(shared / "b.parquet") == 0o600


# -- a settings file of somebody else --------------------------------------------------------------


def settings_of(shared: Path, name: str = "skipstone.toml") -> Path:
    data_file(shared / "t" / "a.parquet", 0o644)
    head = "[tool.skipstone]\n" if name == "pyproject.toml" else ""
    file = shared / name
    file.write_text(f'{head}index-location = "elsewhere"\n')
    file.chmod(0o644)
    return file


def run(*arguments: object) -> str:
    done = CliRunner().invoke(cli, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.stderr


@needs_root
@pytest.mark.parametrize("name", ["skipstone.toml", "pyproject.toml"])
def test_a_settings_file_of_somebody_else_is_not_believed(shared: Path, name: str) -> None:
    file = settings_of(shared, name)
    os.chown(file, STRANGER, STRANGER)
    said = run("build", shared / "t", "-c", "id:minmax", "--no-spark")
    assert f"{name} is not used: it belongs to the user nobody" in said
    assert not (shared / "elsewhere").exists()
    assert (shared / "_t.skipstone" / "facts").exists()


def test_a_settings_file_that_others_can_write_is_not_believed(shared: Path) -> None:
    file = settings_of(shared)
    file.chmod(0o666)
    assert "others may write it" in run("build", shared / "t", "-c", "id:minmax", "--no-spark")
    assert not (shared / "elsewhere").exists()
    file.chmod(0o644)
    assert run("build", shared / "t", "-c", "id:minmax", "--no-spark") == ""
    assert (shared / "elsewhere" / "facts").exists()


@needs_root
def test_a_link_of_somebody_else_to_ones_own_settings_is_not_believed(shared: Path) -> None:
    file = settings_of(shared)
    file.rename(shared / "mine.toml")
    file.symlink_to(shared / "mine.toml")
    os.chown(file, STRANGER, STRANGER, follow_symlinks=False)
    assert "is not used" in run("build", shared / "t", "-c", "id:minmax", "--no-spark")


def test_drop_and_vacuum_remove_only_names_that_skipstone_makes(shared: Path) -> None:
    table = Table(
        str(data_file(shared / "t" / "a.parquet").parent), index_location=str(shared / "busy")
    )
    table.build(None, ["id:minmax", "s:bitmap"])
    strangers = [
        shared / "busy" / folder / name
        for folder in ("facts", "packs", "facts/deeper")
        for name in ("part-time", "thesis.pack", "_draft", "_tmp-mine", "notes")
    ]
    for each in strangers:
        each.parent.mkdir(exist_ok=True)
        each.write_bytes(b"precious")
        os.utime(each, (1_600_000_000, 1_600_000_000))
    table.vacuum()
    table.drop()
    left = [each for each in (shared / "busy").rglob("*") if each.is_file()]
    assert sorted(left) == sorted(strangers)


# -- what is no regular file, or may not be read ---------------------------------------------------


def test_a_fifo_hangs_nothing(shared: Path) -> None:
    """Opening one waits for a writer: in the directory of the facts that hung every query."""
    path = data_file(shared / "t" / "a.parquet", 0o644)
    table = Table(str(path.parent))
    table.build(None, ["id:minmax"])
    facts = shared / "_t.skipstone" / "facts"
    for fifo in (
        facts / f"part-{UUID(int=0)}",
        facts.parent / "packs" / f"{UUID(int=0)}.pack",
        path.parent / "b.parquet",
        path.parent / "_metadata",
        shared / "alone",
    ):
        fifo.parent.mkdir(exist_ok=True)
        os.mkfifo(fifo)
    said = f"""
import sys
from skipstone import Table
from skipstone.cli import main
assert Table({str(path.parent)!r}).count("id >= 10") == 1990
for verb, *more in (
    ["inspect"], ["salvage", "--output", "{shared}/x"], ["query", "id = 1"], ["retrofit"]
):
    sys.argv = ["skipstone", verb, "{shared}/alone", *more]
    try:
        main()
    except SystemExit:
        pass
"""
    done = subprocess.run(
        [sys.executable, "-c", said],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("alone: not a regular file") >= 2


@needs_root
def test_a_data_file_without_permission_is_not_answered_with_a_place_for_the_index(
    shared: Path,
) -> None:
    path = data_file(shared / "t" / "a.parquet")
    said = f"""
import os, pkgutil, sys, importlib, skipstone
for each in pkgutil.walk_packages(skipstone.__path__, "skipstone."):
    if not each.name.endswith("__main__"):
        importlib.import_module(each.name)
import pandas, pyarrow.parquet, tomllib, pwd, encodings.idna
from skipstone.cli import main
os.setegid({STRANGER})
os.seteuid({STRANGER})
sys.argv = ["skipstone", "query", "{path.parent}", "id = 5"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", said],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(),
    )
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert "Permission denied" in done.stderr
    assert "--index-location" not in done.stderr
