"""The pruner of transparent reading: uses the facts of the tables that a relation reads. It looks
for an index next to each root of the relation and next to every folder above, or at the location
that the user names. So a partition's folder, a glob or a list of files of an indexed table skips as
the table does.

``StoreCache`` keeps opened stores between the DataFrames of one Spark context. Every ``skip(df)``
looks for the index again, because it may have appeared or been dropped. Nearly always the store is
in the cache, with the columns of the last predicates in memory. A store lists its parts for each
snapshot and keeps only columns of the same parts, so a cached store is never outdated.

**Paimon's sidecars.** Spark reads ``x.parquet.index`` as data, and fails. So a user names the data
files of such a directory, by a pattern or one by one. With ``pathGlobFilter``, the directories are
listed again without the pattern. Where roots are files (Spark expands ``dir/*.parquet``), a sidecar
is looked for next to each. Other relations cost no request.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, arrow_bytes
from skipstone._cache import LruCache
from skipstone._dataclasses import dataclass
from skipstone.errors import NoIndexError, SkipstoneError
from skipstone.facts import Store
from skipstone.facts.coverage import indexed_names
from skipstone.facts.find import find_store
from skipstone.facts.part_columns import integers
from skipstone.identity import ObjectId
from skipstone.paimon.adjacent_index import AdjacentIndexes, without_sidecars
from skipstone.planning.fact_runs import IN_MEMORY, RunSettings, in_turn
from skipstone.planning.table_facts import (
    ObjectPlanRequest,
    expression_reasons,
    indexed_expressions,
    plan_objects,
)
from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from skipstone.predicate.tree import And, conjunction, stored_columns
from skipstone.predicate.types import schema_from_spark
from skipstone.pruning import Cause, Reason
from skipstone.pruning.partitions import PartitionColumns
from skipstone.pruning.table_schema import spelled_as
from skipstone.storage import Listing, needs_session, open_storage

from .relation import FACTS_MEMORY, FILE_INDEX, FORMATS, HARMLESS, Pruner, Pruning, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from skipstone.facts import MatchedFacts
    from skipstone.facts.location import KeyedLocation, XskipperLocation
    from skipstone.paimon.adjacent_index import AdjacentRows
    from skipstone.planning.fact_runs import PartBatch, RunAnswer, RunJob
    from skipstone.predicate.tree import Expr
    from skipstone.pruning.plan import Plan
    from skipstone.storage import Storage

    from .relation import FileListing, FileStats, FindPruner, ReadSettings, RelationInfo


_LOG = logging.getLogger("skipstone")
# Most files whose sidecars are checked one by one in an object store; for more, folders are listed.
_FEW = 64
_SUFFIX = ".index"

#: one location for all tables, or a mapping from table path to location
Place: TypeAlias = "str | XskipperLocation | KeyedLocation"
Locations: TypeAlias = "Place | Mapping[str, Place] | None"


@dataclass(frozen=True, slots=True, eq=False)
class MatchedListing:
    """A relation's files and the facts of each store about them."""

    listing: Listing
    matches: tuple[MatchedFacts, ...]
    partitions: PartitionColumns
    milliseconds: float
    sidecars: Mapping[str, ObjectId] = field(default_factory=dict)


