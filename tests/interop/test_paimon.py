"""Containers exchanged with Paimon's own classes: verdicts equal, but for what is named here."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from skipstone import PaimonFileIndex, Table
from skipstone.paimon.format import container
from skipstone.paimon.format.keys import PaimonType
from tests.interop.java_systems import JavaProgram, jar, spark_jar
from tests.interop.paimon_cases import FOREIGN, WRITTEN, arrow, case, contents, types_in
from tests.paimon.format import golden as g

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

CONTAINERS = 200
OURS = {
    "bloom-filter": "paimonbloom",
    "bitmap": "bitmap",
    "range-bitmap": "rangebitmap",
    "bsi": "bsi",
}


@pytest.fixture(scope="module")
def paimon(tmp_path_factory: pytest.TempPathFactory) -> JavaProgram:
    jars = [jar("paimon-bundle"), spark_jar("hadoop-client-api"), spark_jar("slf4j-api")]
    return JavaProgram("PaimonIndexes", jars, tmp_path_factory.mktemp("classes"))


def answered(paimon: JavaProgram, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What Paimon says of each case."""
    lines = paimon.run(json.dumps(each) for each in cases).splitlines()
    assert len(lines) == len(cases)
    return [json.loads(line) for line in lines]


def rows_in(answer: Any, rows: int) -> set[int]:
    """The rows that may match by an answer of Paimon."""
    assert isinstance(answer, list) or answer in ("REMAIN", "SKIP"), answer
    if isinstance(answer, str):
        return set(range(rows)) if answer == "REMAIN" else set()
    return set(answer)


def leaves(where: Any) -> Iterator[dict[str, Any]]:
    for child in where.get("children", [where]):
        if child is where:
            yield where
        else:
            yield from leaves(child)


def fault(case: dict[str, Any], where: Any) -> str:
    """The known fault of Paimon 1.4.2 by which it misses rows of a query; "" if there is none."""
    types = types_in(case)
    for leaf in leaves(where):
        type, values = types[leaf["field"]], case["columns"][leaf["field"]]
        kinds = {each["kind"] for each in case["indexes"] if each["column"] == leaf["field"]}
        literals = [leaf["value"]] if "value" in leaf else leaf.get("values", [])
        if type.is_float and any(float(value) == 0 for value in literals):
            return "0.0 and -0.0 are two values"
        if not type.exact and leaf["op"] in ("ne", "not_in", "lt", "gt"):
            return "values of one microsecond are one value"
        empty = all(value is None for value in values)
        if "range-bitmap" in kinds and empty and leaf["op"] == "is_null":
            return "a range-bitmap of nulls has only two of them"
    return ""


def test_every_container_of_paimon_is_read(paimon: JavaProgram) -> None:
    """Of each query: no row is missed, what is called exact is, and the rows are Paimon's or fewer.

    Where Paimon misses rows, the reason is one of ``fault``.
    """
    random = Random(20_261)
    every = [*WRITTEN, *FOREIGN]
    cases = [
        case(
            random,
            f"{number}",
            [every[number % len(every)], *random.sample(every, random.randint(0, 2))],
            random.choice([0, 1, 7, 120, 120, 700, 3_000]),
        )
        for number in range(CONTAINERS)
    ]
    seen: Counter[str] = Counter()
    used: set[tuple[str, str]] = set()
    for each, answer in zip(cases, answered(paimon, cases), strict=True):
        rows = each["row_count"]
        types = types_in(each)
        index = PaimonFileIndex(bytes.fromhex(answer["index_hex"]), types=types, rows=rows)
        used |= {(str(types[made["column"]].root), made["kind"]) for made in each["indexes"]}
        for where, said in zip(each["queries"], answer["answers"], strict=True):
            label = f"{each['name']} {each['schema']} {each['indexes']}: {where}"
            true, theirs = g.truth(where, types, each["columns"]), rows_in(said, rows)
            if missed := not true <= theirs:
                assert fault(each, where), label
                seen[fault(each, where)] += 1
            asked = g.tree(where, types)
            if asked is None or any(types[leaf["field"]].root == "TIME" for leaf in leaves(where)):
                seen["no predicate of ours"] += 1
                continue
            found = index.select(asked)
            ours = set(found.rows.to_list())
            assert true <= ours, label
            assert not found.exact or ours == true, label
            if not missed:
                assert ours <= theirs or fault(each, where), label
                seen["equal" if ours == theirs else "fewer rows than Paimon"] += 1
    print(f"\n{CONTAINERS} containers of Paimon, {len(used)} pairs of type and kind: {dict(seen)}")
    assert {type for type, _ in used} == {str(PaimonType.parse(text).root) for text in every}
    assert {kind for _, kind in used} == set(OURS)
    assert seen["equal"] > 2_000


