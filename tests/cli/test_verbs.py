"""Each verb hands its options to one call of the library, and shows what that reports."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import click
import pytest

from skipstone.cli import VERBS, cli
from skipstone.facts.reports import CheckReport
from skipstone.indexes.registry import parse_index
from skipstone.table import Table
from tests.cli.conftest import DESCRIPTION

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Noted, Run

SIMPLE = {
    "advise": ["advise", "t"],
    "build": ["build", "t", "-c", "id:bloom", "--no-spark"],
    "refresh": ["refresh", "t", "--no-spark"],
    "describe": ["describe", "t"],
    "explain": ["explain", "t", "id = 5"],
    "check": ["check", "t"],
    "drop": ["drop", "t", "--yes"],
    "compact": ["compact", "t"],
    "vacuum": ["vacuum", "t"],
    "export": ["export", "t", "d", "--xskipper"],
}


#: Verbs with tests of their own, beside what they are about.
ELSEWHERE = {
    "demo",
    "cluster",
    "count",
    "decrypt",
    "doctor",
    "encrypt",
    "grep",
    "ingest",
    "inspect",
    "migrate",
    "query",
    "rekey",
    "report",
    "retrofit",
    "salvage",
    "usage",
    "write-metadata",
}


#: Verbs that take other things than a table, functions of the package; and `grep`, which prints
#: the rows of a scan.
NO_METHODS = {"demo", "doctor", "grep", "ingest", "inspect", "report"}


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - NO_METHODS))
def test_each_verb_is_a_method_of_the_table(verb: str) -> None:
    assert callable(getattr(Table, verb.replace("-", "_")))


def test_every_other_verb_is_tried_here() -> None:
    assert set(VERBS) == {*SIMPLE, *ELSEWHERE}


@pytest.mark.parametrize("verb", VERBS)
def test_the_table_of_verbs_and_the_commands_agree(verb: str) -> None:
    context = click.Context(cli)
    command = cli.get_command(context, verb)
    assert command is not None
    assert command.name == verb
    assert command.help, "a verb without help"
    options = {option for param in command.params for option in param.opts}
    assert {"--json", "--quiet", "--debug"} <= options
    for param in command.params:
        assert not isinstance(param, click.Option) or param.help, f"{param.opts} has no help"


@pytest.mark.parametrize("verb", SIMPLE)
def test_the_report_goes_to_stdout_alone(noted: Noted, run: Run, verb: str) -> None:
    done = run(*SIMPLE[verb])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"{noted.answers[verb]}\n"
    assert noted.call[0] == verb
    assert {**noted.made, "format": "parquet"} == {"path": "t", "format": "parquet"}


@pytest.mark.parametrize("verb", SIMPLE)
def test_json_is_one_document(noted: Noted, run: Run, verb: str) -> None:
    done = run(*SIMPLE[verb], "--json")
    assert done.exit_code == 0
    report = json.loads(json.dumps(noted.answers[verb].to_dict()))
    assert json.loads(done.stdout) == {"schema_version": 1, **report}


def test_build_hands_on_its_options(noted: Noted, run: Run) -> None:
    columns = ["-c", "id:bloom(fpp=0.001)", "-c", "a.b:minmax,valuelist(max_values=9)"]
    where = ["--index-location", "/i", "--storage-option", "region=eu", "--memory", "1GiB"]
    source = ["--format", "csv", "--option", "header=true", "--schema", "id int"]
    done = run("build", "s3://b/t", *columns, *where, *source, "--no-spark")
    assert done.exit_code == 0, done.stderr
    indexes = ["id:bloom(fpp=0.001)", "a.b:minmax", "a.b:valuelist(max_values=9)"]
    assert noted.made == {
        "path": "s3://b/t",
        "index_location": "/i",
        "storage_options": {"region": "eu"},
        "format": "csv",
        "options": {"header": "true"},
        "schema": "id int",
    }
    verb, options = noted.call
    del options["session"]
    assert (verb, options) == (
        "build",
        {
            0: None,
            "indexes": [parse_index(text) for text in indexes],
            "memory": 2**30,
            "progress": None,
            "pm": "external",
            "encryption": None,
            "plaintext_index": False,
        },
    )


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("id", "'id' is not an index definition"),
        ("id:bloom(nonsense=1)", "nonsense"),
        ("id:bloom(fpp=7)", "fpp"),
        (":bloom", "is not an index definition"),
    ],
)
def test_what_is_no_index_is_wrong_usage(noted: Noted, run: Run, text: str, complaint: str) -> None:
    done = run("build", "t", "-c", text, "--no-spark")
    assert done.exit_code == 2
    assert complaint in done.stderr.splitlines()[0]
    assert not noted.calls


def test_an_unknown_kind_names_those_that_there_are(noted: Noted, run: Run) -> None:
    done = run("build", "t", "-c", "id:btree", "--no-spark")
    assert done.exit_code == 1
    assert "btree" in done.stderr.splitlines()[0]
    assert "minmax" in done.stderr.splitlines()[1]


def test_nothing_is_indexed_by_default(noted: Noted, run: Run) -> None:
    done = run("build", "t", "--no-spark")
    assert done.exit_code == 2
    assert "advise" in done.stderr
    assert not noted.calls


@pytest.mark.parametrize(
    "text, bytes_",
    [
        ("512MiB", 512 << 20),
        ("512m", 512 << 20),
        ("2GB", 2 * 10**9),
        ("1g", 1 << 30),
        ("1.5kB", 1500),
        ("123456", 123456),
    ],
)
def test_sizes(noted: Noted, run: Run, text: str, bytes_: int) -> None:
    assert run("build", "t", "-c", "i:bloom", "--no-spark", "--memory", text).exit_code == 0
    assert noted.call[1]["memory"] == bytes_


@pytest.mark.parametrize("text", ["", "x", "12 parsecs", "-1", "0"])
def test_what_is_no_size_is_wrong_usage(noted: Noted, run: Run, text: str) -> None:
    done = run("build", "t", "-c", "i:bloom", "--no-spark", "--memory", text)
    assert done.exit_code == 2
    assert not noted.calls


@pytest.mark.parametrize(
    "text, span",
    [
        ("1d", timedelta(days=1)),
        ("36h", timedelta(hours=36)),
        ("90m", timedelta(minutes=90)),
        ("0s", timedelta(0)),
    ],
)
def test_time_spans(noted: Noted, run: Run, text: str, span: timedelta) -> None:
    assert run("vacuum", "t", "--older-than", text, "--dry-run").exit_code == 0
    assert noted.call == ("vacuum", {"older_than": span, "dry_run": True})


def test_what_is_no_time_span_is_wrong_usage(noted: Noted, run: Run) -> None:
    assert run("vacuum", "t", "--older-than", "yesterday").exit_code == 2
    assert not noted.calls


def test_check_hands_on_its_options(noted: Noted, run: Run) -> None:
    assert run("check", "t", "--deep", "--sample", "7").exit_code == 0
    assert noted.call == ("check", {"deep": True, "sample": 7})


@pytest.mark.parametrize("verb", ["check", "explain", "build", "refresh", "advise"])
def test_keys_of_the_data_go_to_the_table(
    noted: Noted, run: Run, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("FOOTER", "text:0123456789012345")
    assert run(*SIMPLE[verb], "--footer-key", "env:FOOTER").exit_code == 0
    assert noted.made["decryption"].has_keys
    assert "0123456789012345" not in repr((noted.made, noted.calls))


def test_partial_is_said_to_the_table_where_it_was_said(noted: Noted, run: Run) -> None:
    assert run("describe", "t").exit_code == 0
    assert "partial" not in noted.made
    assert run("describe", "t", "--partial").exit_code == 0
    assert noted.made["partial"] is True


@pytest.mark.parametrize("verb", ["write-metadata", "metadata"])  # its earlier name
def test_metadata_is_written_unless_it_is_a_dry_run(noted: Noted, run: Run, verb: str) -> None:
    noted.answers["write_metadata"] = DESCRIPTION
    done = run(verb, "t", "--dry-run")
    assert (done.exit_code, done.stdout) == (0, f"{DESCRIPTION}\n")
    assert noted.call == ("write_metadata", {"dry_run": True, "progress": None})


def test_rows_are_csv_or_json_and_not_both(noted: Noted, run: Run) -> None:
    done = run("query", "t", "--csv", "--json")
    assert done.exit_code == 2
    assert "either --csv or --json" in done.stderr
    assert not noted.calls


@pytest.mark.parametrize(
    "found",
    [
        CheckReport(table="t", files_total=3, fresh=2, stale=("/t/a",)),
        CheckReport(table="t", files_total=3, fresh=2, missing=1),
        CheckReport(table="t", files_total=3, fresh=3, orphaned=1),
        CheckReport(table="t", files_total=3, fresh=3, corrupt=("part-1: torn",)),
        CheckReport(table="t", files_total=3, fresh=3, deep=True, untrue=("/t/a: min",)),
    ],
    ids=["stale", "missing", "orphaned", "corrupt", "untrue"],
)
def test_check_exits_with_3_when_it_found_something(
    noted: Noted, run: Run, found: CheckReport
) -> None:
    noted.answers["check"] = found
    done = run("check", "t", "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["ok"] is False
    assert run("check", "t").stdout == f"{found}\n"


def test_drop_asks_nobody_where_nobody_is(noted: Noted, run: Run) -> None:
    done = run("drop", "t")
    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert not noted.calls


def test_drop_of_one_index(noted: Noted, run: Run) -> None:
    assert run("drop", "t", "id:bloom", "--yes").exit_code == 0
    assert noted.call == ("drop", {0: "id:bloom"})


@pytest.mark.parametrize("answer, dropped", [("y", True), ("yes", True), ("n", False), ("", False)])
def test_drop_asks_on_a_terminal(
    noted: Noted, run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, dropped: bool
) -> None:
    monkeypatch.setattr("skipstone.cli.output.Output.can_ask", lambda self: True)
    done = run("drop", "t", "id:bloom", input=f"{answer}\n")
    assert "Drop index id:bloom of t?" in done.stderr
    assert bool(noted.calls) is dropped
    assert done.exit_code == (0 if dropped else 1)


@pytest.mark.parametrize(
    "index, dropped, size",
    [
        (None, ["id:bloomfilter(fpp=0.001)", "ts:minmax"], 40_000),
        ("id:bloom", ["id:bloomfilter(fpp=0.001)"], 30_000),
        ("id:bloomfilter(fpp=0.001)", ["id:bloomfilter(fpp=0.001)"], 30_000),
    ],
)
def test_drop_dry_run_only_says_what_would_go(
    noted: Noted, run: Run, index: str | None, dropped: list[str], size: int
) -> None:
    named = [] if index is None else [index]
    told = json.loads(run("drop", "t", *named, "--dry-run", "--json").stdout)
    assert told == {
        "schema_version": 1,
        "table": "/data/events",
        "dry_run": True,
        "dropped": dropped,
        "bytes_removed": size,
    }
    text = run("drop", "t", *named, "--dry-run").stdout
    assert f"would drop {len(dropped)} of 2 indexes" in text
    assert {verb for verb, _ in noted.calls} == {"describe"}


def test_drop_dry_run_of_an_index_that_is_not_there(noted: Noted, run: Run) -> None:
    done = run("drop", "t", "id:minmax", "--dry-run")
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        "error: /data/events has no index 'id:minmax'",
        "hint: did you mean 'id:bloomfilter(fpp=0.001)'?",
    ]


def test_export_needs_to_know_as_what(noted: Noted, run: Run) -> None:
    assert run("export", "t", "d").exit_code == 2
    assert not noted.calls
    run("export", "t", "d", "--xskipper")
    assert noted.call == ("export", {0: "d", "kind": "xskipper"})


@pytest.mark.parametrize(
    "key", ["aws_secret_access_key", "access_key_id", "sas_token", "password", "account_key"]
)
def test_secrets_are_refused_on_the_command_line(noted: Noted, run: Run, key: str) -> None:
    done = run("describe", "s3://b/t", "--storage-option", f"{key}=hunter2")
    assert done.exit_code == 2
    assert "environment" in done.stderr
    assert "hunter2" not in done.output
    assert not noted.made


def test_a_storage_option_is_key_and_value(noted: Noted, run: Run) -> None:
    done = run("describe", "s3://b/t", "--storage-option", "endpoint")
    assert done.exit_code == 2
    run("describe", "t", "--storage-option", "a=b=c", "--storage-option", "d=")
    assert noted.made["storage_options"] == {"a": "b=c", "d": ""}


# -- flag, environment, file, default --------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a table and settings beside it."""
    (tmp_path / "t").mkdir()
    (tmp_path / "skipstone.toml").write_text('index-location = "idx"\nmemory = "64MiB"\n')
    return tmp_path


