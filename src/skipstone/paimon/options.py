"""Paimon's options of file indexes, as definitions of indexes.

``FileIndexOptions`` parses Paimon's options into definitions; the parameters of the kinds are the
options of a column:

| option | default | meaning |
|---|---|---|
| ``file-index.<kind>.columns`` | | columns with an index of this kind, separated by commas |
| ``file-index.bloom-filter.<column>.items`` | 1000000 | distinct values expected per file |
| ``file-index.bloom-filter.<column>.fpp`` | 0.1 | share of false positives, between 0 and 1 |
| ``file-index.bitmap.<column>.version`` | 2 | 1 or 2 |
| ``file-index.bitmap.<column>.index-block-size`` | 16kb | bytes of a block of the dictionary |
| ``file-index.range-bitmap.<column>.chunk-size`` | 16kb | bytes of a chunk of the dictionary; 0b \
for boolean, tinyint and smallint |
| ``file-index.in-manifest-threshold`` | unchanged, else 500 b | containers up to this lie in the \
fact row |
| ``file-index.read.enabled`` | true | whether readers use file indexes |

Kinds are ``bloom-filter``, ``bitmap``, ``bsi`` and ``range-bitmap``; sizes are ``500 b``, ``16kb``,
``1 mb``, units of 1,024. ``m[k]`` is the value of key ``k`` of a map; options of ``m`` hold for it
too, unless it has its own. Unlike in Paimon a column may have dots in its name, an option is
refused unless its column is listed for its kind, and every value is checked before anything is
built.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from skipstone._dataclasses import dataclass
from skipstone.predicate.types import MapKey, column_name, column_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .base import PaimonIndex


PREFIX = "file-index."

_COLUMNS = "columns"
_THRESHOLD = "in-manifest-threshold"
_ENABLED = "read.enabled"
_MAP_KEY = re.compile(r"([^\[\]]+)\[(.+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIndexOptions:
    """The parsed options: ``indexes`` to build, the largest container that lies in the fact row
    (``None``: not set), and whether readers use the indexes."""

    indexes: tuple[PaimonIndex, ...] = ()
    in_manifest_threshold: int | None = None
    read_enabled: bool = True

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> FileIndexOptions:
        """From Paimon's keys and values, as text or as Python values (``True``, ``0.01``).

        ``ValueError`` names the key if Paimon does not know it, its column is not listed for the
        kind, an item of its list is empty, or its option cannot have this value.
        """
        if not options:
            return cls()
        from .kinds import KINDS

        threshold, enabled = None, True
        columns: dict[str, list[str]] = {}
        rest: list[tuple[str, str, str, str]] = []
        for key, given in options.items():
            value = _text(given)
            if not is_option(key):
                raise ValueError(f"{key!r} is not an option of file indexes: they begin {PREFIX!r}")
            name = key[len(PREFIX) :]
            if name == _THRESHOLD:
                threshold = _size(key, value)
            elif name == _ENABLED:
                enabled = _boolean(key, value)
            else:
                kind, _, tail = name.partition(".")
                if kind not in KINDS:
                    raise _unknown(key, kind)
                if tail == _COLUMNS:
                    columns[kind] = _listed(key, value)
                else:
                    rest.append((key, kind, tail, value))
        params = _params(columns, rest)
        indexes = [
            _definition(kind, column, params)
            for kind, listed in columns.items()
            for column in listed
        ]
        return cls(
            indexes=tuple(dict.fromkeys(indexes)),
            in_manifest_threshold=threshold,
            read_enabled=enabled,
        )


def is_option(key: str) -> bool:
    """Whether a key is one of Paimon's for file indexes, known or not."""
    return key.startswith(PREFIX)


def _params(
    columns: Mapping[str, list[str]], options: list[tuple[str, str, str, str]]
) -> dict[tuple[str, str], dict[str, tuple[str, str]]]:
    """By kind and column: option to (key, value)."""
    from difflib import get_close_matches

    from .kinds import KINDS

    found: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for key, kind, tail, value in options:
        column, _, option = tail.rpartition(".")
        takes = KINDS[kind].parameters
        if option not in takes or not column:
            known = ", ".join(takes) if takes else "nothing but columns"
            near = get_close_matches(option, [*takes, _COLUMNS], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{key!r}: {option!r} is not an option: {kind} takes {known}{hint}")
        listed = columns.get(kind, [])
        if column not in {each for name in listed for each in (name, _map_of(name))}:
            raise ValueError(
                f"{key!r}: column {column!r} is not listed in {PREFIX}{kind}.{_COLUMNS}"
            )
        found.setdefault((kind, column), {})[option] = (key, value)
    return found


def _definition(
    kind: str, column: str, params: Mapping[tuple[str, str], Mapping[str, tuple[str, str]]]
) -> PaimonIndex:
    from .kinds import KINDS

    base, own = params.get((kind, _map_of(column)), {}), params.get((kind, column), {})
    made = KINDS[kind](_name(column))
    chosen: dict[str, str] = {}
    for option, (key, value) in {**base, **own}.items():
        chosen[option] = value
        try:  # one after the other, so that the error names the key
            made = type(made).from_params(made.column, chosen)
        except ValueError as error:
            raise ValueError(f"{key!r} cannot be {value!r}: {error}") from None
    return made


def _map_of(column: str) -> str:
    """The map of ``m[k]``, the column itself otherwise."""
    match = _MAP_KEY.fullmatch(column)
    return column if match is None else match[1]


def _name(column: str) -> str:
    """A column as definitions spell it: ``m['k']`` for ``m[k]``."""
    match = _MAP_KEY.fullmatch(column)
    if match is None:
        return column
    return column_name((*column_path(match[1]), MapKey(match[2])))


def _listed(key: str, value: str) -> list[str]:
    items = [item.strip() for item in value.split(",")]
    if not all(items):
        raise ValueError(f"{key!r} has an empty item: {value!r}")
    for item in items:
        if ("[" in item or "]" in item) and _MAP_KEY.fullmatch(item) is None:
            raise ValueError(f"{key!r}: {item!r} is not a key of a map: those are written m[k]")
    if len(set(items)) < len(items):
        twice = next(item for item in items if items.count(item) > 1)
        raise ValueError(f"{key!r} names {twice!r} twice")
    return items


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _size(key: str, value: str) -> int:
    from .base import memory_size

    try:
        return memory_size(value)
    except ValueError as error:
        raise ValueError(f"{key!r}: {error}") from None


def _boolean(key: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(f"{key!r} is true or false, not {value!r}")
    return value.lower() == "true"


def _unknown(key: str, kind: str) -> ValueError:
    from difflib import get_close_matches

    from .kinds import KINDS

    others = [f"{PREFIX}{each}.{_COLUMNS}" for each in KINDS]
    near = get_close_matches(key, [PREFIX + _THRESHOLD, PREFIX + _ENABLED], 1, 0.8)
    near = near or [f"{PREFIX}{each}.…" for each in get_close_matches(kind, KINDS, 1)]
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(others)}"
    return ValueError(f"{key!r} is not an option of file indexes; {hint}")
