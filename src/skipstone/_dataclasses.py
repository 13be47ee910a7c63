"""``dataclass`` that compiles one method of a frozen class instead of six.

    from skipstone._dataclasses import dataclass          not ``from dataclasses``

A first query makes 200 classes, and compiling their methods took a fifth of its processor time.
Here only ``__init__`` of a frozen class is compiled. The other methods are closures that behave
like those of ``dataclasses``; ``fields``, ``replace``, ``asdict``, ``match`` and pickling work too.
``InitVar`` and ``__init__`` of one's own do not.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass as dataclass
else:

    def dataclass(kind=None, /, *, frozen=False, order=False, **options):
        """As ``dataclasses.dataclass``; see the module."""
        if kind is None:
            return partial(dataclass, frozen=frozen, order=order, **options)
        if not frozen or order:
            return dataclasses.dataclass(kind, frozen=frozen, order=order, **options)
        return _frozen(kind, **options)


def _frozen(
    kind: type,
    *,
    repr: bool = True,
    eq: bool = True,
    slots: bool = False,
    kw_only: bool = False,
) -> Any:
    own = {name for name in ("__repr__", "__eq__", "__doc__") if vars(kind).get(name) is not None}
    hashes = vars(kind).get("__hash__") is not None
    if "__doc__" not in own:  # else it is made of a signature, which takes long
        kind.__doc__ = kind.__name__
    made: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
    )(kind)
    fields = dataclasses.fields(made)
    made.__init__ = _init_of(made, fields)
    made.__setattr__, made.__delattr__ = _frozen_attributes(made, fields)
    if slots and "__getstate__" not in vars(kind):
        made.__getstate__, made.__setstate__ = _state_of(fields)
    if repr and "__repr__" not in own:
        made.__repr__ = _repr_of([each.name for each in fields if each.repr])
    if eq:
        if "__eq__" not in own:
            made.__eq__ = _eq_of([each.name for each in fields if each.compare])
        if not hashes:
            hashed = [each for each in fields if (each.compare if each.hash is None else each.hash)]
            made.__hash__ = _hash_of([each.name for each in hashed])
    return made


class _Made:
    """The default of a parameter whose value is made for each object."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Made()


def _init_of(kind: type, fields: Sequence[Field[Any]]) -> Callable[..., None]:
    known: dict[str, Any] = {"_set": object.__setattr__, "_made": _MADE}
    by_place: list[str] = []
    by_name: list[str] = []
    lines: list[str] = []
    for each in fields:
        name = parameter = value = each.name
        if each.default is not MISSING:
            known[f"_default_{name}"] = each.default
            parameter = f"{name}=_default_{name}"
            value = name if each.init else f"_default_{name}"
        elif each.default_factory is not MISSING:
            known[f"_make_{name}"] = each.default_factory
            parameter = f"{name}=_made"
            value = f"_make_{name}()"
            if each.init:
                value += f" if {name} is _made else {name}"
        elif not each.init:
            continue
        if each.init:
            (by_name if each.kw_only else by_place).append(parameter)
        lines.append(f" _set(self, {name!r}, {value})")
    if hasattr(kind, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = ", ".join(["self", *by_place, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n" + ("\n".join(lines) or " pass"), known)
    made: Callable[..., None] = known.pop("__init__")
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    made.__annotations__ = {each.name: each.type for each in fields if each.init} | {"return": None}
    return made


def _frozen_attributes(
    kind: Any, fields: Sequence[Field[Any]]
) -> tuple[Callable[..., None], Callable[..., None]]:
    names = frozenset(each.name for each in fields)

    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is kind or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(kind, self).__setattr__(name, value)  # of a class below that has more attributes

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is kind or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(kind, self).__delattr__(name)

    return __setattr__, __delattr__


def _state_of(fields: Sequence[Field[Any]]) -> tuple[Callable[..., Any], Callable[..., None]]:
    names = [each.name for each in fields]

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: Sequence[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __getstate__, __setstate__


def _repr_of(names: Sequence[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _values_of(names: Sequence[str]) -> Callable[[Any], Any]:
    """Gets the values of ``names`` as a tuple."""
    if not names:
        return lambda value: ()
    # With one name, attrgetter returns its value alone.
    return attrgetter(*names) if len(names) > 1 else attrgetter(*names, *names)


def _eq_of(names: Sequence[str]) -> Callable[[Any, object], bool]:
    values = _values_of(names)

    def __eq__(self: Any, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return __eq__


def _hash_of(names: Sequence[str]) -> Callable[[Any], int]:
    values = _values_of(names)

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__
