"""Keys in a JSON file, for the command line: keys belong neither there nor in its history.

    {
      "footer_key": "text:0123456789012345",
      "column_keys": {"user.email": "6b65793132333435…", "amount": "base64:a2V5…"},
      "aad_prefix": "text:orders"
    }

All three may be left out. A key is hex, or ``base64:`` and base64, or ``text:`` and UTF-8; 16, 24
or 32 bytes. Messages name the entry, never what is in it.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from skipstone.errors import FormatError

from .decryption import Decryption

__all__ = ["decryption_from_json", "key_from_text"]

_ENTRIES = {"footer_key", "column_keys", "aad_prefix"}


def decryption_from_json(text: str, *, file: str | None = None) -> Decryption:
    """The keys of such a document; ``FormatError`` where it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        # The error of the parser would quote the document.
        raise _wrong("not a JSON document", file) from None
    if not isinstance(found, dict) or not set(found) <= _ENTRIES:
        raise _wrong(f"an object of {', '.join(sorted(_ENTRIES))} is expected", file)
    columns = found.get("column_keys", {})
    if not isinstance(columns, dict):
        raise _wrong("column_keys is an object of column paths", file)
    try:
        return Decryption(
            footer_key=_bytes(found, "footer_key", file),
            column_keys={
                name: _required(columns, name, f"the key of column {name!r}", file)
                for name in columns
            },
            aad_prefix=_bytes(found, "aad_prefix", file),
            allow_plaintext_files=True,
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise _wrong(str(error), file) from None


def _bytes(found: dict[str, Any], name: str, file: str | None) -> bytes | None:
    return None if found.get(name) is None else _required(found, name, name, file)


def _required(found: dict[str, Any], name: str, shown: str, file: str | None) -> bytes:
    value = found[name]
    if not isinstance(value, str):
        raise _wrong(f"{shown} is no string", file)
    return key_from_text(value, shown, file)


def key_from_text(value: str, shown: str, file: str | None = None) -> bytes:
    """Bytes in hex, or after ``base64:`` or ``text:``; ``shown`` is what messages call them."""
    kind, colon, rest = value.partition(":")
    try:
        if colon and kind == "text":
            return rest.encode()
        if colon and kind == "base64":
            return base64.b64decode(rest, validate=True)
        return bytes.fromhex(value)
    except (ValueError, binascii.Error):
        raise _wrong(f"{shown} is neither hex, nor base64:…, nor text:…", file) from None


def _wrong(text: str, file: str | None) -> FormatError:
    return FormatError(
        f"key file: {text}",
        file=file,
        hint='{"footer_key": "hex, base64:… or text:…", "column_keys": {"column": "…"}}',
    )
