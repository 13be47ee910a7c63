"""Numbers for people: every count with its denominator and unit, sizes in decimal units."""

from __future__ import annotations

__all__ = ["duration", "of_total", "percent", "size"]

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size(nbytes: float) -> str:
    """``11.2 MB``; one digit after the point from kB up."""
    value = float(nbytes)
    for unit in _UNITS:
        if abs(value) < 999.95 or unit == _UNITS[-1]:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    raise AssertionError("the last unit takes everything")


def duration(milliseconds: float) -> str:
    """``0.4 ms``, ``38 ms``, ``2.1 s``, ``2m11s``."""
    if milliseconds < 10:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)}m{int(seconds % 60):02d}s"


def of_total(kept: int, total: int, unit: str) -> str:
    """``2 of 1,240 files``."""
    return f"{kept:,} of {total:,} {unit}"


def percent(part: float, whole: float) -> str:
    """``99.8 %``; never rounded up to 100 or down to 0 unless it is."""
    if whole == 0:
        return "0 %"
    share = 100 * part / whole
    if part not in (0, whole):
        share = min(max(share, 0.1), 99.9)
    return f"{share:.1f} %".replace(".0 %", " %")
