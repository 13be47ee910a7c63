"""Trees of index pages by themselves: how they are grouped, where their pages go, what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import UnsupportedError
from skipstone.parquet.format.enums import Type
from skipstone.parquet.pages.index_page import ROLL_OVER, IndexPage
from skipstone.parquet.pages.page import read_page
from skipstone.parquet.writing.index_page_tree import place_index_pages
from tests.parquet.index_trees import leaf_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.writing.index_page_tree import IndexPagePlan

I64 = leaf_of(Type.INT64)


def i64(*values: int) -> list[bytes]:
    return [value.to_bytes(8, "little") for value in values]


def shape(plan: IndexPagePlan) -> str:
    return "".join("D" if isinstance(each, int) else "I" for each in plan.order())


def test_the_write_path_of_the_specification() -> None:
    """Five data pages, three entries in a page: DataPage × 3, IndexPage, DataPage × 2, IndexPage,
    IndexPage; without interleaving the same index pages in the same order, behind the data."""
    keys = i64(10, 20, 30, 40, 50)
    plan = place_index_pages(
        first=7, sizes=[100] * 5, leaf=I64, keys=keys, interleave=True, roll_over=60
    )
    assert shape(plan) == "DDDIDDII"
    assert plan.levels == 2
    pages = {each.offset: read(each.data, each.offset) for each in plan.pages}
    first, second, root = pages
    assert plan.index_page_offset == root
    assert plan.data_offsets == (7, 107, 207, second - 200, second - 100)
    assert list(pages[root].keys or ()) == i64(30, 50)
    assert pages[root].page_offset.tolist() == [first, second]
    behind = place_index_pages(first=7, sizes=[100] * 5, leaf=I64, keys=keys, roll_over=60)
    assert shape(behind) == "DDDDDIII"
    assert behind.data_offsets == (7, 107, 207, 307, 407)


def test_a_tree_of_keys_has_one_of_ordinals_whose_root_is_behind_it() -> None:
    """Eight data pages, two or three entries in a page."""
    plan = place_index_pages(
        first=0,
        sizes=[10] * 8,
        leaf=I64,
        keys=i64(*range(8)),
        ordinals=list(range(0, 80, 10)),
        roll_over=40,
    )
    assert shape(plan).lstrip("D") == "I" * len(plan.pages)
    kinds = [read(each.data, each.offset).keys is not None for each in plan.pages]
    assert kinds == [False] * 3 + [True] * 6 + [True, False]
    assert plan.pages[-2].offset == plan.index_page_offset
    beside = read(plan.pages[-1].data, plan.pages[-1].offset)
    assert beside.ordinals is not None
    assert beside.ordinals.tolist() == [0, 30, 60]


def test_pages_roll_over_at_64_kib() -> None:
    """Of an i64 key 3,276 entries of 20 bytes go into a page, of an ordinal 5,461."""
    sizes = [1_000] * 6_000
    keyed = place_index_pages(first=0, sizes=sizes, leaf=I64, keys=i64(*range(6_000)))
    bodies = [len(read_page(each.data).body) for each in keyed.pages]
    assert bodies == [3_276 * 20, 2_724 * 20, 2 * 20]
    assert max(bodies) <= ROLL_OVER < max(bodies) + 20
    rows = place_index_pages(first=0, sizes=sizes, leaf=I64, ordinals=range(6_000))
    assert [len(read_page(each.data).body) // 12 for each in rows.pages] == [5_461, 539, 2]


def test_keys_longer_than_a_page_still_make_a_tree() -> None:
    """Two entries at least in a page, so that every level is smaller than the one below."""
    leaf = leaf_of(Type.BYTE_ARRAY)
    keys = [bytes([at]) * 100_000 for at in range(9)]
    plan = place_index_pages(first=4, sizes=[5] * 9, leaf=leaf, keys=keys)
    assert plan.levels == 4
    assert walked(plan, leaf) == keys


def read(data: bytes, offset: int, leaf: ColumnDescriptor = I64) -> IndexPage:
    return IndexPage.from_page(read_page(data, base=offset), leaf.type, leaf.type_length)


def walked(plan: IndexPagePlan, leaf: ColumnDescriptor) -> list[bytes | int]:
    """The keys at the leaves of the first tree, every claim on the way held against them."""
    pages = {each.offset: each for each in plan.pages}
    places = dict.fromkeys(plan.data_offsets)
    seen: list[int] = []

    def below(offset: int) -> list[bytes | int]:
        page = read(pages[offset].data, offset, leaf)
        held: Sequence[bytes | int]
        if page.keys is not None:
            held = page.keys.to_list()
        else:
            assert page.ordinals is not None
            held = page.ordinals.tolist()
        found: list[bytes | int] = []
        entries = zip(page.page_offset.tolist(), page.page_len.tolist(), held, strict=True)
        for at, length, key in entries:
            assert at + length <= offset
            if at in places:
                seen.append(at)
                found.append(key)
                continue
            assert len(pages[at].data) == length
            inner = below(at)
            assert key == (inner[-1] if page.keys is not None else inner[0])
            found += inner
        return found

    found = below(plan.index_page_offset)
    assert tuple(seen) == plan.data_offsets
    return found


@given(
    st.lists(st.tuples(st.integers(1, 500), st.binary(max_size=40)), min_size=1, max_size=80),
    st.integers(0, 90),
    st.integers(0, 400),
    st.booleans(),
    st.booleans(),
)
def test_every_data_page_is_a_leaf_once_and_in_order(
    drawn: list[tuple[int, bytes]], first: int, roll_over: int, interleave: bool, keyed: bool
) -> None:
    sizes = [size for size, _ in drawn]
    keys = sorted(key for _, key in drawn)
    rows = [7 * at for at in range(len(drawn))]
    leaf = leaf_of(Type.BYTE_ARRAY)
    both = keyed and not interleave
    plan = place_index_pages(
        first=first,
        sizes=sizes,
        leaf=leaf,
        keys=keys if keyed else None,
        ordinals=rows if both or not keyed else None,
        interleave=interleave,
        roll_over=roll_over,
    )
    assert walked(plan, leaf) == (keys if keyed else rows)
    at = first
    for piece in plan.order():
        if isinstance(piece, int):
            assert plan.data_offsets[piece] == at
            at += sizes[piece]
        else:
            page = read(piece, at, leaf)
            assert len(page) <= 2 or len(read_page(piece).body) <= roll_over
            at += len(piece)
    assert at == first + sum(sizes) + plan.length


def test_what_cannot_be_placed() -> None:
    with pytest.raises(UnsupportedError, match="2 GiB"):
        place_index_pages(first=0, sizes=[1 << 30] * 2, leaf=I64, ordinals=[0, 1])
    with pytest.raises(UnsupportedError, match="31 bits"):
        place_index_pages(first=0, sizes=[1], leaf=I64, ordinals=[1 << 31])
    with pytest.raises(UnsupportedError, match="booleans"):
        place_index_pages(first=0, sizes=[1], leaf=leaf_of(Type.BOOLEAN), keys=[b"\1"])
    wrong: list[dict[str, Any]] = [
        {"sizes": [1]},
        {"sizes": [], "ordinals": []},
        {"sizes": [1, 1], "ordinals": [0]},
        {"sizes": [1], "ordinals": [0], "keys": i64(1), "interleave": True},
    ]
    for each in wrong:
        with pytest.raises(ValueError, match=r"index|tree|keys"):
            place_index_pages(first=0, leaf=I64, **each)
