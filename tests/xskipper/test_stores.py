"""Stores of Xskipper: what is believed of a foreign one, and when our own is published as one."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import NoIndexError, SkipstoneError, UnsupportedError
from skipstone.facts import Store
from skipstone.facts.find import find_store
from skipstone.facts.location import XskipperLocation
from skipstone.facts.xskipper_store import XskipperStore
from skipstone.storage import Listing, LocalStorage
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
from skipstone.xskipper.format.naming import directory_name
from skipstone.xskipper.format.part import read_footer, read_part, to_bytes
from skipstone.xskipper.format.schema import IndexColumn
from skipstone.xskipper.format.v4_store import BloomFacts, published
from skipstone.xskipper.upgrade import upgrade_store
from tests.xskipper.foreign import minmax_store, obj_name, write_store
from tests.xskipper.format.reference_bloom import SketchBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skipstone.pruning.plan import Plan


def write(path: Path, table: pa.Table, at: int = 1_600_000_000) -> Path:
    """A data file that was left alone for years."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    os.utime(path, (at, at))
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three files: ``Id`` 0-9, 10-19, 20-29; ``s`` is the file's number."""
    return [
        write(
            tmp_path / "t" / f"f {number} é%.parquet",
            pa.table(
                {
                    "Id": pa.array(range(10 * number, 10 * number + 10), pa.int64()),
                    "s": [f"v{number}"] * 10,
                }
            ),
            1_600_000_000 + number,
        )
        for number in range(3)
    ]


def names(found: Plan) -> list[str]:
    return [path.rpartition("/")[2] for path in found.paths]


def bounds(files: list[Path]) -> dict[str, tuple[int, int]]:
    return {obj_name(path): (10 * at, 10 * at + 9) for at, path in enumerate(files)}


def opened(files: list[Path], store: Path | XskipperLocation) -> skipstone.Table:
    where = store if isinstance(store, XskipperLocation) else str(store)
    return skipstone.Table(str(files[0].parent), index_location=where)


# -- finding ---------------------------------------------------------------------------------------


def test_a_store_is_found_by_its_directory_or_its_base(files: list[Path], tmp_path: Path) -> None:
    # Ids 0-9, 10-19, 20-29: bounds leave one file.
    base = tmp_path / "md"
    directory = base / directory_name(str(files[0].parent))
    minmax_store(directory, "id", bounds(files))
    for place in (directory, base, XskipperLocation(str(base)), XskipperLocation(str(directory))):
        table = opened(files, place)
        assert isinstance(table.store, XskipperStore)
        assert table.location.root == str(directory)
        assert names(table.plan("id = 15")) == ["f 1 é%.parquet"]


def test_nothing_foreign_is_looked_for_where_nobody_named_it(
    files: list[Path], tmp_path: Path
) -> None:
    table = skipstone.Table(str(tmp_path / "t"))
    minmax_store(tmp_path / "_t.skipstone", "id", bounds(files))
    assert not isinstance(table.store, XskipperStore)
    assert len(table.plan("id = 15").paths) == 3


def test_our_own_facts_win_where_both_lie(files: list[Path], tmp_path: Path) -> None:
    home = tmp_path / "index"
    skipstone.Table(str(tmp_path / "t"), index_location=str(home)).build(None, ["Id:minmax"])
    minmax_store(home, "id", bounds(files))
    assert type(opened(files, home).store) is Store


def test_a_directory_of_other_parquet_files_is_no_store(files: list[Path], tmp_path: Path) -> None:
    write(tmp_path / "other" / "part-0.parquet", pa.table({"a": [1]}))
    assert type(opened(files, tmp_path / "other").store) is Store
    # Said to be one, it says nothing and why.
    found = opened(files, XskipperLocation(str(tmp_path / "other"))).plan("id = 15")
    assert len(found.paths) == 3
    assert any("not a part of an Xskipper store" in reason.text for reason in found.reasons)


def test_a_place_where_nothing_is_yet(files: list[Path], tmp_path: Path) -> None:
    assert type(opened(files, tmp_path / "new").store) is Store
    with pytest.raises(NoIndexError, match=r"no index at .*correct the location of the store"):
        opened(files, XskipperLocation(str(tmp_path / "new"))).plan("id = 15")


# -- believing -------------------------------------------------------------------------------------


