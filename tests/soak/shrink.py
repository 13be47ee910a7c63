"""Makes a finding small, and writes it as a script that needs only Skipstone and Arrow.

A smaller case counts if its answer is wrong in the same way: the same route and the same kind of
text. Tried are fewer steps, fewer files, fewer rows, fewer columns, and parts of the predicate.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.predicate.tree import And, Membership, Not, Or
from tests.oracle import NotModelled, SparkError, values_of
from tests.soak.differences import features_of, places_of
from tests.soak.generate import ROW, of_table
from tests.soak.life import World, file_opening_of, opening_of
from tests.soak.routes import CALLS, order_of, path_of
from tests.soak.shape import CONNECT, EMBEDDED, SPARK
from tests.soak.trials import REFUSED, Case, Finding, expected_of, run_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.soak.generate import DataFile


def shrunk(
    finding: Finding, seconds: float = 30.0, run: Callable[[Case], str] = run_case
) -> Finding | None:
    """The smallest case found within the time; ``None`` if the finding does not happen again.

    ``run`` does everything of a case again, and returns what is wrong.
    """
    until = time.monotonic() + seconds
    best = happens_again(finding, finding.case, run)
    if best is None:
        return None
    smaller = True
    while smaller and time.monotonic() < until:
        smaller = False
        for case in smaller_cases(best.case):
            if time.monotonic() > until:
                break
            found = happens_again(finding, case, run)
            if found is not None:
                best, smaller = found, True
                break
    return best


def happens_again(finding: Finding, case: Case, run: Callable[[Case], str]) -> Finding | None:
    try:
        if names_of(case) - columns_of(case):
            return None
        wrong = run(case)
    except (SparkError, NotModelled, KeyError, ValueError, StopIteration, IndexError):
        return None  # it names something that is gone
    if not wrong or wrong == REFUSED:
        return None
    again = replace(finding, case=case, wrong=wrong, used=used_by(case))
    return again if again.kind == finding.kind else None


def names_of(case: Case) -> set[str]:
    """The columns of the root that the case names."""
    trial = case.trial
    named = [order_of(each)[0] for each in trial.order_by]
    named += [path_of(each) for each in (trial.column, *(trial.columns or ())) if each]
    return {path[0].lower() for path in named}


def columns_of(case: Case) -> set[str]:
    """The columns of the table after its life, without those of folders."""
    names = {name for each in files_of(case).values() for name in each.rows.column_names}
    folders = {name for each in files_of(case).values() for name, _ in each.folders}
    return {name.lower() for name in names | folders}


def files_of(case: Case) -> dict[str, DataFile]:
    """The files of the table after the life of the case."""
    return of_table(all_files_of(case), recursive=case.recursive)


def all_files_of(case: Case) -> dict[str, DataFile]:
    """All files below its path."""
    files = {each.path: each for each in case.files}
    for step in case.steps:
        files.update({each.path: each for each in step.written})
        for path in step.gone:
            files.pop(path, None)
    return files


def used_by(case: Case) -> frozenset[str]:
    """The features that are left."""
    found = {each.kind for each in case.steps}
    found |= {"look_inside"} if case.look_inside else set()
    found |= {"together"} if case.together else set()
    found |= {"kept_table"} if case.kept else set()
    found |= {"recursive"} if case.recursive else set()
    if case.predicate is not None:
        found |= case.predicate.used
    places = places_of(all_files_of(case).values())
    return frozenset(found) | features_of(list(files_of(case).values())) | places


def smaller_cases(case: Case) -> Iterator[Case]:
    """Cases with something less, the largest cuts first."""
    for fewer in without(case.steps):
        yield replace(case, steps=fewer)
    for files in without(case.files):
        if files:
            yield replace(case, files=files)
    if case.predicate is not None:
        for tree in smaller_trees(case.predicate.tree):
            predicate = replace(case.predicate, tree=tree)
            yield with_predicate(case, predicate)
        if case.predicate.zone != "UTC":
            yield with_predicate(case, replace(case.predicate, zone="UTC"))
        if case.trial.route in EMBEDDED:
            yield replace(case, predicate=None, trial=replace(case.trial, where=None))
    if case.kept:
        yield replace(case, kept=False)
    if case.look_inside:
        yield replace(case, look_inside=False)
    if case.together:
        yield replace(case, together=False)
    if case.recursive:
        yield replace(case, recursive=False)
    trial = case.trial
    if trial.cache:
        yield replace(case, trial=replace(trial, cache=""))
    if trial.form not in ("", "where"):
        yield replace(case, trial=replace(trial, form="where"))
    for settings in without(trial.settings):
        yield replace(case, trial=replace(trial, settings=settings))
    for at, file in enumerate(case.files):
        if file.writer == "spark":
            plain = replace(file, writer="pyarrow", how=())
            yield replace(case, files=(*case.files[:at], plain, *case.files[at + 1 :]))
    names = {name for each in case.files for name in each.rows.column_names if name != ROW}
    for name in sorted(names):
        yield replace(case, files=tuple(without_column(each, name) for each in case.files))
    if case.trial.columns:
        yield replace(case, trial=replace(case.trial, columns=(ROW,)))
    for at, file in enumerate(case.files):
        for rows in halves(file.rows):
            files = (*case.files[:at], replace(file, rows=rows), *case.files[at + 1 :])
            yield replace(case, files=files)


def with_predicate(case: Case, predicate: Any) -> Case:
    trial = replace(case.trial, where=predicate.sql, zone=predicate.zone)
    return replace(case, predicate=predicate, trial=trial)


def without(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Without a half, a quarter, one of the items."""
    size = len(items)
    while size:
        size = size // 2 if size > 1 else 1
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]
        if size == 1:
            return


