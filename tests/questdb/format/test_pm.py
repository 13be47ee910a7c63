"""Files of our own: what is written is read, snapshots stay, updates add what changed alone."""

from __future__ import annotations

import mmap
import struct
import zlib
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import PLAIN_WIDTHS, Type
from skipstone.questdb.format import layout, writer
from skipstone.questdb.format.pm import ChunkStats, Pm
from skipstone.questdb.format.values import PmColumn, PmHead
from skipstone.questdb.format.writer import PmFooter
from tests.questdb.format.row_groups import PmChunk, PmRowGroup
from tests.questdb.format.strategies import footers, heads, row_groups
from tests.questdb.format.writing import append, read_row_groups, rewrite, write

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.questdb.format.pm import PmSnapshot

LONG = PmColumn(name="n", type=6, physical_type=2, flags=4, max_def_level=1)
TIME = PmColumn(name="ts", type=131080, physical_type=2)
TEXT = PmColumn(name="s", type=26, physical_type=6, flags=4, max_def_level=1)
FOOTER = PmFooter(parquet_footer_offset=1_000, parquet_footer_length=92)


def longs(low: int, high: int, **fields: object) -> PmChunk:
    plain = PmChunk(
        num_values=9,
        byte_range_start=4,
        total_compressed=100,
        null_count=0,
        min=struct.pack("<q", low),
        max=struct.pack("<q", high),
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def says(snapshot: PmSnapshot) -> tuple[PmHead, tuple[PmRowGroup, ...], PmFooter]:
    snapshot.verify()
    return PmHead.of(snapshot.pm), read_row_groups(snapshot), PmFooter.of(snapshot)


@given(st.data())
def test_what_is_written_is_read(data: st.DataObject) -> None:
    head = data.draw(heads())
    groups = tuple(data.draw(st.lists(row_groups(head), max_size=4)))
    footer = data.draw(footers(5_000))
    by_column = data.draw(st.booleans())
    file = write(head, groups, footer, by_column=by_column)
    # The file lies within something longer, and not at a multiple of 8.
    padded = memoryview(b"x" * 3 + file + b"tail")[3:]
    pm = Pm(padded)
    assert pm.size == len(file)
    snapshot = pm.snapshot(footer.parquet_footer_offset + footer.parquet_footer_length + 8)
    assert says(snapshot) == (head, groups, footer)
    assert write(*says(snapshot), by_column=by_column) == file


@given(st.data())
def test_updates_keep_every_earlier_snapshot(data: st.DataObject) -> None:
    head = data.draw(heads())
    groups = tuple(data.draw(st.lists(row_groups(head), min_size=1, max_size=3)))
    footer = data.draw(footers(1_000))
    file = write(head, groups, footer)
    history = [(footer, groups, len(file))]
    dead = 0
    for step in range(1, data.draw(st.integers(1, 4)) + 1):
        # Usually the newest; after a rolled back commit the one before, past a dead footer.
        committed = data.draw(st.sampled_from([1, 1, 2]))
        if committed == 2 and len(history) > 1:
            history.pop()
            dead += 1
        footer, groups, size = history[-1]
        snapshot = Pm(file).snapshot(
            footer.parquet_footer_offset + footer.parquet_footer_length + 8
        )
        assert snapshot.size == size
        kept = st.integers(0, len(groups) - 1)
        # A row group is listed once: entries that share a block are refused.
        drawn = data.draw(st.lists(kept | row_groups(head), min_size=1, max_size=4))
        items = [each for at, each in enumerate(drawn) if each not in drawn[:at]]
        following = data.draw(footers(1_000 * (step + 1)))
        added = append(snapshot, items, following)
        assert added.offset == len(file)
        # Until the size is patched, nobody sees the bytes.
        waiting = Pm(file + added.data).snapshot()
        assert waiting.size == len(file)
        file = added.applied(file)
        assert len(file) == added.size
        new = tuple(groups[each] if isinstance(each, int) else each for each in items)
        history.append((following, new, len(file)))
        for each, content, _ in history:
            found = Pm(file).snapshot(each.parquet_footer_offset + each.parquet_footer_length + 8)
            found.verify()
            assert PmFooter.of(found) == each
            assert read_row_groups(found) == content
    assert [each.size for each in Pm(file).snapshots()] == [at for *_, at in reversed(history)]
    last = Pm(file).snapshot()
    assert last.crc == zlib.crc32(file[8:-8])
    fresh = Pm(rewrite(last))
    assert says(fresh.snapshot()) == (head, history[-1][1], history[-1][0])
    assert fresh.snapshot().previous_size == 0


@given(st.data())
def test_an_upgrade_says_the_same_but_for_bounds_of_another_width(data: st.DataObject) -> None:
    head = data.draw(heads())
    old = tuple(data.draw(st.lists(row_groups(head), min_size=1, max_size=3)))
    footer = data.draw(footers(1_000))
    file = write(head, old, footer, by_column=data.draw(st.booleans()))
    added = data.draw(row_groups(head))
    file = append(Pm(file).snapshot(), [added, 0], footer).applied(file)
    snapshot = Pm(writer.upgrade(Pm(file).snapshot())).snapshot()
    assert snapshot.previous_size == 0
    says_now = says(snapshot)
    assert (says_now[0], says_now[2]) == (head, footer)
    for before, after in zip((added, old[0]), says_now[1], strict=True):
        assert after.num_rows == before.num_rows
        for column, was, now in zip(head.columns, before.chunks, after.chunks, strict=True):
            assert now.bloom == was.bloom
            assert (now.num_values, now.null_count) == (was.num_values, was.null_count)
            width = PLAIN_WIDTHS.get(Type(column.physical_type))
            for was_bound, bound in ((was.min, now.min), (was.max, now.max)):
                kept = was_bound is None or width in (None, len(was_bound))
                assert bound == was_bound if kept else bound is None or len(bound) == width


def test_an_update_writes_changed_blocks_alone() -> None:
    head = PmHead(columns=(TIME, LONG, TEXT))
    wide = tuple(longs(0, 9) for _ in head.columns)
    groups = [PmRowGroup(num_rows=9, chunks=wide) for _ in range(1_000)]
    snapshot = Pm(write(head, groups, FOOTER)).snapshot()
    added = append(
        snapshot, [*range(1_000), groups[0]], replace(FOOTER, parquet_footer_offset=2_000)
    )
    assert len(added.data) <= 7 + (8 + 3 * 64) + 40 + 4 * 1_001 + 8


def test_a_map_is_read_without_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "_pm"
    path.write_bytes(
        write(PmHead(columns=(LONG,)), [PmRowGroup(num_rows=9, chunks=(longs(1, 2),))], FOOTER)
    )
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as map:
        pm = Pm(map)
        assert pm.snapshot().num_rows.tolist() == [9]
        pm.snapshot().verify()
        # Views of the map must be gone before it can be closed.
        del pm


def test_statistics_of_all_row_groups_and_columns_at_once() -> None:
    head = PmHead(columns=(LONG, replace(LONG, name="m"), TEXT))
    # n: 0..9, 10..19, unknown.  m: all null, nothing known, an inexact maximum.  s: short and long.
    chunks = [
        (
            longs(0, 9),
            longs(0, 0, min=None, max=None, null_count=9),
            longs(0, 0, min=b"a", max=b"longer than eight"),
        ),
        (
            longs(10, 19, null_count=1),
            longs(0, 0, min=None, max=None, null_count=None),
            longs(0, 0, min=None, max=b"z"),
        ),
        (
            longs(0, 0, min=None, max=None),
            longs(-5, -1, max_exact=False),
            longs(0, 0, min=b"exactly 9", max=b"exactly 9"),
        ),
    ]
    groups = [PmRowGroup(num_rows=9, chunks=each) for each in chunks]
    snapshot = Pm(write(head, groups, FOOTER)).snapshot()
    stats = snapshot.stats([0, 1])
    low, has_low = stats.fixed("MIN", np.int64)
    high, has_high = stats.fixed("MAX", np.int64)
    assert has_low.tolist() == has_high.tolist() == [[True, False], [True, False], [False, True]]
    assert low[has_low].tolist() == [0, 10, -5]
    assert high[has_high].tolist() == [9, 19, -1]
    assert stats.exact("MAX").tolist() == [[True, False], [True, False], [False, False]]
    assert stats.all_null().tolist() == [[False, True], [False, False], [False, False]]
    count, known = stats.null_count()
    assert known.tolist() == [[True, True], [True, False], [True, True]]
    assert count[known].tolist() == [0, 9, 1, 0, 0]
    # At another width than the type's there is none.
    assert not snapshot.stats().fixed("MIN", np.int32)[1].any()
    data, offsets, valid = snapshot.stats([2]).blobs("MAX")
    texts = [bytes(data[a:b]) for a, b in pairwise(offsets)]
    assert texts == [b"longer than eight", b"z", b"exactly 9"]
    assert valid.tolist() == [[True], [True], [True]]
    assert snapshot.stats([2]).present("MIN").tolist() == [[True], [False], [True]]
    # Minima, then maxima; of another width there is none.
    both, where = snapshot.stats([0]).inlined(8)
    assert both.shape == (2, 3, 1, 8)
    assert where.tolist() == [[[True], [True], [False]]] * 2
    assert both.view("<i8")[where].tolist() == [[0], [10], [9], [19]]
    assert not snapshot.stats([0]).inlined(4)[1].any()
    # Any row groups, in any order.
    some = snapshot.stats([0], np.array([1, 0])).fixed("MIN", np.int64)[0]
    assert some.tolist() == [[10], [0]]
    start, length = snapshot.byte_ranges()
    assert (start[:, 1:2].tolist(), length[:, 1:2].tolist()) == ([[4]] * 3, [[100]] * 3)


def test_a_chunk_behind_the_parquet_footer_is_refused() -> None:
    for start, length in [(901, 100), ((1 << 64) - 1, 2), (4, (1 << 64) - 1)]:
        chunk = longs(1, 2, byte_range_start=start, total_compressed=length)
        snapshot = Pm(
            write(PmHead(columns=(LONG,)), [PmRowGroup(num_rows=9, chunks=(chunk,))], FOOTER)
        ).snapshot()
        with pytest.raises(FormatError, match="beyond the footer"):
            snapshot.byte_ranges()


def test_names_and_ids() -> None:
    columns = (
        replace(LONG, name="é", id=7),
        replace(LONG, name="s"),
        replace(TEXT, name="s", id=-1),
        replace(TEXT, name="Ä", id=0),
    )
    pm = Pm(write(PmHead(columns=columns), [], FOOTER))
    assert pm.names == ("é", "s", "s", "Ä")
    assert (pm.named("s"), pm.named("é"), pm.named("x"), pm.named("xy")) == ((1, 2), (0,), (), ())
    # By ID; a column without one goes by its position, unless another column has that ID.
    assert [pm.with_id(id) for id in (7, 0, 1, 2, 3, 9, -1)] == [0, 3, 1, 2, None, None, None]
    twice = Pm(write(PmHead(columns=(columns[0], columns[0])), [], FOOTER))
    with pytest.raises(FormatError, match="share an ID"):
        twice.with_id(7)


_LETTERS = st.text(alphabet="ab", max_size=9)


@given(st.lists(_LETTERS | st.just("price_usd"), min_size=17, max_size=90), _LETTERS)
def test_a_name_is_found_among_many_that_contain_it(names: list[str], other: str) -> None:
    columns = tuple(replace(LONG, name=name) for name in names)
    pm = Pm(write(PmHead(columns=columns), [], FOOTER))
    for wanted in {*names, other, "usd", "_usd"}:
        places = tuple(at for at, name in enumerate(names) if name == wanted)
        assert pm.named(wanted) == places


def test_bloom_filters_inlined_and_external() -> None:
    columns = (LONG, TEXT)
    bitset = bytes(range(64))
    inlined = PmHead(columns=columns, bloom_columns=(1,))
    groups = [
        PmRowGroup(num_rows=9, chunks=(longs(1, 2), longs(1, 2, bloom=bitset))),
        PmRowGroup(num_rows=9, chunks=(longs(1, 2), longs(1, 2))),
    ]
    pm = Pm(write(inlined, groups, FOOTER))
    places, lengths = pm.snapshot().bloom_places
    assert lengths.tolist() == [[64], [0]]
    at = int(places[0, 0])
    assert bytes(pm.data[at : at + 64]) == bitset
    assert (at - 4) % 8 == 0
    external = replace(inlined, bloom_external=True)
    outside = [PmRowGroup(num_rows=9, chunks=(longs(1, 2), longs(1, 2, bloom=(500, 64))))]
    places, lengths = Pm(write(external, outside, FOOTER)).snapshot().bloom_places
    assert (places.tolist(), lengths.tolist()) == ([[500]], [[64]])
    for place in [(990, 32), (500, 33), ((1 << 64) - 1, 32)]:
        beyond = [PmRowGroup(num_rows=9, chunks=(longs(1, 2), longs(1, 2, bloom=place)))]
        snapshot = Pm(write(external, beyond, FOOTER)).snapshot()
        with pytest.raises(FormatError, match="bloom filter"):
            assert snapshot.bloom_places


def test_a_designated_timestamp_must_be_one() -> None:
    def head(column: PmColumn) -> PmHead:
        return PmHead(columns=(column,), designated_timestamp=0, sorting_columns=(0,))

    for wrong in (
        LONG,
        replace(TIME, type=-1),
        replace(TIME, flags=4),
        replace(TIME, max_def_level=1),
    ):
        with pytest.raises(ValueError, match="designated timestamp"):
            write(head(wrong), [], FOOTER)
    ascending = Pm(write(head(TIME), [], FOOTER))
    assert ascending.feature_flags == layout.SORTING_IS_DTS_ASC
    assert ascending.sorting_columns == (0,)
    falling = Pm(write(head(replace(TIME, flags=layout.COLUMN_DESCENDING)), [], FOOTER))
    assert (falling.feature_flags, falling.sorting_columns) == (0, (0,))


@pytest.mark.parametrize(
    "changes",
    [
        {"sorting_columns": (2,)},
        {"sorting_columns": (0, 0)},
        {"bloom_columns": (1, 0)},
        {"bloom_columns": (5,)},
        {"designated_timestamp": 2},
        {"designated_timestamp": -2},
    ],
)
def test_headers_that_contradict_themselves_are_not_written(changes: dict[str, object]) -> None:
    head = replace(PmHead(columns=(LONG, TEXT)), **changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        write(head, [], FOOTER)


def test_row_groups_of_another_count_of_columns_are_not_appended() -> None:
    snapshot = Pm(write(PmHead(columns=(LONG,)), [], FOOTER)).snapshot()
    made = Pm(write(PmHead(columns=(LONG, TEXT)), [], FOOTER)).snapshot()
    with pytest.raises(ValueError, match="2 chunks of 1 columns"):
        writer.append(snapshot, [], FOOTER, made)


def test_filters_of_other_columns_or_elsewhere_get_no_entry() -> None:
    """What is appended may have more filters than the header of the file knows."""
    bitset = bytes(range(64))
    columns = (LONG, LONG, LONG)
    chunks = (longs(1, 2, bloom=bitset), longs(1, 2, bloom=bitset), longs(1, 2))
    group = PmRowGroup(num_rows=9, chunks=chunks)
    made = Pm(write(PmHead(columns=columns, bloom_columns=(0, 1)), [group], FOOTER)).snapshot()
    for head, expected in (
        (PmHead(columns=columns, bloom_columns=(1, 2)), [(1, bitset)]),
        (PmHead(columns=columns, bloom_columns=(1, 2), bloom_external=True), []),
        (PmHead(columns=columns), []),
    ):
        file = write(head, [], FOOTER)
        added = writer.append(Pm(file).snapshot(), [0], FOOTER, made).applied(file)
        snapshot = Pm(added).snapshot()
        snapshot.verify()
        (read,) = read_row_groups(snapshot)
        blooms = [(at, chunk.bloom) for at, chunk in enumerate(read.chunks) if chunk.bloom]
        assert blooms == expected
        assert [chunk.min for chunk in read.chunks] == [chunk.min for chunk in chunks]


def test_an_append_to_what_is_not_known_is_refused() -> None:
    file = bytearray(write(PmHead(columns=(LONG,)), [], FOOTER))
    file[8] |= 1 << 7
    with pytest.raises(UnsupportedError, match="append"):
        append(Pm(file).snapshot(), [], FOOTER)


def test_the_footer_must_be_as_long_as_its_counts_say() -> None:
    group = PmRowGroup(num_rows=9, chunks=(longs(1, 2),))
    file = write(PmHead(columns=(LONG,)), [group, group], FOOTER)
    (length,) = struct.unpack("<I", file[-4:])
    for wrong in (length - 4, length + 8, length + 16, 43, len(file)):
        with pytest.raises((FormatError, UnsupportedError)):
            Pm(file[:-4] + struct.pack("<I", wrong)).snapshot()


def test_a_section_that_its_flag_promises_must_be_there() -> None:
    file = bytearray(write(PmHead(columns=(LONG,)), [], FOOTER))
    for flag in (layout.SEQ_TXN, layout.SCRATCHPAD):
        file[-16] = flag
        with pytest.raises(FormatError, match="FOOTER_LENGTH"):
            Pm(file).snapshot()


def values(stats: ChunkStats, end: layout.End) -> tuple[list[bytes], list[bool]]:
    data, offsets, valid = stats.blobs(end)
    return [bytes(data[a:b]) for a, b in pairwise(offsets.tolist())], valid[:, 0].tolist()


BOUND = st.none() | st.binary(min_size=1, max_size=8) | st.binary(min_size=9, max_size=40)


@given(st.lists(st.lists(st.tuples(BOUND, BOUND), max_size=4), min_size=1, max_size=6))
def test_the_statistics_of_several_files_side_by_side_are_those_of_each(
    files: list[list[tuple[bytes | None, bytes | None]]],
) -> None:
    parts, expected = [], []
    for groups in files:
        held = tuple(
            PmRowGroup(num_rows=9, chunks=(replace(longs(0, 9), min=low, max=high),))
            for low, high in groups
        )
        snapshot = Pm(write(PmHead(columns=(TEXT,)), held, FOOTER)).snapshot()
        parts.append(snapshot.stats([0]))
        expected += groups
    together = ChunkStats.side_by_side(parts)
    for at, end in enumerate(layout.BOUNDS):
        wanted = [each[at] for each in expected]
        known = [each is not None for each in wanted]
        assert values(together, end) == ([each or b"" for each in wanted], known)
        assert values(together, end)[0] == [v for part in parts for v in values(part, end)[0]]


def test_references_to_more_bytes_than_their_own_file_are_refused() -> None:
    """Thirty row groups refer to one statistic; a large file at their side does not pay for it."""
    text = replace(longs(0, 9), min=b"x" * 65_535, max=None)
    head, held = PmHead(columns=(TEXT,)), PmRowGroup(num_rows=9, chunks=(text,))
    other = PmRowGroup(num_rows=9, chunks=(replace(text, min=None, max=text.min),))
    large = Pm(write(head, (other,) * 60, FOOTER)).snapshot().stats([0])
    few = Pm(write(head, (held,), FOOTER)).snapshot().stats([0])
    hostile = replace(
        few,
        chunks=np.repeat(few.chunks, 30, axis=0),
        out_of_line=np.repeat(few.out_of_line, 30),
        end=np.repeat(few.end, 30),
    )
    for stats in (hostile, ChunkStats.side_by_side([large, hostile])):
        with pytest.raises(FormatError, match="more bytes than the file"):
            stats.blobs("MIN")
    assert len(ChunkStats.side_by_side([large, few]).blobs("MIN")[0]) == 65_535
