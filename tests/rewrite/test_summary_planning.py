"""Plans from ``_metadata``: one request, and never a row less, whatever became of it or the files.

The table has five files of 300 rows, ids going on from file to file, so that ``id = 777`` lies in
the third of them and the statistics of the others exclude it.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone import Table
from skipstone.errors import FormatError, StaleError, UnsupportedError
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.summary_file import KEY, Summary, Versions
from skipstone.rewrite.summary_files import write_summary
from skipstone.storage.base import metered
from tests.oracle import matching_rows
from tests.rewrite.lakes import NAMES, ids, lake, looked, put, rows, said
from tests.s3 import S3, s3, s3_server
from tests.strategies import predicates

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["s3", "s3_server"]  # fixtures

WHERE = "id BETWEEN 770 AND 777"
EXPECTED = list(range(770, 778))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table with its summary."""
    root = tmp_path_factory.mktemp("lake") / "t"
    lake(root).write_metadata()
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """One of its own for a test that changes it."""
    shutil.copytree(made, tmp_path / "t")
    table = Table(str(tmp_path / "t"))
    assert table.write_metadata().footers_read == 5  # a copy is other files
    return tmp_path / "t"


def test_footers_come_from_the_summary_alone(made: Path) -> None:
    scan, paths, requests = looked(made, WHERE)
    assert (paths, requests) == ({f"{made}/_metadata"}, 1)
    assert said(scan) == []
    assert scan.plan.files_kept == 1
    with metered() as meter:
        assert ids(scan) == EXPECTED
    assert meter.paths == {f"{made}/{NAMES[2]}"}


def test_without_a_summary_every_file_is_opened(root: Path) -> None:
    (root / "_metadata").unlink()
    scan, paths, requests = looked(root, WHERE)
    assert (len(paths), requests) == (5, 5)
    assert said(scan) == []
    assert ids(scan) == EXPECTED


@pytest.mark.parametrize(
    "where",
    ["id < 10", "f = 'NaN'", "f = 0.0", "n IS NULL", "s IS NULL", "s = 'é3'", "k = '3'", "n = 1"],
)
def test_rows_are_the_same_with_and_without(root: Path, where: str) -> None:
    scan, _, _ = looked(root, where)
    found = ids(scan)
    (root / "_metadata").unlink()
    scan, _, _ = looked(root, where)
    assert found == ids(scan)


def test_one_request_plans_a_table_of_an_object_store(s3: S3, made: Path) -> None:
    count = 40
    for at in range(count):
        path = made.parent / "one.parquet"
        put(path, rows(300 * at))
        s3.fill(f"t/k={at % 3} é/p {at}%.parquet", data=path.read_bytes())
    where = "id = 7777"
    scan, _, requests = looked(f"{s3.base}/t", where, storage_options=s3.options)
    assert (scan.plan.files_kept, requests >= count) == (1, True)
    table = Table(f"{s3.base}/t", storage_options=s3.options)
    assert table.write_metadata().files == count
    s3.seen.clear()
    scan, paths, requests = looked(f"{s3.base}/t", where, storage_options=s3.options)
    gets = [
        each for each in s3.seen if each.startswith(("GET", "HEAD")) and "list-type" not in each
    ]
    assert requests == 1
    # Whether it is a table of QuestDB is asked of every table.
    assert [each for each in gets if "/_txn" not in each] == [f"GET /{s3.bucket}/t/_metadata"]
    assert paths == {f"{s3.base}/t/_metadata"}
    assert scan.plan.files_kept == 1
    assert said(scan) == []
    assert ids(scan) == [7777]
    # One file is replaced and one added: two files more are opened, and it is said.
    put(made.parent / "one.parquet", rows(7777, 300))
    body = (made.parent / "one.parquet").read_bytes()
    s3.fill("t/k=0 é/p 0%.parquet", "t/k=3/new.parquet", data=body)
    scan, paths, _ = looked(f"{s3.base}/t", where, storage_options=s3.options)
    assert len(paths) == 3
    assert ids(scan) == [7777, 7777, 7777]
    assert said(scan)[0].startswith("stale: _metadata: 2 of 41 files")


def test_no_summary_costs_no_request_of_an_object_store(s3: S3, made: Path) -> None:
    for name in NAMES:
        s3.fill(f"t/{name}", data=(made / name).read_bytes())
    s3.seen.clear()
    _, paths, _ = looked(f"{s3.base}/t", WHERE, storage_options=s3.options)
    assert len(paths) == 5
    assert not [each for each in s3.seen if "_metadata" in each]


def replaced(root: Path) -> None:
    put(root / NAMES[0], rows(770, 300))


def replaced_by_as_many_bytes(root: Path) -> None:
    path = root / NAMES[0]
    before, data = path.stat(), path.read_bytes()
    put(path, rows(770, 300), compression="none", use_dictionary=False)
    put(path, rows(0, 300), compression="none", use_dictionary=False)
    assert data != path.read_bytes()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def added(root: Path) -> None:
    put(root / "k=3/new.parquet", rows(770, 3))


def removed(root: Path) -> None:
    (root / NAMES[0]).unlink()


