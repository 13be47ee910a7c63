"""Paimon's names for what can be set: what they mean, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.paimon.bloom import PaimonBloom
from skipstone.paimon.format import container
from skipstone.paimon.kinds import Bitmap, Bsi, RangeBitmap
from skipstone.paimon.options import FileIndexOptions, is_option
from tests.paimon.format.golden import read_cases

if TYPE_CHECKING:
    from pathlib import Path


def test_every_option() -> None:
    found = FileIndexOptions.parse(
        {
            "file-index.bitmap.columns": "a, b.c",
            "file-index.bitmap.a.version": "1",
            "file-index.bitmap.b.c.index-block-size": "32kb",
            "file-index.range-bitmap.columns": "a",
            "file-index.range-bitmap.a.chunk-size": "0 b",
            "file-index.bloom-filter.columns": "a",
            "file-index.bloom-filter.a.items": 5_000,
            "file-index.bloom-filter.a.fpp": 0.01,
            "file-index.bsi.columns": "a",
            "file-index.in-manifest-threshold": "1 kb",
            "file-index.read.enabled": False,
        }
    )
    assert found.indexes == (
        Bitmap("a", version=1),
        Bitmap("b.c", index_block_size=32 * 1024),
        RangeBitmap("a", chunk_size=0),
        PaimonBloom("a", items=5_000, fpp=0.01),
        Bsi("a"),
    )
    assert (found.in_manifest_threshold, found.read_enabled) == (1024, False)


def test_nothing_said_is_paimons_default() -> None:
    assert FileIndexOptions.parse({}) == FileIndexOptions(
        indexes=(), in_manifest_threshold=None, read_enabled=True
    )
    (only,) = FileIndexOptions.parse({"file-index.bloom-filter.columns": "a"}).indexes
    assert isinstance(only, PaimonBloom)
    assert (only.items, only.fpp) == (1_000_000, 0.1)
    assert is_option("file-index.x")
    assert not is_option("header")


def test_options_of_a_map_hold_for_its_keys_below_their_own() -> None:
    found = FileIndexOptions.parse(
        {
            "file-index.bloom-filter.columns": "m[k], m[other]",
            "file-index.bloom-filter.m.items": "10",
            "file-index.bloom-filter.m.fpp": "0.2",
            "file-index.bloom-filter.m[k].items": "20",
        }
    )
    sizes = [(each.items, each.fpp) for each in found.indexes if isinstance(each, PaimonBloom)]
    assert sizes == [(20, 0.2), (10, 0.2)]


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"bucket": "3"}, "'bucket' is not an option of file indexes"),
        ({"file-index.bitmapp.columns": "a"}, "did you mean 'file-index.bitmap.…'"),
        ({"file-index.in-manifest-treshold": "1"}, "in-manifest-threshold"),
        ({"file-index.in-manifest-threshold": "many"}, "'many' is not a size"),
        ({"file-index.read.enabled": "yes"}, "true or false, not 'yes'"),
        ({"file-index.bitmap.columns": "a,,b"}, "has an empty item: 'a,,b'"),
        ({"file-index.bitmap.columns": ""}, "has an empty item"),
        ({"file-index.bitmap.columns": "a,a"}, "names 'a' twice"),
        ({"file-index.bitmap.columns": "m[k"}, "not a key of a map"),
        ({"file-index.bitmap.a.version": "2"}, "'a' is not listed in file-index.bitmap.columns"),
        ({"file-index.bitmap.columns": "a", "file-index.bitmap.a.version": "3"}, "cannot be '3'"),
        ({"file-index.bitmap.columns": "a", "file-index.bitmap.a.fpp": "0.1"}, "bitmap takes"),
        ({"file-index.bsi.columns": "a", "file-index.bsi.a.x": "1"}, "nothing but columns"),
        (
            {"file-index.bitmap.columns": "a", "file-index.bitmap.a.index-block-size": "3 foo"},
            "'3 foo' is not a size",
        ),
        (
            {"file-index.range-bitmap.columns": "a", "file-index.range-bitmap.a.chunk-size": "4gb"},
            "below 2 gb",
        ),
        *(
            (
                {
                    "file-index.bloom-filter.columns": "a",
                    f"file-index.bloom-filter.a.{name}": value,
                },
                f"'file-index.bloom-filter.a.{name}' cannot be '{value}'",
            )
            for name, value in [
                ("fpp", "0"),
                ("fpp", "1"),
                ("fpp", "nan"),
                ("fpp", "few"),
                ("items", "0"),
                ("items", "-5"),
                ("items", "1.5"),
            ]
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError) as refused:
        FileIndexOptions.parse(options)
    assert complaint in str(refused.value)
    assert str(refused.value).isprintable()


def test_all_that_paimon_itself_was_given_is_understood(golden: Path) -> None:
    seen = set()
    for case in read_cases(golden)[0]:
        found = FileIndexOptions.parse(case["options"])
        kinds = {(each.column, each.paimon) for each in found.indexes}
        written = {(meta["column"], meta["type"]) for meta in case["metas"]}
        assert {column.partition("[")[0] for column, _ in kinds} == {
            column.partition("[")[0] for column, _ in written
        }, case["name"]
        assert {kind for _, kind in kinds} == {kind for _, kind in written}
        seen |= {kind for _, kind in kinds}
    assert seen == {"bitmap", "bloom-filter", "bsi", "range-bitmap"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """One file of 100 rows: a = 0 … 9 again and again, s its text, null in every tenth row."""
    home = tmp_path / "t"
    home.mkdir()
    text = [None if n % 10 == 7 else f"s{n % 10}" for n in range(100)]
    table = pa.table({"a": pa.array([n % 10 for n in range(100)], pa.int32()), "s": text})
    pq.write_table(table, home / "f.parquet")
    return home


def settled(home: Path) -> Table:
    import os

    for file in home.glob("*.parquet"):
        os.utime(file, (1_700_000_000, 1_700_000_000))
    return Table(str(home))


def test_options_build_what_they_say(home: Path, tmp_path: Path) -> None:
    table = settled(home)
    options = {
        "file-index.bitmap.columns": "a,s",
        "file-index.bitmap.s.version": "1",
        "file-index.bloom-filter.columns": "s",
        "file-index.bloom-filter.s.items": "100",
    }
    assert table.build(options=options).files_built == 1
    names = [each.name for each in table.describe().indexes]
    assert sorted(name.partition("(")[0] for name in names) == [
        "a:bitmap",
        "s:bitmap",
        "s:paimonbloom",
    ]
    table.export(str(tmp_path / "out"), kind="paimon")
    _, blobs = container.from_bytes((tmp_path / "out" / "f.parquet.index").read_bytes())
    versions = {name: blob[0] for (name, kind), blob in blobs.items() if blob and kind == "bitmap"}
    assert versions == {"a": 2, "s": 1}


@pytest.mark.parametrize("threshold, packs", [("0 b", 1), ("1 mb", 0)])
def test_the_threshold_says_what_lies_in_the_fact_row(
    home: Path, threshold: str, packs: int
) -> None:
    table = settled(home)
    options = {
        "file-index.bitmap.columns": "a",
        "file-index.in-manifest-threshold": threshold,
    }
    table.build(options=options)
    assert len(list((home.parent / "_t.skipstone").glob("packs/*.pack"))) == packs


def test_options_of_the_table_are_what_is_built(home: Path) -> None:
    settled(home)
    table = Table(str(home), options={"file-index.range-bitmap.columns": "a"})
    table.build()
    assert [each.kind for each in table.describe().indexes] == ["rangebitmap"]


def test_a_wrong_option_builds_nothing(home: Path) -> None:
    table = settled(home)
    with pytest.raises(ValueError, match="not an option"):
        table.build(options={"file-index.bitmap.colums": "a"})
    assert not (home.parent / "_t.skipstone").exists()


def test_a_key_of_a_map_is_a_column(home: Path) -> None:
    table = pa.table({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))})
    pq.write_table(table, home / "f.parquet")
    found = settled(home)
    found.build(options={"file-index.bitmap.columns": "m[k]"})
    assert [each.column for each in found.describe().indexes] == ["m['k']"]
