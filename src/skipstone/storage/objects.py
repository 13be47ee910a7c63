"""Object stores through obstore: S3 and compatible stores, Google Cloud Storage, Azure.

Options are those of obstore (``access_key_id``, ``region``, ``endpoint`` …); the names that fsspec
and Hadoop's S3A use for them work too. Without keys, they come from the environment and the role of
the machine, as in every S3 client.

mtimes are in seconds: a HEAD request has no finer unit, though listings of some stores have.

obstore waits for its own threads, which a fork of the process lacks. So a process that is forked
after a request sends none: it would wait forever.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import obstore
from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.identity import ObjectId

from .base import ByteRange, count_read, stale
from .listing import SUMMARY, Listing
from .object_listing import AT_ONCE, ObjectLister
from .remote import RemoteReads, data_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from obstore import GetResult
    from obstore.store import ObjectStore

    from .object_listing import Meta


# Stores with the S3 protocol and their own scheme; they need an endpoint.
_LIKE_S3 = {"s3", "oss", "cos", "obs", "r2"}
_ALIASES = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "endpoint_url": "endpoint",
    "anon": "skip_signature",
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint": "endpoint",
    "fs.s3a.endpoint.region": "region",
}
# Environment variables for the endpoint, as in the tools of AWS; the first that is set counts.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_CLIENT = {"allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "proxy_url"}
# An index that does not respond must not delay a query for long.
_PATIENCE = timedelta(seconds=30)
# The process that has sent the first request. A fork of it inherits the entry.
_SENDERS: Final = set[int]()


def named_options(path: str, options: Mapping[str, str]) -> dict[str, str]:
    """``options`` under object_store's names; for S3 with the endpoint of the environment."""
    found = {_ALIASES.get(name, name): value for name, value in options.items()}
    if "endpoint" not in found and path.startswith("s3://"):
        named = (os.environ.get(name) for name in _ENDPOINTS)
        endpoint = next((each for each in named if each), None)
        if endpoint is not None:
            found["endpoint"] = endpoint
    if str(found.get("endpoint", path)).startswith("http://"):
        # The user named an http endpoint, so http is allowed.
        found.setdefault("allow_http", "true")
    return found


