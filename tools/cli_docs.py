"""Writes docs/cli.md from `--help` of every verb: `python -m tools.cli_docs`.

A test fails if the file differs from the command line.
"""

from __future__ import annotations

from pathlib import Path

import click

from skipstone.cli import VERBS, cli

__all__ = ["FILE", "page"]

FILE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
WIDTH = 96
_HEAD = """# The command line

This page is what `--help` says, verb by verb; `python -m tools.cli_docs` writes it.

- **stdout** carries the result and nothing else: aligned text, or one JSON document with `--json`.
  Progress, warnings and errors go to **stderr**; progress only when that is a terminal. `NO_COLOR`
  is respected.
- **JSON** of every verb follows a schema: [build](schemas/build.json),
  [explain](schemas/explain.json), [query](schemas/query.json), and so on, `schemas/VERB.json`.
  `schema_version` grows when a key is removed or gets another meaning; new keys may come at any
  time.
- **Exit codes**: 0 success; 1 failure, with a line `error: …` and a line `hint: …`, or `doctor`
  found a problem; 2 wrong usage; 3 `check` or `inspect --verify` found something, or not all files
  could be processed; 130 after Ctrl-C. `grep` has those of other greps: 0 some row matched; 1 none
  did; 2 an error.
- **Settings** come from the first of these that has them: the flag; its environment variable
  `SKIPSTONE_…`; `skipstone.toml` (or `[tool.skipstone]` of `pyproject.toml`) in the directory where
  the table lies; the default. The file may have `index-location`, `memory` and
  `recursive-file-lookup`. It decides where files are written and removed, so it is used only if it
  belongs to you or to root, and no other user can write it; otherwise a warning gives the reason.
- **Secrets** are never given as flags or in that file. Object stores take them from the
  environment, as their own tools do (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, …).
- **Completion** of verbs, options, paths, the columns of the table, and index kinds: add one line
  at the end of the start-up file of your shell.

  ```sh
  # in ~/.bashrc
  eval "$(_SKIPSTONE_COMPLETE=bash_source skipstone)"
  # in ~/.zshrc
  eval "$(_SKIPSTONE_COMPLETE=zsh_source skipstone)"
  # in ~/.config/fish/config.fish
  _SKIPSTONE_COMPLETE=fish_source skipstone | source
  ```
"""


def _help(command: click.Command, parent: click.Context | None, name: str) -> str:
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=cli.context_settings["help_option_names"],
    )
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def page() -> str:
    """The whole page."""
    root = click.Context(cli, info_name="skipstone")
    parts = [_HEAD, f"```text\n{_help(cli, None, 'skipstone')}\n```\n"]
    for verb in VERBS:
        command = cli.get_command(root, verb)
        assert command is not None, verb
        parts.append(f"## skipstone {verb}\n\n```text\n{_help(command, root, verb)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(page(), encoding="utf-8")
