"""Frozen classes behave as those of ``dataclasses``."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from dataclasses import MISSING, FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

import skipstone
from skipstone import _dataclasses


def classes(dataclass: Any) -> dict[str, type]:
    """Classes of many forms, by name."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """Has a documentation."""

        x: int
        y: float = 0.5
        names: list[str] = field(default_factory=list, compare=False)
        kinds: ClassVar[int] = 3

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        name: str
        size: int = 7
        seen: dict[str, int] = field(default_factory=dict, init=False, repr=False, hash=False)

    @dataclass(frozen=True, eq=False)
    class Open:
        x: int
        by_name: int = field(kw_only=True)

    @dataclass(frozen=True, slots=True)
    class Below(Point):
        z: str = "z"

        def __post_init__(self) -> None:
            object.__setattr__(self, "z", f"{self.z}!")

    @dataclass(frozen=True, slots=True, repr=False)
    class Own:
        x: int

        def __repr__(self) -> str:
            return f"own {self.x}"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.x % 2 == other.x % 2

    @dataclass(frozen=True, slots=True)
    class Hashed:
        x: int

        def __hash__(self) -> int:
            return 5

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @dataclass(slots=True)
    class Changed:
        x: int = 1

    @dataclass(frozen=True, order=True)
    class Ordered:
        x: int

    return {name: kind for name, kind in locals().items() if isinstance(kind, type)}


STANDARD, OURS = classes(dataclasses.dataclass), classes(_dataclasses.dataclass)
CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Point", [1], {}),
    ("Point", [1, 2.5], {"names": ["a"]}),
    ("Point", [], {"x": 1}),
    ("Point", [], {}),
    ("Point", [1, 2, [], 4], {}),
    ("Named", [], {"name": "a"}),
    ("Named", [], {"name": "a", "size": 8}),
    ("Named", ["a"], {}),
    ("Named", [], {"name": "a", "seen": {}}),
    ("Open", [3], {"by_name": 4}),
    ("Open", [3, 4], {}),
    ("Below", [1], {}),
    ("Below", [1, 2.0, [], "y"], {}),
    ("Own", [3], {}),
    ("Hashed", [3], {}),
    ("Empty", [], {}),
    ("Changed", [], {}),
    ("Ordered", [3], {}),
]


def made(kinds: dict[str, type], name: str, values: list[Any], named: dict[str, Any]) -> Any:
    try:
        return kinds[name](*values, **named)
    except TypeError as error:
        return str(error).replace("classes.<locals>.", "")


@pytest.mark.parametrize("name, values, named", CALLS)
def test_values_are_those_of_the_standard_library(
    name: str, values: list[Any], named: dict[str, Any]
) -> None:
    standard, ours = made(STANDARD, name, values, named), made(OURS, name, values, named)
    if isinstance(standard, str):
        assert ours == standard
        return
    assert repr(ours).split(" at ")[0] == repr(standard).split(" at ")[0]
    assert dataclasses.asdict(ours) == dataclasses.asdict(standard)
    assert type(ours).__match_args__ == type(standard).__match_args__
    again, other = made(OURS, name, values, named), made(STANDARD, name, values, named)
    assert (ours == again) == (standard == other)
    for one, two in ((ours, again), (standard, other)):
        if type(one).__hash__ is None:
            with pytest.raises(TypeError, match="unhashable"):
                hash(one)
        elif one == two:
            assert hash(one) == hash(two)
    assert (type(ours).__hash__ is None) == (type(standard).__hash__ is None)
    assert ours != standard
    assert hasattr(ours, "__dict__") == hasattr(standard, "__dict__")
    assert dataclasses.asdict(copy.copy(ours)) == dataclasses.asdict(ours)
    assert dataclasses.asdict(copy.deepcopy(ours)) == dataclasses.asdict(ours)


@pytest.mark.parametrize("name", STANDARD)
def test_signatures_and_fields_are_those_of_the_standard_library(name: str) -> None:
    standard, ours = STANDARD[name], OURS[name]
    assert str(inspect.signature(ours)) == str(inspect.signature(standard))
    for one, two in zip(_fields(ours), _fields(standard), strict=True):
        assert one == two


def _fields(kind: Any) -> list[tuple[Any, ...]]:
    kept = ("name", "type", "default", "default_factory", "init", "repr", "hash", "compare")
    return [tuple(getattr(each, name) for name in kept) for each in dataclasses.fields(kind)]


@pytest.mark.parametrize("kinds", [STANDARD, OURS], ids=["standard", "ours"])
def test_a_frozen_value_does_not_change(kinds: dict[str, Any]) -> None:
    for value in (kinds["Point"](1), kinds["Open"](1, by_name=2), kinds["Below"](1)):
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
            value.x = 2
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
            del value.x
        assert value.x == 1
    changed = kinds["Changed"]()
    changed.x = 2
    assert changed == kinds["Changed"](2)

    more = type("More", (kinds["Open"],), {})(1, by_name=2)
    more.other = 3
    assert more.other == 3
    with pytest.raises(FrozenInstanceError):
        more.x = 2


@pytest.mark.parametrize("kinds", [STANDARD, OURS], ids=["standard", "ours"])
def test_what_decides_equality(kinds: dict[str, Any]) -> None:
    point, named = kinds["Point"], kinds["Named"]
    assert point(1, 2.0, ["a"]) == point(1, 2.0, ["b"])
    assert point(1) != point(2)
    assert point(1) != kinds["Below"](1)
    assert len({point(1), point(1, 0.5, ["b"]), point(2)}) == 2
    one, two = named(name="a"), named(name="a")
    two.seen["a"] = 1
    assert one != two
    assert hash(one) == hash(two)
    assert kinds["Open"](1, by_name=2) != kinds["Open"](1, by_name=2)


@_dataclasses.dataclass(frozen=True, slots=True)
class Pickled:
    x: int
    y: str = "y"


def test_pickling_and_replacing() -> None:
    value = Pickled(1)
    assert pickle.loads(pickle.dumps(value)) == value
    assert dataclasses.replace(value, y="z") == Pickled(1, "z")
    match value:
        case Pickled(x, y):
            assert (x, y) == (1, "y")
    assert Pickled.__doc__ == "Pickled"
    assert OURS["Point"].__doc__ == "Has a documentation."


def test_the_package_uses_what_holds_here() -> None:
    """No class has an ``InitVar`` or an ``__init__`` of its own, which would be lost."""
    seen = 0
    for module in pkgutil.walk_packages(skipstone.__path__, "skipstone."):
        if module.name.startswith("skipstone.spark") or module.name.endswith("__main__"):
            continue
        try:
            loaded = importlib.import_module(module.name)
        except ImportError:
            continue
        for kind in vars(loaded).values():
            if not (isinstance(kind, type) and kind.__module__ == module.name):
                continue
            init: Any = vars(kind).get("__init__")
            if not dataclasses.is_dataclass(kind) or "_set" not in getattr(init, "__globals__", {}):
                continue
            seen += 1
            given = {each.name for each in dataclasses.fields(kind) if each.init}
            needed = {
                each.name
                for each in dataclasses.fields(kind)
                if each.init and each.default is MISSING and each.default_factory is MISSING
            }
            parameters = inspect.signature(kind).parameters
            assert set(parameters) == given
            assert needed == {
                name for name, each in parameters.items() if each.default is inspect.Parameter.empty
            }
            assert all("InitVar" not in str(each) for each in kind.__annotations__.values())
    assert seen > 300
