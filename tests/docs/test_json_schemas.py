"""Every ``--json`` follows its published schema, and the schemas are those of the reports."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone.cli import VERBS, cli
from tools.json_schemas import FOLDER, schemas, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMAS = schemas()
KEY = {"FOOTER_KEY": "000102030405060708090a0b0c0d0e0f"}


@pytest.mark.parametrize("verb", VERBS)
def test_the_published_schema_is_up_to_date(verb: str) -> None:
    if not FOLDER.is_dir():
        pytest.skip("no docs here: an unpacked source distribution may lack them")
    published = (FOLDER / f"{verb}.json").read_text(encoding="utf-8")
    assert published == text_of(SCHEMAS[verb]), "run `python -m tools.json_schemas`"


def table(root: Path, files: int = 3) -> Path:
    root.mkdir()
    for part in range(files):
        rows = {"id": range(part * 10, part * 10 + 10), "name": [f"n{i}" for i in range(10)]}
        pq.write_table(pa.table(rows), root / f"p{part}.parquet")
    return root


def commands(home: Path) -> Iterator[list[str]]:
    """Calls of every verb, each with what those before it have left."""
    lake, torn = str(table(home / "lake")), table(home / "torn")
    one = str(torn / "p0.parquet")
    queries = home / "queries.txt"
    queries.write_text("id = 3\n")
    log = home / "scans.log"
    log.write_text("nothing\n")
    (torn / "p1.parquet").write_bytes((torn / "p1.parquet").read_bytes()[:-20])
    yield ["demo", str(home / "demo")]
    yield ["advise", lake]
    yield ["advise", lake, "--queries", str(queries)]
    yield ["advise", lake, "--layout"]
    yield ["build", lake, "-c", "id:minmax,bitmap", "-c", "name:bloom(fpp=0.01)"]
    yield ["build", str(torn), "-c", "id:minmax"]
    yield ["refresh", lake]
    yield ["describe", lake]
    yield ["describe", str(torn)]
    yield ["explain", lake, "id = 3"]
    yield ["explain", lake, "name = 'n3'", "--analyze"]
    yield ["query", lake, "id = 3"]
    yield ["query", str(torn), "--skip-unreadable"]
    yield ["count", lake, "id > 3"]
    yield ["grep", lake, "n[34]", "--columns", "id"]
    yield ["report", lake, "id = 3", "-o", str(home / "report.html")]
    yield ["report", one, "-o", str(home / "file.html")]
    yield ["usage", lake, "--log", str(log)]
    yield ["check", lake]
    yield ["check", str(torn), "--repair"]
    yield ["check", lake, "--deep"]
    yield ["export", lake, "--xskipper"]
    yield ["export", lake, str(home / "paimon"), "--paimon"]
    yield ["compact", lake]
    yield ["vacuum", lake]
    yield ["migrate", lake]
    yield ["drop", lake, "id:minmax", "--dry-run"]
    yield ["drop", lake, "--yes"]
    yield ["retrofit", lake, "--bloom", "id"]
    yield ["retrofit", one, "--dry-run"]
    yield ["retrofit", one, "--index-pages", "id"]
    yield ["write-metadata", lake]
    yield ["salvage", str(torn / "p1.parquet"), "-o", str(home / "saved.parquet")]
    yield ["salvage", str(torn), "-o", str(home / "saved")]
    yield ["encrypt", lake, "--footer-key", "env:FOOTER_KEY"]
    yield ["decrypt", lake, "--footer-key", "env:FOOTER_KEY"]
    yield ["encrypt", one, "--footer-key", "env:FOOTER_KEY"]
    yield ["inspect", one]
    yield ["decrypt", one, "--footer-key", "env:FOOTER_KEY"]
    yield ["inspect", one, "--verify"]
    yield ["inspect", str(home / "_torn.skipstone")]
    new = home / "new.parquet"
    pq.write_table(pa.table({"ts": pa.array([1, 2], pa.timestamp("us")), "v": [1, 2]}), new)
    yield ["ingest", str(home / "live"), str(new), "--timestamp", "ts", "--partition-by", "day"]
    yield ["doctor"]
    yield ["doctor", lake]


def test_every_document_follows_its_schema(tmp_path: Path) -> None:
    jsonschema: Any = importlib.import_module("jsonschema")
    seen = set()
    for command in commands(tmp_path):
        done = CliRunner().invoke(cli, [*command, "--json"], env=KEY)
        assert done.exit_code in (0, 1, 3), done.stderr
        assert done.stdout, (command, done.stderr)
        document = json.loads(done.stdout)
        errors = list(jsonschema.Draft202012Validator(SCHEMAS[command[0]]).iter_errors(document))
        assert not errors, (command, [(each.json_path, each.message) for each in errors])
        unknown = document.keys() - properties(SCHEMAS[command[0]])
        assert not unknown or command[0] in ("inspect", "ingest"), (command, unknown)
        seen.add(command[0])
    # They need a key management service and Spark; tests/spark/test_clustering.py has the latter.
    assert VERBS.keys() - seen == {"rekey", "cluster"}


def properties(schema: dict[str, Any]) -> set[str]:
    """The names that a document of this schema may have."""
    return {
        *schema["properties"],
        *(n for each in schema.get("anyOf", ()) for n in properties(each)),
    }
