"""A foreign store as a ``Snapshot``, and laid over a listing: the same values that our facts are.

The planner, transparent reading, describe and check see identities, definitions and evidence as of
our own store. The differences are these:

- A row's identity is path and modification time in ms. Its path has no bucket unless Xskipper was
  configured so: it counts as a path in the bucket of the listing's root. A file replaced within the
  same millisecond, or a table of equal paths in another bucket, cannot be told apart; ``notes`` say
  so.
- Names are in lower case; the predicate's spelling counts.
- Several rows of one file count as one if they agree. Where they do not, none counts.
- The reader's options are unknown: for a table that is read with some (``fingerprint``), the store
  says nothing, unless the user sets that they match (``same_reader``).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import KeyUnavailableError, SkipstoneError
from skipstone.pruning import Cause, Reason
from skipstone.pruning.kind import Stored
from skipstone.xskipper.format.naming import table_identifier
from skipstone.xskipper.store import same_values

from .match import Identities, match_files
from .part_columns import OWN, Definition, FactField, integers, nonnull
from .parts import Part
from .snapshot import MatchedFacts, Snapshot
from .xskipper_kinds import foreign_index

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.pruning.kind import Index
    from skipstone.storage import Listing, Storage
    from skipstone.xskipper.format.schema import IndexColumn
    from skipstone.xskipper.store import StorePart

    from .snapshot import FactColumn


_CAVEAT = (
    "rows of a store of Xskipper name path and time of a file, and neither size nor bucket: "
    "one replaced within the same millisecond goes unseen"
)


def _field(index: IndexColumn) -> FactField:
    """An index column of a foreign part, described like a column of a fact part."""
    names = tuple(column.lower() for column in index.columns)
    try:
        value = pa.null() if index.kind == "bloomfilter" else index.value_type()
        known = foreign_index(index.kind, names[0])
        stored = pa.binary() if index.kind == "bloomfilter" else known.stored_type(value)  # type: ignore[union-attr]
    except (SkipstoneError, AttributeError):
        value = stored = pa.null()
    definition = Definition(
        kind=index.kind,
        columns=names,
        params=tuple(sorted(index.current_params())),
        types=pa.schema([pa.field(name, value) for name in names]),
        key_metadata=index.key_metadata,
    )
    return FactField.of_definition(definition, stored).renamed(index.name)


@dataclass(frozen=True, eq=False, kw_only=True)
class XskipperPart(Part):
    """A part of a foreign store: what ``stored`` says, described like a fact part."""

    stored: StorePart

    @classmethod
    def of(cls, stored: StorePart) -> XskipperPart:
        """The fact part that stands for ``stored``."""
        metadata = stored.footer.metadata
        assert metadata is not None
        return cls(
            name=stored.name,
            path=stored.path,
            size=stored.size,
            mtime=stored.mtime,
            metadata=metadata,
            schema=metadata.schema.to_arrow_schema(),
            fields=tuple(map(_field, stored.footer.schema.indexes)),
            stored=stored,
        )

    @cached_property
    def column_bytes(self) -> Mapping[str, int]:
        """Stored bytes by top-level column; unknown where the store has encryption."""
        # Arrow must not be asked about the column chunks of a store with encryption.
        return {} if self.stored.footer.schema.encryption is not None else super().column_bytes

    def read(self, storage: Storage, names: Sequence[str]) -> pa.Table:
        """These columns; ``FormatError`` for damage, ``KeyUnavailableError`` for a missing key."""
        found = self.stored.read(storage, names)
        for name, text in found.unreadable:
            raise KeyUnavailableError(f"{self.path}: {name}: {text}")
        return found.table.select(list(names))


class XskipperSnapshot(Snapshot):
    """The readable parts of a foreign store; see the module. ``parts`` are ``XskipperPart``."""

    in_batches = False
    parts: tuple[XskipperPart, ...]
    same_reader: bool = False

    @cached_property
    def definitions(self) -> tuple[Definition, ...]:
        """As in ``Snapshot``, unusable ones included."""
        found = {(d.kind, d.columns): d for f in self.fields if (d := f.definition) is not None}
        return tuple(found.values())

    @cached_property
    def identities(self) -> Identities:
        """Path and time of every row; all else is unknown."""
        parts, starts, paths, times = [], {}, [], []
        total = 0
        for part in self.parts:
            try:
                rows = part.stored.rows(self.storage)
            except Exception as error:  # whatever is wrong with a part, the query goes on
                self.add_reason(Reason.of_error(f"part {part.name}", error))
                continue
            starts[part.name] = total
            total += len(rows)
            parts.append(part)
            paths.append(rows.path.cast(pa.large_string()))
            times.append(integers(rows.mtime_ms, -1))
        mtimes = np.concatenate([np.empty(0, np.int64), *times])
        text = pa.chunked_array(paths, pa.large_string())
        unknown = np.full(total, -1, np.int64)
        nothing = pa.chunked_array([pa.nulls(total, pa.large_string())])
        return Identities(
            parts=tuple(parts),
            starts=starts,
            paths=text,
            sizes=unknown,
            mtimes=mtimes,
            units=np.full(total, 1000, np.int64),
            etags=nothing,
            fingerprints=nothing,
            rows=unknown,
            valid=nonnull(text) & (mtimes >= 0),
        )

    def own(self, name: str) -> pa.ChunkedArray:
        """Null: only our own facts have these columns."""
        return pa.chunked_array([pa.nulls(len(self.identities), OWN[name])])

    def _chunks(
        self, field_: FactField
    ) -> Iterator[tuple[int, pa.Array, Mapping[str, NDArray[Any]]]]:
        """As in ``Snapshot``; ``cache["empty"]`` marks the files without any value."""
        for part in self.identities.parts:
            held = part.by_key.get(field_.key)
            if held is None:
                continue
            assert isinstance(part, XskipperPart)
            found = part.stored.index_values(self.storage, held.arrow.name)
            if found.reason is not None:
                self.add_reason(found.reason)
            first = 0
            for chunk in found.pieces:
                end = first + len(chunk)
                start = self.identities.starts[part.name] + first
                yield start, chunk, {"empty": found.empty[first:end]}
                first = end

    # -- over a listing ---------------------------------------------------------------------------

    def match(self, listing: Listing, fingerprint: str | None = None) -> XskipperMatched:
        """As ``Snapshot.match``, by path and time; see the module for ``fingerprint``."""
        chosen, notes = self, []
        if fingerprint is not None and not self.same_reader:
            text = "it is not known with which reader options and schema it was built"
            notes.append(self._silent(text))
            chosen = self._without_parts()
        elif other := self._of_other_bucket(listing.root):
            notes.append(self._silent(f"it is of the table {other}"))
            chosen = self._without_parts()
        else:
            chosen = self._below(listing.root)
        found = match_files(chosen.identities, listing, None)
        if found.has_fact.any():
            subject = self.location.root
            notes.append(Reason(cause=Cause.NOT_APPLICABLE, subject=subject, text=_CAVEAT))
        found = replace(found, notes=(*found.notes, *notes))
        return XskipperMatched(**vars(found), snapshot=chosen, listing=listing, fingerprint=None)

    def _silent(self, text: str) -> Reason:
        return Reason(cause=Cause.UNSUPPORTED, subject=self.location.root, text=text)

    def _without_parts(self) -> XskipperSnapshot:
        other = type(self)(self.location, self.storage, (), self.reasons, self._warn)
        other.same_reader = self.same_reader
        return other

    def _of_other_bucket(self, root: str) -> str | None:
        """The store's table, where its name has a bucket that is not that of ``root``."""
        ours = {_bucket(table_identifier(root, style)) for style in ("bucket", "cos")}
        for part in self.parts:
            named = part.stored.footer.schema.table_identifier or ""
            if _bucket(named) and _bucket(named) not in ours:
                return named
        return None

    def _below(self, root: str) -> XskipperSnapshot:
        """The same rows with the paths that they have in the bucket of ``root``."""
        authority = _bucket(root)
        if not authority:
            return self
        short = _bucket(table_identifier(root, "cos"))
        paths = self.identities.paths
        bare = pc.binary_join_element_wise(
            pa.scalar(authority, paths.type), paths, pa.scalar("", paths.type)
        )
        placed = pc.if_else(pc.starts_with(paths, "/"), bare, paths)
        if short and short != authority:
            moved = pc.utf8_replace_slice(paths, 0, len(short), authority)
            placed = pc.if_else(pc.starts_with(paths, f"{short}/"), moved, placed)
        found = copy.copy(self)
        found.__dict__["identities"] = replace(self.identities, paths=placed)
        return found


