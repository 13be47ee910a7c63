"""Fixed seeds of the fuzzer; ``make soak`` goes on where these end."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING

import pytest

from tests.soak.__main__ import main
from tests.soak.shape import FEATURES, KNOWN_GAPS, SPARK, Shape, chosen_features, without_gaps
from tests.soak.shrink import script, shrunk
from tests.soak.spark import SparkTrials
from tests.soak.trials import TableTrials, Totals

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_the_rows_are_those_in_memory(seed: int) -> None:
    """One table each, with all features but the known gaps."""
    shape = Shape(without_gaps(chosen_features("all,-kill")), predicates=32)
    with contextlib.redirect_stderr(io.StringIO()):
        findings = TableTrials(seed, shape, Totals()).run()
    told = [f"{each.case.trial.route}: {each.wrong}, {each.case.trial}" for each in findings]
    assert not told, "python -m tests.soak shrinks it: --tables 1 --seed " + str(seed)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
def test_the_rows_in_spark_are_those_in_memory(spark: SparkSession, seed: int) -> None:
    """One table each, a few predicates on each route of a session."""
    features = without_gaps(chosen_features("all,-kill,-encrypt,-look_inside,-many_files"))
    shape = Shape(features, routes=SPARK, predicates=5)
    totals = Totals()
    findings = SparkTrials(spark, seed, shape, totals).run()
    assert set(totals.trials) == set(SPARK)
    told = [f"{each.case.trial.route}: {each.wrong}, {each.case.trial}" for each in findings]
    assert not told, f"python -m tests.soak shows it: --routes spark --tables 1 --seed {seed}"


def test_known_gaps_name_features() -> None:
    for each in KNOWN_GAPS:
        assert each.features <= set(FEATURES)
        assert each.reason


def test_a_wrong_answer_is_found_shrunk_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that is wrong for large results: the smallest case and its script say so."""
    import skipstone

    right = skipstone.Table.count

    def wrong(self: skipstone.Table, where: str | None = None, **how: str) -> int:
        found = right(self, where, **how)
        return found - 1 if found > 2 else found

    monkeypatch.setattr(skipstone.Table, "count", wrong)
    shape = Shape(frozenset(), gaps=(), routes=("count",), predicates=10)
    totals = Totals()
    findings = [found for seed in range(3) for found in TableTrials(seed, shape, totals).run()]
    assert findings
    assert totals.trials["count"] >= 10
    small = shrunk(findings[0], seconds=5)
    assert small is not None
    assert small.wrong.startswith("count: ")
    assert sum(each.rows.num_rows for each in small.case.files) <= 5
    text = script(small)
    compile(text, "script", "exec")
    assert "write_file(" in text

    arguments = ["--tables", "1", "--features", "nan", "--routes", "count", "--shrink", "0"]
    assert main([*arguments, "--out", str(tmp_path)]) == 1
    assert list(tmp_path.glob("count-*.py"))


def test_processes_share_the_trials(capfd: pytest.CaptureFixture[str]) -> None:
    """Two processes with one table each: one total, and findings where a process ended early."""
    arguments = ["--features", "nan", "--routes", "count", "--seed", "5", "--shrink", "0"]
    assert main([*arguments, "--tables", "2", "--processes", "2"]) == 0
    lines = capfd.readouterr().out.splitlines()
    total = json.loads(lines[-1])
    assert (total["processes"], total["tables"]) == (2, 2)
    assert total["routes"]["count"] == total["trials"] > 10
    assert {line for line in lines if "last seed" in line} == {"0: last seed 5", "1: last seed 6"}


def test_features_can_be_chosen() -> None:
    assert chosen_features("nan,-zeros") == set(FEATURES) - {"zeros"}
    assert chosen_features("nan,zeros") == {"nan", "zeros"}
    with pytest.raises(ValueError, match="no feature"):
        chosen_features("nan,zeroes")
