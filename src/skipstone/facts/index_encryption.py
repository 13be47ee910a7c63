"""``IndexEncryption``: which key label encrypts which part of an index. Labels only, never keys.

As in Xskipper, one label encrypts the footer and everything that is not one index alone, and each
index may have a label of its own (``key_metadata``). An index without a label has the footer's, so
nothing stays in the clear. The null counts of a column have the label of the first of its indexes
that has one.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.indexes.registry import kind as registered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from skipstone.parquet.encryption.master_keys import LabelledKeys

    from .part_columns import Definition


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEncryption:
    """How an index is encrypted.

    ``footer_key`` labels the key of the footer, and of identities, row counts and sidecars.
    ``key_metadata`` labels single indexes, by ``"column:kind"``, or by ``"column"`` for all indexes
    over a column. With ``plaintext_footer`` the names of columns, indexes and labels are readable
    without a key, and signed; values never are.
    """

    footer_key: str
    key_metadata: Mapping[str, str] = field(default_factory=dict)
    plaintext_footer: bool = False

    def __post_init__(self) -> None:
        # The footer's list of keys separates labels and columns by these.
        for label in (self.footer_key, *self.key_metadata.values()):
            if not label or set(label) & set(":;,"):
                raise ValueError("a key label is a text without colon, semicolon and comma")
        object.__setattr__(
            self, "key_metadata", {_name(name): to for name, to in self.key_metadata.items()}
        )

    def label(self, kind: str, column: str) -> str:
        """The label of one index."""
        of_column = self.key_metadata.get(column.lower(), self.footer_key)
        return self.key_metadata.get(f"{column.lower()}:{kind}", of_column)

    def nulls_label(self, column: str, kinds: Iterable[str]) -> str:
        """The label of the null counts of a column with indexes of these kinds."""
        labels = [self.label(kind, column) for kind in sorted(kinds)]
        return next((label for label in labels if label != self.footer_key), self.footer_key)

    def check(self, indexes: Iterable[tuple[str, str]]) -> None:
        """``SkipstoneError`` for a label of no index; ``indexes`` are pairs of column and kind."""
        known = {name for column, kind in indexes for name in (column, f"{column}:{kind}")}
        for name in self.key_metadata:
            if name not in {each.lower() for each in known}:
                raise SkipstoneError(
                    f"there is no index {name!r} to encrypt",
                    hint=f"there are {', '.join(sorted(known))}",
                )

    def extended(
        self, requested: IndexEncryption, definitions: Iterable[Definition]
    ) -> IndexEncryption:
        """This encryption with the labels that ``requested`` has for new indexes.

        ``UnsupportedError`` where the footers differ, or an index has another label already.
        """
        if (requested.footer_key, requested.plaintext_footer) != (
            self.footer_key,
            self.plaintext_footer,
        ):
            raise UnsupportedError(
                f"the index is encrypted with the footer key labelled {self.footer_key!r}, under "
                f"{'a plaintext' if self.plaintext_footer else 'an encrypted'} footer",
                hint="encrypt it the same way, or drop it and build it again",
            )
        for each in definitions:
            names = (f"{each.column}:{each.kind}".lower(), each.column.lower())
            labels = requested.key_metadata
            wanted = next((labels[name] for name in names if name in labels), None)
            if wanted not in (None, each.key_metadata):
                raise UnsupportedError(
                    f"{each} is encrypted with the key labelled {each.key_metadata!r}, "
                    f"not {wanted!r}",
                    hint="name its label, or drop it and build it again",
                )
        return IndexEncryption(
            footer_key=self.footer_key,
            key_metadata={**requested.key_metadata, **self.key_metadata},
            plaintext_footer=self.plaintext_footer,
        )


def _name(name: str) -> str:
    """``column:kind`` in lower case, with the kind's own name for an alias."""
    column, colon, kind = name.rpartition(":")
    known = registered(kind) if colon else None
    return f"{column.lower()}:{known.name}" if known is not None else name.lower()


@dataclass(frozen=True, slots=True)
class WriteEncryption:
    """The labels of an encrypted index, and their keys for a writer."""

    encryption: IndexEncryption
    keys: LabelledKeys
