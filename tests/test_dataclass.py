"""``dataclass`` with methods made on first use does what the library's does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import pickle
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from skipstone import _dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = [
    dict(zip(("frozen", "slots", "eq", "repr", "kw_only"), each, strict=True))
    for each in itertools.product([False, True], repeat=5)
]


def classes(make: Callable[..., Any], options: dict[str, bool]) -> tuple[type, type]:
    """A class with every kind of field, and one that inherits from it."""

    @make(**options)
    class Base:
        """A class."""

        shared: ClassVar[int] = 7
        number: int
        text: str = "x"
        hidden: int = field(default=3, repr=False, compare=False)
        listed: tuple[int, ...] = field(default_factory=lambda: (1, 2))
        made: dict[str, int] = field(default_factory=dict, init=False, compare=False)
        last: float = field(default=0.5, kw_only=True)

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("negative")

        @property
        def double(self) -> int:
            return self.number * 2

    @make(**options)
    class Below(Base):
        """A class below it."""

        more: int = 1

    return Base, Below


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the type and the text of its error."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error).replace("<locals>.", "")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("below", [False, True])
def test_values_are_as_of_the_library(options: dict[str, bool], below: bool) -> None:
    ours = classes(_dataclass.dataclass, options)[below]
    theirs = classes(dataclasses.dataclass, options)[below]

    def same(call: Callable[[type], Any]) -> None:
        assert outcome(lambda: call(ours)) == outcome(lambda: call(theirs))

    same(lambda cls: [each.name for each in dataclasses.fields(cls)])
    same(lambda cls: str(inspect.signature(cls)))
    same(lambda cls: vars(cls)["__match_args__"])
    same(lambda cls: cls.__hash__ is None)
    same(lambda cls: hasattr(cls(number=1), "__dict__"))
    same(lambda cls: dataclasses.asdict(cls(number=1)))
    same(lambda cls: dataclasses.asdict(dataclasses.replace(cls(number=1), text="y", last=2.0)))
    same(lambda cls: repr(cls(number=1)) if options["repr"] else None)
    for arguments in [(), (1,), (1, "a"), (1, "a", 2, (3,)), (1, "a", 2, (3,), 5, 6, 7)]:
        same(lambda cls, given=arguments: dataclasses.asdict(cls(*given)))  # type: ignore[misc]
    same(lambda cls: cls(number=-1))
    same(lambda cls: cls(number=1, unknown=2))
    same(lambda cls: cls(number=1, hidden=1) == cls(number=1, hidden=2))
    same(lambda cls: cls(number=1) == cls(number=2))
    same(lambda cls: cls(number=1) == 1)
    same(lambda cls: len({cls(number=1), cls(number=1), cls(number=2)}))
    same(lambda cls: setattr(cls(number=1), "number", 2))
    same(lambda cls: delattr(cls(number=1), "number"))
    same(lambda cls: cls(number=1).listed)
    same(lambda cls: cls(number=1).made is not cls(number=1).made)
    same(lambda cls: dataclasses.asdict(copy.copy(cls(number=4))))
    same(lambda cls: cls(number=4).double)


def test_a_base_is_no_equal_of_what_inherits() -> None:
    base, below = classes(_dataclass.dataclass, {"frozen": True, "slots": True})
    assert base(number=1) != below(number=1)


def test_the_library_extends_a_frozen_class() -> None:
    base, _ = classes(_dataclass.dataclass, {"frozen": True})

    @dataclasses.dataclass(frozen=True)
    class Theirs(base):  # type: ignore[valid-type, misc]
        """A class of the library."""

        more: int = 1

    assert dataclasses.asdict(Theirs(number=1))["more"] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(Theirs(number=1), "more", 2)  # noqa: B010


@_dataclass.dataclass(frozen=True, slots=True)
class Kept:
    """A value to pickle."""

    one: float
    two: tuple[int, ...] = ()


@_dataclass.dataclass(frozen=True, slots=True)
class Own:
    """A class with methods of its own."""

    one: int

    def __repr__(self) -> str:
        return "own"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 1


def test_a_value_is_pickled_before_and_after_its_first_use() -> None:
    value = Kept(1.5, (2,))
    assert pickle.loads(pickle.dumps(value)) == value
    assert hash(pickle.loads(pickle.dumps(value))) == hash(value)


def test_a_value_that_holds_nan_equals_itself() -> None:
    value = Kept(float("nan"))
    assert value == value
    assert value == dataclasses.replace(value)


def test_methods_of_the_class_stay() -> None:
    assert repr(Own(1)) == "own"
    assert Own(1) == Own(2)
    assert hash(Own(1)) == hash(Own(2)) == 1
