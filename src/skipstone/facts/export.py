"""Publishes facts for other systems: an Xskipper store, Paimon's ``.index``, QuestDB's ``_pm``.

**A store of Xskipper**, version 4, complete. Xskipper skips a file whose ``minmax`` or
``valuelist`` is null, and reads a file that has no row. So

- only files with current facts have a row;
- an index that more than one file in ten lacks (it was over a limit, has no bound, or the column
  had another type) is left out completely; files that lack one of the other indexes have no row;
- a Bloom filter that was not built is one that may contain everything.

Kinds, types and names that Xskipper does not support are left out, each with its reason. An
encrypted index is published encrypted, every index under its own label; one whose key is not
available is left out.

**Sidecars.** Containers of file indexes become ``<data file>.index``, as in Paimon; row group
metadata becomes ``_pm`` in a directory of one data file, as in QuestDB, and ``<data file>._pm``
where a directory has several. Each file is byte for byte the stored sidecar. Where builds at
different times made several containers for a file, their blobs go into one, the newest of each
kind. The files go below a directory of their own, in the folders that the data files have below the
table; never among the data files, where Spark would read them as data.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError, in_words
from skipstone.identity import UNITS_PER_SECOND, canonical_path
from skipstone.indexes.bloom import FPP
from skipstone.paimon.format import container
from skipstone.paimon.format.container import ContainerHead
from skipstone.predicate.tree import is_expression
from skipstone.predicate.types import MapKey, column_path
from skipstone.pruning import Cause, Reason
from skipstone.pruning.table_schema import find_path
from skipstone.questdb.evidence.opened_pm import open_pm
from skipstone.storage import open_storage, remove_left_overs
from skipstone.xskipper.format.naming import (
    column_name,
    directory_name,
    file_identifier,
    obj_name,
    table_identifier,
)
from skipstone.xskipper.format.part import leaves_of, slices, to_bytes
from skipstone.xskipper.format.schema import spark_type
from skipstone.xskipper.format.v4_store import (
    BloomFacts,
    Facts,
    MinMaxFacts,
    ValueListFacts,
    published,
    supports,
)
from skipstone.xskipper.store import replace_parts

from .part_columns import nonnull
from .reports import ExportReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.pruning.kind import Blob
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.storage import Listing, Storage
    from skipstone.xskipper.format.naming import IdentifierStyle
    from skipstone.xskipper.format.schema import StoreSchema

    from .index_encryption import IndexEncryption
    from .part_columns import Definition
    from .snapshot import MatchedFacts


_MOST_LACKING = 0.1
_ROWS = 50_000
# Xskipper's defaults; its own refresh builds with them.
_NDV = 100_000
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


@dataclass(frozen=True, eq=False)
class _Column:
    """One index over all files: ``at`` says where in ``values`` a file's value is, -1 for none."""

    definition: Definition
    values: pa.Array
    at: NDArray[np.int64]

    def facts(self, files: NDArray[np.int64]) -> Facts:
        at = self.at[files]
        values = self.values.take(pa.array(at, mask=at < 0))
        column, type_ = self.definition.column, self.definition.type
        if self.definition.kind == "minmax":
            low, high = pc.struct_field(values, "min"), pc.struct_field(values, "max")
            return MinMaxFacts(column=column, minimum=low, maximum=high, empty=~nonnull(low))
        if self.definition.kind == "valuelist":
            empty = pc.fill_null(pc.equal(pc.list_value_length(values), 0), False)
            return ValueListFacts(
                column=column, values=values, empty=np.asarray(empty.to_numpy(False), np.bool_)
            )
        fpp = float(dict(self.definition.params).get("fpp", FPP))
        return BloomFacts(column=column, blobs=values, type=type_, fpp=fpp, ndv=_NDV)


