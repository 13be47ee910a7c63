"""The columns of a fact part, and their descriptions in its footer.

One row per data file:

| column | type | |
|---|---|---|
| ``obj_name`` | string | ``path#mtime in ms``, as Xskipper names a row; for other readers |
| ``skipstone_path`` … ``_etag`` | | the identity: path, size, mtime, unit, etag |
| ``skipstone_fingerprint`` | string | of reader options, null where they do not matter |
| ``skipstone_rows`` | int64 | row count, null unknown |
| ``skipstone_reasons`` | map | index -> why it was left out |
| ``skipstone_footer_length`` … | int64 | the Parquet footer; offset and length of its page index |
| ``skipstone_row_groups`` | int64 | row groups of a Parquet file |
| ``skipstone_chunks`` | map | column that has only Bloom filters -> place of its chunk |
| ``skipstone_schema`` | string | name of the file's schema in the footer, null unknown |
| ``skipstone_<sidecar>_…`` | | where a sidecar lies: pack, offset, length, or inline; sidecars are
``container``, ``pm`` and ``filters`` |
| ``<c>_nullcount_<n>`` | int64 | nulls of column c, null unknown |
| ``<c>_<kind>_<n>`` | any | an index, named as in version 4 of Xskipper; null = not built |
| ``<index>~pieces`` | binary | how to read single bits of Bloom filters (``filter_pieces.py``) |

Names only distinguish columns. The footer describes each column, under the key ``skipstone.part``::

    {"version": 1, "nonce": …, "created_by": …, "fields": [
       {"field": "id_minmax_2", "types": <Arrow IPC schema of the indexed columns, base64>,
        "index": {"name": "minmax", "cols": ["id"], "params": {}}, "built": <ms>},
       {"field": "id_nullcount_2", "types": …, "nulls": "id"}]}

An index whose values are places in a sidecar of the same row also has ``"sidecar": "container"``.
``"sidecar": "filters"`` and ``"row_groups": true`` are of a second column of an index, with the
places of its filters of row groups.
Its values and the place of the sidecar are always taken from one row together.
In an encrypted part (``parts.py``) an index and null counts also have ``"key_metadata"``, the label
of their key: within ``index``, and next to ``nulls``.
Unknown keys of an entry and unknown columns are kept through every rewrite.
``"schemas"`` has the schemas of the files by name: the first 16 bytes of the SHA-256 of a text
(``FileSchema.to_text``), in hex, and the text. A part in the clear has no schema of a file whose
footer is encrypted.
Next to ``fields`` there may be ``"inline_limit"``: the build stored sidecars of up to this many
bytes in the facts. Later builds and refreshes use the value of the newest part that has one.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone._arrays import numbers, validity
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.identity import canonical_json
from skipstone.predicate.tree import is_expression
from skipstone.pruning.table_schema import in_base64, schema_of_base64
from skipstone.xskipper.format.naming import OBJ_NAME, column_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.pruning.kind import Index


PATH, SIZE, MTIME = "skipstone_path", "skipstone_size", "skipstone_mtime"
UNIT, ETAG, FINGERPRINT = "skipstone_unit", "skipstone_etag", "skipstone_fingerprint"
ROWS, REASONS = "skipstone_rows", "skipstone_reasons"
#: The keys of the reasons why a build could not read a file, and why it has no ``_pm``.
UNREADABLE, PM = "file", "_pm"
FOOTER_LENGTH = "skipstone_footer_length"
ROW_GROUPS = "skipstone_row_groups"
CHUNKS = "skipstone_chunks"
#: longer chunks are not read ahead: reading them takes longer than a round trip
LONGEST_CHUNK: Final = 256 << 10
SCHEMA = "skipstone_schema"
PAGE_INDEX_OFFSET, PAGE_INDEX_LENGTH = "skipstone_page_index_offset", "skipstone_page_index_length"
SIDECARS = ("container", "pm", "filters")
#: Bytes of the largest sidecar that lies in its fact row, unless the build says otherwise.
INLINE_LIMIT = 500

# Arrow's 32-bit offsets end at 2 GiB; a column beyond this is kept in several pieces.
_PIECE = 1 << 30
# Copying a chunk of so many bytes takes longer than asking it alone; and how many stay alone.
_LARGE, _MOST_ALONE = 8 << 20, 8

#: Identifies one version of one file under one set of reader options.
IDENTITY = (PATH, SIZE, MTIME, UNIT, ETAG, FINGERPRINT)


def place_columns(sidecar: str) -> tuple[str, str, str, str]:
    """The columns that say where a sidecar lies: pack, offset, length, inline."""
    prefix = f"skipstone_{sidecar}"
    return f"{prefix}_pack", f"{prefix}_offset", f"{prefix}_length", f"{prefix}_inline"


def _own() -> dict[str, pa.DataType]:
    text, number = pa.large_string(), pa.int64()
    types = {
        OBJ_NAME: text,
        PATH: text,
        SIZE: number,
        MTIME: number,
        UNIT: text,
        ETAG: text,
        FINGERPRINT: text,
        ROWS: number,
        REASONS: pa.map_(pa.string(), pa.string()),
        FOOTER_LENGTH: number,
        PAGE_INDEX_OFFSET: number,
        PAGE_INDEX_LENGTH: number,
        ROW_GROUPS: number,
        CHUNKS: pa.map_(pa.string(), pa.struct({"offset": number, "length": number})),
        SCHEMA: text,
    }
    for sidecar in SIDECARS:
        pack, offset, length, inline = place_columns(sidecar)
        types |= {pack: text, offset: number, length: number, inline: pa.large_binary()}
    return types


#: Our own columns and their types, in the order of the file.
OWN: dict[str, pa.DataType] = _own()


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One index as in the facts, of a known or unknown kind.

    ``types`` is the schema of the indexed columns when it was built; ``built`` is when, in ms by
    the builder's clock.
    """

    kind: str
    columns: tuple[str, ...]
    params: tuple[tuple[str, str], ...]
    types: pa.Schema
    built: int = 0
    key_metadata: str | None = None

    @classmethod
    def of(
        cls, index: Index, schema: pa.Schema, built: int, key_metadata: str | None = None
    ) -> Definition:
        """The definition of ``index`` over a table with (at least) its column in ``schema``."""
        field = schema.field(index.column)
        return cls(
            kind=index.name,
            columns=(index.column,),
            params=tuple(sorted(index.params.items())),
            types=pa.schema([pa.field(index.column, field.type)]),
            built=built,
            key_metadata=key_metadata,
        )

    def same_index(self, other: Definition | None) -> bool:
        """Whether ``other`` is of the same kind, columns and parameters."""
        return other is not None and (self.kind, self.columns, self.params) == (
            other.kind,
            other.columns,
            other.params,
        )

    @property
    def column(self) -> str:
        """The indexed column, or several joined by a comma."""
        return ", ".join(self.columns)

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the (first) indexed column when it was built."""
        return self.types.field(0).type

    @property
    def index(self) -> Index | None:
        """The definition as an ``Index``; ``None`` for a kind that is not known here."""
        from skipstone.indexes.registry import kind

        found = kind(self.kind)
        if found is None or len(self.columns) != 1:
            return None
        return found.from_params(self.columns[0], dict(self.params))

    def __str__(self) -> str:
        shown = "".join(f", {key}={value}" for key, value in self.params)
        return f"{self.kind}({self.column}{shown})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactField:
    """A column of a part that is not one of ``OWN``: an index, the null counts of ``nulls``, or
    something newer.

    ``arrow`` is the Arrow field with its name in that part; ``entry`` its JSON entry without
    ``field`` and ``built``, sorted: with the type it shows whether columns of two parts are the
    same.
    """

    arrow: pa.Field
    entry: str
    definition: Definition | None = None
    nulls: str | None = None
    types: pa.Schema | None = None

    @property
    def key_metadata(self) -> str | None:
        """The label of the key that the column is encrypted with, ``None`` in the clear."""
        if self.definition is not None:
            return self.definition.key_metadata
        found = json.loads(self.entry).get("key_metadata") if self.entry else None
        return found if isinstance(found, str) else None

    @property
    def built(self) -> int:
        """When its definition was built; -1 without one."""
        return -1 if self.definition is None else self.definition.built

    @property
    def subject(self) -> str:
        """Its name in reasons."""
        return str(self.definition) if self.definition is not None else f"nulls({self.nulls})"

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for the same column in two parts."""
        plain = self.definition is None and self.nulls is None
        type_ = self.arrow.with_name("").with_nullable(True)
        shown = f"{type_.type} {sorted((type_.metadata or {}).items())}"
        return (self.arrow.name if plain else "", self.entry, shown)

    @property
    def index(self) -> Index:
        """The index that reads the values; ``LookupError`` for a kind that is not known here."""
        if self.definition is None:
            from skipstone.indexes.minmax import NullCounts

            assert self.nulls is not None
            return NullCounts(self.nulls)
        found = self.definition.index
        if found is not None and self.of_row_groups:
            found = found.of_row_groups()
        if found is None:
            raise LookupError(f"kind {self.definition.kind!r} is not known here: it says nothing")
        return found

    @property
    def of_row_groups(self) -> bool:
        """Whether it is about row groups, next to another column of the same index."""
        return bool(self.entry) and json.loads(self.entry).get("row_groups") is True

    @property
    def stem(self) -> str:
        """The name that the column gets unless another column has it."""
        if self.definition is not None:
            kind = self.definition.kind
            if self.of_row_groups:
                kind = f"{kind}_row_groups"
            return column_name(kind, self.definition.columns)
        if self.nulls is not None:
            return column_name("nullcount", [self.nulls])
        return str(self.arrow.name)

    @property
    def sidecar(self) -> str | None:
        """The sidecar that the values refer to, if they refer to one."""
        found = json.loads(self.entry).get("sidecar") if self.entry else None
        return found if found in SIDECARS else None

    @classmethod
    def of_definition(
        cls,
        definition: Definition,
        stored: pa.DataType,
        sidecar: str | None = None,
        *,
        row_groups: bool = False,
    ) -> FactField:
        """The column of an index whose stored values are of type ``stored``."""
        params = dict(definition.params)
        described: dict[str, object] = {
            "name": definition.kind,
            "cols": list(definition.columns),
            "params": params,
        }
        if definition.key_metadata is not None:
            described["key_metadata"] = definition.key_metadata
        entry: dict[str, object] = {"index": described, "types": in_base64(definition.types)}
        if sidecar is not None:
            entry["sidecar"] = sidecar
        if row_groups:
            entry["row_groups"] = True
        return cls(
            arrow=pa.field("", stored),
            entry=canonical_json(entry),
            definition=definition,
            types=definition.types,
        )

    @classmethod
    def of_nulls(cls, column: str, type: pa.DataType, key_metadata: str | None = None) -> FactField:
        """The column of the null counts of ``column``."""
        types = pa.schema([pa.field(column, type)])
        entry: dict[str, object] = {"nulls": column, "types": in_base64(types)}
        if key_metadata is not None:
            entry["key_metadata"] = key_metadata
        return cls(
            arrow=pa.field("", pa.int64()), entry=canonical_json(entry), nulls=column, types=types
        )

    @classmethod
    def from_json(cls, arrow: pa.Field, entry: dict[str, Any] | None) -> FactField:
        """The field of a part from its entry in the footer, if it has one; else ``FormatError``."""
        if entry is None:
            return cls(arrow=arrow, entry="")
        try:
            rest = {key: value for key, value in entry.items() if key not in ("field", "built")}
            types = schema_of_base64(entry["types"]) if "types" in entry else None
            definition = _definition(entry, types) if "index" in entry else None
            nulls = entry.get("nulls")
            if not isinstance(nulls, str | None) or (nulls is not None and not types):
                raise ValueError(f"nulls is {nulls!r}")
            return cls(
                arrow=arrow,
                entry=canonical_json(rest),
                definition=definition,
                nulls=nulls,
                types=types,
            )
        except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            raise FormatError(f"fact column {arrow.name!r} is not described ({error})") from error

    def to_json(self) -> dict[str, Any] | None:
        """The entry for the footer."""
        if not self.entry:
            return None
        built = {} if self.definition is None else {"built": self.definition.built}
        return {"field": self.arrow.name, **json.loads(self.entry), **built}

    def renamed(self, name: str) -> FactField:
        """The same column under the name that it has in another part."""
        return replace(self, arrow=self.arrow.with_name(name))


