"""Grams and tokens of texts: what is stored, what is asked, and that no matching file is lost."""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skipstone
from skipstone.errors import UnsupportedError
from skipstone.indexes.registry import parse_index
from skipstone.indexes.text import NGrams, TextIndex, Tokens
from skipstone.indexes.text_keys import Seen, codes_of, fold, gram_keys, runs_of, token_keys, tokens
from skipstone.predicate.binding import Binder, bind
from skipstone.predicate.kernels.rows import RowValues as Kernels
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Op, leaves
from skipstone.predicate.types import quote
from skipstone.predicate.zones import zone
from skipstone.pruning import Cause
from skipstone.pruning.residual import matching
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
from tests.build.built import Indexed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


SCHEMA = pa.schema([("c", pa.string())])
# Cases that change length, depend on neighbours, or are of another version of Unicode.
ALPHABET = "abAB1_ -%\\.\n" + "éÉßẞİıΣσςΩ\u2126K\u212aÅ\u212bǅǆꟋɤ" + "中\u0307\ufffd😀𐐀𐐨Ა"
WORDS = st.text(st.sampled_from(ALPHABET), max_size=12)
KINDS: list[TextIndex] = [
    NGrams("c", 2),
    NGrams("c", 3, lower=False),
    NGrams("c", 2, long=0, fpp=0.9),
    Tokens("c"),
    Tokens("c", lower=False),
    Tokens("c", "[a-b_]"),
]


def kept(indexed: Indexed, where: str) -> list[int]:
    """The files that all leaves of an AND of leaves leave."""
    flags = np.ones(len(indexed.files), np.bool_)
    for leaf in leaves(bind(parse_sql(where), SCHEMA)):
        bounds = indexed.ask(leaf).bounds
        if bounds is not None:
            flags &= bounds.may
    return [int(at) for at in np.flatnonzero(flags)]


def silent(indexed: Indexed, where: str) -> str:
    """Why the index says nothing about a condition of one leaf."""
    (leaf,) = leaves(bind(parse_sql(where), SCHEMA))
    answer = indexed.ask(leaf)
    assert answer.bounds is None
    assert answer.reasons[0].cause is Cause.NOT_APPLICABLE
    return answer.reasons[0].text


# Each file has one line of its own; the last two have no text.
LINES = [
    ["GET /index.html 200 trace=3f2a9c0d1e77b0c4 done", None],
    ["ERROR Connection TIMEOUT in reader", "ok"],
    ["Zażółć gęślą jaźń 😀 größe"],
    ["", "ab"],
    [None, None],
]


@pytest.fixture(scope="module")
def grams() -> Indexed:
    return Indexed(NGrams("c", fpp=0.001), [pa.array(file, pa.string()) for file in LINES])


@pytest.mark.parametrize(
    "where, files",
    [
        ("c LIKE '%9c0d1e%'", [0]),
        ("c LIKE '%/index%done'", [0]),
        ("c LIKE 'GET%'", [0]),
        ("c LIKE '%rror%'", [1]),
        ("c LIKE '%TIM_OUT%'", [1]),
        ("c ILIKE '%timeout%'", [1]),
        ("contains(lower(c), 'timeout')", [1]),
        ("endswith(c, 'reader')", [1]),
        ("c RLIKE 'TIME ?OUT'", [1]),
        ("c RLIKE '(?i)timeout|jaźń'", [1]),
        ("c RLIKE 'html [0-9]+ trace'", [0]),
        ("c = 'Zażółć gęślą jaźń 😀 größe'", [2]),
        ("c IN ('GET /index.html 200 trace=3f2a9c0d1e77b0c4 done', 'nothing')", [0]),
        ("c ILIKE '%GĘŚLĄ%'", [2]),
        ("c LIKE '%ń 😀 g%'", [2]),
        ("c LIKE '%xyz%'", []),
        ("c LIKE '%100\\\\%%'", []),
    ],
)
def test_files_that_a_pattern_leaves(grams: Indexed, where: str, files: list[int]) -> None:
    # A folded index answers exact patterns as a superset: "jaźń" is of file 2 in lower case alone.
    assert kept(grams, where) == files


