"""Xskipper's Parquet metadata store, versions 0 to 4: bytes and tables <-> values."""
