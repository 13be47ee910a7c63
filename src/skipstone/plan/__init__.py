"""Decisions: a bound predicate and what every evidence says of it become a ``Plan``."""

from .plan import Coverage, FileDetail, Plan, PlannedFile, Reader, Step

__all__ = ["Coverage", "FileDetail", "Plan", "PlannedFile", "Reader", "Step"]
