"""What is proposed for which layout, what is not, and that the reasons hold."""

from __future__ import annotations

import decimal
import json
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.errors import FormatError
from tests.advisor.tables import advise_on, by_column, write
from tests.parquet.encryption.arrow_kms import write_encrypted

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 400


def ints(seed: int, low: int, high: int, rows: int = ROWS) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(low, high, rows)


def only(root: Path, column: str, make: Any, files: int = 40, **options: Any) -> Any:
    """The advice on `column` of a table that has only that one."""
    table = write(root / "t", files, lambda i: pa.table({column: make(i)}))
    return by_column(advise_on(table, **options))[column]


def test_a_key_spread_over_all_files_gets_a_bloom(tmp_path: Path) -> None:
    """Each file has 400 of 10**12 ids at random: ranges are equal, no id is in two files."""
    found = only(tmp_path, "id", lambda i: ints(i, 0, 10**12))
    assert found.kinds == ("bloom",)
    assert (found.type, found.nulls, found.sorted) == ("bigint", 0.0, False)
    assert found.distinct_per_file == 400
    assert found.distinct_exact
    assert found.overlap == 1.0
    assert found.reads_minmax == pytest.approx(1.0, abs=0.02)
    assert found.reads_values == pytest.approx(1 / 40)
    assert "2.5 % of files" in found.why


def test_text_keys_get_a_bloom(tmp_path: Path) -> None:
    found = only(tmp_path, "user", lambda i: [f"u-{n}" for n in ints(i, 0, 10**9)])
    assert found.kinds == ("bloom",)


def test_a_sorted_column_gets_minmax_alone(tmp_path: Path) -> None:
    """File i holds i*400 ... i*400 + 399 in order: no two ranges meet."""
    found = only(tmp_path, "n", lambda i: np.arange(i * ROWS, (i + 1) * ROWS))
    assert found.kinds == ("minmax",)
    assert (found.sorted, found.overlap) == (True, 0.0)
    assert found.reads_minmax == pytest.approx(1 / 40)


def test_a_clustered_column_gets_minmax_though_no_file_is_sorted(tmp_path: Path) -> None:
    """Day i to i + 3 in file i: a value lies in the range of 4 of 40 files, less at the ends."""

    def days(i: int) -> pa.Array:
        return pa.array((i + ints(i, 0, 4)).astype("int32"), pa.date32())

    found = only(tmp_path, "day", days, sample=40)
    assert (found.kinds, found.type, found.sorted) == (("minmax",), "date", False)
    assert found.overlap == pytest.approx((39 + 38 + 37) / 780)
    assert found.reads_minmax == pytest.approx(4 / 40, abs=0.01)


def test_few_values_in_some_files_get_a_list(tmp_path: Path) -> None:
    """Two of 20 countries in each file, first and last letters apart: ranges hold many more."""
    names = [f"{chr(97 + i)}land" for i in range(20)]
    found = only(tmp_path, "country", lambda i: [names[i % 10], names[19 - i % 10]] * 200)
    assert found.kinds == ("valuelist",)
    assert found.distinct_per_file == 2
    assert found.reads_values == pytest.approx(0.1, abs=0.06)
    assert found.reads_minmax is not None
    assert found.reads_minmax > 2 * found.reads_values


