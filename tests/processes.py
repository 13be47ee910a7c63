"""Python processes that tests start: their environment, and scripts that kill themselves."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.folders import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: the functions of ``os`` by which a writer changes a file
FILE_CALLS = ("writev", "fsync", "ftruncate", "fchmod", "rename")


def environment() -> dict[str, str]:
    """This process's environment, in which Skipstone and its tests can be imported."""
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def killed_before_step(*calls: str, after: bool = False) -> str:
    """The beginning of a script whose second argument is the number of steps that it survives.

    A step is a call of one of the functions ``calls`` of ``os``; the script kills itself before the
    next one. With ``after``, the return from such a call is a step, too.
    """
    return f"""
import os, signal, sys
left = int(sys.argv[2])
def step():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
def stepping(real):
    def call(*arguments, **named):
        step()
        found = real(*arguments, **named)
        if {after}:
            step()
        return found
    return call
for name in {calls}:
    setattr(os, name, stepping(getattr(os, name)))
"""


_FORKS = """
import ast, json, os, sys, traceback
tree = ast.parse(sys.argv[1])
imports = [each for each in tree.body if isinstance(each, (ast.Import, ast.ImportFrom))]
exec(compile(ast.Module(imports, []), "imports", "exec"), {})
script = compile(tree, "script", "exec")
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        sys.argv[1:] = json.loads(line)
        try:
            exec(script, {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@contextlib.contextmanager
def runs_of(script: str) -> Iterator[Callable[..., int]]:
    """Runs a script any number of times, with arguments, and returns its exit code, as one of
    ``subprocess`` is. Each run is a process, forked from one that has imported what the script
    imports: a new Python would take most of a second for that."""
    process = subprocess.Popen(
        [sys.executable, "-c", _FORKS, script],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    given, codes = process.stdin, process.stdout

    def run(*arguments: object) -> int:
        print(json.dumps(list(map(str, arguments))), file=given, flush=True)
        return int(codes.readline())

    try:
        yield run
    finally:
        process.communicate()
