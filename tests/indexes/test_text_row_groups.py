"""Filters of the row groups of large files of texts: what they skip, take, survive and prove."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone import IndexEncryption, Table
from skipstone.build.column_indexes import BuildSettings, ColumnsBuilder
from skipstone.errors import FormatError, SkipstoneError
from skipstone.indexes import text_groups
from skipstone.indexes.row_group_filters import FilterBits, GroupFilters, to_bytes
from skipstone.indexes.text import NGrams, TextIndex, Tokens
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import leaves
from skipstone.pruning import Bounds, Cause, Level, Units
from skipstone.pruning.kind import Places, Stored
from skipstone.pruning.residual import matching
from tests.indexes.test_text import SCHEMA
from tests.indexes.test_text import tables as texts_and_conditions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILES, GROUPS, LINES = 3, 4, 4_000
SPEC = "m:ngram(max_bytes=40000)"


def trace(file: int, row: int) -> str:
    return f"{0x9E3779B97F4A7C15 * (file * GROUPS * LINES + row + 1) % 2**64:016x}" * 2


def write(path: Path, file: int, row_group_size: int = LINES) -> None:
    """Lines with a trace id each; in file 1, row group 2, one has a word of its own."""
    lines: list[str | None] = [
        f"GET /items/{row % 50} HTTP/1.1 {row % 7} ms by Mozilla/5.0 (X11) trace={trace(file, row)}"
        for row in range(GROUPS * LINES)
    ]
    lines[5::100] = [None] * len(lines[5::100])
    if file == 1:
        lines[2 * LINES + 17] = "upstream Zebra-Crossing failed"
    table = pa.table({"id": range(len(lines)), "m": lines})
    pq.write_table(table, path, row_group_size=row_group_size, compression="zstd")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("row-groups") / "t"
    home.mkdir()
    for file in range(FILES):
        write(home / f"{file}.parquet", file)
    return home


@pytest.fixture(scope="module")
def table(root: Path) -> Table:
    made = Table(str(root))
    made.build(indexes=[SPEC])
    return made


def groups(table: Table, where: str) -> dict[str, tuple[int, ...]]:
    """The row groups that a plan reads, by the name of the file."""
    plan = table.plan(where)
    found = {}
    for file in np.flatnonzero(plan.keep).tolist():
        detail = plan.details.get(file)
        every = tuple(range(GROUPS))
        some = every if detail is None or detail.row_groups is None else detail.row_groups
        found[plan.listing.paths[file].rpartition("/")[2]] = some
    return found


RARE: list[tuple[str, dict[str, tuple[int, ...]], int]] = [
    ("m LIKE '%Zebra-Crossing%'", {"1.parquet": (2,)}, 1),
    ("m ILIKE '%zebra-crossing%'", {"1.parquet": (2,)}, 1),
    ("m RLIKE '(Zebra|Okapi)-Crossing'", {"1.parquet": (2,)}, 1),
    (f"m LIKE '%{trace(2, 3 * LINES + 40)}%'", {"2.parquet": (3,)}, 1),
    (f"m LIKE '%{trace(0, 12)[:20]}%' AND id < 5000", {"0.parquet": (0,)}, 1),
    (f"m LIKE '%{trace(0, 12)}%' OR m LIKE '%Zebra-C%'", {"0.parquet": (0,), "1.parquet": (2,)}, 2),
    ("m LIKE '%okapi%'", {}, 0),
]


@pytest.mark.parametrize("where, kept, count", RARE)
def test_row_groups_that_a_needle_leaves(
    table: Table, where: str, kept: dict[str, tuple[int, ...]], count: int
) -> None:
    assert groups(table, where) == kept
    assert table.count(where) == count


def test_what_is_everywhere_keeps_all(table: Table) -> None:
    every = tuple(range(GROUPS))
    assert groups(table, "m LIKE '%Mozilla%'") == {f"{f}.parquet": every for f in range(FILES)}
    assert table.count("m LIKE '%Mozilla%'") == FILES * GROUPS * LINES * 99 // 100 - 1
    # No run of three characters: the filters say nothing, and no reason is lost.
    assert len(groups(table, "m LIKE '%xy%'")) == FILES


def test_the_share_and_what_row_groups_add(root: Path, tmp_path: Path) -> None:
    text = sum(len(m or "") for m in pq.read_table(root)["m"].to_pylist())
    sizes = {}
    for share in (0.05, 0.02):
        for more in ("", ", row_groups=false"):
            made = Table(str(root), index_location=str(tmp_path / f"{share}{more}"))
            made.build(indexes=[f"m:ngram(max_bytes=40000, share={share}{more})"], pm="none")
            (index,) = made.describe().indexes
            sizes[share, more] = index.bytes
        added = sizes[share, ""] - sizes[share, ", row_groups=false"]
        # The column of places takes some bytes too.
        assert 0.2 * share * text < added <= share * text + 1_500
    assert groups(made, "m LIKE '%Zebra-Crossing%'") == {"1.parquet": tuple(range(GROUPS))}


def test_one_row_group_has_no_second_filter(tmp_path: Path) -> None:
    sizes = []
    home = tmp_path / "t"
    home.mkdir()
    write(home / "1.parquet", 1, row_group_size=GROUPS * LINES)
    for more in ("", "(row_groups=false)"):
        made = Table(str(home), index_location=str(tmp_path / f"index{more}"))
        made.build(indexes=[f"m:ngram{more}"], pm="none")
        (index,) = made.describe().indexes
        sizes.append(index.bytes)
        assert list((tmp_path / f"index{more}").glob("packs/*")) == []
    assert sizes[0] == sizes[1]


def test_row_groups_that_are_too_full_are_counted(tmp_path: Path) -> None:
    home = tmp_path / "t"
    home.mkdir()
    rng = np.random.default_rng(5)
    # Row group 1 has so many different characters that no filter within its share helps.
    noise = rng.integers(0x4E00, 0x9FFF, (6_000, 60), np.uint32)
    dense = ["".join(map(chr, row)) for row in noise.tolist()]
    plain = [f"line {row % 90} of a plain text that says the same again" for row in range(6_000)]
    lines = [*plain, *dense, *plain]
    pq.write_table(pa.table({"m": lines}), home / "0.parquet", row_group_size=6_000)
    table = Table(str(home))
    table.build(indexes=["m:ngram(long=0, share=0.02, fpp=0.3)"])
    plan = table.plan(f"m LIKE '%{dense[7][3:20]}%'")
    (step,) = [s for s in plan.steps if (s.index, s.level) == ("ngram", Level.ROW_GROUP)]
    assert (step.considered, step.kept) == (3, 1)
    (reason,) = step.reasons
    assert (reason.cause, reason.units) == (Cause.OVER_LIMIT, 1)
    assert "would be too full" in str(table.explain(f"m LIKE '%{dense[7][3:20]}%'"))


def test_refresh_compaction_and_a_second_index_keep_them(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "t"
    shutil.copytree(root, home)
    table = Table(str(home))
    table.build(indexes=[SPEC], pm="none")
    table.build(indexes=["m:tokens", "id:minmax"], pm="none")
    write(home / "3.parquet", 3)
    table = Table(str(home))
    table.refresh()
    table.compact()
    table = Table(str(home))
    where = f"m LIKE '%{trace(3, LINES + 6)[:18]}%'"
    for condition, kept in (*((w, k) for w, k, _ in RARE[:4]), (where, {"3.parquet": (1,)})):
        assert groups(table, condition) == kept
    assert groups(table, "m LIKE '% upstream %'") == {}
    assert groups(table, "m LIKE 'upstream %'") == {"1.parquet": (2,)}
    assert table.check(deep=True, sample=2).ok
    assert {f"{each.column}:{each.kind}" for each in table.describe().indexes} == {
        "m:ngram", "m:tokens", "id:minmax",
    }  # fmt: skip
    table.drop("m:ngram")
    assert len(groups(Table(str(home)), f"m LIKE '%{trace(2, 40)[3:30]}%'")) == 4


def test_an_encrypted_index_has_them_under_its_own_key(root: Path, tmp_path: Path) -> None:
    keys = {"kf": b"FOOTERFOOTERFOOT", "k1": b"11-key-of-m-1111"}
    where = IndexEncryption(footer_key="kf", key_metadata={"m:ngram": "k1"})
    place = str(tmp_path / "index")
    Table(str(root), index_location=place, index_keys=keys).build(
        indexes=[SPEC], pm="none", encryption=where
    )
    assert b"SKRG" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*.pack"))
    for condition, kept, count in RARE[:4]:
        with_keys = Table(str(root), index_location=place, index_keys=keys)
        assert groups(with_keys, condition) == kept
        without = Table(str(root), index_location=place, index_keys={"kf": keys["kf"]})
        assert len(groups(without, condition)) == FILES
        assert without.count(condition) == count


def test_damage_costs_time_and_no_row(root: Path, tmp_path: Path) -> None:
    place = tmp_path / "index"
    Table(str(root), index_location=str(place)).build(indexes=[SPEC], pm="none")
    packs = {pack: pack.read_bytes() for pack in place.glob("packs/*")}
    where, kept, _ = RARE[3]
    for left, zeros in ((20, 0), (0, 0), (0, 1 << 20), (100_000, 1 << 20)):
        for pack, sound in packs.items():
            pack.write_bytes(sound[:left] + bytes(zeros)[: max(len(sound) - left, 0)])
        table = Table(str(root), index_location=str(place))
        assert set(kept) <= set(groups(table, where))
        assert table.count(where) == 1
    plan = Table(str(root), index_location=str(place)).plan(where)
    reasons = [reason for step in plan.steps for reason in step.reasons]
    assert any(r.cause is Cause.CORRUPT and "filters" in r.text for r in reasons)


# -- against brute force ---------------------------------------------------------------------------

KINDS: list[TextIndex] = [
    NGrams("c", 2, share=1.0),
    NGrams("c", 3, lower=False, share=1.0, fpp=0.001),
    NGrams("c", 2, long=0, fpp=0.9, share=1.0),
    Tokens("c", share=1.0),
    Tokens("c", "[a-b_]", lower=False, share=1.0),
]


def evidence_of(kind: TextIndex, files: Sequence[pa.Array], cut: int) -> Any:
    """The evidence about one file whose row groups are ``files``, in pages of one row; a chunk has
    ``cut`` rows."""
    rows = [len(file) for file in files]
    builder = ColumnsBuilder([kind], SCHEMA, BuildSettings(), sum(rows), rows)
    if builder.asks_pages("c"):
        builder.paged("c", [1] * len(rows))
    whole = pa.concat_arrays(files)
    for at in range(0, len(whole), cut):
        builder.add("c", whole.slice(at, cut))
    found = builder.finish(len(whole))
    assert not any("failed" in text for text in found.reasons.values()), found.reasons
    one, none = np.zeros(1, np.int64), np.full(1, -1, np.int64)
    sidecar = pa.array([found.filters], pa.large_binary())
    places = Places(packs=(), pack=none, offset=none, length=none, inline=sidecar)
    value = found.filter_places.get(kind, pa.nulls(1, text_groups.PLACE))
    return kind.of_row_groups().read_back(
        Stored(type=pa.string(), values=value, rows=one, nulls=none, row_of_file=one, places=places)
    )


def asked(kind: TextIndex, files: Sequence[pa.Array], cut: int) -> tuple[Any, Units]:
    """The evidence about one file, and its row groups."""
    evidence = evidence_of(kind, files, cut)
    count = np.array([len(file) for file in files], np.int64)
    units = Units(
        level=Level.ROW_GROUP,
        file=np.zeros(len(files), np.int64),
        ordinal=np.arange(len(files)),
        first_row=np.cumsum(count) - count,
        rows=count,
    )
    return evidence, units


@settings(deadline=None)
@given(texts_and_conditions(), st.sampled_from(KINDS), st.integers(1, 7), st.booleans())
def test_no_row_group_with_a_match_is_skipped(
    made: tuple[list[pa.Array], str], kind: TextIndex, cut: int, crowded: bool
) -> None:
    files, where = made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_groups, "LEAST_TEXT", 0)
        patch.setattr(text_groups, "_LEAST", -100)
        if crowded:  # keys become bits at once
            patch.setattr(text_groups._Grams, "crowded", lambda self, budget: bool(self.held))
        evidence, units = asked(kind, files, cut)
    for leaf in leaves(bind(parse_sql(where), SCHEMA)):
        (answer,) = evidence.answer([leaf], units, {})
        bounds: Bounds[Any] | None = answer.bounds
        if bounds is None:
            continue
        assert not bounds.must.any()
        for at, file in enumerate(files):
            assert bounds.may[at] or not matching(leaf, {"c": file}, len(file)).any(), str(leaf)


# -- the layout ------------------------------------------------------------------------------------


def made_filters(sizes: Sequence[int]) -> tuple[bytes, int, list[np.ndarray[Any, Any]]]:
    """Filters of this many keys each, none for 0."""
    filters, keys = [], []
    for at, size in enumerate(sizes):
        some = np.random.default_rng(at).integers(0, 1 << 63, size, np.int64).view(np.uint64)
        bits = FilterBits(size, 1 << 20, 0.01)
        bits.put(some)
        keys.append(some)
        filters.append(bits.finish(complete=at % 2 == 0) if size else None)
    return (*to_bytes([10 + at for at in range(len(sizes))], filters), keys)


def test_a_written_filter_has_its_keys_and_hardly_others() -> None:
    data, head, keys = made_filters([5_000, 0, 5_010, 40, *[300] * 70])
    read = GroupFilters.from_bytes(data[:head], len(data))
    assert read.rows.tolist() == [10 + at for at in range(74)]
    assert read.first.tolist() == np.cumsum([0, *read.rows[:-1]]).tolist()
    assert (read.table < 0).tolist() == [at == 1 for at in range(74)]
    assert read.complete[[0, 2, 3]].tolist() == [True, True, False]
    assert sorted(each.lanes for each in read.tables) == [1, 2, 6, 64]
    absent = np.arange(1 << 40, (1 << 40) + 2_000, dtype=np.uint64)
    for at, mine in enumerate(keys):
        if not len(mine):
            continue
        table = read.tables[read.table[at]]
        for some, least, most in ((mine, 1.0, 1.0), (absent, 0.0, 0.03)):
            blocks = [data[o : o + table.stride] for o in table.offsets(some)]
            share = table.hits(blocks, some)[:, read.lane[at]].mean()
            assert least <= share <= most, (at, share)


@settings(deadline=None)
@given(st.data())
def test_a_damaged_head_is_refused(data: st.DataObject) -> None:
    good, head, _ = made_filters([200, 0, 90])
    bad = bytearray(good[:head])
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, head - 1))] ^= data.draw(st.integers(1, 255))
    length = data.draw(st.sampled_from([head, len(good), 0, 1 << 40]))
    cut = bytes(bad[: data.draw(st.integers(0, head))])
    for each in (cut, bytes(bad), cut + bytes(40)):
        if each == good[:head]:
            continue
        with pytest.raises(SkipstoneError):
            GroupFilters.from_bytes(each, length)
    with pytest.raises(FormatError):
        GroupFilters.from_bytes(good[:head], head + 10)


def test_a_damaged_block_is_refused() -> None:
    data, head, keys = made_filters([200, 210])
    read = GroupFilters.from_bytes(data[:head], len(data))
    (table,) = read.tables
    at = table.offsets(keys[0][:1])[0]
    block = bytearray(data[at : at + table.stride])
    block[5] ^= 1
    with pytest.raises(FormatError, match="checksum"):
        table.hits([bytes(block)], keys[0][:1])
