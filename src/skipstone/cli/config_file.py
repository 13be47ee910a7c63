"""``skipstone.toml``, or ``[tool.skipstone]`` of ``pyproject.toml``, where a table lies.

    index-location = "/indexes/events"      relative paths are from the file's directory
    memory = "1GiB"

Few keys on purpose: the directory of a table may be somebody else's, so nothing here may name a
machine to connect to or hold a secret.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skipstone.errors import SkipstoneError
from skipstone.identity import canonical_path

__all__ = ["beside"]

_KEYS = {"index-location": "index_location", "memory": "memory"}


def beside(table: str) -> dict[str, str]:
    """Settings for ``table`` by parameter name; none for a table in an object store.

    ``SkipstoneError`` for a file that is no TOML, and for keys and values that are none of ours.
    """
    path = canonical_path(table)
    if "://" in path:
        return {}
    home = Path(path).parent
    for name, keys in (("skipstone.toml", ()), ("pyproject.toml", ("tool", "skipstone"))):
        file = home / name
        if file.is_file():
            found = _section(file, keys)
            if found is not None:
                return _checked(file, found)
    return {}


def _section(file: Path, keys: tuple[str, ...]) -> Any:
    import tomllib

    try:
        section: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if keys:
            return None  # somebody else's file: not ours to complain about
        raise SkipstoneError(f"{file}: {error}", hint="mend the file, or move it away") from error
    for key in keys:
        section = section.get(key) if isinstance(section, dict) else None
    return section


def _checked(file: Path, section: Any) -> dict[str, str]:
    known = f"it may have {', '.join(_KEYS)}"
    if not isinstance(section, dict):
        raise SkipstoneError(f"{file}: tool.skipstone is no table", hint=known)
    settings = {}
    for key, value in section.items():
        if key not in _KEYS:
            raise SkipstoneError(f"{file}: unknown key {key!r}", hint=known)
        if not isinstance(value, str):
            raise SkipstoneError(f"{file}: {key} is not a text", hint='write it as "..."')
        settings[_KEYS[key]] = value
    location = settings.get("index_location")
    if location is not None and "://" not in location:
        settings["index_location"] = str(file.parent / location)
    return settings
