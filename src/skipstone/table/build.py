"""Build and refresh: find the files that lack indexes, run the job, merge parts, report."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from skipstone.errors import KeyUnavailableError, SkipstoneError, UnsupportedError, command
from skipstone.human import plural
from skipstone.paimon.options import FileIndexOptions
from skipstone.predicate.types import column_path
from skipstone.pruning import Cause, Reason
from skipstone.pruning.kind import Index

from .file_format import Progress, bound
from .open_table import OpenTable
from .renamed_columns import known_indexes, lacking, require_no_labels, schema_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from skipstone.build.column_indexes import BuildSettings
    from skipstone.build.job import BuildJob, Outcome
    from skipstone.facts import MatchedFacts
    from skipstone.facts.index_encryption import IndexEncryption, WriteEncryption
    from skipstone.facts.reports import BuildReport, RepairReport
    from skipstone.facts.snapshot import Snapshot
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.questdb.pm_of_data_file import PmMode
    from skipstone.storage import Listing


log = logging.getLogger("skipstone")

DEFAULT_MEMORY = 512 * 2**20

#: chooses a session, given the number and the bytes of the files to index
ChooseSession: TypeAlias = "Callable[[int, int], SparkSession | None]"


class BuildVerbs(OpenTable):
    """The verbs that build an index; see ``Table``."""

    def build(
        self,
        spark: SparkSession | None = None,
        indexes: Iterable[str | Index] = (),
        *,
        options: Mapping[str, object] | None = None,
        memory: int = DEFAULT_MEMORY,
        progress: Progress | None = None,
        pm: PmMode = "external",
        encryption: IndexEncryption | None = None,
        decryption: Decryption | None = None,
        plaintext_index: bool = False,
        session: ChooseSession | None = None,
    ) -> BuildReport:
        """Build ``indexes`` for all files that lack them.

        >>> table.build(spark, ["user_id:bloom(fpp=0.001)", "ts:minmax"])

        ``options`` name file indexes as Paimon does (``{"file-index.bitmap.columns": "a,b",
        "file-index.bloom-filter.c.fpp": 0.01}``), in place of the table's; ``ValueError`` for one
        that Paimon does not have.

        The build is one Spark job; without a session it runs in this process, on all cores.
        ``session`` chooses when the size of the work is known: it is called with the number and the
        bytes of the files to index, and returns a session or None. ``memory`` bounds the bytes that
        a task holds. A build that was killed is resumed by the next. Other indexes stay as they
        are. ``progress`` is called with files done and files to do.

        Each Parquet file without row group metadata also gets it, from its footer: a ``_pm``, which
        plans read instead of the file. Bloom filters stay in the file (``pm="external"``) or are
        copied (``"inlined"``); ``"none"`` makes no ``_pm``.

        ``encryption`` maps parts of the index to the labels of keys; indexes added later are
        encrypted the same way. ``decryption`` has the keys of encrypted data files, by default the
        table's. Columns that their file encrypts are indexed in the clear only with
        ``plaintext_index=True``.
        """
        from skipstone.indexes.registry import parse_indexes

        self.store.require_own()
        own = self.file_index if options is None else FileIndexOptions.parse(options)
        named = _listed(indexes)
        if not named and options is None and self.catalog is not None:
            named = list(self.catalog.indexes)
        wanted = parse_indexes([*named, *own.indexes])
        if not wanted:
            hint = f"{command('advise', self.path)} proposes some"
            given = cast("object", spark)
            if isinstance(given, str | list | tuple):
                hint = 'the session comes first: build(spark, ["id:minmax"]), or build(indexes=[…])'
            raise SkipstoneError("no index was named", hint=hint)
        settings = self._settings(own, memory, pm, decryption, plaintext_index)
        return _run_build(
            self, (spark, session), wanted, settings, progress, encryption, required=True
        )

    def refresh(
        self,
        spark: SparkSession | None = None,
        *,
        memory: int = DEFAULT_MEMORY,
        progress: Progress | None = None,
        pm: PmMode = "external",
        decryption: Decryption | None = None,
        plaintext_index: bool = False,
        session: ChooseSession | None = None,
    ) -> BuildReport:
        """Build the indexes that the table has for its new and changed files.

        >>> table.refresh(spark)

        Arguments as for ``build``. An encrypted index keeps its encryption; parts whose key is not
        given are not refreshed.
        """
        self.store.require_own()
        snapshot = self.store.snapshot()
        definitions = self.required(snapshot).definitions
        if not definitions:
            self.listing()  # raises where there is no such table
            unread = [each for each in snapshot.reasons if each.cause is Cause.UNREADABLE]
            if unread:
                raise SkipstoneError(unread[0].text, hint="let this user read the index")
            raise without_index(self.path)
        known = known_indexes(self, definitions, spark)
        settings = self._settings(self.file_index, memory, pm, decryption, plaintext_index)
        return _run_build(self, (spark, session), known, settings, progress)

    def repair(
        self,
        spark: SparkSession | None = None,
        *,
        memory: int = DEFAULT_MEMORY,
        progress: Progress | None = None,
        decryption: Decryption | None = None,
        plaintext_index: bool = False,
    ) -> RepairReport:
        """Remove the parts of the index that are corrupt, and build the facts that are missing.

        >>> table.repair()

        The data is not touched, and a repair that was interrupted is finished by the next one.
        Arguments as for ``refresh``. ``SkipstoneError`` where only corrupt parts said which indexes
        there are.
        """
        from skipstone.facts.check import check, remove_damaged
        from skipstone.facts.reports import RepairReport

        self.store.require_own()
        known = self.store.snapshot().definitions
        fingerprint = self.file_format.fingerprint(spark, self.store)
        indexes = known_indexes(self, known, spark)
        removed = remove_damaged(self.store, check(self.store, self.listing(), fingerprint))
        if removed and not known:
            raise SkipstoneError(
                f"{self.path}: no part of the index can be read; the corrupt ones were removed",
                hint="build it again: `skipstone build TABLE -c COLUMN:KIND`",
            )
        settings = self._settings(self.file_index, memory, "external", decryption, plaintext_index)
        built = _run_build(self, (spark, None), indexes, settings, progress) if indexes else None
        if built is not None and not removed and not built.files_built:
            built = None
        return RepairReport(table=self.path, removed=tuple(removed), built=built)

    def _settings(
        self,
        options: FileIndexOptions,
        memory: int,
        pm: PmMode,
        decryption: Decryption | None,
        plaintext_index: bool,
    ) -> BuildSettings:
        """The settings of a build, with the limit of inline containers that a build stated last."""
        from skipstone.build.column_indexes import BuildSettings

        settings = BuildSettings(
            memory=memory,
            pm=pm,
            decryption=self.keys.get() if decryption is None else bound(self.path, decryption),
            plaintext_index=plaintext_index,
        )
        limit = options.in_manifest_threshold
        if limit is None:
            limit = self.store.snapshot().inline_limit
        return settings if limit is None else replace(settings, inline_limit=limit)


def without_index(path: str) -> SkipstoneError:
    """The error of a verb that needs an index, for the table at ``path``, which has none."""
    proposing = command("advise", path)
    return SkipstoneError(f"{path} has no index", hint=f"{proposing} proposes some to build")


def _listed(indexes: str | Index | Iterable[str | Index]) -> list[str | Index]:
    return [indexes] if isinstance(indexes, str | Index) else list(indexes)


def _run_build(
    table: OpenTable,
    sessions: tuple[SparkSession | None, ChooseSession | None],
    wanted: Sequence[Index],
    settings: BuildSettings,
    progress: Progress | None,
    encryption: IndexEncryption | None = None,
    *,
    required: bool = False,
) -> BuildReport:
    """Builds what is missing. With ``required``, an index that does not fit the columns or needs
    Spark is an error; otherwise it is left out."""
    from skipstone.build.job import BuildJob
    from skipstone.facts.coverage import stored_bytes, without_pm

    from .wanted_indexes import checked, without_spark

    started = time.perf_counter()
    spark, choose = sessions
    write_encryption = table.store.encryption_to_write(encryption)
    listing = table.listing()
    locked: list[Reason] = []
    with table.opened_with(settings.decryption):
        wanted, schema = checked(table, listing, wanted, spark, None if required else locked)
    if write_encryption is not None:
        settings = replace(settings, plaintext_index=True)  # the index is encrypted
        wanted = _with_keys(table, listing, wanted, write_encryption, locked)
    elif not settings.plaintext_index and table.is_parquet:
        _refuse_in_clear(table, listing, wanted, settings)
    table.store.remove_left_overs()
    before = stored_bytes(table.store.snapshot())
    matched = table.match(listing, spark, or_none=True)
    # A _pm belongs to the file, not to an index: existing ones are not made again.
    no_pm = settings.pm == "none" or not table.is_parquet
    pm = np.zeros(len(listing), np.bool_) if no_pm else without_pm(matched)
    # An index that had too little memory is tried again where the user asks for it with more.
    memory = settings.share(len({each.column for each in wanted})) if required else 0
    groups = list(lacking(matched, listing, wanted, schema, locked, memory))
    indexed = np.logical_or.reduce([np.zeros_like(pm), *(files for _, files in groups)])
    todo, only_pm = indexed | pm, pm & ~indexed
    count = int(np.count_nonzero(todo))
    if choose is not None and spark is None and count:
        spark = choose(count, int(listing.sizes[todo].sum()))
    if spark is None:
        groups = list(without_spark(groups, locked, required=required))
    job = partial(
        BuildJob,
        table=table.path,
        location=table.location.root,
        storage_options=table.storage_options,
        schema=schema,
        fingerprint=matched.fingerprint,
        encryption=write_encryption,
    )
    jobs = _jobs(job, groups, (pm, only_pm), settings, partial(schema_in, listing, schema))
    outcomes = _executed(table, spark, jobs, listing, count, progress)
    report = _merged(table, _reported(table, matched, todo, outcomes, locked), before)
    engine = _engine(spark) if outcomes else ""
    return replace(report, engine=engine, seconds=time.perf_counter() - started)


def _jobs(
    job: Callable[..., BuildJob],
    groups: Iterable[tuple[tuple[Index, ...], NDArray[np.bool_]]],
    lacking_pm: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    settings: BuildSettings,
    schema_of: Callable[[NDArray[np.bool_]], pa.Schema],
) -> Iterator[tuple[NDArray[np.bool_], BuildJob]]:
    """Jobs with their files. ``lacking_pm``: files that get a ``_pm``, and those with only it."""
    (pm, only_pm), plain = lacking_pm, replace(settings, pm="none")
    for definitions, files in groups:
        made = partial(job, definitions=definitions, schema=schema_of(files))
        yield files & pm, made(settings=settings)
        yield files & ~pm, made(settings=plain)
    yield only_pm, job(definitions=(), settings=settings)


def _executed(
    table: OpenTable,
    spark: SparkSession | None,
    jobs: Iterable[tuple[NDArray[np.bool_], BuildJob]],
    listing: Listing,
    total: int,
    progress: Progress | None,
) -> list[Outcome]:
    """The outcomes of the jobs; ``progress`` is that of all ``total`` files."""
    found: list[Outcome] = []
    for files, job in jobs:
        if files.any():
            shown = None if progress is None else _after(progress, len(found), total)
            found += table.file_format.execute(spark, job, listing.where(files), shown)
    return found


def _after(progress: Progress, before: int, total: int) -> Progress:
    """``progress`` for one of several jobs: ``before`` of the ``total`` files are already done."""
    return lambda done, _: progress(before + done, total)


def _reported(
    table: OpenTable,
    matched: MatchedFacts,
    todo: NDArray[np.bool_],
    outcomes: Sequence[Outcome],
    locked: Sequence[Reason],
) -> BuildReport:
    """The report on the files ``todo`` by their outcomes, and on the others by their facts."""
    from skipstone.facts.coverage import unreadable
    from skipstone.facts.reports import BuildReport

    lost = [
        (matched.listing.paths[at], f"{text} (not tried again: the file has not changed)")
        for at, text in unreadable(matched).items()
        if not todo[at]
    ]
    good = [outcome for outcome in outcomes if outcome.built]
    left_out = Counter(text for outcome in good for text in outcome.reasons.items())
    failed = [o for o in outcomes if not o.built and not o.too_fresh]
    return BuildReport(
        table=table.path,
        location=table.location.root,
        files_total=len(todo),
        files_already=int(np.count_nonzero(~todo)) - len(lost),
        files_built=len({outcome.path for outcome in good}),
        files_failed=(*sorted((o.path, o.error or "") for o in failed), *lost),
        files_too_fresh=tuple(o.path for o in outcomes if o.too_fresh),
        left_out=(
            *locked,
            *(
                Reason(cause=Cause.OVER_LIMIT, subject=index, text=text, units=count)
                for (index, text), count in left_out.items()
            ),
        ),
        bytes_data=sum(outcome.size for outcome in good),
    )


def _engine(spark: SparkSession | None) -> str:
    from skipstone.build.job import workers_here

    if spark is None:
        return f"in this process, {plural(workers_here(), 'thread')}"
    from skipstone.spark.session import is_connect

    return "on Spark Connect" if is_connect(spark) else f"on Spark, {spark.sparkContext.master}"


def _with_keys(
    table: OpenTable,
    listing: Listing,
    wanted: Sequence[Index],
    write_encryption: WriteEncryption,
    locked: list[Reason],
) -> list[Index]:
    """The indexes of ``wanted`` whose keys are available; ``locked`` receives why others are left
    out. A new index must have its key."""
    require_no_labels(listing, write_encryption)
    known = [(each.column, each.kind) for each in table.store.snapshot().definitions]
    write_encryption.encryption.check([*known, *((index.column, index.name) for index in wanted)])
    found = []
    for index in wanted:
        label = write_encryption.encryption.label(index.name, index.column)
        try:
            write_encryption.keys.require(label)
        except KeyUnavailableError as error:
            if (index.column, index.name) not in known:
                raise
            locked.append(Reason.of_error(repr(index), error))
        else:
            found.append(index)
    return found


def _refuse_in_clear(
    table: OpenTable, listing: Listing, wanted: Sequence[Index], settings: BuildSettings
) -> None:
    """``UnsupportedError`` where the first file encrypts a column that would be indexed in the
    clear. In other files such columns are left out file by file."""
    from skipstone.parquet.encryption.open_footer import encrypted_leaves

    if not len(listing):
        return
    path = listing.paths[0]
    try:
        with table.storage.open(path) as source:
            encrypted = encrypted_leaves(source, path, settings.decryption)
    except KeyUnavailableError as error:
        if settings.decryption is None:
            opened = table.engine.files.open([listing.object_id(at) for at in range(len(listing))])
            if all(isinstance(each, KeyUnavailableError) for each in opened):
                raise table.keys.none_given(path) from error
        return
    except (SkipstoneError, OSError):
        return  # the file's task reports the error
    from skipstone.predicate.indexed import columns_of_name

    for index in wanted:
        read = [tuple(map(str, column_path(each))) for each in columns_of_name(index.column)]
        if any(names[: len(each)] == each for names in read for each in encrypted):
            raise UnsupportedError(
                f"{index!r}: {path} encrypts the column, and the index would be in the clear",
                hint="encrypt it (encryption=…, --index-footer-key), or allow that "
                "(plaintext_index=True, --plaintext-index)",
            )


def _merged(table: OpenTable, report: BuildReport, before: int) -> BuildReport:
    """``report`` with the growth of the index since it had ``before`` bytes. Small parts of the
    index are merged where that is due."""
    from skipstone.facts.coverage import outgrown, stored_bytes

    built = table.store.snapshot()
    _merge_if_needed(table, built)
    stored = table.store.snapshot()
    kept = {part.name for part in stored.parts}
    return replace(
        report,
        bytes_index=max(0, stored_bytes(built) - before),  # a merge may make it smaller
        merged=sum(part.name not in kept for part in built.parts),
        notes=tuple(outgrown(table.path, stored, report.files_total)),
    )


def _merge_if_needed(table: OpenTable, snapshot: Snapshot) -> None:
    from skipstone.facts.compact import MUCH_LARGER, compact, needs_merge

    # A merge leaves out the facts of files that are not listed.
    if table.some is not None or not needs_merge(snapshot):
        return
    try:
        compact(table.store, table.listing, much_larger=MUCH_LARGER)
    except (SkipstoneError, OSError) as error:  # the index is built, but has more parts
        log.warning("the parts of the index are left as they are: %s", error)
