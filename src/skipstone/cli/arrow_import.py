"""Arrow without pandas, in a process that is a command's own.

PyArrow imports pandas, where it is installed, at the first ``pa.array`` of anything: to know a
Series when it sees one. That takes longer than planning a query does. PySpark wants pandas
installed, and no verb hands Arrow a Series, so PyArrow is let look once while there is none to be
found. It looks again by itself as soon as it is asked for a DataFrame; PySpark's own import is not
touched.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["spare_pandas"]


class _Hidden:
    """A finder that says of pandas that it is not installed, and nothing of the rest."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name} is not asked for", name=name)


def spare_pandas() -> None:
    """Let PyArrow find no pandas, unless somebody has imported it already."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array(())
    finally:
        sys.meta_path.remove(hidden)
