"""``IndexEncryption``: which key label encrypts what of an index. Labels only: never a key.

As in Xskipper: one label for the footer and all that is not of one index alone, and a label per
index (its ``key_metadata``). An index without a label of its own has the footer's, so that nothing
is left in the clear. The null counts of a column go with the first of its indexes that has a label
of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skipstone.errors import KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.indexes.registry import kind as registered
from skipstone.pruning import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from skipstone.parquet.encryption.master_keys import KeySource, LabelledKeys

    from .snapshot import Snapshot
    from .store import Store

__all__ = ["IndexEncryption", "Sealing", "encryption_of", "keys_of", "sealing_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEncryption:
    """How an index is encrypted.

    ``footer_key`` is the label of the key of the footer (and of identities, row counts and
    sidecars). ``key_metadata`` are the labels of single indexes, by ``"column:kind"``, or by
    ``"column"`` for all over it. With ``plaintext_footer`` the names of files' columns, of indexes
    and of labels can be read without any key, and are signed; values never can.
    """

    footer_key: str
    key_metadata: Mapping[str, str] = field(default_factory=dict)
    plaintext_footer: bool = False

    def __post_init__(self) -> None:
        # In the list of keys of a footer these stand between labels and between columns.
        for label in (self.footer_key, *self.key_metadata.values()):
            if not label or set(label) & set(":;,"):
                raise ValueError("a key label is a text without colon, semicolon and comma")
        object.__setattr__(
            self, "key_metadata", {_name(name): to for name, to in self.key_metadata.items()}
        )

    def label(self, kind: str, column: str) -> str:
        """Of one index."""
        of_column = self.key_metadata.get(column.lower(), self.footer_key)
        return self.key_metadata.get(f"{column.lower()}:{kind}", of_column)

    def nulls_label(self, column: str, kinds: Iterable[str]) -> str:
        """Of the null counts of a column with indexes of these kinds."""
        labels = [self.label(kind, column) for kind in sorted(kinds)]
        return next((label for label in labels if label != self.footer_key), self.footer_key)

    def labels(self) -> tuple[str, ...]:
        """All that there are."""
        return tuple(dict.fromkeys((self.footer_key, *self.key_metadata.values())))

    def check(self, indexes: Iterable[tuple[str, str]]) -> None:
        """``SkipstoneError`` for a label of no index, given as pairs of column and kind."""
        known = {name for column, kind in indexes for name in (column, f"{column}:{kind}")}
        for name in self.key_metadata:
            if name not in {each.lower() for each in known}:
                raise SkipstoneError(
                    f"there is no index {name!r} to encrypt",
                    hint=f"there are {', '.join(sorted(known))}",
                )


def _name(name: str) -> str:
    """``column:kind`` with the kind's own name."""
    column, colon, kind = name.rpartition(":")
    known = registered(kind) if colon else None
    return f"{column.lower()}:{known.name}" if known is not None else name.lower()


@dataclass(frozen=True, slots=True)
class Sealing:
    """Labels and the keys for them: what it takes to write."""

    encryption: IndexEncryption
    keys: LabelledKeys


def keys_of(source: KeySource | None) -> LabelledKeys | None:
    """The keys that were given, if any."""
    if source is None:
        return None
    from skipstone.parquet.encryption.master_keys import LabelledKeys

    return source if isinstance(source, LabelledKeys) else LabelledKeys(source)


def encryption_of(snapshot: Snapshot) -> IndexEncryption | None:
    """How the newest encrypted part is encrypted, with the labels of all indexes; ``None`` where
    no part is."""
    found = [part.encryption for part in snapshot.parts if part.encryption is not None]
    if not found:
        return None
    footer = found[-1].footer_key
    labels = {
        f"{each.column}:{each.kind}": each.key_metadata
        for each in snapshot.definitions
        if each.key_metadata is not None and each.key_metadata != footer
    }
    return IndexEncryption(
        footer_key=footer,
        key_metadata=labels,
        plaintext_footer=found[-1].plaintext_footer,
    )


def sealing_for(
    store: Store, keys: LabelledKeys | None, asked: IndexEncryption | None = None
) -> Sealing | None:
    """What to write with into ``store``; ``None`` for one in the clear.

    ``asked`` says how a new store is encrypted, and adds labels of new indexes. Raises
    ``UnsupportedError`` where the store is in the clear and keys were given, where keys were given
    for a new one without saying how, or where an index has another label already;
    ``KeyUnavailableError`` where the store is encrypted and its footer key is not at hand.
    """
    snapshot = store.snapshot()
    have = encryption_of(snapshot)
    if have is None:
        closed = [r for r in snapshot.reasons if r.cause is Cause.UNDECRYPTABLE]
        if closed:
            raise KeyUnavailableError(
                f"the index is encrypted: {closed[0].text}",
                hint="open the table with index_keys, or say --index-key LABEL=SOURCE",
            )
        if asked is None and keys is None:
            return None
        if store.part_names():
            raise UnsupportedError(
                "the index is there in the clear: encrypting what is added would leave that",
                hint="drop it and build it encrypted, or go on without keys and encryption",
            )
        if asked is None:
            raise UnsupportedError(
                "keys for the index were given, and not how to encrypt it",
                hint="build with encryption=IndexEncryption(footer_key=LABEL)",
            )
    if keys is None:
        raise KeyUnavailableError(
            "an encrypted index takes keys",
            hint="open the table with index_keys, or say --index-key LABEL=SOURCE",
        )
    if have is None:
        assert asked is not None
        have = asked
    elif asked is not None:
        have = _joined(have, asked, snapshot)
    keys.require(have.footer_key)
    return Sealing(have, keys)


def _joined(have: IndexEncryption, asked: IndexEncryption, snapshot: Snapshot) -> IndexEncryption:
    if (asked.footer_key, asked.plaintext_footer) != (have.footer_key, have.plaintext_footer):
        raise UnsupportedError(
            f"the index is encrypted with the footer key labelled {have.footer_key!r}, under "
            f"{'a plaintext' if have.plaintext_footer else 'an encrypted'} footer",
            hint="encrypt it the same way, or drop it and build it anew",
        )
    for each in snapshot.definitions:
        names = (f"{each.column}:{each.kind}".lower(), each.column.lower())
        wanted = next((asked.key_metadata[n] for n in names if n in asked.key_metadata), None)
        if wanted not in (None, each.key_metadata):
            raise UnsupportedError(
                f"{each} is encrypted with the key labelled {each.key_metadata!r}, not {wanted!r}",
                hint="name its label, or drop it and build it anew",
            )
    return IndexEncryption(
        footer_key=have.footer_key,
        key_metadata={**asked.key_metadata, **have.key_metadata},
        plaintext_footer=have.plaintext_footer,
    )
