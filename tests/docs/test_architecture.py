"""docs/architecture.md and CONTRIBUTING.md are true: the modules that they name exist, and every
format module is in the index of byte layouts."""

from __future__ import annotations

import re

from tests.folders import ROOT
from tests.house import INNER_ORDER, ORDER

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "skipstone"
RULES = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`", PAGE + RULES))

# Where byte layouts are implemented; compiled copies of kernels and shared values have no layout.
LAYOUTS = ("*/format/*.py", "parquet/encodings/*.py", "parquet/thrift/*.py")
NO_LAYOUT = re.compile(r"__init__|encodings/(jit|jit_runs|kernels)\.py$")


def test_every_module_that_the_pages_name_exists() -> None:
    assert len(NAMED) >= 100
    missing = [name for name in NAMED if not (SOURCE / name).is_file()]
    # Tests and other folders are named from the root of the repository.
    assert [name for name in missing if not (ROOT / name).is_file()] == []


def test_the_index_of_byte_layouts_has_every_format_module() -> None:
    index = PAGE[PAGE.index("## Byte layouts") :]
    modules = {
        path.relative_to(SOURCE).as_posix() for glob in LAYOUTS for path in SOURCE.glob(glob)
    }
    assert len(modules) >= 60
    absent = [name for name in modules if not NO_LAYOUT.search(name) and f"`{name}`" not in index]
    assert sorted(absent) == []


def test_the_picture_has_every_package_in_the_order_of_the_imports() -> None:
    picture = PAGE[PAGE.index("```text") : PAGE.index("## The central types")]
    packages = [name for name in ORDER if (SOURCE / name).is_dir()]
    places = [picture.find(f"{name}/") for name in packages]
    assert -1 not in places
    assert places == sorted(places)
    for package, order in INNER_ORDER.items():
        inner = picture[picture.index(f"\n{package}/") :]
        places = [inner.find(f"\n  {name}") for name in order]
        assert -1 not in places
        assert places == sorted(places)
