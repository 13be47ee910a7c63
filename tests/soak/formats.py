"""Random lives of tables of table formats, written by the formats' own libraries.

An operation is one commit, or one clean-up of what old versions need. After each, the rows of the
newest version, a random condition, and at times those of an older version are compared with what
the format's own reader gives; one ``Table`` with an index goes through the whole life, and at times
a new one is opened. Columns are not renamed here.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import traceback
import warnings
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.sql import SqlCatalog

import skipstone
from skipstone.errors import SkipstoneError, UnsupportedError
from tests.table_formats import delta_tables, iceberg_tables
from tests.table_formats.delta_tables import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.trials import Totals

#: of one life
OPERATIONS = 40
_INDEXES = ("id:bloom", "id:minmax", "id:bitmap", "amount:minmax", "amount:bloom", "amount:bitmap")


class Life(ABC):
    """The commits to one table, and the rows as its own reader gives them."""

    path: str

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    @abstractmethod
    def step(self) -> str:
        """One operation; its name."""

    @abstractmethod
    def versions(self) -> list[int]:
        """All versions that the format names."""

    @abstractmethod
    def read(self, version: int | None, where: str | None) -> list[str]:
        """The rows by the format's own reader."""

    def condition(self) -> str:
        """A condition that both readers know."""
        draw = self.random.randint
        some = ["id = {}", "id >= {} and id < {}", "amount > {}", "amount is null", "kind is null"]
        some += ["kind = 'b/c'", "kind = 'none'", "id > {} and amount is null", "id in ({}, {})"]
        text = self.random.choice(some)
        return text.format(*(draw(0, 99) for _ in range(text.count("{}"))))


class DeltaLife(Life):
    """With deletion vectors in every other life, and folders in every third."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(seed)
        partitions = ["kind"] if seed % 3 == 0 else None
        self.vectors = seed % 2 == 0
        self.history = delta_tables.History(folder / "t", seed, partitions, vectors=self.vectors)
        self.path = self.history.path

    def step(self) -> str:
        drawn = self.random.random()
        if drawn < 0.04:
            self.history.table.vacuum(0, dry_run=False, enforce_retention_duration=False)
            return "vacuum"
        if drawn < 0.08 and not self.vectors:
            version = self.random.choice(self.versions())
            self.history.table.restore(version, ignore_missing_files=False)
            return "restore"
        return self.history.step()

    def versions(self) -> list[int]:
        return list(range(self.history.table.version() + 1))

    def read(self, version: int | None, where: str | None) -> list[str]:
        return delta_tables.read(self.path, version, where)


class IcebergLife(Life):
    """In a catalog in SQLite; every fourth table is of version 1."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(seed)
        uri, lake = f"sqlite:///{folder}/catalog.db", f"file://{folder}/lake"
        self.catalog = SqlCatalog("soak", uri=uri, warehouse=lake)
        self.catalog.create_namespace("db")
        version = 1 if seed % 4 == 3 else 2
        self.history = iceberg_tables.History(self.catalog, seed, names=False, version=version)
        self.path = iceberg_tables.folder(self.history.table)

    def step(self) -> str:
        table, drawn = self.history.table, self.random.random()
        if drawn < 0.04:
            table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
            return "expire"
        if drawn < 0.08:
            above = [each.snapshot_id for each in self._ancestors()]
            table.manage_snapshots().rollback_to_snapshot(self.random.choice(above)).commit()
            return "rollback"
        if drawn < 0.13:
            self.history.rewrite()
            return "rewrite"
        return self.history.step()

    def _ancestors(self) -> list[Any]:
        table = self.history.table
        found, at = [], table.current_snapshot()
        while at is not None:
            found.append(at)
            parent = at.parent_snapshot_id
            at = None if parent is None else table.snapshot_by_id(parent)
        return found

    def versions(self) -> list[int]:
        return [each.snapshot_id for each in self.history.table.snapshots()]

    def read(self, version: int | None, where: str | None) -> list[str]:
        return iceberg_tables.read(self.history.table, version, where)


LIVES: dict[str, Callable[[Path, int], Life]] = {"delta": DeltaLife, "iceberg": IcebergLife}


class FormatTrials:
    """One life of one seed."""

    def __init__(self, format: str, seed: int, totals: Totals, most: int = OPERATIONS) -> None:
        self.format, self.seed, self.totals, self.most = format, seed, totals, most

    def run(self, room: str) -> str:
        """What was wrong, and after which operations; "" where nothing was."""
        done: list[str] = []
        with tempfile.TemporaryDirectory(dir=room) as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pyiceberg's, of deletes without a row
            try:
                life = LIVES[self.format](Path(folder), self.seed)
                self._live(life, done)
            except Exception:
                return f"{self.format}, seed {self.seed}, {done}: {traceback.format_exc()}"
        self.totals.tables += 1
        return ""

    def _live(self, life: Life, done: list[str]) -> None:
        table = skipstone.Table(life.path)
        table.build(indexes=["id:bloom"])
        for at in range(self.most):
            try:
                done.append(life.step())
            except Exception as error:
                # The library refuses an operation, as a restore of files that are gone.
                self.totals.refused_steps[f"{self.format}: {type(error).__name__}"] += 1
                continue
            self.totals.operations[f"{self.format} {done[-1]}"] += 1
            if at % 7 == 0:
                with contextlib.suppress(UnsupportedError):  # of a partition column
                    table.build(indexes=[life.random.choice(_INDEXES)])
            elif at % 5 == 0:
                life.random.choice((table.refresh, table.compact, table.vacuum))()
            self._compare(life, table, None)
            if at % 3 == 0:
                version = life.random.choice(life.versions())
                self._compare(life, skipstone.Table(life.path, version=version), version)
            if at % 11 == 0:
                table = skipstone.Table(life.path)

    def _compare(self, life: Life, table: skipstone.Table, version: int | None) -> None:
        """Rows, count and extremes, and the rows of a condition. What a clean-up removed, neither
        reads."""
        where = life.condition()
        self.totals.trials[self.format] += 2
        try:
            expected, some = life.read(version, None), life.read(version, where)
        except Exception:
            if version is None:
                raise
            self.totals.refused += 1
            try:
                table.query()
            except SkipstoneError:
                return
            raise AssertionError(f"version {version} is read here only") from None
        every = table.query()
        assert rows(every) == expected, f"version {version}: rows"
        assert table.count() == len(expected), f"version {version}: count"
        ids = [each for each in every.column("id").to_pylist() if each is not None]
        ends = min(ids, default=None), max(ids, default=None)
        assert (table.min("id"), table.max("id")) == ends, f"version {version}: ends"
        assert rows(table.query(where)) == some, f"version {version}: {where}"
        assert table.count(where) == len(some), f"version {version}: count of {where}"
