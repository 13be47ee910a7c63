"""Every parser that bytes of others reach, with files to damage and what a user asks of them.

``modules`` are the byte layouts of ``docs/architecture.md`` that a parser reads. A test fails for a
layout that no parser here names.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.facts.compact import compact
from skipstone.facts.slice_upkeep import Slicing
from skipstone.indexes import text_groups
from skipstone.live.definition import MARKER
from skipstone.predicate.sql import parse_sql
from skipstone.rewrite.encrypted_file_list import list_path, read_list
from skipstone.xskipper.format.part import read_part
from tests.folders import GOLDEN
from tests.fuzz import tables
from tests.fuzz.batteries import Damaged
from tests.fuzz.parquet_files import (
    KEY,
    copied,
    encrypted_files,
    in_batteries,
    parquet_files,
    sample,
    searched,
    unwrapped,
    with_index_pages,
    with_kms,
    with_summary,
)
from tests.fuzz.questdb import PM, TXN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.fuzz.batteries import Attempt


@dataclass(frozen=True, slots=True)
class Parser:
    """``files(folder)`` makes the files; ``asks`` take turns at each damaged one."""

    modules: tuple[str, ...]
    files: Callable[[Path], Sequence[Path]]
    asks: tuple[Callable[[Path, Attempt], None], ...]
    text: bool = False


def _containers(folder: Path) -> list[Path]:
    """Paimon's own containers of every kind, and those of a table."""
    root = tables.make(folder)
    skipstone.Table(str(root)).export(str(folder / "paimon"), kind="paimon")
    made = [path for path in (folder / "paimon").rglob("*") if path.is_file()]
    if (GOLDEN / "paimon").is_dir():
        from tests.paimon.format.golden import read_cases

        for at, case in enumerate(read_cases(GOLDEN)[0][::7]):
            first = "top-" if case["name"].startswith("range-bitmap") else ""
            path = folder / f"{first}{at}.{case['schema'][0]['type'].replace(' ', '_')}.index"
            path.write_bytes(bytes.fromhex(case["index_hex"]))
            made.append(path)
    return made


def _selected(target: Path, attempt: Attempt) -> None:
    type_ = target.name.split(".")[1].replace("_", " ")
    golden = target.parent.name != "paimon"
    types = (
        {"c": type_} if golden else {"id": "BIGINT", "x": "DOUBLE", "s": "STRING", "t": "STRING"}
    )
    index = attempt(lambda: skipstone.PaimonFileIndex(str(target), types=types))
    if index is None:
        return
    if target.name.startswith("top-"):
        attempt(index.top, "c", 3)
    for name in types:
        attempt(index.select, f"{name} IS NULL")
        attempt(index.count, f"{name} IS NOT NULL")
        literal = "5" if types[name] in ("BIGINT", "INT", "DOUBLE", "SMALLINT") else "'s3'"
        attempt(index.select, f"{name} = {literal}")
        attempt(index.count, f"{name} <= {literal}")


def _pm(folder: Path) -> list[Path]:
    root = tables.make(folder, index=False)
    skipstone.Table(str(root)).migrate(str(folder / "pm"))
    made = [path for path in (folder / "pm").rglob("*") if path.is_file()]
    if (GOLDEN / "questdb").is_dir():
        golden = sorted((GOLDEN / "questdb").rglob("*.pm"))
        made += copied(folder, [each for each in golden if not each.name.startswith("bad_")])
    return made


def _damaged(battery: Callable[..., None], target: Path, attempt: Attempt) -> None:
    battery(Damaged(str(target), target.read_bytes(), None), attempt)


def _live(folder: Path) -> Path:
    root = folder / "live"
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("key", pa.int64())])
    live = skipstone.LiveTable.create(str(root), schema, timestamp="ts", durable=False)
    times = pa.array(np.arange(50) * 3_600_000_000).cast(schema.field("ts").type)
    live.append(pa.table([times, pa.array(np.arange(50))], schema=schema))
    live.close()
    return root


def _txn(folder: Path) -> list[Path]:
    root = _live(folder)
    made = [root / "_txn"]
    if (GOLDEN / "questdb").is_dir():
        made += copied(folder, sorted((GOLDEN / "questdb").rglob("*._txn")))
    return made


def _definition(folder: Path) -> list[Path]:
    return [_live(folder) / MARKER]


