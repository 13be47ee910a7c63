"""What computes typed expressions on Arrow arrays: ``rows.py`` calls the kernels beside it."""