def test_alternatives_are_asked_one_by_one(grams: Indexed) -> None:
    found = [
        kept(grams, f"c LIKE '{leaf.values[0]!s}'")
        for leaf in leaves(bind(parse_sql("c RLIKE '(index|TIMEOUT)|größe'"), SCHEMA))
    ]
    assert found == [[0], [1], [2]]


@pytest.mark.parametrize(
    "where, why",
    [
        ("c LIKE '%ab%'", "needs no run of 3 characters"),
        ("c LIKE '%a_c%'", "needs no run of 3 characters"),
        ("c = 'ab'", "needs no run of 3 characters"),
        ("c > 'abc'", "says nothing about >"),
        ("c NOT LIKE '%abc%'", "says nothing about NOT LIKE"),
    ],
)
def test_why_it_says_nothing(grams: Indexed, where: str, why: str) -> None:
    assert why in silent(grams, where)


def test_an_index_that_keeps_case_says_nothing_where_case_is_ignored() -> None:
    indexed = Indexed(NGrams("c", lower=False), [pa.array(["Timeout"])])
    (leaf,) = leaves(bind(parse_sql("c ILIKE '%timeout%'"), SCHEMA))
    assert "built with lower=false" in indexed.ask(leaf).reasons[0].text
    assert kept(indexed, "c LIKE '%timeout%'") == []
    assert kept(indexed, "c LIKE '%Timeout%'") == [0]


def test_tokens_count_where_both_ends_show() -> None:
    indexed = Indexed(Tokens("c"), [pa.array(file, pa.string()) for file in LINES])
    for where, files in {
        "c LIKE '% TIMEOUT %'": [1],
        "c LIKE '%=3f2a9c0d1e77b0c4 %'": [0],
        "c LIKE 'error %'": [1],
        "c LIKE '%reader'": [0, 1, 2, 3],  # "proofreader" matches too
        "c LIKE '% reader'": [1],
        "c = 'ab'": [3],
        "c ILIKE '% größe'": [2],
        "c LIKE '% absent %'": [],
    }.items():
        if where == "c LIKE '%reader'":
            assert "no token" in silent(indexed, where)
        else:
            assert kept(indexed, where) == files, where


def test_other_token_characters() -> None:
    indexed = Indexed(Tokens("c", "[0-9A-Za-z./=]"), [pa.array(file) for file in LINES[:3]])
    assert kept(indexed, "c LIKE '% /index.html %'") == [0]
    assert kept(indexed, "c LIKE '% /index %'") == []


def test_a_file_says_when_it_has_short_grams_alone() -> None:
    # Random ids have every gram of three hexadecimal digits, and hardly one of six twice.
    rng = np.random.default_rng(0)
    ids = ["".join(row) for row in rng.choice(list("0123456789abcdef"), (4_000, 32))]
    files = [pa.array(ids[:2_000]), pa.array(ids[2_000:])]
    wide = Indexed(NGrams("c", share=0.3), files)
    assert kept(wide, f"c LIKE '%{ids[7][3:20]}%'") == [0]
    assert kept(wide, f"c LIKE '%{ids[3_333]}%'") == [1]
    narrow = Indexed(NGrams("c"), files)
    assert narrow.reasons == [None, None]
    # The long ones do not fit; the file may not be skipped for their absence.
    assert kept(narrow, f"c LIKE '%{ids[7][3:20]}%'") == [0, 1]
    assert kept(narrow, "c LIKE '%xyz%'") == []


