"""Paimon's column types as its schema files spell them, and how a value of each becomes a key.

    BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL(p, s) DATE TIME(p)
    TIMESTAMP(p)   TIMESTAMP(p) WITH LOCAL TIME ZONE   TIMESTAMP_LTZ(p)
    CHAR(n) VARCHAR(n) STRING   BINARY(n) VARBINARY(n) BYTES         each with or without NOT NULL

``STRING`` is VARCHAR(2147483647), ``BYTES`` VARBINARY(2147483647). Left out, p is 10 for DECIMAL, 0
for TIME, 6 for TIMESTAMP, and n is 1.

| type | bytes of a key | what it is |
|---|---|---|
| BOOLEAN | 1 | 0 or 1 |
| TINYINT, SMALLINT, INT, BIGINT | 1, 2, 4, 8 | the number |
| DATE, TIME | 4 | days since 1970-01-01, milliseconds of the day |
| TIMESTAMP, of either kind | 8 | p ≤ 3: milliseconds since 1970-01-01; else microseconds |
| FLOAT, DOUBLE | 4, 8 | IEEE bits |
| DECIMAL(p ≤ 18, s) | 8 | the unscaled number |
| CHAR, VARCHAR | 4 + length | UTF-8 after its length |

TIMESTAMP(7) to (9) and TIME(4) to (9) lose digits on the way to the key, so that equal keys do not
prove equal values: ``exact`` is false for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from skipstone.errors import UnsupportedError

_LONGEST = 2**31 - 1


class Root(StrEnum):
    """A type without its parameters."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"


_WIDTHS = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.BIGINT: 8,
    Root.FLOAT: 4,
    Root.DOUBLE: 8,
    Root.DECIMAL: 8,
    Root.DATE: 4,
    Root.TIME: 4,
    Root.TIMESTAMP: 8,
    Root.TIMESTAMP_LTZ: 8,
}
_DEFAULTS = {
    Root.DECIMAL: 10,
    Root.TIME: 0,
    Root.TIMESTAMP: 6,
    Root.TIMESTAMP_LTZ: 6,
    Root.CHAR: 1,
    Root.VARCHAR: 1,
    Root.BINARY: 1,
    Root.VARBINARY: 1,
}
_LIMITS = {
    Root.DECIMAL: (1, 38),
    Root.TIME: (0, 9),
    Root.TIMESTAMP: (0, 9),
    Root.TIMESTAMP_LTZ: (0, 9),
    Root.CHAR: (1, _LONGEST),
    Root.VARCHAR: (1, _LONGEST),
    Root.BINARY: (1, _LONGEST),
    Root.VARBINARY: (1, _LONGEST),
}
_ALIASES = {"INTEGER": Root.INT, "DEC": Root.DECIMAL, "NUMERIC": Root.DECIMAL}
_TEXT = re.compile(
    r"(?P<root>[A-Z_]+)(\s*\(\s*(?P<p>\d{1,10})\s*(,\s*(?P<s>\d{1,3})\s*)?\))?"
    r"(?P<zone>\s+WITH(OUT)?( LOCAL)? TIME ZONE)?(\s+(NOT )?NULL)?"
)


@dataclass(frozen=True, slots=True)
class PaimonType:
    """A type; ``precision`` is p or n, 0 where a type has none; ``scale`` is for DECIMAL."""

    root: Root
    precision: int = 0
    scale: int = 0

    @classmethod
    def parse(cls, text: str) -> PaimonType:
        """From a schema's text. ``UnsupportedError`` for nested and unknown types."""
        upper = " ".join(text.upper().split())
        match = _TEXT.fullmatch(upper)
        if match is None:
            raise _unsupported(text)
        name, zone = match["root"], (match["zone"] or "").strip()
        precision = None if match["p"] is None else int(match["p"])
        if zone and name != "TIMESTAMP":
            if (name, zone) != ("TIME", "WITHOUT TIME ZONE"):
                raise _unsupported(text)
        elif zone == "WITH TIME ZONE":
            raise _unsupported(text)
        if name in ("STRING", "BYTES"):
            if precision is not None:
                raise _unsupported(text)
            return cls(Root.VARCHAR if name == "STRING" else Root.VARBINARY, _LONGEST)
        if zone == "WITH LOCAL TIME ZONE":
            name = Root.TIMESTAMP_LTZ
        root = _ALIASES.get(name) or next((known for known in Root if known == name), None)
        if root is None or (match["s"] is not None and root is not Root.DECIMAL):
            raise _unsupported(text)
        if root not in _DEFAULTS:
            if precision is not None:
                raise _unsupported(text)
            return cls(root)
        precision = _DEFAULTS[root] if precision is None else precision
        low, high = _LIMITS[root]
        scale = int(match["s"] or 0)
        if not low <= precision <= high or scale > precision:
            raise _unsupported(text)
        return cls(root, precision, scale)

    def __str__(self) -> str:
        if self.root in (Root.VARCHAR, Root.VARBINARY) and self.precision == _LONGEST:
            return "STRING" if self.root is Root.VARCHAR else "BYTES"
        if self.root is Root.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.root is Root.TIMESTAMP_LTZ:
            return f"TIMESTAMP({self.precision}) WITH LOCAL TIME ZONE"
        return f"{self.root}({self.precision})" if self.root in _DEFAULTS else str(self.root)

    @property
    def width(self) -> int:
        """Bytes of a key, 0 where they vary (strings and binary)."""
        return _WIDTHS.get(self.root, 0)

    @property
    def is_float(self) -> bool:
        """FLOAT or DOUBLE: two zeros, and NaN."""
        return self.root in (Root.FLOAT, Root.DOUBLE)

    @property
    def is_text(self) -> bool:
        """CHAR, VARCHAR or STRING."""
        return self.root in (Root.CHAR, Root.VARCHAR)

    @property
    def is_binary(self) -> bool:
        """BINARY, VARBINARY or BYTES."""
        return self.root in (Root.BINARY, Root.VARBINARY)

    @property
    def is_timestamp(self) -> bool:
        """With or without local time zone."""
        return self.root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ)

    @property
    def in_millis(self) -> bool:
        """For timestamps: whether the key counts milliseconds, not microseconds."""
        return self.precision <= 3

    @property
    def exact(self) -> bool:
        """Whether equal keys prove equal values; see the module."""
        if self.is_timestamp:
            return self.precision <= 6
        return self.root is not Root.TIME or self.precision <= 3


def _unsupported(text: str) -> UnsupportedError:
    return UnsupportedError(f"a column of type {text!r} has no file index of any kind")
