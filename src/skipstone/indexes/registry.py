"""Index kinds by name: the built-in kinds, and kinds of other packages by entry point.

    user_id:bloom(fpp=0.001)      column, kind or alias, parameters

An entry point of the group ``skipstone.indexes`` names a class, which is loaded on first use. It
cannot take the name or alias of a built-in kind. An entry point may not load, or not be an
``Index``. An index of such a kind that is read proves nothing, and a warning gives the reason.
Building one is an error.
"""

from __future__ import annotations

import logging
import re
import sys
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from skipstone.errors import UnsupportedError
from skipstone.pruning.kind import Index

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib import metadata


#: the group of the entry points
GROUP = "skipstone.indexes"

# The built-in kinds: module, class and names. Users see the first name. A query loads only the
# modules that it needs.
_BUILT_IN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("indexes.minmax", "MinMax", ("minmax", "min_max")),
    ("indexes.valuelist", "ValueList", ("valuelist", "value_list", "values")),
    ("indexes.bloom", "Bloom", ("bloom", "bloomfilter", "bloom_filter")),
    ("indexes.text", "NGrams", ("ngram", "ngrams")),
    ("indexes.text", "Tokens", ("tokens", "token")),
    ("indexes.minmax", "NullCounts", ("nulls",)),
    ("paimon.kinds", "Bitmap", ("bitmap",)),
    ("paimon.kinds", "RangeBitmap", ("rangebitmap", "range-bitmap", "range_bitmap")),
    ("paimon.kinds", "Bsi", ("bsi",)),
    ("paimon.bloom", "PaimonBloom", ("paimonbloom", "bloom-filter")),
)
_NAMES = {name: (module, cls) for module, cls, names in _BUILT_IN for name in names}
_KIND = re.compile(r"[^\s,():]+(?:\([^()]*\))?")
# The kinds at the end of a definition, separated by commas. A column name may contain colons.
_KINDS = re.compile(rf":\s*({_KIND.pattern}(?:\s*,\s*{_KIND.pattern})*)\s*$")
_SPEC = re.compile(r"(?P<kind>[A-Za-z_][\w.\-]*)\s*(?:\((?P<params>[^()]*)\))?\s*")
# A name in backquotes, or the key of a map.
_QUOTED = re.compile(r"`[^`]*`?|\['(?:[^'\\]|\\.)*'\]", re.DOTALL)

log = logging.getLogger("skipstone")


def kind(name: str) -> type[Index] | None:
    """The kind with this name or alias, ignoring case; ``None`` if it does not exist or load."""
    found = _NAMES.get(name.lower())
    if found is not None:
        module, of_class = found
        own: type[Index] = getattr(import_module(f"skipstone.{module}"), of_class)
        return own
    loaded = _load(name)
    return loaded if isinstance(loaded, type) else None


def why_unknown(name: str) -> str:
    """Why ``kind(name)`` is ``None``, in words."""
    loaded = _load(name)
    if isinstance(loaded, str):
        return loaded
    return f"no index kind is called {name!r}"


def known_kinds() -> list[str]:
    """The names of all kinds that load and that users may choose: the built-in ones, then others.

    Null counts are no choice: every index has them.
    """
    own = sorted({point.name for point in _points()} - set(_NAMES))
    built_in = [names[0] for _, _, names in _BUILT_IN if names[0] != "nulls"]
    return built_in + [name for name in own if kind(name) is not None]


def parse_index(text: str) -> Index:
    """The definition that ``text`` spells (see the module).

    ``UnsupportedError`` for an unknown kind, ``ValueError`` for text that is not a definition or a
    parameter that the kind does not have.
    """
    column, colon, rest = _split(text)
    match = _SPEC.fullmatch(rest)
    if not colon or not column or match is None:
        raise ValueError(
            f"{text!r} is not an index definition: write COLUMN:KIND or COLUMN:KIND(NAME=VALUE, …)"
        )
    cls = kind(match["kind"])
    if cls is None:
        from difflib import get_close_matches

        kinds = known_kinds()
        near = get_close_matches(match["kind"], kinds, 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        if kind(column) is not None:
            meant = f"write {match['kind']}:{column}: the column comes first; "
        hint = f"{meant}there are {', '.join(kinds)}"
        raise UnsupportedError(why_unknown(match["kind"]), hint=hint)
    params: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in (match["params"] or "").split(","))):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not equals:
            raise ValueError(f"{part!r} in {text!r} is not of the form NAME=VALUE")
        params[name] = value
    try:
        made = cls.from_params(column, params)
    except ValueError as error:
        why = str(error)
        if why.startswith(("could not convert", "invalid literal")):
            why = f"{why.rpartition(': ')[2]} is not a number"
        raise ValueError(f"{text!r}: {why}") from error
    spelled = set(made.params) | set(cls.parameters)
    if unknown := sorted(set(params) - spelled):
        takes = ", ".join(sorted(spelled)) or "no parameters"
        raise ValueError(f"{text!r}: {cls.name} takes {takes}, not {', '.join(unknown)}")
    return made


def parse_indexes(specs: str | Index | Iterable[str | Index]) -> list[Index]:
    """The definitions in ``specs``, in order, without duplicates.

    ``"ts:minmax,bloom(fpp=0.1)"`` is two definitions over one column.
    """
    several = [specs] if isinstance(specs, str | Index) else list(specs)
    made: list[Index] = []
    for each in several:
        if isinstance(each, Index):
            made.append(each)
        else:
            made += [parse_index(single) for single in _one_by_one(each)]
    return list(dict.fromkeys(made))


def _one_by_one(text: str) -> list[str]:
    """Splits ``a:x,y(p=1)`` into ``a:x`` and ``a:y(p=1)``; other text stays whole."""
    match = _KINDS.search(text)
    if match is None:
        return [text]
    column = text[: match.start()]
    return [f"{column}:{kind}" for kind in _KIND.findall(match[1])]


def _split(text: str) -> tuple[str, str, str]:
    """Column, colon, rest: splits at the first colon outside quotes before a kind's name."""
    inside = [(match.start(), match.end()) for match in _QUOTED.finditer(text)]
    for at, char in enumerate(text):
        quoted = any(start <= at < end for start, end in inside)
        if char == ":" and not quoted and _SPEC.fullmatch(text[at + 1 :].strip()):
            return text[:at].strip(), ":", text[at + 1 :].strip()
    return text, "", ""


def _points() -> tuple[metadata.EntryPoint, ...]:
    return _points_on(tuple(sys.path))


# Reading what every installed package says of itself takes 20 ms, and a plan asks per part.
@lru_cache(maxsize=1)
def _points_on(path: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:
    """The entry points of the packages on ``path``, which ``importlib`` takes from ``sys.path``."""
    from importlib import metadata

    return tuple(metadata.entry_points(group=GROUP))


def _load(name: str) -> type[Index] | str | None:
    """The class from another package, or why it does not load; ``None`` if no package has it."""
    points = [point for point in _points() if point.name == name]
    if not points:
        return None
    try:
        loaded = points[0].load()
    except Exception as error:  # third-party code: on any error the kind is unknown
        text = f"index kind {name!r} ({points[0].value}) does not load: {error}"
        log.warning(text)
        return text
    if not (isinstance(loaded, type) and issubclass(loaded, Index)):
        return f"index kind {name!r} ({points[0].value}) is not a subclass of skipstone's Index"
    return loaded
