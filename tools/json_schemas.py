"""Writes docs/schemas/VERB.json, the JSON Schema of `--json`: `python -m tools.json_schemas`.

Reports are dataclasses, and their types say what `to_dict` returns; `_OTHER` describes those whose
`to_dict` differs. A test fails if a file differs, or if a document of a verb does not follow it.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import json
import sys
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from skipstone.advisor import Advice, Savings
from skipstone.advisor.layout_report import LayoutAdvice
from skipstone.advisor.report import QuerySavings
from skipstone.advisor.usage import UsageReport
from skipstone.cli import VERBS
from skipstone.cli.demo import DemoReport
from skipstone.cli.output import SCHEMA_VERSION
from skipstone.doctor.diagnosis import Diagnosis
from skipstone.facts.reports import (
    BuildReport,
    CheckReport,
    CompactReport,
    Description,
    DropReport,
    ExportReport,
    IndexInfo,
    VacuumReport,
)
from skipstone.human import FilesReport, Report
from skipstone.pruning.plan import Coverage
from skipstone.questdb.migrate import MigrateReport
from skipstone.report.html_page import PageReport
from skipstone.rewrite.encrypt_file import EncryptReport
from skipstone.rewrite.file_jobs import TableReport
from skipstone.rewrite.index_pages_file import RetrofitWithIndexPages
from skipstone.rewrite.rekey_file import RekeyReport
from skipstone.rewrite.retrofit_file import RetrofitReport, TableRetrofitReport
from skipstone.rewrite.summary_files import SummaryReport
from skipstone.salvage.report import SalvageReport
from skipstone.spark.clustering import ClusterReport
from skipstone.xskipper.upgrade import UpgradeReport

__all__ = ["FOLDER", "schemas"]

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schemas"
Schema = dict[str, Any]

_INTEGER, _NUMBER, _STRING = {"type": "integer"}, {"type": "number"}, {"type": "string"}
_BOOLEAN, _OBJECT = {"type": "boolean"}, {"type": "object"}
_ATOMS: dict[object, Schema] = {bool: _BOOLEAN, int: _INTEGER, float: _NUMBER, str: _STRING}


def _object(properties: Mapping[str, Any], optional: Collection[str] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_KEPT = _object({"kept": _INTEGER, "total": _INTEGER})
_CHANGE = _object({"before": _INTEGER, "after": _INTEGER})
_STEP = _object(
    {
        "level": {"enum": ["files", "row groups", "pages", "rows"]},
        "index": _STRING,
        "column": _STRING,
        "used": _BOOLEAN,
        "considered": _INTEGER,
        "kept": _INTEGER,
        "unit": _STRING,
        "bytes_read": _INTEGER,
        "requests": _INTEGER,
        "milliseconds": _NUMBER,
        "reasons": _array(_STRING),
    }
)
_AMOUNT = _object({"bytes": _INTEGER, "requests": _INTEGER})
_FORECAST = _object(
    {
        "certain": _AMOUNT,
        "possible": _AMOUNT,
        "about": _BOOLEAN,
        "files_unopened": _INTEGER,
        "at_most": _BOOLEAN,
        "files_looked_into": _INTEGER,
        "row_groups": _KEPT,
        "pages": _KEPT,
    }
)
_OPTIONAL_IN_PLANS = ("sidecars", "partitions", "schema", "analyzed")


def _plan() -> Schema:
    numbers = _object({"kept": _or_null(_INTEGER), "total": _or_null(_INTEGER)})
    names = ("distinct", "files", "from_facts", "from_footers")
    return _object(
        {
            "table": _STRING,
            "predicate": _STRING,
            "residual": _or_null(_STRING),
            "exact": _BOOLEAN,
            "files": _KEPT,
            "bytes": _KEPT,
            "rows": numbers,
            "facts": _object(dict.fromkeys(("fresh", "stale", "missing"), _INTEGER)),
            "sidecars": _INTEGER,
            "partitions": _of(Coverage),
            "schema": _object(dict.fromkeys(names, _INTEGER)),
            "requests": _INTEGER,
            "planning": _object({"bytes": _INTEGER, "requests": _INTEGER}),
            "steps": _array(_STEP),
            "reasons": _array(_STRING),
            "milliseconds": {"type": "object", "additionalProperties": _NUMBER},
            "paths": _array(_STRING),
            "forecast": _or_null(_FORECAST),
            "analyzed": _object(
                {
                    "rows": _INTEGER,
                    "files_read": _INTEGER,
                    "bytes": _INTEGER,
                    "requests": _INTEGER,
                    "milliseconds": _NUMBER,
                }
            ),
        },
        _OPTIONAL_IN_PLANS,
    )


def _extended(schema: Schema, properties: Mapping[str, Any], gone: Collection[str] = ()) -> Schema:
    kept = {name: each for name, each in schema["properties"].items() if name not in gone}
    optional = kept.keys() - {*schema["required"], *properties}
    return _object({**kept, **properties}, optional)


def _salvage() -> Schema:
    found = _fields(SalvageReport)
    names = ("ambiguous_pages", "incomplete_pages")
    sums = ("row_groups_found", "row_groups_saved", "rows_found", "rows_saved", "pages_bad")
    renamed = {f"pages_{n.removesuffix('_pages')}": found["properties"][n] for n in names}
    return _extended(found, renamed | dict.fromkeys(sums, _INTEGER), names)


#: the reports whose ``to_dict`` is more than their fields
_OTHER: dict[type, Any] = {
    IndexInfo: lambda: _extended(_fields(IndexInfo), {"params": _OBJECT}),
    SalvageReport: _salvage,
    QuerySavings: lambda: _object(
        {"where": _STRING, "weight": _NUMBER, "files": _CHANGE, "bytes": _CHANGE}
    ),
    Savings: lambda: _extended(_fields(Savings), {"bytes": _CHANGE}),
    RetrofitWithIndexPages: lambda: _extended(_of(RetrofitReport), {"index_pages": _OBJECT}),
}


class _Names(dict[str, Any]):
    """Names of annotations, also those that a module imports for type checkers only."""

    def __init__(self, module: str) -> None:
        super().__init__(vars(sys.modules[module]))

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            return getattr(builtins, name)
        for module in (typing, *(each for key, each in sys.modules.items() if "skipstone" in key)):
            if name in vars(module):
                return vars(module)[name]
        return object


def _hints(what: Any, module: str) -> dict[str, Any]:
    return {
        name: eval(text, {}, _Names(module)) if isinstance(text, str) else text
        for name, text in what.__annotations__.items()
    }


def _fields(type_: type[Report]) -> Schema:
    hints: dict[str, Any] = {}
    for base in reversed(type_.__mro__):
        if "__annotations__" in vars(base):
            hints |= _hints(base, base.__module__)
    properties = {field.name: _of(hints[field.name]) for field in dataclasses.fields(type_)}  # type: ignore[arg-type]
    for name in type_.computed:
        base = next(each for each in type_.__mro__ if name in vars(each))
        getter = vars(base)[name].fget
        properties[name] = _of(_hints(getter, base.__module__)["return"])
    if issubclass(type_, FilesReport):
        properties |= dict.fromkeys(["files_total", *type_.outcomes], _INTEGER)
    return _object(properties)


def _of(hint: Any) -> Schema:
    """The schema of what ``Report.to_dict`` makes of a value of this type."""
    if hint in _ATOMS:
        return _ATOMS[hint]
    if hint is None or hint is types.NoneType:
        return {"type": "null"}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_of(each) for each in arguments]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (tuple, list):
        if origin is list or arguments[1:] == (...,):
            return _array(_of(arguments[0]))
        return {"type": "array", "prefixItems": [_of(each) for each in arguments]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(arguments[1])}
    if isinstance(hint, type) and issubclass(hint, Report):
        return _OTHER[hint]() if hint in _OTHER else _fields(hint)
    if hint in (object, Any):
        return {}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [each.value for each in hint]}
    return _STRING  # a value with a complete text


def _matches() -> Schema:
    """The texts that match, and the rows of each file."""
    match = {"file": _STRING, "column": _STRING, "text": _STRING, "context": {"type": "array"}}
    return _object(
        {
            "matches": {"type": "array", "items": _object(match)},
            "by_file": {"type": "object", "additionalProperties": _INTEGER},
            "rows": _INTEGER,
            "files": _object({"kept": _INTEGER, "total": _INTEGER}),
        }
    )


def _rows() -> Schema:
    unreadable = _array({"type": "array", "prefixItems": [_STRING, _STRING]})
    return _object(
        {
            "columns": _array(_STRING),
            "rows": _array({"type": "array"}),
            "count": _INTEGER,
            "unreadable": unreadable,
        }
    )


def _documents() -> dict[str, list[Schema]]:
    table = _of(TableReport)
    would_drop = {
        "table": _STRING,
        "dry_run": _BOOLEAN,
        "dropped": _array(_STRING),
        "bytes_removed": _INTEGER,
    }
    # A file of any kind has its own properties.
    inspected = _object({"path": _STRING, "found": _array(_OBJECT)}, ["found"])
    return {
        "demo": [_of(DemoReport)],
        "advise": [_of(Advice), _of(Savings), _of(LayoutAdvice)],
        "build": [_of(BuildReport)],
        "refresh": [_of(BuildReport)],
        "describe": [_of(Description)],
        "explain": [_plan()],
        "query": [_rows()],
        "grep": [_matches()],
        "count": [_object({"rows": _INTEGER})],
        "report": [_of(PageReport)],
        "usage": [_of(UsageReport)],
        "check": [_of(CheckReport)],
        "drop": [_of(DropReport), _object(would_drop)],
        "compact": [_of(CompactReport), _of(UpgradeReport)],
        "vacuum": [_of(VacuumReport)],
        "export": [_of(ExportReport)],
        "ingest": [_object({"table": _STRING})],
        "migrate": [_of(MigrateReport)],
        "cluster": [_of(ClusterReport)],
        "retrofit": [_of(TableRetrofitReport), _of(RetrofitReport), _of(RetrofitWithIndexPages)],
        "salvage": [_of(SalvageReport), table],
        "encrypt": [_of(EncryptReport), table],
        "decrypt": [_of(EncryptReport), table],
        "rekey": [_of(RekeyReport), table],
        "write-metadata": [_of(SummaryReport)],
        "inspect": [inspected],
        "doctor": [_of(Diagnosis)],
    }


def schemas() -> dict[str, Schema]:
    """The schema of each verb's document."""
    found = {}
    for verb, documents in _documents().items():
        version = {"schema_version": {"const": SCHEMA_VERSION}}
        head: Schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"skipstone {verb} --json",
            "description": VERBS[verb][1],
        }
        kinds = [_extended(each, version) if "properties" in each else each for each in documents]
        body = kinds[0] if len(kinds) == 1 else {**_object(version), "anyOf": kinds}
        found[verb] = head | body
    return found


def text_of(schema: Schema) -> str:
    """The file of a schema."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for verb, schema in schemas().items():
        (FOLDER / f"{verb}.json").write_text(text_of(schema), encoding="utf-8")
