"""One Parquet file without Spark: metadata as data, pages fetched one by one, rows."""
