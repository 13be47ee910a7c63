"""A table: whether its storage can be reached and read, its index written, and its state."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import command
from skipstone.facts.store import Store
from skipstone.human import duration, of_total, one_line, percent, plural, size
from skipstone.parquet.format.footer import MAGIC, MAGIC_ENCRYPTED
from skipstone.pruning import Cause

from .diagnosis import Finding, failed, guarded
from .machine import FEW_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from skipstone.storage import Listing
    from skipstone.table import Table


# From this many parts on, opening them takes a noticeable share of a plan.
_MANY_PARTS: Final = 100
_COMPACT: Final = "run `skipstone compact TABLE`"


def table(named: str | Table | Callable[[], Table], *, write: bool) -> Iterator[Finding]:
    """The findings about a table, those of its storage first."""
    from skipstone.table import Table

    if isinstance(named, str):
        opened = Table(named)
    else:
        opened = named if isinstance(named, Table) else named()
    start = time.perf_counter()
    listing = opened.listing()
    taken = 1000 * (time.perf_counter() - start)
    total = int(listing.sizes.sum())
    yield Finding(
        area="table",
        state="ok" if len(listing) else "note",
        text=f"{opened.path}: {plural(len(listing), 'data file')}, {size(total)},"
        f" listed in {duration(taken)}",
        hint="" if len(listing) else f"there is no data file below {opened.path}: check the path",
        values={"files": len(listing), "bytes": total, "listing_ms": round(taken)},
    )
    if len(listing):
        yield from guarded("table", lambda: _readable(opened, listing))
    yield from guarded("index", lambda: _directory(opened, write=write))
    yield from guarded("index", lambda: _index(opened, listing, total))


def _readable(table: Table, listing: Listing) -> Iterator[Finding]:
    """Whether the first data file can be read, and is one."""
    path = listing.paths[0]
    start = time.perf_counter()
    try:
        _, tail = table.storage.read_tail(path, 4)
    except OSError as error:
        hint = "grant this user access to the data files, or give credentials for the store"
        text = f"{path} cannot be read: {one_line(str(error))}"
        yield Finding(area="table", state="problem", text=text, hint=hint)
        return
    taken = duration(1000 * (time.perf_counter() - start))
    if table.is_parquet and bytes(tail) not in (MAGIC, MAGIC_ENCRYPTED):
        hint = f"run {command('salvage', path)}, or name the format: --format"
        text = f"{path} does not end as a Parquet file does"
        yield Finding(area="table", state="problem", text=text, hint=hint)
        return
    of = of_total(1, len(listing), "data files")
    yield Finding(area="table", text=f"the end of {of} was read in {taken}")


def _directory(table: Table, *, write: bool) -> Iterator[Finding]:
    """Whether this user can write where the index lies or would lie."""
    root = table.location.root
    values: dict[str, Any] = {"path": root}
    elsewhere = "grant write access, or put the index elsewhere: --index-location DIR"
    if write:
        yield _written(table, elsewhere)
    elif "://" in root:
        text = f"{root}: writing was not tried; `skipstone doctor --write` tries it"
        yield Finding(area="index", text=text, values=values)
    if "://" in root:
        return
    place = Path(root)
    while not place.exists():
        place = place.parent
    status = os.statvfs(place)
    free = shutil.disk_usage(place).free
    can = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    denied = not can or bool(status.f_flag & os.ST_RDONLY)
    owned = [each for each in (place / "facts", place / "packs") if str(place) == root]
    denied |= any(each.exists() and not os.access(each, os.W_OK | os.X_OK) for each in owned)
    values |= {"writable": not denied, "free_bytes": free}
    if denied:
        text = f"{root} cannot be written by this user"
        yield Finding(area="index", state="note", text=text, hint=elsewhere, values=values)
    else:
        few = free < FEW_BYTES
        yield Finding(
            area="index",
            state="note" if few else "ok",
            text=f"{root} can be written, {size(free)} free",
            hint=f"free some space below {place}" if few else "",
            values=values,
        )


def _written(table: Table, hint: str) -> Finding:
    """Writes an object with the name of a vacuum's object, and removes it and its directories."""
    location = table.location
    storage = table.store.storage
    probe = f"{location.facts}/_probe-{uuid.uuid4().hex}"
    start = time.perf_counter()
    try:
        storage.put(probe, b"?")
        storage.delete(probe)
    except Exception as error:
        problem = failed("index", f"{location.root} cannot be written", error)
        return Finding(area="index", state="problem", text=problem.text, hint=hint)
    finally:
        for each in (location.facts, location.root):
            storage.remove_empty(each)
    taken = duration(1000 * (time.perf_counter() - start))
    return Finding(area="index", text=f"an object was written to {location.root} in {taken}")


def _index(table: Table, listing: Listing, total: int) -> Iterator[Finding]:
    """Whether there is an index, what it covers, and whether it is damaged: in a line."""
    snapshot = table.store.snapshot()
    if not snapshot.definitions:
        damaged = [str(each) for each in snapshot.reasons if each.cause is not Cause.ABSENT]
        text = f"no index: queries read all {plural(len(listing), 'file')}"
        yield Finding(
            area="index",
            state="problem" if damaged else "note",
            text="; ".join([text, *damaged]),
            hint=f"run {command('advise', table.path)}, then `build`",
        )
        return
    found = table.describe()
    lacking = found.files_total - found.fresh
    corrupt: tuple[str, ...] = ()
    if type(table.store) is Store:
        corrupt = table.check().corrupt
    names = ", ".join(each.name for each in found.indexes)
    count = len(found.indexes)
    said = f"{count} {'index' if count == 1 else 'indexes'} ({names})"
    said += f" of {of_total(found.fresh, found.files_total, 'files')}"
    said += f", {size(found.bytes_index)} ({percent(found.bytes_index, total)} of the data)"
    if corrupt:
        said += f"; {len(corrupt)} damaged: {one_line(corrupt[0])}"
    if lacking:
        said += f"; {lacking:,} new or changed, which queries read in full"
    yield Finding(
        area="index",
        state="problem" if corrupt else "note" if lacking else "ok",
        text=said,
        hint=f"run {command('refresh', table.path)}" if corrupt or lacking else "",
        values=found.to_dict() | {"corrupt": list(corrupt)},
    )
    for note in found.notes:
        yield Finding(area="index", state="note", text=note)
    if found.parts > _MANY_PARTS:
        text = f"{found.parts:,} parts, which each plan opens"
        yield Finding(area="index", state="note", text=text, hint=_COMPACT)
    unknown = [each.name for each in found.indexes if not each.known]
    if unknown:
        text = f"{', '.join(unknown)}: no code for it here, so it proves nothing"
        hint = "install the package that brings this kind, or a newer Skipstone"
        yield Finding(area="index", state="note", text=text, hint=hint)