def _opened_live(target: Path, attempt: Attempt) -> None:
    root = str(target.parent)
    if not (target.parent / MARKER).is_file():
        return
    live = attempt(lambda: skipstone.LiveTable.open(root, write=False))
    if live is not None:
        attempt(lambda: str(live.describe()))
        live.close()
    table = attempt(lambda: skipstone.Table(root))
    if table is not None:
        attempt(table.count, "key < 9")


def _questdb_json(folder: Path) -> list[Path]:
    """Data files whose footer has QuestDB's JSON; only the text of it is damaged."""
    document = {
        "version": 1,
        "schema": [
            {"column_type": 6, "column_top": 0, "id": 0}, {"column_type": 10, "column_top": 3},
            {"column_type": 26, "column_top": 0, "format": 1, "ascii": True},
        ],
        "unused_bytes": 12,
        "squash_tracker": 3,
    }  # fmt: skip
    path = folder / "questdb.json"
    path.write_text(json.dumps(document))
    return [path]


def _migrated(target: Path, attempt: Attempt) -> None:
    root = target.parent / "q"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    text = target.read_bytes().decode("utf-8", "surrogateescape")
    table = sample().select(["id", "f", "text"])
    data = root / "data.parquet"
    pq.write_table(
        table.replace_schema_metadata({b"questdb": text.encode("utf-8", "replace")}), data
    )
    attempt(lambda: str(skipstone.ParquetFile(data).metadata))
    report = attempt(lambda: skipstone.Table(str(root)).migrate(str(target.parent / "pm")))
    if report is not None:
        attempt(str, report)
    shutil.rmtree(target.parent / "pm", ignore_errors=True)


def _xskipper(folder: Path) -> list[Path]:
    """The stores that the original wrote, of every version."""
    root = tables.make(folder)
    skipstone.Table(str(root)).export(str(folder / "store"))
    made = [path for path in (folder / "store").rglob("part-*") if path.is_file()]
    if (GOLDEN / "xskipper").is_dir():
        found: dict[str, Path] = {}
        for path in sorted((GOLDEN / "xskipper").rglob("part-*.parquet")):
            if len(path.parent.name) == 64:
                found.setdefault(f"{path.parent.parent.name}{path.stat().st_size // 512}", path)
        made += copied(folder, list(found.values()))
    return made


def _store_part(target: Path, attempt: Attempt) -> None:
    found = attempt(lambda: read_part(target.read_bytes()))
    if found is not None:
        attempt(lambda: found.footer.schema.to_json())
        attempt(lambda: found.table.validate())
    tables.inspected(target.parent, attempt)
    if "store" in target.parts:
        tables.Queried("store", xskipper=True)(target, attempt)


def _parts(folder: Path) -> list[Path]:
    tables.make(folder)
    return sorted((folder / "_t.skipstone" / "facts").glob("part-*"))


