"""``Listing``: the files of a directory and their identities as parallel arrays, by Spark's rules.

Spark's rules for the name of a file or directory below the root (the root's own name is free):

    starts with "." or ends with "._COPYING_"      hidden
    starts with "_" and contains no "="            hidden (a partition column may be called "_x")
    "_metadata", "_common_metadata"                listed by Spark, but never read as data: hidden
    length 0                                       dropped
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone.identity import ObjectId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.identity import TimeUnit

#: a file with the footers of all files of a directory
SUMMARY: Final = "_metadata"

_INT64 = np.iinfo(np.int64)


def hidden_by_spark(name: str) -> bool:
    """True when Spark ignores a file or directory of this name."""
    return (
        (name.startswith("_") and "=" not in name)
        or name.startswith(".")
        or name.endswith("._COPYING_")
    )


def int64(value: int) -> int:
    """``value`` clamped to int64. The ends mean "out of range", and no fact matches there."""
    return min(max(value, int(_INT64.min)), int(_INT64.max))


@dataclass(frozen=True, eq=False, kw_only=True)
class Listing:
    """Files below ``root``: canonical raw ``paths``, sorted by code point, and their identities.

    ``sizes`` in bytes and ``mtimes`` in ``unit`` since the epoch are int64 ``(n,)``; ``etags`` has
    one text or ``None`` per file, or is ``None`` where the source has none at all.
    """

    root: str
    paths: list[str]
    sizes: NDArray[np.int64]
    mtimes: NDArray[np.int64]
    unit: TimeUnit = "ns"
    etags: list[str | None] | None = None

    def __post_init__(self) -> None:
        n = len(self.paths)
        etags = n if self.etags is None else len(self.etags)
        if not n == len(self.sizes) == len(self.mtimes) == etags:
            raise ValueError(
                f"{n} paths, {len(self.sizes)} sizes, {len(self.mtimes)} mtimes, {etags} etags"
            )

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"Listing({self.root!r}, {len(self):,} files, {self.total_bytes:,} bytes)"

    def same_files(self, other: Listing) -> bool:
        """Whether both list the same versions of the same files."""
        return self is other or (
            self.unit == other.unit
            and np.array_equal(self.sizes, other.sizes)
            and np.array_equal(self.mtimes, other.mtimes)
            and self.paths == other.paths
            and self.etags == other.etags
        )

    @cached_property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return int(self.sizes.sum())

    def object_id(self, at: int) -> ObjectId:
        """The identity of the file at position ``at``."""
        return ObjectId(
            path=self.paths[at],
            size=int(self.sizes[at]),
            mtime=int(self.mtimes[at]),
            unit=self.unit,
            etag=None if self.etags is None else self.etags[at],
        )

    def where(self, keep: NDArray[np.bool_] | NDArray[np.int64] | Sequence[int]) -> Listing:
        """The files that ``keep`` (mask or positions) selects, in that order."""
        at = np.asarray(keep)
        at = np.flatnonzero(at) if at.dtype == np.bool_ else at.astype(np.int64)
        chosen = at.tolist()
        return Listing(
            root=self.root,
            paths=[self.paths[i] for i in chosen],
            sizes=self.sizes[at],
            mtimes=self.mtimes[at],
            unit=self.unit,
            etags=None if self.etags is None else [self.etags[i] for i in chosen],
        )

    @cached_property
    def path_array(self) -> pa.Array:
        """``paths`` as Arrow strings; null for a name that is not UTF-8, which no fact can have."""
        return _strings(self.paths)

    @cached_property
    def etag_array(self) -> pa.Array:
        """``etags`` as Arrow strings, all null where there are none."""
        import pyarrow as pa

        return (
            pa.nulls(len(self), pa.large_string()) if self.etags is None else _strings(self.etags)
        )

    @classmethod
    def of(cls, root: str, ids: Iterable[ObjectId], unit: TimeUnit = "ns") -> Listing:
        """The listing of these files, sorted; all of them in ``unit`` and of known size."""
        found = sorted(ids, key=lambda each: each.path)
        if any(each.unit != unit or each.size is None for each in found):
            raise ValueError(f"a listing has one unit, {unit}, and knows all sizes")
        count = len(found)
        etags = [each.etag for each in found]
        return cls(
            root=root,
            paths=[each.path for each in found],
            sizes=np.fromiter((each.size or 0 for each in found), np.int64, count),
            mtimes=np.fromiter((int64(each.mtime) for each in found), np.int64, count),
            unit=unit,
            etags=None if all(etag is None for etag in etags) else etags,
        )


def _strings(texts: Sequence[str | None]) -> pa.Array:
    """Arrow strings of Python ones; null for ``None`` and for undecodable names."""
    import pyarrow as pa

    try:
        # In ASCII, offsets follow from lengths: several times faster than converting one by one.
        whole = "".join(texts).encode("ascii")  # type: ignore[arg-type]
    except (UnicodeEncodeError, TypeError):
        coded = [_utf8(text) for text in texts]
        return pa.array(coded, pa.large_binary()).cast(pa.large_string())
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])  # type: ignore[arg-type]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(whole)]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers)


def _utf8(text: str | None) -> bytes | None:
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError:
        return None
