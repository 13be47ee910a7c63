"""Parquet: bytes to frozen values and back, after parquet.thrift 2.14 and what writers really do.

Nothing here does I/O or decides anything. A leaf is a primitive column; its ordinal is its place
in schema order, and so in ``RowGroup.columns``.
"""
