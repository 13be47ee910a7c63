"""A process that is killed before the step that is named, of those that change a file."""

from __future__ import annotations

__all__ = ["STEPS"]

#: the beginning of a script whose second argument is the number of steps to be let through
STEPS = """
import os, pathlib, signal, sys
left = int(sys.argv[2])
def step():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
def stepping(real):
    def call(*args):
        step()
        return real(*args)
    return call
for name in ("writev", "fsync", "ftruncate", "fchmod"):
    setattr(os, name, stepping(getattr(os, name)))
pathlib.Path.rename = stepping(pathlib.Path.rename)
"""
