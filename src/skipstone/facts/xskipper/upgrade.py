"""Stores of versions 1 to 3 -> version 4, in their place or in another.

Every part is read and brought to version 4 before anything is written; an error leaves the store as
it was. What a part says of its author stays, so whoever reads it distrusts what was distrusted
before. Partition values, which older stores do not hold, come from the paths of the rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.errors import KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.facts.index_encryption import keys_of
from skipstone.human import plural, size
from skipstone.identity import canonical_path
from skipstone.pruning.partitions import PartitionColumns
from skipstone.storage import open_storage
from skipstone.xskipper.format.naming import CURRENT_VERSION
from skipstone.xskipper.format.part import read_part, to_bytes
from skipstone.xskipper.format.rows import decode
from skipstone.xskipper.format.upgrade import upgrade

from .replace_parts import replace_parts
from .snapshot import source
from .store import part_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.parquet.encryption.master_keys import KeySource
    from skipstone.storage import Storage
    from skipstone.xskipper.format.part import Part

__all__ = ["UpgradeReport", "upgrade_store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeReport:
    """What an upgrade did; nothing where ``versions`` is 4 alone and it was to stay in place."""

    store: str
    destination: str
    versions: tuple[int, ...]
    parts: int
    rows: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {**asdict(self), "versions": list(self.versions)}

    def __str__(self) -> str:
        if not self.parts:
            return f"{self.store} is of version {CURRENT_VERSION} already"
        versions = ", ".join(map(str, self.versions))
        rows, parts = plural(self.rows, "row"), plural(self.parts, "part")
        return (
            f"upgraded {rows} from version {versions} to {CURRENT_VERSION}: {parts}, "
            f"{size(self.bytes)}, in {self.destination}"
        )


def upgrade_store(
    directory: str,
    destination: str | None = None,
    options: Mapping[str, str] | None = None,
    keys: KeySource | None = None,
) -> UpgradeReport:
    """Bring the store in ``directory`` to version 4, there or in the directory ``destination``.

    ``keys`` are those of the labels of an encrypted store (as ``Table`` takes them): all of them,
    and it keeps every label. ``UnsupportedError`` for version 0, above 4, and for an encrypted
    store without keys; ``KeyUnavailableError`` where one is missing; ``FormatError`` for damage.
    """
    labelled = keys_of(keys)
    decryption = None
    if labelled is not None:
        from skipstone.parquet.encryption.master_keys import arrow_decryption

        decryption = arrow_decryption(labelled)
    home = canonical_path(directory)
    target = home if destination is None else canonical_path(destination)
    storage = open_storage(home, options)
    parts = _read(storage, home, decryption)
    versions = tuple(sorted({part.footer.schema.version for part in parts}))
    if versions == (CURRENT_VERSION,) and target == home:
        return UpgradeReport(
            store=home, destination=home, versions=versions, parts=0, rows=0, bytes=0
        )
    names = [decode(part).path for part in parts]
    found = _partitions(parts, names)
    done = []
    first = 0
    for part, paths in zip(parts, names, strict=True):
        virtual = {name: values.slice(first, len(paths)) for name, values in found.items()}
        table, schema = upgrade(part.table, part.footer.schema, virtual=virtual)
        done.append((to_bytes(table, schema, like=part.footer, keys=labelled), schema))
        first += len(paths)
    if any(schema != done[0][1] for _, schema in done):
        raise UnsupportedError(
            f"the parts of {home} do not describe the same indexes",
            hint="a change was cut off there: let the real Xskipper refresh it, or drop it",
        )
    written = [data for data, _ in done]
    where = open_storage(target, options)
    return UpgradeReport(
        store=home,
        destination=target,
        versions=versions,
        parts=len(parts),
        rows=first,
        bytes=replace_parts(where, target, written, done[0][1], decryption),
    )


def _read(storage: Storage, home: str, decryption: object | None) -> list[Part]:
    found = []
    for path in part_files(storage, home):
        with source(storage, path) as file:
            try:
                part = read_part(file, file=path, decryption=decryption)
            except KeyUnavailableError as error:
                if decryption is not None:
                    raise
                raise UnsupportedError(
                    f"{error.message}: an encrypted store is not upgraded without its keys",
                    hint="pass the keys of its labels, or let the real Xskipper refresh it",
                ) from error
        for name, text in part.unreadable:
            if part.footer.schema.encryption is not None:
                hint = "pass the keys of all labels; nothing was changed"
                raise KeyUnavailableError(f"{path}: {name}: {text}", hint=hint)
            raise SkipstoneError(f"{path}: {name}: {text}", hint="nothing was changed")
        found.append(part)
    if not found:
        raise SkipstoneError(
            f"{home} has no parts of a store of Xskipper",
            hint="name the directory itself: <base>/<64 hexadecimal digits>",
        )
    return found


def _partitions(parts: Sequence[Part], names: Sequence[pa.Array]) -> Mapping[str, pa.Array]:
    """The partition values of all rows, one part after the other, typed as Spark infers them."""
    root = parts[0].footer.schema.table_identifier
    paths = pa.concat_arrays(list(names)).to_pylist()
    if root is None or not all(path and path.startswith(f"{root}/") for path in paths):
        return {}
    return PartitionColumns.of_paths(root, paths).values
