"""Where the facts of a table lie, and what is in that directory.

    /data/events            /data/_events.skipstone/
    s3://bucket/p/events    s3://bucket/p/_events.skipstone/
      facts/part-<uuid>       fact parts (``parts.py``)
      packs/<uuid>.pack       sidecars (``packs.py``)
      xskipper/               a published Xskipper directory
      .../_*                  being written, or left by a crash: nobody reads it

Beside the table, so that nothing is ever written into somebody's data; the underscore hides it from
Spark, Hive and pyarrow when they read the parent. Spark shows a name with "_" that contains "=" (it
may be a partition), so "=" is written %3D, and % is %25 to keep names apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skipstone.errors import UnsupportedError
from skipstone.identity import canonical_path
from skipstone.storage import hidden_by_spark

if TYPE_CHECKING:
    from skipstone.parquet.encryption.master_keys import LabelledKeys

__all__ = ["KeyedLocation", "Location", "XskipperLocation"]


@dataclass(frozen=True, slots=True, eq=False)
class KeyedLocation:
    """Where an encrypted index lies (``None``: beside its table), and the keys that open it."""

    path: str | None
    keys: LabelledKeys


@dataclass(frozen=True, slots=True)
class XskipperLocation:
    """Where a store of Xskipper lies, and what it takes to read it.

    - ``path``: the directory of the store, or the base path that it lies below;
    - ``decryption``: pyarrow's ``FileDecryptionProperties``, for an encrypted store; a column whose
      key is missing says nothing;
    - ``same_reader``: the table is read with the options, the schema and the session time zone that
      it had when the store was built. Nobody can check it, so it must be said for CSV, JSON and
      ORC: without it such a store is silent.
    """

    path: str
    decryption: object | None = None
    same_reader: bool = False


@dataclass(frozen=True, slots=True)
class Location:
    """The directory ``root`` that holds the facts of a table."""

    root: str

    @classmethod
    def of_table(cls, table: str, index_location: str | None = None) -> Location:
        """Beside ``table``, or at ``index_location``.

        ``UnsupportedError`` for a table without a parent directory, and for a location inside the
        table where Spark would take the facts for data.
        """
        table = canonical_path(table)
        if index_location is None:
            head, _, name = table.rpartition("/")
            if not name or head.endswith(":/"):
                raise UnsupportedError(
                    f"{table} has no parent directory that could hold the facts",
                    hint="say where they go: index_location=…",
                )
            escaped = name.replace("%", "%25").replace("=", "%3D")
            return cls(f"{head}/_{escaped}.skipstone")
        chosen = canonical_path(index_location)
        inside = chosen.removeprefix(f"{table.rstrip('/')}/")
        if chosen == table or (
            inside != chosen and not any(map(hidden_by_spark, inside.split("/")))
        ):
            raise UnsupportedError(
                f"facts at {chosen} would be read as data of {table}",
                hint="put them outside the table, or into a directory whose name starts with _",
            )
        return cls(chosen)

    @property
    def facts(self) -> str:
        """The directory of the fact parts."""
        return f"{self.root}/facts"

    @property
    def packs(self) -> str:
        """The directory of the packs."""
        return f"{self.root}/packs"

    @property
    def xskipper(self) -> str:
        """The directory of published Xskipper stores."""
        return f"{self.root}/xskipper"

    def part(self, name: str) -> str:
        """The path of the part of this name."""
        return f"{self.facts}/{name}"

    def pack(self, name: str) -> str:
        """The path of the pack of this name."""
        return f"{self.packs}/{name}"
