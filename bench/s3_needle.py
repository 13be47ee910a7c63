"""A needle over an object store that takes 20 ms longer for every request.

What counts is how often the next request had to wait for the answer to the one before: the round
trips, by the server's clock. The facts are in memory; listing the files is told apart.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import skipstone

from .events import VERSION, absent_keys, lay_events, present_keys
from .figure import Figure, Peer, median
from .s3_server import Seen, depth, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .workbench import Workbench

__all__ = ["figures"]

_DELAY_MS = 20.0
_TRIPS = 6
_ROWS = 25  # files are so much smaller here: a server that holds them in memory has to bear them


def figures(bench: Workbench) -> Iterator[Figure]:
    """A key that there is, one that there is not, and the first query of all."""
    files, rows = bench.sizes.files, max(20, bench.sizes.rows_per_file // _ROWS)
    folder = bench.generated(
        "s3-events",
        lambda to: lay_events(to / "table", files, rows),
        files=files,
        rows=rows,
        version=VERSION,
    )
    with serving(_DELAY_MS) as server:
        _upload(folder, server.options)
        table = skipstone.Table("s3://bench/events/table", storage_options=server.options)
        keys = present_keys(files, rows, 1 + bench.sizes.runs)
        server.seen()
        started = time.perf_counter()
        _ask(table, keys[0], 1)
        first = (time.perf_counter() - started) * 1e3
        yield _figure("s3_needle.first", [first], [server.seen()], files, told=None)
        odd = absent_keys(bench.sizes.runs)
        for name, chosen, hits in (("present", keys[1:], 1), ("absent", odd, 0)):
            taken, seen = [], []
            for key in chosen:
                started = time.perf_counter()
                _ask(table, key, hits)
                taken.append((time.perf_counter() - started) * 1e3)
                seen.append(server.seen())
            yield _figure(f"s3_needle.{name}", taken, seen, files, told=_TRIPS)


def _ask(table: skipstone.Table, key: int, hits: int) -> None:
    found = table.query(f"key = {key}").num_rows
    if found != hits:
        raise AssertionError(f"{found} rows instead of {hits} for key {key}")


def _figure(
    name: str, taken: list[float], seen: list[list[Seen]], files: int, *, told: int | None
) -> Figure:
    trips = [depth([one for one in each if not one.lists]) for each in seen]
    value = max(trips)
    return Figure(
        name=name,
        value=value,
        unit="round trips",
        peer=Peer(what="milliseconds of the query", value=median(taken)),
        target=None if told is None else f"<= {told} beside the listing",
        met=None if told is None else value <= told,
        details={
            "files": files,
            "delay_ms": _DELAY_MS,
            "round_trips": trips,
            "of_listing": [depth([one for one in each if one.lists]) for each in seen],
            "requests": [len(each) for each in seen],
            "listing_requests": [sum(one.lists for one in each) for each in seen],
            "last": [f"{one.method} {one.target} {one.range}" for one in seen[-1]][:40],
        },
    )


def _upload(folder: Path, options: dict[str, str]) -> None:
    """The table; facts name what they are of, so they are built where they are asked."""
    import boto3  # type: ignore[import-untyped]

    client = boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        region_name=options["region"],
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    client.create_bucket(Bucket="bench")
    for each in sorted((folder / "table").iterdir()):
        client.put_object(Bucket="bench", Key=f"events/table/{each.name}", Body=each.read_bytes())
    client.close()
    table = skipstone.Table("s3://bench/events/table", storage_options=options)
    table.build(indexes=["key:bloom(fpp=0.001)", "ts:minmax"])
