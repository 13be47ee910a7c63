"""What goes to stdout, what to stderr, with which exit code, and what never shows."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from skipstone.cli.output import Output, fault_of
from skipstone.errors import FormatError, PredicateError, SkipstoneError

if TYPE_CHECKING:
    from tests.cli.conftest import Noted, Run

SOURCE = Path(__file__).resolve().parents[2] / "src"
HEAVY = {"pyspark", "pyarrow", "numpy", "pandas", "numba", "sqlglot", "rich", "fsspec", "obstore"}


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that knows the package."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **env},
        capture_output=True,
        text=True,
        check=False,
    )


def command(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "skipstone", *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **env},
        capture_output=True,
        text=True,
        check=False,
    )


# -- light -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["build", "--help"], ["nix"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import json, sys\nfrom skipstone.cli import main\n"
        f"sys.argv = ['skipstone', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    done = python(code)
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert "click" in loaded
    assert loaded.isdisjoint(HEAVY), loaded & HEAVY


def test_help_loads_no_module_of_a_verb() -> None:
    code = (
        "import sys\nfrom skipstone.cli import VERBS, cli\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(*(m for m, _ in VERBS.values() if f'skipstone.cli.{m}' in sys.modules), sep='\\n',"
        " file=sys.stderr)"
    )
    done = python(code)
    assert done.stderr.strip() == ""
    assert "describe" in done.stdout


# -- as a process ----------------------------------------------------------------------------------


def test_help_goes_to_stdout() -> None:
    done = command("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: skipstone [OPTIONS] VERB [ARGS]...")
    assert command().stdout == done.stdout


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["bulid", "t"], "error: no verb 'bulid', did you mean 'build'?"),
        (["describe"], "error: Missing argument 'TABLE'."),
        (["describe", "t", "--nix"], "error: No such option"),
        (["check", "t", "--sample", "0"], "error: Invalid value for '--sample'"),
    ],
)
def test_wrong_usage(arguments: list[str], error: str) -> None:
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(error)
    assert lines[1].startswith("hint: run `skipstone")
    assert lines[1].endswith("--help`")


def test_failure_is_two_lines() -> None:
    done = command("inspect", "/there/is no/such é file")
    assert (done.returncode, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: /there/is no/such é file: no such file")
    assert hint.startswith("hint: ")


def test_debug_shows_where() -> None:
    done = command("inspect", "/there/is/no/such/file", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("hint: ")


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}])
def test_no_colour_where_there_is_no_terminal(env: dict[str, str]) -> None:
    done = command("describe", **env)
    assert "\x1b" not in done.stderr + done.stdout


@dataclass
class Screen:
    """A stderr that says that it is a terminal."""

    text: str = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    "env, coloured", [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_on_a_terminal_unless_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], coloured: bool
) -> None:
    screen = Screen()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", screen)
    Output().warn("hm")
    assert ("\x1b[" in screen.text) is coloured
    assert screen.text.replace("\x1b[33m", "").replace("\x1b[0m", "") == "warning: hm\n"


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom skipstone.cli import output\nfrom skipstone.cli import cli\n"
        "class Much:\n"
        "    def to_dict(self): return {'x': 'y' * 10**6}\n"
        "    def __str__(self): return 'y' * 10**6\n"
        "@cli.command('describe')\n"
        "def describe(): output.Output().result(Much())\n"
        "cli.get_command = lambda ctx, name: describe\n"
        "cli.main(['describe'])\n"
    )
    reader = f"{sys.executable} -c 'import sys; sys.stdin.read(1)'"
    script = tmp_path / "much.py"
    script.write_text(code)
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} {script} | {reader}"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


# -- in this process -------------------------------------------------------------------------------


def test_an_interrupt_says_what_holds_for_the_verb(noted: Noted, run: Run) -> None:
    for verb, arguments, after in (
        ("describe", ["t"], "nothing was changed"),
        ("compact", ["t"], "the index is usable: the same command does the rest"),
        (
            "refresh",
            ["t", "--no-spark"],
            "files that were finished are kept: the same command continues from there",
        ),
    ):
        noted.answers[verb] = KeyboardInterrupt()
        done = run(verb, *arguments)
        assert (done.exit_code, done.stdout) == (130, "")
        assert done.stderr.splitlines()[-2:] == ["error: interrupted", f"hint: {after}"]


@pytest.mark.parametrize(
    "error, lines",
    [
        (
            PredicateError("no column 'idd'", text="idd = 1", position=0, nearest="id"),
            ["error: no column 'idd' at position 0 of 'idd = 1'", "hint: did you mean 'id'?"],
        ),
        (
            FormatError("not a footer", file="/t/a b", offset=4, expected=1, got=2, hint="mend it"),
            ["error: /t/a b: at byte 4: not a footer: expected 1, got 2", "hint: mend it"],
        ),
        (
            SkipstoneError("two\nlines", hint="also\ntwo"),
            ["error: two lines", "hint: also two"],
        ),
        (
            PermissionError(13, "Permission denied", "/t/x"),
            [
                "error: /t/x: Permission denied",
                "hint: grant this user access to it",
            ],
        ),
        (
            KeyError("who\nknows"),
            [
                "error: internal: KeyError: 'who\\nknows'",
                "hint: run the same command with --debug to see where, and please report it",
            ],
        ),
        (
            BrokenPipeError(errno.EPIPE, "Broken pipe"),
            [
                "error: a connection was closed by the other side",
                "hint: run the command again; --debug shows which connection it was",
            ],
        ),
        (MemoryError(), ["error: out of memory", "hint: give `--memory` a smaller size"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_is_two_lines_and_1(
    noted: Noted, run: Run, error: BaseException, lines: list[str]
) -> None:
    noted.answers["describe"] = error
    done = run("describe", "t", "--json")
    assert (done.exit_code, done.stdout) == (1, "")
    assert [line for line in done.stderr.splitlines() if line] == lines


def test_a_long_message_is_cut() -> None:
    fault = fault_of(RuntimeError("x" * 5000))
    assert len(fault.message) <= 600
    assert fault.message.endswith("…")


def test_a_click_exception_that_is_no_usage_error() -> None:
    fault = fault_of(click.FileError("a", "b"))
    assert fault.code == 1


def test_warnings_go_to_stderr_as_one_line_each(noted: Noted, run: Run) -> None:
    def warns() -> Any:
        logging.getLogger("skipstone").warning("facts of %s\nare torn", "a")
        warnings.warn("hm", UserWarning, stacklevel=1)
        return noted.answers["compact"]

    noted.answers["describe"] = warns
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        done = run("describe", "t", "--json")
        quiet = run("describe", "t", "--json", "-q")
    assert done.stderr.splitlines() == ["warning: facts of a are torn", "warning: hm"]
    assert json.loads(done.stdout) == json.loads(quiet.stdout)
    assert quiet.stderr == ""


def test_progress_is_drawn_for_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Output().progress("indexing") as advance:
        assert advance is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Output(quiet=True).progress("indexing") as advance:
        assert advance is None
    with Output().progress("indexing") as advance:
        assert advance is not None
        advance(3, 10)
        advance(10, 10)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "indexing" in captured.err


def test_a_file_name_that_is_not_utf8() -> None:
    done = python(
        "from skipstone.cli.output import Output\n"
        "class Odd:\n"
        "    def to_dict(self): return {'path': '/t/\\u00e9\\udcff'}\n"
        "    def __str__(self): return 'read /t/\\u00e9\\udcff'\n"
        "Output().result(Odd())\nOutput(as_json=True).result(Odd())\n",
        PYTHONIOENCODING="utf-8",
    )
    assert done.returncode == 0, done.stderr
    text, *document = done.stdout.splitlines()
    assert text == "read /t/é\\udcff"
    assert json.loads("\n".join(document)) == {"schema_version": 1, "path": "/t/é\udcff"}


def test_a_terminal_without_our_letters() -> None:
    done = python(
        "from skipstone.cli.output import Output\nOutput().warn('é → …')",
        PYTHONIOENCODING="ascii",
    )
    assert done.stderr == "warning: \\xe9 \\u2192 \\u2026\n"
