"""The life of a table: its indexes, and what happens to its files; each step is data and a text.

A step's text is Python, with ``table`` and ``root``; the same text stands in the script of a
finding. Steps may be refused (``SkipstoneError``): a refusal must change nothing.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import skipstone
from tests.faults.shim import compiled, compiler, environment
from tests.soak.generate import of_table
from tests.soak.predicates import leaf_columns
from tests.soak.values import chance, pick

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from tests.soak.generate import DataFile, Generator
    from tests.soak.shape import Shape

KINDS = (
    *("minmax", "valuelist", "bloom", "bitmap", "rangebitmap", "bsi", "paimonbloom"),
    *("ngram(n=2)", "ngram(lower=false)", "tokens"),
)
KEY = b"0123456789012345"
_KEYS = f"decryption=skipstone.Decryption(footer_key={KEY!r}, allow_plaintext_files=True)"


def opening_of(*, recursive: bool, keyed: bool) -> str:
    """The text that opens the table at ``root``."""
    more = ", recursive_file_lookup=True" if recursive else ""
    return f"skipstone.Table(root{more}{f', {_KEYS}' if keyed else ''})"


def file_opening_of(*, keyed: bool) -> str:
    """The text that opens the file at ``path``."""
    return f"skipstone.ParquetFile(path{f', {_KEYS}' if keyed else ''})"


@dataclass(frozen=True)
class Step:
    """One event: ``text`` is run; ``written`` files are written, ``gone`` ones deleted.

    ``dies`` is the step at which a process that runs ``text`` is killed.
    """

    kind: str
    text: str = ""
    written: tuple[DataFile, ...] = ()
    gone: tuple[str, ...] = ()
    dies: int | None = None

    @property
    def encrypts(self) -> bool:
        """Whether files may be encrypted from now on."""
        return "table.encrypt(" in self.text

    def done(self, world: World) -> None:
        """Run the text, here or in a process that dies."""
        if self.dies is None:
            names = {"table": world.table(), "skipstone": skipstone, "timedelta": timedelta}
            exec(self.text, names)
        else:
            killed(world.opening, world.root, self.text, self.dies)


@dataclass
class World:
    """A table on disk, and all files below its path in memory.

    The ``Table`` is a new one for each question if ``fresh``, the one object of the table's life if
    ``kept``, else a new one after each event.
    """

    root: str
    kept: bool = False
    fresh: bool = True
    recursive: bool = False
    keyed: bool = False
    files: dict[str, DataFile] = field(default_factory=dict)
    opened: Any = None
    touched: int = 1_650_000_000

    @property
    def opening(self) -> str:
        """How the table is opened now."""
        return opening_of(recursive=self.recursive, keyed=self.keyed)

    def table(self) -> skipstone.Table:
        """The table as it is opened now."""
        if self.opened is None or self.fresh:
            self.opened = eval(self.opening, {"skipstone": skipstone, "root": self.root})
        found: skipstone.Table = self.opened
        return found

    def file(self, path: str) -> skipstone.ParquetFile:
        """One of the files, as it is opened now."""
        names = {"skipstone": skipstone, "path": f"{self.root}/{path}"}
        found: skipstone.ParquetFile = eval(file_opening_of(keyed=self.keyed), names)
        return found

    def of_table(self) -> dict[str, DataFile]:
        """The files of the table."""
        return of_table(self.files, recursive=self.recursive)

    def begin(self, files: tuple[DataFile, ...]) -> None:
        """Write the first files."""
        self.clear()
        Path(self.root).mkdir(parents=True)
        for each in files:
            each.write(self.root)
            self.files[each.path] = each

    def clear(self) -> None:
        parent = Path(self.root).parent
        if parent.is_dir():
            shutil.rmtree(parent)
        self.files.clear()

    def apply(self, step: Step) -> str:
        """Do a step; returns why it was refused, "" where it was not."""
        if not self.kept:
            self.opened = None
        for each in step.written:
            each.write(self.root)
            self.files[each.path] = each
        for path in step.gone:
            Path(self.root, path).unlink()
            del self.files[path]
        try:
            if step.text:
                step.done(self)
        except skipstone.SkipstoneError as refused:
            if step.dies is None:
                return f"{type(refused).__name__}: {refused}"
        finally:
            self.age()
            if step.encrypts:
                self.keyed, self.opened = True, None
        return ""

    def age(self) -> None:
        """Make files that were just written old enough to be indexed."""
        for path in self.files:
            full = Path(self.root, path)
            if full.stat().st_mtime > 1_750_000_000:
                self.touched += 1000
                os.utime(full, (self.touched, self.touched))


_DYING = """
import sys
from datetime import timedelta
import skipstone
from tests.faults.shim import CHANGES, KILL, Shim
opening, root, text, step = sys.argv[1:]
table = eval(opening)
Shim().arm(root.rpartition("/")[0], CHANGES, KILL, int(step))
exec(text)
"""


def killed(opening: str, root: str, text: str, step: int) -> None:
    """Run ``text`` in another process, killed at its call ``step`` that changes a file.

    Without a C compiler nothing is done.
    """
    library = shim_library()
    if library is not None:
        subprocess.run(
            [sys.executable, "-c", _DYING, opening, root, text, str(step)],
            env={**environment(library), "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=False,
        )


@cache
def shim_library() -> Path | None:
    """The library that counts calls, compiled once per process."""
    if compiler() is None:
        return None
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return compiled(Path(folder))


def step(
    rng: np.random.Generator,
    shape: Shape,
    world: World,
    generator: Generator,
    schema: Any,
    kind: str = "",
) -> Step | None:
    """A random next event, of a given kind or any; ``None`` where the table has none."""
    kinds = [each for each in _WEIGHTS if shape.has(each)]
    if not kinds:
        return None
    if not kind:
        weights = [_WEIGHTS[each] * (5 if each in shape.often else 1) for each in kinds]
        kind = str(rng.choice(kinds, p=[each / sum(weights) for each in weights]))
    names = [".".join(quoted(part) for part in path) for path, _ in leaf_columns(schema)]
    some = [f"{pick(rng, names)}:{pick(rng, KINDS)}" for _ in range(int(rng.integers(1, 4)))]
    match kind:
        case "indexes":
            # One by one: a kind that does not fit a column refuses the others too.
            return Step(kind, f"table.build(indexes={some[:1]!r})")
        case "append":
            new = tuple(generator.file() for _ in range(int(rng.integers(1, 4))))
            return Step(kind, written=new)
        case "replace":
            old = world.files[pick(rng, sorted(world.files))]
            return Step(kind, written=(generator.again(old),))
        case "delete":
            gone = str(pick(rng, sorted(world.files)))
            # A table without files is an error, and without any of its own too.
            left = {path: each for path, each in world.files.items() if path != gone}
            if not of_table(left, recursive=False):
                return None
            return Step(kind, gone=(gone,))
        case "drop":
            return Step(kind, f"table.drop({some[0]!r})")
        case "retrofit":
            bloom = {pick(rng, names): 0.01} if chance(rng, 0.5) else {}
            return Step(
                kind, f"table.retrofit(bloom={bloom!r}, page_rows={int(rng.integers(1, 9))})"
            )
        case "encrypt":
            if world.keyed:
                return None
            encryption = f"skipstone.Encryption(footer_key={KEY!r})"
            kept = chance(rng, 0.5)
            return Step(kind, f"table.encrypt(encryption={encryption}, plaintext_index={kept})")
        case "decrypt" if not world.keyed:
            return None
        case "kill":
            dying = str(pick(rng, [each for each in _DIE if shape.has(each)] or ["indexes"]))
            inner = step(rng, shape, world, generator, schema, dying)
            inner = inner or Step(kind, "table.refresh()")
            at = int(rng.integers(0, pick(rng, (8, 40))))
            return Step(kind, inner.text, dies=at)
        case "summary":
            return Step(kind, "table.write_metadata()")
        case "vacuum":
            return Step(kind, "table.vacuum(timedelta(0))")
    return Step(kind, f"table.{kind}()")


def first_indexes(rng: np.random.Generator, schema: Any, apply: Callable[[Step], bool]) -> None:
    """Build an index set: about every fourth column and kind, together or one by one.

    ``apply`` says whether a step was done. A kind that does not fit a column refuses all of a
    build, so then each is built by itself.
    """
    names = [".".join(quoted(part) for part in path) for path, _ in leaf_columns(schema)]
    found = [f"{name}:{kind}" for name in names for kind in KINDS if chance(rng, 0.25)]
    together = chance(rng, 0.6)
    if together and found and apply(Step("indexes", f"table.build(indexes={found!r})")):
        return
    for each in found:
        apply(Step("indexes", f"table.build(indexes={[each]!r})"))


def quoted(name: str) -> str:
    plain = name.replace("_", "a").isalnum() and name.isascii()
    return name if plain else "`" + name.replace("`", "``") + "`"


_WEIGHTS = {
    "indexes": 6.0,
    "append": 4.0,
    "replace": 4.0,
    "delete": 2.0,
    "refresh": 4.0,
    "compact": 2.0,
    "drop": 1.0,
    "retrofit": 2.0,
    "summary": 2.0,
    "migrate": 1.0,
    "encrypt": 0.5,
    "decrypt": 0.5,
    "vacuum": 1.0,
    "kill": 0.3,
}
LIFE = tuple(_WEIGHTS)
#: the events that a process may be killed in
_DIE = (
    "indexes",
    "refresh",
    "compact",
    "drop",
    "retrofit",
    "summary",
    "migrate",
    "encrypt",
    "vacuum",
)
