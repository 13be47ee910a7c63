"""Where facts live: parts, packs, matching against a listing, and the upkeep of all that.

``Store`` is the face; ``Snapshot`` what it holds at one moment; ``Matched`` that over a listing.
"""

from .columns import Definition
from .location import Location
from .matching import Matched
from .packs import Place
from .snapshot import Snapshot
from .store import Store

__all__ = ["Definition", "Location", "Matched", "Place", "Snapshot", "Store"]
