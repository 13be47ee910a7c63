"""A disk that is full at any write: the error says so, the file stays, and nothing is left over."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Decryption, Encryption
from skipstone.rewrite import decrypt, encrypt, rekey
from tests.parquet.encryption.keys import PlainKms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


VERBS: dict[str, Callable[[Path], object]] = {
    "encrypt": lambda path: encrypt(path, encryption=_keys()),
    "decrypt": lambda path: decrypt(path, decryption=Decryption(kms=PlainKms())),
    "rekey": lambda path: rekey(path, kms=PlainKms(), master_keys={"k": "new"}),
}


def _keys() -> Encryption:
    return Encryption(footer_key_id="k", kms=PlainKms())


@pytest.mark.parametrize("verb", VERBS)
def test_full_disk(tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.parquet"
    values = np.random.default_rng(0).integers(0, 1 << 62, 600_000)
    pq.write_table(pa.table({"a": values}), path, use_dictionary=False)
    if verb != "encrypt":
        encrypt(path, encryption=_keys())
    before, writev = path.read_bytes(), os.writev
    room = 0
    while True:
        left = room

        def full(descriptor: int, pieces: list[bytes]) -> int:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return writev(descriptor, pieces)

        with monkeypatch.context() as patched:
            patched.setattr(os, "writev", full)
            try:
                VERBS[verb](path)
                break
            except OSError as error:
                failed = error
        assert (failed.errno, failed.filename) == (errno.ENOSPC, str(path))
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]
        room += 1
    assert room > 1