def _definition(entry: dict[str, Any], types: pa.Schema | None) -> Definition:
    index = entry["index"]
    columns, params, built = index["cols"], index.get("params", {}), entry.get("built", 0)
    texts = [index["name"], *columns, *params, *params.values()]
    if not all(isinstance(text, str) for text in texts) or type(built) is not int:
        raise ValueError(f"name, cols or params of {index['name']!r} are not texts")
    key = index.get("key_metadata")
    if not isinstance(key, str | None):
        raise ValueError(f"key_metadata of {index['name']!r} is not text")
    if types is None or list(types.names) != columns or not columns:
        raise ValueError(f"the types do not describe {columns}")
    return Definition(
        kind=index["name"],
        columns=tuple(columns),
        params=tuple(sorted(params.items())),
        types=types,
        built=built,
        key_metadata=key,
    )


def unique_names(fields: Iterable[FactField]) -> list[FactField]:
    """The fields under unique names, also where case is ignored."""
    used = {name.lower() for name in OWN}
    named = []
    for field in fields:
        name, count = field.stem, 1
        while name.lower() in used:
            count += 1
            name = f"{field.stem}~{count}"
        used.add(name.lower())
        named.append(field.renamed(name))
    return named


def fields_named(fields: Iterable[FactField], columns: Iterable[str]) -> list[FactField]:
    """The fact columns about ``columns`` and about expressions over these, in any case."""
    lower = {column.lower() for column in columns}

    def about(name: str) -> bool:
        return name.lower() in lower or (is_expression(name) and bool(_read(name) & lower))

    return [
        field
        for field in fields
        if about(field.nulls or "")
        or (field.definition and any(map(about, field.definition.columns)))
    ]


