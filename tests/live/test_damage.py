"""A live table whose definition or directories are damaged is refused in words."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from skipstone import LiveTable
from skipstone.errors import FormatError
from skipstone.live.definition import MARKER
from tests.live.tables import SCHEMA, run

#: the first page of a process is not mapped, so that reading it is an error
MEMORY = Path("/proc/self/mem")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A live table of one partition."""
    live = LiveTable.create(str(tmp_path / "live"), SCHEMA, timestamp="ts", durable=False)
    live.append(run(20))
    live.close()
    return tmp_path / "live"


def test_a_definition_whose_schema_is_no_schema(root: Path) -> None:
    document = json.loads((root / MARKER).read_text())
    schema = bytearray(base64.b64decode(document["schema"]))
    schema[8:24] = b"\xff" * 16
    document["schema"] = base64.b64encode(schema).decode()
    (root / MARKER).write_text(json.dumps(document))
    with pytest.raises(FormatError, match="definition of a live table") as caught:
        LiveTable.open(str(root), write=False)
    assert caught.value.file == str(root / MARKER)


def test_a_partition_that_is_not_there(root: Path) -> None:
    (partition,) = root.glob("1970-*")
    shutil.rmtree(partition)
    live = LiveTable.open(str(root), write=False)
    with pytest.raises(FormatError, match="_txn names the partition 1970") as caught:
        live.describe()
    assert caught.value.file == str(root / "_txn")


@pytest.mark.skipif(not MEMORY.exists(), reason="no file here fails when it is read")
def test_a_definition_that_cannot_be_read_is_named(root: Path) -> None:
    (root / MARKER).unlink()
    (root / MARKER).symlink_to(MEMORY)
    with pytest.raises(OSError, match="Input/output error") as caught:
        LiveTable.open(str(root))
    assert caught.value.filename == str(root / MARKER)


def test_a_writer_keeps_the_partitions_of_a_table_that_lost_its_txn(root: Path) -> None:
    """Else it would take them for those of a commit that never was."""
    stored = (root / "_txn").read_bytes()
    files = sorted(each for each in root.rglob("*") if each.name in ("data.parquet", "_pm"))
    assert len(files) == 2
    (root / "_txn").unlink()
    with pytest.raises(FormatError, match="has partitions and no _txn"):
        LiveTable.open(str(root), durable=False)
    assert sorted(each for each in root.rglob("*") if each.name in ("data.parquet", "_pm")) == files
    with (
        pytest.raises(FormatError, match="with no _txn"),
        LiveTable.open(str(root), write=False) as live,
    ):
        live.describe()
    (root / "_txn").write_bytes(stored)
    with LiveTable.open(str(root), durable=False) as live:
        assert live.append(run(5, start=20)).applied
        assert sum(each.rows for each in live.describe().partitions) == 25


def test_a_writer_names_a_pm_that_is_gone(root: Path) -> None:
    next(root.rglob("_pm")).unlink()
    with (
        LiveTable.open(str(root), durable=False) as live,
        pytest.raises(FormatError, match="a partition without its _pm"),
    ):
        live.append(run(5, start=20))
