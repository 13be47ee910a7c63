"""What an encrypted table must not leave in the clear, in any file of it or beside it."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Decryption, Encryption, ParquetFile, Table
from skipstone.errors import SkipstoneError
from skipstone.rewrite import decrypt, encrypt, retrofit
from skipstone.rewrite import encrypt_file as encrypting
from skipstone.storage import LocalStorage
from tests.parquet.encryption.keys import InMemoryKms

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY, COLUMN = b"0123456789012345", b"column key, mine"
SECRET = b"CANARY"


def table_at(path: Path) -> Path:
    path.mkdir()
    for at in range(3):
        rows = {
            "id": [at * 100 + i for i in range(50)],
            "s": [f"CANARY-{at}-{i}" for i in range(50)],
        }
        pq.write_table(pa.table(rows), path / f"p{at}.parquet", write_page_index=True)
    return path


def told(home: Path) -> list[str]:
    files = [path for path in sorted(home.rglob("*")) if path.is_file()]
    return [path.name for path in files if SECRET in path.read_bytes()]


def test_a_published_index_and_summaries_go(tmp_path: Path) -> None:
    table = Table(str(table_at(tmp_path / "t")))
    table.build(None, ["id:minmax", "s:valuelist", "s:bitmap"])
    table.export()
    table.write_metadata()
    before = told(tmp_path)
    assert "_metadata" in before
    assert any(name.startswith("part-0") for name in before)  # what Xskipper reads
    report = table.encrypt(encryption=Encryption(footer_key=KEY))
    assert told(tmp_path) == []
    assert "published in the clear" in str(report)
    assert "_metadata" in str(report)
    assert ".index" not in str(report)


def test_what_is_published_of_other_columns_stays(tmp_path: Path) -> None:
    table = Table(str(table_at(tmp_path / "t")))
    table.build(None, ["id:minmax"])
    table.export()
    there = sorted((tmp_path / "_t.skipstone" / "xskipper").rglob("*.parquet"))
    encryption = Encryption(footer_key=KEY, plaintext_columns=["id"])
    assert "published in the clear" not in str(table.encrypt(encryption=encryption))
    assert there == sorted((tmp_path / "_t.skipstone" / "xskipper").rglob("*.parquet")) != []


def test_what_a_killed_decryption_left_goes_with_the_next_run(tmp_path: Path) -> None:
    """Its temporary file holds a part of the file in the clear; the file itself is encrypted yet.
    One that somebody is writing stays."""
    path = table_at(tmp_path / "t")
    seals = Encryption(footer_key=KEY)
    Table(str(path)).encrypt(encryption=seals)
    left, held_name = (f"_tmp-p{at}.parquet-{at:032x}" for at in range(2))
    (path / left).write_bytes(SECRET)
    (path / held_name).write_bytes(SECRET)
    with (path / held_name).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert len(Table(str(path)).encrypt(encryption=seals).of("already")) == 3
        assert told(tmp_path) == [held_name]


@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_a_link_in_the_place_of_the_temporary_file(tmp_path: Path, kind: str) -> None:
    """Whoever may write into the directory would have the plaintext written elsewhere."""
    path, elsewhere = table_at(tmp_path / "t") / "p0.parquet", tmp_path / "elsewhere"
    encrypt(path, encryption=Encryption(footer_key=KEY))
    elsewhere.write_bytes(b"as it was")
    temporary = path.with_name(f"_tmp-p0.parquet-{0:032x}")
    if kind == "symbolic":
        temporary.symlink_to(elsewhere)
    else:
        temporary.hardlink_to(elsewhere)
    decrypt(path, decryption=Decryption(footer_key=KEY))
    assert pq.read_table(path).num_rows == 50
    assert elsewhere.read_bytes() == b"as it was"


def test_a_writer_who_comes_too_late_takes_no_keys_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrapped keys lie beside the file before it has its name: who finds it locked just then must
    not remove them."""
    pq.write_table(pa.table({"s": ["CANARY"]}), tmp_path / "x.parquet")
    kms = InMemoryKms({"m": KEY})
    seals = Encryption(kms=kms, footer_key_id="m", internal_key_material=False)
    target = tmp_path / "out.parquet"
    put = LocalStorage.put

    def late(
        self: LocalStorage, path: str, data: bytes | memoryview, sources: Iterable[str] = ()
    ) -> None:
        put(self, path, data, sources)
        monkeypatch.setattr(LocalStorage, "put", put)
        Path(path).rename(tmp_path / "hidden")  # the other one looked before they were there
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(
                encrypting,
                "_copy",
                lambda *given: ((tmp_path / "hidden").rename(path), transcribe(*given)),
            )
            with pytest.raises(SkipstoneError, match="rewritten by another"):
                encrypt(tmp_path / "x.parquet", target, encryption=seals)

    transcribe = encrypting._copy
    monkeypatch.setattr(LocalStorage, "put", late)
    encrypt(tmp_path / "x.parquet", target, encryption=seals)
    keys = Decryption(kms=kms)
    assert ParquetFile(target, decryption=keys).query().to_pydict() == {"s": ["CANARY"]}


def test_file_indexes_beside_the_files_are_named(tmp_path: Path) -> None:
    path = table_at(tmp_path / "t")
    (path / "p0.parquet.index").write_bytes(SECRET)
    report = Table(str(path)).encrypt(encryption=Encryption(footer_key=KEY))
    assert ".index" in str(report)


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("own_key", [False, True])
def test_nothing_of_a_column_is_in_its_file(
    tmp_path: Path, algorithm: str, plaintext_footer: bool, own_key: bool
) -> None:
    """Values, dictionary, statistics of chunk, page header and page index, of a file with all."""
    path = tmp_path / "x.parquet"
    pq.write_table(
        pa.table({"s": [f"CANARY-{i % 7}" for i in range(300)], "t": list(range(300))}),
        path,
        compression="none",
        use_dictionary=["s"],
        data_page_size=200,
        write_batch_size=50,
        data_page_version="1.0",
    )
    retrofit(path, bloom={"s": 0.01})
    assert path.read_bytes().count(SECRET) > 10
    encrypt(
        path,
        encryption=Encryption(
            footer_key=KEY,
            column_keys={"s": COLUMN} if own_key else None,
            plaintext_footer=plaintext_footer,
            algorithm=algorithm,  # type: ignore[arg-type]
        ),
    )
    assert SECRET not in path.read_bytes()
    if plaintext_footer:
        file = ParquetFile(path)
        meta = file.footer.column_chunk(0, 0).meta_data
        assert meta is not None
        assert (meta.statistics, meta.bloom_filter_offset, meta.size_statistics) == (None,) * 3


def test_an_older_version_is_not_decrypted_in_its_place(tmp_path: Path) -> None:
    """Same key, same place: only the list of the files tells one version from the other."""
    path = table_at(tmp_path / "t")
    seals, opens = Encryption(footer_key=KEY), Decryption(footer_key=KEY)
    table = Table(str(path))
    table.encrypt(encryption=seals)
    old = (path / "p0.parquet").read_bytes()
    table.encrypt(
        encryption=Encryption(footer_key=KEY, algorithm="AES_GCM_CTR_V1"), decryption=opens
    )
    (path / "p0.parquet").write_bytes(old)
    report = Table(str(path)).decrypt(decryption=opens)
    [failed] = report.of("failed")
    assert "another version" in failed.why
    assert (path / "p0.parquet").read_bytes() == old
    # Without list and prefix nothing tells, and the report says so.
    (tmp_path / "_t.encrypted").unlink()
    report = Table(str(path)).decrypt(decryption=opens)
    assert report.ok
    assert "were not checked" in str(report)
