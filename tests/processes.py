"""Python processes that tests start: their environment, and scripts that kill themselves."""

from __future__ import annotations

import os

from tests.folders import ROOT

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