def test_ranges_and_values_get_both_where_both_help(tmp_path: Path) -> None:
    """File i has 1,000 random ids of [i, i + 20) * 10**9: a range holds half of all, a file few."""
    found = only(tmp_path, "id", lambda i: ints(i, i * 10**9, (i + 20) * 10**9, 2000), sample=40)
    assert found.kinds == ("minmax", "bloom")


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda i: ["x"] * ROWS, "one value in all files"),
        (lambda i: pa.nulls(ROWS, pa.int64()), "only nulls"),
        (lambda i: ints(i, 0, 7), "spread over all"),
        (lambda i: ints(i, 0, 10**6) / 7, "fractions are queried by range"),
        (
            lambda i: pa.array(ints(i, 0, 10**15), pa.timestamp("us")),
            "instants are queried by range",
        ),
        (
            lambda i: [f"the quick fox no {n} jumps over it" for n in ints(i, 0, 10**9)],
            "free text",
        ),
        (lambda i: [[1, 2]] * ROWS, "c:bloom serves array_contains"),
        (
            lambda i: pa.array([decimal.Decimal(int(n)) / 100 for n in ints(i, 0, 10**8)]),
            "fractions are queried by range",
        ),
    ],
    ids=["constant", "nulls", "spread", "double", "timestamp", "prose", "array", "decimal"],
)
def test_nothing_is_proposed_where_nothing_helps(tmp_path: Path, make: Any, why: str) -> None:
    table = write(tmp_path / "t", 30, lambda i: pa.table({"c": make(i)}))
    advice = advise_on(table)
    column = by_column(advice)["c"]
    assert column.kinds == ()
    assert why in column.why
    assert (advice.indexes, advice.command, advice.bytes_estimate) == ((), None, 0)
    assert str(advice).splitlines()[-1] == "no index would help"


def test_one_file_has_nothing_to_skip(tmp_path: Path) -> None:
    found = only(tmp_path, "id", lambda i: ints(i, 0, 10**12), files=1)
    assert found.kinds == ()
    assert found.why.startswith("one file")


def test_nested_fields_are_columns(tmp_path: Path) -> None:
    """Within `user`: ids at random, and a city that is the file's own."""

    def make(i: int) -> pa.Table:
        rows = [{"id": int(n), "at": {"city": f"c{i}"}} for n in ints(i, 0, 10**12)]
        return pa.table({"user": pa.array(rows), "odd.name": [f"f{i}"] * ROWS})

    found = by_column(advise_on(write(tmp_path / "t", 20, make)))
    assert found["user.id"].kinds == ("bloom",)
    assert found["user.at.city"].kinds == ("minmax",)
    assert found["`odd.name`"].kinds == ("minmax",)


def test_nulls_of_a_struct_are_nulls_of_its_fields(tmp_path: Path) -> None:
    rows = [None, {"a": 1}, {"a": None}, {"a": 2}]
    table = write(tmp_path / "t", 2, lambda i: pa.table({"s": pa.array(rows)}))
    found = by_column(advise_on(table))["s.a"]
    assert found.nulls == 0.5
    assert found.distinct_per_file == 2


def test_a_partition_column_needs_no_index(tmp_path: Path) -> None:
    table = write(
        tmp_path / "t",
        20,
        lambda i: pa.table({"id": ints(i, 0, 10**12)}),
        name="dt=2026-01-{:02d}/a b%20é=ü.parquet",
    )
    advice = advise_on(table)
    found = by_column(advice)
    assert found["dt"].kinds == ()
    assert "partition column" in found["dt"].why
    assert advice.indexes == ("id:bloom",)


def test_a_column_that_some_files_lack_is_null_there(tmp_path: Path) -> None:
    table = write(
        tmp_path / "t",
        20,
        lambda i: pa.table({"a": ints(i, 0, 9)} | ({"b": ints(i, 0, 10**12)} if i % 2 else {})),
    )
    found = by_column(advise_on(table, sample=20))["b"]
    assert found.nulls == 0.5
    assert found.distinct_per_file == 200
    assert found.kinds == ("bloom",)


