"""Whole files with damaged bytes, through the public API."""
