"""``--keys FILE:COLUMN``: rows whose column is one of the values in a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone import Table
from skipstone.cli import cli

if TYPE_CHECKING:
    from pathlib import Path

USERS = pa.table(
    {"user": ["u-003", "u-250", None, "nobody"], "n": pa.array([3, 7, 7, None], pa.int16())}
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    (home / "t").mkdir()
    for number in range(4):
        ids = np.arange(100) + number * 100
        table = pa.table(
            {
                "id": ids,
                "user_id": [f"u-{n:03}" for n in ids.tolist()],
                "price": pa.array([f"{n}.50" for n in ids.tolist()]).cast(pa.decimal128(9, 2)),
                "day": pa.array((ids // 10).astype(np.int32), pa.date32()),
                "small": pa.array((ids % 100).astype(np.int16)),
            }
        )
        pq.write_table(table, home / f"t/{number}.parquet")
    Table(str(home / "t")).build(indexes=["id:minmax", "user_id:bloom"])
    pq.write_table(USERS, home / "users.parquet")
    (home / "many").mkdir()
    pq.write_table(USERS.slice(0, 1), home / "many/a.parquet")
    pq.write_table(USERS.slice(1), home / "many/b.parquet")
    pa_csv.write_csv(USERS, home / "users.csv")
    with pa.CompressedOutputStream(str(home / "users.csv.gz"), "gzip") as out:
        pa_csv.write_csv(USERS, out)
    (home / "users.tsv").write_text("user\tn\nu-003\t3\nu-250\t7\n")
    (home / "users.txt").write_text("u-003\n\nu-250\r\nnobody")
    (home / "marked.txt").write_text("\ufeffu-003\r\nu-250\r\n")
    (home / "ids.txt").write_text("3\n 250 \n\n999999\n")
    (home / "prices.txt").write_text("3.5\n7.50\n8\n")
    (home / "mixed.txt").write_text("3\n\nx4\n5\n")
    (home / "empty.csv").write_text("")
    (home / "days.txt").write_text("1970-01-01\n1970-1-3\n")
    return home


def run(home: Path, verb: str, *arguments: str) -> Any:
    return CliRunner().invoke(cli, [verb, str(home / "t"), *arguments])


def ids(home: Path, *arguments: str) -> list[int]:
    done = run(home, "query", "--columns", "id", "--json", *arguments)
    assert done.exit_code == 0, done.stderr
    return sorted(row[0] for row in json.loads(done.stdout)["rows"])


@pytest.mark.parametrize(
    "file", ["users.parquet", "many", "users.csv", "users.csv.gz", "users.tsv"]
)
def test_a_column_of_a_file(home: Path, file: str) -> None:
    assert ids(home, "--keys", f"{home}/{file}:user=user_id") == [3, 250]
    assert ids(home, "--keys", f"{home}/{file}:N=id") == [3, 7]
    assert ids(home, "--keys", f"{home}/{file}:n=small", "id < 200") == [3, 7, 103, 107]
    both = ("--keys", f"{home}/{file}:user=user_id", "--keys", f"{home}/{file}:n=id")
    assert ids(home, *both) == [3]


def test_lines_of_a_file_are_values_of_the_column(home: Path) -> None:
    assert ids(home, "--keys", f"{home}/users.txt:user_id") == [3, 250]
    assert ids(home, "--keys", f"{home}/marked.txt:user_id") == [3, 250]
    assert ids(home, "--keys", f"{home}/ids.txt:id") == [3, 250]
    assert ids(home, "--keys", f"{home}/ids.txt:user_id") == []
    assert ids(home, "--keys", f"{home}/prices.txt:price") == [3, 7]
    assert ids(home, "--keys", f"{home}/days.txt:day") == [*range(10), *range(20, 30)]


def test_count_and_explain(home: Path) -> None:
    done = run(home, "count", "id < 250", "--keys", f"{home}/users.parquet:user=user_id")
    assert (done.exit_code, done.stdout) == (0, "1\n")
    done = run(home, "explain", "--keys", f"{home}/users.parquet:n=id", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["predicate"] == "id IN (2 distinct keys of 4, 1 null left out)"
    done = run(home, "explain", "--keys", f"{home}/users.parquet:user=user_id")
    assert "user_id IN (3 distinct keys of 4, 1 null left out)" in done.stdout
    done = run(home, "explain", "--keys", f"{home}/prices.txt:price")
    assert "price IN (3 keys)" in done.stdout
    assert [path.rpartition("/")[2] for path in found["paths"]] == ["0.parquet"]


@pytest.mark.parametrize(
    "keys, code, text",
    [
        ("{home}/users.parquet:usr=user_id", 1, "no column usr in"),
        ("{home}/users.csv:usr=user_id", 1, "no column usr in"),
        ("{home}/users.parquet:n", 1, "no column n"),
        ("{home}/users.parquet:user=id", 1, "parquet, row 1: 'u-003' is not a key of id, which is"),
        ("{home}/many:user=day", 1, "many, row 1: 'u-003' is not a key of day, which is date"),
        ("{home}/users.csv:user=price", 1, "csv, row 1: 'u-003' is not a key of price, which is"),
        ("{home}/users.parquet:n=user_id", 1, "keys of type int16, and user_id is string"),
        ("{home}/mixed.txt:id", 1, "mixed.txt, line 3: 'x4' is not a key of id, which is bigint"),
        ("{home}/mixed.txt:day", 1, "keys of this column are such as 2026-01-31"),
        ("{home}/users.csv:user=user_id,n=id", 1, "--keys {home}/users.csv:n=id"),
        ("{home}/users.csv:user,n", 1, "--keys {home}/users.csv:user --keys {home}/users.csv:n"),
        ("{home}/empty.csv:id", 1, "empty.csv is empty"),
        ("{home}/empty.csv:id", 1, "the first line of a CSV file names its columns"),
        ("{home}/none.txt:id", 1, "none.txt: No such file"),
        ("{home}/none.csv:id", 1, "none.csv: No such file"),
        ("{home}/none.json", 2, "does not exist"),
        ("{home}/none.txt:", 2, "write FILE:COLUMN"),
    ],
)
def test_what_is_wrong_is_said(home: Path, keys: str, code: int, text: str) -> None:
    done = run(home, "query", "--keys", keys.format(home=home))
    assert done.exit_code == code
    assert text.format(home=home) in done.stderr
    assert "without quotes" not in done.stderr


def test_a_column_has_one_file(home: Path) -> None:
    file = f"{home}/ids.txt:id"
    done = run(home, "query", "--keys", file, "--keys", file)
    assert done.exit_code == 2
    assert "keys of id are given twice" in done.stderr


@pytest.mark.parametrize("file", ["users.parquet", "many", "users.csv", "users.csv.gz"])
def test_a_file_without_a_column_is_told_its_columns(home: Path, file: str) -> None:
    done = run(home, "query", "--keys", f"{home}/{file}")
    assert done.exit_code == 1
    assert f"{file} does not say which column has the keys: write FILE:COLUMN" in done.stderr
    assert f"its columns are user, n: --keys {home}/{file}:user" in done.stderr


def test_a_file_without_a_column_has_the_keys_of_encrypted_files(home: Path) -> None:
    done = run(home, "query", "--keys", f"{home}/users.txt")
    assert done.exit_code == 1
    assert "users.txt is not a JSON file with the keys of encrypted files" in done.stderr
    assert "--keys" in done.stderr
    (home / "keys.json").write_text('\ufeff {"footer_key": 5}')
    said = run(home, "query", "--keys", f"{home}/keys.json").stderr
    assert "keys.json: key file: footer_key is not a string" in said
    assert 'hint: {"footer_key": "hex, base64:…' in said
