"""The life of a table: its indexes, and what happens to its files; each step is data and a text.

A step's text is Python, with ``table`` and ``root``; the same text stands in the script of a
finding. Steps may be refused (``SkipstoneError``): a refusal must change nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import skipstone
from tests.soak.predicates import leaf_columns
from tests.soak.values import chance, pick

if TYPE_CHECKING:
    import numpy as np

    from tests.soak.generate import DataFile, Generator
    from tests.soak.shape import Shape

KINDS = ("minmax", "valuelist", "bloom", "bitmap", "rangebitmap", "bsi", "paimonbloom")
KEY = b"0123456789012345"
PLAIN_TABLE = "skipstone.Table(root)"
KEYED_TABLE = (
    "skipstone.Table(root, decryption=skipstone.Decryption("
    f"footer_key={KEY!r}, allow_plaintext_files=True))"
)


@dataclass(frozen=True)
class Step:
    """One event: ``text`` is run; ``written`` files are written, ``gone`` ones deleted."""

    kind: str
    text: str = ""
    written: tuple[DataFile, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass
class World:
    """A table on disk, and its files in memory."""

    root: str
    kept: bool = False
    files: dict[str, DataFile] = field(default_factory=dict)
    opening: str = PLAIN_TABLE
    used: set[str] = field(default_factory=set)
    opened: Any = None
    touched: int = 1_650_000_000

    def table(self) -> skipstone.Table:
        """The table as it is opened now; with ``kept`` the one object of its life."""
        if self.opened is None or not self.kept:
            self.opened = eval(self.opening, {"skipstone": skipstone, "root": self.root})
        found: skipstone.Table = self.opened
        return found

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
        self.used.add(step.kind)
        for each in step.written:
            each.write(self.root)
            self.files[each.path] = each
        for path in step.gone:
            Path(self.root, path).unlink()
            del self.files[path]
        try:
            if step.text:
                names = {"table": self.table(), "root": self.root, "skipstone": skipstone}
                exec(step.text, {**names, "killed_build": killed_build})
        except skipstone.SkipstoneError as refused:
            return f"{type(refused).__name__}: {refused}"
        finally:
            if step.kind in ("retrofit", "encrypt"):
                self.age()
        if step.kind == "encrypt":
            self.opening, self.opened = KEYED_TABLE, None
        return ""

    def age(self) -> None:
        """Make files that were just written old enough to be indexed."""
        for path in self.files:
            full = Path(self.root, path)
            if full.stat().st_mtime > 1_750_000_000:
                self.touched += 1000
                os.utime(full, (self.touched, self.touched))


def killed_build(root: str, indexes: list[str], milliseconds: int) -> None:
    """Build in another process, and kill it."""
    code = f"import skipstone; print(); skipstone.Table({root!r}).build(indexes={indexes!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)  # it has started
        try:
            process.wait(milliseconds / 1000)
        except subprocess.TimeoutExpired:
            process.kill()


def step(
    rng: np.random.Generator, shape: Shape, world: World, generator: Generator, schema: Any
) -> Step | None:
    """A random next event, or ``None``."""
    kinds = [each for each in _WEIGHTS if shape.has(each)]
    if not kinds:
        return None
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
            if len(world.files) < 2:
                return None
            return Step(kind, gone=(pick(rng, sorted(world.files)),))
        case "drop":
            return Step(kind, f"table.drop({some[0]!r})")
        case "retrofit":
            bloom = {pick(rng, names): 0.01} if chance(rng, 0.5) else {}
            return Step(
                kind, f"table.retrofit(bloom={bloom!r}, page_rows={int(rng.integers(1, 9))})"
            )
        case "encrypt":
            if world.opening != PLAIN_TABLE:
                return None
            encryption = f"skipstone.Encryption(footer_key={KEY!r})"
            kept = chance(rng, 0.5)
            return Step(kind, f"table.encrypt(encryption={encryption}, plaintext_index={kept})")
        case "kill":
            return Step(kind, f"killed_build(root, {some!r}, {int(rng.integers(1, 60))})")
        case "summary":
            return Step(kind, "table.write_metadata()")
    return Step(kind, f"table.{kind}()")


def first_indexes(rng: np.random.Generator, schema: Any) -> list[Step]:
    """An index set: about every third column and kind, one step each."""
    found = []
    for path, _ in leaf_columns(schema):
        name = ".".join(quoted(part) for part in path)
        found += [
            Step("indexes", f"table.build(indexes={[f'{name}:{kind}']!r})")
            for kind in KINDS
            if chance(rng, 0.25)
        ]
    return found


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
    "kill": 0.1,
}
