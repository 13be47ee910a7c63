"""Apache Paimon's file index: bytes to frozen values and back. Nothing here does I/O.

A container holds index blobs by column and kind (``container``). Four kinds of blob say which rows
of one data file hold which values: ``bloom_filter``, ``bitmap``, ``range_bitmap`` and ``bsi``. Row
positions count from 0 in one data file and fit 31 bits.

Reading takes pieces of a blob as they come (``pieces``): whoever asks gets the answer, or hears
which bytes are still missing (``reading.needs``, ``reading.open_index``). All integers are
big-endian and signed, but for Roaring bitmaps, which are little-endian.
"""
