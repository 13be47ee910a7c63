"""Loss of power: what may be on the medium after the first n calls of a writer.

A written byte is there for certain once its file was synced, a name once its directory was. What
was not synced may be there or not: every write, every name, each for itself. A rename within a
directory is one change. A write that is not synced may also be there in part, by sectors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.faults.trees import Entry

OPEN, WRITE, SYNC, RENAME, LINK, UNLINK, RMDIR, MKDIR, TRUNCATE, OTHER = range(1, 11)
SECTOR = 512
Change: TypeAlias = "tuple[int, int, bytes]"


@dataclass(frozen=True)
class Call:
    """One call of the log; ``kind`` as above."""

    kind: int
    path: str
    to: str
    offset: int
    length: int
    data: bytes


def calls(log: bytes) -> Iterator[Call]:
    """The calls that the shim has logged."""
    at = 0
    while at < len(log):
        end = log.index(b"\n", at)
        kind, first, second, offset, length = map(int, log[at:end].split())
        at = end + 1
        path, at = log[at : at + first], at + first
        to, at = log[at : at + second], at + second
        data = log[at : at + length] if kind == WRITE else b""
        at += len(data)
        yield Call(kind, os.fsdecode(path), os.fsdecode(to), offset, length, data)


@dataclass
class Node:
    """A file or directory: what is durable, and the changes since."""

    directory: bool = False
    data: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    #: of a directory: names that are durable, and later changes (name -> node or None)
    names: dict[str, Node] = field(default_factory=dict)
    changes: list[dict[str, Node | None]] = field(default_factory=list)
    #: of a file: the entry that it was before the log
    original: Entry | None = None

    def current(self) -> dict[str, Node]:
        """The names of a directory as processes see them."""
        return applied(self.names, self.changes)

    def sync(self) -> None:
        """Make all changes durable."""
        if self.directory:
            self.names, self.changes = self.current(), []
            return
        for change in self.pending:
            write(self.data, change)
        if self.pending:
            self.original = None
        self.pending = []


def applied(names: dict[str, Node], changes: list[dict[str, Node | None]]) -> dict[str, Node]:
    now: dict[str, Node | None] = dict(names)
    for change in changes:
        now.update(change)
    return {name: node for name, node in now.items() if node is not None}


def write(data: bytearray, change: Change) -> None:
    """``(-1, size, b"")`` truncates."""
    offset, size, piece = change
    if offset < 0:
        del data[size:]
        data.extend(bytes(size - len(data)))
        return
    data.extend(bytes(max(0, offset - len(data))))
    data[offset : offset + len(piece)] = piece


class Medium:
    """A file system below ``root`` that begins as ``before``, all durable."""

    def __init__(self, root: str, before: dict[str, Entry]) -> None:
        self.root = root
        self.top = Node(directory=True)
        for name, entry in before.items():
            folder, _, last = name.rpartition("/")
            parent = self._find(folder)
            node = Node(entry.data is None, bytearray(entry.data or b""), original=entry)
            parent.names[last] = node

    def _find(self, relative: str) -> Node:
        node = self.top
        for part in relative.split("/") if relative else ():
            node = node.current()[part]
        return node

    def _place(self, path: str) -> tuple[Node, str]:
        relative = os.path.relpath(path, self.root)
        folder, _, name = relative.rpartition("/")
        return self._find(folder), name

    def apply(self, call: Call) -> None:
        """The next call."""
        if call.kind == OTHER or call.path.endswith(" (deleted)"):
            return
        if call.path == self.root:
            if call.kind == SYNC:
                self.top.sync()
            return
        parent, name = self._place(call.path)
        node = parent.current().get(name)
        match call.kind:
            case 1:
                if node is None:
                    parent.changes.append({name: Node()})
                else:
                    node.pending.append((-1, 0, b""))
            case 2 if node is not None:
                node.pending.append((call.offset, 0, call.data))
            case 9 if node is not None:
                node.pending.append((-1, call.length, b""))
            case 3 if node is not None:
                node.sync()
            case 8:
                parent.changes.append({name: Node(directory=True)})
            case 6 | 7:
                parent.changes.append({name: None})
            case 4 | 5 if node is not None:
                target, last = self._place(call.to)
                gone: dict[str, Node | None] = {name: None} if call.kind == RENAME else {}
                if target is parent:
                    parent.changes.append({**gone, last: node})
                else:
                    target.changes.append({last: node})
                    parent.changes.append(gone)

    def states(self, rng: Random, drawn: int) -> Iterator[dict[str, bytes | Entry | None]]:
        """What may be on the medium: nothing unsynced, all names without bytes, and at random."""
        yield self._state(lambda: False, lambda: 0)
        yield self._state(lambda: True, lambda: 0)
        yield self._state(lambda: True, lambda: 1)
        for _ in range(drawn):
            yield self._state(lambda: rng.random() < 0.5, lambda: rng.randrange(4), rng)

    def _state(
        self, keeps: object, bytes_of: object, rng: Random | None = None
    ) -> dict[str, bytes | Entry | None]:
        found: dict[str, bytes | Entry | None] = {}

        def walk(node: Node, at: str) -> None:
            kept = [each for each in node.changes if keeps()]  # type: ignore[operator]
            for name, child in applied(node.names, kept).items():
                path = f"{at}{name}"
                if child.directory:
                    found[path] = None
                    walk(child, f"{path}/")
                else:
                    found[path] = content(child, bytes_of(), rng)  # type: ignore[operator]

        walk(self.top, "")
        return found


def content(node: Node, how: int, rng: Random | None) -> bytes | Entry:
    """The bytes of a file after a loss: 0 what was synced, 1 the right length in zeros, 2 all,
    3 any of the writes, each whole or up to a sector."""
    if not node.pending:
        return bytes(node.data) if node.original is None else node.original
    data = bytearray(node.data)
    for change in node.pending if how else ():
        offset, size, piece = change
        if how == 3 and rng is not None:
            if rng.random() < 0.4:
                continue
            if len(piece) > SECTOR and rng.random() < 0.3:
                piece = piece[: rng.randrange(0, len(piece), SECTOR)]
        if how == 1 and offset >= 0:
            piece = bytes(len(piece))
            if offset < len(node.data):  # the file had bytes there
                continue
        write(data, (offset, size, piece))
    return bytes(data)