def without_column(file: DataFile, name: str) -> DataFile:
    rows = file.rows
    if name in rows.column_names:
        rows = rows.drop_columns([name])
    return replace(file, rows=rows)


def halves(rows: pa.Table) -> Iterator[pa.Table]:
    if rows.num_rows > 1:
        half = rows.num_rows // 2
        yield rows.slice(0, half)
        yield rows.slice(half)


def smaller_trees(tree: Any) -> Iterator[Any]:
    """The parts of a tree, and the tree with a part replaced by one of its own."""
    if isinstance(tree, And | Or):
        yield from tree.children
        if len(tree.children) > 2:
            for fewer in without(tree.children):
                if fewer:
                    yield replace(tree, children=fewer)
        for at, child in enumerate(tree.children):
            for less in smaller_trees(child):
                children = (*tree.children[:at], less, *tree.children[at + 1 :])
                yield replace(tree, children=children)
    elif isinstance(tree, Not):
        yield tree.child
        for less in smaller_trees(tree.child):
            yield Not(less)
    elif isinstance(tree, Membership) and len(tree.values) > 1:
        for fewer in without(tree.values):
            if fewer:
                yield replace(tree, values=fewer)


# -- the script ------------------------------------------------------------------------------------

_HEAD = '''"""{wrong}

Route {route}, seed {seed}; features: {used}.
"""

import math
import os
import shutil
import tempfile
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa

import skipstone
from tests.soak.life import killed
from tests.soak.values import array
from tests.soak.writers import write_file

{more}parent = tempfile.mkdtemp()
root = f"{{parent}}/table"
'''
_INSIDE = """from skipstone.pruning import costs
from skipstone.table import planning

planning.LOCAL = costs.FREE  # small files are looked into
"""
_TOGETHER = """from skipstone.execution import plan_rows
from skipstone.parquet.reading import bulk_chunks, file_reader

plan_rows._FEW, file_reader.SMALL_CHUNK = 1, 0
bulk_chunks.KERNELS.once = 0  # columns of small files are read together
"""
_SESSION = "from tests.soak.spark import {start}\n\nspark = {start}()\n"


def script(finding: Finding) -> str:
    """A script that does it all again, prints the answer and says what was expected."""
    case, trial = finding.case, finding.case.trial
    more = _INSIDE if case.look_inside else ""
    more += _TOGETHER if case.together else ""
    if trial.route in SPARK:
        more += _SESSION.format(start="remote" if trial.route in CONNECT else "session")
    lines = [
        _HEAD.format(
            wrong=finding.wrong.replace("\\", "\\\\").replace('"""', "'''"),
            route=trial.route,
            seed=finding.seed,
            used=", ".join(sorted(finding.used)),
            more=more,
        )
    ]
    lines += [written(each) for each in case.files]
    keyed = False
    opening = opening_of(recursive=case.recursive, keyed=keyed)
    lines.append(f"table = {opening}")
    if case.kept:
        lines.append("table.plan()")
    for step in case.steps:
        lines.append(f"# {step.kind}")
        lines += [written(each) for each in step.written]
        lines += [f'os.remove(f"{{root}}/{path}")' for path in step.gone]
        if step.text:
            done = step.text
            if step.dies is not None:
                done = f"killed({opening!r}, root, {step.text!r}, {step.dies})"
            lines.append(f"try:\n    {done}\nexcept skipstone.SkipstoneError as refused:")
            lines.append("    print('refused:', refused)")
        keyed = keyed or step.encrypts
        opening = opening_of(recursive=case.recursive, keyed=keyed)
        if not case.kept or step.encrypts:
            lines.append(f"table = {opening}")
    for name, value in trial.arguments().items():
        lines.append(f"{name} = {value!r}")
    lines.append(f"# expected: {expectation(case)}")
    lines.append("try:")
    lines += [f"    {line}" for line in asking(case, keyed=keyed)]
    lines.append("finally:\n    shutil.rmtree(parent)\n")
    return "\n".join(lines)


