"""What computes typed expressions on Arrow arrays: ``rows.py`` calls the other kernels."""
