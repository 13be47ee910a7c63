"""Footers with flipped bits, through the verbs that read many files: the process must not end.

Arrow's metadata objects end the process for some footers, so everything here runs in a child.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.parquet.format.footer import read_footer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

INDEXES = ["id:minmax", "text:bloom", "pair.left:bitmap", "price:valuelist"]

# Flips one bit after the other in the footer of a file, and runs a verb over a table of that file.
# The number of the bit stands in a file before each run, so that the parent knows which one ended
# the process.
CHILD = """
import os, sys, tempfile
from pathlib import Path
import skipstone

verb, whole, first, stop, step, begun = sys.argv[1:]
data = Path(whole).read_bytes()
for bit in range(int(first), int(stop), int(step)):
    Path(begun).write_text(str(bit))
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t", "f.parquet")
        path.parent.mkdir()
        path.write_bytes(damaged)
        os.utime(path, (1, 1))
        table = skipstone.Table(str(path.parent))
        try:
            if verb == "build":
                table.build(indexes={indexes!r})
            else:
                table.advise()
        except skipstone.SkipstoneError:
            pass
"""

# The same for a part of the index, under the name that belongs to the damaged footer.
PART = """
import os, sys
from pathlib import Path
import skipstone
from skipstone.facts.parts import name_of_part, open_part
from skipstone.storage import open_storage

