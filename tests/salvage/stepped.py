"""A process that is killed before the step that is named, of those that change a file."""

from __future__ import annotations

__all__ = ["STEPS"]

#: the beginning of a script whose second argument is the number of steps to be let through
STEPS = """
import os, signal, sys
from skipstone.rewrite import checkpoint, replacing
left = int(sys.argv[2])
def step():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
class Steps:
    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in ("writev", "fsync", "ftruncate", "fchmod"):
            return real
        def call(*args):
            step()
            return real(*args)
        return call
replacing.os = checkpoint.os = Steps()
renamed = replacing.Path.rename
def rename(self, target):
    step()
    return renamed(self, target)
replacing.Path.rename = rename
"""
