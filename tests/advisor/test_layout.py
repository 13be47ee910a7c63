"""What an order of the rows would save is what it saves: held against tables in that order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.advisor.layout import OPENING
from skipstone.cli import cli
from skipstone.errors import FormatError, PredicateError, SkipstoneError, UnsupportedError
from skipstone.rewrite.curve import sort_order

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.advisor.layout_report import LayoutAdvice, LayoutSavings

FILES, ROWS = 16, 3_000


def rows(at: int) -> pa.Table:
    """``id``, ``user`` and ``amount`` at random, ``n`` ascending over the table."""
    rng = np.random.default_rng(at)
    return pa.table(
        {
            "id": rng.permutation(ROWS) * FILES + at,
            "user": [f"u-{each:05d}" for each in rng.integers(0, 20_000, ROWS)],
            "amount": pa.array(rng.random(ROWS) * 1000, mask=rng.random(ROWS) < 0.05),
            "n": np.arange(at * ROWS, (at + 1) * ROWS),
            "pad": [rng.bytes(400).hex() for _ in range(ROWS)],
        }
    )


def written(root: Path, make: Any = rows) -> Table:
    root.mkdir(parents=True)
    for at in range(FILES):
        pq.write_table(make(at), root / f"part-{at:02d}.parquet", compression="none")
    return Table(str(root))


def advised(table: Table, *queries: Any, **how: Any) -> LayoutAdvice:
    return table.advise(queries=queries or None, layout=True, **how)


def reads(table: Table, layout: LayoutSavings, column: str, low: Any, high: Any) -> int:
    """Files whose range of ``column`` meets [low, high], of the whole table in that order."""
    whole = table.query()
    order = sort_order(layout.curve, [whole[each].combine_chunks() for each in layout.by])
    kept = 0
    for part in np.array_split(order, layout.files_made):
        ends = pc.min_max(whole[column].take(pa.array(part)))
        first, last = ends["min"].as_py(), ends["max"].as_py()
        kept += first is not None and first <= high and low <= last
    return kept


def test_the_forecast_of_each_layout_is_what_that_layout_reads(tmp_path: Path) -> None:
    table = written(tmp_path / "t")
    total = table.listing().total_bytes
    queries = {"user": ("u-07777", "u-07777"), "amount": (500.0, 510.0), "n": (99, 900)}
    for column, (low, high) in queries.items():
        ends = [f"'{each}'" if column == "user" else each for each in (low, high)]
        where = f"{column} BETWEEN {ends[0]} AND {ends[1]}"
        # By default files stay about as large as they are, 2.5 MB.
        size = (2 if column == "n" else 1) << 20
        one = advised(table, where, file_size=None if column == "n" else size)
        best = one.layouts[0]
        wanted = reads(table, best, column, low, high)
        assert best.files_made == -(-total // size)
        assert wanted <= best.files <= wanted + 2, (column, best)
        assert best.by == (column,)
        if column == "n":  # it is sorted already
            assert not one.chosen
            assert one.queries[0].files_before == 1
        else:
            assert one.chosen
            assert one.queries[0].files_before == FILES


def test_curves_serve_several_columns(tmp_path: Path) -> None:
    table = written(tmp_path / "t")
    queries = ["user = 'u-07777'", "amount BETWEEN 500 AND 501"]
    found = advised(table, *queries, file_size=1 << 20)
    best = found.layouts[0]
    assert (best.curve, sorted(best.by)) == ("hilbert", ["amount", "user"])
    real = [
        reads(table, best, "user", "u-07777", "u-07777"),
        reads(table, best, "amount", 500.0, 501.0),
    ]
    assert np.mean(real) * 0.8 <= best.files <= np.mean(real) * 1.5
    assert best.bytes < best.bytes_before / 2
    by_rank = [each.bytes + each.files * OPENING for each in found.layouts[1:]]
    assert by_rank == sorted(by_rank)
    assert "--by=user,amount --curve hilbert --file-size 1MiB" in (found.command or "")


def test_a_sample_says_the_same_as_all_rows_about_a_rare_value(tmp_path: Path) -> None:
    """A value below nearly all of the sample: other rows of a file may still be below it."""
    table = written(tmp_path / "t")
    where = ["user = 'u-00012'", "amount > 999.9"]
    whole = advised(table, *where, file_size=1 << 20)
    some = advised(table, *where, file_size=1 << 20, sample=4)
    assert some.rows_sampled == 4 * ROWS
    by_order = {(each.curve, each.by): each.files for each in whole.layouts}
    for each in some.layouts:
        if each.file_size == 1 << 20:
            assert each.files >= 0.7 * by_order[each.curve, each.by], each


def test_weights_decide(tmp_path: Path) -> None:
    table = written(tmp_path / "t")
    for weights, best in (((100, 1), "user"), ((1, 100), "amount")):
        queries = zip(weights, ["user = 'u-07777'", "amount BETWEEN 500 AND 501"], strict=True)
        assert advised(table, *queries, file_size=4 << 20).layouts[0].by == (best,)


def test_without_queries_each_column_is_looked_up(tmp_path: Path) -> None:
    found = advised(written(tmp_path / "t"))
    shown = [each.where for each in found.queries]
    assert shown == ["id = …", "user = …", "n = …", "pad = …"]
    assert found.queries[2].files_before == 1
    assert found.rows_sampled == FILES * ROWS


def test_files_that_differ_and_columns_of_folders(tmp_path: Path) -> None:
    root = tmp_path / "t"
    for at in range(4):
        folder = root / f"day=2024-01-0{at + 1}"
        folder.mkdir(parents=True)
        made = rows(at)
        made = made.drop_columns(["amount"]) if at == 1 else made
        if at == 2:
            made = made.set_column(0, "id", made["id"].cast(pa.int32()))
        nested = pa.StructArray.from_arrays([made["id"].combine_chunks()], ["in"])
        pq.write_table(made.append_column("s", nested), folder / "a.parquet")
    table = Table(str(root))
    queries = ["id = 777 AND day = '2024-01-03'", "s.in = 9", "amount > 900", "pad LIKE '%x'"]
    found = advised(table, *queries, file_size=1 << 20)
    assert [each.files_before for each in found.queries[:2]] == [1, 4]
    assert found.queries[2].files_before == 3
    assert found.queries[3].bytes_after == pytest.approx(table.listing().total_bytes, rel=0.01)
    orders = {each.by for each in found.layouts}
    assert ("s.in",) in orders
    assert ("day",) in orders
    assert found.notes == ()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    table = written(tmp_path / "t")
    (tmp_path / "t" / "part-03.parquet").write_bytes(b"PAR1 no footer PAR1")
    (note,) = advised(table, "id = 7").notes
    assert "part-03.parquet could not be read" in note
    for each in (tmp_path / "t").iterdir():
        each.write_bytes(b"PAR1 no footer PAR1")
    with pytest.raises((FormatError, SkipstoneError)):
        advised(table, "id = 7")


def test_what_is_no_query_is_an_error(tmp_path: Path) -> None:
    table = written(tmp_path / "t")
    with pytest.raises(PredicateError, match="query 2"):
        advised(table, "id = 7", "idd = 8")
    with pytest.raises(UnsupportedError, match="not a table of Parquet files"):
        Table(str(tmp_path / "t"), format="csv", schema="id INT").advise(layout=True)


def test_an_empty_table_has_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "_SUCCESS").touch()
    found = Table(str(tmp_path / "t")).advise(layout=True)
    assert found.notes == ("the table has no files",)
    assert found.command is None


def test_values_that_python_has_not_and_files_without_rows(tmp_path: Path) -> None:
    days = pa.array([-900_000, 3_000_000, None], pa.int32()).cast(pa.date32())
    instants = pa.array([-(2**62), 2**62, None]).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"day": days, "ts": instants, "x,y": [1, 2, 3], "-x": [3, 1, 2]})
    for name, count in (("far", 3), ("none", 0)):
        (tmp_path / name).mkdir()
        for at in range(3):
            pq.write_table(table.slice(0, count), tmp_path / name / f"{at}.parquet")
    found = Table(str(tmp_path / "far")).advise(layout=True)
    assert found.rows_sampled == 9
    Table(str(tmp_path / "far")).advise()
    none = advised(Table(str(tmp_path / "none")), "day > DATE '2000-01-01'")
    assert none.notes == ("the sampled files have no rows",)
    assert none.command is None


def test_the_command_names_any_column(tmp_path: Path) -> None:
    table = written(tmp_path / "t", lambda at: rows(at).rename_columns({"user": "x,y"}))
    found = advised(table, "`x,y` = 'u-07777'", file_size=1_000_000)
    assert "'--by=`x,y`'" in (found.command or "")
    assert "--file-size 1000000 " in (found.command or "")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = written(tmp_path / "t")
    file = tmp_path / "q.txt"
    file.write_text("3\tuser = 'u-07777'\namount BETWEEN 500 AND 501\n")
    arguments = ["advise", table.path, "--layout", "--queries", str(file)]
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            cli([*arguments, *more])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        if more:
            found = json.loads(shown)
            assert found["chosen"] is True
            assert found["command"].startswith("skipstone cluster ")
            assert found["queries"][0]["weight"] == 3
        else:
            assert shown.splitlines()[-1].startswith("skipstone cluster ")
            assert "16 of 16" in shown
            (now,) = [line for line in shown.splitlines() if line.startswith("as it is")]
            assert now.split()[5:] == ["16", *now.split()[6:8], "16.0"]
    with pytest.raises(SystemExit) as ended:
        cli(["advise", table.path, "--file-size", "1MiB"])
    assert ended.value.code == 2
    assert "--file-size is for --layout" in capsys.readouterr().err
