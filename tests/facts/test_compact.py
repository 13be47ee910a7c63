"""Compact and drop: what they keep, what they remove, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.facts import Store
from skipstone.facts.compact import compact, drop_index, needs_merge
from skipstone.facts.encode import FileFacts
from skipstone.indexes.minmax import MinMax
from skipstone.indexes.valuelist import ValueList
from skipstone.pruning import Cause
from tests.facts.facts import MINMAX, SCHEMA, VALUES, Strange, Table, sidecar_at, sidecar_place
from tests.facts.test_parts import evidence_of

if TYPE_CHECKING:
    from skipstone.facts import MatchedFacts


def matched(table: Table) -> MatchedFacts:
    return Store.of_table(str(table.root)).snapshot().match(table.listing())


def files_below(table: Table, folder: str) -> list[str]:
    place = Path(table.store.location.root) / folder
    return sorted(path.name for path in place.iterdir()) if place.is_dir() else []


# -- compact ---------------------------------------------------------------------------------------


def test_many_parts_become_one_that_says_the_same(table: Table) -> None:
    """Two indexes in parts of their own, over overlapping files: six rows become four."""
    for only in ([0, 1], [2], [3]):
        table.build(MINMAX, only=only)
    table.build(VALUES, only=[0, 2])
    right = evidence_of(table)
    done = compact(table.store, table.listing)
    assert (done.parts_before, done.parts_after) == (4, 1)
    assert (done.rows_before, done.rows_after) == (6, 4)
    assert done.bytes_after < done.bytes_before
    assert len(files_below(table, "facts")) == 1
    assert evidence_of(table) == right


def test_a_merge_of_small_parts_leaves_a_much_larger_one(table: Table) -> None:
    """Until half of its facts are of no use."""
    for number in range(4, 40):
        table.write(f"more-{number}")
    large = [at for at, path in enumerate(table.listing().paths) if "more" in path]
    table.build(MINMAX, only=large)
    for at in sorted(set(range(40)) - set(large)):
        table.build(MINMAX, only=[at])
    right = evidence_of(table)
    kept = max(table.store.snapshot().parts, key=lambda part: part.rows)
    done = compact(table.store, table.listing, much_larger=1)
    assert (done.parts_before, done.parts_after, done.rows_after) == (5, 2, 40)
    assert kept.name in files_below(table, "facts")
    assert evidence_of(table) == right
    for number in range(4, 24):
        (table.root / f"more-{number}").unlink()
    done = compact(table.store, table.listing, much_larger=1)
    assert (done.parts_before, done.parts_after, done.rows_after) == (2, 1, 20)


def test_a_store_that_needs_nothing_is_left_alone(table: Table) -> None:
    (name,) = table.build(MINMAX)
    done = compact(table.store, table.listing)
    assert files_below(table, "facts") == [name]
    assert (done.parts_before, done.parts_after, done.rows_after) == (1, 1, 4)


def test_dead_facts_go_and_definitions_stay(table: Table) -> None:
    """One file deleted, one changed; then all are gone."""
    table.build(MINMAX, VALUES)
    (table.root / "a").unlink()
    table.write("b", b"changed")
    done = compact(table.store, table.listing)
    assert done.rows_after == 2
    assert matched(table).has_fact.tolist() == [False, True, True]
    assert matched(table).orphaned == 0
    for path in table.root.iterdir():
        path.unlink()
    done = compact(table.store, table.listing)
    assert (done.rows_after, done.parts_after) == (0, 1)
    assert len(matched(table).snapshot.definitions) == 2


def test_the_data_is_listed_after_the_parts(table: Table) -> None:
    """A file and its fact that appear while the compaction lists are not mistaken for dead."""
    table.build(MINMAX, only=[0])

    def listing_late() -> Any:
        table.write("new")
        table.build(MINMAX, only=[4])
        return table.listing()

    compact(table.store, listing_late)
    assert matched(table).has_fact.tolist() == [True, False, False, False, True]


def test_facts_whose_identities_only_fit_stay_apart(table: Table) -> None:
    """The same file indexed from a full listing and from one without etags."""
    files = table.listing()
    for etag in (files.object_id(0).etag, None):
        id_ = files.object_id(0)
        id_ = type(id_)(path=id_.path, size=id_.size, mtime=id_.mtime, unit="ns", etag=etag)
        table.store.write_part([FileFacts(id=id_, row_count=11)], [], pa.schema([]))
    done = compact(table.store, table.listing)
    assert done.rows_after == 2
    assert matched(table).has_fact.tolist() == [True, False, False, False]


def test_reasons_of_several_rows_come_together(table: Table) -> None:
    table.build(MINMAX, only=[0], reasons={"a": "old", "b": "too long"})
    table.build(VALUES, only=[0, 1], reasons={"a": "new"})
    compact(table.store, table.listing)
    reasons = table.store.snapshot().own("skipstone_reasons").to_pylist()
    assert sorted(map(dict, reasons), key=len) == [{"a": "new"}, {"a": "new", "b": "too long"}]


def test_a_damaged_index_column_costs_only_itself(table: Table) -> None:
    """Two parts; in one the pages of the value list are overwritten."""
    table.build(MINMAX, VALUES, only=[0, 1])
    table.build(MINMAX, VALUES, only=[2, 3])
    right = evidence_of(table)
    spoil(table.store.snapshot().parts[0].path, "s_valuelist_1.list.element")
    assert not evidence_of(table) >= right
    table.store = Store.of_table(str(table.root))
    compact(table.store, table.listing)
    lost = {("valuelist(s)", at, f"['v{at}']") for at in (0, 1)}
    assert evidence_of(table) == right - lost
    assert matched(table).reasons == ()


def spoil(path: str, column: str) -> None:
    """Overwrite the bytes of one column."""
    group = pq.read_metadata(path).row_group(0)
    for i in range(group.num_columns):
        chunk = group.column(i)
        if chunk.path_in_schema == column:
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            data = bytearray(Path(path).read_bytes())
            end = start + chunk.total_compressed_size
            data[end - 8 : end] = bytes(8)
            Path(path).write_bytes(data)
            return
    raise LookupError(column)


def test_a_part_whose_identities_are_damaged_is_left_where_it_is(table: Table) -> None:
    table.build(MINMAX, only=[0])
    table.build(MINMAX, only=[1])
    broken = table.store.snapshot().parts[0]
    spoil(broken.path, "skipstone_path")
    table.store = Store.of_table(str(table.root))
    done = compact(table.store, table.listing)
    assert broken.name in files_below(table, "facts")
    assert (done.parts_before, done.parts_after) == (2, 2)
    assert matched(table).has_fact.tolist() == [False, True, False, False]


def test_a_table_too_large_for_one_part_gets_several(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is lowered to the size of two parts."""
    for at in range(4):
        table.build(MINMAX, only=[at])
    right = evidence_of(table)
    size = table.store.snapshot().parts[0].uncompressed
    monkeypatch.setattr("skipstone.facts.compact.PART_BYTES", int(2.5 * size))
    done = compact(table.store, table.listing)
    assert done.parts_after == 2
    assert evidence_of(table) == right


