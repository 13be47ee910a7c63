"""Tables of table formats, written by the formats' own libraries, against their own readers."""
