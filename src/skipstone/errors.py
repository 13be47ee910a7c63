"""The errors of Skipstone: one base, few causes, each with a hint.

Every class also inherits the built-in that a caller would expect, so that ``except ValueError``
around a parser or ``except LookupError`` around a key keeps working. Errors are raised by builds,
checks and inspections only. In a query the index then proves nothing, and the plan has the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class SkipstoneError(Exception):
    """Base of all errors: a message of one line, and a hint for the user."""

    default_hint = "run the same call with --help, or see the documentation"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint or self.default_hint
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})"

    def __reduce__(self) -> tuple[object, ...]:
        # Spark tasks pickle errors, and keyword-only arguments do not pickle by themselves.
        return (_rebuild, (type(self), self.__dict__.copy()))


def _rebuild(cls: type[SkipstoneError], state: dict[str, object]) -> SkipstoneError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    error.args = (str(state.get("message", "")),)
    return error


def command(*words: str) -> str:
    """``skipstone`` and these words for a hint: in backquotes, and quoted for a shell."""
    import shlex

    return f"`{shlex.join(['skipstone', *words])}`"


def in_words(error: Exception, path: str | None = None) -> str:
    """What went wrong, without the hint, and without ``path`` where it is named already."""
    if isinstance(error, SkipstoneError):
        text = error.message
    elif isinstance(error, OSError) and error.strerror:
        named = "" if error.filename is None else f"{error.filename}: "
        text = f"{named}{error.strerror}"
    else:
        text = str(error) or type(error).__name__
    return text if path is None else text.removeprefix(f"{path}: ")


def first_line(error: BaseException, most: int = 300) -> str:
    """The first ``most`` characters of another library's message of several lines; its class if the
    message is empty."""
    return (next(iter(str(error).splitlines()), "") or type(error).__name__)[:most]


class FormatError(SkipstoneError, ValueError):
    """Bytes do not follow their format.

    ``file`` and ``offset`` (bytes from the start of ``file``) name the place; ``expected`` and
    ``got`` the difference, in numbers where possible.
    """

    default_hint = (
        "the file is damaged or of another kind: `skipstone inspect FILE` shows what can be read"
    )

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        offset: int | None = None,
        expected: object = None,
        got: object = None,
        hint: str | None = None,
    ) -> None:
        self.file, self.offset, self.expected, self.got = file, offset, expected, got
        #: the message without place and difference
        self.about = message
        where = ""
        if file is not None:
            where += f"{file}: "
        if offset is not None:
            where += f"at byte {offset}: "
        detail = ""
        if expected is not None or got is not None:
            parts = [] if expected is None else [f"expected {expected}"]
            detail = f": {', '.join([*parts, *([] if got is None else [f'got {got}'])])}"
        super().__init__(f"{where}{message}{detail}", hint=hint)

    def in_file(self, file: str) -> FormatError:
        """The same error with its file; the error itself if it has one."""
        return self if self.file is not None else self._placed(file, self.offset)

    def at_byte(self, offset: int) -> FormatError:
        """The same error with its offset; the error itself if it has one."""
        return self if self.offset is not None else self._placed(self.file, offset)

    def _placed(self, file: str | None, offset: int | None) -> FormatError:
        return FormatError(
            self.about,
            file=file,
            offset=offset,
            expected=self.expected,
            got=self.got,
            hint=self.hint,
        )


class UnsupportedError(SkipstoneError, NotImplementedError):
    """The bytes or the request are valid, but Skipstone does not support them."""

    default_hint = "see the list of what is supported in the documentation"


class ExpressionError(SkipstoneError, ArithmeticError):
    """A predicate fails on a row: an overflow, a division by zero, text that is not a number."""

    default_hint = (
        "Spark fails on it too, under its ANSI rules: exclude such rows with another condition"
    )


class MemoryLimitError(UnsupportedError):
    """Decoding would take more memory than the limit allows; nothing was allocated for it.

    ``file`` and ``column`` name the place; ``needed`` and ``limit`` are bytes.
    """

    default_hint = (
        "give decoding more with memory=BYTES (`--memory SIZE` on the command line), or leave the "
        "column out"
    )

    def __init__(self, *, file: str, column: str, needed: int, limit: int) -> None:
        self.file, self.column, self.needed, self.limit = file, column, needed, limit
        super().__init__(
            f"{file}: decoding column {column} takes {needed:,} bytes of memory, and the limit is "
            f"{limit:,}"
        )


class StaleError(SkipstoneError, OSError):
    """The index or the data changed, in a call that must notice it."""

    default_hint = "run `skipstone refresh TABLE`"


class NoIndexError(SkipstoneError, LookupError):
    """There is no index at the place that the caller names."""

    def __init__(self, location: str, table: str, *, hint: str | None = None) -> None:
        self.location, self.table = location, table
        build = command("build", table, "--index-location", location)
        super().__init__(
            f"there is no index at {location}",
            hint=hint or f"correct the index location; {build} makes one there",
        )


class KeyUnavailableError(SkipstoneError, LookupError):
    """A needed key was not given. The message names its label, never the key."""

    default_hint = "pass the key with this label"


class PredicateError(SkipstoneError, ValueError):
    """A predicate cannot be understood.

    ``text`` is the predicate, ``position`` the 0-based character of the error (``None`` without a
    text), ``nearest`` the name that was probably meant.
    """

    default_hint = "predicates are Spark SQL expressions over the columns of the table"

    def __init__(
        self,
        message: str,
        *,
        text: str | None = None,
        position: int | None = None,
        nearest: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.text, self.position, self.nearest = text, position, nearest
        where = f" at position {position}" if position is not None else ""
        quoted = f" of {text!r}" if text is not None else ""
        if hint is None and nearest is not None:
            hint = f"did you mean {nearest!r}?"
        super().__init__(f"{message}{where}{quoted}", hint=hint)

    @classmethod
    def of_name(
        cls, message: str, name: str, names: Sequence[str], hint: str | None = None
    ) -> PredicateError:
        """For a ``name`` that is not in ``names``: it proposes the nearest one, else gives
        ``hint``."""
        from difflib import get_close_matches

        near = get_close_matches(name, names, 1)
        return cls(message, nearest=near[0]) if near else cls(message, hint=hint)
