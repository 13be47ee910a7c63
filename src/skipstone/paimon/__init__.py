"""Apache Paimon's file indexes: three kinds give rows of a file, the Bloom filter excludes files.

All index blobs of a data file lie in one container, the sidecar of the file. ``format`` has the
bytes. The fact row of an index says where in the container its blob lies, and holds the bounds that
need no read (``base``, ``kinds``, ``bloom``). ``container_builder`` makes blobs and containers,
``row_evidence`` answers at the row level, ``verified_blob`` checks every byte that is read, and
``options`` parses Paimon's own option names. Containers of other writers are read too:
``container_evidence`` opens one, ``container_match`` decides whether it belongs to a data file,
``adjacent_index`` finds those next to the data files, and ``file_index`` is the public class.
"""
