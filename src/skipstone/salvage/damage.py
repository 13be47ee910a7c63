"""Whether a file is damaged: the footer opens, and every page decodes and has its stated checksum.

Statistics, indexes and filters are not checked: salvage cannot mend them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import FormatError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.pages.column_values import decode_data_page, decode_dictionary_page
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.writing.chunk_modules import plain_pages

if TYPE_CHECKING:
    from skipstone.parquet.encodings.values import Values
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.format.schema import Leaf

__all__ = ["damage_of"]


def damage_of(path: str, decryption: Decryption | None = None) -> str:
    """The first damage of a file, empty where there is none; ``decryption`` opens encrypted ones.

    Raises ``KeyUnavailableError`` for an encrypted footer or column without its key, and
    ``UnsupportedError`` for encrypted columns where there are no keys. A page that does not
    authenticate is damaged.
    """
    try:
        file = ParquetFile(path, decryption=decryption)
        if file.chunk_pages.decryptor is not None and decryption is None:
            raise UnsupportedError(f"{path} is encrypted: its pages cannot be told apart")
        for error in file.unavailable.values():
            raise error
        for row_group in range(file.num_row_groups):
            for leaf in file.footer.schema.leaves:
                _decode(file, row_group, leaf)
    except FormatError as error:
        return error.message.removeprefix(f"{canonical_path(path)}: ")
    return ""


def _decode(file: ParquetFile, row_group: int, leaf: Leaf) -> None:
    key = row_group, leaf.ordinal
    place, decryptor = file.chunk_pages.place(key), file.chunk_pages.column_decryptor(key)
    dictionary: Values | None = None
    values = rows = 0
    where = f"column {leaf.name}, row group {row_group}"
    for page, body in plain_pages(file.reader, place, decryptor):
        try:
            if page.type == PageType.DICTIONARY_PAGE:
                dictionary = decode_dictionary_page(page, leaf, place.codec, body)
            elif page.is_data:
                column = decode_data_page(page, leaf, place.codec, dictionary, body)
                values, rows = values + page.num_values, rows + column.num_rows
        except UnsupportedError:
            return  # a codec or an encoding that is not supported
        except FormatError as error:
            raise FormatError(
                f"{where}: {error.about}", file=place.path, offset=page.offset
            ) from error
    if values != place.num_values or rows != place.rows:
        raise FormatError(
            f"{where} ends too early",
            file=place.path,
            expected=f"{place.num_values:,} values in {place.rows:,} rows",
            got=f"{values:,} values in {rows:,} rows",
        )
