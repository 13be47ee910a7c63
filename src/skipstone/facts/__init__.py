"""Where facts live: parts, packs, matching against a listing, and the upkeep of all that.

``Store`` is the face; ``Snapshot`` what it holds at one moment; ``Matched`` that over a listing.
"""

from .check import Check
from .index_encryption import IndexEncryption
from .location import KeyedLocation, Location
from .match import Matched
from .packs import Place
from .part_columns import Definition
from .snapshot import Snapshot
from .store import Store
from .upkeep import Compaction, Vacuumed, needs_merge

__all__ = [
    "Check",
    "Compaction",
    "Definition",
    "IndexEncryption",
    "KeyedLocation",
    "Location",
    "Matched",
    "Place",
    "Snapshot",
    "Store",
    "Vacuumed",
    "needs_merge",
]
