"""Where the schema of a file without a footer comes from.

    given          a Parquet file, an Arrow schema file (IPC), or a text: ``message m { … }``
    of the file    what is left of its footer
    beside it      ``_common_metadata`` or ``_metadata``; else files that all have one schema

Types that only look alike read wrongly, so files beside it count only if all agree.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.footer import MAGIC_ENCRYPTED, TAIL_LENGTH, Tail
from skipstone.parquet.format.metadata import FileMetaData, KeyValue, SchemaElement
from skipstone.parquet.format.schema import Schema

from .schema_text import parse_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from skipstone.parquet.encryption.decryption import Decryption

__all__ = ["SchemaSource", "beside", "given"]

_SUMMARIES: Final = ("_common_metadata", "_metadata")
_MOST_BESIDE: Final = 64
_LARGEST_TEXT: Final = 16 << 20
_ENCRYPTED: Final = "give its keys, or the schema as a text"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSource:
    """A schema, the pairs that go with it, and ``what`` it was taken from. ``codecs``: of each
    leaf, as a first guess."""

    what: str
    elements: tuple[SchemaElement, ...]
    pairs: tuple[KeyValue, ...] | None = None
    codecs: tuple[int, ...] = ()

    @classmethod
    def of_footer(cls, what: str, metadata: FileMetaData) -> SchemaSource:
        """That of a footer."""
        codecs: tuple[int, ...] = ()
        if metadata.row_groups:
            columns = [each.meta_data for each in metadata.row_groups[0].columns]
            codecs = tuple([int(each.codec) if each is not None else 0 for each in columns])
        return cls(
            what=what,
            elements=metadata.schema,
            pairs=metadata.key_value_metadata,
            codecs=codecs,
        )


def given(schema: str | Path | pa.Schema, decryption: Decryption | None = None) -> SchemaSource:
    """The schema that the caller names; ``FormatError`` where it is none."""
    if not isinstance(schema, str | Path):
        return _of_arrow("the given schema", schema)
    if isinstance(schema, str) and schema.lstrip().startswith("message"):
        return SchemaSource(what="the given text", elements=parse_schema(schema))
    path = Path(schema)
    try:
        footer = _footer(path, decryption)
    except FormatError:
        footer = None
    if footer is not None:
        return SchemaSource.of_footer(str(path), footer)
    import pyarrow as pa

    if path.stat().st_size > _LARGEST_TEXT:
        raise FormatError("no schema, nor a Parquet file", file=str(path))
    data = path.read_bytes()
    if data.lstrip().startswith(b"message"):
        text = data.decode("utf-8", "replace")
        return SchemaSource(what=str(path), elements=parse_schema(text))
    try:
        found = pa.ipc.read_schema(pa.BufferReader(data))
    except (pa.ArrowException, OSError, ValueError):
        raise FormatError(
            "no schema",
            file=str(path),
            expected="a Parquet file, an Arrow schema, or a text that begins with message",
        ) from None
    return _of_arrow(str(path), found)


def beside(path: Path, decryption: Decryption | None = None) -> SchemaSource | None:
    """That of the files beside ``path``, or ``None``."""
    for name in _SUMMARIES:
        place = path.with_name(name)
        if place.is_file() and place != path:
            try:
                return SchemaSource.of_footer(str(place), _footer(place, decryption))
            except (FormatError, UnsupportedError, OSError):
                continue
    found: list[SchemaSource] = []
    for place in _files(path):
        try:
            found.append(SchemaSource.of_footer(str(place), _footer(place, decryption)))
        except (FormatError, UnsupportedError, OSError):
            continue
    if not found or any(each.elements != found[0].elements for each in found):
        return None
    return found[0]


def _files(path: Path) -> Iterator[Path]:
    listed = sorted(each for each in path.parent.iterdir() if each.suffix == ".parquet")
    for place in listed[:_MOST_BESIDE]:
        if place != path and place.is_file() and not place.name.startswith((".", "_")):
            yield place


def _footer(path: Path, decryption: Decryption | None) -> FileMetaData:
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(size - TAIL_LENGTH, 0))
        data = file.read(TAIL_LENGTH)
        if data[4:] == MAGIC_ENCRYPTED and decryption is None:
            raise UnsupportedError(f"{path} is encrypted", hint=_ENCRYPTED)
        tail = Tail.from_bytes(data, size)
        file.seek(tail.offset)
        footer = file.read(tail.length)
        if tail.encrypted:
            from skipstone.parquet.encryption.file_decryptor import EncryptedFooter, FileDecryptor

            module = EncryptedFooter.from_bytes(footer, base=tail.offset)
            opener = FileDecryptor.of_encrypted_footer(decryption, module.crypto, file=str(path))
            footer = opener.decrypt_footer(module.module, base=module.offset)
        metadata = FileMetaData.from_bytes(footer, base=tail.offset)
    Schema.of(metadata.schema)
    return metadata


def _of_arrow(what: str, schema: pa.Schema) -> SchemaSource:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    try:
        pq.write_table(schema.empty_table(), sink)
    except (pa.ArrowException, ValueError) as error:
        raise UnsupportedError(f"Parquet cannot hold the schema: {error}") from error
    from skipstone.parquet.format.footer import read_metadata

    metadata = read_metadata(sink.getvalue().to_pybytes())
    return SchemaSource(what=what, elements=metadata.schema, pairs=metadata.key_value_metadata)
