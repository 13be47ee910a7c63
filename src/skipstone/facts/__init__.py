"""The fact store: parts, packs, matching against a listing, compaction, vacuum and checks.

``Store`` is the entry point; ``Snapshot`` is its content at one moment; ``MatchedFacts`` are the
facts of a snapshot for a listing.
"""

from .location import KeyedLocation, Location
from .part_columns import Definition
from .snapshot import MatchedFacts, Snapshot
from .store import Store

__all__ = [
    "Definition",
    "KeyedLocation",
    "Location",
    "MatchedFacts",
    "Snapshot",
    "Store",
]