class FactsPruner(Pruner):
    """``Pruner`` over the facts in ``stores``; one per relation of a plan."""

    def __init__(
        self,
        stores: tuple[Store, ...],
        info: RelationInfo,
        fingerprint: str | None = None,
        reasons: tuple[Reason, ...] = (),
        sidecars: ListedSidecars | None = None,
    ) -> None:
        self.sidecars = sidecars
        self.stores, self.info, self.fingerprint = stores, info, fingerprint
        self.reasons = reasons
        #: a condition for every scan of the relation, besides its filters; and Spark's ANSI mode
        self.keys: Expr | None = None
        self.ansi = True
        self.memory = _memory((info.confs or {}).get(FACTS_MEMORY))
        self.file_index = (info.confs or {}).get(FILE_INDEX, "true").strip().lower() != "false"
        self.schema = schema_from_spark(info.schema)

    def match(self, listing: FileListing) -> MatchedListing:
        """The listing joined with the facts of every store."""
        started = time.perf_counter()
        root = self.info.roots[0] if self.info.roots else "/"
        files = Listing(
            root=root,
            paths=listing.paths,
            sizes=listing.sizes,
            mtimes=listing.mtimes,
            unit="ms",
            etags=None if listing.etags is None else list(listing.etags),
        )
        matches = tuple(store.snapshot().match(files, self.fingerprint) for store in self.stores)
        sidecars = {} if self.sidecars is None else self.sidecars.find(files)
        partitions = self._partitions(files)
        spent = (time.perf_counter() - started) * 1e3
        return MatchedListing(files, matches, partitions, spent, sidecars)

    def same_as(self, other: Pruner, matched: object | None) -> bool:
        """True with the same facts, as they are now, under the same settings."""
        if type(other) is not type(self) or self.sidecars is not None or other.sidecars is not None:
            return False
        mine = (self.stores, self.fingerprint, self.reasons, self.info.confs)
        if mine != (other.stores, other.fingerprint, other.reasons, other.info.confs):
            return False
        if matched is None:
            return True
        assert isinstance(matched, MatchedListing)
        pairs = zip(self.stores, matched.matches, strict=True)
        return all(store.snapshot() is match.snapshot for store, match in pairs)

    def _partitions(self, files: Listing) -> PartitionColumns:
        types = {field.name: field.type for field in schema_from_spark(self.info.partition_schema)}
        if not types or self.info.table is not None:
            # A partition of the catalog may lie in a folder of any name. Spark has pruned by its
            # values already.
            return PartitionColumns({})
        # Spark finds partition folders from the base path on, which may lie above the roots.
        found = PartitionColumns.of_paths("/", files.paths, types)
        return PartitionColumns(
            {name: values for name, values in found.values.items() if name in types}
        )

    def prune(self, matched: object, predicate: Expr, settings: ReadSettings) -> Pruning:
        """The plan for ``predicate``; its ``keep`` is over the listing that was matched."""
        assert isinstance(matched, MatchedListing)
        schema, zone = _spelled(self.schema, matched.matches), settings.time_zone
        indexed = indexed_expressions(
            matched.matches,
            schema,
            zone,
            case_sensitive=settings.case_sensitive,
            folders=schema_from_spark(self.info.partition_schema).names,
        )
        tree = bind(
            predicate,
            schema,
            case_sensitive=settings.case_sensitive,
            session_zone=zone,
            map_keys=True,
            expressions=indexed.names,
        )
        if self.keys is not None:
            own = bind(self.keys, schema, session_zone=zone, ansi=self.ansi)
            tree = conjunction([tree, own])
            predicate = And((predicate, self.keys))
        reasons = (*self.reasons, *expression_reasons(indexed))
        if settings.case_sensitive:
            # Facts of `id` may be those of a file's `ID`, another column for this session.
            text = "is true: facts are built as for false"
            case = Reason(cause=Cause.UNSUPPORTED, subject="spark.sql.caseSensitive", text=text)
            reasons = (*reasons, case)
        # Only the session that runs the query has the settings made since skip(df).
        harms = harmful(settings.confs)
        reasons = (*reasons, *(reason for reason in harms if reason not in reasons))
        changed = _fingerprint(self.info) != self.fingerprint
        if changed:
            text = "settings that change the values were changed after skip(df)"
            reason = Reason(cause=Cause.STALE, subject=self.info.format, text=text)
            reasons = (*reasons, reason)
        disabled = settings.case_sensitive or changed or bool(harms)
        adjacent = None
        if matched.sidecars and self.sidecars is not None and self.file_index and not disabled:
            named = stored_columns(tree)
            adjacent = self.sidecars.rows_of(matched.listing, matched.sidecars, named)
        plan: Plan = plan_objects(
            ObjectPlanRequest(
                tree=tree,
                listing=matched.listing,
                matches=matched.matches,
                partitions=matched.partitions,
                table=", ".join(self.info.roots),
                predicate=to_sql(predicate),
                milliseconds={"matching": matched.milliseconds},
                reasons=reasons,
                facts_disabled=disabled,
                runs=RunSettings(limit=self.memory, runner=_by_a_job),
                file_index=self.file_index,
                adjacent=adjacent,
            )
        )
        return Pruning(keep=plan.keep, report=plan)

    def still_valid(
        self, matched: object, indices: NDArray[np.int64], now: FileStats | None
    ) -> NDArray[np.bool_]:
        """False for local files whose inode or change time is not that of their facts."""
        assert isinstance(matched, MatchedListing)
        valid = np.ones(len(indices), np.bool_)
        if now is None:
            return valid
        tags = [f"{i}-{c}" for i, c in zip(now.inode.tolist(), now.ctime.tolist(), strict=True)]
        current = pc.cast(arrow_bytes(tag.encode() for tag in tags), pa.large_string())
        position = np.full(len(matched.listing), -1, np.int64)
        position[indices] = np.arange(len(indices))
        for each in matched.matches:
            rows = np.flatnonzero(each.file_of_row >= 0)
            at = position[each.file_of_row[rows]]
            rows, at = rows[at >= 0], at[at >= 0]
            stored = pc.take(each.snapshot.identities.etags, arrow(rows))
            differs = pc.not_equal(stored, pc.take(current, arrow(at)))
            valid[at[integers(differs, 0) != 0]] = False
        listed = matched.listing.etags
        if matched.sidecars and listed is not None:
            known = [listed[file] for file in indices.tolist()]
            same = [was is None or was == tag for was, tag in zip(known, tags, strict=True)]
            valid &= np.array(same, np.bool_)
        return valid


