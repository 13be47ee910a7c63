"""The house rules hold for the code, and each rule can complain."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import skipstone
from tests import house

SOURCE = Path(__file__).resolve().parent.parent / "src" / "skipstone"
HEAVY = {"numba", "pandas", "pyspark"}


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


def test_no_module_is_long() -> None:
    assert house.long_modules(SOURCE) == []


def test_only_the_planner_combines_bounds() -> None:
    assert house.combinators(SOURCE), "Bounds.COMBINATORS is gone: this check would see nothing"
    assert house.foreign_combining(SOURCE) == []


def test_combinators_are_methods_of_bounds() -> None:
    from skipstone.bounds import Bounds

    assert house.combinators(SOURCE) == Bounds.COMBINATORS
    assert all(callable(getattr(Bounds, name)) for name in Bounds.COMBINATORS)


def test_public_names_are_few_and_real() -> None:
    assert len(skipstone.__all__) <= 15
    assert len(set(skipstone.__all__)) == len(skipstone.__all__)
    for name in skipstone.__all__:
        assert getattr(skipstone, name).__module__.startswith("skipstone."), name
    assert set(skipstone.__all__) <= set(dir(skipstone))


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Tabel'"):
        _ = skipstone.Tabel  # type: ignore[attr-defined]


def test_the_package_alone_loads_nothing_heavy() -> None:
    loaded = loaded_after("import skipstone")
    assert "skipstone" in loaded
    assert loaded.isdisjoint(HEAVY | {"pyarrow", "numpy"})


@pytest.mark.parametrize(
    "module", ["skipstone.errors", "skipstone.plan", "skipstone.table", "skipstone.cli"]
)
def test_spark_comes_late(module: str) -> None:
    assert loaded_after(f"import {module}").isdisjoint(HEAVY)


def test_the_check_of_loaded_modules_can_fail() -> None:
    assert "numpy" in loaded_after("import skipstone, numpy")


@pytest.mark.parametrize(
    "module, line, complaint",
    [
        ("bounds/rowset.py", "from skipstone.plan import Plan", "bounds must not import plan"),
        ("bounds/rowset.py", "import skipstone.spark.session", "bounds must not import spark"),
        ("bounds/rowset.py", "from ..predicate import tree", "bounds must not import predicate"),
        ("bounds/rowset.py", "from .. import identity, cli", "bounds must not import cli"),
        ("errors.py", "from .identity import ObjectId", "errors must not import identity"),
        ("identity.py", "from skipstone import errors", "identity must not import errors"),
        (
            "storage.py",
            "def f():\n    from skipstone import index",
            "storage must not import index",
        ),
        ("store/parts.py", "if TYPE_CHECKING:\n    import skipstone.plan", "store must not import"),
        ("report/x.py", "from skipstone.cli import output", "report must not import cli"),
        ("rewrite/x.py", "import_module('skipstone.live')", "rewrite must not import live"),
        ("plan/cost.py", "from skipstone import Table", "import Table from the module it is in"),
        ("plan/cost.py", "import skipstone", "import skipstone from the module it is in"),
        ("helper.py", "", "helper is in no layer"),
        ("misc/a.py", "", "misc is in no layer"),
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
            "cli/output.py": "from skipstone import __version__\nfrom ..table import Table",
            "cli/verbs.py": "from . import output\nfrom .output import show\nimport os, pyarrow",
            "formats/paimon/bsi.py": "from ...errors import FormatError\nfrom . import container",
            "formats/paimon/__init__.py": "from .bsi import Bsi\nfrom ..parquet import thrift",
            "plan/planner.py": "from skipstone.bounds.rowset import RowSet",
        },
    )
    assert house.upward_imports(package) == []


def test_a_long_module_is_seen(tmp_path: Path) -> None:
    package = tree(tmp_path, {"errors.py": "x = 1\n" * 500, "identity.py": "x = 1\n" * 501})
    assert house.long_modules(package) == ["identity.py: 501 lines, at most 500"]


@pytest.mark.parametrize("use", ["a.meet(b)", "reduce(Bounds.meet, parts)", "f = a.meet"])
@pytest.mark.parametrize(
    "home, seen", [("spark/x.py", 1), ("scan/x.py", 1), ("plan/x.py", 0), ("bounds/x.py", 0)]
)
def test_combining_outside_the_planner_is_seen(
    tmp_path: Path, home: str, seen: int, use: str
) -> None:
    declared = "class Bounds:\n    COMBINATORS: ClassVar[tuple[str, ...]] = ('meet',)\n"
    package = tree(tmp_path, {"bounds/algebra.py": declared, home: use})
    assert len(house.foreign_combining(package)) == seen