def test_rows_are_matched_by_path_and_time(files: list[Path], tmp_path: Path) -> None:
    minmax_store(tmp_path / "md", "id", {**bounds(files), f"{tmp_path}/t/gone#1": (0, 1)})
    table = opened(files, tmp_path / "md")
    found = table.plan("ID = 15")
    assert (found.facts_fresh, found.facts_stale) == (3, 0)
    assert table.describe().orphaned == 1
    os.utime(files[0], (1, 1))
    found = opened(files, tmp_path / "md").plan("ID = 15")
    assert names(found) == ["f 0 é%.parquet", "f 1 é%.parquet"]
    assert (found.facts_fresh, found.facts_stale) == (2, 1)


def test_a_column_of_another_type_now_is_not_compared(files: list[Path], tmp_path: Path) -> None:
    # Bounds of integers, over what is a bigint now: exact, and yet nobody knows the file's reader.
    minmax_store(tmp_path / "md", "id", bounds(files), type="integer")
    found = opened(files, tmp_path / "md").plan("id = 15")
    assert len(found.paths) == 3
    [step] = [step for step in found.steps if step.column == "Id"]
    assert [reason.text for reason in step.reasons] == ["over int, and the column is bigint here"]


def test_rows_that_agree_are_one_and_others_are_none(files: list[Path], tmp_path: Path) -> None:
    minmax_store(tmp_path / "md", "id", bounds(files))
    minmax_store(tmp_path / "md", "id", bounds(files))
    assert names(opened(files, tmp_path / "md").plan("id = 15")) == ["f 1 é%.parquet"]
    minmax_store(tmp_path / "md", "id", {obj_name(files[2]): (0, 3)})
    found = opened(files, tmp_path / "md").plan("id = 15")
    assert names(found) == ["f 1 é%.parquet", "f 2 é%.parquet"]


def test_lists_and_filters_that_disagree_say_nothing(files: list[Path], tmp_path: Path) -> None:
    # Row 0 twice alike, row 1 with two lists, row 2 with two filters.
    lists = [["v0"], ["v1"], ["v2"], ["v0"], ["v1", "x"], ["v2"]]
    blobs = []
    for texts in (["v0"], ["v1"], ["v2"], ["v0"], ["v1"], ["other"]):
        builder = SketchBuilder.sized(10, 0.01)
        builder.put(pa.array(texts))
        blobs.append(BloomFilterMetaData.of(builder.build()).to_bytes())
    keys = [obj_name(files[at % 3]) for at in range(6)]
    _, schema = published(
        table_identifier="/t",
        obj_names=pa.array(["a"]),
        facts=[
            BloomFacts(column="s", blobs=pa.array(blobs[:1]), type=pa.string(), fpp=0.01, ndv=10)
        ],
    )
    columns = {
        "obj_name": pa.array(keys),
        "s_valuelist_1": pa.array(lists),
        "s_bloomfilter_1": pa.array(blobs, pa.binary()),
    }
    index = IndexColumn(
        name="s_valuelist_1",
        kind="valuelist",
        columns=("s",),
        type='{"type":"array","elementType":"string","containsNull":true}',
    )
    write_store(tmp_path / "md", columns, [index, *schema.indexes])
    found = opened(files, tmp_path / "md").plan("s = 'nowhere'")
    # Every file has one index left that excludes it, except that row 1's filters agree.
    assert names(found) == []
    by_kind = {step.index: step for step in found.steps}
    told = [reason.text for step in by_kind.values() for reason in step.reasons]
    assert any(text == "not built for 1 of 3 files" for text in told), told


def test_ancient_dates_are_not_believed(tmp_path: Path) -> None:
    # Of which calendar they were when the original read them, nobody knows.
    files = [
        write(tmp_path / "t" / f"{at}.parquet", pa.table({"d": pa.array([at], pa.date32())}))
        for at in range(2)
    ]
    old, new = date(1582, 10, 14), date(1582, 10, 15)
    bounds = {obj_name(files[0]): (old, old), obj_name(files[1]): (new, new)}
    minmax_store(tmp_path / "md", "d", bounds, type="date")
    assert names(opened(files, tmp_path / "md").plan("d = date'2024-01-01'")) == ["0.parquet"]


