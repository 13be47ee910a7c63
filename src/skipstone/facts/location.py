"""The directory of the facts of a table, and its content.

    /data/events            /data/_events.skipstone/
    s3://bucket/p/events    s3://bucket/p/_events.skipstone/
      facts/part-<uuid>       fact parts (``parts.py``)
      facts/slices-<uuid>     bit slices of the Bloom filters of a part (``slices.py``)
      packs/<uuid>.pack       sidecars (``encode.py``)
      xskipper/               a published Xskipper directory
      .../_*                  being written, or left by a crash; never read

The directory is adjacent to the table, so that nothing is written into the data. The underscore
hides it from Spark, Hive and pyarrow when they read the parent. Spark shows a name with "_" that
contains "=" (it may be a partition), so "=" is written as %3D, and % as %25 to keep names distinct.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.identity import canonical_path
from skipstone.storage import hidden_by_spark

if TYPE_CHECKING:
    from skipstone.parquet.encryption.master_keys import LabelledKeys


_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PART: Final = re.compile(f"part-{_UUID}")
_SLICES: Final = re.compile(f"slices-{_UUID}")
_PACK: Final = re.compile(rf"{_UUID}\.pack")
_TEMPORARY: Final = re.compile(r"_tmp-(.+-)?[0-9a-f]{32}|_probe-[0-9a-f]{32}", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class KeyedLocation:
    """The location of an encrypted index (``None``: adjacent to its table), and its keys."""

    path: str | None
    keys: LabelledKeys


@dataclass(frozen=True, slots=True)
class XskipperLocation:
    """The location of an Xskipper store, and what is needed to read it.

    - ``path``: the directory of the store, or the base path above it;
    - ``decryption``: pyarrow's ``FileDecryptionProperties``, for an encrypted store; a column whose
      key is missing proves nothing;
    - ``same_reader``: the table is read with the options, the schema and the session time zone that
      it had when the store was built. This cannot be checked, so it must be set for CSV, JSON and
      ORC: without it such a store proves nothing.
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
        """Adjacent to ``table``, or at ``index_location``.

        ``UnsupportedError`` for a table without a parent directory, and for a location inside the
        table where Spark would take the facts for data.
        """
        table = canonical_path(table)
        if index_location is None:
            head, _, name = table.rpartition("/")
            if not name or head.endswith(":/"):
                raise UnsupportedError(
                    f"{table} has no parent directory that could hold the facts",
                    hint="name their place: index_location=… (--index-location)",
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

    @property
    def pms(self) -> str:
        """The directory of the ``_pm`` files that a migration of a plain table writes."""
        return f"{self.root}/pm"

    def is_part(self, path: str) -> bool:
        """Whether ``path`` has the name of a fact part: only such files are removed as parts."""
        return _is_named(path, _PART, self.facts)

    def is_slices(self, path: str) -> bool:
        """Whether ``path`` has the name of the bit slices of a part."""
        return _is_named(path, _SLICES, self.facts)

    def is_pack(self, path: str) -> bool:
        """Whether ``path`` has the name of a pack."""
        return _is_named(path, _PACK, self.packs)

    def is_temporary(self, path: str) -> bool:
        """Whether ``path`` has the name of a temporary file."""
        return _is_named(path, _TEMPORARY, self.facts, self.packs)

    def is_own(self, path: str) -> bool:
        """Whether Skipstone makes files of this name here. A user may have named a directory that
        holds other files."""
        own = (self.is_part, self.is_slices, self.is_pack, self.is_temporary)
        return any(each(path) for each in own)

    def part(self, name: str) -> str:
        """The path of the part of this name."""
        return f"{self.facts}/{name}"

    def slices(self, part: str) -> str:
        """The path of the bit slices of the part of this name."""
        return f"{self.facts}/slices-{part.removeprefix('part-')}"

    @staticmethod
    def part_of_slices(path: str) -> str:
        """The name of the part that the bit slices at ``path`` are of."""
        return f"part-{path.rpartition('/slices-')[2]}"

    def pack(self, name: str) -> str:
        """The path of the pack of this name."""
        return f"{self.packs}/{name}"


def _is_named(path: str, pattern: re.Pattern[str], *directories: str) -> bool:
    head, _, name = path.rpartition("/")
    return head in directories and pattern.fullmatch(name) is not None
