"""Every figure can be measured: at toy sizes, one well-formed line each. Nothing about speed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.__main__ import TOPICS, main
from bench.engine import pages_of
from bench.figure import Figure, Peer, interleaved
from bench.s3_server import Seen, depth
from bench.workbench import Workbench
from tests.folders import ROOT
from tests.processes import environment

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = ["name", "value", "unit", "peer", "ratio", "target", "met", "details"]


def lines(home: Path, *topics: str) -> list[dict[str, Any]]:
    """What `make bench` prints of these topics: figures may well be missed at toy sizes."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--toy", "--home", str(home), *topics],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.spark
@pytest.mark.long
def test_every_figure_is_a_line(tmp_path: Path) -> None:
    found = lines(tmp_path)
    names = [line["name"] for line in found]
    assert len(set(names)) == len(names)
    assert {name.replace(" ", ".").split(".")[0] for name in names} >= set(TOPICS)
    for line in found:
        assert list(line) == FIELDS
        assert line["value"] >= 0
        assert line["unit"]
        assert (line["target"] is None) == (line["met"] is None)
        assert line["ratio"] is None or line["peer"]["value"] > 0


def test_another_recipe_makes_it_anew(tmp_path: Path) -> None:
    calls: list[int] = []

    def make(folder: Path) -> None:
        calls.append(1)
        (folder / "a").write_text("a")

    with Workbench(tmp_path) as bench:
        for rows in (1, 1, 2):
            assert (bench.generated("x", make, rows=rows) / "a").exists()
    assert len(calls) == 2


def test_an_unknown_figure_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["speed"])
    assert done.value.code == 2
    assert "no figure 'speed'" in capsys.readouterr().err


def test_a_line_is_json_of_few_digits() -> None:
    figure = Figure(
        name="x",
        value=1 / 3,
        unit="s",
        peer=Peer(what="y", value=2 / 3),
        ratio=0.5,
        details={"all": [1 / 7], "n": 12_345},
    )
    assert json.loads(figure.to_json()) == {
        "name": "x",
        "value": 0.3333,
        "unit": "s",
        "peer": {"what": "y", "value": 0.6667},
        "ratio": 0.5,
        "target": None,
        "met": None,
        "details": {"all": [0.1429], "n": 12_345},
    }


def test_works_take_turns() -> None:
    order: list[str] = []
    taken = interleaved(2, {"a": lambda: order.append("a"), "b": lambda: order.append("b")})
    assert order == ["a", "b"] * 3
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 2, "b": 2}


def test_round_trips_are_those_that_wait() -> None:
    """Two at once, one that begins with the answer to the first, one after all of them.

    0---1
    0-----2
        1-----3
                 4-5
    """
    spans = [(0.0, 1.0), (0.0, 2.0), (1.0, 3.0), (4.0, 5.0)]
    assert depth([Seen("GET", "/b/k", "", *each) for each in spans]) == 3
    assert depth([]) == 0


def test_pages_that_hold_rows(tmp_path: Path) -> None:
    """Two row groups of two pages and a column; ``b`` has a dictionary as well."""
    path = str(tmp_path / "x.parquet")
    rows = pa.table({"a": range(40), "b": ["x", "y"] * 20})
    pq.write_table(rows, path, row_group_size=20, use_dictionary=["b"], max_rows_per_page=10)
    one, all_of_group = pages_of(path, [0]), pages_of(path, [0, 10])
    assert 0 < one < all_of_group < pages_of(path, [0, 10, 30])
    assert pages_of(path, range(40)) == sum(
        each["total_compressed_size"]
        for group in range(2)
        for column in range(2)
        for each in [pq.read_metadata(path).row_group(group).column(column).to_dict()]
    )
    assert pages_of(path, []) == 0
