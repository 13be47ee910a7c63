"""The identity of one version of one file. Every fact belongs to one.

``ObjectId`` = canonical path, size in bytes, mtime in the listing's unit, etag. Two identities are
the same file version when path and size agree, the mtimes agree in the coarser of their two units,
and the etags agree where both sides have one. An object store's etag is the store's; a local file's
is ``<inode>-<ctime_ns>``, which catches a file replaced by one of equal size with its mtime
restored.

Canonical paths: local files are absolute raw paths (``/data/a b.parquet``); object stores keep
scheme family and bucket (``s3a://b/k`` and ``s3://b/k`` are ``s3://b/k``). Other filesystems of
Hadoop keep scheme and authority (``hdfs://nn:8020/t``); a path without an authority has three
slashes (``dbfs:/t`` is ``dbfs:///t``). Paths are raw
everywhere; only Spark's ``_metadata.file_path`` is URI-encoded, and ``encode_uri`` /
``decode_uri`` are the one place where the two meet. Its encoding is that of ``java.net.URI`` with
several arguments, which is not the one of browsers: letters outside ASCII stay as they are, and a
local file has one slash (``file:/a%20é``; ``input_file_name()`` has three).
"""

from __future__ import annotations

import json
import os
import re
from typing import Literal, TypeAlias
from urllib.parse import quote, unquote

from skipstone._dataclasses import dataclass

from .errors import SkipstoneError

TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]
UNITS_PER_SECOND: dict[str, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*):(?=/|$)")
_FAMILY = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "wasbs": "wasb", "abfss": "abfs"}
#: Families of object stores: a path begins with a bucket or container, with any number of slashes.
OBJECT_STORES = frozenset(
    {"s3", "gs", "abfs", "az", "azure", "adl", "http", "https", "oss", "cos", "obs", "r2"}
)
# What java.net.URI escapes in a path when Hadoop's Path.toUri prints it: ASCII that is not legal in
# a path, ISO controls, and Unicode's space, line and paragraph separators; nothing else outside
# ASCII.
_ESCAPED = re.compile(
    '[\x00-\x20"#%<>?\\[\\\\\\]^`{|}\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]'
)


_SLASHES = re.compile("//+")

# A path without any of these is its own shortest form.
_UNUSUAL = ("//", "/.", "\0")


def canonical_path(path: str | os.PathLike[str]) -> str:
    """``path`` in the only spelling that identities compare: raw, absolute, family and bucket.

    ``file:/x``, ``file:///x`` and ``/x`` are all ``/x``. A relative path is taken from the working
    directory, and ``~`` is a home. A trailing ``/`` is dropped, repeated ones within a local path
    collapse.
    """
    path = os.fspath(path)
    if not path:
        raise SkipstoneError("a path is empty", hint="name a file or a directory; here is '.'")
    if path[:1] == "~":
        path = os.path.expanduser(path)  # noqa: PTH111 - a path of another user may not exist
    if path[:1] == "/" and path[-1] != "/" and not any(each in path for each in _UNUSUAL):
        return path  # most are canonical already
    if "\0" in path:
        raise SkipstoneError(f"no path: {path!r}", hint="a path has no NUL character")
    match = _SCHEME.match(path)
    if match is None or match.group(1) == "file":
        local = path if match is None else path[match.end() :]
        # Not Path.resolve: a symbolic link is a path of its own, as in Spark's listing.
        local = os.path.abspath(local or "/")  # noqa: PTH100
        return local if not local.startswith("//") else local[1:]
    scheme = match.group(1).lower()
    scheme = _FAMILY.get(scheme, scheme)
    rest = path[match.end() :]
    if scheme in OBJECT_STORES:
        return f"{scheme}://{rest.strip('/')}"
    # As Hadoop's Path, which keeps "." and "..", and drops repeated slashes.
    authority, below = "", rest
    if rest.startswith("//") and not rest.startswith("///"):
        authority, slash, below = rest[2:].partition("/")
        below = slash + below
    below = _SLASHES.sub("/", below)
    return f"{scheme}://{authority}{below.rstrip('/')}"


