"""Errors: caught by what a caller would expect, pickled whole, and each with a hint."""

from __future__ import annotations

import copy
import pickle
from itertools import product

import pytest

from skipstone import errors
from skipstone.errors import (
    ExpressionError,
    FormatError,
    KeyUnavailableError,
    MemoryLimitError,
    NoIndexError,
    PredicateError,
    SkipstoneError,
    StaleError,
    UnsupportedError,
)

MADE: list[SkipstoneError] = [
    SkipstoneError("plain"),
    SkipstoneError("with a hint", hint="do this"),
    FormatError("bad magic", file="a b.parquet", offset=7, expected=b"PAR1", got=b"PARE"),
    FormatError("no place"),
    ExpressionError("a.parquet: a division by zero in 1 / b"),
    UnsupportedError("version 5"),
    MemoryLimitError(file="a.parquet", column="s", needed=1 << 32, limit=1 << 31),
    StaleError("3 of 9 files changed"),
    NoIndexError("lake/idx", "lake/events"),
    KeyUnavailableError("no key 'k1'", hint="pass it"),
    PredicateError("no column 'idd'", text="idd = 1", position=0, nearest="id"),
]


@pytest.mark.parametrize("error", MADE, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_keeps_everything(error: SkipstoneError, protocol: int) -> None:
    for twin in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert twin.__dict__ == error.__dict__
        assert twin.args == error.args == (error.message,)


@pytest.mark.parametrize(
    "cause, builtin",
    [
        (FormatError, ValueError),
        (UnsupportedError, NotImplementedError),
        (StaleError, OSError),
        (KeyUnavailableError, LookupError),
        (PredicateError, ValueError),
    ],
)
def test_each_is_also_the_builtin_that_a_caller_expects(
    cause: type[SkipstoneError], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin) as caught:
        raise cause("text")
    assert isinstance(caught.value, SkipstoneError)


def test_every_error_class_is_tried_here() -> None:
    classes = [e for e in vars(errors).values() if isinstance(e, type)]
    assert {type(error) for error in MADE} >= {
        c for c in classes if issubclass(c, SkipstoneError) and c is not SkipstoneError
    }


@pytest.mark.parametrize("error", MADE, ids=lambda e: type(e).__name__)
def test_each_reads_as_one_line_that_ends_in_a_hint(error: SkipstoneError) -> None:
    assert str(error) == f"{error.message} (hint: {error.hint})"
    assert error.hint
    assert "\n" not in str(error)


def test_a_format_error_says_where_and_what() -> None:
    full = FormatError("bad magic", file="f", offset=0, expected=0, got=None)
    assert full.message == "f: at byte 0: bad magic: expected 0"
    for file, offset in product((None, "f"), (None, 3)):
        message = FormatError("bad", file=file, offset=offset).message
        assert ("f: " in message) == (file is not None)
        assert ("at byte 3: " in message) == (offset is not None)
        assert message.endswith("bad")


def test_a_predicate_error_says_where_and_which_name_was_meant() -> None:
    error = PredicateError("no column 'idd'", text="x = 1 AND idd = 2", position=10, nearest="id")
    assert error.message == "no column 'idd' at position 10 of 'x = 1 AND idd = 2'"
    assert error.hint == "did you mean 'id'?"
    assert PredicateError("odd", nearest="id", hint="else").hint == "else"
    assert PredicateError("odd").message == "odd"