@pytest.mark.parametrize("version", [0, 5])
def test_versions_that_nobody_reads_say_nothing(
    files: list[Path], tmp_path: Path, version: int
) -> None:
    path = minmax_store(tmp_path / "md", "id", bounds(files))
    text = b'"version":4'
    data = path.read_bytes()
    assert text in data
    path.write_bytes(data.replace(text, text.replace(b"4", str(version).encode())))
    table = opened(files, XskipperLocation(str(tmp_path / "md")))
    found = table.plan("id = 15")
    assert len(found.paths) == 3
    [reason] = [reason for reason in found.reasons if reason.cause == "unsupported"]
    assert f"version {version}" in reason.text
    with pytest.raises(UnsupportedError, match=f"version {version}"):
        upgrade_store(str(tmp_path / "md"))


def test_damage_silences_its_part_alone(files: list[Path], tmp_path: Path) -> None:
    rows = list(bounds(files).items())
    minmax_store(tmp_path / "md", "id", dict(rows[:2]))
    broken = minmax_store(tmp_path / "md", "id", dict(rows[2:]))
    broken.write_bytes(broken.read_bytes()[:-3] + b"???")
    found = opened(files, tmp_path / "md").plan("id = -1")
    assert names(found) == ["f 2 é%.parquet"]
    assert any(reason.subject == f"part {broken.name}" for reason in found.reasons)


def test_kinds_that_are_not_known_say_nothing(files: list[Path], tmp_path: Path) -> None:
    index = IndexColumn(
        name="id_regexvaluelist_2",
        kind="regexvaluelist",
        columns=("id",),
        type='{"type":"array","elementType":"string","containsNull":true}',
    )
    values = {
        "obj_name": pa.array([obj_name(path) for path in files]),
        "id_regexvaluelist_2": pa.array([["a"]] * 3),
    }
    write_store(tmp_path / "md", values, [index])
    table = opened(files, tmp_path / "md")
    found = table.plan("id = -1")
    assert len(found.paths) == 3
    assert any("'regexvaluelist' is not known" in reason.text for reason in found.reasons)
    assert not table.describe().indexes[0].known


def test_two_buckets_of_equal_paths_do_not_meet(tmp_path: Path) -> None:
    # A store that names its bucket is not believed of another; one that does not, is, and says so.
    files = [f"s3://one/t/f{at}.parquet" for at in range(3)]
    stored = {f"/t/f{at}.parquet#{at}": (10 * at, 10 * at + 9) for at in range(3)}

    def asked(bucket: str, store: Path) -> Any:
        listing = Listing(
            root=f"s3://{bucket}/t",
            paths=[path.replace("one", bucket) for path in files],
            sizes=pa.array([1, 1, 1]).to_numpy(),
            mtimes=pa.array([0, 1, 2]).to_numpy(),
            unit="ms",
        )
        location = XskipperLocation(str(store))
        return find_store(f"s3://{bucket}/t", location).snapshot().match(listing)

    path = minmax_store(tmp_path / "plain", "id", stored)
    assert asked("one", tmp_path / "plain").has_fact.all()
    part = read_part(path.read_bytes())
    for bucket, matches in (("one", True), ("two", False)):
        text = part.footer.schema.to_json().replace('"/t"', '"s3://one/t"')
        named = tmp_path / bucket
        named.mkdir()
        schema = type(part.footer.schema).from_json(text)
        (named / path.name).write_bytes(to_bytes(part.table, schema, like=part.footer))
        matched = asked(bucket, named)
        assert matched.has_fact.all() == matched.has_fact.any() == matches
        assert any("is of the table s3://one/t" in r.text for r in matched.reasons) != matches


def test_rows_of_a_cos_table_carry_the_bucket_without_the_service(tmp_path: Path) -> None:
    rows = {"cos://bucket/t/a.parquet#5": (0, 1), "cos://other/t/b.parquet#5": (0, 1)}
    minmax_store(tmp_path / "md", "id", rows)
    listing = Listing(
        root="cos://bucket.service/t",
        paths=["cos://bucket.service/t/a.parquet", "cos://bucket.service/t/b.parquet"],
        sizes=pa.array([1, 1]).to_numpy(),
        mtimes=pa.array([5, 5]).to_numpy(),
        unit="ms",
    )
    store = find_store("cos://bucket.service/t", XskipperLocation(str(tmp_path / "md")))
    assert store.snapshot().match(listing).has_fact.tolist() == [True, False]