def publish(
    matched: MatchedFacts,
    partitions: PartitionColumns,
    *,
    table: str,
    base: str,
    options: Mapping[str, str] | None = None,
    keys: LabelledKeys | None = None,
) -> ExportReport:
    """Write the facts ``matched`` of ``table`` as ``<base>/<sha256 of its identifier>/``.

    An earlier publication is replaced. ``UnsupportedError`` where nothing can be published, and for
    facts that depend on options of the reader.
    """
    from skipstone.parquet.encryption.master_keys import arrow_decryption

    if matched.fingerprint is not None:
        raise UnsupportedError(
            f"the facts of {table} hold for its reader's options, which a store of Xskipper lacks",
            hint="only the facts of a table of Parquet files can be published",
        )
    listing, encryption = matched.listing, matched.snapshot.encryption
    directory = f"{canonical_path(base)}/{directory_name(table_identifier(table))}"
    left_out: list[Reason] = []
    columns = _chosen(matched, left_out, keys)
    if not columns:
        why = "".join(f"; {reason}" for reason in left_out[:3])
        raise UnsupportedError(
            f"no index of {table} can be published for Xskipper{why}",
            hint="Xskipper has minmax, valuelist and bloomfilter, over the types that it supports",
        )
    files = _with_values(matched, columns, left_out)
    virtual = _virtual(partitions, left_out)
    parts: list[pa.Buffer] = []
    schema: StoreSchema | None = None
    for some in _runs(files):
        data, schema = published(
            table_identifier=table_identifier(table),
            obj_names=_names(listing, some),
            facts=[column.facts(some) for column in columns],
            virtual={name: values.take(pa.array(some)) for name, values in virtual.items()},
        )
        if encryption is not None:
            schema = _encrypted(schema, data.schema, encryption, columns)
        parts += [to_bytes(piece, schema, keys=keys) for piece in slices(data)]
    decryption = None if keys is None else arrow_decryption(keys)
    assert schema is not None
    paths = [listing.paths[file] for file in files.tolist()]
    target = open_storage(directory, options)
    size = replace_parts(target, directory, parts, schema, decryption, paths)
    return ExportReport(
        table=table,
        destination=directory,
        kind="xskipper",
        files_total=len(listing),
        files=len(files),
        indexes=tuple(f"{c.definition.column}:{c.definition.kind}" for c in columns),
        bytes=size,
        left_out=tuple(left_out),
    )


def _with_values(
    matched: MatchedFacts, columns: Sequence[_Column], left_out: list[Reason]
) -> NDArray[np.int64]:
    """The files that have current facts, and a value of every column; see the module."""
    rows = matched.has_fact.copy()
    lacking = int(np.count_nonzero(~rows))
    if lacking:
        text = "no current facts: read in full, `refresh` first"
        left_out.append(Reason(cause=Cause.ABSENT, subject="files", text=text, units=lacking))
    for column in columns:
        rows &= (column.at >= 0) | (column.definition.kind == "bloomfilter")
    dropped = len(rows) - lacking - int(rows.sum())
    if dropped:
        text = "no value for one of the published indexes: read in full"
        left_out.append(Reason(cause=Cause.OVER_LIMIT, subject="files", text=text, units=dropped))
    return np.flatnonzero(rows)


def _encrypted(
    schema: StoreSchema, arrow: pa.Schema, encryption: IndexEncryption, columns: Sequence[_Column]
) -> StoreSchema:
    """The schema of a store whose indexes have the labels of ours."""
    footer_key = encryption.footer_key
    return schema.encrypted(
        leaves_of(arrow),
        footer_key=footer_key,
        key_metadata={
            column_name(each.kind, [each.column.lower()]): each.key_metadata or footer_key
            for each in (column.definition for column in columns)
        },
        plaintext_footer=encryption.plaintext_footer,
    )


