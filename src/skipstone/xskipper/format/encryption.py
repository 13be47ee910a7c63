"""The encryption of an Xskipper store, in the metadata of its column ``obj_name``::

    "encryption": {"encryption.column.keys": "k1:temp_minmax_4.min,...;k2:...",
                   "encryption.footer.key": "k1",
                   "encryption.plaintext.footer": "true"}              false where it is absent

Labels precede their leaf columns, as in parquet-java's properties of these names. The label of an
index is also in the metadata of its column (``key_metadata``). Keys are never stored.
Source: the published specification, version 4, and stores that a release of Xskipper encrypted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEncryption:
    """The key labels of the footer and the columns. Files never contain keys."""

    footer_key: str
    column_keys: str
    plaintext_footer: bool = False

    @classmethod
    def of(
        cls,
        footer_key: str,
        column_keys: Mapping[str, Iterable[str]],
        *,
        plaintext_footer: bool = False,
    ) -> StoreEncryption:
        """From the label of the footer, and the leaf columns by label."""
        groups = (f"{label}:{','.join(paths)}" for label, paths in column_keys.items())
        return cls(
            footer_key=footer_key,
            column_keys=";".join(groups),
            plaintext_footer=plaintext_footer,
        )

    @classmethod
    def from_json(cls, described: object) -> StoreEncryption | None:
        """From the metadata of ``obj_name``; ``FormatError`` for other values."""
        if described is None:
            return None
        if not isinstance(described, dict):
            raise FormatError("the encryption metadata is not a map")
        keys = described.get("encryption.column.keys")
        footer = described.get("encryption.footer.key")
        plaintext = described.get("encryption.plaintext.footer", "false")
        if (
            not isinstance(keys, str)
            or not isinstance(footer, str)
            or not isinstance(plaintext, str)
        ):
            raise FormatError("the encryption metadata lacks column keys or the footer key")
        return cls(
            footer_key=footer, column_keys=keys, plaintext_footer=plaintext.lower() == "true"
        )

    def to_json(self) -> dict[str, str]:
        """The metadata of ``obj_name``."""
        found = {
            "encryption.column.keys": self.column_keys,
            "encryption.footer.key": self.footer_key,
        }
        if self.plaintext_footer:
            found["encryption.plaintext.footer"] = "true"
        return found

    def labels(self) -> tuple[str, ...]:
        """All labels, sorted."""
        groups = (group.partition(":")[0] for group in self.column_keys.split(";"))
        return tuple(sorted({self.footer_key, *groups} - {""}))

    def paths(self) -> dict[str, tuple[str, ...]]:
        """Label -> the leaf columns that it encrypts (``id_minmax_2.min``)."""
        found: dict[str, tuple[str, ...]] = {}
        for group in self.column_keys.split(";"):
            label, _, paths = group.partition(":")
            found[label] = found.get(label, ()) + tuple(filter(None, paths.split(",")))
        found.pop("", None)
        return found