def asking(case: Case, *, keyed: bool) -> list[str]:
    """The lines that ask, and print the answer."""
    trial = case.trial
    if trial.route not in SPARK:
        lines = []
        if trial.route == "file":
            lines.append(f'path = f"{{root}}/{trial.path}"')
            lines.append(f"file = {file_opening_of(keyed=keyed)}")
        return [*lines, f"print({CALLS[trial.route]})"]
    from tests.soak.spark import FORMS, FRAMES, VIEW, arguments_of, settings_of

    lines = [f"spark.conf.set({name!r}, {value!r})" for name, value in settings_of(trial).items()]
    arguments = arguments_of(trial, recursive=case.recursive)
    lines += [f"{name} = {value!r}" for name, value in arguments.items()]
    frame = FRAMES.get(trial.route, "")
    if trial.route == "skip":
        lines += VIEW.splitlines()
        frame = f"spark.sql({FORMS[trial.form].format(n=0, p=trial.where)!r})"
    return [*lines, f"print(sorted(row.{ROW} for row in {frame}.collect()))"]


def expectation(case: Case) -> str:
    """The matching rows, told by their ids."""
    world = World("", recursive=case.recursive)
    world.files.update(files_of(case))
    expected = expected_of(world, case.trial, case.predicate)
    ids = sorted(expected.ids().tolist())
    types = ", ".join(f"{f.name}: {f.type}" for f in expected.rows.table.schema)
    return f"{len(ids)} rows, {ROW} {ids[:20]} of a table with {types}"


def written(file: DataFile) -> str:
    columns = ", ".join(
        f"{name!r}: {array_text(file.rows.column(name))}" for name in file.rows.column_names
    )
    how = dict(file.how)
    return (
        f'write_file(f"{{root}}/{file.path}", pa.table({{{columns}}}), '
        f"{file.writer!r}, {how!r}, {file.changed})"
    )


def array_text(column: Any) -> str:
    """An Arrow column as Python that makes it again."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    t, type = pa.types, column.type
    if t.is_struct(type):
        children = ", ".join(array_text(column.field(i)) for i in range(type.num_fields))
        names = [type.field(i).name for i in range(type.num_fields)]
        mask = column.is_null().to_pylist()
        return f"pa.StructArray.from_arrays([{children}], names={names!r}, mask=pa.array({mask!r}))"
    if t.is_date(type):
        return f"pa.array({column.cast(pa.int32()).to_pylist()!r}, {type_text(type)})"
    if t.is_timestamp(type):
        return f"pa.array({column.cast(pa.int64()).to_pylist()!r}, {type_text(type)})"
    if t.is_string(type):
        return f"array({values_of(column)!r}, pa.string())"
    values = ", ".join(map(value_text, column.to_pylist()))
    return f"pa.array([{values}], {type_text(type)})"


def value_text(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if value != value else "math.inf" if value > 0 else "-math.inf"
    return repr(Decimal(value)) if isinstance(value, Decimal) else repr(value)


def type_text(type: pa.DataType) -> str:
    t = pa.types
    if t.is_dictionary(type):
        return f"pa.dictionary({type_text(type.index_type)}, {type_text(type.value_type)})"
    if t.is_list(type):
        return f"pa.list_({type_text(type.value_type)})"
    if t.is_decimal(type):
        return f"pa.decimal128({type.precision}, {type.scale})"
    if t.is_timestamp(type):
        return f"pa.timestamp({type.unit!r}, {type.tz!r})"
    plain = {"bool": "bool_", "double": "float64", "float": "float32", "date32[day]": "date32"}
    return f"pa.{plain.get(str(type), str(type))}()"