def test_every_container_of_ours_is_read_by_paimon(paimon: JavaProgram, tmp_path: Path) -> None:
    """Paimon says the same of our container as of its own over the same values, in every query."""
    random = Random(20_262)
    cases, containers = [], []
    for number in range(CONTAINERS // 10):
        like = case(
            random,
            "",
            [WRITTEN[number % len(WRITTEN)], *random.sample(WRITTEN, random.randint(0, 2))],
            0,
        )
        home, types = tmp_path / f"t{number}", types_in(like)
        home.mkdir()
        for file in range(10):
            rows = [0, 1, 7, 120, 700, 3_000][file % 6]
            each = {**like, "name": f"{number}.{file}", **contents(random, types, rows)}
            pq.write_table(arrow(each), home / f"{file}.parquet")
            cases.append(each)
        table = Table(str(home))
        report = table.build(indexes=[definition(made) for made in like["indexes"]])
        assert (report.files_built, report.left_out) == (10, ())
        table.export(str(tmp_path / f"out{number}"), kind="paimon")
        containers += [
            (tmp_path / f"out{number}" / f"{file}.parquet.index").read_bytes() for file in range(10)
        ]
    theirs = answered(paimon, cases)
    asked = [
        {**each, "index_hex": held.hex()} for each, held in zip(cases, containers, strict=True)
    ]
    seen: Counter[str] = Counter()
    for each, held, own, said in zip(
        cases, containers, theirs, answered(paimon, asked), strict=True
    ):
        types = types_in(each)
        made = PaimonFileIndex(held, types=types, rows=each["row_count"])
        foreign = PaimonFileIndex(
            bytes.fromhex(own["index_hex"]), types=types, rows=each["row_count"]
        )
        for where, first, second in zip(
            each["queries"], own["answers"], said["answers"], strict=True
        ):
            label = f"{each['name']} {each['schema']} {each['indexes']}: {where}"
            # SKIP and no row are one verdict: which of two indexes Paimon asks first is chance.
            kept = rows_in(second, each["row_count"])
            assert rows_in(first, each["row_count"]) == kept, label
            seen["equal"] += 1
            if not g.truth(where, types, each["columns"]) <= kept:
                assert fault(each, where), label
                seen[fault(each, where)] += 1
            if (tree := g.tree(where, types)) is not None:
                assert made.select(tree).rows.to_list() == foreign.select(tree).rows.to_list()
        ours = container.from_bytes(held)[1]
        others = container.from_bytes(bytes.fromhex(own["index_hex"]))[1]
        assert set(ours) == set(others)
        for (column, kind), blob in ours.items():
            same = blob == others[column, kind]
            seen[f"{kind} byte for byte"] += same
            # Paimon writes the values of a bitmap in the order of a hash map, an empty entry for
            # zero rows, and of an all-null range-bitmap the wrong nulls.
            nulls = not any(value is not None for value in each["columns"][column])
            assert same or kind == "bitmap" or nulls, (each["name"], column, kind)
    print(f"\n{len(cases)} containers of ours, read by Paimon: {dict(seen)}")


def definition(made: dict[str, Any]) -> str:
    """An index of a case as a definition of ours."""
    parameters = ", ".join(f"{name}={value}" for name, value in made["options"].items())
    text = f"{made['column']}:{OURS[made['kind']]}"
    return f"{text}({parameters})" if parameters else text
