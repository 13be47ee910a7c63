"""The figures: `python -m bench`, one JSON line for each, with its peer from the same run."""
