"""Filters of parts of large row groups: which rows they leave, take, survive and prove."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone import ParquetFile, Table
from skipstone._cache import LruCache
from skipstone.build import footers
from skipstone.errors import FormatError
from skipstone.indexes import row_group_filters, text_groups
from skipstone.indexes.row_group_filters import GroupFilters
from skipstone.indexes.text_parts import PartSource
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.format.metadata import DictionaryPageHeader, PageHeader
from skipstone.parquet.reading import file_reader
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import leaves
from skipstone.pruning import Cause, Level, Units
from skipstone.pruning.residual import matching
from tests.indexes.test_text import SCHEMA
from tests.indexes.test_text import tables as texts_and_conditions
from tests.indexes.test_text_row_groups import KINDS, evidence_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from skipstone.indexes.text import TextIndex

ROWS, PART, SHARE = 24_000, 1 << 18, 0.2


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Row groups of half a megabyte are large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(footers, "LARGE", 1 << 19)
        patch.setattr(text_groups, "LARGE", 1 << 19)
        patch.setattr(text_groups, "PART", PART)
        patch.setattr(file_reader, "_WALKED", 1 << 18)
        yield


def trace(row: int) -> str:
    return f"{0x9E3779B97F4A7C15 * (row + 1) % 2**64:016x}" * 2


def lines() -> list[str | None]:
    found: list[str | None] = [
        f"GET /items/{row % 50} HTTP/1.1 {row % 7} ms by Mozilla/5.0 (X11) trace={trace(row)}"
        for row in range(ROWS)
    ]
    found[5::100] = [None] * len(found[5::100])
    found[17_017] = "upstream Zebra-Crossing fäiled"
    return found


WRITERS: dict[str, dict[str, Any]] = {
    "default": {},
    "v2 pages": {"data_page_version": "2.0", "compression": "zstd"},
    "page index": {"write_page_index": True, "compression": "zstd", "use_dictionary": False},
    "checksums": {"write_page_checksum": True, "use_dictionary": False, "compression": "none"},
    "two row groups": {"row_group_size": ROWS // 2, "use_dictionary": False},
}


@pytest.fixture(scope="module", params=WRITERS)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    home = tmp_path_factory.mktemp("parts") / "t"
    home.mkdir()
    how = {"row_group_size": ROWS, "data_page_size": 1 << 16, **WRITERS[request.param]}
    data = pa.table({"id": range(ROWS), "m": lines()})
    pq.write_table(data, home / "0.parquet", dictionary_pagesize_limit=1 << 18, **how)
    made = Table(str(home))
    made.build(indexes=[f"m:ngram(share={SHARE})"], pm="none")
    return made


def ranges(table: Table, where: str) -> list[tuple[int, int]]:
    """The rows that a plan leaves of the one file."""
    plan = table.plan(where)
    detail = plan.details.get(0)
    if not plan.keep[0]:
        return []
    if detail is None or detail.rows is None:
        return [(0, ROWS)]
    starts, stops = detail.rows.ranges()
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def head_of(table: Table) -> GroupFilters:
    """The filters of the one file, by their only pack."""
    (pack,) = [each for each in _packs(table) if row_group_filters.MAGIC in each.read_bytes()]
    data = pack.read_bytes()
    data = data[data.index(row_group_filters.MAGIC) :]
    count, tables = struct.unpack_from("<II", data, 8)
    return GroupFilters.from_bytes(data[: 20 + 16 * (count + tables)], len(data))


def _packs(table: Table) -> list[Path]:
    from pathlib import Path

    return list((Path(table.path).parent / "_t.skipstone" / "packs").glob("*"))


RARE = [
    ("m LIKE '%Zebra-Crossing%'", 17_017),
    ("m ILIKE '%zebra-crossing Fä%'", 17_017),
    ("m RLIKE '(Zebra|Okapi)-Crossing'", 17_017),
    (f"m LIKE '%{trace(40)}%'", 40),
    (f"m LIKE '%{trace(23_900)[3:]}%' AND id > 5", 23_900),
]


@pytest.mark.parametrize("where, row", RARE)
def test_the_part_that_holds_the_row_is_left(table: Table, where: str, row: int) -> None:
    head = head_of(table)
    assert head.in_parts
    at = int(np.searchsorted(head.first, row, side="right")) - 1
    first = int(head.first[at])
    assert ranges(table, where) == [(first, first + int(head.rows[at]))]
    assert table.query(where, ["id"]).column("id").to_pylist() == [row]
    assert table.count(where) == 1
    (step,) = [
        each
        for each in table.plan(where).steps
        if each.level is Level.PAGE and each.index == "ngram"
    ]
    assert 1 <= step.kept <= step.considered / 4
    assert f"-> {step.kept} row ranges" in str(table.explain(where))


def test_parts_are_whole_pages_of_the_column(table: Table) -> None:
    head = head_of(table)
    pages = ParquetFile(table.plan("m LIKE '%Zebra%'").listing.paths[0]).pages(["m"]).to_pylist()
    counts = [each["num_rows"] for each in pages if each["num_rows"]]
    begins = {sum(counts[:at]) for at in range(len(counts))}
    assert int(head.rows.sum()) == ROWS
    assert len(head.rows) >= 6
    # The first pages, which are by a dictionary, may have other rows.
    assert np.isin(head.first, list(begins)).mean() > 0.9


def test_what_is_absent_and_what_is_everywhere(table: Table) -> None:
    assert ranges(table, "m LIKE '%okapi%'") == []
    assert sum(b - a for a, b in ranges(table, "m LIKE '%Mozilla%'")) == ROWS
    present = ROWS - len(range(5, ROWS, 100)) - (17_017 % 100 != 5)
    assert table.count("m LIKE '%Mozilla%'") == present
    assert table.count(f"m LIKE '%{trace(40)}%' OR m LIKE '%Zebra-C%'") == 2
    assert table.count(f"m IS NULL OR m LIKE '%{trace(40)}%'") == len(range(5, ROWS, 100)) + 1
    assert table.count(f"NOT m LIKE '%{trace(40)}%'") == ROWS - len(range(5, ROWS, 100)) - 1


def test_the_check_compares_them(table: Table) -> None:
    checked = table.check(deep=True)
    assert checked.ok, str(checked)
    head = head_of(table)
    assert checked.filters == 1 + int((head.table >= 0).sum())


def test_the_index_takes_twice_its_share_at_most(table: Table) -> None:
    text = sum(len(line or "") for line in lines())
    (index,) = table.describe().indexes
    assert index.bytes <= 2 * SHARE * text + 2_000


CAUSES = {
    "head": {Cause.CORRUPT},
    "blocks": {Cause.CORRUPT},
    "gone": {Cause.CORRUPT, Cause.UNREADABLE},
    "version": {Cause.UNSUPPORTED},
}


def test_damage_and_another_version_cost_time_and_no_row(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, row = RARE[3]
    packs = {pack: pack.read_bytes() for pack in _packs(table)}
    try:
        for change in CAUSES:
            for pack, sound in packs.items():
                at = sound.find(row_group_filters.MAGIC)
                bad = bytearray(sound)
                if change == "head":
                    bad[at + 20] ^= 1
                elif change == "blocks":
                    bad[at + 2_000 :] = bytes(len(bad) - at - 2_000)
                elif change == "version":
                    bad[at + 4] = 9
                pack.write_bytes(b"" if change == "gone" else bytes(bad))
            monkeypatch.setattr(text_groups, "_HEADS", LruCache(10))
            other = Table(table.path)
            assert other.query(where, ["id"]).column("id").to_pylist() == [row]
            plan = other.plan(where)
            reasons = [reason for step in plan.steps for reason in step.reasons]
            assert {r.cause for r in reasons} & CAUSES[change], change
    finally:
        for pack, sound in packs.items():
            pack.write_bytes(sound)


def test_a_row_group_of_one_page_has_one_filter(tmp_path: Path) -> None:
    home = tmp_path / "t"
    home.mkdir()
    data = pa.table({"id": range(ROWS), "m": lines()})
    connection = duckdb.connect()
    connection.register("lines", data)
    connection.execute(
        f"COPY lines TO '{home}/0.parquet' (ROW_GROUP_SIZE {ROWS // 2}, COMPRESSION zstd)"
    )
    table = Table(str(home))
    table.build(indexes=["m:ngram"], pm="none")
    assert not head_of(table).in_parts
    assert table.query(RARE[3][0], ["id"]).column("id").to_pylist() == [40]


@pytest.mark.parametrize("size", [-1, -(1 << 30), 60, 1 << 30])
def test_a_page_that_ends_beyond_its_chunk_is_not_passed(size: int) -> None:
    """What lies behind the chunk is not read."""
    header = PageHeader(
        type=PageType.DICTIONARY_PAGE,
        uncompressed_page_size=10,
        compressed_page_size=size,
        dictionary_page_header=DictionaryPageHeader(num_values=1, encoding=Encoding.PLAIN),
    ).to_bytes()
    source = io.BytesIO(header.ljust(50, b"\0") + bytes(1_000))
    with pytest.raises(FormatError, match="beyond its chunk"):
        footers._first_page(source, 0, 50)
    assert source.tell() == 50


# -- against brute force ---------------------------------------------------------------------------


@settings(deadline=None)
@given(texts_and_conditions(), st.sampled_from(KINDS), st.integers(1, 7), st.data())
def test_no_part_with_a_match_is_skipped(
    made: tuple[list[pa.Array], str], kind: TextIndex, cut: int, data: st.DataObject
) -> None:
    files, where = made
    files = [pa.concat_arrays([file] * data.draw(st.integers(1, 4))) for file in files]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("LEAST_TEXT", 0), ("_LEAST", -100), ("LARGE", 1), ("PART", 9)):
            patch.setattr(text_groups, name, value)
        evidence = evidence_of(kind, files, cut)
    count = np.array([len(file) for file in files], np.int64)
    total = int(count.sum())
    # Units are row groups, or runs of rows between the pages of another column.
    edges = data.draw(st.sets(st.integers(1, max(total - 1, 1)), max_size=4))
    starts = sorted({*(np.cumsum(count) - count).tolist(), *edges} & set(range(total)))
    first = np.array(starts, np.int64)
    units = Units(
        level=Level.PAGE,
        file=np.zeros(len(first), np.int64),
        ordinal=np.searchsorted(np.cumsum(count), first, side="right"),
        first_row=first,
        rows=np.diff(first, append=total),
    )
    source = PartSource([evidence])
    parts, parent = source.split(units, frozenset({"c"}))
    if not len(parts):
        return
    covered = np.bincount(parent, weights=parts.rows, minlength=len(units))
    assert covered.tolist() == units.rows.tolist()
    assert np.array_equal(parts.ordinal, units.ordinal[parent])
    whole = pa.concat_arrays(files)
    (of,) = source.evidence(parts, frozenset({"c"}))
    for leaf in leaves(bind(parse_sql(where), SCHEMA)):
        (answer,) = of.answer([leaf], parts, {})
        if answer.bounds is None:
            continue
        assert not answer.bounds.must.any()
        held = matching(leaf, {"c": whole}, len(whole))
        for at, (start, size) in enumerate(zip(parts.first_row, parts.rows, strict=True)):
            assert answer.bounds.may[at] or not held[start : start + size].any(), str(leaf)