def test_long_runs_are_kept_where_their_hashes_do_not_fit_in_memory(tmp_path: Path) -> None:
    rng, ids = np.random.default_rng(3), []
    for file in range(2):
        ids.append(["".join(row) for row in rng.choice(list("0123456789abcdef"), (12_000, 32))])
        pq.write_table(pa.table({"m": ids[-1]}), tmp_path / f"{file}.parquet")
    table = skipstone.Table(str(tmp_path), index_location=str(tmp_path.parent / "index"))
    table.build(indexes=["m:ngram(share=0.5, max_bytes=262144)"], memory=8 << 20)
    for file in range(2):
        plan = table.plan(f"m LIKE '%{ids[file][77]}%'")
        assert plan.keep.tolist() == [file == 0, file == 1]
    assert table.check(deep=True).ok


@pytest.mark.parametrize("share", [0.5, 0.1, 0.02])
@pytest.mark.parametrize("kind", [NGrams, Tokens])
def test_no_filter_exceeds_its_share(kind: type[NGrams | Tokens], share: float) -> None:
    rng = np.random.default_rng(1)
    texts = ["".join(row) for row in rng.choice(list("abcdefghijklmnop0123456789 "), (20_000, 60))]
    indexed = Indexed(kind("c", share=share), [pa.array(texts)])
    value, reason = indexed.stored.values[0].as_py(), indexed.reasons[0]
    if value is None:
        assert reason is not None
        assert "would report more than" in reason
    else:
        assert len(value) <= max(share * 20_000 * 60, 4_096)
        assert kept(indexed, f"c = '{texts[11]}'") == [0]


def test_a_text_that_is_not_utf8_leaves_the_file_out() -> None:
    for bad in (b"\xff", b"\xed\xa0\x80", b"caf\xc3"):
        made = pa.array([b"abcd", bad, b"\xa9x"]).cast(pa.binary())
        file = pa.Array.from_buffers(pa.string(), 3, made.buffers())
        indexed = Indexed(NGrams("c"), [file, pa.array(["abcd"])])
        assert indexed.reasons == ["a value is not UTF-8", None]
        answer = indexed.ask(indexed.leaf(Op.LIKE, "%zzzz%", "\\", ""))
        assert answer.bounds is not None
        assert answer.bounds.may.tolist() == [True, False]
        assert [(reason.cause, reason.units) for reason in answer.reasons] == [(Cause.ABSENT, 1)]


def test_half_characters_of_a_pattern_prove_nothing() -> None:
    indexed = Indexed(NGrams("c", 2), [pa.array(["ab?cd"])])
    leaf = indexed.leaf(Op.LIKE, "%ab\ud800cd%", "\\", "")
    assert indexed.ask(leaf).bounds is None


def test_dictionaries_and_repeats() -> None:
    texts = ["alpha beta", "gamma delta", None] * 3_000
    for file in (pa.array(texts), pa.array(texts).dictionary_encode()):
        indexed = Indexed(NGrams("c"), [file], pa.string())
        assert kept(indexed, "c LIKE '%beta%'") == [0]
        assert kept(indexed, "c LIKE '%beta gamma%'") == []


def test_definitions_are_spelled_and_checked() -> None:
    for text, shown in {
        "c:ngram": "ngram(c, n=3)",
        "c:ngram(n=4, lower=false)": "ngram(c, n=4, lower=false)",
        "c:ngram(n=5,long=0,fpp=0.05,share=0.2)": "ngram(c, n=5, long=0, fpp=0.05, share=0.2)",
        "c:tokens": "tokens(c)",
        "c:tokens(chars=[a-z_])": "tokens(c, chars=[a-z_])",
    }.items():
        made = parse_index(text)
        assert repr(made) == shown
        assert type(made).from_params("c", made.params) == made
    for text in (
        "c:ngram(n=1)",
        "c:ngram(long=3)",
        "c:ngram(lower=maybe)",
        "c:ngram(share=0)",
        "c:ngram(fpp=1)",
        "c:tokens(chars=abc)",
        "c:tokens(chars=[z-a])",
        "c:tokens(max_bytes=1)",
        "c:tokens(n=3)",
    ):
        with pytest.raises(ValueError, match="c:"):
            parse_index(text)
    with pytest.raises(UnsupportedError, match="ngram cannot index"):
        NGrams("c").stored_type(pa.int64())