def is_hadoop(path: str) -> bool:
    """Whether the canonical ``path`` lies in a filesystem that only Hadoop knows."""
    scheme, slashes, _ = path.partition("://")
    return bool(slashes) and scheme not in OBJECT_STORES


def encode_uri(path: str) -> str:
    """A raw path as Spark's ``_metadata.file_path`` prints it (``/a b`` -> ``file:/a%20b``).

    Object stores keep the scheme of ``path``, because Spark prints the spelling it was given.
    """
    match = _SCHEME.match(path)
    if match is None or match.group(1) == "file":
        local = path if match is None else "/" + path[match.end() :].lstrip("/")
        return "file:" + _escape(local)
    if path.startswith("///", match.end()):  # Hadoop prints no empty authority
        return path[: match.end()] + _escape(path[match.end() + 2 :])
    return path[: match.end()] + _escape(path[match.end() :])


def _escape(path: str) -> str:
    return _ESCAPED.sub(lambda match: quote(match.group(), safe=""), path)


def decode_uri(uri: str) -> str:
    """The raw path behind a URI-encoded ``_metadata.file_path``; inverse of ``encode_uri``."""
    match = _SCHEME.match(uri)
    if match is None:
        return unquote(uri)
    if match.group(1) == "file":
        return "/" + unquote(uri[match.end() :]).lstrip("/")
    return uri[: match.end()] + unquote(uri[match.end() :])


def local_etag(stat: os.stat_result) -> str:
    """The etag of a local file: inode and change time, neither of which ``touch -d`` restores."""
    return etag_of(stat.st_ino, stat.st_ctime_ns)


def etag_of(inode: int, changed: int) -> str:
    """As ``local_etag``, from the inode and the change time in nanoseconds."""
    return f"{inode}-{changed}"


def same_instant(a: int, a_unit: str, b: int, b_unit: str) -> bool:
    """True when two mtimes agree in the coarser of their units (a finer one is truncated)."""
    a_scale, b_scale = UNITS_PER_SECOND[a_unit], UNITS_PER_SECOND[b_unit]
    if a_scale > b_scale:
        return a // (a_scale // b_scale) == b
    return b // (b_scale // a_scale) == a


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectId:
    """One version of one file.

    ``path`` is canonical; ``size`` in bytes, ``None`` where the source does not know it (a foreign
    Xskipper row); ``mtime`` counts ``unit`` since the epoch; ``etag`` is ``None`` where there is
    none.
    """

    path: str
    size: int | None
    mtime: int
    unit: TimeUnit = "ns"
    etag: str | None = None

    @property
    def mtime_ns(self) -> int:
        """``mtime`` in nanoseconds."""
        return self.mtime * (10**9 // UNITS_PER_SECOND[self.unit])

    def same_version(self, other: ObjectId) -> bool:
        """True when both name the same version, by all that both sides know."""
        if self.path != other.path:
            return False
        if self.size is not None and other.size is not None and self.size != other.size:
            return False
        if self.etag is not None and other.etag is not None and self.etag != other.etag:
            return False
        return same_instant(self.mtime, self.unit, other.mtime, other.unit)

    def is_local(self, path: str, stat: os.stat_result) -> bool:
        """Whether the local file at ``path``, which has this status, is this version."""
        return (
            self.size in (None, stat.st_size)
            and self.path in (path, canonical_path(path))
            and same_instant(self.mtime, self.unit, stat.st_mtime_ns, "ns")
            and (self.etag is None or self.etag == local_etag(stat))
        )

    @classmethod
    def of_local(cls, path: str, stat: os.stat_result) -> ObjectId:
        """The identity of a local file from its ``os.stat`` result."""
        return cls(
            path=canonical_path(path),
            size=stat.st_size,
            mtime=stat.st_mtime_ns,
            unit="ns",
            etag=local_etag(stat),
        )


def canonical_json(value: object) -> str:
    """``value`` as compact JSON with sorted keys: equal documents have equal texts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
