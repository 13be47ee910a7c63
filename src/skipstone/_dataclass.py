"""``dataclass`` of the standard library, with methods made on first use.

    from skipstone._dataclass import dataclass        in place of ``from dataclasses import …``

The library compiles the text of up to six methods when it makes a class: 0.3 ms a class, and 0.05 s
for those that a first query imports. It makes a value of a third of them. Here ``__init__`` is
compiled when the first value is made, and the other methods are closures. The
results are equal: fields, ``replace``, equality, hashes, pickles, and what frozen classes refuse.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """As ``dataclasses.dataclass``, with its options ``frozen``, ``slots``, ``eq``, ``repr``
        and ``kw_only``."""
        return _wrap(options) if cls is None else _wrap(options)(cls)


def _wrap(options: dict[str, bool]) -> Callable[[type], type]:
    frozen, eq = options.pop("frozen", False), options.pop("eq", True)
    shown = options.pop("repr", True)

    def wrapped(cls: type) -> type:
        own = set(vars(cls))
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # the library would inspect a signature
        # A class with a frozen base must be one for the library, too.
        inherits = frozen and any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
        library = dataclasses.dataclass(
            init=False, repr=False, eq=False, frozen=inherits, **options
        )
        found: Any = library(cls)
        found.__dataclass_params__.frozen = frozen
        known = dataclasses.fields(found)
        methods: dict[str, Any] = {}
        if "__init__" not in own:
            methods["__init__"] = _Init(found, frozen)
        if shown and "__repr__" not in own:
            methods["__repr__"] = _repr([each.name for each in known if each.repr])
        if eq:
            names = [each.name for each in known if each.compare]
            compared, hashed = _equality(names)
            if "__eq__" not in own:
                methods["__eq__"] = compared
            # Python sets ``__hash__`` to None in a class with ``__eq__`` of its own.
            if "__hash__" not in own or ("__eq__" in own and vars(found)["__hash__"] is None):
                methods["__hash__"] = hashed if frozen else None
        if frozen and not inherits:
            methods |= _frozen(found, frozenset(each.name for each in known))
            if options.get("slots") and not own & {"__getstate__", "__setstate__"}:
                methods |= {"__getstate__": _state, "__setstate__": _restore}
        for name, method in methods.items():
            setattr(found, name, method)
        kept: type = found
        return kept

    return wrapped


class _Init:
    """``__init__``, compiled when a value is made or the signature is asked for."""

    def __init__(self, owner: type, frozen: bool) -> None:
        self.owner, self.frozen = owner, frozen

    def __get__(self, instance: object, owner: type) -> Any:
        if type(vars(self.owner)["__init__"]) is _Init:
            setattr(self.owner, "__init__", self._compiled())  # noqa: B010
        return self.owner.__init__.__get__(instance, owner)  # type: ignore[misc]

    def _compiled(self) -> Any:
        given: list[str] = []
        named: list[str] = []
        lines: list[str] = []
        space: dict[str, Any] = {"_set": object.__setattr__, "_made": _MADE}
        types: dict[str, Any] = {}
        for each in dataclasses.fields(self.owner):
            name = value = each.name
            makes = each.default_factory is not dataclasses.MISSING
            default = each.default is not dataclasses.MISSING
            space[f"_of_{name}"] = each.default_factory if makes else each.default
            if each.init:
                default_ = "=_made" if makes else f"=_of_{name}" if default else ""
                (named if each.kw_only else given).append(name + default_)
                types[name] = each.type
                if makes:
                    value = f"_of_{name}() if {name} is _made else {name}"
            elif makes:
                value = f"_of_{name}()"
            elif default:
                value = f"_of_{name}"
            else:
                continue
            lines.append(
                f"_set(self, {name!r}, {value})" if self.frozen else f"self.{name} = {value}"
            )
        if hasattr(self.owner, "__post_init__"):
            lines.append("self.__post_init__()")
        takes = ", ".join(["self", *given, *(["*", *named] if named else [])])
        body = "\n ".join(lines or ["pass"])
        exec(f"def __init__({takes}):\n {body}", space)
        made = space["__init__"]
        made.__qualname__ = f"{self.owner.__qualname__}.__init__"
        made.__module__ = self.owner.__module__
        made.__annotations__ = {**types, "return": None}
        return made


class _Made:
    """The default of a parameter whose value is made for each call."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Made()


def _repr(names: list[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return __repr__


def _equality(names: list[str]) -> tuple[Callable[..., Any], Callable[[Any], int]]:
    get: Any = attrgetter(*names) if names else lambda value: None
    key: Callable[[Any], Any] = get if len(names) > 1 else lambda value: (get(value),)

    def __eq__(self: Any, other: object) -> Any:
        if type(other) is type(self):
            return self is other or key(self) == key(other)
        return NotImplemented

    def __hash__(self: Any) -> int:
        return hash(key(self))

    return __eq__, __hash__


def _frozen(cls: Any, names: frozenset[str]) -> dict[str, Any]:
    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