def test_the_keys_are_those_of_all_grams_and_tokens() -> None:
    texts = ["", "ab", "abcé", "é中😀x", "a b", " ", "x-yz", "long" * 50, "t" * 70_000]
    whole = pa.array(texts)
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.frombuffer(whole.buffers()[1], np.int32)[: len(texts) + 1].astype(np.int64)
    coded = codes_of(data, offsets, lower=False)
    assert coded is not None

    def keys(parts: Sequence[str]) -> set[int]:
        return {hash_of(part) for part in parts}

    for n in (2, 3, 6):
        wanted = keys([text[at : at + n] for text in texts for at in range(len(text) - n + 1)])
        assert {int(key) for part in gram_keys(*coded, n) for key in part} == wanted
    starts, ends = tokens(*coded, None)
    flat = " ".join(texts)
    words = "".join(char if char.isalnum() or char > "\xc0" else " " for char in flat).split()
    found = [int(key) for part in token_keys(coded[0], starts, ends) for key in part]
    assert sorted(found) == sorted(map(hash_of, words))


def hash_of(text: str) -> int:
    key = 0
    for char in text:
        key = (key * 0x9E3779B97F4A7C15 + ord(char)) % (1 << 64)
    return (key + len(text)) % (1 << 64)


def test_no_new_key_is_taken_for_a_repeated_one() -> None:
    seen = Seen()
    first = np.array([0, 1, 5, 5, 1 << 63], np.uint64)
    assert set(seen.fresh(first).tolist()) == {0, 1, 5, 1 << 63}
    assert seen.fresh(np.array([0, 5, 6], np.uint64)).tolist() == [6]


@pytest.mark.parametrize(
    "text, lowered",
    [
        ("TITLE İÇİN I", "tıtle için ı"),  # Turkish
        ("I\u0307x", "ix"),  # Turkish
        ("aİb", "ai\u0307b"),
        ("ΟΔΟΣ ΑΣΑ", "οδος ασα"),
    ],
)
def test_texts_fold_as_their_lower_case_in_a_language(text: str, lowered: str) -> None:
    folded = []
    for each in (text, lowered):
        data = np.frombuffer(each.encode(), np.uint8)
        coded = codes_of(data, np.array([0, len(data)]), lower=True)
        assert coded is not None
        folded.append((coded[0].tolist(), coded[1].tolist()))
    assert folded[0] == folded[1]


def test_folding_is_that_of_any_version_of_unicode() -> None:
    every = np.array([c for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000], np.uint32)
    lowered = [chr(code).lower() for code in every.tolist()]
    single = np.array([ord(low) if len(low) == 1 else 0x69 for low in lowered], np.uint32)
    folded = fold(every)
    assert (fold(single) == folded).all()
    assert (fold(folded) == folded).all()
    # What a fold keeps apart never changes: the same in every Python.
    assert zlib.crc32(folded.astype("<u4").tobytes()) == FOLDED
    assert (
        "".join(map(chr, fold(np.array(list(map(ord, "ÀÉŻΣςЖK中x")), np.uint32)))) == "àéżσσжk中x"
    )


FOLDED = 3_063_645_628


