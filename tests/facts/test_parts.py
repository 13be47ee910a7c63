"""Fact parts: what is in them, what is not believed of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.facts import Store
from skipstone.facts.encode import FileFacts
from skipstone.facts.part_columns import OWN, REASONS, ROW_GROUPS, ROWS, own_for_plans
from skipstone.facts.parts import MERGED, name_of_part, open_part
from skipstone.indexes.minmax import MinMax
from skipstone.indexes.valuelist import ValueList
from skipstone.pruning import Cause
from tests.facts.facts import MINMAX, SCHEMA, VALUES, Strange, Table

if TYPE_CHECKING:
    from skipstone.facts.parts import Part


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three data files with odd names, no facts yet."""
    table = Table(tmp_path / "events")
    for name in ("a b.parquet", "p=é/x%20y", "z"):
        table.write(name)
    return table


def only_part(store: Store) -> Part:
    (part,) = store.snapshot().parts
    return part


def test_a_part_lies_beside_the_table_under_a_name_that_nobody_reads(table: Table) -> None:
    (name,) = table.build(MINMAX)
    parts = sorted(p for p in table.root.parent.rglob("*") if p.is_file())
    mine = [p for p in parts if table.root not in p.parents]
    assert mine == [table.root.parent / "_events.skipstone" / "facts" / name]
    assert name.startswith("part-")
    assert not name.endswith(".parquet")


def test_columns_that_every_plan_needs_are_read_together(table: Table) -> None:
    """Each read opens all parts again, which takes most of the time of a first plan."""
    table.build(MINMAX)
    snapshot = table.store.snapshot()
    snapshot.own(ROW_GROUPS)
    before = table.store.storage.requests
    assert before
    for name in own_for_plans(()):
        assert len(snapshot.own(name)) == len(snapshot.identities)
    assert table.store.storage.requests == before
    snapshot.own(REASONS)
    assert table.store.storage.requests > before


def test_columns_are_named_and_encoded_as_in_version_4_of_xskipper(table: Table) -> None:
    table.build(MINMAX, VALUES, MinMax("é.b"), Strange("id", pa.binary()))
    schema = pq.read_schema(only_part(table.store).path)
    indexes = [field for field in schema if field.name not in OWN]
    assert [(field.name, str(field.type)) for field in indexes] == [
        ("id_minmax_2", "struct<min: int64, max: int64>"),
        ("s_valuelist_1", "list<element: string>"),
        ("é$#$b_minmax_5", "struct<min: double, max: double>"),
        ("id_strange_2", "binary"),
        ("id_nullcount_2", "int64"),
        ("s_nullcount_1", "int64"),
        ("é$#$b_nullcount_5", "int64"),
    ]
    row = pq.read_table(only_part(table.store).path).to_pylist()[0]
    files = table.listing()
    assert row["obj_name"] == f"{files.paths[0]}#{files.mtimes[0] // 10**6}"
    assert row["id_minmax_2"] == {"min": 0, "max": 9}
    assert row["s_valuelist_1"] == ["v0"]


def test_sparks_schema_names_the_indexes(table: Table) -> None:
    table.build(MINMAX, Strange("id", pa.duration("us")), VALUES)
    metadata = only_part(table.store).metadata.metadata
    document = json.loads(metadata[b"org.apache.spark.sql.parquet.row.metadata"])
    described = {field["name"]: field["metadata"].get("index") for field in document["fields"]}
    assert described["id_minmax_2"] == {"name": "minmax", "cols": ["id"], "params": {}}
    assert described["s_valuelist_1"]["name"] == "valuelist"
    assert "id_strange_2" not in described  # Spark has no such type
    assert described["obj_name"] is None


def test_binary_columns_are_plain_and_the_rest_is_compressed(table: Table) -> None:
    table.build(MINMAX, Strange("id", pa.binary()))
    group = only_part(table.store).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert columns["id_strange_2"].compression == "UNCOMPRESSED"
    assert set(columns["id_strange_2"].encodings) <= {"PLAIN", "RLE"}
    assert columns["id_minmax_2.min"].compression == "ZSTD"
    assert columns["skipstone_path"].compression == "ZSTD"


def test_everything_a_fact_says_comes_back(table: Table) -> None:
    given_ = table.facts(
        MINMAX,
        only=[1],
        reasons={"valuelist(s)": "above the limit"},
        footer_length=1234,
        page_index=(56, 78),
    )
    table.store.write_part(given_, [MINMAX], SCHEMA, fingerprint="abc")
    row = only_part(table.store).read(table.store.storage, list(OWN)).to_pylist()[0]
    id_ = given_[0].id
    assert row["skipstone_path"] == id_.path
    assert (row["skipstone_size"], row["skipstone_mtime"]) == (id_.size, id_.mtime)
    assert (row["skipstone_unit"], row["skipstone_etag"]) == ("ns", id_.etag)
    assert row["skipstone_fingerprint"] == "abc"
    assert row["skipstone_rows"] == 11
    assert row["skipstone_reasons"] == [("valuelist(s)", "above the limit")]
    assert row["skipstone_footer_length"] == 1234
    assert (row["skipstone_page_index_offset"], row["skipstone_page_index_length"]) == (56, 78)