def _spelled(schema: pa.Schema, matches: Sequence[MatchedFacts]) -> pa.Schema:
    """``schema`` with the facts' spelling of columns: a catalog may have lower case.

    Facts describe a column in any case. They are not used where the session is case-sensitive.
    """
    definitions = (known for each in matches for known in each.snapshot.definitions)
    return spelled_as(schema, indexed_names(definitions))


#: finds the store of a root, or of a folder above, at a location that the catalog may name
StoreAt: TypeAlias = "Callable[[str, str | None], Store | None]"


def _stores(locations: Locations, kept: StoreCache | None, *, required: bool) -> StoreAt:
    stores: dict[str, Store | None] = {}
    places: dict[tuple[str, object], Store | None] = {}

    def at(folder: str, named: Place | None) -> Store | None:
        place = (folder, named)
        if place not in places:
            try:
                store = find_store(folder, named)
                store = store if kept is None else kept.kept(store)
            except SkipstoneError:  # nothing can lie next to a folder without a parent
                places[place] = None
            else:
                root = store.location.root
                places[place] = stores.setdefault(root, store if store.exists() else None)
        return places[place]

    def of_root(root: str, property_: str | None) -> Store | None:
        by_user: tuple[str, Place] | None = None
        for folder in _folders(root):
            named = locations.get(folder) if isinstance(locations, Mapping) else locations
            if by_user is None and named is not None:
                by_user = folder, named
            named = property_ if named is None else named
            found = at(folder, named)
            if found is not None:
                return found
        if required and by_user is not None:
            table, place = by_user
            raise NoIndexError(place if isinstance(place, str) else str(place.path), table)
        return None

    return of_root


def store_above(root: str, locations: Locations, kept: StoreCache | None = None) -> Store | None:
    """The store of the table that ``root`` is, or that it is a part of; ``NoIndexError`` where
    ``locations`` name a place without one."""
    return _stores(locations, kept, required=True)(root, None)


def finder(
    locations: Locations = None, kept: StoreCache | None = None, *, required: bool = False
) -> FindPruner:
    """Finds the facts of a relation: at ``locations``, else next to its roots or a folder above.

    Stores come from the cache ``kept`` where it has them. With ``required``, ``NoIndexError`` where
    ``locations`` name a place without an index.
    """
    of_root = _stores(locations, kept, required=required)

    def find(relation: RelationInfo) -> FactsPruner | None:
        found = {
            id(store): store
            for root in relation.roots
            if (store := of_root(root, relation.index_location)) is not None
        }
        sidecars = ListedSidecars.of(relation)
        if not found and sidecars is None:
            return None
        reasons = harmful(relation.confs or {})
        stores = () if reasons else tuple(found.values())
        return FactsPruner(
            stores,
            relation,
            fingerprint=_fingerprint(relation),
            reasons=reasons,
            sidecars=None if reasons else sidecars,
        )

    return find


def _memory(setting: str | None) -> int:
    try:
        return IN_MEMORY if setting is None else int(setting)
    except ValueError:
        _LOG.warning("%s is not a number of bytes: %r", FACTS_MEMORY, setting)
        return IN_MEMORY


def _by_a_job(job: RunJob, runs: Sequence[PartBatch]) -> Iterable[RunAnswer]:
    """As tasks of the active session; in this process without one, or where tasks do not reach the
    facts."""
    from pyspark.sql import SparkSession

    from .jobs import plan_on_spark

    session = SparkSession.getActiveSession()
    if needs_session(job.location, job.storage_options):
        session = None
    return in_turn(job, runs) if session is None else plan_on_spark(session)(job, runs)


def _fingerprint(relation: RelationInfo) -> str | None:
    """The fingerprint of a relation's facts under the session's settings; ``None`` for Parquet."""
    if relation.format not in FORMATS or relation.settings is None:
        return None
    settings = relation.settings()
    return fingerprint(relation.format, relation.options, relation.data_schema, settings)


def _folders(root: str) -> list[str]:
    """``root`` and every folder above it, nearest first."""
    scheme, slashes, rest = root.rpartition("://")
    parts = rest.strip("/").split("/")
    head = f"{scheme}://" if slashes else "/"
    return [head + "/".join(parts[:n]) for n in range(len(parts), 0, -1)]