class ObjectStorage(RemoteReads):
    """One bucket (or container), named by ``base`` (``s3://bucket``)."""

    at_once = AT_ONCE

    def __init__(
        self,
        base: str,
        store: ObjectStore,
        *,
        gap: int = 1024 * 1024,
        limit: int = 16 * 1024 * 1024,
    ) -> None:
        super().__init__(base, gap, limit)
        self.store = store
        self.requests = 0
        self._counting = threading.Lock()
        self._lister = ObjectLister(store, self._count)

    @classmethod
    def at(cls, path: str, options: Mapping[str, str], retries: int = 10) -> ObjectStorage:
        """The storage of the bucket that ``path`` (canonical) lies in."""
        from obstore.store import S3Store, from_url

        scheme, _, rest = path.partition("://")
        bucket = rest.partition("/")[0]
        base = f"{scheme}://{bucket}"
        settings: dict[str, Any] = dict(named_options(path, options))
        client: Any = {name: settings.pop(name) for name in _CLIENT & settings.keys()}
        config: Any = settings
        if scheme in _LIKE_S3 and scheme != "s3" and "endpoint" not in config:
            raise UnsupportedError(
                f"{scheme}:// is read through its S3 protocol, and no endpoint is given",
                hint="pass storage_options={'endpoint': 'https://…', …}",
            )
        retry: Any = {"max_retries": retries, "retry_timeout": _PATIENCE}
        try:
            if scheme in _LIKE_S3:
                store: ObjectStore = S3Store(
                    bucket, config=config, client_options=client, retry_config=retry
                )
            else:
                store = from_url(base, config=config, client_options=client, retry_config=retry)
        except (BaseError, ValueError) as error:
            hint = "paths are local, s3://, gs:// or abfs://"
            if "onfiguration key" in str(error):
                hint = "storage options are endpoint, region, access_key_id, secret_access_key, …"
            raise UnsupportedError(f"cannot open {base}: {_brief(error)}", hint=hint) from error
        return cls(base, store)

    def _key(self, path: str) -> str:
        if path == self.base:
            return ""
        if not path.startswith(f"{self.base}/"):
            raise FileNotFoundError(f"{path} is not in {self.base}")
        return path[len(self.base) + 1 :]

    def _check_process(self) -> None:
        """Before a request; see the module."""
        if not _SENDERS:
            _SENDERS.add(os.getpid())
        if os.getpid() not in _SENDERS:
            raise UnsupportedError(
                f"{self.base}: this process was forked after a request to an object store, and"
                " cannot send any",
                hint="start processes in another way: multiprocessing.get_context('spawn')",
            )

    def _count(self) -> None:
        with self._counting:
            self.requests += 1

    # -- listing ----------------------------------------------------------------------------------

    def list_all(self, prefix: str) -> Listing:
        return self._listing(prefix, self._below(prefix))

    def list_files(self, root: str, known: Callable[[], Sequence[str]] | None = None) -> Listing:
        start = len(root) - len(self.base)
        below, summary = self._below(root, known), f"{root}/{SUMMARY}"[len(self.base) + 1 :]
        self._summaries[root] = None
        keys = [(meta["path"][start:], meta["size"]) for meta in below]
        chosen = data_files(keys)
        for meta in below:
            if meta["path"] == summary:
                self._summaries[root] = self._id(meta)
        found = [below[at] for at in chosen.positions]
        listing = self._listing(root, found) if found else self._itself(root)
        listing = replace(listing, empty=chosen.empty, top=chosen.top)
        return self._latest(root, listing)

    def _listing(self, root: str, metas: Sequence[Meta]) -> Listing:
        metas = sorted(metas, key=itemgetter("path"))
        count, etags = len(metas), [meta["e_tag"] for meta in metas]
        return Listing(
            root=root,
            paths=[f"{self.base}/{meta['path']}" for meta in metas],
            sizes=np.fromiter((meta["size"] for meta in metas), np.int64, count),
            mtimes=np.fromiter(map(_seconds, metas), np.int64, count),
            unit="s",
            etags=None if all(etag is None for etag in etags) else etags,
        )

    def _itself(self, root: str) -> Listing:
        """``root`` as a single object; an error when nothing exists there."""
        try:
            if root != self.base:
                return Listing.of(root, [self.stat(root)], unit="s")
        except FileNotFoundError:
            if not self.has_children(root):
                raise SkipstoneError(
                    f"no objects below {root}", hint="check the spelling of the path"
                ) from None
        return Listing.of(root, [], unit="s")

    def _below(self, prefix: str, known: Callable[[], Sequence[str]] | None = None) -> list[Meta]:
        def keys() -> list[str]:
            start, below = len(self.base) + 1, f"{prefix}/"
            paths = () if known is None else known()
            return [path[start:] for path in paths if path.startswith(below)]

        self._check_process()
        try:
            return self._lister.below(self._key(prefix), None if known is None else keys)
        except (BaseError, OSError, ValueError) as error:
            raise SkipstoneError(
                f"cannot list {prefix}: {_brief(error)}",
                hint="check the endpoint, the keys and the names of the objects",
            ) from error

    def _id(self, meta: Mapping[str, Any]) -> ObjectId:
        return ObjectId(
            path=f"{self.base}/{meta['path']}",
            size=meta["size"],
            mtime=_seconds(meta),
            unit="s",
            etag=meta["e_tag"],
        )

    def has_children(self, prefix: str) -> bool:
        self._check_process()
        self._count()
        try:
            pages = iter(obstore.list(self.store, self._key(prefix) or None, chunk_size=1))
            return bool(next(pages, ()))
        except (BaseError, OSError, ValueError):
            return False

    # -- reading ----------------------------------------------------------------------------------

    @contextmanager
    def _request(self, path: str) -> Iterator[str]:
        """The key of ``path``; obstore's errors inside become ``OSError``."""
        self._check_process()
        self._count()
        try:
            yield self._key(path)
        except PreconditionError as error:
            raise stale(path) from error
        except FileNotFoundError as error:
            # The text of obstore's error is the server's page and a dump of the request.
            what = "bucket" if "NoSuchBucket" in str(error) else "object"
            raise FileNotFoundError(errno.ENOENT, f"no such {what}", path) from error
        except BaseError as error:
            if isinstance(error, OSError):
                raise
            denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
            kind = PermissionError if denied else OSError
            raise kind(f"{path}: {_brief(error)}") from error
        except ValueError as error:  # a name that no object can have
            raise FileNotFoundError(f"{path}: {_brief(error)}") from error

    def stat(self, path: str) -> ObjectId:
        with self._request(path) as key:
            return self._id(cast("Mapping[str, Any]", obstore.head(self.store, key)))

    def read(self, path: str) -> bytes:
        with self._request(path) as key:
            return bytes(_whole(path, obstore.get(self.store, key)))

    def read_range(
        self, path: str, offset: int, length: int, version: ObjectId | None = None
    ) -> memoryview:
        """``length`` bytes from ``offset``, fewer at the end; checked against ``version``."""
        if not length:
            return memoryview(b"")
        options: dict[str, Any] = {"range": (offset, offset + length)}
        if version is not None and version.etag is not None:
            options["if_match"] = version.etag
        with self._request(path) as key:
            answer = obstore.get(self.store, key, options=options)  # type: ignore[arg-type]
            current = self._id(cast("Mapping[str, Any]", answer.meta))
            if version is not None and not version.same_version(current):
                raise stale(path)
            return _whole(path, answer)

    def keep_end(self, version: ObjectId, data: memoryview) -> None:
        if version.etag is not None:
            super().keep_end(version, data)

    def keep_ahead(self, ranges: Sequence[ByteRange], versions: Mapping[str, ObjectId]) -> None:
        sure = {path for path, version in versions.items() if version.etag is not None}
        super().keep_ahead([each for each in ranges if each.path in sure], versions)

    def read_tail(self, path: str, length: int) -> tuple[ObjectId, memoryview]:
        try:
            with self._request(path) as key:
                answer = obstore.get(self.store, key, options={"range": {"suffix": length}})
                version = self._id(cast("Mapping[str, Any]", answer.meta))
                return version, _whole(path, answer)
        except FileNotFoundError:
            raise
        except OSError:
            # Azure has no suffix ranges, and S3 refuses them for an empty object.
            return super().read_tail(path, length)

    # -- writing ----------------------------------------------------------------------------------

    def put(self, path: str, data: bytes | memoryview, sources: Iterable[str] = ()) -> None:
        with self._request(path) as key:
            # Arrow's buffers are of signed bytes, which obstore does not take.
            obstore.put(self.store, key, memoryview(data).cast("B"))

    def delete(self, *paths: str) -> None:
        for path in paths:
            with suppress(FileNotFoundError), self._request(path) as key:
                obstore.delete(self.store, key)

    def remove_empty(self, prefix: str) -> None:
        pass  # there are no directories

    def left_overs(self, directory: str) -> dict[str, OSError | None]:
        return {}  # a put creates an object completely or not at all


