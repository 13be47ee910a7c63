"""Questions that were made up to get a wrong row out of an index, and once did or nearly did."""
