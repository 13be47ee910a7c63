"""The verbs that write data files, and live tables."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Decryption, Encryption, IndexEncryption, LiveTable, ParquetFile, Table
from skipstone import ingest as ingest_rows
from skipstone import write_table as write_rows
from skipstone.live.rows import stage
from skipstone.rewrite import add_index_pages, decrypt, encrypt, rekey, retrofit, split_columns
from skipstone.salvage import salvage
from skipstone.xskipper.format.part import read_part
from skipstone.xskipper.upgrade import upgrade_store
from tests.faults.cases import (
    INDEX_KEYS,
    KEY,
    ROWS,
    Case,
    exported,
    in_place,
    inside,
    kms,
    lay_out,
    nothing,
    outside,
    rows_of,
    table_at,
    vacuum,
    write,
)
from tests.folders import GOLDEN
from tests.live.tables import DAY, SCHEMA, keys, run
from tests.live.tables import rows as live_rows
from tests.questdb.partitions import questdb

if TYPE_CHECKING:
    from collections.abc import Callable

#: column files that nothing names: a file that was moved might
COLUMN_FILES = tuple(f"_b.parquet*{name}" for name in ("id", "s", "x"))
DIRECT = Encryption(footer_key=KEY)
OPENS = Decryption(footer_key=KEY, allow_plaintext_files=True)


def with_kms() -> Decryption:
    return Decryption(kms=kms(), allow_plaintext_files=True)


# -- tables ---------------------------------------------------------------------------------------


def are(state: str) -> Callable[[str], None]:
    """``whole``: every file is "clear", "encrypted", or has "page indexes"."""

    def check(home: str) -> None:
        for path in sorted(Path(home, "t").glob("*.parquet")):
            if state == "page indexes":
                chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
                assert chunk.has_column_index, path
            else:
                assert (path.read_bytes()[-4:] == b"PARE") == (state == "encrypted"), path
        listed = list(Path(home).glob("_t.files*")) if state == "clear" else []
        assert not listed, listed

    return check


def lay_out_encrypted(how: Callable[[], Encryption]) -> Callable[[str], None]:
    def make(home: str) -> None:
        lay_out(home)
        table_at(home).encrypt(encryption=how())

    return make


def encrypted_index(home: str) -> object:
    return table_at(home, index_keys=INDEX_KEYS).encrypt(
        encryption=DIRECT, index_encryption=IndexEncryption(footer_key="kf")
    )


def rekeyed(home: str) -> None:
    """No wrapped key needs the old master key."""
    from tests.parquet.encryption.keys import InMemoryKms

    new = Decryption(kms=InMemoryKms({"n": b"N" * 16}))
    ids = table_at(home, decryption=new).query(columns=["id"])["id"].to_pylist()
    assert len(ids) == 2 * ROWS


def lay_out_torn(home: str) -> None:
    lay_out(home)
    path = Path(home, "t", "p1.parquet")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - int.from_bytes(data[-8:-4], "little") - 8])


def saved(home: str) -> None:
    """What was saved is whole, or is not there."""
    for path in Path(home).glob("saved/*.parquet"):
        assert pq.read_table(path).to_pydict()["id"] == rows_of(1)["id"]
    assert pq.read_table(f"{home}/t/p0.parquet")["id"].to_pylist() == rows_of(0)["id"]


def lay_out_store(home: str, version: str = "v2") -> None:
    """A store of Xskipper of this version, as the original wrote it."""
    folder = GOLDEN / "xskipper" / "refresh_and_upgrade_spark400"
    folder /= f"upgrade_testID=01_from_{version}"
    [source] = (folder / "md_before").iterdir()
    shutil.copytree(source, Path(home, "store"))


def one_kind_of_part(home: str) -> None:
    """Parts of two versions or with different index columns never lie side by side."""
    parts = Path(home, "store").glob("[!_]*.parquet")
    found = [read_part(each.read_bytes()).footer.schema for each in parts]
    assert len({(s.version, frozenset(index.name for index in s.indexes)) for s in found}) <= 1


def upgraded(home: str) -> None:
    """All rows are there once, of version 4."""
    parts = [read_part(each.read_bytes()) for each in Path(home, "store").glob("*.parquet")]
    assert {part.footer.schema.version for part in parts} == {4}
    assert sum(part.table.num_rows for part in parts) == 3


# -- single files ---------------------------------------------------------------------------------


def one_file(home: str) -> Any:
    """A file, and another one that its new version replaces."""
    write(Path(home, "a.parquet"), 0)
    write(Path(home, "b.parquet"), 1)


def b_is(*numbers: int, keys: Decryption | None = OPENS) -> Callable[[str], None]:
    """``rows``: ``a`` is as it was, and ``b`` has the rows of one of these."""

    def check(home: str) -> None:
        wanted = [rows_of(at)["id"] for at in numbers]
        found = ParquetFile(f"{home}/b.parquet", decryption=keys).query(columns=["id"])
        assert found["id"].to_pylist() in wanted, found["id"].to_pylist()[:3]
        assert pq.read_table(f"{home}/a.parquet")["id"].to_pylist() == rows_of(0)["id"]

    return check


def write_encrypted(home: str) -> object:
    remove_c(home)
    return write_rows(pa.table(rows_of(0)), f"{home}/c.parquet", encryption=outside())


def encrypt_a(home: str) -> object:
    remove_c(home)
    return encrypt(f"{home}/a.parquet", f"{home}/c.parquet", encryption=outside())


def remove_c(home: str) -> None:
    """A file that is whole, and its keys: both verbs refuse to write them again."""
    if Path(home, "c.parquet").exists():
        Path(home, "c.parquet").unlink()
        Path(home, "_KEY_MATERIAL_FOR_c.parquet.json").unlink()


def c_is_encrypted(home: str) -> None:
    found = ParquetFile(f"{home}/c.parquet", decryption=with_kms()).query(columns=["id"])
    assert found["id"].to_pylist() == rows_of(0)["id"]


def c_if_there(home: str) -> None:
    if Path(home, "c.parquet").exists():
        c_is_encrypted(home)


def write_checkpoints(home: str) -> object:
    return write_rows(
        pa.table(rows_of(0)), f"{home}/b.parquet", row_group_rows=10, checkpoint_every=1
    )


def write_checkpoints_again(home: str) -> object:
    """The rows of an unfinished file are saved, then it is removed."""
    left = Path(home, "_unfinished-b.parquet")
    if left.exists() and left.stat().st_size:
        with suppress(FileNotFoundError):
            Path(home, "c.parquet").unlink()
        report = salvage(left, output=f"{home}/c.parquet", schema=pa.table(rows_of(0)).schema)
        if report.output is not None:
            ids = pq.read_table(f"{home}/c.parquet")["id"].to_pylist()
            assert ids == rows_of(0)["id"][: len(ids)]
        left.unlink()
    return write_checkpoints(home)


def a_cut(home: str) -> None:
    one_file(home)
    path = Path(home, "a.parquet")
    path.write_bytes(path.read_bytes()[:-9])


def salvage_a(home: str) -> object:
    target = Path(home, "c.parquet")
    if target.exists():  # a salvage that ended does not run again
        target.unlink()
    return salvage(f"{home}/a.parquet", output=target, schema=f"{home}/b.parquet")


def c_is_whole_or_gone(home: str) -> None:
    path = Path(home, "c.parquet")
    if path.exists():
        assert pq.read_table(path)["id"].to_pylist() == rows_of(0)["id"]


# -- live tables ----------------------------------------------------------------------------------

BASE = list(range(12))


def lay_out_live(home: str) -> None:
    """Two days: a partition with a superseded directory and dead bytes, and one of a few rows."""
    root = f"{home}/live"
    with LiveTable.create(root, SCHEMA, timestamp="ts", row_group_rows=4, bloom_filters=["key"]):
        pass
    with LiveTable.open(root) as table:
        table.append(run(4))
        table.compact("1970-01-01")
        table.append(run(4, start=10_000_000, first=4))
        table.append(run(4, start=DAY - 3_000_000, first=8), batch_id=3)


def live(*more: int) -> Callable[[str], None]:
    """``rows``: those of the table, or those and ``more``."""

    def check(home: str) -> None:
        root = f"{home}/live"
        found = keys(root) if Path(root, "_txn").exists() else []
        assert found in (BASE, [*BASE, *more]) or (found == [] and not BASE), found
        if found:
            table = Table(root)
            where = "key >= 5 AND key < 9"
            assert sorted(table.query(where, ["key"])["key"].to_pylist()) == [5, 6, 7, 8]
            assert table.count() == len(found)

    return check


def live_has(*wanted: int) -> Callable[[str], None]:
    def check(home: str) -> None:
        assert keys(f"{home}/live") == list(wanted)

    return check


def append(home: str) -> object:
    """In order, late, and into a new partition."""
    with LiveTable.open(f"{home}/live") as table:
        new = live_rows(3_500_000, 60_000_000, 2 * DAY, first=100)
        return table.append(new, batch_id=7)


def append_staged(home: str) -> object:
    with LiveTable.open(f"{home}/live") as table:
        area = Path(home, "live", "_staging", "x")
        area.mkdir(parents=True, exist_ok=True)
        new = live_rows(60_000_000, 2 * DAY, first=100)
        return table.append_staged(stage(table.definition, new, str(area)), batch_id=7)


def replace(home: str) -> object:
    with LiveTable.open(f"{home}/live") as table:
        new = run(4, start=10_000_000, step=900_000, first=4)
        return table.replace("1970-01-01", 1, new)


def live_compact(home: str) -> object:
    with LiveTable.open(f"{home}/live") as table:
        return table.compact("1970-01-01")


def live_vacuum(home: str) -> object:
    with LiveTable.open(f"{home}/live") as table:
        return table.vacuum(older_than=-1)


def create(home: str) -> object:
    with LiveTable.create(f"{home}/live", SCHEMA, timestamp="ts") as made:
        return made


def create_again(home: str) -> object:
    if Path(home, "live", "_live.json").exists():
        return reopen(home)
    return create(home)


def ingest(home: str) -> object:
    return ingest_rows(run(6), f"{home}/live", timestamp="ts", batch_id=1)


def new_rows(home: str) -> None:
    """None or all of the rows of ``ingest``; readers before the first commit find no table."""
    if Path(home, "live", "_txn").exists():
        assert keys(f"{home}/live") in ([], list(range(6)))


def close_again(home: str) -> None:
    """The next writer clears away what a dead one left, and a vacuum what compactions leave."""
    if Path(home, "live", "_live.json").exists():
        live_vacuum(home)


def lay_out_half(home: str) -> None:
    """An append that never committed, with a new directory."""
    lay_out_live(home)
    with (Path(home, "live", "1970-01-02", "data.parquet")).open("ab") as file:
        file.write(b"x" * 100)
    Path(home, "live", "1970-01-05").mkdir()
    Path(home, "live", "1970-01-05", "data.parquet").write_bytes(b"PAR1")
    Path(home, "live", "_staging", "y").mkdir(parents=True)
    Path(home, "live", "_staging", "y", "a.parquet").write_bytes(b"x")


def reopen(home: str) -> object:
    with LiveTable.open(f"{home}/live") as opened:
        return opened


def migrated(home: str) -> None:
    exported("t/*/_pm", 2)(home)


def txn_rows(home: str) -> None:
    table = Table(f"{home}/t")
    assert table.count() == sum(pq.read_metadata(f).num_rows for f in Path(home).rglob("*.parquet"))


def live_case(name: str, verb: str, do: Callable[[str], object], **more: Any) -> Case:
    new = more.pop("new", ())
    return Case(
        name,
        tuple(verb.split()),
        more.pop("lay_out", lay_out_live),
        do,
        more.pop("rows", live(*new)),
        more.pop("whole", live_has(*BASE, *new)),
        vacuum=close_again,
        **more,
    )


CASES = [
    Case(
        "migrate, QuestDB",
        ("migrate",),
        lambda home: questdb(Path(home, "t"), 2),
        lambda home: table_at(home).migrate(),
        txn_rows,
        migrated,
        vacuum=vacuum,
    ),
    Case(
        "retrofit",
        ("retrofit",),
        lambda home: lay_out(home, "id:minmax"),
        lambda home: table_at(home).retrofit(bloom={"id": 0.01}),
        in_place(),
        are("page indexes"),
        vacuum=vacuum,
    ),
    Case(
        "encrypt",
        ("encrypt",),
        lambda home: (lay_out(home, "id:minmax"), table_at(home).write_metadata()),
        lambda home: table_at(home).encrypt(encryption=DIRECT),
        in_place(decryption=OPENS),
        are("encrypted"),
        vacuum=lambda home: vacuum(home, decryption=OPENS),
    ),
    Case(
        "encrypt with its index",
        ("encrypt",),
        lambda home: lay_out(home, "id:minmax"),
        encrypted_index,
        in_place(decryption=OPENS, index_keys=INDEX_KEYS),
        are("encrypted"),
        vacuum=lambda home: vacuum(home, decryption=OPENS, index_keys=INDEX_KEYS),
        stays=(
            "_t.skipstone/",
            "_t.skipstone/facts/",
            "_t.skipstone/facts/part-*",
            "_t.skipstone/packs/",
            "_t.skipstone/packs/*.pack",
        ),
    ),
    Case(
        "encrypt, key material outside",
        ("encrypt",),
        lay_out,
        lambda home: table_at(home).encrypt(encryption=outside()),
        in_place(decryption=with_kms()),
        are("encrypted"),
        vacuum=lambda home: vacuum(home, decryption=with_kms()),
    ),
    Case(
        "decrypt",
        ("decrypt",),
        lay_out_encrypted(lambda: DIRECT),
        lambda home: table_at(home, decryption=OPENS).decrypt(),
        in_place(decryption=OPENS),
        are("clear"),
        vacuum=lambda home: vacuum(home, decryption=OPENS),
    ),
    Case(
        "rekey",
        ("rekey",),
        lay_out_encrypted(inside),
        lambda home: table_at(home).rekey(kms=kms(), master_keys={"m": "n"}),
        in_place(decryption=with_kms()),
        rekeyed,
        vacuum=lambda home: vacuum(home, decryption=with_kms()),
    ),
    Case(
        "rekey, key material outside",
        ("rekey",),
        lay_out_encrypted(outside),
        lambda home: table_at(home).rekey(kms=kms(), master_keys={"m": "n"}),
        in_place(decryption=with_kms()),
        rekeyed,
        vacuum=lambda home: vacuum(home, decryption=with_kms()),
    ),
    Case(
        "upgrade",
        ("upgrade_store", "compact"),
        lay_out_store,
        lambda home: upgrade_store(f"{home}/store"),
        one_kind_of_part,
        upgraded,
    ),
    Case(
        "upgrade to other index columns",
        ("upgrade_store",),
        lambda home: lay_out_store(home, "v1"),
        lambda home: upgrade_store(f"{home}/store"),
        one_kind_of_part,
        upgraded,
    ),
    Case(
        "salvage",
        ("salvage",),
        lay_out_torn,
        lambda home: table_at(home).salvage(output=f"{home}/saved"),
        saved,
        exported("saved/*.parquet", 1),
    ),
    Case(
        "salvage of a file",
        ("salvage",),
        a_cut,
        salvage_a,
        c_is_whole_or_gone,
        exported("c.parquet", 1),
    ),
    Case(
        "write_table",
        ("write_table",),
        one_file,
        lambda home: write_rows(
            pa.table(rows_of(0)), f"{home}/b.parquet", row_group_rows=10, bloom={"id": 0.1}
        ),
        b_is(0, 1),
        b_is(0),
    ),
    Case(
        "write_table with checkpoints",
        ("write_table",),
        one_file,
        write_checkpoints,
        b_is(0, 1),
        b_is(0),
        again=write_checkpoints_again,
        stays=("c.parquet", "_unfinished-b.parquet"),
    ),
    Case(
        "write_table, key material outside",
        ("write_table",),
        one_file,
        write_encrypted,
        c_if_there,
        c_is_encrypted,
    ),
    Case(
        "retrofit of a file",
        ("rewrite.retrofit",),
        one_file,
        lambda home: retrofit(f"{home}/a.parquet", output=f"{home}/b.parquet", page_rows=5),
        b_is(0, 1),
        b_is(0),
    ),
    Case(
        "encrypt of a file",
        ("rewrite.encrypt",),
        one_file,
        encrypt_a,
        c_if_there,
        c_is_encrypted,
    ),
    Case(
        "decrypt of a file",
        ("rewrite.decrypt",),
        lambda home: (
            one_file(home),
            encrypt(f"{home}/a.parquet", f"{home}/e.parquet", encryption=DIRECT),
        ),
        lambda home: decrypt(f"{home}/e.parquet", f"{home}/b.parquet", decryption=OPENS),
        b_is(0, 1),
        b_is(0),
    ),
    Case(
        "rekey of a file",
        ("rewrite.rekey",),
        lambda home: (
            one_file(home),
            encrypt(f"{home}/a.parquet", f"{home}/e.parquet", encryption=inside()),
        ),
        lambda home: rekey(
            f"{home}/e.parquet", f"{home}/b.parquet", kms=kms(), master_keys={"m": "n"}
        ),
        b_is(0, 1, keys=with_kms()),
        b_is(0, keys=with_kms()),
    ),
    Case(
        "split_columns",
        ("rewrite.split_columns",),
        one_file,
        lambda home: split_columns(f"{home}/a.parquet", f"{home}/b.parquet"),
        b_is(0, 1),
        b_is(0),
        stays=COLUMN_FILES,
    ),
    Case(
        "split_columns again",
        ("rewrite.split_columns",),
        lambda home: (
            one_file(home),
            split_columns(pa.table(rows_of(1)), f"{home}/b.parquet"),
        ),
        lambda home: split_columns(pa.table(rows_of(0)), f"{home}/b.parquet"),
        b_is(0, 1),
        b_is(0),
        stays=COLUMN_FILES,
    ),
    Case(
        "add_index_pages",
        ("rewrite.add_index_pages",),
        one_file,
        lambda home: add_index_pages(f"{home}/a.parquet", ["id"], output=f"{home}/b.parquet"),
        b_is(0, 1),
        b_is(0),
    ),
    live_case("append", "LiveTable.append", append, new=(100, 101, 102)),
    live_case("append_staged", "LiveTable.append_staged", append_staged, new=(100, 101)),
    live_case("replace", "LiveTable.replace", replace),
    live_case("live compact", "LiveTable.compact", live_compact),
    live_case("live vacuum", "LiveTable.vacuum", live_vacuum),
    live_case("reopen after a crash", "LiveTable.open", reopen, lay_out=lay_out_half),
    live_case(
        "create",
        "LiveTable.create",
        create,
        lay_out=nothing,
        again=create_again,
        rows=nothing,
        whole=live_has(),
    ),
    live_case(
        "ingest",
        "ingest LiveTable.remove_if_uncommitted",
        ingest,
        lay_out=nothing,
        rows=new_rows,
        whole=live_has(*range(6)),
    ),
]