def test_facts_beyond_the_size_of_a_part_are_published_in_several(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skipstone.facts.encode.PART_BYTES", 40)
    names = table.build(MINMAX)
    assert len(names) > 1
    assert matched(table).has_fact.all()


def test_needs_merge_above_32_parts_or_8_small_ones(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(8):
        table.build(MINMAX, only=[0])
    assert not needs_merge(table.store.snapshot())
    table.build(MINMAX, only=[0])
    assert needs_merge(table.store.snapshot())
    monkeypatch.setattr("skipstone.facts.compact.SMALL", 0)
    assert not needs_merge(table.store.snapshot())
    monkeypatch.setattr("skipstone.facts.compact.MOST_PARTS", 8)
    assert needs_merge(table.store.snapshot())
    compact(table.store, table.listing)
    assert not needs_merge(table.store.snapshot())


# -- unknown kinds ---------------------------------------------------------------------------------

LEAVES = [
    pa.int8(),
    pa.uint64(),
    pa.float16(),
    pa.decimal128(38, 5),
    pa.large_string(),
    pa.binary(3),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.time64("us"),
    pa.duration("ms"),
    pa.dictionary(pa.int32(), pa.string()),
    pa.bool_(),
]


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda types: pa.struct([pa.field(f"f.{i} é", t) for i, t in enumerate(types)])
        ),
        inner.map(lambda t: pa.map_(pa.string(), t)),
    )


