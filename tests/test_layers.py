"""The house rules hold for the code, and each rule can complain."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import skipstone

from . import house

SOURCE = Path(__file__).resolve().parent.parent / "src" / "skipstone"
HEAVY = {"deltalake", "numba", "pandas", "pyspark"}


def tree(root: Path, files: dict[str, str]) -> Path:
    """A package of these files, and an empty __init__ in each of its folders."""
    package = root / "skipstone"
    for name, text in {"__init__.py": "", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    return package


def loaded_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after running the code."""
    heads = "sorted({name.split('.')[0] for name in sys.modules})"
    show = f"import sys, json\n{code}\nprint(json.dumps({heads}))"
    done = subprocess.run(
        [sys.executable, "-c", show],
        env={"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_imports_point_down() -> None:
    assert house.upward_imports(SOURCE) == []


def test_formats_are_bytes_and_values() -> None:
    assert house.format_imports(SOURCE) == []


@pytest.mark.parametrize(
    "line, seen",
    [
        ("from skipstone.storage import ByteRange", 1),
        ("def f():\n    from skipstone.parquet.writing.footer_editor import FooterEditor", 1),
        ("if TYPE_CHECKING:\n    from ..pages.page import Page", 1),
        ("from skipstone.parquet.encodings import rle", 1),
        ("from .footer import MAGIC\nfrom skipstone.parquet import values", 0),
        ("from skipstone.errors import FormatError", 0),
    ],
)
def test_a_format_that_knows_more_is_seen(tmp_path: Path, line: str, seen: int) -> None:
    assert len(house.format_imports(tree(tmp_path, {"parquet/format/x.py": line}))) == seen


def test_no_import_cycle() -> None:
    assert house.import_cycles(house.import_graph(SOURCE)) == []


def test_packages_can_be_surveyed() -> None:
    assert house.wide_packages(SOURCE) == []


def test_no_module_is_long() -> None:
    assert house.long_modules(SOURCE) == []


def test_only_the_planner_combines_bounds() -> None:
    assert house.combinators(SOURCE), "Bounds.COMBINATORS is gone: this check would see nothing"
    assert house.foreign_combining(SOURCE) == []


def test_combinators_are_methods_of_bounds() -> None:
    from skipstone.pruning import Bounds

    assert house.combinators(SOURCE) == Bounds.COMBINATORS
    assert all(callable(getattr(Bounds, name)) for name in Bounds.COMBINATORS)


def test_public_names_are_few_and_real() -> None:
    assert len(skipstone.__all__) <= 20
    assert len(set(skipstone.__all__)) == len(skipstone.__all__)
    for name in skipstone.__all__:
        assert getattr(skipstone, name).__module__.startswith("skipstone."), name
    assert isinstance(skipstone.rewrite, ModuleType)
    assert isinstance(skipstone.salvage, ModuleType)
    assert {*skipstone.__all__, "rewrite", "salvage"} <= set(dir(skipstone))


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Tabel'"):
        _ = skipstone.Tabel  # type: ignore[attr-defined]


def test_the_package_alone_loads_nothing_heavy() -> None:
    loaded = loaded_after("import skipstone")
    assert "skipstone" in loaded
    assert loaded.isdisjoint(HEAVY | {"pyarrow", "numpy"})


@pytest.mark.parametrize(
    "module", ["skipstone.errors", "skipstone.pruning.plan", "skipstone.table", "skipstone.cli"]
)
def test_spark_comes_late(module: str) -> None:
    assert loaded_after(f"import {module}").isdisjoint(HEAVY)


def test_the_check_of_loaded_modules_can_fail() -> None:
    assert "numpy" in loaded_after("import skipstone, numpy")


@pytest.mark.parametrize(
    "module, line, complaint",
    [
        (
            "pruning/row_set.py",
            "from skipstone.planning import objects",
            "must not import planning",
        ),
        ("pruning/row_set.py", "import skipstone.spark.session", "pruning must not import spark"),
        ("predicate/tree.py", "from ..pruning import bounds", "predicate must not import pruning"),
        ("pruning/row_set.py", "from .. import identity, cli", "pruning must not import cli"),
        ("paimon/kinds.py", "from skipstone.questdb import pm", "paimon must not import questdb"),
        ("xskipper/part.py", "from skipstone.paimon import kinds", "must not import paimon"),
        ("errors.py", "from .identity import ObjectId", "errors must not import identity"),
        ("human.py", "from skipstone import identity", "human must not import identity"),
        (
            "storage.py",
            "def f():\n    from skipstone import indexes",
            "storage must not import indexes",
        ),
        ("facts/parts.py", "if TYPE_CHECKING:\n    import skipstone.planning", "must not import"),
        ("report/x.py", "from skipstone.cli import output", "report must not import cli"),
        ("rewrite/x.py", "import_module('skipstone.live')", "rewrite must not import live"),
        ("rewrite/x.py", "import_module('skipstone.' + 'live')", "rewrite must not import live"),
        ("errors.py", "import_module(f'{__package__}.cli')", "errors must not import cli"),
        ("errors.py", "K = CompiledKernels[F](module=f'{__package__}.cli.jit')", "must not import"),
        ("parquet/pages/x.py", "from ..reading import file", "parquet/pages must not import"),
        ("parquet/other.py", "from .thrift import compact", "parquet/other must not import"),
        ("planning/x.py", "from skipstone import Table", "import Table from the module it is in"),
        ("planning/x.py", "import skipstone", "import skipstone from the module it is in"),
        ("helper.py", "", "helper has no place in the order"),
        ("misc/a.py", "", "misc has no place in the order"),
    ],
)
def test_an_import_that_does_not_point_down_is_seen(
    tmp_path: Path, module: str, line: str, complaint: str
) -> None:
    complaints = house.upward_imports(tree(tmp_path, {module: line}))
    assert any(complaint in text for text in complaints), complaints


def test_imports_down_and_within_are_fine(tmp_path: Path) -> None:
    package = tree(
        tmp_path,
        {
            "__init__.py": "from skipstone.table import Table",
            "__main__.py": "from skipstone.cli import main",
            "cli/output.py": "from skipstone._version import __version__\nfrom ..table import T",
            "cli/verbs.py": "from . import output\nfrom .output import show\nimport os, pyarrow",
            "paimon/format/bsi.py": "from ...errors import FormatError\nfrom . import container",
            "paimon/format/__init__.py": "from .bsi import Bsi\nfrom ...parquet import thrift",
            "parquet/pages/page.py": "from skipstone.parquet import format\nfrom ..values import V",
            "planning/objects.py": "from skipstone.pruning.row_set import RowSet",
        },
    )
    assert house.upward_imports(package) == []


@pytest.mark.parametrize(
    "files, cycle",
    [
        ({"a/x.py": "from . import y", "a/y.py": "from .x import X"}, "cycle: a.x a.y"),
        (
            {"a/x.py": "if TYPE_CHECKING:\n    from .y import Y", "a/y.py": "from .x import X"},
            "cycle: a.x a.y",
        ),
        (
            {"a/x.py": "def f():\n    from .y import Y", "a/y.py": "import skipstone.a.x"},
            "cycle: a.x a.y",
        ),
        (
            {"a/x.py": "import_module(f'{__package__}.y')", "a/y.py": "from .x import X"},
            "cycle: a.x a.y",
        ),
        ({"a/__init__.py": "from .x import X", "a/x.py": "from skipstone.a import Y"}, "a a.x"),
        ({"a/x.py": "from .y import Y", "a/y.py": "from ..b import z", "b/z.py": ""}, None),
    ],
)
def test_a_cycle_is_seen(tmp_path: Path, files: dict[str, str], cycle: str | None) -> None:
    found = house.import_cycles(house.import_graph(tree(tmp_path, files)))
    assert len(found) == (cycle is not None)
    assert cycle is None or cycle in found[0]


def test_a_wide_package_is_seen(tmp_path: Path) -> None:
    files = {f"a/m{number}.py": "" for number in range(26)}
    assert house.wide_packages(tree(tmp_path, files)) == ["a: 26 modules, at most 25"]
    (tmp_path / "skipstone" / "a" / "m25.py").unlink()
    assert house.wide_packages(tmp_path / "skipstone") == []


def test_a_long_module_is_seen(tmp_path: Path) -> None:
    package = tree(tmp_path, {"errors.py": "x = 1\n" * 500, "identity.py": "x = 1\n" * 501})
    assert house.long_modules(package) == ["identity.py: 501 lines, at most 500"]


@pytest.mark.parametrize("use", ["a.meet(b)", "reduce(Bounds.meet, parts)", "f = a.meet"])
@pytest.mark.parametrize(
    "home, seen", [("spark/x.py", 1), ("facts/x.py", 1), ("planning/x.py", 0), ("pruning/x.py", 0)]
)
def test_combining_outside_the_planner_is_seen(
    tmp_path: Path, home: str, seen: int, use: str
) -> None:
    declared = "class Bounds:\n    COMBINATORS: ClassVar[tuple[str, ...]] = ('meet',)\n"
    package = tree(tmp_path, {"pruning/bounds.py": declared, home: use})
    assert len(house.foreign_combining(package)) == seen