def _bucket(path: str) -> str:
    """Scheme and authority of a canonical path or an identifier, empty for local ones."""
    scheme, slashes, rest = path.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if slashes and "/" not in scheme else ""


@dataclass(frozen=True, eq=False, kw_only=True)
class XskipperMatched(MatchedFacts):
    """The rows of a foreign store that are about the files of a listing, as evidence."""

    def evidence(self, columns: Collection[str]) -> list[Index]:
        """The indexes over ``columns``, read back under the names as these spell them."""
        found: list[Index] = []
        for column in sorted(columns):
            for field in self.snapshot.fields:
                if field.definition is None or field.definition.columns != (column.lower(),):
                    continue
                key = (column, *field.key[1:])
                if key not in self._evidence:
                    self._evidence[key] = self._foreign(column, field, field.definition)
                found += self._evidence[key]
        return found

    def _foreign(self, column: str, field: FactField, definition: Definition) -> list[Index]:
        kind = definition.kind
        index = foreign_index(kind, column)
        if index is None:
            text = f"kind {kind!r} is not known here: it says nothing"
            self._add_unusable(f"{kind}({column})", text)
            return []
        pieces = self.snapshot.values(field)
        rows = [self._agreeing(piece) for piece in pieces]
        # A file with rows in two pieces: they cannot be compared, so neither counts.
        twice = np.sum([each >= 0 for each in rows], axis=0) > 1 if len(rows) > 1 else None
        found: list[Index] = []
        for piece, row_of_file in zip(pieces, rows, strict=True):
            if twice is not None:
                row_of_file[twice] = -1
            counts = np.where(piece.cache["empty"], np.int64(1), np.int64(-1))
            stored = Stored(
                type=definition.type,
                values=piece.values,
                rows=counts,
                nulls=counts,
                row_of_file=row_of_file,
                cache=piece.cache,
            )
            found.append(index.read_back(stored))
        return found

    def _agreeing(self, piece: FactColumn) -> NDArray[np.int64]:
        """For each file its row in ``piece``, where all of its rows there say the same."""
        row_of_file = self._row_of_file(piece)
        file = self.file_of_row[piece.at]
        usable = np.flatnonzero((file >= 0) & nonnull(piece.values))
        last = row_of_file[file[usable]]
        again = np.flatnonzero(last != usable)
        if len(again):
            same = same_values(piece.values, usable[again], last[again])
            row_of_file[file[usable[again[~same]]]] = -1
        return row_of_file