def _runs(files: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The files in runs of at most a part's rows; one empty run where there are none."""
    for start in range(0, max(len(files), 1), _ROWS):
        yield files[start : start + _ROWS]


def _names(listing: Listing, files: NDArray[np.int64]) -> pa.Array:
    """``obj_name`` of each file, as Xskipper computes it for itself."""
    style: IdentifierStyle = "cos" if listing.root.startswith("cos://") else "path"
    per_second = UNITS_PER_SECOND[listing.unit]
    # Nanoseconds times 1,000 are beyond 64 bits.
    per_ms, ms = max(per_second // 1000, 1), max(1000 // per_second, 1)
    times = listing.mtimes[files] * ms // per_ms
    return pa.array(
        [
            obj_name(file_identifier(listing.paths[file], style), time)
            for file, time in zip(files.tolist(), times.tolist(), strict=True)
        ],
        pa.string(),
    )


def _virtual(partitions: PartitionColumns, left_out: list[Reason]) -> dict[str, pa.Array]:
    found = {}
    for name, values in partitions.values.items():
        text = "its values depend on the session's time zone"
        try:
            spark_type(values.type)
        except UnsupportedError as error:
            text = error.message
        else:
            if not pa.types.is_timestamp(values.type):
                found[name] = values
                continue
        subject = f"partition({name})"
        left_out.append(Reason(cause=Cause.UNSUPPORTED, subject=subject, text=text))
    return found


def _chosen(
    matched: MatchedFacts, left_out: list[Reason], keys: LabelledKeys | None
) -> list[_Column]:
    definitions = matched.snapshot.definitions
    spellings = Counter(column.lower() for column in {d.column for d in definitions})
    total = int(matched.has_fact.sum())
    chosen = []
    for definition in definitions:
        reason = _unsupported(definition, spellings) or _of_nanoseconds(definition, matched)
        cause, units = Cause.UNSUPPORTED, None
        label = definition.key_metadata
        if reason is None and label is not None and not (keys is not None and keys.has(label)):
            cause, reason = Cause.UNDECRYPTABLE, f"needs the key labelled {label!r}"
        if reason is None:
            column = _column(matched, definition)
            lacking = total - int((column.at[matched.has_fact] >= 0).sum())
            if definition.kind == "bloomfilter" or lacking <= _MOST_LACKING * total:
                chosen.append(column)
                continue
            reason = f"too many files lack it, of {total:,} with facts"
            cause, units = Cause.OVER_LIMIT, lacking
        subject = str(definition)
        left_out.append(Reason(cause=cause, subject=subject, text=reason, units=units))
    return chosen


def _unsupported(definition: Definition, spellings: Mapping[str, int]) -> str | None:
    if len(definition.columns) != 1:
        return "Xskipper has one column per index"
    if is_expression(definition.column):
        return "Xskipper has no index over an expression"
    path = column_path(definition.column)
    if isinstance(path[-1], MapKey):
        return "Xskipper has no index over a key of a map"
    if any(set(part) & set(".`") for part in path):
        return "Xskipper reads a dot in a name as a field of a struct"
    if spellings[definition.column.lower()] > 1:
        return "another column's name differs only in case, which Xskipper ignores"
    return supports(definition.kind, definition.type)


def _of_nanoseconds(definition: Definition, matched: MatchedFacts) -> str | None:
    """Spark reads such a column as integers, and Xskipper compares these with the stored times."""
    known = matched.schemas if pa.types.is_timestamp(definition.type) else None
    for schema in () if known is None else known.schemas:
        found = find_path(schema.arrow, definition.column)
        if found and getattr(found[-1].type, "unit", "") == "ns":
            return "some files have nanoseconds, which Spark reads as integers"
    return None


def _column(matched: MatchedFacts, definition: Definition) -> _Column:
    """The newest value of each file, of all facts with the definition's type or a narrower one."""
    at = np.full(len(matched.listing), -1, np.int64)
    index = definition.index
    assert index is not None
    stored = index.stored_type(definition.type)
    stored = _LARGE.get(stored, stored)
    pieces: list[pa.Array] = [pa.nulls(0, stored)]
    total = 0
    for field in matched.snapshot.fields:
        have = field.definition
        if have is None or (have.kind, have.columns) != (definition.kind, definition.columns):
            continue
        if not _fits(have.type, definition.type):
            continue
        for piece in matched.snapshot.values(field):
            values = piece.values.cast(stored)
            known = nonnull(values)
            if definition.kind == "minmax":
                # A lower bound without an upper one: no short upper bound exists.
                low, high = (nonnull(pc.struct_field(values, end)) for end in ("min", "max"))
                known &= low == high
            file = matched.file_of_row[piece.at]
            usable = np.flatnonzero((file >= 0) & known)
            at[file[usable]] = total + usable
            pieces.append(values)
            total += len(values)
    return _Column(definition, pa.concat_arrays(pieces), at)


def _fits(then: pa.DataType, now: pa.DataType) -> bool:
    """True where every value of type ``then`` is the same value in type ``now``."""
    integers = pa.types.is_signed_integer(then) and pa.types.is_signed_integer(now)
    return bool(then == now or (integers and then.bit_width <= now.bit_width))


# -- sidecars --------------------------------------------------------------------------------------

# Files whose sidecars are read together.
_WAVE = 32
_Bytes: TypeAlias = "bytes | memoryview"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """What is published: ``what`` is its name; ``check`` raises for bytes that are not the sidecar
    of that file; ``path_of`` is the published path of a data file, below the destination."""

    kind: str
    what: str
    lacking: str
    hint: str
    check: Callable[[_Bytes, int], object]
    path_of: Callable[[str], str]
    indexes: tuple[str, ...] = ()


def export_containers(
    matched: MatchedFacts, *, table: str, destination: str, options: Mapping[str, str]
) -> ExportReport:
    """Write the container of every file that has one below ``destination``.

    A sidecar that cannot be read, or is not a container, is left out with the reason.
    ``UnsupportedError`` where no file has one, and for a destination within the table.
    """
    places = matched.places("container")
    placed = (places.pack >= 0) | nonnull(places.inline)
    blobs: dict[int, list[Blob | None]] = {}
    for row in np.flatnonzero((matched.file_of_row >= 0) & placed)[::-1].tolist():
        blobs.setdefault(int(matched.file_of_row[row]), []).append(places.at(row))
    names = [
        f"{field.definition.column}:{field.definition.kind}"
        for field in matched.snapshot.fields
        if field.definition is not None and field.sidecar == "container"
    ]
    form = _Format(
        kind="paimon",
        what="a file index",
        lacking=f"{table} has no file index of Paimon's kinds",
        hint="`skipstone build TABLE -c COLUMN:bitmap` builds one",
        check=lambda data, file: ContainerHead.from_bytes(data, len(data)),
        path_of=lambda path: f"{path}.index",
        indexes=tuple(dict.fromkeys(names)),
    )
    return _export(matched, blobs, form, table, destination, options)


def export_pms(
    matched: MatchedFacts, *, table: str, destination: str, options: Mapping[str, str]
) -> ExportReport:
    """Write the ``_pm`` of every file that has one below ``destination``.

    A sidecar that cannot be read, or is not the ``_pm`` of its file, is left out with the reason.
    ``UnsupportedError`` where no file has one, and for a destination within the table.
    """
    listing, places, rows = matched.listing, matched.places("pm"), matched.sidecar_rows("pm")
    start = len(listing.root)
    folders = Counter(path[start:].lstrip("/").rpartition("/")[0] for path in listing.paths)

    def path_of(path: str) -> str:
        folder, _, name = path.rpartition("/")
        return "/".join(filter(None, (folder, "_pm" if folders[folder] == 1 else f"{name}._pm")))

    form = _Format(
        kind="questdb",
        what="a _pm",
        lacking=f"{table} has no row group metadata",
        hint="`skipstone build` makes it with an index",
        check=lambda data, file: open_pm(data, parquet_size=int(listing.sizes[file])),
        path_of=path_of,
    )
    blobs = {file: [places.at(int(rows[file]))] for file in np.flatnonzero(rows >= 0).tolist()}
    return _export(matched, blobs, form, table, destination, options)


def _export(
    matched: MatchedFacts,
    blobs: Mapping[int, list[Blob | None]],
    form: _Format,
    table: str,
    destination: str,
    options: Mapping[str, str],
) -> ExportReport:
    """Write the sidecars of each file, the newest first in ``blobs``, as one file each."""
    home = canonical_path(destination).rstrip("/")
    if f"{home}/".startswith(f"{table.rstrip('/')}/"):
        raise UnsupportedError(
            f"{destination} lies within the table, where Spark would read sidecars as data",
            hint="export to a directory of its own",
        )
    listing = matched.listing
    source = open_storage(matched.snapshot.location.root, options)
    target = open_storage(home, options)
    written = size = 0
    left_out: list[Reason] = []
    files = sorted(blobs)
    start = len(listing.root)
    outputs = {at: f"{home}/{form.path_of(listing.paths[at][start:].lstrip('/'))}" for at in files}
    for directory in {path.rpartition("/")[0] for path in outputs.values()}:
        remove_left_overs(target, directory)
    for first in range(0, len(files), _WAVE):
        wave = files[first : first + _WAVE]
        read = iter(_read(source, [blob for file in wave for blob in blobs[file]]))
        for file in wave:
            path, sidecars = listing.paths[file], list[_Bytes]()
            for data in islice(read, len(blobs[file])):
                try:
                    if data is None:
                        raise OSError(f"{form.what} is not where the facts say")
                    form.check(data, file)
                    sidecars.append(data)
                except (SkipstoneError, OSError) as error:
                    text = in_words(error)
                    left_out.append(Reason(cause=Cause.CORRUPT, subject=path, text=text))
            if sidecars:
                joined = _joined(sidecars)
                target.put(outputs[file], joined, [path])
                written, size = written + 1, size + len(joined)
    if not written and not left_out:
        raise UnsupportedError(form.lacking, hint=form.hint)
    if lacking := len(listing) - len(files):
        text = f"no {form.what.partition(' ')[2]} was built"
        left_out.append(Reason(cause=Cause.ABSENT, subject="files", text=text, units=lacking))
    return ExportReport(
        table=table,
        destination=home,
        kind=form.kind,
        files_total=len(listing),
        files=written,
        indexes=form.indexes,
        bytes=size,
        left_out=tuple(left_out),
    )


def _read(source: Storage, blobs: Sequence[Blob | None]) -> list[_Bytes | None]:
    """The bytes of each of these sidecars; ``None`` where they are gone."""
    spans = [b.span(0, b.length) for b in blobs if b is not None and b.inline is None]
    got = source.read_ranges(spans) if spans else {}

    def data(blob: Blob) -> _Bytes | None:
        return got.get(blob.span(0, blob.length)) if blob.inline is None else blob.inline

    return [None if each is None else data(each) for each in blobs]


def _joined(parts: list[_Bytes]) -> _Bytes:
    """One container of the blobs of several; the first blob of a kind wins."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, dict[str, bytes | None]] = {}
    for part in parts:
        for (column, kind), blob in container.from_bytes(part)[1].items():
            columns.setdefault(column, {}).setdefault(kind, blob)
    return container.to_bytes(columns)
