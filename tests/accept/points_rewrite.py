"""Files written anew: encrypted, decrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from click.testing import CliRunner

import skipstone
from skipstone import Encryption
from skipstone.cli import cli
from skipstone.rewrite import decrypt, encrypt
from tests.accept.registry import point

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench


@point(
    "rewrite: a file is encrypted as it is, read with its keys by us and by Arrow, and decrypted"
)
def encrypted(bench: Workbench) -> None:
    path, key = bench.home / "orders.parquet", b"0123456789012345"
    rows = pa.table({"id": list(range(1000)), "city": ["Oslo", "Bergen"] * 500})
    pq.write_table(rows, path, row_group_size=300, write_page_index=True)
    encrypt(path, encryption=Encryption(footer_key=key, aad_prefix=b"orders"))
    assert b"Bergen" not in path.read_bytes()
    keys = skipstone.Decryption(footer_key=key, aad_prefix=b"orders")
    assert skipstone.ParquetFile(path, decryption=keys).query().equals(rows)
    properties = pe.create_decryption_properties(footer_key=key)
    assert pq.read_table(path, decryption_properties=properties).equals(rows)
    decrypt(path, decryption=keys)
    assert pq.read_table(path).equals(rows)


@point("rewrite: on the command line a key is where it lies, and a wrong one gives no rows")
def typed(bench: Workbench) -> None:
    path, key = bench.home / "orders.parquet", bench.home / "key"
    pq.write_table(pa.table({"id": [1, 2, 3]}), path)
    key.write_text("text:0123456789012345")
    runner = CliRunner()
    arguments = ["encrypt", str(path), "--footer-key"]
    refused = runner.invoke(cli, [*arguments, "0123456789012345"])
    assert refused.exit_code == 2
    assert "0123456789012345" not in refused.stdout + refused.stderr
    assert runner.invoke(cli, [*arguments, f"file:{key}"]).exit_code == 0
    key.write_text("text:0123456789012346")
    wrong = runner.invoke(cli, ["decrypt", str(path), "--footer-key", f"file:{key}"])
    assert wrong.exit_code == 1
    assert "the footer does not authenticate" in wrong.stderr
