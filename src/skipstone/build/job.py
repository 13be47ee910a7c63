"""The build job: builds and publishes the facts of a task's share of the files.

A task builds facts file by file and publishes them as parts of its own while it runs, so a killed
job keeps what it has published. Tasks share only the store's directory. The job is a small value,
pickled to Spark workers.

Spark may run a task several times: an attempt fails, its executor is lost, or a second one is
started because the first is slow. Each attempt that comes so far publishes. Spark hands over the
outcomes of one of them, and ``finish`` deletes the parts of the others. A part that a lost attempt
publishes later is one more copy of facts about the same versions: no query counts it, and the next
merge removes it.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import resource
import threading
import time
import uuid
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.facts.store import Store
from skipstone.human import plural
from skipstone.pruning.kind import Index, column_fields
from skipstone.storage import Listing, open_storage

from .data_file import build_file
from .footers import Footer, known_footers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from skipstone.facts.encode import FileFacts
    from skipstone.facts.index_encryption import WriteEncryption
    from skipstone.identity import ObjectId

    from .column_indexes import BuildSettings


# A part is published after this many files or seconds, whichever comes first: a killed task loses
# at most that.
FILES_PER_PART = 256
SECONDS_PER_PART = 20.0
# A part is also published when the sidecars in memory reach this many bytes.
BYTES_PER_PART = 64 * 2**20
# Files of an object store that a task reads at a time, of this many bytes.
_AT_ONCE = 8
_BYTES_AT_ONCE = 64 * 2**20
# Files whose footers are read together.
_TOGETHER = 128
# The most threads of a build in this process; more would mostly wait for the GIL.
_MOST_WORKERS = 32
# A file of fewer bytes is built before other threads have opened it.
_LARGE = 32 * 2**20
# How long an interrupted build waits for its threads.
_SECONDS_TO_STOP = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result for one file: ``built``, or an ``error`` and no facts.

    The first outcome of a part names it in ``parts``. ``refused``: the task may not write there.
    """

    path: str
    size: int
    error: str | None = None
    too_fresh: bool = False
    gone: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    refused: bool = False

    @property
    def built(self) -> bool:
        """True when the file has facts."""
        return self.error is None