def grown(root: Path) -> None:
    put(root / NAMES[0], rows(0, 1_000))


def moved(root: Path) -> None:
    (root / NAMES[0]).rename(root / "k=3/moved.parquet")


def swapped(root: Path) -> None:
    (root / NAMES[0]).rename(root / "k=3/_tmp")
    (root / NAMES[4]).rename(root / NAMES[0])
    (root / "k=3/_tmp").rename(root / NAMES[4])


@pytest.mark.parametrize(
    "change", [replaced, replaced_by_as_many_bytes, added, grown, moved, swapped]
)
def test_a_file_that_changed_is_opened_itself(root: Path, change: Any) -> None:
    table = Table(str(root))
    table.plan(WHERE)
    change(root)
    scan, _, _ = looked(root, WHERE)
    assert len(said(scan)) == 1
    assert said(scan)[0].startswith("stale: _metadata: ")
    assert "of " in said(scan)[0]
    found = ids(scan)
    assert ids(table.scan(WHERE)) == found  # one that had read the summary before
    (root / "_metadata").unlink()
    assert ids(looked(root, WHERE)[0]) == found


def test_a_file_that_is_gone_is_no_news(root: Path) -> None:
    removed(root)
    scan, paths, _ = looked(root, WHERE)
    assert (said(scan), len(paths)) == ([], 1)
    assert ids(scan) == EXPECTED


def test_a_file_that_changes_after_the_plan_is_no_row_less(root: Path) -> None:
    scan, _, _ = looked(root, WHERE)
    for name in NAMES:
        put(root / name, rows(770, 300))
    with pytest.raises(StaleError):
        scan.to_arrow()


def test_a_new_summary_is_seen_by_a_table_that_knows_the_old_one(root: Path) -> None:
    table = Table(str(root))
    assert ids(table.scan(WHERE)) == EXPECTED
    for name in NAMES:
        put(root / name, rows(0))
    assert ids(table.scan(WHERE)) == []
    assert table.write_metadata().footers_read == 5
    scan, paths, _ = looked(root, "id = 5")
    assert len(paths) == 1
    assert ids(scan) == [5] * 5
    assert ids(table.scan("id = 5")) == [5] * 5


def test_another_summary_says_nothing(root: Path) -> None:
    collected: list[pq.FileMetaData] = []
    for name in NAMES:
        collected.append(pq.read_metadata(root / name))
        collected[-1].set_file_path(name)
    pq.write_metadata(rows(0).schema, root / "_metadata", metadata_collector=collected)
    scan, paths, requests = looked(root, WHERE)
    assert len(paths) == 6
    assert requests == 6
    assert said(scan) == [
        "unsupported: _metadata: it does not name the versions of its files: the files' "
        "own footers are read"
    ]
    assert ids(scan) == EXPECTED


def test_a_summary_that_others_wrote_with_our_key_values_says_nothing(root: Path) -> None:
    note = pq.read_metadata(root / "_metadata").metadata[KEY.encode()]
    schema = rows(0).schema.with_metadata({KEY: note})
    collected = [pq.read_metadata(root / "_metadata")]
    pq.write_metadata(schema, root / "_metadata", metadata_collector=collected)
    scan, paths, _ = looked(root, WHERE)
    assert len(paths) == 6
    assert said(scan)[0].startswith("corrupt: _metadata: ")
    assert ids(scan) == EXPECTED


def test_it_is_explained(root: Path) -> None:
    added(root)
    for name in NAMES[:2]:
        put(root / name, rows(0))
    text = str(Table(str(root)).explain("id = 5"))
    if "_metadata" not in text:  # nobody looked into files this small
        scan, _, _ = looked(root, "id = 5")
        text = str(scan.explain(look=False))
    assert "note: _metadata: 3 of 6 files are new, or changed" in text


def test_a_summary_larger_than_what_it_saves_is_left_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skipstone.execution.open_files._WORTH", 100)
    scan, paths, _ = looked(root, WHERE)
    assert (len(paths), said(scan)) == (5, [])
    assert ids(scan) == EXPECTED


def test_a_long_one_is_read_from_its_end_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipstone.execution.open_files._AT_ONCE", 100)
    monkeypatch.setattr("skipstone.execution.open_files.TAIL_GUESS", 4_000)
    scan, paths, requests = looked(root, WHERE)
    assert (len(paths), requests) == (1, 2)
    assert ids(scan) == EXPECTED


def test_it_serves_after_the_files_of_other_schemas_were_left_alone(root: Path) -> None:
    put(root / "k=3/other.parquet", rows(770, 3).drop(["n"]))
    scan, _, _ = looked(root, "n IS NULL AND id = 771")
    assert ids(scan) == [771, 771]


