"""Apache Paimon's file indexes: three kinds give rows of a file, the Bloom filter excludes files.

All index blobs of a data file lie in one container, the sidecar of the file. ``format`` has the
bytes. The fact row of an index says where in the container its blob lies, and holds the bounds that
need no read. ``base`` is what all kinds share, and checks every byte that is read; ``kinds`` are
those that answer for rows, with Paimon's own option names, ``bloom`` excludes files.
``container_builder`` makes blobs and containers, ``row_evidence`` answers at the row level,
``top_rows`` finds first rows, and ``index_blob`` opens a blob of any kind. Containers of other
writers are read too: ``sidecar`` opens one and decides whether it belongs to a data file,
``adjacent_index`` finds those next to the data files, and ``file_index`` is the public class.
"""
