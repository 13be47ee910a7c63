"""Apache Paimon's file index: bytes to frozen values and back. Nothing here does I/O.

A container holds index blobs by column and kind (``container``). Four kinds of blob say which rows
of one data file hold which values: ``bloom_filter``, ``bitmap``, ``range_bitmap`` and ``bsi``. Row
positions count from 0 in one data file and fit 31 bits.

Readers work on partial blobs (``partial_blob``): they give the answer, or name the bytes that are
missing. All integers are big-endian and signed, except in Roaring bitmaps, which are little-endian.
"""