def _whole(path: str, answer: GetResult) -> memoryview:
    """The bytes of an answer; ``OSError`` if they are fewer than it announced. Such an answer must
    not look like a damaged object, which a vacuum would remove."""
    data, (start, stop) = memoryview(bytes(answer.bytes())), answer.range
    if len(data) != stop - start:
        raise OSError(f"{path}: the store sent {len(data):,} of {stop - start:,} bytes")
    count_read(path, start, len(data))
    return data


def _seconds(meta: Mapping[str, Any]) -> int:
    modified: datetime = meta["last_modified"]
    return int(modified.timestamp() // 1)


# The meaning of texts in obstore's errors; the first one found counts.
_MEANINGS: Final = (
    ("NoSuchBucket", "there is no such bucket"),
    ("InvalidAccessKeyId", "the store does not know the access key"),
    ("SignatureDoesNotMatch", "the secret key is wrong"),
    ("169.254.169.254", "no keys were given, and this machine has no role"),
    ("error sending request", "it does not answer"),
    ("AccessDenied", "access is denied"),
    ("403 Forbidden", "access is denied"),
)
_ENDPOINT: Final = re.compile(r"performing \w+ (https?://[^/\s]+)")


def _brief(error: Exception) -> str:
    """An error in a few words: obstore appends its own debug output and the server's page."""
    text = str(error)
    for part, meaning in _MEANINGS:
        if part in text:
            asked = _ENDPOINT.search(text) if meaning == "it does not answer" else None
            return meaning if asked is None else f"{asked[1]} does not answer"
    return text.splitlines()[0][:300]
