"""The container: names, empty blobs, kinds that nobody knows, and what may follow the columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.paimon.format import container
from skipstone.paimon.format.container import HEAD_PREFIX, MAGIC, ContainerHead, IndexEntry

NAMES = st.text(
    st.characters() | st.sampled_from(["\0", "𝄞", "\ud83d", "\ude00", "é", "%", " ", "="]),
    max_size=12,
)
KINDS = st.sampled_from(["bitmap", "bsi", "range-bitmap", "bloom-filter", "unheard-of"])
COLUMNS = st.dictionaries(
    # Two halves of a pair side by side are the pair: only then is another text equal.
    NAMES.map(
        lambda name: name.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    ),
    st.dictionaries(KINDS, st.none() | st.binary(max_size=9), max_size=3),
    max_size=4,
)


@given(COLUMNS)
def test_what_is_written_is_read(columns: dict[str, dict[str, bytes | None]]) -> None:
    raw = container.to_bytes(columns)
    head, blobs = container.from_bytes(raw)
    assert {(name, kind): blob for name in columns for kind, blob in columns[name].items()} == blobs
    assert [column.name for column in head.columns] == sorted(columns)
    assert head.to_bytes() == raw[: head.length]
    assert container.head_length(raw[:HEAD_PREFIX]) == head.length
    turned = {name: dict(reversed(columns[name].items())) for name in reversed(columns)}
    assert container.to_bytes(turned) == raw


def test_layout() -> None:
    """Byte for byte: two columns, of which one has an index without a blob."""
    raw = container.to_bytes({"é": {"bsi": b"xy"}, "a\0": {"bitmap": None}})
    assert raw == b"".join(
        [
            MAGIC.to_bytes(8, "big"),
            (1).to_bytes(4, "big"),
            (70).to_bytes(4, "big"),
            (2).to_bytes(4, "big"),
            b"\x00\x03a\xc0\x80",
            (1).to_bytes(4, "big"),
            b"\x00\x06bitmap" + b"\xff\xff\xff\xff" + bytes(4),
            b"\x00\x02\xc3\xa9",
            (1).to_bytes(4, "big"),
            b"\x00\x03bsi" + (70).to_bytes(4, "big") + (2).to_bytes(4, "big"),
            bytes(4),
            b"xy",
        ]
    )
    head = ContainerHead.from_bytes(raw, len(raw))
    assert head.of_column("é") == (IndexEntry("bsi", 70, 2),)
    assert head.of_column("a\0")[0].is_empty
    assert head.of_column("b") == ()


def test_a_column_named_twice_has_the_indexes_of_both() -> None:
    entries = (IndexEntry("bitmap", -1, 0), IndexEntry("bsi", -1, 0))
    columns = tuple(container.ColumnIndexes("a", (entry,)) for entry in entries)
    length = HEAD_PREFIX + 8 + 2 * (3 + 4) + (2 + 6 + 8) + (2 + 3 + 8)
    head = ContainerHead(columns, length)
    assert ContainerHead.from_bytes(head.to_bytes()).of_column("a") == entries


def test_later_versions_may_add_to_the_head() -> None:
    head = ContainerHead((), HEAD_PREFIX + 4 + 9, b"\0\0\0\5later")
    assert ContainerHead.from_bytes(head.to_bytes()) == head


@pytest.mark.parametrize(
    "raw, complaint",
    [
        (b"", "too short"),
        (b"PAR1" * 4, "not a file index"),
        (MAGIC.to_bytes(8, "big") + bytes(8), "not a version"),
        (MAGIC.to_bytes(8, "big") + b"\0\0\0\1" + b"\0\0\0\x10", "head too short"),
        (MAGIC.to_bytes(8, "big") + b"\0\0\0\1" + b"\0\0\0\x40", "head ends early"),
        (MAGIC.to_bytes(8, "big") + b"\0\0\0\1" + b"\0\0\0\x14" + b"\x7f" * 4, "ends early"),
    ],
)
def test_what_is_no_container(raw: bytes, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        container.from_bytes(raw)


def test_a_newer_version_is_not_damage() -> None:
    with pytest.raises(UnsupportedError, match="version 2"):
        container.head_length(MAGIC.to_bytes(8, "big") + b"\0\0\0\2" + bytes(4))


@pytest.mark.parametrize("start, length", [(5, 1), (41, 3), (41, -1), (-1, 1), (2**31 - 1, 1)])
def test_blobs_lie_behind_the_head_and_inside(start: int, length: int) -> None:
    head = ContainerHead((container.ColumnIndexes("a", (IndexEntry("bsi", start, length),)),), 44)
    raw = head.to_bytes()
    assert len(raw) == 44
    with pytest.raises(FormatError, match="outside the container"):
        container.from_bytes(raw + b"12")


@pytest.mark.parametrize("name", [b"a\0", b"\xff", b"\xf0\x9d\x84\x9e", b"\xc0\x81", b"\xe0\x80"])
def test_names_are_modified_utf8(name: bytes) -> None:
    raw = MAGIC.to_bytes(8, "big") + b"\0\0\0\1" + (30 + len(name)).to_bytes(4, "big")
    raw += b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + bytes(8)
    with pytest.raises(FormatError, match="modified UTF-8"):
        ContainerHead.from_bytes(raw)


def test_limits() -> None:
    with pytest.raises(UnsupportedError, match="65,535"):
        container.to_bytes({"é" * 40_000: {}})

    class Huge(bytes):
        def __len__(self) -> int:
            return 2**31

    with pytest.raises(UnsupportedError, match="below 2 GiB"):
        container.to_bytes({"a": {"bitmap": Huge()}})
