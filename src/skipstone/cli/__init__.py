"""The command line: flat verbs, each a thin skin over one call of the library.

``verbs`` names them and imports a verb's module when that verb is called; ``output`` is the only
module that prints; ``faults`` makes an exception into ``error: …`` and ``hint: …``.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The console script ``skipstone``: exits with 0 done, 1 failed, 2 usage, 3 ``check`` found."""
    from .verbs import cli

    cli()
