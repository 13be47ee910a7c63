"""`inspect` of QuestDB's `_pm` and `_txn`: all that is recorded, and refusals in one line."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.txn import Partition, Txn, created
from skipstone.questdb.format.values import PmColumn, PmHead
from skipstone.questdb.format.writer import PmFooter
from tests.questdb.format.golden import case, names
from tests.questdb.format.row_groups import PmChunk, PmRowGroup
from tests.questdb.format.writing import write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

#: the real readers take them, for only what lies behind the newest snapshot is broken
RIGHTLY_TAKEN = {"bad_prev_self", "bad_prev_garbage"}


def shown(run: Run, *arguments: object) -> dict[str, Any]:
    done = run("inspect", *arguments, "--json")
    assert done.exit_code in (0, 3), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def holds(recorded: Any, found: Any, place: str = "") -> None:
    """Every recorded field is there with its value; there may be more."""
    if isinstance(recorded, dict):
        for key, value in recorded.items():
            assert key in found, f"{place}/{key}"
            holds(value, found[key], f"{place}/{key}")
    elif isinstance(recorded, list):
        assert len(recorded) == len(found), place
        for at, (one, other) in enumerate(zip(recorded, found, strict=True)):
            holds(one, other, f"{place}/{at}")
    else:
        assert recorded == found, place


def pm(head: PmHead, *row_groups: PmRowGroup, size: int = 1_100) -> bytes:
    return write(head, row_groups, PmFooter.of_parquet(size, 92))


def one_column(name: str = "x", **rest: Any) -> bytes:
    chunk = PmChunk(num_values=3, byte_range_start=4, total_compressed=50, **rest)
    column = PmColumn(name=name, type=26, physical_type=6, id=0, flags=4, max_def_level=1)
    return pm(PmHead(columns=(column,)), PmRowGroup(num_rows=3, chunks=(chunk,)))


def test_every_field_of_every_good_file_is_shown(run: Run, golden: Path) -> None:
    for name in names(golden, good=True):
        _, recorded = case(golden, name)
        holds(recorded["dump"], shown(run, golden / "questdb" / f"{name}.pm"), name)


def test_each_parquet_size_shows_its_snapshot_or_is_refused(run: Run, golden: Path) -> None:
    found = refused = 0
    for name in [*names(golden, good=True), *sorted(RIGHTLY_TAKEN)]:
        _, recorded = case(golden, name)
        path = golden / "questdb" / f"{name}.pm"
        for size, dump in recorded["by_parquet_size"].items():
            if "error" in dump:
                done = run("inspect", path, "--parquet-size", size, "--json")
                assert (done.exit_code, done.stdout) == (1, ""), (name, size)
                refused += 1
            else:
                holds(dump, shown(run, path, "--parquet-size", size), f"{name} {size}")
                found += 1
    assert (found > 30, refused > 5) == (True, True)


def test_bad_files_are_one_line_that_names_file_and_place(run: Run, golden: Path) -> None:
    refused = set()
    for name in names(golden, good=False):
        path = golden / "questdb" / f"{name}.pm"
        for form in ([], ["--json"]):
            done = run("inspect", path, *form)
            if done.exit_code == 0:
                continue
            refused.add(name)
            assert (done.exit_code, done.stdout) == (1, "")
            error, hint = done.stderr.splitlines()
            assert error.startswith(f"error: {path}: ")
            assert "at byte " in error or "required" in error
            assert hint.startswith("hint: ")
    assert set(names(golden, good=False)) - refused == RIGHTLY_TAKEN


def test_a_wrong_crc_is_shown_when_it_is_asked_for(run: Run, golden: Path) -> None:
    for name in ("bad_crc_stored", "bad_crc_flip_descriptor", "bad_dead_block_flip"):
        _, recorded = case(golden, name)
        path = golden / "questdb" / f"{name}.pm"
        done = run("inspect", path, "--no-crc", "--json")
        assert done.exit_code == 3
        holds(recorded["dump_no_crc"], json.loads(done.stdout), name)
        assert "WRONG" in run("inspect", path, "--no-crc").stdout


def test_a_broken_chain_is_told(run: Run, golden: Path) -> None:
    found = shown(run, golden / "questdb" / "bad_prev_garbage.pm")
    assert len(found["chain"]) == 1
    assert "ends early" in found["notes"][0]


def test_names_or_content_tell_what_it_is(run: Run, tmp_path: Path) -> None:
    data = one_column()
    for name in ("_pm", "a b é.parquet._pm", "x.pm", "sidecar", "_pm.bak"):
        (tmp_path / name).write_bytes(data)
        assert shown(run, tmp_path / name)["format"] == "_pm", name
    data = created(Txn(txn=4))
    for name in ("_txn", "t._txn", "copy of it"):
        (tmp_path / name).write_bytes(data)
        assert shown(run, tmp_path / name)["format"] == "_txn", name


def test_what_only_has_the_name_is_refused(run: Run, tmp_path: Path) -> None:
    for name in ("_pm", "_txn", "Carp.pm"):
        for data in (b"", b"package Carp;\nuse strict;\n" * 10):
            (tmp_path / name).write_bytes(data)
            done = run("inspect", tmp_path / name)
            assert done.exit_code == 1
            assert done.stderr.startswith(f"error: {tmp_path / name}: "), done.stderr


def test_options_of_one_kind_are_wrong_usage_of_another(run: Run, tmp_path: Path) -> None:
    (tmp_path / "_pm").write_bytes(one_column())
    (tmp_path / "_txn").write_bytes(created(Txn(txn=4)))
    (tmp_path / "text").write_text("text")
    for name, options, said in (
        ("_pm", ["--pages"], "--pages is for Parquet files"),
        ("_pm", ["--where", "x = 1"], "--where is for file indexes"),
        ("_txn", ["--no-crc"], "--no-crc is for a _pm"),
        ("text", ["--parquet-size", "9"], "--parquet-size is for a _pm"),
    ):
        done = run("inspect", tmp_path / name, *options)
        assert done.exit_code == 2
        assert said in done.stderr


def test_wide_files_stay_short(run: Run, tmp_path: Path) -> None:
    columns = tuple(
        PmColumn(name=f"c{at}", type=6, physical_type=2, id=at, flags=4, max_def_level=1)
        for at in range(10_000)
    )
    chunks = tuple(
        PmChunk(num_values=9, byte_range_start=4, total_compressed=7, min=bytes(8), max=bytes(8))
        for _ in columns
    )
    groups = [PmRowGroup(num_rows=9, chunks=chunks)] * 50
    path = tmp_path / "_pm"
    path.write_bytes(pm(PmHead(columns=columns), *groups, size=10_000))
    done = run("inspect", path)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) < 120
    assert "… 9,960 more of 10,000 columns: see --json" in done.stdout
    assert "… 10 more of 50 row groups: see --json" in done.stdout


def test_the_text_says_it_all(run: Run, tmp_path: Path) -> None:
    """The designated timestamp in two row groups; s has a Bloom filter of 64 bytes, a quarter full,
    in the first; p is all null in the second."""
    columns = (
        PmColumn(name="ts", type=131080, physical_type=2, id=0),
        PmColumn(name="s", type=12, physical_type=6, id=1, flags=5, max_def_level=1),
        PmColumn(name="p", type=3 << 18 | 9 << 8 | 30, physical_type=7, id=2, flags=4,
               fixed_byte_len=4, max_def_level=1),
    )  # fmt: skip
    hour = 3_600_000_000

    def group(at: int, bloom: bytes | None, nulls: int) -> PmRowGroup:
        ends = [(at * hour + each).to_bytes(8, "little") for each in (0, 1_500_000)]
        first, *rest = (
            {"min": ends[0], "max": ends[1], "null_count": 0},
            {"min": b"Oslo", "max": b"Troms\xc3\xb8", "max_exact": False, "bloom": bloom},
            {"null_count": nulls} if nulls else {"min": (-1_500).to_bytes(4, "big", signed=True)},
        )
        place: dict[str, Any] = {"num_values": 5, "byte_range_start": 4, "total_compressed": 100}
        chunks = [PmChunk(**place, **each) for each in (first, *rest)]
        return PmRowGroup(num_rows=5, chunks=tuple(chunks))

    head = PmHead(columns=columns, designated_timestamp=0, sorting_columns=(0,), bloom_columns=(1,))
    data = pm(head, group(0, b"\x03" * 64, 0), group(1, None, 5))
    (tmp_path / "_pm").write_bytes(data + b"torn")
    (tmp_path / "data.parquet").write_bytes(bytes(1_200))
    said = run("inspect", tmp_path / "_pm").stdout
    for text in (
        "sorted by the designated timestamp",
        "10 in 2 row groups",
        "1,100 bytes, 0 unused",
        "4 B that readers ignore",
        "1 of 2 filters, 64 B, on s",
        "64 B, 25 % full",
        "timestamp designated",
        "decimal32(9,3)",
        "-1.500",
        "global keys",
        "~Tromsø",
        "1970-01-01T01:00:01.500000Z",
        "1 of 3 columns",
        "data.parquet next to it has 1,200 bytes, but this snapshot describes one of 1,100",
    ):
        assert text in said, text


def test_bloom_filters_in_the_parquet_file_are_shown_by_place(run: Run, tmp_path: Path) -> None:
    column = PmColumn(name="x", type=26, physical_type=6, id=0, flags=4, max_def_level=1)
    chunk = PmChunk(num_values=3, byte_range_start=4, total_compressed=50, bloom=(200, 64))
    head = PmHead(columns=(column,), bloom_columns=(0,), bloom_external=True)
    (tmp_path / "_pm").write_bytes(pm(head, PmRowGroup(num_rows=3, chunks=(chunk,))))
    found = shown(run, tmp_path / "_pm")["row_groups"][0]["chunks"][0]["bloom"]
    assert found == {"external": True, "offset": 200, "length": 64}
    assert "64 B at 200" in run("inspect", tmp_path / "_pm").stdout


@pytest.mark.parametrize("name", ["", "new\nline", "é" * 40, "\x1b[31m"])
def test_awkward_names(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "_pm").write_bytes(one_column(name, min=b"\xff\xfe", max=b"\xff" * 400))
    assert shown(run, tmp_path / "_pm")["columns"][0]["name"] == name
    done = run("inspect", tmp_path / "_pm")
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout


def test_recorded_txn_files_are_shown(run: Run, golden: Path, tmp_path: Path) -> None:
    folder = golden / "questdb" / "txn"
    for path in sorted(folder.glob("*._txn")):
        found = shown(run, path)
        assert f"_{found['txn']}_" in path.name
        assert run("inspect", path).exit_code == 0
    # The unit is in the names of directories, and nowhere else.
    shutil.copy(folder / "txn_3_two_parquet._txn", tmp_path / "_txn")
    for name in ("2024-01-01", "2024-01-02.3", "2024-01-03.4"):
        (tmp_path / name).mkdir()
    found = shown(run, tmp_path / "_txn")
    assert (found["partition_by"], found["record"], found["row_count"]) == ("day", "B", 3_050)
    assert [each["directory"] for each in found["partitions"]] == [
        "2024-01-01",
        "2024-01-02.3",
        "2024-01-03.4",
    ]
    assert [each["parquet_file_size"] for each in found["partitions"]] == [4_308, 8_408, -1]
    said = run("inspect", tmp_path / "_txn").stdout
    assert "2 of 3 partitions" in said
    assert "2024-01-03T00:00:00.000000Z" in said


def test_many_partitions_stay_short(run: Run, tmp_path: Path) -> None:
    partitions = tuple(
        Partition(timestamp=at, row_count=1, parquet_format=True, parquet_file_size=99)
        for at in range(5_000)
    )
    (tmp_path / "_txn").write_bytes(created(Txn(txn=1, partitions=partitions)))
    done = run("inspect", tmp_path / "_txn")
    assert len(done.stdout.splitlines()) < 80
    assert "… 4,960 more of 5,000 partitions: see --json" in done.stdout
    assert len(shown(run, tmp_path / "_txn")["partitions"]) == 5_000


def test_a_txn_that_is_not_whole_is_refused(run: Run, tmp_path: Path) -> None:
    whole = created(Txn(txn=1, symbols=((3, 3),)))
    for data in (whole[:20], whole[:-1], bytes(64)):
        (tmp_path / "_txn").write_bytes(data)
        done = run("inspect", tmp_path / "_txn")
        assert done.exit_code == 1
        assert done.stderr.startswith(f"error: {tmp_path / '_txn'}: ")


def test_row_groups_that_share_a_block_are_refused(run: Run, tmp_path: Path) -> None:
    """Entries take 4 bytes: 100,000 of them on one block of 2,000 columns would be 13 GB."""
    columns = tuple(PmColumn(name="", type=6, physical_type=2) for _ in range(2_000))
    chunk = PmChunk(num_values=1, byte_range_start=4, total_compressed=9)
    group = PmRowGroup(num_rows=1, chunks=(chunk,) * len(columns))
    whole = pm(PmHead(columns=columns), group)
    block = int(Pm(whole).snapshot().block_offsets[0])
    body = whole[8:-52]
    tail = PmFooter.of_parquet(1_100, 92).to_bytes(previous=0, blocks=[block] * 100_000, blooms=b"")
    data = body + tail
    size = 8 + len(data) + 8
    ends = struct.pack("<II", zlib.crc32(data), len(tail) + 4)
    (tmp_path / "_pm").write_bytes(struct.pack("<Q", size) + data + ends)
    done = run("inspect", tmp_path / "_pm")
    assert done.exit_code == 1
    assert "row group blocks that overlap: expected 1, got 100000" in done.stderr
