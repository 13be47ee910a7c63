"""Where the golden stores lie, and what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.xskipper.format.part import read_footer, read_part

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def golden_parts(golden: Path, version: int | None = None) -> list[Path]:
    """The plain (not encrypted) part files of every store, of one version or of all."""
    found = []
    for path in sorted((golden / "xskipper").rglob("part-*.parquet")):
        folders = [folder.name for folder in path.parents]
        if "data" in folders or "encrypted_spark400" in folders or len(path.parent.name) != 64:
            continue
        if version is None or read_footer(path.read_bytes()).schema.version == version:
            found.append(path)
    return found


def golden_blobs(golden: Path) -> Iterator[bytes]:
    """Every serialised filter in them."""
    for path in golden_parts(golden):
        part = read_part(path.read_bytes())
        for index in part.footer.schema.indexes:
            if index.kind == "bloomfilter":
                yield from filter(None, part.table.column(index.name).to_pylist())
