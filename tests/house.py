"""What the house rules say of a source tree, read from the code itself with `ast`.

Each function takes the package's directory and returns its complaints, one line each; an empty
list means that the rule holds. `tests/test_layers.py` applies them to `src/skipstone` and proves on
small trees that each of them can complain.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGE = "skipstone"
LONGEST_MODULE = 500

# Imports point from a later line to an earlier one; there is no edge within a line.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "human", "identity"),
    ("bounds", "predicate"),
    ("formats", "storage"),
    ("index",),
    ("store",),
    ("plan",),
    ("scan",),
    ("rewrite", "live"),
    ("advise",),
    ("spark",),
    ("table",),
    ("report",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def modules(package: Path) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Each module's dotted parts below the package, () for its own __init__, and its file."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        yield (parts[:-1] if parts[-1] == "__init__" else parts), path


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_parts(
    tree: ast.AST, module: tuple[str, ...], is_package: bool
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line and dotted parts below the package of all that a module imports from its own package.

    Imports inside functions and under TYPE_CHECKING count like any other: a type from above is
    knowledge of what is above. So does `import_module` of a literal name.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = (PACKAGE, *module) if is_package else (PACKAGE, *module[:-1])
                parents = here[: len(here) - (node.level - 1)]
                base = ".".join((*parents, *filter(None, [node.module])))
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and _called(node.func) in {"import_module", "__import__"}:
            names = [a.value for a in node.args[:1] if _is_text(a)]  # type: ignore[attr-defined]
        else:
            continue
        for name in names:
            head, *parts = name.split(".")
            if head == PACKAGE:
                yield node.lineno, tuple(parts)


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def upward_imports(package: Path) -> list[str]:
    """Imports that do not point down the list of layers."""
    found = []
    for module, path in modules(package):
        if not module:
            continue  # the package itself hands out names of every layer, lazily
        own = module[0]
        where = path.relative_to(package)
        if own not in RANK:
            found.append(f"{where}: {own} is in no layer")
            continue
        for line, parts in imported_parts(_parse(path), module, path.name == "__init__.py"):
            target = parts[0] if parts else ""
            if target in {own, "__version__"}:
                continue
            if target not in RANK:
                found.append(f"{where}:{line}: import {target or PACKAGE} from the module it is in")
            elif RANK[target] >= RANK[own]:
                found.append(f"{where}:{line}: {own} must not import {target}")
    return found


def long_modules(package: Path) -> list[str]:
    """Modules of more lines than one idea needs."""
    counted = [(path, len(path.read_text("utf-8").splitlines())) for _, path in modules(package)]
    return [
        f"{path.relative_to(package)}: {lines} lines, at most {LONGEST_MODULE}"
        for path, lines in counted
        if lines > LONGEST_MODULE
    ]


def combinators(package: Path) -> tuple[str, ...]:
    """The names in `Bounds.COMBINATORS`: the methods that combine what indexes say."""
    for module, path in modules(package):
        if module[:1] != ("bounds",):
            continue
        for cls in ast.walk(_parse(path)):
            if isinstance(cls, ast.ClassDef) and cls.name == "Bounds":
                for node in cls.body:
                    target = node.targets[0] if isinstance(node, ast.Assign) else None
                    target = node.target if isinstance(node, ast.AnnAssign) else target
                    if isinstance(target, ast.Name) and target.id == "COMBINATORS":
                        value = node.value  # type: ignore[attr-defined]
                        return tuple(ast.literal_eval(value))
    return ()


def foreign_combining(package: Path) -> list[str]:
    """Places outside `plan` and `bounds` that name a combining method of Bounds, called or not."""
    names = set(combinators(package))
    return [
        f"{path.relative_to(package)}:{node.lineno}: only plan combines Bounds, not .{node.attr}"
        for module, path in modules(package)
        if module[:1] not in {("plan",), ("bounds",)}
        for node in ast.walk(_parse(path))
        if isinstance(node, ast.Attribute) and node.attr in names
    ]
