"""Decisions: a bound predicate and what every evidence says of it become a ``Plan``."""

from .plan import FileDetail, Plan, PlannedFile, Step

__all__ = ["FileDetail", "Plan", "PlannedFile", "Step"]
