"""Data classes of ours beside the standard ones: the same instances, errors and pickles."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field, fields, replace
from functools import partial
from typing import Any, ClassVar

import pytest

from skipstone._dataclass import dataclass as ours

OPTIONS: list[dict[str, bool]] = [
    {"frozen": frozen, "slots": slots, "kw_only": kw_only, "eq": eq}
    for frozen in (False, True)
    for slots in (False, True)
    for kw_only in (False, True)
    for eq in (False, True)
]


def _made(decorator: Any, **options: bool) -> Any:
    """A class with fields of every kind, and one derived from it."""

    @decorator(**options)
    class Base:
        kind: ClassVar[str] = "base"
        name: str
        values: list[int] = field(default_factory=list)
        note: str = field(default="none", repr=False, compare=False)
        length: int = field(default=0, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "length", len(self.name))

    @decorator(**options)
    class Derived(Base):
        extra: int = 7

    return Base, Derived


def _outcome(call: Any) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_instances_are_those_of_the_standard_decorator(options: dict[str, bool]) -> None:
    """Calls, comparisons, hashes, texts, assignments and copies, of a class and a derived one."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {"name": "abc"}),
        (("abc",), {}),
        (("abc", [1]), {"extra": 2}),
        ((), {}),
        ((), {"name": "n", "values": [3], "note": "t"}),
        ((), {"name": "n", "unknown": 3}),
        (("a", [], "b", 1, 2, 3), {}),
    ]
    classes = _made(ours, **options), _made(dataclasses.dataclass, **options)
    for mine, standard in zip(*classes, strict=True):
        for call in calls:
            assert _outcome(partial(_told, mine, *call)) == _outcome(
                partial(_told, standard, *call)
            )


def _told(cls: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    made, other = cls(*given, **named), cls(*given, **named)
    return (
        repr(made),
        made == other,
        made == object(),
        made != replace(made, note="other"),
        _outcome(lambda: hash(made)) if "__eq__" in cls.__dict__ else None,
        made.values is other.values,
        _outcome(lambda: setattr(made, "name", "new")),
        _outcome(lambda: delattr(made, "length")),
        # With slots the standard decorator refuses other names by an error of its own.
        hasattr(made, "__dict__") and _outcome(lambda: setattr(made, "unknown", 1)),
        [each.name for each in fields(copy.copy(made))],
        dataclasses.asdict(replace(other, note="x")),
    )


@ours(frozen=True, slots=True, eq=False)
class _Plain:
    value: int


@ours(frozen=True, slots=True)
class _One:
    value: float = field(default=1.5)


@ours
class _Empty:
    pass


def test_frozen_instances_survive_pickles_and_copies() -> None:
    assert pickle.loads(pickle.dumps(_One(2.5))) == _One(2.5)
    assert copy.deepcopy(_Plain(3)).value == 3
    assert hash(_One()) == hash((1.5,))
    assert _Plain(1) != _Plain(1)
    assert _Empty() == _Empty()


def test_the_first_instance_compiles_its_initializer_alone() -> None:
    @ours(kw_only=True)
    class Fresh:
        value: int = 3

    assert "args" in inspect.signature(Fresh).parameters
    with pytest.raises(TypeError, match=r"Fresh\.__init__\(\) got an unexpected keyword"):
        Fresh(other=1)  # type: ignore[call-arg]
    assert Fresh().value == 3
    assert list(inspect.signature(Fresh).parameters) == ["value"]


def test_a_class_and_those_derived_from_it_use_the_same_decorator() -> None:
    with pytest.raises(TypeError, match="frozen"):

        @dataclasses.dataclass(frozen=True)
        class Derived(_One):
            pass


def test_recursive_texts_end() -> None:
    @ours
    class Node:
        below: Any = None

    node = Node()
    node.below = node
    assert "below=..." in repr(node)
    assert FrozenInstanceError.__name__ in repr(_outcome(lambda: setattr(_One(), "value", 1)))
