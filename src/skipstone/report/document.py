"""The page: skeleton, style, script and data in one text that asks nobody for anything.

Data are JSON in elements that no browser runs. In them ``<`` is written ``\\u003c``, so that no
file name can end the element, and the script shows text as text only. A policy in the head lets
just this one script and this one style count, by their hashes, and no connection at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from skipstone.parquet.arrow.metadata_tables import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["document"]

_SCRIPTS: Final = ("words.js", "cells.js", "grid.js", "inside.js", "main.js")


def document(
    data: Mapping[str, Any], inner: Mapping[int, Mapping[str, Any]], *, title: str, explain: str
) -> str:
    """One page of HTML: ``data`` of the whole, ``inner`` by the ordinal of the file."""
    page = files(__package__).joinpath("page")
    style = page.joinpath("style.css").read_text("utf-8")
    parts = [page.joinpath(name).read_text("utf-8") for name in _SCRIPTS]
    script = "(() => {\n'use strict';\n" + "\n".join(parts) + "})();\n"
    elements = [_element("data", data), *(_element(f"file-{at}", inner[at]) for at in inner)]
    values = {
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'",
        "title": escape(shown(title)),
        "style": style,
        "explain": escape(shown(explain)),
        "data": "\n".join(elements),
        "script": script,
    }
    text = page.joinpath("page.html").read_text("utf-8")
    # Split once: what is put in is never looked at again.
    pieces = text.split("{{")
    done = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        done += [values[name], rest]
    return "".join(done)


def _element(id: str, value: Mapping[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return f'<script type="application/json" id="{id}">{text}</script>'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