@given(data=st.data())
def test_no_damage_costs_a_row(data: st.DataObject, made: Path) -> None:
    path = made / "_metadata"
    whole = path.read_bytes()
    held = bytearray(whole)
    kind = data.draw(st.sampled_from(["flip", "cut", "fill", "insert"]))
    at = data.draw(st.integers(0, len(held) - 1))
    if kind == "flip":
        held[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del held[at:]
    elif kind == "fill":
        held[at : at + 50] = bytes(50)
    else:
        held[at:at] = b"\x15"
    try:
        path.write_bytes(held)
        scan, paths, _ = looked(made, WHERE)
        assert ids(scan) == EXPECTED
        # Either it was sound in all that counts, or the files were opened, and it was said why.
        assert (said(scan) == []) == (len(paths) == 1) or not held
    finally:
        path.write_bytes(whole)


@given(data=st.data())
def test_predicates_find_what_brute_force_finds(data: st.DataObject, made: Path) -> None:
    import pyarrow as pa

    table = pa.concat_tables([rows(300 * at) for at in range(5)]).select(["id", "f", "s", "n"])
    where = data.draw(predicates(table))
    from skipstone.predicate.render import to_sql

    text = to_sql(where)
    expected = matching_rows(table, text)
    scan, _, _ = looked(made, text)
    assert ids(scan) == table["id"].take(pa.array(expected, pa.int64())).to_pylist()


# -- hostile ones --------------------------------------------------------------------------------


def rewritten(whole: bytes, change: Any) -> bytes:
    """The same summary with other versions, whose checksum is right."""
    found = Summary.from_bytes(whole)
    note = next(e for e in found.footer.key_value_metadata or () if e.key == KEY)
    place = json.loads(note.value or "")
    held = json.loads(whole[place["offset"] : place["offset"] + place["length"]])
    versions = json.dumps(change(held)).encode()
    tail = Tail.from_bytes(whole[-TAIL_LENGTH:], len(whole))
    footer = whole[tail.offset : -TAIL_LENGTH]
    start = footer.index((note.value or "").encode())
    # As long as the old one, so that no length before it changes.
    made = {**place, "length": len(versions), "crc32": zlib.crc32(versions)}
    text = json.dumps(made, separators=(",", ":")).ljust(len(note.value or "")).encode()
    assert len(text) == len(note.value or "")
    footer = footer[:start] + text + footer[start + len(text) :]
    return b"PAR1" + versions + footer + len(footer).to_bytes(4, "little") + b"PAR1"


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-(2**65), 2**65), max_size=5),
    st.lists(st.text(max_size=9), max_size=5),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
_FIELDS = (
    "version", "unit", "row_groups_crc32", "path", "size", "mtime", "etag", "footer_length",
    "row_groups", "head", "heads",
)  # fmt: skip


@given(data=st.data())
def test_hostile_versions_are_a_format_error(data: st.DataObject, made: Path) -> None:
    whole = (made / "_metadata").read_bytes()

    def change(held: dict[str, Any]) -> Any:
        for name in data.draw(st.lists(st.sampled_from(_FIELDS), min_size=1, max_size=3)):
            value = data.draw(_VALUES)
            if isinstance(held[name], list) and held[name] and data.draw(st.booleans()):
                held[name][data.draw(st.integers(0, len(held[name]) - 1))] = value
            else:
                held[name] = value
        return held

    evil = rewritten(whole, change)
    try:
        found = Summary.from_bytes(evil)
    except (FormatError, UnsupportedError):
        return
    for at in range(len(found.versions.files)):
        if found.is_sound(at):
            part = found.part(at)
            assert part.num_row_groups == found.versions.files[at].row_groups


@given(data=st.data())
def test_hostile_heads_are_a_format_error(data: st.DataObject, made: Path) -> None:
    import base64

    whole = (made / "_metadata").read_bytes()

    def change(held: dict[str, Any]) -> Any:
        head = bytearray(base64.b64decode(held["heads"][0]))
        for _ in range(data.draw(st.integers(1, 4))):
            head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
        held["heads"][0] = base64.b64encode(bytes(head)).decode()
        return held

    found = Summary.from_bytes(rewritten(whole, change))
    for at in range(len(found.versions.files)):
        if found.is_sound(at):
            assert isinstance(found.part(at), FooterArrays)
        else:
            with pytest.raises(FormatError):
                found.part(at)


def test_versions_are_read_as_they_are_written(made: Path) -> None:
    found = Summary.from_bytes((made / "_metadata").read_bytes())
    assert Versions.from_bytes(found.versions.to_bytes()) == found.versions
    for cut in (b"", b"[]", b"{}", b'{"version":1}', b'{"version":2}', b"[" * 100_000, b"\xff"):
        with pytest.raises((FormatError, UnsupportedError)):
            Versions.from_bytes(cut)


def test_a_summary_over_several_heads_gives_each_file_its_own(tmp_path: Path) -> None:
    root = tmp_path / "t"
    for at in range(4):
        extra = {"number": str(at % 2)}
        put(root / f"{at}.parquet", rows(300 * at).replace_schema_metadata(extra))
    table = Table(str(root))
    write_summary(table.listing(), table.storage)
    found = Summary.from_bytes((root / "_metadata").read_bytes())
    assert len(found.versions.heads) == 2
    for at in range(4):
        pairs = {e.key: e.value for e in found.part(at).key_value_metadata or ()}
        assert pairs["number"] == str(at % 2)
    scan, paths, _ = looked(root, WHERE)
    assert len(paths) == 1
    assert ids(scan) == EXPECTED
