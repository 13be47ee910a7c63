"""``ngram`` and ``tokens``: whether a file may hold a text that contains what a pattern needs.

Stored value: a Bloom filter like that of ``bloom.py``, over the keys (``text_keys.py``) of the
grams or tokens of all texts of a file. A text that matches ``LIKE '%abcd%'`` contains the grams
``abc`` and ``bcd``: a file whose filter lacks one of them holds no match. So ``=``, ``IN``,
``LIKE``, a prefix, and every condition from which binding derives a pattern (``RLIKE``, ``ILIKE``,
``contains``; ``predicate/text_bounds.py``) are answered, and no file is ever proved to match.

``ngram(n=3, long=6)`` has all runs of ``n`` and of ``long`` code points. The 3-grams of a random id
of 32 characters all occur in other ids, but its 6-grams hardly do. If the filter would be too full
with long grams, a file has only the short ones, and the keys ``i 2^40`` for ``i`` from 1 to 16
(``SHORT_ALONE``) mark such a filter. Only a filter without this mark proves the absence of a long
gram.

``tokens`` has the runs of token characters. A pattern needs a token only if it shows both of its
ends: ``LIKE '% timeout %'`` does, ``LIKE '%timeout%'`` does not, because ``timeouts`` matches too.

**Case.** With ``lower=true``, the default, texts and patterns are folded first. Then the index also
answers conditions that ignore case; for other conditions it keeps a superset.

**Row groups** of large files have filters of their own, and parts of large row groups
(``text_groups.py``).

**Size.** A filter is sized for ``fpp`` (0.2 for grams, of which a pattern needs several; 0.01 for
tokens), but takes no more than ``share`` (0.05) of the bytes of the file's texts, uncompressed, or
4 KiB if that is more, and no more than ``max_bytes`` (8 MiB); bit slices take as much again. Within
this size it takes the best number of hash functions. A file is left out, with the reason, if more
than ``worthless`` of absent keys would seem present, or if a text is not UTF-8: Spark reads such
bytes as other characters.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self, TypedDict, TypeVar, Unpack

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone.predicate.tree import Op, ignores_case
from skipstone.pruning import BoolArray
from skipstone.pruning.column_types import binary_parts, refuse
from skipstone.pruning.interval import with_nulls
from skipstone.pruning.kind import Built, Chunk, PerFile, Rows
from skipstone.xskipper.format.sketch import optimal_hashes, words_within

from .bloom import (
    MAX_BYTES,
    BloomBuilder,
    blobs_of,
    built,
    distinct_pairs,
    sized,
    without_repeats,
)
from .text_groups import Asked, GroupLimits, GroupsBuilder, TextGroups
from .text_keys import (
    Seen,
    class_of,
    codes_of,
    gram_keys,
    runs_of,
    spread,
    stored_bytes,
    token_keys,
    tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import Bounds
    from skipstone.pruning.kind import Stored
    from skipstone.xskipper.format.bloom_probe import BlobColumn
    from skipstone.xskipper.format.sketch import SketchFilter

    from .text_keys import Codes, Keys, Run


#: the most bytes of a filter by default, as a share of those of its texts
SHARE = 0.05
# The most texts of a list that are looked up.
_MOST_TEXTS = 64
# How many leaves' keys are kept: a plan asks for the same ones several times.
_MOST_LEAVES = 512
# The bytes that a filter may always have.
_LEAST = 4_096
# The rows of a row group that serve to estimate its text.
_SAMPLE = 4_096
SHORT_ALONE = np.arange(1, 17, dtype=np.uint64) << np.uint64(40)


F = TypeVar("F", BoolArray, "NDArray[np.uint8]")


def some_of(asked: Asked, among: F, holding: Callable[[range, F], F]) -> F:
    """Which files of ``among`` may have any of the texts. ``holding(keys, some)`` says which of
    ``some`` files have all keys of that range."""
    found = among & ~among
    for keys, long in asked.texts:
        some = holding(keys, among & ~found)
        if long and some.any():
            full = holding(long, some)
            some = full | holding(range(len(SHORT_ALONE)), some & ~full)
        found |= some
    return found


def some_in(asked: Asked, blobs: BlobColumn, among: BoolArray) -> BoolArray:
    """Which of the filters in ``among`` may have a match."""
    keys = asked.keys.view(np.int64)
    return some_of(
        asked,
        among,
        lambda places, some: blobs.might_contain_all(keys, places, some, asked.hashed),
    )


class Common(TypedDict, total=False):
    """Parameters of all kinds of ``TextIndex``."""

    lower: bool
    fpp: float | None
    share: float
    max_bytes: int
    row_groups: bool


class TextIndex(PerFile):
    """A Bloom filter over parts of texts; see the module."""

    cost = 11.0
    ops = frozenset({Op.EQ, Op.IN, Op.LIKE, Op.STARTS_WITH})
    #: the default of ``fpp``, and a false positive probability that no filter exceeds
    default_fpp: ClassVar[float]
    worthless: ClassVar[float]

    def __init__(
        self,
        column: str,
        *,
        lower: bool = True,
        fpp: float | None = None,
        share: float = SHARE,
        max_bytes: int = MAX_BYTES,
        row_groups: bool = True,
    ) -> None:
        super().__init__(column)
        self.lower, self.share, self.max_bytes = lower, share, max_bytes
        self.row_groups = row_groups
        self.fpp = self.default_fpp if fpp is None else fpp
        self._known: dict[Leaf, Asked | None] = {}
        if not 0.0 < self.fpp < 1.0:
            raise ValueError(f"fpp is a probability between 0 and 1, not {fpp}")
        if not 0.0 < share <= 1.0:
            raise ValueError(f"share is above 0 and at most 1, not {share}")
        if max_bytes < _LEAST:
            raise ValueError(f"max_bytes is at least {_LEAST:,}, not {max_bytes}")

    @property
    def params(self) -> Mapping[str, str]:
        found = {} if self.lower else {"lower": "false"}
        if self.fpp != self.default_fpp:
            found["fpp"] = repr(self.fpp)
        if self.share != SHARE:
            found["share"] = repr(self.share)
        if self.max_bytes != MAX_BYTES:
            found["max_bytes"] = str(self.max_bytes)
        return found if self.row_groups else {**found, "row_groups": "false"}

    @classmethod
    def from_params(cls, column: str, params: Mapping[str, str]) -> Self:
        return cls(
            column,
            lower=_flag(params, "lower"),
            row_groups=_flag(params, "row_groups"),
            fpp=float(params["fpp"]) if "fpp" in params else None,
            share=float(params.get("share", SHARE)),
            max_bytes=int(params.get("max_bytes", MAX_BYTES)),
            **cls._own_params(params),
        )

    def of_row_groups(self) -> TextGroups:
        """The filters of row groups, as evidence."""
        return TextGroups(self)

    @classmethod
    @abstractmethod
    def _own_params(cls, params: Mapping[str, str]) -> dict[str, int | str | None]:
        """The parameters of the kind itself."""

    @abstractmethod
    def keys(self, codes: Codes, offsets: NDArray[np.int64]) -> Iterable[tuple[int, Keys]]:
        """The keys of texts, in pieces, each with its kind: 1 for keys that a filter may lack."""

    @abstractmethod
    def needed(self, codes: Codes, run: Run) -> tuple[Keys, Keys]:
        """The keys that every text with this run has: short grams or tokens, and long grams."""

    @abstractmethod
    def lacks(self, leaf: Leaf) -> str:
        """Why a pattern needs no key, for ``explain``."""

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        """``binary``, for texts."""
        if not pa.types.is_string(type):
            raise refuse(self.name, self.column, type, ("bloomfilter", "minmax"))
        return pa.binary()

    def build(self, type: pa.DataType, budget: int) -> TextBuilder:
        """Keeps pairs of hashes up to the budget, then one filter."""
        self.stored_type(type)
        return TextBuilder(self, type, budget)

    def known(self, stored: Stored) -> BoolArray:
        """Flags of the fact rows with a readable filter."""
        return blobs_of(stored).ok

    def bounds_of(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """``may`` where a file may hold a match; never ``must``."""
        asked = self.asked(leaf)
        if asked is None:
            return None
        blobs = blobs_of(rows.stored)
        among = np.ones(len(blobs), np.bool_)
        if rows.at is not None:
            among[:] = False
            among[rows.at] = True
        some = some_in(asked, blobs, among)
        if rows.at is not None:
            some = some[rows.at]
        return with_nulls(leaf.op, some, np.zeros_like(some), rows.rows, rows.nulls)

    def asked(self, leaf: Leaf) -> Asked | None:
        """The keys of each text that the leaf may hold for; ``None`` if one of them needs no
        key."""
        if leaf in self._known:
            return self._known[leaf]
        found = self._asked(leaf)
        if len(self._known) < _MOST_LEAVES:
            self._known[leaf] = found
        else:
            self._known = {leaf: found}
        return found

    def _asked(self, leaf: Leaf) -> Asked | None:
        if leaf.op not in self.ops or (ignores_case(leaf) and not self.lower):
            return None
        if len(leaf.values) > _MOST_TEXTS:
            return None
        keys, texts, count = [SHORT_ALONE], list[tuple[range, range]](), len(SHORT_ALONE)
        for runs in runs_of(leaf):
            found = [self._keys_of(run) for run in runs]
            places = []
            for which in (0, 1):
                part = spread([each[which] for each in found])
                keys.append(part)
                places.append(range(count, count + len(part)))
                count += len(part)
            if not places[0]:
                return None
            texts.append((places[0], places[1]))
        return Asked(np.concatenate(keys), tuple(texts))

    def _keys_of(self, run: Run) -> tuple[Keys, Keys]:
        try:
            data = np.frombuffer(run[0].encode(), np.uint8)
        except UnicodeEncodeError:  # Spark reads half a character as a different one
            data = np.zeros(0, np.uint8)
        coded = codes_of(data, np.array([0, len(data)]), lower=self.lower)
        assert coded is not None
        return self.needed(coded[0], run)

    def silence(self, leaf: Leaf) -> str:
        """Why the index cannot answer a leaf."""
        if leaf.op not in self.ops:
            return super().silence(leaf)
        if len(leaf.values) > _MOST_TEXTS:
            return f"more than {_MOST_TEXTS} texts are not looked up"
        if ignores_case(leaf) and not self.lower:
            return "it was built with lower=false, and the condition ignores case"
        return self.lacks(leaf)


def _flag(params: Mapping[str, str], name: str) -> bool:
    text = params.get(name, "true").lower()
    if text not in ("true", "false"):
        raise ValueError(f"{name} is true or false, not {text}")
    return text == "true"


class NGrams(TextIndex):
    """Runs of ``n`` and ``long`` characters; see the module. ``long=0``: of ``n`` alone."""

    name = "ngram"
    parameters = ("n", "long", "lower", "fpp", "share", "max_bytes", "row_groups")
    default_fpp, worthless = 0.2, 0.5

    def __init__(
        self, column: str, n: int = 3, *, long: int | None = None, **common: Unpack[Common]
    ) -> None:
        super().__init__(column, **common)
        if not 2 <= n <= 16:
            raise ValueError(f"n is from 2 to 16, not {n}")
        self.n, self.long = n, 2 * n if long is None else long
        if self.long and not n < self.long <= 32:
            raise ValueError(f"long is 0, or above n and at most 32, not {long}")

    @property
    def params(self) -> Mapping[str, str]:
        found = {"n": str(self.n)}
        if self.long != 2 * self.n:
            found["long"] = str(self.long)
        return found | dict(super().params)

    @classmethod
    def _own_params(cls, params: Mapping[str, str]) -> dict[str, int | str | None]:
        long = params.get("long")
        return {"n": int(params.get("n", 3)), "long": None if long is None else int(long)}

    def keys(self, codes: Codes, offsets: NDArray[np.int64]) -> Iterable[tuple[int, Keys]]:
        for keys in gram_keys(codes, offsets, self.n):
            yield 0, keys
        for keys in gram_keys(codes, offsets, self.long) if self.long else ():
            yield 1, keys

    def needed(self, codes: Codes, run: Run) -> tuple[Keys, Keys]:
        found: list[list[Keys]] = [[np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]]
        for which, keys in self.keys(codes, np.array([0, len(codes)])):
            found[which].append(keys)
        return np.concatenate(found[0]), np.concatenate(found[1])

    def lacks(self, leaf: Leaf) -> str:
        return f"{leaf} needs no run of {self.n} characters"


class Tokens(TextIndex):
    """Runs of token characters; see the module. ``chars``: a class such as ``[A-Za-z0-9_.]``."""

    name = "tokens"
    parameters = ("chars", "lower", "fpp", "share", "max_bytes", "row_groups")
    default_fpp, worthless = 0.01, 0.25

    def __init__(self, column: str, chars: str | None = None, **common: Unpack[Common]) -> None:
        super().__init__(column, **common)
        self.chars = chars
        characters = None if chars is None else class_of(chars)
        self.characters = characters.lower() if characters and self.lower else characters

    @property
    def params(self) -> Mapping[str, str]:
        return ({} if self.chars is None else {"chars": self.chars}) | dict(super().params)

    @classmethod
    def _own_params(cls, params: Mapping[str, str]) -> dict[str, int | str | None]:
        return {"chars": params.get("chars")}

    def keys(self, codes: Codes, offsets: NDArray[np.int64]) -> Iterable[tuple[int, Keys]]:
        for keys in token_keys(codes, *tokens(codes, offsets, self.characters)):
            yield 0, keys

    def needed(self, codes: Codes, run: Run) -> tuple[Keys, Keys]:
        _, begins, ends = run
        first, last = tokens(codes, np.array([0, len(codes)]), self.characters)
        # The token may continue where the match does.
        whole = ((first > 0) | begins) & ((last < len(codes)) | ends)
        keys = list(token_keys(codes, first[whole], last[whole]))
        none = np.zeros(0, np.uint64)
        return np.concatenate([none, *keys]), none

    def lacks(self, leaf: Leaf) -> str:
        return f"{leaf} shows no token with what stands before and after it"


class TextBuilder(BloomBuilder):
    """Collects one file's column."""

    per_row = 64

    def __init__(self, index: TextIndex, type: pa.DataType, budget: int) -> None:
        super().__init__(type, index.fpp, min(index.max_bytes, max(budget, 64)), budget // 2)
        self.index = index
        self.bytes = 0
        self.failed: str | None = None
        # The keys of long grams, which a file's filter may lack.
        self.other = BloomBuilder(type, index.fpp, self.max_bytes, budget // 2)
        self.seen = Seen(), Seen()
        self.groups: GroupsBuilder | None = None
        self.room = budget // 2

    @property
    def nbytes(self) -> int:
        groups = 0 if self.groups is None else self.groups.nbytes
        return super().nbytes + self.other.nbytes + groups

    def cut(self, rows: Sequence[int]) -> None:
        """Also builds filters of the row groups, which have this many rows each. Then a value must
        be added for each row, in order."""
        index = self.index
        if any(rows) and index.row_groups:
            self.groups = GroupsBuilder(
                GroupLimits(index.share, index.max_bytes, index.fpp, index.worthless),
                rows,
                self.room,
            )

    def paged(self, rows: Sequence[int]) -> None:
        """Also builds filters of parts of large row groups, whose pages have about this many
        rows."""
        if self.groups is not None:
            self.groups.pages = list(rows)

    def add(self, chunk: Chunk) -> None:
        """Adds the keys of the texts of a chunk."""
        if self.groups is None:
            self._add(chunk)
            return
        at, values = 0, chunk.values
        while at < len(values):
            if self.groups.at_begin:
                some = values.slice(at, min(self.groups.left, _SAMPLE))
                self.groups.divide(stored_bytes(some) / len(some))
                if sum(map(bool, self.groups.rows)) == 1:  # its filter would equal the file's
                    self.groups = None
                    self._add(chunk if not at else Chunk(values.slice(at)))
                    return
            count = min(self.groups.left, len(values) - at)
            before = self.bytes
            self._add(chunk if count == len(values) else Chunk(values.slice(at, count)))
            at += count
            if self.groups.advance(count, self.bytes - before):
                bits = (64 * self.groups.left).bit_length()
                self.seen = Seen(bits), Seen(bits)

    def _add(self, chunk: Chunk) -> None:
        if self.failed is not None:
            return
        lengths = chunk.values
        if pa.types.is_dictionary(lengths.type):
            lengths = lengths.dictionary.take(lengths.indices)
        self.bytes += int(pc.sum(pc.binary_length(lengths)).as_py() or 0)
        values = without_repeats(chunk)
        if not len(values):
            return
        coded = codes_of(*binary_parts(values), lower=self.index.lower)
        if coded is None:
            self.failed = "a value is not UTF-8"
            return
        self.other.kernels = self.kernels
        for which, keys in self.index.keys(*coded):
            fresh = self.seen[which].fresh(keys)
            if self.groups is not None:
                self.groups.take(which, fresh)
            self.take_keys(which, fresh)

    def take_keys(self, which: int, keys: Keys) -> None:
        """Adds keys of the file."""
        (self, self.other)[which].take(self.kernels.longs(keys.view(np.int64)))

    def finish(self) -> Built:
        """The filter with all keys if it is not too full, else without the long grams."""
        if self.failed is not None:
            return Built(None, self.failed)
        most = min(max(int(self.index.share * self.bytes), _LEAST), self.max_bytes)
        words, found = words_within(most), None
        groups = None if self.groups is None else self.groups.finish(self.bytes)
        if groups is not None and self.groups is not None and any(self.groups.more):
            # Together with its bit slices and the filters of parts, this is twice the share.
            found = self._within(words_within(most // 2), self.other)
        found = found or self._within(words, self.other)
        if found is None:
            self.take(self.kernels.longs(SHORT_ALONE.view(np.int64)))
            found = self._within(words)
        if found is not None:
            return replace(built(found), row_groups=groups)
        text = (
            f"a filter of {most:,} bytes for {self.bytes:,} bytes of text would report more than "
            f"{self.index.worthless:.0%} of what is absent as present"
        )
        return Built(None, text, row_groups=groups)

    def _within(self, words: int, *others: BloomBuilder) -> SketchFilter | None:
        """A filter of at most this many words; ``None`` if it would be too full."""
        if all(each.words is None for each in (self, *others)):
            pairs = [part for each in (self, *others) for part in each.pairs]
            count = max(1, distinct_pairs(pairs, self.kernels))
            wanted, hashes = sized(count, self.fpp)
            if wanted > words:
                wanted, hashes = words, min(hashes, optimal_hashes(count, 64 * words))
            found = self.filter_of(pairs, wanted, hashes)
        else:
            found = self.folded(*others)
            while len(found.words) > words:
                found = found.fold(len(found.words) // 2)
        return None if found.expected_fpp() > self.index.worthless else found