def _read(name: str) -> set[str]:
    from skipstone.predicate.indexed import columns_of_name

    return {column.lower() for column in columns_of_name(name)}


def own_for_plans(fields: Iterable[FactField]) -> set[str]:
    """The columns of ``OWN`` that a plan with these fields needs, besides identities."""
    sidecars = {field.sidecar for field in fields} | {"pm"}
    places = {name for each in sidecars if each is not None for name in place_columns(each)}
    blooms = any(
        each.definition is not None and each.definition.kind == "bloomfilter" for each in fields
    )
    chunks = {CHUNKS} if blooms else set()
    return places | chunks | {SCHEMA, ROW_GROUPS, FOOTER_LENGTH, PAGE_INDEX_OFFSET}


# -- values as NumPy arrays ----------------------------------------------------------------------


def integers(column: pa.ChunkedArray | pa.Array, unknown: int) -> NDArray[np.int64]:
    """An Arrow integer column as int64, ``unknown`` for null."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = [numbers(chunk, unknown).astype(np.int64, copy=False) for chunk in chunks]
    return found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.int64), *found])


def nonnull(column: pa.ChunkedArray | pa.Array) -> NDArray[np.bool_]:
    """Which values are not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return np.concatenate([validity(chunk) for chunk in chunks])


# -- columns in pieces -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FactColumn:
    """A piece of one index column: ``values`` of the fact rows ``at`` (ascending). ``cache`` holds
    what a kind derives from the values; it lives as long as the snapshot."""

    at: NDArray[np.int64]
    values: pa.Array
    cache: dict[str, Any] = dataclasses.field(default_factory=dict)


