"""QuestDB: the ``_pm`` sidecar of a Parquet partition, ``_txn``, and the type codes in them.

Facts of QuestDB 9.4, checked by running it. Nothing here does I/O or decides anything: buffers in,
frozen values and NumPy arrays out, and the bytes to write back.
"""
