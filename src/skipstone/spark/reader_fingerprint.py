"""The fingerprint of how Spark reads a CSV, JSON or ORC table: equal ones read equal values.

A Parquet file holds its values; in these formats the reader makes them. Indexed as int and asked
as string, ``'10' < '2'`` is another question than ``10 < 2``; in another time zone the same text
is another instant. So the facts of such a table carry a SHA-256 over

- the format, and the major version of Spark;
- the schema of the files: names, types, metadata, in order (CSV goes by position), without
  nullability and comments;
- every reader option that is not known to leave values alone, names in lower case;
- the settings of the session that change what the reader makes of a record.

A query under another fingerprint finds that the facts say nothing. What is left out is left out for
a reason: a fact is only made of a file in which no record is malformed, so the parse mode and the
name of the corrupt record column change nothing, unless the schema has a column of that name.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["CORRUPT_NAME", "FORMATS", "JVM_ZONE", "fingerprint", "session_settings"]

#: formats that get the object level through Spark
FORMATS = ("csv", "json", "orc")

CORRUPT_NAME = "spark.sql.columnNameOfCorruptRecord"
_SESSION_ZONE = "spark.sql.session.timeZone"
#: not a setting: the zone in which ORC's reader shows a timestamp that was written in another one
JVM_ZONE = "user.timezone"

# Options that say which files are read, how fast, what is inferred (the schema says it), or how a
# malformed record is treated (there is none). In lower case; every other option counts.
_HARMLESS = frozenset(
    {
        "basepath",
        "columnnameofcorruptrecord",
        "columnpruning",
        "ignorecorruptfiles",
        "ignoremissingfiles",
        "inferschema",
        "inputbuffersize",
        "mergeschema",
        "mode",
        "modifiedafter",
        "modifiedbefore",
        "path",
        "pathglobfilter",
        "paths",
        "prefersdate",
        "primitivesasstring",
        "recursivefilelookup",
        "samplingratio",
        "serialization.format",
    }
)
_TEXT_SETTINGS = (
    "spark.sql.ansi.enabled",
    "spark.sql.legacy.timeParserPolicy",
)
_SETTINGS: dict[str, tuple[str, ...]] = {
    "csv": (*_TEXT_SETTINGS, "spark.sql.legacy.csv.enableDateTimeParsingFallback"),
    "json": (
        *_TEXT_SETTINGS,
        "spark.sql.caseSensitive",
        # Whether 1.0E3 and {"a": 1.50}, read as a string, stay as they are written.
        "spark.sql.json.enableExactStringParsing",
        "spark.sql.legacy.json.allowEmptyString.enabled",
        "spark.sql.legacy.json.enableDateTimeParsingFallback",
    ),
    "orc": (
        "spark.sql.orc.impl",
        "spark.sql.caseSensitive",
        # Hadoop's settings reach the reader from the session too, under either name.
        "orc.force.positional.evolution",
        "spark.hadoop.orc.force.positional.evolution",
        "orc.proleptic.gregorian.default",
        "spark.hadoop.orc.proleptic.gregorian.default",
    ),
}


def session_settings(session: SparkSession, format: str) -> dict[str, str]:
    """The settings of ``session`` that ``fingerprint`` looks at, as they are or by default."""
    found = {}
    for key in (*_SETTINGS[format], CORRUPT_NAME, _SESSION_ZONE):
        try:
            value = session.conf.get(key)
        except Exception:  # no default: what is not set is left out
            continue
        if value is not None:
            found[key] = value
    found[JVM_ZONE] = _jvm_zone(session)
    found["spark"] = session.version.partition(".")[0]
    return found


def _jvm_zone(session: SparkSession) -> str:
    jvm = getattr(session, "_jvm", None) if hasattr(session, "_jsparkSession") else None
    if jvm is not None:
        return str(jvm.java.time.ZoneId.systemDefault().toString())
    # Spark Connect: only the server can say, as the value of an expression.
    row = session.sql("SELECT java_method('java.time.ZoneId', 'systemDefault')").first()
    return str(row[0]) if row is not None else ""


def fingerprint(
    format: str, options: Mapping[str, str], data_schema: str, settings: Mapping[str, str]
) -> str:
    """The fingerprint as 64 hexadecimal digits; see the module.

    ``data_schema`` is Spark's JSON of the columns that the files have (partition columns are none);
    ``settings`` is what ``session_settings`` gives.
    """
    lower = {key.lower(): value for key, value in options.items()}
    schema = _bare(json.loads(data_schema))
    names = {field["name"].lower() for field in schema["fields"]}
    counted = [*_SETTINGS[format], "spark"]
    if format == "orc":
        if _mentions(schema, "timestamp"):
            counted.append(JVM_ZONE)
    elif "timezone" not in lower and (_mentions(schema, "timestamp") or _mentions(schema, "date")):
        counted.append(_SESSION_ZONE)
    corrupt = lower.get("columnnameofcorruptrecord", settings.get(CORRUPT_NAME, ""))
    whole = {
        "format": format,
        "schema": schema,
        "options": {key: value for key, value in lower.items() if key not in _HARMLESS},
        "settings": {key: settings[key] for key in counted if key in settings},
        # A column of this name holds what could not be parsed, and no field of the record.
        "corrupt": corrupt if corrupt.lower() in names else None,
    }
    text = json.dumps(whole, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _bare(node: Any) -> Any:
    """A schema's JSON without nullability, which file sources ignore, and without comments."""
    if isinstance(node, dict):
        skipped = {"nullable", "containsNull", "valueContainsNull", "comment"}
        return {key: _bare(value) for key, value in node.items() if key not in skipped}
    return [_bare(each) for each in node] if isinstance(node, list) else node


def _mentions(node: Any, type: str) -> bool:
    """True where a column, or something inside one, has this type."""
    if isinstance(node, dict):
        return any(
            value == type or _mentions(value, type)
            for key, value in node.items()
            if key not in ("name", "metadata")
        )
    return isinstance(node, list) and any(_mentions(each, type) for each in node)
