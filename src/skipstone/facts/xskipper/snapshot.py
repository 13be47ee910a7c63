"""A foreign store as a ``Snapshot``, and laid over a listing: the same values that our facts are.

Everything downstream (planner, transparent reading, describe, check) sees identities, definitions
and evidence, and no difference but what is said here:

- A row's identity is path and modification time in ms. Its path has no bucket unless Xskipper was
  told so: it is taken for one of the listing's root. A file replaced within the same millisecond,
  or a table of equal paths in another bucket, cannot be told apart; ``notes`` say so.
- Names are in lower case; the predicate's spelling counts.
- Several rows of one file are one, if they agree. Where they do not, none is believed.
- Nothing is known of the reader's options: for a table that is read with some (``fingerprint``),
  the store is silent, unless whoever named it vouches for them (``same_reader``).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import KeyUnavailableError, SkipstoneError
from skipstone.facts.match import Matched, match
from skipstone.facts.part_columns import OWN, Definition, FactField
from skipstone.facts.parts import Part
from skipstone.facts.snapshot import Column, Identities, Snapshot, cause_of, integers, nonnull
from skipstone.pruning import Cause, Reason
from skipstone.pruning.kind import Index, Stored
from skipstone.xskipper.format.naming import table_identifier
from skipstone.xskipper.format.part import read_part
from skipstone.xskipper.format.rows import UnreadRows, decode

from .kinds import foreign_index, same_values, stored_values

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Listing, Storage
    from skipstone.xskipper.format.part import Footer
    from skipstone.xskipper.format.part import Part as Decoded
    from skipstone.xskipper.format.schema import IndexColumn

__all__ = [
    "XskipperMatched",
    "XskipperPart",
    "XskipperSnapshot",
    "fields_of",
    "reason_of",
    "source",
]

_PIECE = 1 << 30
_CAVEAT = (
    "rows of a store of Xskipper name path and time of a file, and neither size nor bucket: "
    "one replaced within the same millisecond goes unseen"
)


def source(storage: Storage, path: str) -> pa.NativeFile:
    """The file at ``path`` as Arrow reads it."""
    return pa.PythonFile(storage.open(path), mode="r")


def reason_of(subject: str, error: Exception) -> Reason:
    """As ``cause_of``; a missing key has a cause of its own."""
    found = cause_of(subject, error)
    if not isinstance(error, KeyUnavailableError):
        return found
    return Reason(cause=Cause.UNDECRYPTABLE, subject=subject, text=found.text)


def fields_of(footer: Footer) -> tuple[FactField, ...]:
    """The index columns of a part, as the columns of a fact part are described."""
    return tuple(_field(index) for index in footer.schema.indexes)


def _field(index: IndexColumn) -> FactField:
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
    """A part of a foreign store whose footer was read; ``decryption`` as in ``read_part``."""

    footer: Footer
    decryption: object | None = None

    def _column_bytes(self) -> Mapping[str, int]:
        # Arrow must not be asked about the column chunks of a store with encryption.
        return {} if self.footer.schema.encryption is not None else super()._column_bytes()

    def decoded(self, storage: Storage, columns: Collection[str] | None) -> Decoded:
        """The part with these columns and ``obj_name``; errors as ``read_part`` has them."""
        with source(storage, self.path) as file:
            return read_part(file, columns=columns, file=self.path, decryption=self.decryption)

    def read(self, storage: Storage, names: Sequence[str]) -> pa.Table:
        """These columns; ``FormatError`` for damage, ``KeyUnavailableError`` for a missing key."""
        found = self.decoded(storage, names)
        for name, text in found.unreadable:
            raise KeyUnavailableError(f"{self.path}: {name}: {text}")
        return found.table.select(list(names))


class XskipperSnapshot(Snapshot):
    """The readable parts of a foreign store; see the module. ``parts`` are ``XskipperPart``."""

    in_runs = False
    parts: tuple[XskipperPart, ...]
    same_reader: bool = False

    @cached_property
    def definitions(self) -> tuple[Definition, ...]:
        """As in ``Snapshot``; of stores that nobody can use too."""
        found = {(d.kind, d.columns): d for f in self.fields if (d := f.definition) is not None}
        return tuple(found.values())

    @cached_property
    def identities(self) -> Identities:
        """Path and time of every row; all else is unknown."""
        parts, starts, paths, times = [], {}, [], []
        total = 0
        for part in self.parts:
            try:
                rows = decode(part.decoded(self.storage, ()))
            except Exception as error:  # whatever is wrong with a part, the query goes on
                self._add(reason_of(f"part {part.name}", error))
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
        """What only our own facts have is null."""
        return pa.chunked_array([pa.nulls(len(self.identities), OWN[name])])

    def values(self, field_: FactField) -> list[Column]:
        """One index column, decoded; ``cache["empty"]``: files without any value in it."""
        found = self._columns.get(field_.key)
        if found is None:
            found = self._columns[field_.key] = self._decoded(field_)
        return found

    def _decoded(self, field_: FactField) -> list[Column]:
        pieces: list[Column] = []
        rows: list[NDArray[np.int64]] = []
        chunks: list[pa.Array] = []
        empties: list[NDArray[np.bool_]] = []

        def close() -> None:
            if chunks:
                values = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
                cache: dict[str, Any] = {"empty": np.concatenate(empties)}
                pieces.append(Column(np.concatenate(rows), values, cache))
            for each in (rows, chunks, empties):
                each.clear()

        for part in self.identities.parts:
            assert isinstance(part, XskipperPart)
            held = part.by_key.get(field_.key)
            if held is None:
                continue
            values, empty = self._read_one(part, held)
            first = 0
            for chunk in values:
                if sum(each.nbytes for each in chunks) + chunk.nbytes > _PIECE:
                    close()
                end = first + len(chunk)
                rows.append(self.identities.starts[part.name] + np.arange(first, end))
                chunks.append(chunk)
                empties.append(empty[first:end])
                first = end
        close()
        return pieces

    def _read_one(
        self, part: XskipperPart, field_: FactField
    ) -> tuple[list[pa.Array], NDArray[np.bool_]]:
        name = field_.arrow.name
        try:
            decoded = part.decoded(self.storage, [name])
            rows = decode(decoded)
        except Exception as error:  # as above
            self._add(reason_of(f"part {part.name}", error))
            return [], np.zeros(0, np.bool_)
        found = next(each for each in rows.indexes if each.index.name == name)
        if isinstance(found, UnreadRows):
            locked = name in dict(decoded.unreadable) and found.index.key_metadata is not None
            cause = Cause.UNDECRYPTABLE if locked else Cause.UNSUPPORTED
            subject = f"{found.index.kind}({', '.join(found.index.columns)})"
            self._add(Reason(cause=cause, subject=subject, text=found.reason))
        return stored_values(found, own=part.footer.own)

    def _add(self, reason: Reason) -> None:
        self._reasons.setdefault(reason)
        self._warn(reason)

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
        base = match(chosen, listing, None)
        if base.has_fact.any():
            subject = self.location.root
            notes.append(Reason(cause=Cause.NOT_APPLICABLE, subject=subject, text=_CAVEAT))
        values = {field_.name: getattr(base, field_.name) for field_ in fields(base)}
        return XskipperMatched(**{**values, "notes": (*base.notes, *notes)})

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
            named = part.footer.schema.table_identifier or ""
            if _bucket(named) and _bucket(named) not in ours:
                return named
        return None

    def _below(self, root: str) -> XskipperSnapshot:
        """The same rows with the paths that they have in the bucket of ``root``."""
        authority = _bucket(root)
        if not authority:
            return self
        found = copy.copy(self)
        identities = copy.copy(self.identities)
        short = _bucket(table_identifier(root, "cos"))
        paths = identities.paths
        bare = pc.binary_join_element_wise(
            pa.scalar(authority, paths.type), paths, pa.scalar("", paths.type)
        )
        placed = pc.if_else(pc.starts_with(paths, "/"), bare, paths)
        if short and short != authority:
            moved = pc.utf8_replace_slice(paths, 0, len(short), authority)
            placed = pc.if_else(pc.starts_with(paths, f"{short}/"), moved, placed)
        object.__setattr__(identities, "paths", placed)
        found.__dict__["identities"] = identities
        return found


def _bucket(path: str) -> str:
    """Scheme and authority of a canonical path or an identifier, empty for local ones."""
    scheme, slashes, rest = path.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if slashes and "/" not in scheme else ""


@dataclass(frozen=True, eq=False, kw_only=True)
class XskipperMatched(Matched):
    """The rows of a foreign store that are about the files of a listing, as evidence."""

    def evidence(self, columns: Collection[str]) -> list[Index]:
        """The indexes over ``columns``, read back under the names as these spell them."""
        found: list[Index] = []
        for column in sorted(columns):
            for field in self.snapshot.fields:
                if field.definition is None or field.definition.columns != (column.lower(),):
                    continue
                key = (column, *field.key[1:])
                if key not in self._read_back:
                    self._read_back[key] = self._foreign(column, field)
                found += self._read_back[key]
        return found

    def _foreign(self, column: str, field: FactField) -> list[Index]:
        assert field.definition is not None
        index = foreign_index(field.definition.kind, column)
        if index is None:
            kind = field.definition.kind
            text = f"kind {kind!r} is not known here: it says nothing"
            reason = Reason(cause=Cause.UNSUPPORTED, subject=f"{kind}({column})", text=text)
            self._unusable.setdefault(reason)
            return []
        pieces = self.snapshot.values(field)
        rows = [self._agreeing(piece) for piece in pieces]
        # A file whose rows lie in two pieces: they cannot be compared, so neither counts.
        twice = np.sum([each >= 0 for each in rows], axis=0) > 1 if len(rows) > 1 else None
        found: list[Index] = []
        for piece, row_of_file in zip(pieces, rows, strict=True):
            if twice is not None:
                row_of_file[twice] = -1
            counts = np.where(piece.cache["empty"], np.int64(1), np.int64(-1))
            stored = Stored(
                type=field.definition.type,
                values=piece.values,
                rows=counts,
                nulls=counts,
                row_of_file=row_of_file,
                cache=piece.cache,
            )
            found.append(index.read_back(stored))
        return found

    def _agreeing(self, piece: Column) -> NDArray[np.int64]:
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
