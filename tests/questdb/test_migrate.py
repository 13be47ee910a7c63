"""`migrate`: every file gets its `_pm`, good ones stay, and no row is read."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.errors import UnsupportedError
from skipstone.parquet.format.footer import Tail, read_metadata
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.txn import Partition
from skipstone.questdb.format.values import PmColumn, PmHead
from skipstone.questdb.format.writer import PmFooter, append
from tests.processes import environment
from tests.questdb.format.converting import bloom_places, pm_of
from tests.questdb.format.row_groups import PmChunk, PmRowGroup
from tests.questdb.format.writing import read_row_groups, write
from tests.questdb.partitions import DAY, FIRST, ROWS, day, questdb, write_txn

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.questdb.migrate import MigrateReport

COUNTS = ("made", "rewritten", "upgraded", "valid", "left_out", "failed")


def migrate(root: Path, destination: Path | None = None, **options: Any) -> MigrateReport:
    return Table(str(root)).migrate(None if destination is None else str(destination), **options)


def counts(report: MigrateReport) -> dict[str, int]:
    return {name: count for name, count in report.counts.items() if count}


def pms(root: Path) -> dict[str, bytes]:
    found = [*root.rglob("_pm"), *root.rglob("*._pm")]
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(found)}


def expected(path: Path, size: int | None = None) -> bytes:
    return pm_of(path.read_bytes()[:size])


def test_every_parquet_partition_gets_its_own(tmp_path: Path) -> None:
    """Three days as Parquet, of which the second has a directory with a txn; the last is not."""
    root = questdb(tmp_path / "trades", 3, native=1)
    report = migrate(root)
    assert counts(report) == {"made": 3, "left_out": 1}
    files = sorted(root.rglob("data.parquet"))
    assert pms(root) == {
        str((each.parent / "_pm").relative_to(root)): expected(each) for each in files
    }
    assert report.ok
    assert "3 of 4 files" in str(report)
    assert "2024-01-04.0/data.parquet: the partition is not Parquet" in str(report)
    # Each is of its file, with the filters and the order.
    for path in files:
        snapshot = Pm((path.parent / "_pm").read_bytes()).snapshot(path.stat().st_size)
        assert snapshot.pm.designated_timestamp == 0
        assert snapshot.pm.bloom_columns == (1, 2)
        assert int((snapshot.bloom_places[1] > 0).sum()) == 4
        assert snapshot.num_rows.sum() == ROWS


def test_recorded_files_give_what_is_recorded(golden: Path, tmp_path: Path) -> None:
    root, partitions = tmp_path / "recorded", []
    files = sorted((golden / "questdb").glob("convert_*.parquet"))
    for number, path in enumerate(files):
        folder = root / f"2024-01-{number + 1:02}"
        folder.mkdir(parents=True)
        shutil.copy(path, folder / "data.parquet")
        size = path.stat().st_size
        partitions.append(
            Partition(
                timestamp=FIRST + DAY * number,
                row_count=10,
                parquet_format=True,
                parquet_file_size=size,
            )
        )
    write_txn(root, partitions)
    report = migrate(root)
    assert counts(report) == {"made": len(files) - 1, "failed": 1}
    for number, path in enumerate(files):
        pm, recorded = root / f"2024-01-{number + 1:02}" / "_pm", path.with_suffix(".pm")
        if recorded.exists():
            assert pm.read_bytes() == recorded.read_bytes(), path.name
        else:
            assert not pm.exists()
            assert "is of another schema" in report.files[number].why


def test_no_byte_of_a_row_is_read(tmp_path: Path) -> None:
    root = questdb(tmp_path / "t", 2)
    right = {}
    footers = 0
    for path in sorted(root.rglob("data.parquet")):
        right[path] = expected(path)
        data = bytearray(path.read_bytes())
        tail = Tail.from_bytes(bytes(data[-8:]), len(data))
        places = bloom_places(read_metadata(bytes(data)))
        kept = {at for each in places for at in range(each.offset, each.offset + each.length)}
        for at in range(tail.offset):
            if at not in kept:
                data[at] = 0xEE
        path.write_bytes(data)
        footers += tail.length + 8 + sum(each.length for each in places)
    report = migrate(root)
    assert {path: (path.parent / "_pm").read_bytes() for path in right} == right
    assert report.bytes_read == footers
    assert report.bytes_read < report.bytes_data


def test_good_ones_are_not_touched_and_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    root = questdb(tmp_path / "t", 3)
    before = sorted(root.rglob("*"))
    report = migrate(root, dry_run=True)
    assert sorted(root.rglob("*")) == before
    assert (counts(report), report.dry_run) == ({"made": 3}, True)
    assert str(report).startswith("would write the _pm of 3 of 3 files")
    assert migrate(root).bytes_written == report.bytes_written
    versions = [(path, path.stat().st_ino, path.stat().st_mtime_ns) for path in root.rglob("_pm")]
    assert counts(migrate(root)) == {"valid": 3}
    again = [(path, path.stat().st_ino, path.stat().st_mtime_ns) for path in root.rglob("_pm")]
    assert again == versions
    assert not list(root.rglob("_tmp*"))


def damaged(good: bytes) -> dict[str, bytes]:
    other = bytearray(good)
    other[100] ^= 1
    return {
        "empty": b"",
        "text": b"no sidecar at all" * 9,
        "cut": good[:-1],
        "CRC": bytes(other),
        "size": b"\x10" + good[1:],
    }


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "CRC", "size"])
def test_damaged_ones_are_made_anew(tmp_path: Path, kind: str) -> None:
    root = questdb(tmp_path / "t", 2)
    migrate(root)
    right = pms(root)
    (root / "2024-01-01" / "_pm").write_bytes(damaged(right["2024-01-01/_pm"])[kind])
    report = migrate(root)
    assert counts(report) == {"rewritten": 1, "valid": 1}
    assert pms(root) == right
    assert report.files[0].why


def test_one_of_another_file_is_made_anew(tmp_path: Path) -> None:
    """Of another size; and of the same size, with a footer of another length."""
    root = questdb(tmp_path / "t", 2)
    migrate(root)
    right = pms(root)
    first = root / "2024-01-01" / "_pm"
    size = (root / "2024-01-01" / "data.parquet").stat().st_size
    snapshot = Pm(right["2024-01-01/_pm"]).snapshot()
    for offset, length in ((8, 500), (size - 8 - 300, 300)):
        footer = PmFooter(parquet_footer_offset=offset, parquet_footer_length=length)
        first.write_bytes(write(PmHead.of(snapshot.pm), [], footer))
        report = migrate(root)
        assert counts(report) == {"rewritten": 1, "valid": 1}, report
        assert pms(root) == right


def test_one_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    root = questdb(tmp_path / "t", 1)
    migrate(root)
    path = root / "2024-01-01" / "_pm"
    data = bytearray(path.read_bytes())
    data[12] |= 1 << 3
    data[-8:-4] = struct.pack("<I", zlib.crc32(data[8:-8]))
    path.write_bytes(data)
    report = migrate(root)
    assert counts(report) == {"left_out": 1}
    assert "required feature flags" in report.files[0].why
    assert path.read_bytes() == data


def test_what_a_data_file_has_more_is_added(tmp_path: Path) -> None:
    """The `_pm` was made before there were Bloom filters in it, and knows of dead bytes."""
    root = questdb(tmp_path / "t", 2)
    migrate(root)
    path = root / "2024-01-02.0" / "_pm"
    good = Pm(path.read_bytes()).snapshot()
    head = replace(PmHead.of(good.pm), bloom_columns=(), squash_tracker=7)
    groups = [
        replace(group, chunks=tuple([replace(chunk, bloom=None) for chunk in group.chunks]))
        for group in read_row_groups(good)
    ]
    older = replace(PmFooter.of(good), unused_bytes=123, seq_txn=9, scratchpad=((4, b"x"),))
    path.write_bytes(write(head, groups, older))
    report = migrate(root)
    assert counts(report) == {"valid": 1, "upgraded": 1}
    assert report.files[1].why == "4 Bloom filters of its data file"
    new = Pm(path.read_bytes()).snapshot()
    assert PmFooter.of(new) == older
    assert new.pm.squash_tracker == 7
    assert read_row_groups(new) == read_row_groups(good)
    assert counts(migrate(root)) == {"valid": 2}


#: short and char in two bytes, a date of 32 bits in milliseconds, an int that nobody can widen
NARROW = (
    (3, (-74).to_bytes(2, "little", signed=True), (-74).to_bytes(4, "little", signed=True)),
    (4, b"\xff\xff", b"\xff\xff\x00\x00"),
    (7, (-2 * 86_400_000).to_bytes(8, "little", signed=True), b"\xfe\xff\xff\xff"),
    (7, (5).to_bytes(8, "little"), None),
    (5, b"\x05", None),
)


def older_pm(size: int) -> bytes:
    columns = [PmColumn(name="ts", type=131080, physical_type=2, id=0)]
    columns += [
        PmColumn(name=f"c{at}", type=type, physical_type=1, id=at + 1, flags=4, max_def_level=1)
        for at, (type, _, _) in enumerate(NARROW)
    ]
    place: dict[str, Any] = {"num_values": 5, "byte_range_start": 4, "total_compressed": 9}
    chunks = [PmChunk(**place, min=bytes(8), max=bytes(8))]
    chunks += [PmChunk(**place, min=value, max=value) for _, value, _ in NARROW]
    head = PmHead(columns=tuple(columns), designated_timestamp=0, sorting_columns=(0,))
    group = PmRowGroup(num_rows=5, chunks=tuple(chunks))
    footer = PmFooter.of_parquet(size, 92)
    data = bytearray(write(head, [group], footer))
    # Sorting columns as an array, as before the flag: 4 bytes behind the descriptors.
    at = 32 + 32 * len(columns)
    data[at:at] = bytes(4)
    for column in range(len(columns)):
        place_of_name = 32 + 32 * column
        name = struct.unpack_from("<Q", data, place_of_name)[0]
        struct.pack_into("<Q", data, place_of_name, name + 4)
    struct.pack_into("<Q", data, 8, 0)
    struct.pack_into("<I", data, 20, 1)
    block = at + 4 + sum(len(column.name) for column in columns)
    # Names end at another place now: the padding in front of the block grows or shrinks by 4.
    padded = -(-block // 8) * 8
    body = write(head, [group], footer)
    start = int(Pm(body).snapshot().block_offsets[0])
    out = bytes(data[:block]) + bytes(padded - block) + body[start:-52]
    tail = bytearray(body[-52:])
    struct.pack_into("<I", tail, 40, padded >> 3)
    out += bytes(tail)
    out = struct.pack("<Q", len(out)) + out[8:]
    return out[:-8] + struct.pack("<I", zlib.crc32(out[8:-8])) + out[-4:]


def test_an_older_one_is_brought_up_to_date_without_its_data_file(tmp_path: Path) -> None:
    root = tmp_path / "t"
    (root / "2024-01-01").mkdir(parents=True)
    old = older_pm(5_000)
    (root / "2024-01-01" / "_pm").write_bytes(old)
    before = Pm(old).snapshot()
    before.verify()
    assert (before.pm.feature_flags, before.pm.sorting_columns) == (0, (0,))
    partition = Partition(
        timestamp=FIRST, row_count=5, parquet_format=True, parquet_file_size=5_000
    )
    write_txn(root, [partition])
    report = migrate(root)
    assert counts(report) == {"upgraded": 1}
    after = Pm((root / "2024-01-01" / "_pm").read_bytes()).snapshot(5_000)
    after.verify()
    assert after.pm.feature_flags == 4
    (group,) = read_row_groups(after)
    assert [(chunk.min, chunk.max) for chunk in group.chunks[1:]] == [
        (widened, widened) for _, _, widened in NARROW
    ]
    assert counts(migrate(root)) == {"valid": 1}
    # The same for one file by itself, whatever it is called.
    (tmp_path / "a._pm").write_bytes(old)
    assert counts(migrate(tmp_path / "a._pm")) == {"upgraded": 1}
    assert (tmp_path / "a._pm").read_bytes() == (root / "2024-01-01" / "_pm").read_bytes()


def test_the_size_that_txn_says_is_what_counts(tmp_path: Path) -> None:
    """An append to data.parquet is under way, or was never committed."""
    root = questdb(tmp_path / "t", 1)
    path = root / "2024-01-01" / "data.parquet"
    size = path.stat().st_size
    right = expected(path)
    with path.open("ab") as file:
        file.write(b"half a row group" * 100)
    assert counts(migrate(root)) == {"made": 1}
    assert pms(root) == {"2024-01-01/_pm": right}
    # The other way round it is no copy of the whole table.
    with path.open("r+b") as file:
        file.truncate(size - 1)
    (root / "2024-01-01" / "_pm").unlink()
    report = migrate(root)
    assert counts(report) == {"failed": 1}
    assert "shorter than its snapshot" in report.files[0].why


def test_earlier_snapshots_do_not_make_it_invalid(tmp_path: Path) -> None:
    """The newest footer was never committed: `_txn` still names the size before."""
    root = questdb(tmp_path / "t", 1, bloom_filter_options={})
    migrate(root)
    path = root / "2024-01-01" / "_pm"
    snapshot = Pm(path.read_bytes()).snapshot()
    size = snapshot.parquet_size
    later = append(snapshot, [0, 1], PmFooter.of_parquet(size + 1_000, 92))
    path.write_bytes(later.applied(path.read_bytes()))
    data = path.read_bytes()
    assert counts(migrate(root)) == {"valid": 1}
    assert path.read_bytes() == data


def plain(root: Path) -> Path:
    """Two files in a folder, one with an awkward name, and one alone in a folder."""
    for number, name in enumerate(("k=0/a.parquet", "k=0/b c é%.parquet", "k=1/c.parquet")):
        day(root / name, number, own=False)
    return root


def test_a_plain_table_is_not_written_into(tmp_path: Path) -> None:
    root = plain(tmp_path / "events")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    report = migrate(root)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    home = tmp_path / "_events.skipstone" / "pm"
    assert report.destination == str(home)
    assert sorted(pms(home)) == ["k=0/a.parquet._pm", "k=0/b c é%.parquet._pm", "k=1/_pm"]
    assert counts(migrate(root)) == {"valid": 3}
    for path, data in zip(sorted(root.rglob("*.parquet")), pms(home).values(), strict=True):
        snapshot = Pm(data).snapshot(path.stat().st_size)
        snapshot.verify()
        assert int((snapshot.bloom_places[1] > 0).sum()) == 4
    with pytest.raises(UnsupportedError, match="within the table"):
        migrate(root, root / "sub")


def test_a_plain_file_that_changed_gets_a_new_one(tmp_path: Path) -> None:
    """Also where it is as long as it was, and so is its footer."""
    root = plain(tmp_path / "events")
    home = tmp_path / "out"
    migrate(root, home)
    old = pms(home)
    path, sidecar = root / "k=0" / "a.parquet", home / "k=0" / "a.parquet._pm"
    data = bytearray(path.read_bytes())
    offset = Tail.from_bytes(bytes(data[-8:]), len(data)).offset
    at = data.index(b"BTC", offset)
    data[at : at + 3] = b"AAA"  # a bound in the footer
    path.write_bytes(data)
    os.utime(sidecar, ns=(0, path.stat().st_mtime_ns - 1_000_000))
    report = migrate(root, home)
    assert counts(report) == {"rewritten": 1, "valid": 2}
    assert report.files[0].why == "older than its data file"
    assert pms(home)["k=0/a.parquet._pm"] != old["k=0/a.parquet._pm"]


def bounds(path: Path) -> list[tuple[bytes | None, bytes | None]]:
    snapshot = Pm(path.read_bytes()).snapshot()
    return [(group.chunks[0].min, group.chunks[0].max) for group in read_row_groups(snapshot)]


def test_bounds_of_the_timestamp_are_filled_in_where_questdb_wrote_the_file(tmp_path: Path) -> None:
    """No statistics at all: two pages of a row group have its first and its last timestamp."""
    root = questdb(tmp_path / "t", 1, write_statistics=False, data_page_size=1_000)
    report = migrate(root)
    step, half = 40_000_000, ROWS // 2
    assert bounds(root / "2024-01-01" / "_pm") == [
        tuple(
            int(FIRST + step * at).to_bytes(8, "little")
            for at in (half * group, half * group + half - 1)
        )
        for group in (0, 1)
    ]
    assert report.bytes_read < report.bytes_data
    assert counts(migrate(root)) == {"valid": 1}
    # Nor does it matter that more was appended since.
    right = pms(root)
    (root / "2024-01-01" / "_pm").unlink()
    with (root / "2024-01-01" / "data.parquet").open("ab") as file:
        file.write(bytes(999))
    migrate(root)
    assert pms(root) == right
    # Whoever else says that a file is sorted may be wrong.
    other = questdb(tmp_path / "o", 1, own=False, write_statistics=False)
    migrate(other)
    assert bounds(other / "2024-01-01" / "_pm") == [(None, None)] * 2


def test_encrypted_files_are_told(golden: Path, tmp_path: Path) -> None:
    found = sorted(
        (golden / "parquet-testing").rglob("encrypt_columns_and_footer.parquet.encrypted")
    )
    if not found:
        pytest.skip("no encrypted golden file")
    (tmp_path / "t").mkdir()
    shutil.copy(found[0], tmp_path / "t" / "x.parquet")
    report = migrate(tmp_path / "t")
    assert counts(report) == {"failed": 1}
    assert "encrypted" in report.files[0].why
    assert pms(tmp_path) == {}


def test_the_command_line(tmp_path: Path) -> None:
    root = questdb(tmp_path / "t", 2, native=1)
    (root / "2024-01-01" / "data.parquet").write_bytes(b"PAR1 no longer PAR1")

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "skipstone", "migrate", *map(str, arguments)],
            env=environment(),
            capture_output=True,
            text=True,
        )

    done = run(root, "--json")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert {name: found[name] for name in COUNTS} == {
        "made": 1,
        "rewritten": 0,
        "upgraded": 0,
        "valid": 0,
        "left_out": 1,
        "failed": 1,
    }
    assert found["files_total"] == len(found["files"]) == 3
    shutil.rmtree(root / "2024-01-01")
    day(root / "2024-01-01" / "data.parquet", 0)
    partitions = [
        Partition(
            timestamp=FIRST + DAY * number,
            row_count=ROWS,
            name_txn=number % 2 - 1,
            parquet_format=True,
            parquet_file_size=next(root.glob(f"2024-01-0{number + 1}*/data.parquet"))
            .stat()
            .st_size,
        )
        for number in range(2)
    ]
    write_txn(root, partitions)
    done = run(root)
    assert done.returncode == 0
    assert done.stdout.startswith("wrote the _pm of 1 of 2 files (1 new, 0 invalid, 0 older)")
    assert "1 of 2 files had a good one already" in done.stdout
    assert run(tmp_path / "nothing").returncode == 1


def test_a_table_without_partitions(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    write_txn(root, [])
    report = migrate(root)
    assert (report.files, report.ok) == ((), True)
    assert "0 of 0 files" in str(report)
    assert np.isfinite(report.seconds)


@pytest.mark.parametrize("where", ["key", "value", "json"])
def test_texts_that_are_not_utf8(tmp_path: Path, where: str) -> None:
    """The footer keeps the bytes; the other files of the table are not affected either."""
    (tmp_path / "lake").mkdir()
    texts = {"my key": "my value"}
    if where == "json":
        # A field that QuestDB does not know, so that the JSON stays usable.
        columns = [{"column_type": 6, "column_top": 0, "my note": 1}]
        texts["questdb"] = json.dumps({"version": 1, "schema": columns})
    rows = pa.table({"a": pa.array([1, 2], pa.int64())}).replace_schema_metadata(texts)
    for name in ("a", "b"):
        pq.write_table(rows, tmp_path / "lake" / f"{name}.parquet")
    path = tmp_path / "lake" / "a.parquet"
    old = {"key": b"my key", "value": b"my value", "json": b"my note"}[where]
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, b"\xff\xfe" + old[2:]))
    assert counts(migrate(tmp_path / "lake")) == {"made": 2}
    assert counts(migrate(tmp_path / "lake")) == {"valid": 2}
