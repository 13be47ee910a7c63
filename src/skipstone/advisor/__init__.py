"""Which indexes a table should have, what each would save, and what it would cost in bytes.

A sample of files says it: ``sampling`` reads them within a budget, ``measure`` makes figures of
what was read, ``propose`` decides by rules that each have a reason, ``sizes`` estimates bytes,
``Advice`` is the value that comes out. Nothing is proposed where nothing helps.

For queries that are known (``workload``) it is not rules that decide: indexes are built over a
sample and asked (``simulate``), what saves most is chosen (``choose``), and ``Savings`` come out.
"""

from .choose import CandidateSavings, QuerySavings, Savings, advise_queries
from .propose import Advice, ColumnAdvice, advise
from .workload import Asked, Query, parse_queries, queries_of

__all__ = [
    "Advice",
    "Asked",
    "CandidateSavings",
    "ColumnAdvice",
    "Query",
    "QuerySavings",
    "Savings",
    "advise",
    "advise_queries",
    "parse_queries",
    "queries_of",
]
