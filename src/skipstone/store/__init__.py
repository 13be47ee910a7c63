"""Where facts live, and what the calls that keep them report."""
