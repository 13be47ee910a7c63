"""Files with index pages: the same rows for every reader, and for every other part of the house."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone import Decryption, Encryption, ParquetFile
from skipstone.cli import cli
from skipstone.errors import KeyUnavailableError, SkipstoneError
from skipstone.parquet.format.enums import PageType
from skipstone.rewrite import add_index_pages, decrypt, encrypt, retrofit
from skipstone.salvage import salvage
from tests.parquet.format.files import golden_files
from tests.processes import FILE_CALLS, killed_before_step, runs_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

NAN = float("nan")
KEY = b"0123456789abcdef"


def table(rows: int = 6_000) -> pa.Table:
    """id ascending, d descending; f with NaN last; n null first; s long; l lists; z all null."""
    n = range(rows)
    return pa.table(
        {
            "id": pa.array(n, pa.int64()),
            "d": pa.array([rows - i for i in n], pa.int32()),
            "f": [(-0.0, 0.0, i / 3)[min(i, 2)] if i < rows - 900 else NAN for i in n],
            "n": pa.array([None if i < 900 else i // 7 for i in n], pa.uint32()),
            "s": [f"{'é' * 40}{i:06}{'x' * 30}" for i in n],
            "l": [[f"v{j}" for j in range(i % 4)] if i % 6 else None for i in n],
            "z": pa.nulls(rows, pa.int32()),
            "b": [i >= 3_000 for i in n],
        }
    )


def write(path: Path, data: pa.Table, **options: Any) -> str:
    given: dict[str, Any] = {
        "row_group_size": 2_500,
        "max_rows_per_page": 300,
        "use_dictionary": ["l"],
        "write_page_index": True,
    }
    pq.write_table(data, path, **(given | options))
    return str(path)


def rows_of(data: pa.Table) -> str:
    """What NaN does not make different."""
    return repr(data.to_pydict())


READERS: dict[str, Callable[[str, Any], pa.Table]] = {
    "pyarrow": lambda path, _: pq.read_table(path, page_checksum_verification=True),
    "duckdb": lambda path, _: duckdb.read_parquet(path).arrow().read_all(),
    "polars": lambda path, schema: polars.read_parquet(path).to_arrow().cast(schema),
    "datafusion": lambda path, _: datafusion.SessionContext().read_parquet(path).to_arrow_table(),
}
ALL = ["id", "d", "f", "n", "s", "l.list.element", "z", "b"]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("page_index", [True, False])
@pytest.mark.parametrize("roll_over", [64 << 10, 150])
def test_every_reader_reads_trees_behind_the_data(
    tmp_path: Path, version: str, page_index: bool, roll_over: int
) -> None:
    data = table()
    path = write(
        tmp_path / "a é.parquet",
        data,
        data_page_version=version,
        write_page_index=page_index,
        data_page_size=1 << 20 if page_index else 2_000,
        bloom_filter_options={"id": {"ndv": 2_500}},
    )
    old = ParquetFile(path).bloom_filter(1, "id")
    report = add_index_pages(path, ALL, roll_over=roll_over)
    assert report.keys == ("id", "f", "n", "s")
    # n of the first row group has nulls before its values; of no row group z has any value.
    assert report.keyed == 12
    assert report.ordinal == (12 if page_index else 9)
    why = {note.partition(", ")[2] for note in report.notes}
    assert {"d: no tree of keys: its pages do not ascend"} <= why
    assert {"z: no tree of keys: it holds only nulls"} <= why
    assert ("l.list.element: no index pages: it is repeated and has no offset index" in why) == (
        not page_index
    )
    for name, read in READERS.items():
        assert rows_of(read(path, data.schema)) == rows_of(data), name
    file = ParquetFile(path)
    assert file.verify().ok
    assert rows_of(file.read_rows()) == rows_of(data)
    new = file.bloom_filter(1, "id")
    assert old is not None
    assert new is not None
    assert bytes(old.to_bytes()) == bytes(new.to_bytes())
    for r in range(3):
        chunk = file.metadata.row_groups[r].columns[0].meta_data
        assert chunk is not None
        assert chunk.index_page_offset is not None
        assert chunk.data_page_offset < chunk.index_page_offset
    assert file.index_pages("f").query(NAN).num_rows == 900
    assert file.index_pages("f").query(0.0, 0.0, columns=["id"])["id"].to_pylist() == [0, 1]
    assert file.index_pages("n").query(200, 200).num_rows == 7
    key = data["s"][4_321].as_py()
    assert file.index_pages("s").query(key, key, ["id"])["id"].to_pylist() == [4_321]


@pytest.mark.parametrize("page_index", [True, False])
def test_interleaved_trees_are_read_by_those_who_pass_over_them(
    tmp_path: Path, page_index: bool
) -> None:
    data = table()
    path = write(tmp_path / "a.parquet", data, write_page_index=page_index, data_page_size=2_000)
    report = add_index_pages(path, ["id"], interleave=True, roll_over=100)
    assert report.levels >= 2
    file = ParquetFile(path)
    kinds = [each.type for each in file.page_headers(0, "id")]
    first = kinds.index(PageType.INDEX_PAGE)
    assert 0 < first < len(kinds) - 1 - kinds[::-1].index(PageType.DATA_PAGE) + 1
    assert PageType.DATA_PAGE in kinds[first:]
    assert rows_of(READERS["pyarrow"](path, None)) == rows_of(data)
    assert rows_of(file.read_rows()) == rows_of(data)
    assert file.verify().ok
    assert file.query("id BETWEEN 2490 AND 2510").num_rows == 21
    assert file.index_pages("id").query(2_490, 2_510, ["id", "l"]).num_rows == 21
    if page_index:
        assert rows_of(READERS["datafusion"](path, None)) == rows_of(data)
    else:
        flat = data.drop_columns(["l"])
        path = write(tmp_path / "flat.parquet", flat, write_page_index=False)
        add_index_pages(path, ["id"], interleave=True)
        assert rows_of(READERS["datafusion"](path, None)) == rows_of(flat)


@pytest.mark.spark
def test_spark_reads_both_kinds(spark: SparkSession, tmp_path: Path) -> None:
    data = table().drop_columns(["n"])  # as unsigned numbers Spark has another type
    for interleave in (False, True):
        for page_index in (False, True):
            path = write(
                tmp_path / f"{interleave} {page_index}.parquet", data, write_page_index=page_index
            )
            add_index_pages(path, ["id"], interleave=interleave, roll_over=150)
            rows = spark.read.parquet(path)
            found = rows.orderBy("id").collect()
            assert repr([row.asDict() for row in found]) == repr(data.to_pylist())
            assert rows.where("id BETWEEN 2490 AND 2510").count() == 21


def test_what_is_there_already_is_replaced(tmp_path: Path) -> None:
    """Other trees over the same pages: not a page more than a file that had none gets."""
    path = write(tmp_path / "a.parquet", table())
    add_index_pages(path, ["id"], output=tmp_path / "once.parquet")
    add_index_pages(path, ["id", "s"], interleave=True, roll_over=200)
    add_index_pages(path, ["id"])
    assert (tmp_path / "once.parquet").read_bytes() == (tmp_path / "a.parquet").read_bytes()


def test_sorting_columns_tell_the_key(tmp_path: Path) -> None:
    data = table()
    sorting = pq.SortingColumn.from_ordering(data.schema, [("id", "ascending")])
    path = write(tmp_path / "a.parquet", data, sorting_columns=sorting)
    assert add_index_pages(path, dry_run=True).keys == ("id",)
    descending = pq.SortingColumn.from_ordering(data.schema, [("d", "descending")])
    path = write(tmp_path / "b.parquet", data, sorting_columns=descending)
    assert add_index_pages(path, dry_run=True).keyed == 0
    with pytest.raises(SkipstoneError, match="nope"):
        add_index_pages(path, ["nope"])


def test_empty_files_and_row_groups(tmp_path: Path) -> None:
    data = table(10).slice(0, 0)
    path = write(tmp_path / "a.parquet", data)
    add_index_pages(path, ["id"])
    file = ParquetFile(path)
    assert file.read_rows().equals(data)
    assert file.index_pages("id").query(1, 2).num_rows == 0


@pytest.mark.parametrize("interleave", [False, True])
def test_other_parts_pass_over_index_pages(tmp_path: Path, interleave: bool) -> None:
    data = table()
    path = write(tmp_path / "a.parquet", data)
    add_index_pages(path, ["id"], interleave=interleave, roll_over=150)
    pages = ParquetFile(path).pages(["id"])
    assert pages["page_type"].to_pylist().count("DATA_PAGE") == 22
    # retrofit moves pages, and says that the trees point nowhere any more
    report = retrofit(path, page_rows=100, output=tmp_path / "r.parquet")
    assert report.outcome == "rewritten"
    assert rows_of(pq.read_table(tmp_path / "r.parquet")) == rows_of(data)
    assert ParquetFile(tmp_path / "r.parquet").verify().ok
    # encryption has no module for them
    keys = Encryption(footer_key=KEY)
    done = encrypt(path, tmp_path / "e.parquet", encryption=keys)
    assert (done.left_out > 0) == interleave  # behind the data they are not even met
    sealed = ParquetFile(tmp_path / "e.parquet", decryption=Decryption(footer_key=KEY))
    assert rows_of(sealed.read_rows()) == rows_of(data)
    meta = sealed.metadata.row_groups[0].columns[0].meta_data
    assert meta is not None
    assert meta.index_page_offset is None
    with pytest.raises(KeyUnavailableError):
        add_index_pages(tmp_path / "e.parquet", ["id"])
    decrypt(tmp_path / "e.parquet", tmp_path / "d.parquet", decryption=Decryption(footer_key=KEY))
    assert rows_of(pq.read_table(tmp_path / "d.parquet")) == rows_of(data)
    # a column in the clear keeps its tree
    part = Encryption(column_keys={"s": KEY}, footer_key=KEY, plaintext_columns=["id"])
    encrypt(path, tmp_path / "p.parquet", encryption=part)
    both = ParquetFile(
        tmp_path / "p.parquet", decryption=Decryption(footer_key=KEY, column_keys={"s": KEY})
    )
    assert len(both.index_pages("id").find(2_600)) == 1
    assert both.index_pages("id").query(2_600, 2_602).num_rows == 3


@pytest.mark.parametrize("interleave", [False, True])
def test_a_file_without_its_footer_is_saved(tmp_path: Path, interleave: bool) -> None:
    data = table()
    path = write(tmp_path / "a.parquet", data)
    add_index_pages(path, ["id"], interleave=interleave, roll_over=150)
    whole = (tmp_path / "a.parquet").read_bytes()
    size = int.from_bytes(whole[-8:-4], "little")
    (tmp_path / "torn.parquet").write_bytes(whole[: -8 - size])
    report = salvage(
        str(tmp_path / "torn.parquet"), output=str(tmp_path / "s.parquet"), schema=path
    )
    assert report.ok
    assert rows_of(pq.read_table(tmp_path / "s.parquet")) == rows_of(data)


def test_golden_files_keep_their_rows(tmp_path: Path, golden: Path) -> None:
    """Every column of every file of the corpus, keyed where it happens to ascend."""
    done = keyed = 0
    for path in golden_files(golden, largest=12_000):
        try:
            file = ParquetFile(path)
            rows = file.read_rows()
            names = [leaf.name for leaf in file.footer.schema.leaves]
            report = add_index_pages(path, names, output=tmp_path / "g.parquet", roll_over=100)
        except (SkipstoneError, OSError):
            continue  # damaged, encrypted, or of what nobody reads
        done += 1
        keyed += report.keyed
        again = ParquetFile(tmp_path / "g.parquet")
        assert rows_of_text(again.read_rows()) == rows_of_text(rows), path
    assert done > 50
    assert keyed > 20


def rows_of_text(data: pa.Table) -> str:
    """As Arrow shows them, since Python does not have all values."""
    return str(data.to_string(preview_cols=10_000))


# -- command line, kills ---------------------------------------------------------------------------


def test_the_command_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a b é.parquet", table(), write_page_index=False)
    arguments = ["retrofit", path, "--index-pages", "id", "--json"]
    dry = CliRunner().invoke(cli, [*arguments, "--dry-run"])
    assert dry.exit_code == 0, dry.output
    assert json.loads(dry.stdout)["index_pages"]["keyed"] == 3
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["added"]["offset index"] == found["chunks"] == 24
    assert (found["index_pages"]["keyed"], found["index_pages"]["ordinal"]) == (3, 21)
    shown = CliRunner().invoke(cli, ["inspect", path, "--pages", "--json"])
    (roots,) = {
        tuple(each["index_pages"]) for each in json.loads(shown.stdout)["chunks"]
        if each["column"] == "id"
    }  # fmt: skip
    assert roots == ("root", "ordinals")
    text = CliRunner().invoke(cli, ["inspect", path, "--pages"])
    assert "index pages            24 of 24 chunks" in text.stdout
    wrong = CliRunner().invoke(cli, ["retrofit", path, "--interleave"])
    assert wrong.exit_code == 2
    wrong = CliRunner().invoke(cli, ["retrofit", str(tmp_path), "--index-pages", "id"])
    assert wrong.exit_code == 2


_KILLED = f"""
{killed_before_step(*FILE_CALLS)}
from skipstone.rewrite.index_pages_file import add_index_pages
add_index_pages(sys.argv[1], ["id"])
"""


def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, table(3_000))
    old = path.read_bytes()
    add_index_pages(path, ["id"], output=tmp_path / "new")
    new = (tmp_path / "new").read_bytes()
    (tmp_path / "new").unlink()
    with runs_of(_KILLED) as run:
        for steps in range(100):
            path.write_bytes(old)
            code = run(path, steps)
            if code == 0:
                break
            assert code == -signal.SIGKILL
            assert path.read_bytes() in (old, new)
    assert steps >= 2
    assert path.read_bytes() == new
