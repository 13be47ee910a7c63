"""HDFS over WebHDFS: HTTP, without Java and Spark.

Requests go to the name node first. For content it names a data node, which gets the next request.
The address of the name node's HTTP server comes from

1. the option ``webhdfs``: ``http://host:9870``, or several with commas between them;
2. ``hdfs-site.xml`` in ``HADOOP_CONF_DIR``: ``dfs.namenode.http-address``, with the names of a
   nameservice and its nodes behind it where there are several;
3. port 9870 of the host in the path.

If there are several name nodes, the active one answers. The user is the option ``user``,
``HADOOP_USER_NAME`` or the user of this process; the option ``token`` is a delegation token, for
clusters with Kerberos.

Source: Hadoop's "WebHDFS REST API".
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import threading
import weakref
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

import numpy as np

from skipstone.errors import UnsupportedError
from skipstone.identity import ObjectId

from .file_status import FileStatuses
from .hadoop_files import HINT, PORT, WEBHDFS, error_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_TIMEOUT: Final = 60.0
# How many directories are listed at a time, and how many connections to one server are kept.
_AT_ONCE: Final = 8
_ASCII: Final = "".join(map(chr, range(0x21, 0x7F)))
_STANDBY: Final = ("StandbyException", "RetriableException")


class WebFiles:
    """``HadoopFiles`` at ``base``, by the name nodes' HTTP servers at ``addresses``."""

    needs_session = False
    appears_whole = False

    def __init__(self, base: str, addresses: Sequence[str], options: Mapping[str, str]) -> None:
        self.base, self._addresses = base, list(addresses)
        token = options.get("token")
        user = options.get("user") or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self._who = {"delegation": token} if token else {"user.name": user}
        # Connections that are not in use, by address.
        self._idle: dict[str, list[HTTPConnection]] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._idle)

    @classmethod
    def at(cls, base: str, options: Mapping[str, str]) -> Self:
        """The HDFS of ``base``; ``UnsupportedError`` where its address is not known."""
        for name in options:
            if name not in (WEBHDFS, "user", "token"):
                raise UnsupportedError(
                    f"HDFS has no storage option {name}", hint=f"it has {WEBHDFS}, user and token"
                )
        scheme, _, authority = base.partition("://")
        given = [each.strip().rstrip("/") for each in options.get(WEBHDFS, "").split(",")]
        given = [each for each in given if each]
        if not given and scheme != "hdfs":
            given = [f"{'https' if scheme == 'swebhdfs' else 'http'}://{authority}"]
        if not given:
            given = _configured(authority)
        if not given:
            raise UnsupportedError(f"{base}/ names no name node", hint=HINT)
        for each in given:
            if urlsplit(each).scheme not in ("http", "https") or not urlsplit(each).netloc:
                raise UnsupportedError(f"{each!r} is no address of WebHDFS", hint=HINT)
        return cls(base, given, options)

    # -- requests ---------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, op: str, **parameters: str) -> Any:
        """The JSON of the name node's answer, ``None`` if it is empty."""
        inside = quote(path[len(self.base) :] or "/", safe="/")
        query = urlencode({"op": op, **self._who, **parameters})
        for address in tuple(self._addresses):
            try:
                status, body = self._send(address, method, f"/webhdfs/v1{inside}?{query}")
            except (OSError, HTTPException) as error:
                failure: OSError = OSError(
                    errno.EHOSTUNREACH, f"WebHDFS at {address} does not answer: {error}", path
                )
                continue
            if status < 300:
                if address != self._addresses[0]:  # the active one first from now on
                    self._addresses = [address, *(a for a in self._addresses if a != address)]
                return json.loads(body) if body else None
            exception, message = _exception(status, body)
            failure = error_of(exception, message, path)
            if exception not in _STANDBY:
                raise failure
        raise failure

    def _send(
        self, address: str, method: str, target: str, data: memoryview | None = None
    ) -> tuple[int, bytes]:
        """Status and body, over a connection that stays open for the next request."""
        url = urlsplit(address)
        headers = {} if data is None else {"Content-Type": "application/octet-stream"}
        for again in (True, False):
            with self._lock:
                idle = self._idle.setdefault(address, [])
                connection = idle.pop() if idle else None
            fresh = connection is None
            if connection is None:
                kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
                connection = kind(url.netloc, timeout=_TIMEOUT)
            try:
                connection.request(
                    method, url.path.rstrip("/") + target, body=data, headers=headers
                )
                answer = connection.getresponse()
                found = answer.status, answer.read()
            except (OSError, HTTPException):
                connection.close()
                # The server may have closed a connection that was not used for a while.
                if fresh or not again:
                    raise
                continue
            with self._lock:
                if len(idle) < _AT_ONCE:
                    idle.append(connection)
                    return found
            connection.close()
            return found
        raise AssertionError

    def _of_data_node(
        self, method: str, path: str, op: str, data: memoryview | None = None, **parameters: str
    ) -> bytes:
        found = self._ask(
            "PUT" if op == "CREATE" else "GET", path, op, noredirect="true", **parameters
        )
        # The name node escapes all but letters outside ASCII.
        location = urlsplit(quote(found["Location"], safe=_ASCII))
        try:
            status, body = self._send(
                f"{location.scheme}://{location.netloc}",
                method,
                f"{location.path}?{location.query}",
                data,
            )
        except (OSError, HTTPException) as error:
            text = f"the data node {location.netloc} does not answer: {error}"
            raise OSError(errno.EHOSTUNREACH, text, path) from error
        if status >= 300:
            raise error_of(*_exception(status, body), path)
        return body

    # -- files ------------------------------------------------------------------------------------

    def qualified(self, path: str) -> str:
        return path

    def status(self, path: str) -> ObjectId:
        found = self._ask("GET", path, "GETFILESTATUS")["FileStatus"]
        if found["type"] != "FILE":
            raise FileNotFoundError(errno.ENOENT, "is a directory", path)
        return ObjectId(
            path=path,
            size=found["length"],
            mtime=found["modificationTime"],
            unit="ms",
            etag=_etag(found),
        )

    def walk(self, root: str) -> FileStatuses:
        files: list[tuple[str, Mapping[str, Any]]] = []
        pending = [root]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while pending:
                found = pool.map(self._entries, pending, [each == root for each in pending])
                entries = [each for listed in found for each in listed]
                files += [each for each in entries if each[1]["type"] == "FILE"]
                pending = [path for path, each in entries if each["type"] == "DIRECTORY"]
        return FileStatuses(
            paths=[path for path, _ in files],
            sizes=np.array([each["length"] for _, each in files], np.int64),
            mtimes=np.array([each["modificationTime"] for _, each in files], np.int64),
            etags=tuple(_etag(each) for _, each in files),
        )

    def _entries(self, directory: str, must_exist: bool) -> list[tuple[str, Mapping[str, Any]]]:
        try:
            listed = self._ask("GET", directory, "LISTSTATUS")["FileStatuses"]["FileStatus"]
        except FileNotFoundError:
            if must_exist:
                raise
            return []  # gone since its parent was listed
        # A file is listed as itself, with an empty name.
        return [
            (f"{directory}/{each['pathSuffix']}" if each["pathSuffix"] else directory, each)
            for each in listed
        ]

    def has_children(self, directory: str) -> bool:
        return any(path != directory for path, _ in self._entries(directory, True))

    def read(self, path: str, offset: int, length: int | None) -> memoryview:
        # A negative range, or one behind the end, is an error of the name node.
        if length == 0:
            return memoryview(b"")
        wanted = {"offset": str(offset)} | ({} if length is None else {"length": str(length)})
        return memoryview(self._of_data_node("GET", path, "OPEN", None, **wanted))

    def create(self, path: str, data: memoryview, *, overwrite: bool) -> None:
        answer = "true" if overwrite else "false"
        self._of_data_node("PUT", path, "CREATE", data, overwrite=answer)

    def rename(self, source: str, target: str, *, overwrite: bool) -> None:
        inside = target[len(self.base) :]
        how = "OVERWRITE" if overwrite else "NONE"
        self._ask("PUT", source, "RENAME", destination=inside, renameoptions=how)

    def delete(self, path: str) -> None:
        self._ask("DELETE", path, "DELETE", recursive="false")


