"""The fact store: parts, packs, matching against a listing, and upkeep.

``Store`` is the entry point; ``Snapshot`` is its content at one moment; ``MatchedFacts`` are the
facts of a snapshot for a listing.
"""

from .index_encryption import IndexEncryption
from .location import KeyedLocation, Location
from .part_columns import Definition
from .snapshot import MatchedFacts, Snapshot
from .store import Store
from .upkeep import Check, Compaction, Vacuumed, needs_merge

__all__ = [
    "Check",
    "Compaction",
    "Definition",
    "IndexEncryption",
    "KeyedLocation",
    "Location",
    "MatchedFacts",
    "Snapshot",
    "Store",
    "Vacuumed",
    "needs_merge",
]
