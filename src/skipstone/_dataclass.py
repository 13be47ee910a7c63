"""``dataclass`` is the standard one, but compiles no method before it is called.

The standard decorator compiles the source of up to eight methods for each class: 0.4 ms. A process
whose first query takes 0.3 s defines 200 classes, makes instances of half of them, and compares,
hashes or prints few. Here only ``__init__`` is compiled, for the first instance of a class. The
other methods get the values of the fields from ``operator.attrgetter``.

A class and those derived from it use the same decorator: the standard one raises ``TypeError``
otherwise. So the classes that users derive from use the standard one. ``InitVar`` and the order of
instances are left to it, too.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, fields
from dataclasses import dataclass as _standard
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import Field
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True, repr=True):
        """See the module."""

        def made(cls):
            return _made(cls, frozen, slots, kw_only, eq, repr)

        return made if cls is None else made(cls)


def _made(cls: type, frozen: bool, slots: bool, kw_only: bool, eq: bool, shown: bool) -> type:
    own = frozenset(cls.__dict__)
    if cls.__doc__ is None:
        cls.__doc__ = ""  # the standard decorator writes a signature, which takes long
    made: Any = _standard(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    every = fields(made)
    methods: dict[str, Any] = {}
    if "__init__" not in own:
        methods["__init__"] = _first_init(made, every, frozen, slots)
    if shown and "__repr__" not in own:
        methods["__repr__"] = _repr(tuple(each.name for each in every if each.repr))
    if eq:
        compared = _values(tuple(each.name for each in every if each.compare))
        if "__eq__" not in own:
            methods["__eq__"] = _eq(compared)
        if "__hash__" not in own:
            methods["__hash__"] = _hash(compared) if frozen else None
    if frozen:
        names = frozenset(each.name for each in every)
        methods |= {"__setattr__": _setattr(made, names), "__delattr__": _delattr(made, names)}
        if slots and "__getstate__" not in own:
            methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    for name, method in methods.items():
        if method is not None:
            method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(made, name, method)
    return made  # type: ignore[no-any-return]


def _first_init(
    cls: type, every: tuple[Field[Any], ...], frozen: bool, slots: bool
) -> Callable[..., None]:
    """An ``__init__`` that compiles itself."""

    def __init__(self: Any, *args: Any, **values: Any) -> None:
        compiled = _init(cls, every, frozen, slots)
        cls.__init__ = compiled  # type: ignore[misc]
        compiled(self, *args, **values)

    return __init__


def _init(
    cls: type, every: tuple[Field[Any], ...], frozen: bool, slots: bool
) -> Callable[..., None]:
    scope: dict[str, Any] = {"_MISSING": MISSING, "_set": object.__setattr__}
    placed: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for number, each in enumerate(every):
        default, factory = f"_default{number}", f"_factory{number}"
        scope |= {default: each.default, factory: each.default_factory}
        makes, given = each.default_factory is not MISSING, each.default is not MISSING
        value = each.name
        if each.init:
            text = value if not (makes or given) else f"{value}={'_MISSING' if makes else default}"
            (named if each.kw_only else placed).append(text)
            if makes:
                value = f"{factory}() if {value} is _MISSING else {value}"
        elif makes or (given and slots):
            value = f"{factory}()" if makes else default
        else:
            continue
        target = f"_set(self, {each.name!r}, {value})" if frozen else f"self.{each.name} = {value}"
        body.append(f"    {target}\n")
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()\n")
    parameters = ["self", *placed, *(["*", *named] if named else ())]
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(body) or '    pass'}", scope)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these fields of an instance."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _repr(names: tuple[str, ...]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({shown})"

    return __repr__


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _setattr(cls: type, names: frozenset[str]) -> Callable[[Any, str, Any], None]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    return __setattr__


def _delattr(cls: type, names: frozenset[str]) -> Callable[[Any, str], None]:
    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    return __delattr__


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