TYPES = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)


@given(TYPES, st.integers(0, 50))
def test_unknown_kinds_survive_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, type_: pa.DataType, seed: int
) -> None:
    """Compacted, and rewritten by the drop of another index: values, type and parameters stay."""
    table = Table(tmp_path_factory.mktemp("u") / "t")
    strange = Strange("id", type_, **{"a.b": "é", "n": "1"})
    values = [pa.array([made(type_, seed + i)], type_) for i in range(3)]
    for i in range(3):
        table.write(f"f{i}")
        (fact,) = table.facts(MINMAX, only=[i])
        given_ = FileFacts(id=fact.id, values={**fact.values, strange: values[i]})
        table.store.write_part([given_], [MINMAX, strange], SCHEMA)
    for rewrite in (
        lambda: compact(table.store, table.listing),
        lambda: drop_index(table.store, "minmax", "id"),
        lambda: compact(table.store, table.listing),
    ):
        rewrite()
        snapshot = Store.of_table(str(table.root)).snapshot()
        (field,) = [f for f in snapshot.fields if f.definition and f.definition.kind == "strange"]
        assert field.definition is not None
        assert dict(field.definition.params) == {"a.b": "é", "n": "1"}
        assert field.arrow.type == type_
        (piece,) = snapshot.values(field)
        assert piece.values.equals(pa.concat_arrays(values))


def made(type_: pa.DataType, number: int) -> Any:
    """Some value of a type; every third is null."""
    if number % 3 == 2:
        return None
    if pa.types.is_struct(type_):
        return {field.name: made(field.type, number + i) for i, field in enumerate(type_)}
    if pa.types.is_map(type_):
        return [(f"k{i}", made(type_.item_type, number + i)) for i in range(number % 4)]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [made(type_.value_type, number + i) for i in range(number % 4)]
    if pa.types.is_dictionary(type_) or pa.types.is_large_string(type_):
        return f"é{number}"
    if pa.types.is_fixed_size_binary(type_):
        return bytes([number % 256]) * 3
    if pa.types.is_boolean(type_):
        return number % 2 == 0
    if pa.types.is_decimal(type_):
        return number
    return pa.scalar(number % 100, pa.int64()).cast(type_).as_py()


def test_fields_and_columns_that_a_newer_writer_added_survive(table: Table) -> None:
    """An entry with further keys, and a column that no entry describes."""
    from skipstone.facts.part_columns import OWN, FactField
    from skipstone.facts.part_writer import encode_part

    table.build(MINMAX)
    part = table.store.snapshot().parts[0]
    names = [*OWN, *(field.arrow.name for field in part.fields)]
    columns = part.read(table.store.storage, names)
    note = pa.field("skipstone_note", pa.list_(pa.int32()), metadata={"k": "v"})
    noted = pa.array([[1], None, [], [2, 3]], note.type)
    described = FactField.from_json(
        pa.field("id_minmax_2", columns["id_minmax_2"].type),
        {**(part.fields[0].to_json() or {}), "future": {"x": [1]}},
    )
    fields = [described, *part.fields[1:], FactField.from_json(note, None)]
    name, data = encode_part(columns.append_column("note", noted), fields)
    table.store.storage.put(table.store.location.part(name), data)
    table.store.storage.delete(part.path)
    table.build(VALUES)
    for _ in range(2):
        store = Store.of_table(str(table.root))
        found = {field.stem: field for field in store.snapshot().fields}
        assert '"future":{"x":[1]}' in found["id_minmax_2"].entry
        assert found["skipstone_note"].arrow.metadata[b"k"] == b"v"
        (piece,) = store.snapshot().values(found["skipstone_note"])
        assert piece.values.equals(noted)
        compact(store, table.listing)
    assert len(store.snapshot().parts) == 1


