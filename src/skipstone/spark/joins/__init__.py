"""Joins: the keys of the small side prune the files of the big one."""
