"""Parquet files to damage, and what a user asks of them."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from tests.folders import GOLDEN
from tests.fuzz import tables
from tests.fuzz.batteries import BATTERIES, Damaged
from tests.fuzz.corpus import BOMB, golden_corpus, keys_for
from tests.parquet.encryption.keys import LABELS, InMemoryKms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.fuzz.batteries import Attempt


KEY = b"0123456789012345"


def _keys(path: Path) -> skipstone.Decryption | None:
    if path.name.startswith("own-"):
        return skipstone.Decryption(footer_key=KEY, column_keys={"id": KEY})
    return keys_for(path)


def _battery(name: str, target: Path, attempt: Attempt) -> None:
    BATTERIES[name](Damaged(str(target), target.read_bytes(), _keys(target)), attempt)


def in_batteries(*names: str) -> tuple[Callable[[Path, Attempt], None], ...]:
    return tuple(partial(_battery, name) for name in names)


def sample() -> pa.Table:
    number = np.arange(400)
    return pa.table(
        {
            "id": number,
            "text": [f"t{at % 7}" if at % 5 else None for at in range(400)],
            "f": number / 3,
            "flag": number % 3 == 0,
            "list": [[at, None] * (at % 3) for at in range(400)],
        }
    )


def copied(folder: Path, paths: Sequence[Path]) -> list[Path]:
    """The files with what lies beside them, each in a folder of its own."""
    made = []
    for at, path in enumerate(paths):
        target = folder / str(at) / path.name
        target.parent.mkdir()
        shutil.copy(path, target)
        beside = path.parent / f"_KEY_MATERIAL_FOR_{path.name}.json"
        if beside.is_file():
            shutil.copy(beside, target.parent)
        made.append(target)
    return made


def _golden(folder: Path) -> list[Path]:
    if not GOLDEN.is_dir():
        return []
    found = dict.fromkeys(path for path in golden_corpus(GOLDEN) if path.name != BOMB)
    return copied(folder, list(found))


def parquet_files(folder: Path) -> list[Path]:
    """Golden files, and files of Arrow with every codec and encoding."""
    made = []
    for codec in ("none", "snappy", "gzip", "brotli", "lz4", "zstd"):
        for version in ("1.0", "2.0"):
            path = folder / f"{codec}-{version}.parquet"
            pq.write_table(
                sample(), path, compression=codec, data_page_version=version, row_group_size=200,
                max_rows_per_page=50, write_batch_size=50, write_page_index=True,
                write_page_checksum=version == "2.0",
                bloom_filter_options={"id": {"ndv": 300, "fpp": 0.01}},
            )  # fmt: skip
            made.append(path)
    encodings = {
        "id": "DELTA_BINARY_PACKED", "f": "BYTE_STREAM_SPLIT", "flag": "RLE",
        "list.list.element": "DELTA_BINARY_PACKED",
    }  # fmt: skip
    for text in ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        path = folder / f"{text}.parquet"
        pq.write_table(
            sample(), path, use_dictionary=False, column_encoding=encodings | {"text": text},
            compression="none", data_page_version="2.0",
        )  # fmt: skip
        made.append(path)
    return [*_golden(folder), *made]


def with_index_pages(folder: Path) -> list[Path]:
    path = folder / "index-pages.parquet"
    skipstone.write_table(
        sample().select(["id", "text"]), path, row_group_rows=200, page_rows=10, sorting=["id"],
        index_pages=["id"],
    )  # fmt: skip
    return [path]


def searched(target: Path, attempt: Attempt) -> None:
    file = attempt(skipstone.ParquetFile, target)
    if file is None:
        return
    pages = attempt(file.index_pages, "id")
    if pages is not None:
        attempt(pages.find, 77)
        attempt(pages.range, 30, 90)
        attempt(pages.ordinals, 3, 250)
    attempt(lambda: file.read_rows(["id"], [(3, 5), (250, 260)]).validate())


def encrypted_files(folder: Path) -> list[Path]:
    made = []
    for algorithm in ("AES_GCM_V1", "AES_GCM_CTR_V1"):
        for plaintext in (False, True):
            path = folder / f"own-{algorithm}-{plaintext}.parquet"
            encryption = skipstone.Encryption(
                footer_key=KEY, column_keys={"id": KEY}, algorithm=algorithm,
                plaintext_footer=plaintext,
            )  # fmt: skip
            skipstone.write_table(
                sample().select(["id", "text"]), path, page_rows=50, encryption=encryption,
                bloom={"id": 0.01},
            )  # fmt: skip
            made.append(path)
    return [*made, *(path for path in _golden(folder) if path.suffix == ".encrypted")]


def with_kms(folder: Path) -> list[Path]:
    path = folder / "kms.parquet"
    encryption = skipstone.Encryption(
        kms=_kms(), footer_key_id="kf", column_key_ids={"id": "kc1"}, internal_key_material=False
    )
    skipstone.write_table(sample().select(["id", "text"]), path, encryption=encryption)
    return [each for each in folder.iterdir() if each.suffix == ".json"]


def _kms() -> InMemoryKms:
    return InMemoryKms({label.decode(): key for label, key in LABELS.items()})


def unwrapped(target: Path, attempt: Attempt) -> None:
    decryption = skipstone.Decryption(kms=_kms())
    file = attempt(
        lambda: skipstone.ParquetFile(target.parent / "kms.parquet", decryption=decryption)
    )
    if file is not None:
        attempt(lambda: file.read_rows().validate())


def with_summary(folder: Path) -> list[Path]:
    root = tables.make(folder, index=False)
    skipstone.Table(str(root)).write_metadata()
    return [root / "_metadata"]
