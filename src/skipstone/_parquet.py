"""Arrow's reader of Parquet files, without ``pyarrow.parquet``.

That module imports Arrow's file systems, among them clients of object stores and TLS, which takes
30 ms. The reader below it takes open files and bytes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow.parquet as pq


class ArrowParquetFile:
    """A file as ``pyarrow.parquet.ParquetFile`` reads it. Ranges are not joined (``pre_buffer``)
    unless that is asked for. ``UnicodeDecodeError`` for names that are not text."""

    def __init__(
        self,
        source: Any,
        *,
        metadata: pq.FileMetaData | None = None,
        read_dictionary: Collection[str] | None = None,
        pre_buffer: bool = False,
        coerce_int96_timestamp_unit: str | None = None,
        page_checksum_verification: bool = False,
        decryption: object = None,
    ) -> None:
        reader = _reader()
        reader.open(
            source,
            metadata=metadata,
            read_dictionary=read_dictionary,
            pre_buffer=pre_buffer,
            coerce_int96_timestamp_unit=coerce_int96_timestamp_unit,
            page_checksum_verification=page_checksum_verification,
            decryption_properties=decryption,
            arrow_extensions_enabled=True,
        )
        self._reader, self._paths = reader, reader.column_paths

    @property
    def metadata(self) -> pq.FileMetaData:
        return self._reader.metadata

    @property
    def schema_arrow(self) -> pa.Schema:
        return self._reader.schema_arrow

    def read(
        self,
        columns: Collection[str] | None = None,
        *,
        row_group: int | None = None,
        use_threads: bool = False,
    ) -> pa.Table:
        """These top-level columns of all row groups, or of one."""
        leaves = None
        if columns is not None:
            leaves = [at for at, path in enumerate(self._paths) if path[0] in columns]
        if row_group is None:
            return self._reader.read_all(column_indices=leaves, use_threads=use_threads)
        return self._reader.read_row_group(
            row_group, column_indices=leaves, use_threads=use_threads
        )


def _reader() -> Any:
    try:
        from pyarrow._parquet import ParquetReader
    except ImportError:  # the module is not public
        from pyarrow.parquet import ParquetReader
    return ParquetReader()


def read_metadata(file: bytes, decryption: object = None) -> pq.FileMetaData:
    """The footer of a file."""
    source = pa.BufferReader(pa.py_buffer(file))
    return ArrowParquetFile(source, decryption=decryption).metadata