def test_a_foreign_store_is_only_read(files: list[Path], tmp_path: Path) -> None:
    path = minmax_store(tmp_path / "md", "id", bounds(files))
    before = path.read_bytes()
    table = opened(files, tmp_path / "md")
    for act in (
        lambda: table.build(None, ["Id:minmax"]),
        table.refresh,
        table.drop,
        table.compact,
        table.vacuum,
        table.export,
    ):
        with pytest.raises(UnsupportedError, match="is a store of Xskipper"):
            act()
    assert [each.name for each in (tmp_path / "md").iterdir()] == [path.name]
    assert path.read_bytes() == before
    assert table.describe().bytes_index == len(before)
    assert table.check().ok


# -- publishing ------------------------------------------------------------------------------------


def built(root: Path, *indexes: str) -> skipstone.Table:
    table = skipstone.Table(str(root))
    table.build(None, indexes)
    return table


def only_part(directory: str) -> Any:
    [path] = Path(directory).iterdir()
    return read_part(path.read_bytes())


def test_what_is_published_and_where(files: list[Path], tmp_path: Path) -> None:
    table = built(tmp_path / "t", "Id:minmax", "s:valuelist", "s:bloom")
    report = table.export(str(tmp_path / "out"))
    assert report.destination == f"{tmp_path}/out/{directory_name(f'{tmp_path}/t')}"
    assert (report.files, report.files_total, report.left_out) == (3, 3, ())
    part = only_part(report.destination)
    assert part.footer.schema.version == 4
    assert part.footer.schema.table_identifier == f"{tmp_path}/t"
    rows = part.table.to_pylist()
    assert [row["obj_name"] for row in rows] == [obj_name(path) for path in files]
    assert [row["id_minmax_2"] for row in rows][1] == {"min": 10, "max": 19}
    assert [row["s_valuelist_1"] for row in rows] == [["v0"], ["v1"], ["v2"]]
    # And it is read as any foreign store is.
    again = opened(files, tmp_path / "out")
    assert names(again.plan("id = 15")) == names(again.plan("s = 'v1'")) == ["f 1 é%.parquet"]


def test_partition_columns_are_published_with_their_types(tmp_path: Path) -> None:
    for day, number in (("2024-01-01", "1"), ("2024-01-02", "__HIVE_DEFAULT_PARTITION__")):
        write(tmp_path / "t" / f"Day={day}" / f"n={number}" / "f.parquet", pa.table({"a": [1]}))
    report = built(tmp_path / "t", "a:minmax").export()
    part = only_part(report.destination)
    assert [v.name for v in part.footer.schema.virtual_columns] == ["virtual_Day", "virtual_n"]
    rows = part.table.to_pylist()
    assert [str(row["virtual_Day"]) for row in rows] == ["2024-01-01", "2024-01-02"]
    assert [row["virtual_n"] for row in rows] == [1, None]


def test_files_without_a_value_have_no_row(tmp_path: Path) -> None:
    # Twenty files; the last has more values than a list takes: Xskipper would skip it over a null.
    for number in range(20):
        count = 1 if number < 19 else 2_000
        table = pa.table({"s": [f"{number}-{at}" for at in range(count)]})
        write(tmp_path / "t" / f"{number:02d}.parquet", table)
    report = built(tmp_path / "t", "s:valuelist", "s:minmax").export()
    assert (report.files, report.files_total) == (19, 20)
    assert report.indexes == ("s:valuelist", "s:minmax")
    [reason] = report.left_out
    assert reason.units == 1
    assert "no value for one of the published indexes" in str(reason)
    assert part_rows(report.destination) == 19


def part_rows(directory: str) -> int:
    return int(only_part(directory).footer.rows)


def test_an_index_that_many_files_lack_is_left_out(tmp_path: Path) -> None:
    for number in range(4):
        count = 1 if number % 2 else 2_000
        table = pa.table({"s": [f"{number}-{at}" for at in range(count)]})
        write(tmp_path / "t" / f"{number}.parquet", table)
    table = built(tmp_path / "t", "s:valuelist", "s:minmax")
    report = table.export()
    assert (report.files, report.indexes) == (4, ("s:minmax",))
    assert [reason.units for reason in report.left_out] == [2]


