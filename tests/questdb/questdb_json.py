"""QuestDB's JSON of a Parquet footer, as QuestDB writes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skipstone.questdb.format.pm_columns import QdbMeta


def to_json(meta: QdbMeta) -> str:
    """The document; what is absent is left out."""
    schema = []
    for column in meta.schema:
        entry: dict[str, Any] = {
            "column_type": column.column_type,
            "column_top": column.column_top,
            "format": column.format,
            "ascii": column.ascii,
            "id": column.id if column.id >= 0 else None,
        }
        schema.append({key: value for key, value in entry.items() if value is not None})
    document: dict[str, Any] = {"version": meta.version, "schema": schema}
    if meta.unused_bytes:
        document["unused_bytes"] = meta.unused_bytes
    if meta.squash_tracker != -1:
        document["squash_tracker"] = meta.squash_tracker
    return json.dumps(document)