def harmful(confs: Mapping[str, str]) -> tuple[Reason, ...]:
    """Reasons for settings of the session under which facts are not used."""
    return tuple(
        Reason(cause=Cause.UNSUPPORTED, subject=key, text=f"is {confs[key]}: values read differ")
        for key, harmless in HARMLESS.items()
        if key in confs and confs[key].lower() != harmless
    )


class StoreCache:
    """At most ``most`` stores, with columns of at most ``limit`` bytes together; the least recently
    used is dropped first."""

    def __init__(self, limit: int = IN_MEMORY, most: int = 16) -> None:
        self._stores: LruCache[str, Store] = LruCache(
            most, most_bytes=limit, size=lambda store: store.nbytes, growing=True
        )

    def __len__(self) -> int:
        return len(self._stores)

    def kept(self, store: Store) -> Store:
        """``store``, or the cached store at the same place.

        Stores of Xskipper and encrypted stores are not kept: they hold keys given for one table.
        """
        if type(store) is not Store or store.keys is not None:
            return store
        return self._stores.setdefault(store.location.root, store)


_CACHES: WeakKeyDictionary[Any, StoreCache] = WeakKeyDictionary()
_LOCK = threading.Lock()


def store_cache(spark: SparkSession) -> StoreCache:
    """The cache of the session's context."""
    with _LOCK:
        return _CACHES.setdefault(spark.sparkContext, StoreCache())


class ListedSidecars:
    """The sidecars of one relation, and the opened ones."""

    def __init__(self, relation: RelationInfo) -> None:
        self.relation = relation
        self.storage = open_storage(relation.roots[0])
        self.adjacent = AdjacentIndexes(self.storage)

    @classmethod
    def of(cls, relation: RelationInfo) -> ListedSidecars | None:
        """``None`` where the relation cannot have any, or has none now."""
        if relation.format != "parquet" or not relation.roots:
            return None
        try:
            found = cls(relation)
            return found if found._around() else None
        except (SkipstoneError, OSError) as error:
            _LOG.debug("no sidecars of %s: %s", ", ".join(relation.roots), error)
            return None

    def find(self, files: Listing) -> Mapping[str, ObjectId]:
        """The sidecars of these files, by path of the file."""
        try:
            others = self._around()
        except (SkipstoneError, OSError) as error:
            _LOG.warning("sidecars are not used: %s", error)
            return {}
        if not others:
            return {}
        known = set(files.paths)
        ids = [id for id in others if id.path not in known]
        entries = [ObjectId(path=path, size=0, mtime=0) for path in files.paths]
        listed = Listing.of(files.root, [*entries, *ids])
        rest, found = without_sidecars(listed)
        return {rest.paths[at]: id for at, id in found.items()}

    def rows_of(
        self, files: Listing, sidecars: Mapping[str, ObjectId], columns: Iterable[str]
    ) -> AdjacentRows:
        """The evidence about columns over ``files``, an argument of ``find``."""
        return self.adjacent.rows_of(files, columns, sidecars=sidecars)

    def _around(self) -> list[ObjectId]:
        """The files named like sidecars around the relation's files now."""
        options = {key.lower() for key in self.relation.options}
        if "pathglobfilter" in options:
            return [id for root in self.relation.roots for id in _below(self.storage, root)]
        return self._of_roots(self.relation.roots)

    def _of_roots(self, roots: tuple[str, ...]) -> list[ObjectId]:
        if not self.storage.remote or len(roots) <= _FEW:
            return _stats(self.storage, roots)
        some = [roots[at] for at in np.linspace(0, len(roots) - 1, 16).astype(int).tolist()]
        if not _stats(self.storage, some):
            return []
        folders = {root.rpartition("/")[0] for root in roots}
        return [id for folder in sorted(folders) for id in _below(self.storage, folder)]


def _below(storage: Storage, folder: str) -> list[ObjectId]:
    listing = storage.list_files(folder)
    named = [at for at, path in enumerate(listing.paths) if path.endswith(_SUFFIX)]
    return [listing.object_id(at) for at in named]


def _stats(storage: Storage, roots: Iterable[str]) -> list[ObjectId]:
    def stat(root: str) -> ObjectId | None:
        try:
            return storage.stat(root + _SUFFIX)
        except OSError:
            return None

    if not storage.remote:
        return [id for root in roots if (id := stat(root)) is not None]
    with ThreadPoolExecutor(max_workers=8) as pool:
        return [id for id in pool.map(stat, roots) if id is not None]