def in_pieces(
    chunks: Iterable[tuple[int, pa.Array, Mapping[str, NDArray[Any]]]],
) -> Iterator[FactColumn]:
    """Join chunks to columns of at most about 1 GiB. The first few large chunks stay alone, because
    joining copies them. A chunk is its first row, its values, and arrays over them for
    ``cache``."""
    rows: list[NDArray[np.int64]] = []
    held: list[pa.Array] = []
    derived: list[Mapping[str, NDArray[Any]]] = []
    nbytes = alone = 0
    for first, values, arrays in chunks:
        if values.nbytes >= _LARGE and alone < _MOST_ALONE:
            yield _column([np.arange(first, first + len(values))], [values], [arrays])
            alone += 1
            continue
        if held and nbytes + values.nbytes > _PIECE:
            yield _column(rows, held, derived)
            rows, held, derived, nbytes = [], [], [], 0
        rows.append(np.arange(first, first + len(values)))
        held.append(values)
        derived.append(arrays)
        nbytes += values.nbytes
    if held:
        yield _column(rows, held, derived)


def joined(pieces: Sequence[FactColumn]) -> Sequence[FactColumn]:
    """The pieces as one column with a chunked array of values, cached with the first piece."""
    if len(pieces) < 2:
        return pieces
    cache = pieces[0].cache
    if "joined" not in cache:
        values = pa.chunked_array([piece.values for piece in pieces])
        cache["joined"] = [FactColumn(np.concatenate([piece.at for piece in pieces]), values)]
    found: list[FactColumn] = cache["joined"]
    return found


def _column(
    rows: list[NDArray[np.int64]],
    chunks: list[pa.Array],
    derived: list[Mapping[str, NDArray[Any]]],
) -> FactColumn:
    values = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    cache = {name: np.concatenate([each[name] for each in derived]) for name in derived[0]}
    return FactColumn(np.concatenate(rows), values, cache)
