"""Which indexes a table should have, what each would save, and what it would cost in bytes.

``sampling`` reads a sample of the files within a budget, ``measure`` computes figures from it,
``propose`` decides by rules that each have a reason, and ``Advice`` reports them. Only indexes that
help are proposed.

For known queries no rules are needed: ``simulate`` builds indexes over a sample, or tries them
(``trial``), and plans the queries with them, ``choose`` takes the candidates that save most, and
``Savings`` reports them.
"""

from .choose import advise_queries
from .propose import advise
from .report import Advice, CandidateSavings, ColumnAdvice, QuerySavings, Savings
from .sampling import AdviceRequest
from .simulate import Query, WeightedPredicate, parse_queries, queries_of

__all__ = [
    "Advice",
    "AdviceRequest",
    "CandidateSavings",
    "ColumnAdvice",
    "Query",
    "QuerySavings",
    "Savings",
    "WeightedPredicate",
    "advise",
    "advise_queries",
    "parse_queries",
    "queries_of",
]
