"""Paimon's file indexes as kinds: bitmap, range-bitmap and bsi say which rows, bloom-filter whether
any.

All blobs of a data file lie in one container (``bundle``), the file's sidecar; the fact row of each
index says where in the container its blob lies, and what can be told of the file without reading
any (``kinds``). ``building`` makes the blobs; ``rows`` is the evidence of the row level, ``bloom``
that of the Bloom filter; ``options`` are Paimon's own names for all that can be set.
"""
