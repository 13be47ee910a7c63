"""Stores of Xskipper: foreign ones as evidence, our own facts published as one, upgrades.

What the bytes mean is in ``skipstone.xskipper.format``; here is what may be concluded from them
about the files of a table now, and how a directory of them is written so that a reader of any kind
never skips wrongly, at any moment.
"""

from .locate import XskipperLocation, find_store
from .publish import publish
from .store import XskipperStore
from .upgrade import upgrade_store

__all__ = ["XskipperLocation", "XskipperStore", "find_store", "publish", "upgrade_store"]
