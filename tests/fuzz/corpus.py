"""The files that are damaged: golden ones, with the keys of those that are encrypted."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tests.parquet.encryption.keys import LABELS, InMemoryKms, decryption_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from skipstone.parquet.encryption.decryption import Decryption


#: Files up to this size are damaged in every run of the tests.
SMALL = 64 << 10

#: Four kilobytes that honestly are two gigabytes of one repeated string.
BOMB = "large_string_map.brotli.parquet"

# The collections that were made to be hard to read come three times as often as what engines wrote
# in passing.
_OFTEN = 3


def golden_corpus(golden: Path, *, smallest: int = 0, largest: int = SMALL) -> list[Path]:
    """Every Parquet file of these sizes, no content twice; the collections of Parquet first."""

    def of(folders: Iterable[Path]) -> list[Path]:
        found: dict[bytes, Path] = {}
        for folder in folders:
            for path in sorted(folder.rglob("*.parquet*")):
                if path.suffix not in (".parquet", ".encrypted") or not path.is_file():
                    continue
                if smallest <= path.stat().st_size <= largest:
                    found.setdefault(hashlib.sha256(path.read_bytes()).digest(), path)
        return list(found.values())

    hard = golden / "parquet-testing", golden / "hyparquet"
    rest = sorted(each for each in golden.iterdir() if each.is_dir() and each not in hard)
    return [*of(hard) * _OFTEN, *of(rest)]


def keys_for(path: Path) -> Decryption | None:
    """The keys of a file, by its name; ``None`` where it is not encrypted."""
    if path.suffix != ".encrypted":
        return None
    if "external_key_material" in path.name:
        from skipstone.parquet.encryption.decryption import Decryption

        return Decryption(kms=InMemoryKms({label.decode(): key for label, key in LABELS.items()}))
    return decryption_of(path)
