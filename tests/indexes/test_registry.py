"""Kinds by name, definitions as text, and the documentation's own kind, installed and used."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.errors import UnsupportedError
from skipstone.indexes.bloom import Bloom
from skipstone.indexes.minmax import MinMax, NullCounts
from skipstone.indexes.registry import kind, known_kinds, parse_index, parse_indexes, why_unknown
from skipstone.indexes.valuelist import ValueList
from skipstone.predicate.tree import Op
from skipstone.pruning.kind import Built, Chunk
from skipstone.table import Table
from tests.build.built import Indexed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skipstone.pruning.kind import Index

DOCS = Path(__file__).resolve().parents[2] / "docs" / "own-index-kinds.md"


@pytest.mark.parametrize(
    "text, index",
    [
        ("id:minmax", MinMax("id")),
        ("id : MinMax ()", MinMax("id")),
        ("a.b.c:values", ValueList("a.b.c")),
        ("id:bloom", Bloom("id")),
        ("id:bloomfilter(fpp=0.001)", Bloom("id", fpp=0.001)),
        ("id:bloom( fpp = 1e-3 , max_bytes=4096 )", Bloom("id", fpp=0.001, max_bytes=4096)),
        ("s:minmax(truncate=8)", MinMax("s", truncate=8)),
        ("s:nulls", NullCounts("s")),
        ("a:b:minmax", MinMax("a:b")),
        ("`x:minmax`:values", ValueList("`x:minmax`")),
        ("with blank é:minmax", MinMax("with blank é")),
    ],
)
def test_definitions_as_text(text: str, index: Index) -> None:
    assert parse_index(text) == index
    assert parse_index(f"{index.column}:{index.name}").name == index.name


@pytest.mark.parametrize("text", ["id", "id:", ":minmax", "id:min max", "id:bloom(0.1)", ""])
def test_text_that_is_no_definition(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_index(text)


@pytest.mark.parametrize(
    "text, words",
    [
        ("id:minmax(fpp=1)", "takes truncate, not fpp"),
        ("id:nulls(x=1)", "takes no parameters, not x"),
        ("id:bloom(fpp=2)", "between 0 and 1"),
        ("id:bloom(fpp=small)", "small"),
    ],
)
def test_parameters_that_do_not_fit(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_index(text)


def test_an_unknown_kind_names_those_that_there_are() -> None:
    with pytest.raises(UnsupportedError, match="no index kind is called 'zonemap'") as caught:
        parse_index("id:zonemap")
    assert {"minmax", "bloom", "bitmap"} <= set(known_kinds())
    assert caught.value.hint == f"there are {', '.join(known_kinds())}"
    assert kind("zonemap") is None


def test_several_at_once_each_counted_once() -> None:
    made = parse_indexes(["id:minmax", MinMax("id"), "id:bloom"])
    assert made == [MinMax("id"), Bloom("id")]
    assert parse_indexes("id:minmax") == [MinMax("id")]
    assert known_kinds()[:3] == ["minmax", "valuelist", "bloom"]


# -- by entry point -------------------------------------------------------------------------------


def install(folder: Path, modules: dict[str, str], points: dict[str, str]) -> None:
    """A distribution in ``folder`` with these modules and entry points."""
    info = folder / "prefix_kind-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: prefix-kind\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[skipstone.indexes]", *lines, ""]))
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The documentation's example as an installed package, and two that are broken."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    (toml,) = re.findall(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    (point,) = re.findall(r'^(\w+) = "(.*)"$', toml, re.MULTILINE)
    points = {point[0]: point[1], "absent": "prefix_kind:Absent", "number": "prefix_kind:np"}
    points["minmax"] = "prefix_kind:PrefixList"
    install(tmp_path / "site", {"prefix_kind": code}, points)
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield
    sys.modules.pop("prefix_kind", None)


@pytest.mark.usefixtures("installed")
def test_the_documented_kind_is_known_and_right() -> None:
    assert "prefixlist" in known_kinds()
    index = parse_index("name:prefixlist(length=2)")
    # File 0 has names in "an" and "b", file 1 in "be" and a null, file 2 nothing but nulls.
    files = [
        pa.array(["anna", "andy", "b"]),
        pa.array(["bea", None]),
        pa.array([None], pa.string()),
    ]
    indexed = Indexed(index, files)
    assert indexed.stored.values.to_pylist() == [["an", "b"], ["be"], []]
    assert indexed.may(Op.STARTS_WITH, "a") == [0]
    assert indexed.may(Op.STARTS_WITH, "b") == [0, 1]
    assert indexed.may(Op.LIKE, "be%a", "\\", "be") == [1]
    assert indexed.may(Op.EQ, "b") == [0]
    assert indexed.may(Op.EQ, "annika") == [0]
    assert indexed.may(Op.IN, "cid", "bert") == [1]
    assert indexed.may(Op.GT, "zz") == [0, 1, 2]
    assert indexed.must(Op.STARTS_WITH, "be") == []
    with pytest.raises(UnsupportedError, match="takes strings"):
        index.stored_type(pa.int64())


@pytest.mark.usefixtures("installed")
def test_the_documented_kind_stays_within_its_limits() -> None:
    index = parse_index("name:prefixlist(length=4)")
    many = [pa.array([f"{i:04}" for i in range(at, at + 600)]) for at in (0, 600)]
    builder = index.build(pa.string(), 1 << 20)
    builder.add(Chunk(many[0]))
    assert 600 * 4 <= builder.nbytes <= 600 * 16
    builder.add(Chunk(many[1]))
    assert builder.nbytes < 100
    builder.add(Chunk(many[0]))
    assert builder.finish() == Built(None, "more than 1,000 distinct beginnings")
    small = index.build(pa.string(), 1_000)
    small.add(Chunk(many[0]))
    assert small.finish() == Built(None, "its distinct beginnings take more than 1,000 bytes")


@pytest.mark.usefixtures("installed")
def test_the_documented_kind_serves_a_table(tmp_path: Path) -> None:
    # Three files by first letter, and one that comes after the build.
    table = tmp_path / "people"
    table.mkdir()
    for name in ("ann", "bob", "cid"):
        pq.write_table(
            pa.table({"name": [f"{name}{i}" for i in range(20)]}), table / f"{name}.parquet"
        )
        os.utime(table / f"{name}.parquet", (1, 1))
    people = Table(str(table))
    people.build(indexes=["name:prefixlist(length=2)"])
    pq.write_table(pa.table({"name": ["dora"]}), table / "new.parquet")
    kept = [Path(file.path).name for file in people.plan("name LIKE 'bo%'").files]
    assert kept == ["bob.parquet", "new.parquet"]


@pytest.mark.usefixtures("installed")
def test_an_entry_point_cannot_take_a_name_of_the_house() -> None:
    assert kind("minmax") is MinMax


@pytest.mark.usefixtures("installed")
def test_an_entry_point_that_does_not_load_is_unknown_and_says_why() -> None:
    assert kind("absent") is None
    assert "does not load" in why_unknown("absent")
    assert kind("number") is None
    assert "not a subclass" in why_unknown("number")
    assert not {"absent", "number"} & set(known_kinds())
    with pytest.raises(UnsupportedError, match="does not load"):
        parse_index("id:absent")
