"""``Snapshot``: the union of the parts as they were at one moment, read only as far as it is asked.

Rows of all parts are numbered through, oldest part first, so that where several rows could serve,
the last one is the newest. Footers are read when the snapshot is taken; identities, null counts
and index columns when somebody first asks, and then kept as Arrow and NumPy arrays. A part that
turns out unreadable says nothing: its rows are missing, and ``reasons`` has it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.identity import UNITS_PER_SECOND
from skipstone.pruning import Cause, Reason

from .part_columns import ETAG, FINGERPRINT, IDENTITY, MTIME, OWN, PATH, ROWS, SIZE, UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Listing, Storage

    from .location import Location
    from .match import Matched
    from .part_columns import Definition, FactField
    from .parts import Part

__all__ = ["Column", "Identities", "Snapshot", "cause_of", "integers", "nonnull"]

# Arrow's 32-bit offsets end at 2 GiB; a column beyond this is kept in several pieces.
_PIECE = 1 << 30
_SERIAL = 4 << 20


@dataclass(frozen=True, eq=False, kw_only=True)
class Identities:
    """What the fact rows are about, ``n`` rows of the readable ``parts``.

    ``starts[i]`` is the first row of ``parts[i]``. ``paths``, ``etags`` and ``fingerprints`` are
    Arrow strings; ``sizes`` is -1 where unknown, ``rows`` too; ``units`` are units per second.
    Rows that are no identity (damaged values) have ``valid`` False.
    """

    parts: tuple[Part, ...]
    starts: dict[str, int]
    paths: pa.ChunkedArray
    sizes: NDArray[np.int64]
    mtimes: NDArray[np.int64]
    units: NDArray[np.int64]
    etags: pa.ChunkedArray
    fingerprints: pa.ChunkedArray
    rows: NDArray[np.int64]
    valid: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True, eq=False)
class Column:
    """A piece of one index column: ``values`` of the fact rows ``at`` (ascending).

    ``cache`` is what a kind derives from the values; it lives as long as the snapshot.
    """

    at: NDArray[np.int64]
    values: pa.Array
    cache: dict[str, Any] = field(default_factory=dict)


class Snapshot:
    """See the module. Made by ``Store.snapshot``."""

    #: True where its parts can be evaluated piece by piece, elsewhere
    in_runs: ClassVar[bool] = True

    def __init__(
        self,
        location: Location,
        storage: Storage,
        parts: Sequence[Part],
        reasons: Sequence[Reason] = (),
        warn: Callable[[Reason], None] = lambda reason: None,
    ) -> None:
        self.location, self.storage = location, storage
        self.parts = tuple(sorted(parts, key=lambda part: (part.mtime, part.name)))
        self._reasons = dict.fromkeys(reasons)
        self._warn = warn
        self._columns: dict[tuple[str, str, str], list[Column]] = {}
        self._own: dict[str, pa.ChunkedArray] = {}
        self._matched: Matched | None = None

    def __repr__(self) -> str:
        rows = sum(part.rows for part in self.parts)
        return f"Snapshot({self.location.root!r}, {len(self.parts):,} parts, {rows:,} rows)"

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What could not be read so far, and why."""
        of_packs = getattr(self.storage, "reasons", {})
        return tuple(dict.fromkeys((*self._reasons, *of_packs)))

    # -- what there is ----------------------------------------------------------------------------

    @cached_property
    def fields(self) -> tuple[FactField, ...]:
        """The index, null count and other columns of all parts; the same in two parts once."""
        found: dict[tuple[str, str, str], FactField] = {}
        for part in self.parts:
            for field_ in part.fields:
                known = found.get(field_.key)
                if known is None or _built(field_) > _built(known):
                    found[field_.key] = field_
        return tuple(found.values())

    @cached_property
    def definitions(self) -> tuple[Definition, ...]:
        """One definition per kind and columns: the most recent, where parameters changed."""
        found: dict[tuple[str, tuple[str, ...]], Definition] = {}
        for field_ in self.fields:
            new = field_.definition
            if new is not None:
                known = found.get((new.kind, new.columns))
                if known is None or new.built >= known.built:
                    found[new.kind, new.columns] = new
        return tuple(found.values())

    @cached_property
    def inline_limit(self) -> int | None:
        """Up to how many bytes sidecars lie in the facts, as the newest part says that does."""
        told = (part.inline_limit for part in reversed(self.parts))
        return next((limit for limit in told if limit is not None), None)

    @cached_property
    def sealed(self) -> bool:
        """Whether some part is encrypted."""
        return any(part.encryption is not None for part in self.parts)

    @cached_property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of the index columns that were read so far, and are held."""
        pieces = [piece for column in list(self._columns.values()) for piece in column]
        return sum(piece.values.nbytes for piece in pieces)

    # -- what it says -----------------------------------------------------------------------------

    @cached_property
    def identities(self) -> Identities:
        """The identity and row count of every fact row."""
        read = self._read(self.parts, [*IDENTITY, ROWS])
        parts = tuple(part for part, _ in read)
        starts, total = {}, 0
        for part in parts:
            starts[part.name] = total
            total += part.rows
        tables = [table for _, table in read]
        text = pa.large_string()

        def strings(name: str) -> pa.ChunkedArray:
            chunks = [chunk for table in tables for chunk in table[name].chunks]
            return pa.chunked_array(chunks, text)

        def numbers(name: str, unknown: int) -> NDArray[np.int64]:
            return np.concatenate(
                [np.empty(0, np.int64)] + [integers(table[name], unknown) for table in tables]
            )

        paths, units = strings(PATH), strings(UNIT)
        known = pa.array(UNITS_PER_SECOND, text)
        code = integers(pc.index_in(units, value_set=known), -1)
        per_second = np.array([*UNITS_PER_SECOND.values(), 0], np.int64)[code]
        lost = np.iinfo(np.int64).min
        mtimes = numbers(MTIME, lost)
        in_range = (mtimes != lost) & (mtimes != np.iinfo(np.int64).max)
        return Identities(
            parts=parts,
            starts=starts,
            paths=paths,
            sizes=numbers(SIZE, -1),
            mtimes=mtimes,
            units=per_second,
            etags=strings(ETAG),
            fingerprints=strings(FINGERPRINT),
            rows=np.maximum(numbers(ROWS, -1), -1),
            valid=in_range & (per_second > 0) & nonnull(paths),
        )

    def own(self, name: str) -> pa.ChunkedArray:
        """One of the columns of ``OWN``, over the rows of ``identities``."""
        found = self._own.get(name)
        if found is None:
            parts = self.identities.parts
            tables = {part.name: table for part, table in self._read(parts, [name])}
            none = OWN[name]
            chunks = [
                chunk
                for part in parts
                for chunk in (
                    tables[part.name].column(0).chunks
                    if part.name in tables
                    else [pa.nulls(part.rows, none)]
                )
            ]
            found = self._own[name] = pa.chunked_array(chunks, none)
        return found

    def values(self, field_: FactField) -> list[Column]:
        """One column over all parts that have it, in pieces of at most about 1 GiB."""
        found = self._columns.get(field_.key)
        if found is None:
            found = self._columns[field_.key] = list(self._pieces(field_))
        return found

    def _pieces(self, field_: FactField) -> Iterable[Column]:
        identities = self.identities
        having = [part for part in identities.parts if field_.key in part.by_key]
        names = [part.by_key[field_.key].arrow.name for part in having]
        rows: list[NDArray[np.int64]] = []
        chunks: list[pa.Array] = []
        held = 0
        for part, table in self._read(having, names, of=field_):
            first = identities.starts[part.name]
            for chunk in table.column(0).chunks:
                if chunks and held + chunk.nbytes > _PIECE:
                    yield _column(rows, chunks)
                    rows, chunks, held = [], [], 0
                rows.append(np.arange(first, first + len(chunk)))
                chunks.append(chunk)
                held += chunk.nbytes
                first += len(chunk)
        if chunks:
            yield _column(rows, chunks)

    def _read(
        self, parts: Sequence[Part], names: Sequence[str], *, of: FactField | None = None
    ) -> list[tuple[Part, pa.Table]]:
        """Columns ``names`` of each part; with ``of`` that column, under the name that each part
        has for it. Unreadable ones are left out."""

        def read(part: Part, wanted: Sequence[str]) -> pa.Table | Reason:
            try:
                return part.read(self.storage, wanted)
            except Exception as error:  # whatever is wrong with a part, the query goes on
                found = cause_of(f"fact part {part.name}", error)
                if of is None or found.cause is not Cause.UNDECRYPTABLE:
                    return found
                return replace(found, subject=of.subject)

        wanted = [list(names)] * len(parts) if of is None else [[n] for n in names]
        # A few small files are read before a pool of threads has started.
        if len(parts) < 2 or not (self.storage.remote or self.size > _SERIAL):
            results = list(map(read, parts, wanted))
        else:
            with ThreadPoolExecutor(min(8, len(parts))) as pool:
                results = list(pool.map(read, parts, wanted))
        found = []
        for part, result in zip(parts, results, strict=True):
            if isinstance(result, Reason):
                self._reasons.setdefault(result)
                self._warn(result)
            else:
                found.append((part, result))
        return found

    def match(self, listing: Listing, fingerprint: str | None = None) -> Matched:
        """Which facts are about which files of ``listing``, as they are now.

        ``fingerprint`` is that of the reader's options and schema: facts that were built under
        another one say nothing.
        """
        from .match import match

        last = self._matched
        if last is None or last.listing is not listing or last.fingerprint != (fingerprint or None):
            last = self._matched = match(self, listing, fingerprint or None)
        return last


def _built(field_: FactField) -> int:
    return -1 if field_.definition is None else field_.definition.built


def _column(rows: list[NDArray[np.int64]], chunks: list[pa.Array]) -> Column:
    values = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    return Column(np.concatenate(rows), values)


def cause_of(subject: str, error: Exception) -> Reason:
    """Why something says nothing, from the error that reading it gave."""
    text = getattr(error, "message", "") or str(error) or type(error).__name__
    if isinstance(error, KeyUnavailableError):
        cause = Cause.UNDECRYPTABLE
    elif isinstance(error, UnsupportedError):
        cause = Cause.UNSUPPORTED
    elif isinstance(error, FormatError) or not isinstance(error, OSError | SkipstoneError):
        cause = Cause.CORRUPT
    else:
        cause = Cause.UNREADABLE
    return Reason(cause=cause, subject=subject, text=text)


def integers(column: pa.ChunkedArray | pa.Array, unknown: int) -> NDArray[np.int64]:
    """An Arrow integer column as int64, ``unknown`` for null."""
    if column.null_count:
        column = pc.fill_null(column, unknown)
    found = column.to_numpy() if isinstance(column, pa.ChunkedArray) else np.asarray(column)
    return np.asarray(found, np.int64)


def nonnull(column: pa.ChunkedArray | pa.Array) -> NDArray[np.bool_]:
    """Which values are not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    valid = column.is_valid()
    if isinstance(valid, pa.ChunkedArray):
        valid = valid.combine_chunks()
    return np.asarray(valid.to_numpy(zero_copy_only=False), np.bool_)
