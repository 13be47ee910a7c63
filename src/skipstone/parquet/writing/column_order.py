"""Finds the smallest and largest value of a run in the column's order, as bytes of statistics.

| order of the column | values compare | left out |
|---|---|---|
| TYPE_ORDER | by the logical type, else the physical one | NaN; a zero is widened to -0.0, +0.0 |
| IEEE_754_TOTAL_ORDER | -inf < … < -0 < +0 < … < inf | NaN, unless all values are NaN |
| unknown order, INT96, INTERVAL, … | not at all: ``Ordering.of`` is ``None`` | |

Byte arrays longer than 64 bytes are cut, and the upper bound is incremented; if no byte can be
incremented, it stays whole. Bounds are sound, and ``exact`` says whether they occur.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.parquet.evidence.stored_values import Form, StoredColumn
from skipstone.parquet.format.enums import Type
from skipstone.parquet.values import ByteArrays, Values, plain_values
from skipstone.pruning.file_bounds import cut_lower, cut_upper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.format.metadata import ColumnOrder
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.pages.column_values import Run


#: Bytes of a bound; longer ones are cut.
LONGEST_BOUND: Final = 64


class Extremes(NamedTuple):
    """PLAIN bytes without their length, not cut; ``None`` if there is no value to compare."""

    low: bytes | None
    high: bytes | None
    nans: int = 0


class Bound(NamedTuple):
    """The bytes to write, and whether they are exactly a value that occurs."""

    value: bytes
    exact: bool


@dataclass(slots=True, eq=False)
class Ordering:
    """The order of the values of one leaf. It caches the ranks of the last dictionary."""

    leaf: ColumnDescriptor
    stored: StoredColumn
    form: Form
    total: bool
    _dictionary: tuple[Values, NDArray[np.int64], NDArray[np.int32]] | None = field(default=None)

    @classmethod
    def of(cls, leaf: ColumnDescriptor, order: ColumnOrder | None) -> Ordering | None:
        """From the footer's ``order``; ``None`` if it is not known, or defines no bounds."""
        if order is None or order.unknown:
            return None
        stored = StoredColumn.of(leaf)
        form = stored.form
        if order.IEEE_754_TOTAL_ORDER is not None:
            return cls(leaf, stored, form, True) if form is Form.FLOATING else None
        if order.TYPE_ORDER is None or form is Form.INT96:
            return None
        if form is Form.NONE:
            is_time = leaf.element.annotation.TIME is not None
            if not is_time or leaf.type not in (Type.INT32, Type.INT64):
                return None
            form = Form.SIGNED
        return cls(leaf, stored, form, False)

    @property
    def floating(self) -> bool:
        """Whether values may be NaN."""
        return self.form is Form.FLOATING

    @property
    def unsigned(self) -> bool:
        """Whether integers compare as unsigned ones."""
        return self.form is Form.UNSIGNED

    @property
    def misleads(self) -> bool:
        """Whether bounds leave NaN out without readers knowing it from the order."""
        return self.floating and not self.total

    @property
    def by_bytes(self) -> bool:
        """Whether bounds are bytes compared as such, and may be cut."""
        return self.form is Form.TEXT

    # -- extremes ----------------------------------------------------------------------------------

    def extremes(self, run: Run) -> Extremes:
        """The extremes of a run that is not empty."""
        if self.form is Form.FLOATING:
            return self._floats(run)
        if self._as_numbers:
            values = self._numbers(run.plain())
            return Extremes(values.min().tobytes(), values.max().tobytes())
        if run.indices is not None:
            order, ranks = self._ranks(run.values)
            held = ranks.take(run.indices)
            return Extremes(
                _one(run.values, int(order[held.min()])), _one(run.values, int(order[held.max()]))
            )
        keys = self._comparable(run.values)
        if isinstance(keys, np.ndarray):
            return Extremes(
                _one(run.values, int(keys.argmin())), _one(run.values, int(keys.argmax()))
            )
        import pyarrow.compute as pc

        ends = pc.min_max(keys)
        if self.form is Form.DECIMAL:  # keys of long decimals are not the bytes of the values
            low, high = (pc.index(keys, ends[name]).as_py() for name in ("min", "max"))
            return Extremes(_one(run.values, low), _one(run.values, high))
        return Extremes(ends["min"].as_py(), ends["max"].as_py())

    @property
    def _as_numbers(self) -> bool:
        return self.leaf.type in (Type.BOOLEAN, Type.INT32, Type.INT64)

    def _numbers(self, values: Values) -> NDArray[Any]:
        """The values as numbers that NumPy compares in the column's order."""
        assert isinstance(values, np.ndarray)
        if self.unsigned:
            return values.view(np.uint32 if self.leaf.type is Type.INT32 else np.uint64)
        if self.leaf.type is Type.FIXED_LEN_BYTE_ARRAY:
            return np.ascontiguousarray(values).view("<f2").ravel()
        return values

    def _floats(self, run: Run) -> Extremes:
        values = self._numbers(run.plain())
        nans = 0
        with np.errstate(invalid="ignore"):  # signalling NaN
            low, high = values.min(), values.max()
        if np.isnan(low) or np.isnan(high):
            known = values[~np.isnan(values)]
            nans = len(values) - len(known)
            if not len(known) and not self.total:
                return Extremes(None, None, nans)
            values = known if len(known) else values
        if self.total:
            keys = _total_keys(values)
            low, high = values[keys.argmin()], values[keys.argmax()]
            return Extremes(low.tobytes(), high.tobytes(), nans)
        if nans:
            low, high = values.min(), values.max()
        return Extremes(_widened(low, -0.0), _widened(high, 0.0), nans)

    def _comparable(self, values: Values) -> Any:
        """Keys in the same order: an array of numbers, or Arrow's binary."""
        if self.floating or self._as_numbers:
            numbers = self._numbers(values)
            return _total_keys(numbers) if self.floating else numbers
        plain = plain_values(values)
        if self.form is Form.DECIMAL:
            return self.stored.keys(plain, np.ones(len(plain), np.bool_)).data
        return plain.to_arrow()

    def prepare(self, dictionary: Values) -> None:
        """Rank the values of a dictionary before several threads need the ranks."""
        if self.form is not Form.FLOATING and not self._as_numbers and len(dictionary):
            self._ranks(dictionary)

    def ranked(self, dictionary: Values) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
        """The places of the values of a dictionary in their order, and the rank of each value;
        ``None`` if there are NaN."""
        if self.floating and np.isnan(self._numbers(dictionary)).any():
            return None
        return self._ranks(dictionary)

    def entry(self, dictionary: Values, at: int, *, low: bool) -> bytes:
        """A value of a dictionary as a bound."""
        if self.misleads:
            return _widened(self._numbers(dictionary)[at], -0.0 if low else 0.0)
        return _one(dictionary, at)

    def of_keys(self, keys: NDArray[Any], kind: np.dtype[Any], *, low: bool) -> NDArray[Any]:
        """The bounds for the keys of ``many_pages``."""
        if self.unsigned:
            return keys ^ np.iinfo(keys.dtype).min
        if not self.floating:
            return keys
        values = _total_keys(keys).view(kind)
        return (
            values if self.total else np.where(values == 0, kind.type(-0.0 if low else 0), values)
        )

    def _ranks(self, values: Values) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        known = self._dictionary
        if known is None or known[0] is not values:
            keys = self._comparable(values)
            if isinstance(keys, np.ndarray):
                order = np.argsort(keys, kind="stable")
            else:
                import pyarrow.compute as pc

                # Not by to_numpy(), which loads pandas: a quarter of a second, and 25 MB.
                found = pc.sort_indices(keys)
                whole = np.frombuffer(found.buffers()[1], np.uint64)
                order = whole[found.offset : found.offset + len(found)].astype(np.int64)
            ranks = np.empty(len(order), np.int32)
            ranks[order] = np.arange(len(order), dtype=np.int32)
            known = self._dictionary = (values, order, ranks)
        return known[1], known[2]

    # -- bounds ------------------------------------------------------------------------------------

    def key(self, value: bytes) -> Any:
        """A sort key of bounds, from their bytes."""
        return self.keys((value,))[0]

    def keys(self, values: Sequence[bytes]) -> list[Any]:
        """The sort key of each of these bounds."""
        if self.form is Form.TEXT or not values:
            return list(values)
        if self.form is Form.DECIMAL and self.leaf.type not in (Type.INT32, Type.INT64):
            return [int.from_bytes(value, "big", signed=True) for value in values]
        whole = "u" if self.form in (Form.UNSIGNED, Form.BOOLEAN) else "i"
        kind = "f" if self.floating else whole
        numbers = np.frombuffer(b"".join(values), f"<{kind}{len(values[0])}")
        found: list[Any] = (_total_keys(numbers) if self.total else numbers).tolist()
        return found

    def lower(self, value: bytes) -> Bound:
        """A lower bound of at most 64 bytes."""
        if not self.by_bytes or len(value) <= LONGEST_BOUND:
            return Bound(value, exact=self._occurs(value))
        return Bound(cut_lower(value, LONGEST_BOUND, utf8=self._utf8(value)), exact=False)

    def upper(self, value: bytes) -> Bound:
        """An upper bound of about 64 bytes, or the whole value if there is no bound so short."""
        if not self.by_bytes or len(value) <= LONGEST_BOUND:
            return Bound(value, exact=self._occurs(value))
        cut = cut_upper(value, LONGEST_BOUND, utf8=self._utf8(value))
        return Bound(value, exact=True) if cut is None else Bound(cut, exact=False)

    def _occurs(self, value: bytes) -> bool:
        # It is not known which of the zeros occurs.
        return not self.floating or self.total or self.key(value) != 0

    def _utf8(self, value: bytes) -> bool:
        """Whether it is UTF-8 text; other values in a column of strings are cut as bytes."""
        import pyarrow as pa

        if self.stored.type is None or not pa.types.is_string(self.stored.type):
            return False
        try:
            value.decode("utf-8")
        except UnicodeDecodeError:
            return False
        return True


def _total_keys(values: NDArray[Any]) -> NDArray[Any]:
    bits = np.ascontiguousarray(values).view(f"<i{values.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _widened(value: Any, zero: float) -> bytes:
    """The bytes of a number, or of this ``zero`` for any zero."""
    found: bytes = (value if value else type(value)(zero)).tobytes()
    return found


def _one(values: Values, at: int) -> bytes:
    if isinstance(values, ByteArrays):
        return values.data[values.offsets[at] : values.offsets[at + 1]].tobytes()
    found: bytes = values[at].tobytes()
    return found