def test_what_xskipper_has_no_place_for_is_left_out_with_a_reason(tmp_path: Path) -> None:
    table = pa.table(
        {
            "d": pa.array([1], pa.date32()),
            "b": [b"x"],
            "ntz": pa.array([1], pa.timestamp("us")),
            "a.b": [1],
            "n": [{"A": 5}],
        }
    )
    write(tmp_path / "t" / "f.parquet", table)
    made = built(
        tmp_path / "t",
        "d:minmax,bloom",
        "b:minmax,valuelist",
        "ntz:minmax",
        "`a.b`:minmax",
        "n.A:minmax",
    )
    report = made.export()
    assert report.indexes == ("d:minmax", "b:valuelist", "n.A:minmax")
    told = {
        reason.subject.partition("(")[0] + reason.subject[-4:]: reason.text
        for reason in report.left_out
    }
    assert len(told) == 4
    assert "Xskipper cannot build bloomfilter over date" in told.values()
    assert any("dot in a name" in text for text in told.values())
    names_ = only_part(report.destination).table.column_names
    assert names_ == ["obj_name", "d_minmax_1", "b_valuelist_1", "n$#$a_minmax_5"]


def test_nothing_to_publish_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "t" / "f.parquet", pa.table({"d": pa.array([1], pa.date32())}))
    table = built(tmp_path / "t", "d:bloom")
    with pytest.raises(UnsupportedError, match="can be published for Xskipper"):
        table.export()
    assert not (tmp_path / "_t.skipstone" / "xskipper").exists()
    with pytest.raises(UnsupportedError):
        table.export(kind="iceberg")


def test_stale_and_new_files_have_no_row(files: list[Path], tmp_path: Path) -> None:
    table = built(tmp_path / "t", "Id:minmax")
    os.utime(files[1], (5, 5))
    write(tmp_path / "t" / "new.parquet", pa.table({"Id": [1], "s": ["x"]}))
    report = table.export()
    assert (report.files, report.files_total) == (2, 4)
    assert [reason.units for reason in report.left_out] == [2]


class Recorder(LocalStorage):
    """Notes what lies in a directory after each change."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[set[frozenset[str]]] = []

    def _note(self, path: str) -> None:
        shown = [each for each in Path(path).parent.iterdir() if not each.name.startswith("_")]
        footers = [read_footer(each.read_bytes()) for each in shown]
        self.seen.append({frozenset(i.name for i in each.schema.indexes) for each in footers})

    def put(self, path: str, data: bytes | memoryview, sources: Iterable[str] = ()) -> None:
        super().put(path, data, sources)
        self._note(path)

    def delete(self, *paths: str) -> None:
        for path in paths:
            super().delete(path)
            self._note(path)


def test_at_no_moment_do_parts_of_different_columns_lie_side_by_side(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To a reader that takes one part's schema for all, the other part's rows would hold nulls.
    table = built(tmp_path / "t", "Id:minmax")
    first = table.export()
    recorder = Recorder()
    monkeypatch.setattr("skipstone.facts.export.open_storage", lambda *_: recorder)
    table.export()
    # The same columns: there is always a part.
    assert [len(each) for each in recorder.seen] == [1, 1]
    table.build(None, ["s:valuelist"])
    recorder.seen.clear()
    second = table.export()
    assert first.destination == second.destination
    old, new = frozenset({"id_minmax_2"}), frozenset({"id_minmax_2", "s_valuelist_1"})
    seen = [each for at, each in enumerate(recorder.seen) if each != recorder.seen[at - 1]]
    assert seen == [{old}, set(), {new}]  # hidden under another name before the old part goes


def test_compact_publishes_anew_where_it_was_asked_for_once(
    files: list[Path], tmp_path: Path
) -> None:
    table = built(tmp_path / "t", "Id:minmax")
    home = tmp_path / "_t.skipstone" / "xskipper"
    table.compact()
    assert not home.exists()
    destination = table.export().destination
    write(tmp_path / "t" / "g.parquet", pa.table({"Id": [99], "s": ["x"]}))
    table.refresh()
    assert part_rows(destination) == 3
    table.compact()
    assert part_rows(destination) == 4


# -- upgrades --------------------------------------------------------------------------------------


def test_an_upgrade_of_nothing_is_an_error(tmp_path: Path) -> None:
    tmp_path.joinpath("md").mkdir()
    with pytest.raises(SkipstoneError, match="no parts of a store"):
        upgrade_store(str(tmp_path / "md"))