def joined_outcomes(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Merges the outcomes of several jobs over the same files: built, where one job built it."""
    found: dict[str, Outcome] = {}
    for each in outcomes:
        known = found.setdefault(each.path, each)
        best = known if known.built or not each.built else each
        found[each.path] = replace(best, reasons={**known.reasons, **each.reasons})
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BuildJob:
    """The settings of every task; ``schema`` is the whole table's.

    With ``encryption`` the new index is encrypted. The keys, or the function that finds them, are
    pickled with the job; its ``repr`` does not show them.
    """

    table: str
    location: str
    storage_options: Mapping[str, str]
    definitions: tuple[Index, ...]
    schema: pa.Schema
    settings: BuildSettings
    fingerprint: str | None = None
    encryption: WriteEncryption | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def types(self) -> pa.Schema:
        """The indexed columns alone, each under its dotted name."""
        import pyarrow as pa

        fields = column_fields(self.definitions, self.schema)
        return pa.schema([field.with_name(column) for column, field in fields.items()])

    def run(
        self,
        files: Sequence[ObjectId],
        after_file: Callable[[], bool] | None = None,
        alone: int = 0,
    ) -> Iterator[Outcome]:
        """Builds and publishes the facts of ``files``; one outcome per file, after publishing.
        Those of ``alone`` bytes or more may take several threads.

        ``after_file`` is called after each file. Where it returns False, the job publishes what it
        has and ends.
        """
        data = open_storage(self.table, self.storage_options)
        settings = replace(self.settings, memory=_within_limit(self.settings.memory))

        def build(id_: ObjectId, footer: Footer | None = None) -> FileFacts:
            how = settings if (id_.size or 0) >= alone else replace(settings, threads=1)
            return build_file(id_, data, self.definitions, self.schema, how, footer)

        def together() -> Iterator[FileFacts]:
            for first in range(0, len(files), _TOGETHER):
                some = files[first : first + _TOGETHER]
                yield from map(build, some, known_footers(some, data, settings))

        facts = in_order(build, files) if data.remote else together()
        return self.publish(facts if after_file is None else _while(after_file, facts))

    def publish(self, facts: Iterator[FileFacts]) -> Iterator[Outcome]:
        """Writes facts into parts as they arrive; yields one outcome per file."""
        store = self.store()
        held: list[FileFacts] = []
        since, size = time.monotonic(), 0
        for found in facts:
            held.append(found)
            size += found.sidecar_bytes
            due = len(held) >= FILES_PER_PART or size >= BYTES_PER_PART
            if due or time.monotonic() - since >= SECONDS_PER_PART:
                yield from self._flush(store, held)
                held, since, size = [], time.monotonic(), 0
        yield from self._flush(store, held)

    def store(self) -> Store:
        """Where the parts go."""
        keys = None if self.encryption is None else self.encryption.keys
        return Store(self.location, open_storage(self.location, self.storage_options), keys)

    def _flush(self, store: Store, held: Sequence[FileFacts]) -> Iterator[Outcome]:
        good = [found for found in held if found.error is None or found.reasons]
        names: tuple[str, ...] = ()
        if good:
            names = store.write_part(
                good,
                definitions=self.definitions,
                schema=self.types,
                fingerprint=self.fingerprint,
                inline_limit=self.settings.inline_limit,
                encryption=self.encryption,
                job=self.id,
            )
        for found in held:
            yield Outcome(
                path=found.id.path,
                size=found.id.size or 0,
                error=found.error,
                too_fresh=found.too_fresh,
                gone=found.gone,
                reasons=dict(found.reasons),
                parts=names,
            )
            names = ()

    def in_task(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """The outcomes in a task of Spark. If it may not write, the last outcome says so: an
        exception would make Spark try again, and hide the reason in a trace."""
        try:
            yield from outcomes
        except OSError as error:
            if not isinstance(error, PermissionError) and error.errno != errno.EROFS:
                raise
            yield Outcome(path=self.location, size=0, error=str(error), refused=True)

    def allowed(self, outcomes: list[Outcome]) -> list[Outcome]:
        """The outcomes of tasks. ``SkipstoneError`` where one may not write the index: then not
        every file has an outcome."""
        refused = next((each.error for each in outcomes if each.refused), None)
        if refused is not None:
            raise SkipstoneError(
                f"the tasks of Spark may not write the index at {self.location}: {refused}",
                hint="let the user of the executors write there, or name a directory where they"
                " may: index_location=…, --index-location",
            )
        return outcomes

    def finish(self, outcomes: Sequence[Outcome], before: Collection[str]) -> None:
        """Delete what lost attempts have published; ``before`` are the names of the parts before
        the tasks. ``SkipstoneError`` where the tasks have another directory at the path of the data
        or of the index than this process."""
        if outcomes and all(each.gone for each in outcomes):
            path = outcomes[0].path
            if open_storage(self.table, self.storage_options).exists(path):
                raise SkipstoneError(
                    f"the tasks of Spark find no file of the table, and this process sees {path}",
                    hint="the path is another directory there: put the data where the executors"
                    " and this process see it, or build in this process (without a session,"
                    " --no-spark)",
                )
        store = self.store()
        published = {name for each in outcomes for name in each.parts}
        if published and not store.withdraw(self.id, before, published):
            raise SkipstoneError(
                f"the tasks of Spark have published {plural(len(published), 'part')} of the index"
                f" at {self.location}, and this process sees none: it is another directory there",
                hint="name a directory that the executors and this process share, such as one in"
                " an object store: index_location=…, --index-location",
            )


def _within_limit(memory: int) -> int:
    """At most a quarter of the address space that is left, where it is limited: that of Spark's
    workers is by ``spark.executor.pyspark.memory``. Arrow's threads and pools need the rest."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return memory
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:  # no Linux
        used = 0
    return max(1, min(memory, (limit - used) // 4))


def in_order(
    build: Callable[[ObjectId], FileFacts], files: Sequence[ObjectId]
) -> Iterator[FileFacts]:
    """The facts of ``files`` in an object store, in order. Several small files are read at a time,
    because each mostly waits for answers."""
    running: deque[tuple[Future[FileFacts], int]] = deque()
    held = 0
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        for id_ in files:
            size = id_.size or 0
            while running and (len(running) >= _AT_ONCE or held + size > _BYTES_AT_ONCE):
                found, done = running.popleft()
                yield found.result()
                held -= done
            running.append((pool.submit(build, id_), size))
            held += size
        while running:
            yield running.popleft()[0].result()
    finally:
        pool.shutdown(cancel_futures=True)


def shares(listing: Listing, count: int) -> list[list[ObjectId]]:
    """Splits ``listing`` into ``count`` shares of about equal bytes, largest files first."""
    count = max(1, min(count, len(listing)))
    heap = [(0, i) for i in range(count)]
    found: list[list[ObjectId]] = [[] for _ in range(count)]
    # A file costs its bytes, plus about 64 kB of reading for its opening.
    for ordinal in np.argsort(-listing.sizes, kind="stable").tolist():
        load, i = heapq.heappop(heap)
        found[i].append(listing.object_id(ordinal))
        heapq.heappush(heap, (load + int(listing.sizes[ordinal]) + 65_536, i))
    return found


def _while(go_on: Callable[[], bool], facts: Iterator[FileFacts]) -> Iterator[FileFacts]:
    for found in facts:
        yield found
        if not go_on():
            return


def workers_here() -> int:
    """The threads of a build in this process: one for each core (Arrow decodes outside the GIL)."""
    return max(1, min(_MOST_WORKERS, len(os.sched_getaffinity(0))))


def run_here(
    job: BuildJob, listing: Listing, progress: Callable[[int, int], None] | None
) -> list[Outcome]:
    """Runs the job here, on the threads of ``workers_here``.

    An interrupt waits a moment for the threads to publish the files that they have finished.
    """
    outcomes: list[Outcome] = []
    total, done = len(listing), itertools.count(1)
    stopped = threading.Event()

    def after_file() -> bool:
        if progress is not None:
            progress(next(done), total)
        return not stopped.is_set()

    workers = workers_here()
    # Threads that have no file left would wait for the one with the largest.
    alone = max(int(listing.sizes.sum()) // workers, _LARGE)
    job = replace(job, settings=replace(job.settings, threads=workers))
    pool = ThreadPoolExecutor(max_workers=workers)
    running = [
        pool.submit(lambda some: outcomes.extend(job.run(some, after_file, alone)), share)
        for share in shares(listing, workers)
    ]
    try:
        if progress is not None:
            progress(0, total)
        for future in running:
            future.result()
    except BaseException as error:
        stopped.set()
        wait(running, None if isinstance(error, Exception) else _SECONDS_TO_STOP)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return outcomes
