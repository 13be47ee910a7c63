"""The build job: builds and publishes the facts of a task's share of the files.

A task builds facts file by file and publishes them as parts of its own while it runs, so a killed
job keeps what it has published. Tasks share only the store's directory. The job is a small value,
pickled to Spark workers.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from skipstone.facts.store import Store
from skipstone.pruning.kind import column_fields
from skipstone.storage import open_storage

from .data_file import build_file
from .footers import Footer, known_footers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from skipstone.facts.encode import FileFacts
    from skipstone.facts.index_encryption import WriteEncryption
    from skipstone.identity import ObjectId
    from skipstone.pruning.kind import Index
    from skipstone.storage import Listing

    from .column_indexes import BuildSettings


# A part is published after this many files or seconds, whichever comes first: a killed task loses
# at most that.
FILES_PER_PART = 256
SECONDS_PER_PART = 20.0
# A part is also published when the sidecars in memory reach this many bytes.
BYTES_PER_PART = 64 * 2**20
# Files of an object store that a task reads at a time, of so many bytes.
_AT_ONCE = 8
_BYTES_AT_ONCE = 64 * 2**20
# Files whose footers are read together.
_TOGETHER = 128
# The most threads of a build in this process; more would mostly wait for the GIL.
_MOST_WORKERS = 32
# How long an interrupted build waits for its threads.
_SECONDS_TO_STOP = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result for one file: ``built``, or an ``error`` and no facts."""

    path: str
    size: int
    error: str | None = None
    too_fresh: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def built(self) -> bool:
        """True when the file has facts."""
        return self.error is None


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

    @property
    def types(self) -> pa.Schema:
        """The indexed columns alone, each under its dotted name."""
        import pyarrow as pa

        fields = column_fields(self.definitions, self.schema)
        return pa.schema([field.with_name(column) for column, field in fields.items()])

    def run(
        self, files: Sequence[ObjectId], after_file: Callable[[], bool] | None = None
    ) -> Iterator[Outcome]:
        """Builds and publishes the facts of ``files``; one outcome per file, after publishing.

        ``after_file`` is called after each file. Where it returns False, the job publishes what it
        has and ends.
        """
        data = open_storage(self.table, self.storage_options)

        def build(id_: ObjectId, footer: Footer | None = None) -> FileFacts:
            return build_file(id_, data, self.definitions, self.schema, self.settings, footer)

        def together() -> Iterator[FileFacts]:
            for first in range(0, len(files), _TOGETHER):
                some = files[first : first + _TOGETHER]
                yield from map(build, some, known_footers(some, data, self.settings))

        facts = in_order(build, files) if data.remote else together()
        return self.publish(facts if after_file is None else _while(after_file, facts))

    def publish(self, facts: Iterator[FileFacts]) -> Iterator[Outcome]:
        """Writes facts into parts as they arrive; yields one outcome per file."""
        keys = None if self.encryption is None else self.encryption.keys
        store = Store(self.location, open_storage(self.location, self.storage_options), keys)
        held: list[FileFacts] = []
        since, size = time.monotonic(), 0
        for found in facts:
            held.append(found)
            size += len(found.container or b"") + len(found.pm or b"")
            due = len(held) >= FILES_PER_PART or size >= BYTES_PER_PART
            if due or time.monotonic() - since >= SECONDS_PER_PART:
                yield from self._flush(store, held)
                held, since, size = [], time.monotonic(), 0
        yield from self._flush(store, held)

    def _flush(self, store: Store, held: Sequence[FileFacts]) -> Iterator[Outcome]:
        good = [found for found in held if found.error is None or found.reasons]
        if good:
            store.write_part(
                good,
                definitions=self.definitions,
                schema=self.types,
                fingerprint=self.fingerprint,
                inline_limit=self.settings.inline_limit,
                encryption=self.encryption,
            )
        for found in held:
            yield Outcome(
                path=found.id.path,
                size=found.id.size or 0,
                error=found.error,
                too_fresh=found.too_fresh,
                reasons=dict(found.reasons),
            )


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
    pool = ThreadPoolExecutor(max_workers=workers)
    running = [
        pool.submit(lambda some: outcomes.extend(job.run(some, after_file)), share)
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