def test_definitions_are_published_over_an_empty_table(table: Table) -> None:
    table.store.write_part([], [MINMAX, VALUES], SCHEMA)
    snapshot = table.store.snapshot()
    assert [str(each) for each in snapshot.definitions] == ["minmax(id)", "valuelist(s)"]
    assert not snapshot.match(table.listing()).has_fact.any()


def test_failed_files_have_no_facts(table: Table) -> None:
    failed = FileFacts(id=table.listing().object_id(0), error="not a Parquet file")
    table.store.write_part([failed, *table.facts(MINMAX, only=[1])], [MINMAX], SCHEMA)
    matched = table.store.snapshot().match(table.listing())
    assert matched.has_fact.tolist() == [False, True, False]


def test_a_file_whose_name_is_no_text_has_no_facts(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    (table.root / b"\xff".decode("utf-8", "surrogateescape")).write_bytes(b"data")
    table.build(MINMAX)
    matched = table.store.snapshot().match(table.listing())
    assert matched.has_fact.tolist() == [True, True, True, False]
    assert "not UTF-8" in caplog.text


def test_a_value_of_another_type_is_not_written(table: Table) -> None:
    (fact,) = table.facts(MINMAX, only=[0])
    wrong = FileFacts(id=fact.id, values={MINMAX: pa.array([1])})
    with pytest.raises(FormatError, match="one value of struct"):
        table.store.write_part([wrong], [MINMAX], SCHEMA)
    assert not table.store.exists()


def test_a_type_that_a_kind_cannot_index_is_refused_before_anything_is_written(
    table: Table,
) -> None:
    schema = pa.schema([("id", pa.list_(pa.int64()))])
    with pytest.raises(UnsupportedError, match="cannot index column 'id'"):
        table.store.write_part([], [MINMAX], schema)
    assert not table.store.exists()


def test_columns_that_differ_in_case_only_stay_apart(table: Table) -> None:
    schema = pa.schema([("a", pa.int64()), ("A", pa.int64())])
    lower, upper = MinMax("a"), MinMax("A")
    columns = {"a": pa.array([1]), "A": pa.array([2])}
    from tests.facts.facts import facts

    fact = facts(table.listing().object_id(0), columns, lower, upper)
    table.store.write_part([fact], [lower, upper], schema)
    matched = table.store.snapshot().match(table.listing())
    found = {e.column: e.stored.values.to_pylist() for e in matched.evidence({"A"}) if e.stored}
    assert found.keys() == {"A"}
    (evidence,) = (e for e in matched.evidence({"A"}) if e.name == "minmax")
    assert evidence.stored is not None
    assert evidence.stored.values.to_pylist() == [{"min": 2, "max": 2}]


# -- damage ----------------------------------------------------------------------------------------


def evidence_of(table: Table) -> set[object]:
    """Everything that the facts say of the files of a table, one statement each."""
    matched = Store.of_table(str(table.root)).snapshot().match(table.listing())
    said: set[object] = {("rows", at, n) for at, n in enumerate(matched.rows.tolist()) if n >= 0}
    for each in matched.evidence({"id", "s"}):
        stored = each.stored
        assert stored is not None
        values = stored.values.to_pylist()
        for file, row in enumerate(stored.row_of_file.tolist()):
            if row >= 0:
                said.add((repr(each), file, str(values[row])))
                said |= {("nulls", each.column, file, n) for n in [stored.nulls[row]] if n >= 0}
                said |= {("rows", file, n) for n in [stored.rows[row]] if n >= 0}
    return said


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, Path, bytes]:
    """A table of two files, its only part, and that part's bytes."""
    table = Table(tmp_path_factory.mktemp("damage") / "t")
    table.write("a")
    table.write("b")
    table.build(MINMAX, VALUES)
    path = Path(only_part(table.store).path)
    return table, path, path.read_bytes()


@pytest.mark.fuzz
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=3
    )
)
def test_a_changed_byte_says_nothing_or_nothing_else(
    whole: tuple[Table, Path, bytes], changes: list[tuple[int, int]]
) -> None:
    table, path, original = whole
    path.write_bytes(original)
    right = evidence_of(table)
    assert len(right) == 14
    content = bytearray(original)
    for at, change in changes:
        content[at % len(content)] ^= change
    path.write_bytes(content)
    assert evidence_of(table) <= right