root, whole, first, stop, step, begun = sys.argv[1:]
data = Path(whole).read_bytes()
storage = open_storage(root)
for bit in range(int(first), int(stop), int(step)):
    Path(begun).write_text(str(bit))
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    footer = bytes(damaged[int(first) // 8 : -8])
    part = Path(whole).with_name(name_of_part(footer))
    part.write_bytes(damaged)
    try:
        found = open_part(str(part), len(damaged), 0, storage)
        found.column_bytes, found.decoded_bytes
        for name in found.schema.names:
            found.filled(name)
        found.read(storage, found.schema.names)
    except skipstone.SkipstoneError:
        pass
    part.unlink()
"""


def rows(first: int) -> pa.Table:
    ids = list(range(first, first + 20))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [f"t{each % 4}" for each in ids],
            "pair": [{"left": each, "right": str(each)} for each in ids],
            "price": pa.array(ids, pa.decimal128(12, 2)),
        }
    )


def write(path: Path, first: int = 0) -> range:
    """Writes a file; the bits of its footer and of what follows it."""
    path.parent.mkdir(exist_ok=True)
    pq.write_table(rows(first), path, row_group_size=10, store_schema=False, compression="snappy")
    os.utime(path, (1, 1))
    with path.open("rb") as source:
        tail, _ = read_footer(source)
    return range(tail.offset * 8, tail.size * 8)


def run(verb: str, path: Path, bits: range) -> None:
    ends(CHILD.format(indexes=INDEXES), verb, path, bits)


def ends(code: str, first: object, path: Path, bits: range) -> None:
    begun = path.with_name("_begun")
    given = [first, path, bits.start, bits.stop, bits.step, begun]
    made = subprocess.run(
        [sys.executable, "-c", code, *map(str, given)], capture_output=True, text=True, check=False
    )
    bit = int(begun.read_text())
    assert made.returncode == 0, f"bit {bit % 8} of byte {bit // 8}: {made.stderr[-2000:]}"


@pytest.mark.parametrize("verb", ["build", "advise"])
def test_no_flipped_bit_ends_the_process(tmp_path: Path, verb: str) -> None:
    bits = write(tmp_path / "whole" / "f.parquet")
    # 37 and 8 have no common factor: the bits of a byte take turns.
    run(verb, tmp_path / "whole" / "f.parquet", range(bits.start, bits.stop, 37))


@pytest.mark.soak
@pytest.mark.parametrize("verb", ["build", "advise"])
def test_no_flipped_bit_at_all_ends_the_process(tmp_path: Path, verb: str) -> None:
    run(verb, tmp_path / "whole" / "f.parquet", write(tmp_path / "whole" / "f.parquet"))


def test_one_damaged_file_is_named_and_left_out(tmp_path: Path) -> None:
    """Its neighbours are built and measured, and every query answers or names it."""
    for at in range(3):
        write(tmp_path / "t" / f"{at}.parquet", at * 20)
    bad = tmp_path / "t" / "bad.parquet"
    bad.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    os.utime(bad, (1, 1))
    table = skipstone.Table(str(tmp_path / "t"))
    report = table.build(indexes=INDEXES)
    assert report.files_built == 3
    [(path, why)] = report.files_failed
    assert path.endswith("bad.parquet")
    assert "not readable as Parquet" in why
    advice = table.advise()
    assert any("bad.parquet could not be read" in str(each) for each in advice.notes)


@pytest.mark.parametrize("verb", ["build", "advise"])
def test_histograms_that_contradict_the_schema_do_not_end_the_process(
    tmp_path: Path, verb: str
) -> None:
    """A column that was optional is required: Arrow finds one count of levels where two are due."""
    path = tmp_path / "t" / "f.parquet"
    bits = write(path)
    data = path.read_bytes()
    at = data.index(b"\x25\x02\x18\x02id", bits.start // 8)  # repetition_type 1, name "id"
    run(verb, path, range((at + 1) * 8 + 1, (at + 1) * 8 + 2))


def test_no_flipped_bit_of_a_part_ends_the_process(tmp_path: Path) -> None:
    write(tmp_path / "t" / "f.parquet")
    skipstone.Table(str(tmp_path / "t")).build(indexes=INDEXES)
    [part] = (tmp_path / "_t.skipstone" / "facts").glob("part-*")
    with part.open("rb") as source:
        tail, _ = read_footer(source)
    whole = part.with_name("_whole")
    part.rename(whole)
    ends(PART, tmp_path / "t", whole, range(tail.offset * 8, (tail.size - 8) * 8, 131))


def test_histograms_that_contradict_the_schema_beside_a_file_index(tmp_path: Path) -> None:
    """The counts of a footer that a Paimon index beside the file is compared with."""
    path = tmp_path / "t" / "f.parquet"
    bits = write(path)
    data = bytearray(path.read_bytes())
    data[data.index(b"\x25\x02\x18\x02id", bits.start // 8) + 1] = 0
    path.write_bytes(data)
    code = (
        "import sys, skipstone\n"
        "from skipstone.paimon.sidecar_match import column_counts\n"
        "print(column_counts(skipstone.ParquetFile(sys.argv[1]).footer, ['id'])['id'].low)\n"
    )
    given = [sys.executable, "-c", code, str(path)]
    made = subprocess.run(given, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout) == (0, "0\n"), made.stderr[-2000:]


# Rows that are late are merged with those of their partition, whose footer has one flipped bit.
LIVE = """
import shutil, sys, tempfile
from pathlib import Path
import pyarrow as pa
import skipstone

root, whole, first, stop, step, begun = sys.argv[1:]
late = pa.table({"ts": pa.array([1], pa.timestamp("us")), "n": [1]})
for bit in range(int(first), int(stop), int(step)):
    Path(begun).write_text(str(bit))
    with tempfile.TemporaryDirectory() as directory:
        copied = Path(shutil.copytree(root, Path(directory, "t")))
        path = copied / Path(whole).relative_to(root)
        damaged = bytearray(path.read_bytes())
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            skipstone.ingest(late, str(copied))
        except skipstone.SkipstoneError:
            pass
"""


def test_no_flipped_bit_ends_the_process_of_a_live_table(tmp_path: Path) -> None:
    root = tmp_path / "t"
    rows = pa.table({"ts": pa.array(range(10, 40), pa.timestamp("us")), "n": range(30)})
    skipstone.ingest(rows, str(root), timestamp="ts", partition_by="day")
    [path] = root.rglob("data.parquet")
    with path.open("rb") as source:
        tail, _ = read_footer(source)
    begun = tmp_path / "_begun"
    given = [root, path, tail.offset * 8, (tail.size - 8) * 8, 29, begun]
    made = subprocess.run(
        [sys.executable, "-c", LIVE, *map(str, given)], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, f"bit {begun.read_text()}: {made.stderr[-2000:]}"
