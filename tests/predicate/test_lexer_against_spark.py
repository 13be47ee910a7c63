"""The lexer against Spark's own parser: generated literals, and texts of random pieces.

Spark parses each text as an expression, without a job. Where Spark finds a literal, Skipstone finds
the same one; where Spark refuses the text, Skipstone finds none.
"""

from __future__ import annotations

import random
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from skipstone.errors import PredicateError
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Comparison, Literal
from skipstone.predicate.types import spark_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EACH = 1_000
REFUSED = "refused"


def in_spark(spark: SparkSession) -> Callable[[str], object]:
    """What Spark compares ``c`` with: (type, value), ``REFUSED``, or ``None`` for other trees."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    parser = spark._jsparkSession.sessionState().sqlParser()

    def parsed(text: str) -> object:
        try:
            tree = parser.parseExpression(text)
        except (Py4JError, PySparkException):
            return REFUSED
        if tree.getClass().getSimpleName() != "EqualTo":
            return None
        right = tree.right()
        if right.getClass().getSimpleName() != "Literal":
            return None
        name, value = right.dataType().sql().lower(), right.value()
        if value is None:
            return ("void", None)
        if name == "string":
            return (name, bytes(value.getBytes()).decode())
        if name == "binary":
            return (name, bytes(value))
        if name == "float":
            return (name, repr(float(np.float32(value))))
        if name == "double":
            return (name, repr(float(value)))
        return (name, str(value.toString() if name.startswith("decimal") else value))

    return parsed


def of_ours(text: str) -> object:
    """The same of Skipstone."""
    try:
        tree = parse_sql(text)
    except PredicateError:
        return REFUSED
    if not isinstance(tree, Comparison) or not isinstance(tree.right, Literal):
        return None
    value, type = tree.right.value, tree.right.type
    if value is None:
        return ("void", None)
    assert type is not None
    said: Any = value
    if pa.types.is_boolean(type):
        said = str(value).lower()
    elif pa.types.is_decimal(type):
        said = f"{Decimal(f'{value}E-{type.scale}'):f}"
    elif pa.types.is_floating(type):
        said = repr(value)
    elif pa.types.is_integer(type):
        said = str(value)
    return (spark_name(type), said)


def plain(found: object) -> object:
    """``found`` with a decimal's zeros in one form, and booleans as text."""
    if isinstance(found, tuple) and str(found[0]).startswith("decimal"):
        number = Decimal(str(found[1]))
        return (found[0], f"{abs(number) if number == 0 else number:f}")
    if isinstance(found, tuple) and found[0] == "boolean":
        return (found[0], found[1].lower())
    return found


def check(spark: SparkSession, texts: list[str]) -> None:
    ask = in_spark(spark)
    wrong = []
    literals = 0
    for text in dict.fromkeys(texts):
        theirs, mine = plain(ask(text)), plain(of_ours(text))
        literals += isinstance(theirs, tuple)
        # What is refused by Spark alone may be one opaque piece here: no index uses it.
        same = theirs == mine or (theirs == REFUSED and mine is None)
        if not same and not (theirs is None and mine == REFUSED):
            wrong.append((text, theirs, mine))
    assert not wrong, f"{len(wrong)} of {len(texts)}: {wrong[:20]}"
    assert literals > len(texts) // 10


PIECES = [
    "\\", "\\", "\\", "'", '"', "''", '""', "0", "1", "2", "3", "7", "8", "u", "U", "n", "Z", "b",
    "r", "%", "_", "00", "41", "d83d", "de00", "\\ud83d", "\\ude00", "\\101", "\\177", "\\200",
    "\\377", "\\400", "\\08", "\\u00e9", "\\U0001F600", "\\U00110000", "\\UFFFFFFFF", "é", "😀",
    "\u0663", "\ufffd", " ", "\n", "\r", "\t", "\0", "--", "/*", "`",
]  # fmt: skip


def string(rng: random.Random) -> str:
    quote = rng.choice("''\"")
    body = "".join(rng.choice(PIECES) for _ in range(rng.randrange(7)))
    return rng.choice(["", "", "", "", "r", "R"]) + quote + body + quote


def test_strings_are_those_of_spark(spark: SparkSession) -> None:
    rng = random.Random(5)
    texts = []
    for _ in range(EACH):
        between = rng.choice(["", " ", "\n", "/**/", "--\n"])
        texts.append("c = " + between.join(string(rng) for _ in range(rng.choice([1, 1, 1, 2]))))
    check(spark, texts)


def test_every_escaped_character_is_that_of_spark(spark: SparkSession) -> None:
    texts = [f"c = '\\{chr(code)}'" for code in range(1, 256)]
    texts += [f"c = '\\{code:03o}x'" for code in range(0o1000)]
    check(spark, texts)


def number(rng: random.Random) -> str:
    digits = ["0", "00", "1", "5", "9" * 18, "12345", "2147483648", "9223372036854775808"]
    digits += ["9" * 38, "17976931348623157", "34028234663852886", "34028235", "\u0663", "128"]
    exponents = ["", "", "", "e3", "E-3", "e+38", "e38", "e308", "e307", "e292", "e-400", "e400"]
    exponents += [
        "e22",
        "e31",
        "e",
        "e-",
        "e0010",
        "e\u0663",
        "e-45",
        "e-9999999999",
        "e2147483648",
    ]
    suffixes = [
        "",
        "",
        "",
        "",
        "L",
        "l",
        "S",
        "Y",
        "D",
        "F",
        "f",
        "BD",
        "bd",
        "LL",
        "_",
        "a",
        "\u017f",
    ]
    body = rng.choice(digits) + rng.choice(["", "", ".", ".5", ".50", "." + rng.choice(digits)])
    if rng.random() < 0.1:
        body = "." + rng.choice(digits)
    return rng.choice(["", "", "-", "- "]) + body + rng.choice(exponents) + rng.choice(suffixes)


def test_numbers_are_those_of_spark(spark: SparkSession) -> None:
    rng = random.Random(6)
    texts = [f"c = {number(rng)}" for _ in range(EACH)]
    texts += ["c = 3.4028235e38F", "c = 1.7976931348623159e308", "c = 1.7976931348623157e308"]
    check(spark, texts)


def test_spaces_comments_and_names_are_those_of_spark(spark: SparkSession) -> None:
    rng = random.Random(7)
    pieces = [" ", "\n", "\r", "\t", "\v", "\f", "\u00a0", "\u2028", "\u2029", "\x85", "\ufeff"]
    pieces += ["--", "--x", "\\\n", "/*", "*/", "/*+", "/* x */", "\x1c", "\u200b", "'a'", "2"]
    texts = []
    for _ in range(EACH):
        noise = "".join(rng.choice(pieces) for _ in range(rng.randrange(5)))
        texts.append(f"c = 1{noise}")
        texts.append(f"c ={noise} 1")
    words = [
        "X",
        "x",
        "DATE",
        "TIMESTAMP",
        "N",
        "TRUE",
        "nUll",
        "t\u0131me",
        "tru\u0435",
        "1\u0663",
    ]
    afters = ["", "'00'", " '00'", "r'00'", "'00' '01'", "'2024-01-01'", "'2024' '-01'"]
    texts += [f"c = {word}{after}" for word in words for after in afters]
    texts = [text for text in texts if not re.search("= *(DATE|TIMESTAMP) *'.*'$", text)]
    check(spark, texts)