@pytest.mark.parametrize("length", [0, 1, 7, 8, 11, 12, 100, 2000])
def test_a_truncated_part_says_nothing_with_a_reason(
    table: Table, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One whole part about file 0, one cut off about file 1."""
    table.build(MINMAX, only=[0])
    (name,) = table.build(MINMAX, only=[1])
    path = Path(table.store.location.part(name))
    path.write_bytes(path.read_bytes()[:length])
    store = Store.of_table(str(table.root))
    matched = store.snapshot().match(table.listing())
    assert matched.has_fact.tolist() == [True, False, False]
    (reason,) = (r for r in matched.reasons if r.subject == f"fact part {name}")
    assert reason.cause is Cause.CORRUPT
    store.snapshot()
    store.snapshot().match(table.listing())
    assert caplog.text.count("it says nothing") == 1  # once, not per query


def test_parts_that_are_merged_meanwhile_are_one_warning(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """Two readers of one index list two parts, which are gone before they read them."""
    names = [name for at in (0, 1) for name in table.build(MINMAX, only=[at])]
    snapshots = [Store.of_table(str(table.root)).snapshot() for _ in range(2)]
    for name in names:
        Path(table.store.location.part(name)).unlink()
    for snapshot in snapshots:
        matched = snapshot.match(table.listing())
        assert not matched.has_fact.any()
        gone = {each.subject for each in matched.reasons if MERGED in each.text}
        assert gone == {f"fact part {name}" for name in names}
    assert caplog.text.count("say nothing") == 1


def test_a_renamed_part_is_not_believed(table: Table) -> None:
    (name,) = table.build(MINMAX)
    path = Path(table.store.location.part(name))
    path.rename(path.with_name("part-00000000-0000-0000-0000-000000000000"))
    assert [r.cause for r in table.store.snapshot().reasons] == [Cause.CORRUPT]


def test_a_part_of_a_newer_version_says_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skipstone.facts.part_writer.VERSION", 2)
    table.build(MINMAX)
    monkeypatch.undo()
    store = Store.of_table(str(table.root))
    (reason,) = store.snapshot().reasons
    assert reason.cause is Cause.UNSUPPORTED
    assert "version 2" in reason.text


@pytest.mark.fuzz
@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_our_errors(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "part-x"
    for content in (data, b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1"):
        path.write_bytes(content)
        store = Store(str(path.parent), Store.of_table("/x").storage)
        with pytest.raises((FormatError, UnsupportedError)):
            open_part(str(path), len(content), 0, store.storage)


@pytest.mark.parametrize(
    "entry",
    [
        {"field": "id_minmax_2", "index": {"name": "minmax", "cols": ["id"]}},
        {"field": "id_minmax_2", "types": "?", "index": {"name": "minmax", "cols": ["id"]}},
        {"field": "id_minmax_2", "index": None},
        {"field": "id_minmax_2", "index": {"cols": 5}, "types": "AAAA"},
        {"field": "id_minmax_2", "nulls": "id"},
        {"index": {}},
        7,
    ],
)
def test_a_footer_that_describes_nothing_is_damage(
    table: Table, entry: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skipstone.facts.part_columns.FactField.to_json", lambda self: entry)
    table.build(MINMAX)
    monkeypatch.undo()
    (reason,) = Store.of_table(str(table.root)).snapshot().reasons
    assert reason.cause is Cause.CORRUPT


def test_value_lists_are_as_built(table: Table) -> None:
    table.build(ValueList("s"))
    matched = table.store.snapshot().match(table.listing())
    (lists,) = (e for e in matched.evidence({"s"}) if e.name == "valuelist")
    assert lists.stored is not None
    assert lists.stored.values.to_pylist() == [["v0"], ["v1"], ["v2"]]
    assert lists.stored.nulls.tolist() == [1, 1, 1]
    assert lists.stored.rows.tolist() == [11, 11, 11]


def test_a_part_whose_columns_have_no_name_is_not_believed(table: Table) -> None:
    """The footer has the name that belongs to it, and a name in it is not text."""
    (name,) = table.build(MINMAX)
    path = Path(table.store.location.facts) / name
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    damaged = data[:start] + data[start:].replace(ROWS.encode(), ROWS.encode()[:-1] + b"\xdf")
    assert damaged != data
    path.rename(path.with_name("whole"))
    other = path.with_name(name_of_part(damaged[start:-8]))
    other.write_bytes(damaged)
    with pytest.raises(FormatError, match="not a fact part"):
        open_part(str(other), len(damaged), 0, table.store.storage)
