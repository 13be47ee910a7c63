"""Names of partition directories: ``<name>[.<name txn>]``, and the unit that they show.

    none  default     year  2024     month  2024-01     week  2024-W01     day  2024-01-05
    hour  2024-01-05T13

``_txn`` has only the timestamp of a partition, in microseconds or nanoseconds. A partition that was
split off does not begin at the start of its unit. Its name has the whole start, up to the last part
that is not zero (``2024-01-05T130510-000001``; in nanoseconds nine digits; in weeks
``2024-W01-5T13…``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from skipstone.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .txn import Partition


PartitionUnit: TypeAlias = Literal["none", "year", "month", "week", "day", "hour"]

_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The unit, and whether timestamps count nanoseconds (else microseconds)."""

    unit: PartitionUnit
    nanos: bool = False


def directory(partition: Partition, partitioning: Partitioning) -> str:
    """The directory of a partition; ``FormatError`` for a time beyond the year 9999."""
    name, _ = _name(partition.timestamp, partitioning)
    return name if partition.name_txn < 0 else f"{name}.{partition.name_txn}"


def unit_end(timestamp: int, partitioning: Partitioning) -> int | None:
    """Where the unit ends that ``timestamp`` lies in: rows of its partition are all earlier.

    In the timestamp's own unit; ``None`` where there is no end.
    """
    scale = 10**9 if partitioning.nanos else 10**6
    try:
        at = _EPOCH + timedelta(seconds=timestamp // scale)
        day = datetime(at.year, at.month, at.day)
        match partitioning.unit:
            case "none":
                return None
            case "year":
                end = datetime(at.year + 1, 1, 1)
            case "month":
                end = datetime(at.year + at.month // 12, at.month % 12 + 1, 1)
            case "week":
                end = day + timedelta(days=7 - at.weekday())
            case "day":
                end = day + timedelta(days=1)
            case "hour":
                end = day + timedelta(hours=at.hour + 1)
    except (OverflowError, ValueError):
        return None
    return int((end - _EPOCH) // timedelta(seconds=1)) * scale


def infer_partitioning(
    partitions: Sequence[Partition], directories: Collection[str]
) -> Partitioning:
    """The unit of which every partition has its directory among ``directories``.

    Where several fit, the one with the fewest split partitions: ``2024-01-05T13`` may be an hour,
    or a day split at one o'clock. ``FormatError`` where none fits, or still more than one.
    """
    if not partitions:
        raise FormatError("a table without partitions does not show their unit")
    there = set(directories)
    fitting: list[tuple[int, Partitioning]] = []
    missing: list[str] = []
    for nanos in (False, True):
        for unit in get_args(PartitionUnit):
            partitioning = Partitioning(unit, nanos)
            if unit == "none" and (nanos or len(partitions) > 1):
                continue
            try:
                names = [directory(partition, partitioning) for partition in partitions]
            except FormatError:
                continue
            absent = [name for name in names if name not in there]
            if not absent:
                split = sum(_name(each.timestamp, partitioning)[1] for each in partitions)
                fitting.append((split, partitioning))
            elif len(absent) < len(names) or not missing:
                missing = absent
    fewest = min((split for split, _ in fitting), default=0)
    found = [partitioning for split, partitioning in fitting if split == fewest]
    # The epoch has the same name in both units; microseconds are the default.
    if any(not each.nanos for each in found):
        found = [each for each in found if not each.nanos]
    if len(found) == 1:
        return found[0]
    if found:
        raise FormatError(
            "several partition units fit the directories",
            got=", ".join(each.unit for each in found),
            hint="name the unit",
        )
    raise FormatError(
        "no partition unit fits the directories",
        expected=f"a directory for each of {len(partitions)} partitions",
        got=f"{len(missing)} missing, as {missing[0]!r}" if missing else "none that fits",
    )


def _name(timestamp: int, partitioning: Partitioning) -> tuple[str, bool]:
    """The name without its txn, and whether the partition was split off."""
    unit = partitioning.unit
    if unit == "none":
        return "default", False
    scale, digits = (10**9, 9) if partitioning.nanos else (10**6, 6)
    seconds, fraction = divmod(timestamp, scale)
    try:
        at = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise FormatError(
            "the timestamp of a partition", expected="up to the year 9999", got=timestamp
        ) from None
    midnight = not (at.hour or at.minute or at.second or fraction)
    week = at.isocalendar()
    whole = {
        "year": midnight and (at.month, at.day) == (1, 1),
        "month": midnight and at.day == 1,
        "week": midnight and week.weekday == 1,
        "day": midnight,
        "hour": not (at.minute or at.second or fraction),
    }[unit]
    day = f"{at.year:04}-{at.month:02}-{at.day:02}"
    if unit == "week":
        day = f"{week.year:04}-W{week.week:02}"
        if not whole:
            day += f"-{week.weekday}"
    if whole:
        names = {"year": day[:4], "month": day[:7], "week": day, "day": day}
        return names.get(unit, f"{day}T{at.hour:02}"), False
    if midnight:
        return day, True
    name = f"{day}T{at.hour:02}"
    if at.minute or at.second or fraction:
        name += f"{at.minute:02}{at.second:02}"
        name += f"-{fraction:0{digits}}" if fraction else ""
    return name, True
