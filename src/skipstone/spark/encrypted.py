"""Encrypted Parquet files and Spark: who has the keys.

Keys of ours stay in the process that was given them: options of a reader stand in Spark's plans,
logs and history. Spark's own reader has keys from a KMS client in Java, by Spark's configuration
(``parquet.crypto.factory.class``); ``format("skipstone")`` reads no encrypted file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skipstone.errors import KeyUnavailableError, UnsupportedError

from .session import is_connect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["locked", "require_kms"]

_FACTORY: Final = "parquet.crypto.factory.class"
_HERE: Final = "read them in this process: skipstone.Table(path, decryption=…).query(where)"
_HINT: Final = (
    "keys do not travel in options, which stand in plans and logs: read such files with Spark's own"
    f" reader and a KMS client ({_FACTORY}), or {_HERE}"
)


def locked(error: KeyUnavailableError) -> KeyUnavailableError:
    """The error as ``format("skipstone")`` raises it."""
    return KeyUnavailableError(error.message, hint=_HINT)


def require_kms(path: str, spark: SparkSession, options: Mapping[str, str]) -> None:
    """``UnsupportedError`` where this session cannot decrypt Parquet files, as far as that is to be
    seen: the configuration of a server of Spark Connect is not."""
    if is_connect(spark) or any(name.lower() == _FACTORY for name in options):
        return
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    if hadoop.get(_FACTORY) is None:
        raise UnsupportedError(
            f"{path} is encrypted, and this session has no KMS client to read it with",
            hint=f"Spark takes keys from nobody else: set {_FACTORY} and"
            f" parquet.encryption.kms.client.class, or {_HERE}",
        )