def test_the_awkward_values_are_no_trouble(tmp_path: Path) -> None:
    """NaN, both zeros, nulls, empty files, bytes that are no UTF-8, edges of types."""

    def make(i: int) -> pa.Table:
        rows = 0 if i % 5 == 0 else 6
        return pa.table(
            {
                "f": pa.array(
                    [float("nan"), 0.0, -0.0, None, float("inf"), 1.5][:rows], pa.float64()
                ),
                "b": pa.array([b"\xff\x00", b"", None, b"\xff", b"a", b"b"][:rows], pa.binary()),
                "u": pa.array([0, 2**64 - 1, None, 1, 2, 3][:rows], pa.uint64()),
                "d": pa.array([None, decimal.Decimal(10**37)] * (rows // 2), pa.decimal128(38, 0)),
                "n": pa.array([0, 1, 2, 3, 4, None][:rows], pa.timestamp("ns")),
                "t": pa.array([0, 1, 2, 3, 4, None][:rows], pa.time64("us")),
                "z": pa.array([True, None] * (rows // 2), pa.bool_()),
            }
        )

    advice = advise_on(write(tmp_path / "t", 11, make))
    assert set(by_column(advice)) == {"f", "b", "u", "d", "n", "t", "z"}
    assert json.loads(json.dumps(advice.to_dict(), allow_nan=False))["files_total"] == 11


def test_a_file_that_cannot_be_read_is_noted(tmp_path: Path) -> None:
    table = write(tmp_path / "t", 10, lambda i: pa.table({"id": ints(i, 0, 10**12)}))
    (table / "part-00003.parquet").write_bytes(b"PAR1 no PAR1")
    advice = advise_on(table)
    assert (advice.sampled, advice.files_total) == (9, 10)
    assert any("part-00003.parquet" in note for note in advice.notes)
    assert advice.indexes == ("id:bloom",)


def test_nothing_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.parquet").write_bytes(b"junk")
    with pytest.raises(FormatError, match=r"a\.parquet"):
        advise_on(tmp_path / "t")


def test_a_table_without_files_says_so(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    advice = advise_on(tmp_path / "t")
    assert advice.notes == ("the table has no files",)
    assert advice.columns == ()


def test_the_sample_is_as_large_as_was_asked(tmp_path: Path) -> None:
    table = write(tmp_path / "t", 12, lambda i: pa.table({"id": ints(i, 0, 10**12)}))
    advice = advise_on(table, sample=5)
    assert (advice.sampled, advice.files_total, advice.rows_read) == (5, 12, 5 * ROWS)
    assert advise_on(table, sample=50).sampled == 12
    assert advise_on(table, sample=5) == advice, "the same files each time"


def test_a_small_budget_reads_files_in_part_and_says_so(tmp_path: Path) -> None:
    """20,000 unique ids and 100 codes in each file, in 4 row groups; some thousand are read."""

    def make(i: int) -> pa.Table:
        rng = np.random.default_rng(i)
        return pa.table({"id": rng.integers(0, 10**15, 20_000), "c": rng.integers(0, 100, 20_000)})

    table = tmp_path / "t"
    table.mkdir()
    for i in range(8):
        pq.write_table(make(i), table / f"{i}.parquet", row_group_size=5_000)
    advice = advise_on(table, budget=1 << 18)
    found = by_column(advice)
    assert 0 < advice.rows_read < 8 * 20_000 / 4
    assert not found["id"].distinct_exact
    assert found["id"].distinct_per_file == pytest.approx(20_000, rel=0.05)
    assert found["c"].distinct_per_file == pytest.approx(100, rel=0.05)
    assert found["id"].kinds == ("bloom",)
    assert found["id"].bytes_estimate == pytest.approx(8 * 20_000 * 9.585 / 8, rel=0.1)
    assert found["c"].kinds == ()
    assert any("scaled up" in note for note in advice.notes)
    assert any("only the footer" in note for note in advice.notes)


def test_advice_as_text_json_and_html(tmp_path: Path) -> None:
    table = write(
        tmp_path / "it's <odd>",
        20,
        lambda i: pa.table({"id": ints(i, 0, 10**12), "ts": np.arange(i * ROWS, (i + 1) * ROWS)}),
    )
    advice = advise_on(table)
    lines = str(advice).splitlines()
    assert lines[0] == f"table {table}   sampled 20 of 20 files, 8,000 rows"
    assert lines[1].split() == [
        *("column", "type", "nulls", "distinct/file", "sorted", "overlap", "suggest", "size"),
        *("bytes/key", "why"),
    ]
    assert lines[-2].startswith("about ")
    assert lines[-1] == advice.command
    assert advice.indexes == ("id:bloom", "ts:minmax")
    told = json.loads(json.dumps(advice.to_dict()))
    assert told["indexes"] == ["id:bloom", "ts:minmax"]
    assert [column["column"] for column in told["columns"]] == ["id", "ts"]
    assert told["files_total"] == 20
    # 20 files: fpp=0.01, 9.6 bits for each of 400 keys, and a header of 300 bytes.
    of_id, of_ts = (column["bytes_per_key"] for column in told["columns"])
    assert 1.8 < of_id < 2.2
    assert of_ts is None
    assert f"{of_id:.1f}" in lines[2].split()
    html = advice._repr_html_()
    assert "<odd>" not in html
    assert "&lt;odd&gt;" in html
    assert "id:bloom" in repr(advice)


def test_the_command_is_one_that_a_shell_takes(tmp_path: Path) -> None:
    table = write(tmp_path / "it's", 10, lambda i: pa.table({"a b": ints(i, 0, 10**12)}))
    command = advise_on(table).command
    assert command is not None
    assert shlex.split(command) == ["skipstone", "build", str(table), "-c", "a b:bloom"]


def test_instants_of_int96_are_looked_at(tmp_path: Path) -> None:
    """As Spark wrote them for years: no statistics, so ranges come from the rows."""
    table = tmp_path / "t"
    table.mkdir()
    for i in range(20):
        days = pa.array(np.arange(i * ROWS, (i + 1) * ROWS) * 10**9, pa.timestamp("us"))
        path = table / f"{i}.parquet"
        pq.write_table(pa.table({"ts": days}), path, use_deprecated_int96_timestamps=True)
    found = by_column(advise_on(table))["ts"]
    assert (found.type, found.kinds, found.sorted) == ("timestamp", ("minmax",), True)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_files_are_noted_and_passed_over(tmp_path: Path, plaintext_footer: bool) -> None:
    table = write(tmp_path / "t", 9, lambda i: pa.table({"id": ints(i, 0, 10**12)}))
    rows = pa.table({"id": [1, 2]})
    keys = {"k": ["id"]}
    write_encrypted(table / "z.parquet", rows, keys, plaintext_footer=plaintext_footer)
    advice = advise_on(table)
    assert (advice.sampled, advice.indexes) == (9, ("id:bloom",))
    assert any("z.parquet" in note and "ncrypted" in note for note in advice.notes)


def test_a_table_of_many_columns_is_sampled_from_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 files of 600 columns, where a tenth as many columns as usual may be read: five are looked
    at, and the rows of three are read."""
    monkeypatch.setattr("skipstone.advisor.sampling._MOST_COLUMNS", 2_000)
    names = [f"c{n}" for n in range(600)]
    root = write(tmp_path, 12, lambda at: pa.table([[at * 10, at * 10 + 5]] * len(names), names))
    advice = advise_on(root)
    assert (advice.sampled, advice.files_total, advice.rows_read) == (5, 12, 6)
    found = by_column(advice)
    assert len(found) == 600
    assert {found[f"c{n}"].kinds for n in range(0, 600, 50)} == {("minmax",)}


def test_random_fractions_of_small_files_are_not_listed(tmp_path: Path) -> None:
    """Those that repeat, as whole numbers with nulls do in pandas, are."""
    rng = np.random.default_rng(7)
    table = write(
        tmp_path / "t",
        20,
        lambda i: pa.table(
            {"x": rng.normal(size=50), "n": rng.integers(0, 90, 4).repeat(13)[:50].astype(float)}
        ),
    )
    columns = by_column(advise_on(table))
    assert (columns["x"].kinds, columns["n"].kinds) == ((), ("valuelist",))
    assert columns["x"].why.startswith("fractions are queried by range")


def test_one_file_is_told_what_helps_it(tmp_path: Path) -> None:
    table = write(tmp_path / "t", 1, lambda i: pa.table({"n": range(10)}))
    assert "`skipstone retrofit`" in str(advise_on(table))
