"""Where facts live: parts, packs, matching against a listing, and the upkeep of all that.

``Store`` is the face; ``Snapshot`` what it holds at one moment; ``MatchedFacts``
that over a listing.
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
