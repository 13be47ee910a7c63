"""``XskipperStore``: a foreign store in the place of a table's facts. It is only read.

``find_store`` returns the store of a table: Skipstone's own, or a foreign one where the user names
its place. Nothing else is searched: the default place has only our own facts.

The planner, transparent reading, describe and check get identities, definitions and evidence as
from our own store. The differences are these:

- A row's identity is path and modification time in ms. Its path has no bucket unless Xskipper was
  configured so: it counts as a path in the bucket of the listing's root. A file replaced within the
  same millisecond, or a table of equal paths in another bucket, cannot be distinguished; ``notes``
  say so.
- Names are in lower case; evidence has the predicate's spelling.
- Several rows of one file count as one if they agree. Where they do not, none counts.
- The store does not say with which schema and reader options a file was read. For a table that is
  read with some (``fingerprint``) it proves nothing, unless the user sets that they match
  (``same_reader``). A column is compared only where its type in the query is exactly the type of
  the stored values. The type behind a Bloom filter is not stored, but Xskipper builds them only
  over integers (which it widens to 64 bits) and strings, and one column of one Parquet file never
  has both.
- Counts of rows and nulls are not stored. A file without any value gets a row count and a null
  count of 1: all of its rows are null, however many there are.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._dataclasses import dataclass
from skipstone.errors import KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.indexes.bloom import Bloom
from skipstone.indexes.minmax import MinMax
from skipstone.indexes.valuelist import ValueList
from skipstone.predicate.types import spark_name
from skipstone.pruning import Answer, Cause, Reason
from skipstone.pruning.kind import PerFile, Rows, Stored
from skipstone.xskipper.format.naming import table_identifier

from .location import Location, XskipperLocation
from .match import Identities, match_files
from .part_columns import OWN, Definition, FactField, integers, nonnull
from .parts import Part
from .snapshot import MatchedFacts, Snapshot
from .store import Store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.predicate.tree import Leaf
    from skipstone.pruning.kind import Index
    from skipstone.storage import Listing, Storage
    from skipstone.xskipper.format.schema import IndexColumn
    from skipstone.xskipper.store import StorePart

    from .part_columns import FactColumn


_CAVEAT = (
    "rows of a store of Xskipper name path and time of a file, and neither size nor bucket: "
    "a file replaced within the same millisecond is not detected"
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
    """A part of a foreign store: the content of ``stored``, described like a fact part."""

    stored: StorePart

    @classmethod
    def of(cls, stored: StorePart) -> XskipperPart:
        """The fact part that stands for ``stored``."""
        return cls(
            name=stored.name,
            path=stored.path,
            size=stored.size,
            mtime=stored.mtime,
            metadata=None,
            schema=stored.footer.columns,
            fields=tuple(map(_field, stored.footer.schema.indexes)),
            stored=stored,
        )

    @property
    def rows(self) -> int:
        return self.stored.footer.rows

    @cached_property
    def _footer(self) -> FooterArrays | None:
        return self.stored.footer.arrays

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
            except Exception as error:  # whatever is wrong with a part, the query continues
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
        self, field_: FactField, without: frozenset[str]
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

    def evidence(
        self, columns: Collection[str], *, of_row_groups: bool = False, keys: int | None = None
    ) -> list[Index]:
        """The indexes over ``columns``, read back under these spellings."""
        found: list[Index] = []
        for column in () if of_row_groups else sorted(columns):
            for field in self.snapshot.fields:
                if field.definition is None or field.definition.columns != (column.lower(),):
                    continue
                key = (column, field.key)
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
        # Rows of one file in two pieces cannot be compared, so neither counts.
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
        """For each file its row in ``piece``, where all of its rows there are equal."""
        from skipstone.xskipper.store import same_values

        row_of_file = self.row_of_file(piece.at, nonnull(piece.values))
        file = self.file_of_row[piece.at]
        usable = np.flatnonzero((file >= 0) & nonnull(piece.values))
        last = row_of_file[file[usable]]
        again = np.flatnonzero(last != usable)
        if len(again):
            same = same_values(piece.values, usable[again], last[again])
            row_of_file[file[usable[again[~same]]]] = -1
        return row_of_file


_FILTERED = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string())


class _SameType(PerFile):
    """Answers of leaves whose type is that of the stored values, and of no others."""

    def _answer(self, leaf: Leaf, rows: Rows, lacking: tuple[Reason, ...]) -> Answer:
        type_ = rows.stored.type
        if pa.types.is_null(type_) and leaf.type in _FILTERED:
            rows = Rows(replace(rows.stored, type=leaf.type), rows.at)
        elif leaf.type != type_:
            stored = "integers or strings" if pa.types.is_null(type_) else spark_name(type_)
            text = f"over {stored}, and the column is {spark_name(leaf.type)} here"
            return Answer.silent(Cause.NOT_APPLICABLE, self._subject, text)
        return super()._answer(leaf, rows, lacking)


class _MinMax(_SameType, MinMax):
    pass


class _ValueList(_SameType, ValueList):
    pass


class _Bloom(_SameType, Bloom):
    pass


_KINDS: dict[str, type[_MinMax | _ValueList | _Bloom]] = {
    kind.name: kind for kind in (_MinMax, _ValueList, _Bloom)
}


def foreign_index(kind: str, column: str) -> _MinMax | _ValueList | _Bloom | None:
    """The evidence of ``kind`` over ``column``, not read back; ``None`` for other kinds."""
    found = _KINDS.get(kind)
    return None if found is None else found(column)


class XskipperStore(Store):
    """The store of Xskipper in the directory ``location.root``; see the module.

    ``decryption``: pyarrow's ``FileDecryptionProperties`` with the user's keys. ``same_reader``:
    the user states that the table is read as when the store was built.
    """

    def __init__(
        self,
        location: Location | str,
        storage: Storage,
        *,
        decryption: object | None = None,
        same_reader: bool = False,
    ) -> None:
        super().__init__(location, storage)
        self.decryption, self.same_reader = decryption, same_reader
        self._listed: dict[str, tuple[int, int]] | None = None
        self._snapshot: XskipperSnapshot | None = None

    def __repr__(self) -> str:
        return f"XskipperStore({self.location.root!r})"

    def exists(self) -> bool:
        """True when the directory exists."""
        return self.storage.has_children(self.location.root)

    def part_names(self) -> dict[str, tuple[int, int]]:
        """Size and mtime (ns) of every part, by name."""
        from skipstone.xskipper.store import part_files

        start = len(self.location.root) + 1
        files = part_files(self.storage, self.location.root)
        return {path[start:]: at for path, at in files.items()}

    def snapshot(self) -> XskipperSnapshot:
        """The store as it is now. Never raises: what cannot be read is in ``reasons``."""
        from skipstone.xskipper.store import open_parts, part_files

        root = self.location.root
        try:
            files = part_files(self.storage, root)
        except Exception as error:
            reason = Reason.of_error(f"store of Xskipper at {root}", error)
            self.warn(reason)
            return XskipperSnapshot(self.location, self.storage, (), [reason], self.warn)
        if self._snapshot is not None and files == self._listed:
            return self._snapshot
        reasons: list[Reason] = []
        parts: list[XskipperPart] = []
        for found in open_parts(self.storage, files, self.decryption):
            if not isinstance(found, Reason):
                try:
                    parts.append(XskipperPart.of(found))
                    continue
                except Exception as error:  # foreign bytes
                    found = Reason.of_error(f"part {found.name}", error)
            reasons.append(found)
            self.warn(found)
        if not files:
            text = "no store of Xskipper: nothing is indexed here"
            reasons.append(Reason(cause=Cause.ABSENT, subject=root, text=text))
        snapshot = XskipperSnapshot(self.location, self.storage, parts, reasons, self.warn)
        snapshot.same_reader = self.same_reader
        if len(parts) == len(files):
            self._snapshot, self._listed = snapshot, files
        return snapshot

    # -- a foreign store is not written to --------------------------------------------------------

    def require_own(self) -> NoReturn:
        """Raises ``UnsupportedError``: a foreign store is not written to."""
        snapshot = self.snapshot()
        locked = [r for r in snapshot.reasons if r.cause is Cause.UNDECRYPTABLE]
        encrypted = locked or any(part.stored.footer.schema.encryption for part in snapshot.parts)
        raise UnsupportedError(
            f"{self.location.root} is a store of Xskipper{', encrypted' if encrypted else ''}: "
            "it is read, and never built or refreshed",
            hint="build an index of Skipstone's own in another place, or adjacent to the table",
        )

    def write_part(self, *facts: object, **more: object) -> NoReturn:
        """Raises ``UnsupportedError``."""
        self.require_own()

    def drop(self) -> None:
        """Raises ``UnsupportedError``."""
        self.require_own()


def foreign_store(
    table: str, named: XskipperLocation, storage: Storage, keys: LabelledKeys | None = None
) -> XskipperStore | None:
    """The store of Xskipper for ``table`` at or below the path of ``named``, if there is one.

    ``keys`` open an encrypted one.
    """
    from skipstone.xskipper.store import find_directory

    base = canonical_path(named.path)
    try:
        directory = find_directory(storage, base, canonical_path(table))
    except SkipstoneError:  # it cannot be listed: the next reader reports it
        directory = None
    return None if directory is None else store_in(directory, named, storage, keys)


def store_in(
    directory: str, named: XskipperLocation, storage: Storage, keys: LabelledKeys | None = None
) -> XskipperStore:
    """The store in ``directory``."""
    decryption = named.decryption
    if decryption is None and keys is not None:
        from skipstone.parquet.encryption.master_keys import arrow_decryption

        decryption = arrow_decryption(keys)
    return XskipperStore(
        Location(directory), storage, decryption=decryption, same_reader=named.same_reader
    )
