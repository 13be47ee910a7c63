"""Fixed seeds of the fuzzer; ``make soak`` goes on where these end."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import skipstone
from skipstone.predicate.tree import ColumnRef, Comparison, Literal
from skipstone.spark.session import set_to
from tests.soak.__main__ import FORMATS, main
from tests.soak.formats import FormatTrials
from tests.soak.generate import ROW, DataFile
from tests.soak.life import LIFE
from tests.soak.predicates import Predicate
from tests.soak.routes import Trial
from tests.soak.shape import (
    CONNECT,
    FEATURES,
    KNOWN_GAPS,
    SPARK,
    Shape,
    chosen_features,
    without_gaps,
)
from tests.soak.shrink import files_of, script, shrunk
from tests.soak.spark import ZONE, Sessions, SparkTrials
from tests.soak.trials import Case, Finding, TableTrials, Totals
from tests.soak.writers import write_file
from tests.strategies import TIMESTAMP, TIMESTAMP_NTZ

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


#: a seed, and features that its table has for certain
SEEDS = (
    (1, "encrypt refresh"),
    (2, "retrofit compact replace"),
    (3, "migrate summary append"),
    (4, "kill vacuum"),
    (5, "drop indexes delete"),
    (6, "encrypt decrypt kill"),
    (27, "nested_folders"),
    (8, "recursive append"),
    (9, "invalid_utf8 retrofit"),
    (23, "nanoseconds half_floats"),
)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed, often", SEEDS)
def test_the_rows_are_those_in_memory(seed: int, often: str) -> None:
    """One table each, with all features but the known gaps."""
    features = frozenset(often.split())
    shape = Shape(without_gaps(chosen_features("all")), often=features, predicates=16)
    totals = Totals()
    with contextlib.redirect_stderr(io.StringIO()):
        findings = TableTrials(seed, shape, totals).run()
    assert features <= set(totals.drawn)
    told = [f"{each.case.trial.route}: {each.wrong}, {each.case.trial}" for each in findings]
    assert not told, (
        "python -m tests.soak shrinks it: "
        f"--tables 1 --seed {seed} --predicates 16 --often {','.join(features)}"
    )


def test_the_fixed_seeds_have_every_event() -> None:
    assert {name for _, often in SEEDS for name in often.split()} >= set(LIFE)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("seed", [0])
def test_the_rows_in_spark_are_those_in_memory(
    spark: SparkSession, spark_connect: SparkSession, seed: int
) -> None:
    """One table each, a few predicates on each route of a session."""
    features = without_gaps(
        chosen_features("all,-kill,-encrypt,-look_inside,-many_files,-nanoseconds,-half_floats")
    )
    shape = Shape(features, often=frozenset({"spark"}), routes=(*SPARK, "query"), predicates=3)
    totals = Totals()
    findings = SparkTrials(Sessions(spark, spark_connect), seed, shape, totals).run()
    assert set(totals.trials) == {*SPARK, "query"}
    told = [f"{each.case.trial.route}: {each.wrong}, {each.case.trial}" for each in findings]
    assert not told, f"python -m tests.soak shows it: --routes spark --tables 1 --seed {seed}"


@pytest.mark.spark
def test_spark_writes_the_types_of_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Local times stay local, also where instants are INT96, in a session of another zone."""
    micros = [0, 1_704_067_200_000_501, None]
    inner = pa.struct({"local": TIMESTAMP_NTZ})
    rows = pa.table(
        {
            "local": pa.array(micros, TIMESTAMP_NTZ),
            "instant": pa.array(micros, TIMESTAMP),
            "s": pa.array([{"local": each} for each in micros], inner),
        }
    )
    kinds = ("INT96", "TIMESTAMP_MICROS")
    settings = {ZONE: "Pacific/Apia", "spark.sql.parquet.outputTimestampType": kinds[0]}
    with set_to(spark, settings):
        for kind in kinds:
            write_file(f"{tmp_path}/{kind}/0.parquet", rows, "spark", {"timestamps": kind}, 1)
            assert skipstone.Table(f"{tmp_path}/{kind}").query().equals(rows)


def test_known_gaps_name_features() -> None:
    for each in KNOWN_GAPS:
        assert each.features <= set(FEATURES)
        assert each.reason


def test_a_wrong_answer_is_found_shrunk_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that is wrong for large results: the smallest case and its script say so."""
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


def test_a_finding_in_spark_is_shrunk_and_written() -> None:
    """A row that is lost whatever is asked: the plainest query over its one file is left."""
    rows = pa.table({ROW: [1, 2, 3], "a": ["x", "y", "z"]})
    files = (DataFile("0.parquet", rows), DataFile("s/1.parquet", rows, place="below"))
    predicate = Predicate(Comparison("=", ColumnRef(("a",)), Literal("y")), "UTC", frozenset())
    trial = Trial(
        "skip",
        predicate.sql,
        form="join",
        settings=(("spark.sql.adaptive.enabled", "false"),),
        cache="plain",
    )

    def run(case: Case) -> str:
        rows = [each.rows for each in files_of(case).values()]
        lost = any("y" in each.column("a").to_pylist() for each in rows)
        return "rows: lost" if lost else ""

    found = Finding(1, Case(files, (), trial, predicate), "rows: lost", frozenset())
    small = shrunk(found, run=run)
    assert small is not None
    assert [each.path for each in small.case.files] == ["0.parquet"]
    assert small.case.files[0].rows.column(ROW).to_pylist() == [2]
    asked = small.case.trial
    assert (asked.form, asked.settings, asked.cache) == ("where", (), "")
    for route in SPARK:
        named = replace(small, case=replace(small.case, trial=replace(asked, route=route)))
        text = script(named)
        compile(text, route, "exec")
        assert ("remote()" if route in CONNECT else "session()") in text
        assert ROW in text.splitlines()[-3]


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


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_tables_of_formats_have_the_rows_of_their_own_readers(format: str, tmp_path: Path) -> None:
    totals = Totals()
    assert not FormatTrials(format, 5, totals, most=8).run(str(tmp_path))
    assert totals.tables == 1
    assert totals.operations.total() + totals.refused_steps.total() == 8
