"""The JSON that QuestDB keeps in a Parquet footer under the key ``questdb``.

    {"version": 1, "schema": [{"column_type": 12, "column_top": 0, "format": 1, "ascii": true,
     "id": 3}, …], "unused_bytes": 4096, "squash_tracker": 11}

One entry for each leaf, in order. ``format`` 1 (the only one) says that a symbol's keys are those
of the table; ``id``, ``ascii``, ``format``, ``unused_bytes`` and ``squash_tracker`` may be absent,
and an ``id`` or ``squash_tracker`` of -1 means the same. Version 1 is the only one there is.

A tool that rewrites the Parquet file may copy the JSON of another schema into it: it is trusted
only where it has as many entries as there are leaves, and each type fits its leaf.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from skipstone.errors import FormatError, UnsupportedError

KEY = "questdb"
_VERSION = 1
_LOCAL_KEY_IS_GLOBAL = 1
_I32, _I64 = 1 << 31, 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class QdbColumn:
    """One entry of ``schema``; ``column_top`` counts rows before the column was added."""

    column_type: int
    column_top: int = 0
    format: int | None = None
    ascii: bool | None = None
    id: int = -1

    @property
    def local_key_is_global(self) -> bool:
        """A symbol whose keys are those of the table."""
        return self.format == _LOCAL_KEY_IS_GLOBAL


@dataclass(frozen=True, slots=True, kw_only=True)
class QdbMeta:
    """The whole document."""

    schema: tuple[QdbColumn, ...]
    version: int = _VERSION
    unused_bytes: int = 0
    squash_tracker: int = -1

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """``FormatError`` where it is not such a document, ``UnsupportedError`` for a version."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"the JSON under {KEY!r}: {type(error).__name__}") from None
        if not isinstance(document, dict):
            raise FormatError(f"the JSON under {KEY!r}", expected="an object", got=document)
        version = _whole(document, "version", _I32)
        if version != _VERSION:
            raise UnsupportedError(
                f"version {version} of the JSON under {KEY!r}",
                hint="the file was written by a later version of QuestDB",
            )
        schema = document.get("schema")
        if not isinstance(schema, list) or not all(isinstance(each, dict) for each in schema):
            raise FormatError(f"schema of the JSON under {KEY!r}", expected="a list of objects")
        return cls(
            schema=tuple([_column(each) for each in schema]),
            unused_bytes=_whole(document, "unused_bytes", _I64, 0),
            squash_tracker=_whole(document, "squash_tracker", _I64, -1),
        )

    def to_json(self) -> str:
        """The document as QuestDB writes it: what is absent is left out."""
        schema = []
        for column in self.schema:
            entry: dict[str, Any] = {
                "column_type": column.column_type,
                "column_top": column.column_top,
            }
            if column.format is not None:
                entry["format"] = column.format
            if column.ascii is not None:
                entry["ascii"] = column.ascii
            if column.id >= 0:
                entry["id"] = column.id
            schema.append(entry)
        document: dict[str, Any] = {"version": self.version, "schema": schema}
        if self.unused_bytes:
            document["unused_bytes"] = self.unused_bytes
        if self.squash_tracker != -1:
            document["squash_tracker"] = self.squash_tracker
        return json.dumps(document)


def _column(entry: dict[str, Any]) -> QdbColumn:
    form = entry.get("format")
    if form is not None and form != _LOCAL_KEY_IS_GLOBAL:
        raise UnsupportedError(f"format {form!r} of a column in the JSON under {KEY!r}")
    ascii = entry.get("ascii")
    if ascii is not None and not isinstance(ascii, bool):
        raise FormatError(f"ascii in the JSON under {KEY!r}", expected="a boolean", got=ascii)
    return QdbColumn(
        column_type=_whole(entry, "column_type", _I32),
        column_top=_whole(entry, "column_top", _I64, 0),
        format=None if form is None else _LOCAL_KEY_IS_GLOBAL,
        ascii=ascii,
        id=max(-1, _whole(entry, "id", _I32, -1)),
    )


def _whole(entry: dict[str, Any], name: str, limit: int, default: int | None = None) -> int:
    value = entry.get(name)
    if value is None and default is not None:
        return default
    # A bool is an int to Python, and not to QuestDB.
    if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
        raise FormatError(f"{name} in the JSON under {KEY!r}", expected="a whole number", got=value)
    return value
