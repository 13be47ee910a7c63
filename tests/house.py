"""What the house rules say of a source tree, read from the code itself with `ast`.

Each function takes the package's directory and returns its complaints, one line each; an empty
list means that the rule holds. `tests/test_layers.py` applies them to `src/skipstone` and proves on
small trees that each of them can complain.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PACKAGE = "skipstone"
LONGEST_MODULE = 500
MOST_SIDE_BY_SIDE = 25

# The ground floor comes first: a module imports only what stands before its own package.
ORDER: tuple[str, ...] = (
    "_version",
    "errors",
    "human",
    "_dataclasses",
    "identity",
    "_arrays",
    "_compute",
    "_parquet",
    "_numba",
    "_cache",
    "predicate",
    "storage",
    "pruning",
    "parquet",
    "paimon",
    "questdb",
    "xskipper",
    "indexes",
    "facts",
    "build",
    "planning",
    "table_formats",
    "execution",
    "rewrite",
    "salvage",
    "live",
    "advisor",
    "spark",
    "table",
    "doctor",
    "inspect",
    "report",
    "cli",
    "run",
    "__main__",
)
RANK = {name: rank for rank, name in enumerate(ORDER)}

# The same within a package.
INNER_ORDER: dict[str, tuple[str, ...]] = {
    "parquet": (
        "values",
        "thrift",
        "format",
        "encodings",
        "encryption",
        "pages",
        "arrow",
        "evidence",
        "reading",
        "writing",
    ),
}

# The foreign formats know Parquet, and not each other.
STRANGERS = ("paimon", "questdb", "xskipper")

# What a `format` folder may import of its own package.
OF_BYTES = ("format", "thrift", "values")


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
    knowledge of what is above. So does `import_module` of a name that is a constant, or made of
    constants and `__package__`.
    """
    package = ".".join((PACKAGE, *(module if is_package else module[:-1])))
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
            found = [_text(argument, package) for argument in node.args[:1]]
            names = [name for name in found if name is not None]
        else:
            continue
        for name in names:
            head, *parts = name.split(".")
            if head == PACKAGE:
                yield node.lineno, tuple(parts)


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text(node: ast.expr, package: str) -> str | None:
    """The text of an expression of constants and the name of the package that it is in."""
    if isinstance(node, ast.Name):
        return package if node.id == "__package__" else None
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, package)
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    texts = [_text(part, package) for part in parts]
    return None if None in texts or not texts else "".join(filter(None, texts))


def kernel_modules(
    tree: ast.AST, module: tuple[str, ...], is_package: bool
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """As `imported_parts`: the modules of compiled kernels, which `CompiledKernels` loads by name.

    They are no edges of the import graph: such a module imports the one that names it.
    """
    package = ".".join((PACKAGE, *(module if is_package else module[:-1])))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            for keyword in node.keywords if _called(function) == "CompiledKernels" else []:
                name = _text(keyword.value, package) if keyword.arg == "module" else None
                if name is not None and name.startswith(f"{PACKAGE}."):
                    yield node.lineno, tuple(name.split(".")[1:])


def upward_imports(package: Path) -> list[str]:
    """Imports that do not point to an earlier place of the order."""
    found = []
    for module, path in modules(package):
        if not module:
            continue  # the package itself hands out names of every layer, lazily
        own = module[0]
        where = path.relative_to(package)
        if own not in RANK:
            found.append(f"{where}: {own} has no place in the order")
            continue
        tree, is_package = _parse(path), path.name == "__init__.py"
        named = kernel_modules(tree, module, is_package)
        for line, parts in (*imported_parts(tree, module, is_package), *named):
            target = parts[0] if parts else ""
            if target == own:
                if not _points_down_within(own, module[1:], parts[1:]):
                    what = "/".join(parts[:2])
                    found.append(f"{where}:{line}: {'/'.join(module[:2])} must not import {what}")
                continue
            if target not in RANK:
                found.append(f"{where}:{line}: import {target or PACKAGE} from the module it is in")
            elif RANK[target] >= RANK[own] or (own in STRANGERS and target in STRANGERS):
                found.append(f"{where}:{line}: {own} must not import {target}")
    return found


def _points_down_within(package: str, module: Sequence[str], target: Sequence[str]) -> bool:
    """Whether the inner order of the package, where it has one, allows the import."""
    order = INNER_ORDER.get(package, ())
    if not order or not module or not target or module[0] == target[0]:
        return True
    if module[0] not in order or target[0] not in order:
        return False
    return order.index(target[0]) < order.index(module[0])


def format_imports(package: Path) -> list[str]:
    """Imports of ``format`` folders, which hold bytes and values: of their own package they know
    what such bytes are made of, and they do no I/O."""
    return [
        f"{path.relative_to(package)}:{line}: format must not import {'/'.join(parts[:2])}"
        for module, path in modules(package)
        if module[1:2] == ("format",)
        for line, parts in imported_parts(_parse(path), module, path.name == "__init__.py")
        if parts[:1] == ("storage",)
        or (parts[:1] == module[:1] and parts[1:2] not in {(each,) for each in OF_BYTES})
    ]


def import_graph(package: Path) -> dict[str, set[str]]:
    """Each module by its dotted name below the package, and the modules that it imports.

    The package's own `__init__` is left out: it names every layer, and nothing may import it.
    """
    known = {".".join(module): path for module, path in modules(package) if module}
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        found = set()
        imports = imported_parts(_parse(path), tuple(name.split(".")), path.name == "__init__.py")
        for _, parts in imports:
            # `from package import name`: the name is a module of its own, or lies in the package.
            target = next(
                (each for each in (".".join(parts), ".".join(parts[:-1])) if each in known), None
            )
            if target is not None and target != name:
                found.add(target)
        graph[name] = found
    return graph


def import_cycles(graph: Mapping[str, set[str]]) -> list[str]:
    """Groups of modules that import each other in circles, a line each (Tarjan, 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[str] = []

    def connect(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in order:
                connect(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], order[target])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                cycles.append("cycle: " + " ".join(sorted(group)))

    for name in sorted(graph):
        if name not in order:
            connect(name)
    return sorted(cycles)


def wide_packages(package: Path) -> list[str]:
    """Packages with more modules side by side than a reader can survey."""
    counts: dict[Path, int] = {}
    for _, path in modules(package):
        if path.name != "__init__.py":
            counts[path.parent] = counts.get(path.parent, 0) + 1
    return [
        f"{folder.relative_to(package)}: {count} modules, at most {MOST_SIDE_BY_SIDE}"
        for folder, count in sorted(counts.items())
        if count > MOST_SIDE_BY_SIDE
    ]


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
        if module[:1] != ("pruning",):
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


def foreign_combining(package: Path, homes: Sequence[str] = ("pruning", "planning")) -> list[str]:
    """Places outside the planner's packages that name a combining method of Bounds."""
    names = set(combinators(package))
    return [
        f"{path.relative_to(package)}:{node.lineno}: only the planner combines Bounds: .{node.attr}"
        for module, path in modules(package)
        if module[:1] not in {(home,) for home in homes}
        for node in ast.walk(_parse(path))
        if isinstance(node, ast.Attribute) and node.attr in names
    ]
