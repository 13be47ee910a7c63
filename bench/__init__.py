"""The figures: `python -m bench`, one JSON line for each, compared with another tool (its peer) in
the same run."""