def _close(idle: Mapping[str, list[HTTPConnection]]) -> None:
    for connections in idle.values():
        for connection in connections:
            connection.close()


def _etag(status: Mapping[str, Any]) -> str | None:
    """The number of the file: HDFS never gives a number to another file."""
    number = status.get("fileId")
    return str(number) if number else None


def _exception(status: int, body: bytes) -> tuple[str, str]:
    """Class and message of the exception in an answer."""
    try:
        found = json.loads(body)["RemoteException"]
        return str(found["exception"]), str(found["message"])
    except (ValueError, KeyError, TypeError):
        if status == 401:  # a page in HTML
            return (
                "AccessControlException",
                "WebHDFS demands a login, such as Kerberos (HTTP status 401): use a Spark session"
                " that has a ticket, or a delegation token, Table(…, storage_options={'token': …})",
            )
        first = body[:200].decode("utf-8", "replace").strip()
        kind = "AccessControlException" if status in (401, 403) else "IOException"
        return kind, f"HTTP status {status} {first}".strip()


def _configured(authority: str) -> list[str]:
    """The HTTP addresses of the name nodes of ``authority``."""
    conf: dict[str, str] = {}
    folder = os.environ.get("HADOOP_CONF_DIR")
    for name in ("core-site.xml", "hdfs-site.xml"):
        if folder and (path := Path(folder, name)).exists():
            for each in ET.parse(path).iter("property"):
                conf[each.findtext("name", "").strip()] = each.findtext("value", "").strip()
    if not authority:
        authority = urlsplit(conf.get("fs.defaultFS", "")).netloc
    key = "dfs.namenode.http-address"
    scheme = "http"
    if conf.get("dfs.http.policy", "").upper() == "HTTPS_ONLY":
        key, scheme = "dfs.namenode.https-address", "https"
    nodes = conf.get(f"dfs.ha.namenodes.{authority}", "")
    suffixes = [f".{authority}.{each.strip()}" for each in nodes.split(",") if each.strip()]
    found = [conf[f"{key}{each}"] for each in suffixes if conf.get(f"{key}{each}")]
    own = conf.get(f"{key}.{authority}") or conf.get(key)
    host = authority.rpartition(":")[0] or authority
    if not found and own:
        # The address that a server listens on may be that of every interface.
        found = [own.replace("0.0.0.0", host)]
    if not found and host:
        found = [f"{host}:{PORT}"]
    return [f"{scheme}://{each}" for each in found]