def test_a_flag_beats_the_environment_beats_the_file(noted: Noted, run: Run, home: Path) -> None:
    table = home / "t"
    run("describe", table)
    assert noted.made["index_location"] == str(home / "idx")
    run("describe", table, SKIPSTONE_INDEX_LOCATION="/env")
    assert noted.made["index_location"] == "/env"
    run("describe", table, "--index-location", "/flag", SKIPSTONE_INDEX_LOCATION="/env")
    assert noted.made["index_location"] == "/flag"


def test_settings_are_converted_like_flags(noted: Noted, run: Run, home: Path) -> None:
    run("build", home / "t", "-c", "i:bloom", "--no-spark")
    assert noted.call[1]["memory"] == 64 << 20
    (home / "skipstone.toml").write_text('memory = "much"')
    done = run("build", home / "t", "-c", "i:bloom", "--no-spark")
    assert done.exit_code == 2
    assert "'much' is not a size" in done.stderr


def test_settings_in_a_pyproject(noted: Noted, run: Run, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.skipstone]\nindex-location = "s3://b/i"\n')
    run("describe", tmp_path / "t")
    assert noted.made["index_location"] == "s3://b/i"


@pytest.mark.parametrize(
    "name, text, complaint",
    [
        ("skipstone.toml", "idx = ", "skipstone.toml"),
        ("skipstone.toml", 'master = "spark://elsewhere"', "unknown key 'master'"),
        ("skipstone.toml", "memory = 5", "memory is not a text"),
        ("skipstone.toml", "recursive-file-lookup = 1", "recursive-file-lookup is not true or"),
        ("skipstone.toml", f"memory = {'9' * 5_000}", "skipstone.toml"),
        ("skipstone.toml", f"memory = {'[' * 5_000}", "skipstone.toml"),
        ("pyproject.toml", "[tool]\nskipstone = 3", "not a table"),
    ],
)
def test_settings_that_are_none_of_ours(
    noted: Noted, run: Run, tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text)
    done = run("describe", tmp_path / "t")
    assert done.exit_code == 1
    assert complaint in done.stderr.splitlines()[0]
    assert done.stderr.splitlines()[1].startswith("hint: ")
    assert not noted.made


def test_somebody_elses_pyproject_is_no_trouble(noted: Noted, run: Run, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("this is [ no toml")
    assert run("describe", tmp_path / "t").exit_code == 0


def test_a_table_in_an_object_store_has_no_settings_beside(noted: Noted, run: Run) -> None:
    run("describe", "s3://bucket/t")
    assert "index_location" not in noted.made


def test_a_path_is_passed_on_as_it_is(noted: Noted, run: Run, tmp_path: Path) -> None:
    odd = tmp_path / "a b%20é=ü;'\"$x"
    noted.answers["describe"] = DESCRIPTION
    assert run("describe", odd).exit_code == 0
    assert noted.made["path"] == str(odd)