# -- drop ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["minmax", "MINMAX"])
def test_one_index_goes_and_the_others_stay(table: Table, kind: str) -> None:
    """MinMax over two columns and a value list, in two parts of different index sets."""
    table.build(MINMAX, VALUES, only=[0, 1])
    table.build(MinMax("é.b"), MINMAX, only=[2, 3])
    right = evidence_of(table)
    assert drop_index(table.store, kind, "s") == drop_index(table.store, "other", "id") == ()
    assert evidence_of(table) == right
    (gone,) = drop_index(table.store, kind, "id")
    assert str(gone) == "minmax(id)"
    of_id = {each for each in right if "(id)" in str(each) or "'id'" in str(each)}
    assert len(of_id) == 12
    assert evidence_of(table) == right - of_id
    assert [str(each) for each in matched(table).snapshot.definitions] == [
        "valuelist(s)",
        "minmax(é.b)",
    ]
    assert matched(table).has_fact.all()


def test_null_counts_stay_while_another_index_needs_them(table: Table) -> None:
    table.build(MINMAX, ValueList("id"))
    drop_index(table.store, "valuelist", "id")
    (nulls,) = (e for e in matched(table).evidence({"id"}) if e.name == "nulls")
    assert nulls.stored is not None
    assert nulls.stored.nulls.tolist() == [1, 1, 1, 1]
    drop_index(table.store, "minmax", "id")
    assert files_below(table, "facts") == []
    assert not table.store.exists()


def test_all_parameters_of_an_index_go_together(table: Table) -> None:
    table.build(ValueList("s", max_values=5), MINMAX)
    table.build(ValueList("s", max_values=9), MINMAX)
    assert len(drop_index(table.store, "valuelist", "s")) == 2
    assert [e.name for e in matched(table).evidence({"s"})] == []


def test_unknown_kinds_can_be_dropped_by_name(table: Table) -> None:
    table.build(Strange("id", pa.int64()), MINMAX)
    assert len(drop_index(table.store, "strange", "id")) == 1
    assert matched(table).reasons == ()


def test_sidecars_outlive_the_last_index(table: Table) -> None:
    table.build(MINMAX, only=[0], container=b"x" * 600)
    drop_index(table.store, "minmax", "id")
    place = sidecar_place(matched(table), "container", 0)
    assert place is not None
    assert sidecar_at(place, table.store.storage) == b"x" * 600


def test_drop_all_leaves_nothing(table: Table) -> None:
    table.build(MINMAX, container=b"x" * 600)
    table.store.drop()
    assert not Path(table.store.location.root).exists()
    assert sorted(path.name for path in table.root.iterdir()) == ["a", "b", "c", "d"]
    assert table.store.snapshot().reasons[0].cause is Cause.ABSENT


def test_parts_too_large_to_merge_at_once_are_merged_by_halves(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow refuses more than two parts at a time, as it does beyond 2 GiB of one column."""
    from skipstone.facts import compact as compaction
    from skipstone.facts.merge import merge

    for at in range(4):
        table.build(MINMAX, only=[at])
    right = evidence_of(table)

    def narrow(parts: Any, *rest: Any) -> Any:
        if len(parts) > 2:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return merge(parts, *rest)

    monkeypatch.setattr(compaction, "merge", narrow)
    done = compact(table.store, table.listing)
    assert (done.parts_after, done.rows_after) == (2, 4)
    assert evidence_of(table) == right


def test_values_of_other_parameters_go_once_all_files_have_newer_ones(table: Table) -> None:
    """Until then they stay, and so do those that this listing says nothing about."""
    old, new = ValueList("s", max_values=7), ValueList("s", max_values=9)
    table.build(MINMAX, old)
    table.build(new, only=[0, 1, 2])
    compact(table.store, table.listing)
    assert parameters(table) == {"7", "9"}
    table.build(new, only=[3])
    (table.root / "d").rename(table.root / "e")
    compact(table.store, table.listing)
    assert parameters(table) == {"9"}
    assert {each.kind for each in table.store.snapshot().definitions} == {"minmax", "valuelist"}
    table.build(old, only=[0])
    compact(table.store, table.listing)
    assert parameters(table) == {"7", "9"}


def parameters(table: Table) -> set[str]:
    found = [each.definition for each in table.store.snapshot().fields if each.definition]
    return {dict(each.params)["max_values"] for each in found if each.kind == "valuelist"}