def _pieces(folder: Path) -> list[Path]:
    """Parts whose small filters have pieces."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_LEAST_FILTER", "_LEAST_COLUMN"):
            patch.setattr(f"skipstone.facts.filter_pieces.{name}", 1)
        return _parts(folder)


def _slices(folder: Path) -> list[Path]:
    table = skipstone.Table(str(tables.make(folder)))
    compact(table.store, table.listing, Slicing(files=1, group=1, text_files=1, text_group=1))
    return sorted((folder / "_t.skipstone" / "facts").glob("slices-*"))


def _filters(folder: Path) -> list[Path]:
    """The filters of row groups, of a table that is smaller than those that have them."""
    root = tables.make(folder, index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_groups, "LEAST_TEXT", 0)
        patch.setattr(text_groups, "_LEAST", 64)
        indexes = ["t:ngram(share=1)", "t:tokens(share=1, fpp=0.001)"]
        skipstone.Table(str(root)).build(indexes=indexes, pm="none")
    return sorted((folder / "_t.skipstone" / "packs").glob("*"))


def _packs(folder: Path) -> list[Path]:
    tables.make(folder)
    return sorted((folder / "_t.skipstone" / "packs").glob("*"))


_LABELS = {"kf": KEY, "k2": b"2" * 16}


def _encrypted_index(kind: str, folder: Path) -> list[Path]:
    how = skipstone.IndexEncryption(footer_key="kf", key_metadata={"id:minmax": "k2"})
    root = tables.make(folder, index=False)
    skipstone.Table(str(root), index_keys=_LABELS).build(indexes=tables.INDEXES, encryption=how)
    return sorted((folder / "_t.skipstone" / kind).glob("*"))


def _list_of_encrypted(folder: Path) -> list[Path]:
    """The list of the encrypted files of a table."""
    root = tables.make(folder, index=False)
    skipstone.Table(str(root)).encrypt(encryption=skipstone.Encryption(footer_key=KEY))
    return [Path(list_path(str(root)))]


def _opened_encrypted(target: Path, attempt: Attempt) -> None:
    keys = skipstone.Decryption(footer_key=KEY)
    attempt(lambda: read_list(str(tables.root_of(target)), keys))
    table = attempt(lambda: skipstone.Table(str(tables.root_of(target)), decryption=keys))
    if table is not None:
        count = attempt(table.count, "id = 77")
        if count not in (None, 1):
            raise tables.Wrong(f"counts {count}")


def _adjacent(folder: Path, indexes: Sequence[str] = tables.INDEXES) -> list[Path]:
    root = tables.make(folder, index=False)
    skipstone.Table(str(root)).build(indexes=indexes)
    skipstone.Table(str(root)).export(str(folder / "paimon"), kind="paimon")
    shutil.rmtree(folder / "_t.skipstone")
    return [path.rename(root / path.name) for path in (folder / "paimon").rglob("*.index")]


def _settings(folder: Path) -> list[Path]:
    tables.make(folder, index=False)
    path = folder / "skipstone.toml"
    path.write_text('index-location = "elsewhere"\nmemory = "1GiB"\n')
    path.chmod(0o600)
    return [path]


_PREDICATES = (
    "id = 77 AND NOT (x >= 1.5e3 OR s LIKE 'a%!_b' ESCAPE '!') OR t IN ('x', \"y\", NULL)",
    "id BETWEEN -3 AND CAST('12' AS BIGINT) AND s IS NOT NULL",
    "ts >= TIMESTAMP '2021-03-04 05:06:07.123456 Europe/Berlin' AND d < DATE'2020-02-29'",
    "x = 1.5BD OR id <=> 3L OR id % 3 = 1 AND `t` <> CONCAT(s, 'b')",
    "starts_with(s, 'ab') AND coalesce(id, 0) <> 5 /* note */ -- end",
)
_LITERALS = (
    r"s = 'a\101\u00e9\U0001F600\n\'\\' 'b'", r"""s = r'raw\n' OR s = R"x" OR s = "it's" """,
    "s = 'é\U0001f600' OR x = -.5e-3D OR x = 1e300 OR id = 9999999999999999999",
)  # fmt: skip


def _texts(texts: Sequence[str], folder: Path) -> list[Path]:
    made = []
    for at, text in enumerate(texts):
        path = folder / f"{at}.sql"
        path.write_text(text)
        made.append(path)
    return made


def _parsed(target: Path, attempt: Attempt) -> None:
    text = target.read_bytes().decode("utf-8", "replace")
    if attempt(parse_sql, text) is None:
        return
    schema = pa.schema(
        [("id", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("t", pa.string()),
         ("ts", pa.timestamp("us", "UTC")), ("d", pa.date32())]
    )  # fmt: skip
    path = target.parent / "rows.parquet"
    if not path.exists():
        pq.write_table(schema.empty_table(), path)
    file = skipstone.ParquetFile(path)
    attempt(file.plan, text)
    attempt(file.count, text)


_ENCODINGS = tuple(
    f"parquet/encodings/{name}.py"
    for name in ("plain", "dictionary", "rle", "delta", "byte_stream_split", "codecs")
)
_FORMAT = tuple(
    f"parquet/format/{name}.py"
    for name in (
        "footer", "metadata", "footer_arrays", "footer_scan", "footer_kernel", "footer_jit",
        "footer_layout", "footer_lanes", "enums", "schema",
    )
)  # fmt: skip
_THRIFT = (
    "parquet/thrift/compact.py",
    "parquet/thrift/structs.py",
    "parquet/thrift/arrays.py",
    "parquet/thrift/kernel_wire.py",
    "parquet/thrift/kernel_lanes.py",
)
_PAIMON = tuple(
    f"paimon/format/{name}.py"
    for name in (
        "container", "bitmap", "range_bitmap", "dictionary", "bit_slices", "bsi", "bloom_filter",
        "roaring", "roaring_bulk", "keys", "column_keys", "partial_blob",
    )
)  # fmt: skip
_XSKIPPER = (
    "xskipper/upgrade.py",
    *(f"xskipper/format/{name}.py" for name in
      ("part", "schema", "rows", "naming", "java_bloom", "sketch", "bloom_probe",
       "bloom_probe_jit", "v4_store", "encryption")),
)  # fmt: skip

#: by name
PARSERS: Mapping[str, Parser] = {
    "footer": Parser(
        (*_FORMAT, *_THRIFT), parquet_files, in_batteries("metadata", "footers_together")
    ),
    "inspection": Parser(_FORMAT, parquet_files, in_batteries("inspection")),
    "page-index": Parser(
        ("parquet/format/page_index.py", "parquet/format/bloom_filter.py",
         "parquet/format/bloom_jit.py"), parquet_files, in_batteries("indexes", "plans"),
    ),
    "pages": Parser(
        (*_ENCODINGS, "parquet/pages/levels.py", "parquet/pages/page_headers.py"),
        parquet_files, in_batteries("fetch", "query", "verification", "own")),
    "many-files": Parser((), tables.make_many, (tables.asked_together,)),
    "salvage": Parser((), parquet_files, in_batteries("salvage")),
    "index-pages": Parser(("parquet/pages/index_page.py",), with_index_pages, (searched,)),
    "encryption": Parser(
        ("parquet/encryption/modules.py",), encrypted_files,
        in_batteries("metadata", "indexes", "fetch", "query"),
    ),
    "key-material": Parser(
        ("parquet/encryption/key_material.py",), with_kms, (unwrapped,), text=True
    ),
    "summary": Parser(
        ("parquet/format/summary_file.py", "parquet/format/column_files.py"), with_summary,
        (tables.Queried(), tables.inspected),
    ),
    "paimon": Parser(
        (*_PAIMON, "paimon/index_blob.py"), _containers, (_selected, tables.inspected)
    ),
    # Containers have no checksum. A value of a range-bitmap that became another goes unnoticed, but
    # each row has one bitmap.
    "adjacent": Parser(_PAIMON, _adjacent, (tables.Queried(sums=False),)),
    "adjacent-bitmap": Parser(
        (), partial(_adjacent, indexes=["id:bitmap", "s:bitmap(version=1)"]), (tables.Queried(),)
    ),
    "pm": Parser(
        tuple(f"questdb/format/{name}.py" for name in
              ("layout", "pm_header", "pm", "values", "writer", "footer_to_pm", "pm_columns")),
        _pm, tuple(partial(_damaged, each) for each in PM.values()),
    ),
    "txn": Parser(
        ("questdb/format/txn.py",), _txn,
        (*(partial(_damaged, each) for each in TXN.values()), _opened_live),
    ),
    "questdb-json": Parser(("questdb/format/types.py",), _questdb_json, (_migrated,), text=True),
    "xskipper": Parser(_XSKIPPER, _xskipper, (_store_part,)),
    "facts": Parser(
        (
            "facts/part_columns.py", "facts/parts.py", "indexes/minmax.py", "indexes/valuelist.py",
            "indexes/bloom.py", "indexes/text.py", "indexes/text_keys.py",
        ), _parts,
        (tables.Queried(), tables.Checked(), tables.inspected)
    ),
    "pieces": Parser(
        ("facts/filter_pieces.py",), _pieces, (tables.Queried(), tables.Checked()),
    ),
    "slices": Parser(
        ("indexes/bloom_slices.py",), _slices, (tables.Queried(), tables.Checked()),
    ),
    "row-group-filters": Parser(
        ("indexes/row_group_filters.py",), _filters, (tables.Queried(),)
    ),
    "packs": Parser(("facts/encode.py",), _packs, (tables.Queried(), tables.Checked())),
    "encrypted-facts": Parser(
        ("facts/parts.py",), partial(_encrypted_index, "facts"),
        (tables.Queried(keys=_LABELS), tables.Checked(_LABELS)),
    ),
    "encrypted-packs": Parser(
        ("facts/encrypted_packs.py",), partial(_encrypted_index, "packs"),
        (tables.Queried(keys=_LABELS), tables.Checked(_LABELS)),
    ),
    "encrypted-list": Parser(
        ("rewrite/encrypted_file_list.py",), _list_of_encrypted, (_opened_encrypted,)
    ),
    "live": Parser(("live/definition.py",), _definition, (_opened_live,), text=True),
    "settings": Parser((), _settings, (tables.counted,), text=True),
    "predicate": Parser((), partial(_texts, _PREDICATES), (_parsed,), text=True),
    "literals": Parser((), partial(_texts, _LITERALS), (_parsed,), text=True),
}  # fmt: skip