CASES: list[Callable[[str], str]] = [str, str.lower, str.upper, str.swapcase]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[pa.Array], str]:
    """Files of texts, and a condition with a piece of one of them."""
    files = draw(st.lists(st.lists(WORDS | st.none(), max_size=4), min_size=1, max_size=5))
    texts = [text for file in files for text in file if text] or ["abc"]
    text = draw(st.sampled_from(texts))
    at = draw(st.integers(0, len(text)))
    piece = text[at : draw(st.integers(at, len(text)))]
    other = draw(WORDS)
    like = piece.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    cased = draw(st.sampled_from(CASES))
    lower = piece.lower() if draw(st.booleans()) else other.lower()
    plain = "".join(char for char in piece if char.isalnum() and char.isascii())
    condition = draw(
        st.sampled_from(
            [
                f"c LIKE {quote(f'%{like}%')}",
                f"c LIKE {quote(f'{like}%')}",
                f"c LIKE {quote(f'%{like}')}",
                f"c LIKE {quote(f'%{like}_%')}",
                f"c = {quote(text)}",
                f"c IN ({quote(text)}, {quote(other)})",
                f"contains(c, {quote(piece)})",
                f"endswith(c, {quote(piece)})",
                f"c ILIKE {quote(f'%{cased(like)}%')}",
                f"lower(c) LIKE {quote(f'{cased(like)}%')}",
                f"contains(lower(c), {quote(lower)})",
                f"c RLIKE {quote(f'{plain}|[0-9]b+a')}",
                f"c RLIKE {quote(f'(?i){plain}')}",
                f"c RLIKE {quote(f'({plain}|ab).?b?')}",
                f"lower(c) RLIKE {quote(plain)}",
            ]
        )
    )
    return [pa.array(file, pa.string()) for file in files], condition


@given(tables(), st.sampled_from(KINDS))
def test_no_file_with_a_match_is_skipped(made: tuple[list[pa.Array], str], kind: TextIndex) -> None:
    files, where = made
    tree = bind(parse_sql(where), SCHEMA)
    indexed = Indexed(kind, files)
    for leaf in leaves(tree):
        bounds = indexed.ask(leaf).bounds
        if bounds is None:
            continue
        assert not bounds.must.any()
        for at, file in enumerate(files):
            match = matching(leaf, {"c": file}, len(file))
            assert bounds.may[at] or not match.any(), (str(leaf), file)


@given(tables())
def test_a_condition_implies_its_leaves(made: tuple[list[pa.Array], str]) -> None:
    """The rows of the bound tree are those of the expression as a whole, which has no leaves."""
    files, where = made
    tree = bind(parse_sql(where), SCHEMA)
    typed = Binder(SCHEMA, False, zone("UTC"), True, None, False).typed(parse_sql(where))
    for file in files:
        exact = Kernels({"c": file}, len(file), zone("UTC")).of(typed).to_pylist()
        found = matching(tree, {"c": file}, len(file))
        assert found.tolist() == [flag is True for flag in exact]


@pytest.mark.parametrize("damage", [0, 5, 60, 200, 330, -1])
def test_damaged_filters_prove_nothing_or_are_caught(grams: Indexed, damage: int) -> None:
    blob = bytearray(grams.stored.values[1].as_py())
    cut = bytes(blob[: len(blob) // 2])
    blob[damage] ^= 0xFF
    for bad in (bytes(blob), cut, b"", b"\0" * 400):
        values = pa.array([None, bad, None, None, None], pa.binary())
        (answer,) = grams.evidence.read_back(
            type(grams.stored)(
                type=pa.string(),
                values=values,
                rows=grams.stored.rows,
                nulls=grams.stored.nulls,
                row_of_file=grams.stored.row_of_file,
            )
        ).answer([grams.leaf(Op.LIKE, "%TIMEOUT%", "\\", "")], grams.units, {})
        readable = _readable(bad)
        if not readable:
            assert answer.bounds is None or answer.bounds.may[1]


def _readable(blob: bytes) -> bool:
    try:
        BloomFilterMetaData.from_bytes(blob)
    except ValueError:
        return False
    return True


def test_the_texts_of_a_pattern() -> None:
    leaf = Indexed(NGrams("c"), [pa.array(["x"])]).leaf(Op.LIKE, "ab%c\\_d_%ef", "\\", "ab")
    assert runs_of(leaf) == [[("ab", True, False), ("c_d", False, False), ("ef", False, True)]]
