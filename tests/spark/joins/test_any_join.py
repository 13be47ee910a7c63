"""Any join has the rows of plain Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.spark.joins.layout import answers, conf

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


_KEYS = ["k", "i", "s", "day", "at", "x", "p", "b"]
_PAIRS = [(key, key) for key in _KEYS] + [("k", "i"), ("i", "k"), ("n", "c"), ("k", "c")]
facts = st.sampled_from(
    [
        "{f}",
        "{f}",
        "(SELECT * FROM {f} WHERE n <> 3)",
        "(SELECT * FROM {f} UNION ALL SELECT * FROM {f} WHERE n > 7)",
        "(SELECT *, k + 1 AS more FROM {f})",
        "(SELECT DISTINCT * FROM {f})",
        "(SELECT f.* FROM {f} f LEFT JOIN {d} e ON f.k = e.k)",
        "(SELECT f.* FROM {f} f JOIN {f} e ON f.k = e.k AND e.n < 5)",
        "(SELECT e.* FROM {d} f RIGHT JOIN {f} e ON f.k = e.k)",
        "(SELECT f.* FROM {f} f WHERE f.k IN (SELECT k FROM {d} WHERE c > 1))",
        "(SELECT * FROM {f} WHERE k >= (SELECT max(k) FROM {d} WHERE c < 4))",
        "(SELECT * FROM {f} WHERE i <= (SELECT c FROM {d} WHERE c > 9) OR n = 2)",
        "(SELECT * FROM {f} WHERE s = (SELECT s FROM {d} WHERE c = 2) "
        "UNION ALL SELECT * FROM {f} WHERE s < (SELECT s FROM {d} WHERE c = 4))",
        "(SELECT f.* FROM {f} f LEFT JOIN (SELECT * FROM {f} WHERE k = (SELECT k FROM {d} "
        "WHERE c = 2)) e ON f.k = e.k)",
    ]
)
dims = st.sampled_from(
    [
        "(SELECT * FROM {d} WHERE c IN (2, 3, 10))",
        "(SELECT * FROM {d} WHERE c < 2)",
        "(SELECT * FROM {d} WHERE c > 20)",
        "(SELECT * FROM {d} WHERE k IS NULL)",
        "(SELECT * FROM {d} UNION ALL SELECT * FROM {d} WHERE c = 4)",
        "(SELECT a.* FROM {d} a JOIN {d} b ON a.k = b.k AND b.c = 2)",
        "(SELECT a.* FROM {d} a JOIN {d} b ON a.k = b.k AND b.c = 2 "
        "UNION ALL SELECT * FROM {d} WHERE c = 7)",
        "(SELECT * FROM {d} WHERE c IN (SELECT n FROM {f} WHERE n BETWEEN 2 AND 3))",
        "(SELECT *, 7L AS c FROM (SELECT * EXCEPT (n) FROM {f} WHERE k < 4))",
        "{d}",
    ]
)
equalities = st.builds(
    "f.{0[0]} {1} d.{0[1]}{2}".format,
    st.sampled_from(_PAIRS),
    st.sampled_from(["=", "=", "<=>"]),
    st.just(""),
) | st.builds("f.k = d.k + {}".format, st.sampled_from([1, 40]))
conditions = st.one_of(
    equalities,
    st.builds("{} AND {}".format, equalities, equalities),
    st.builds("{} AND f.n < 6".format, equalities),
    st.builds("{} AND d.c <> 2".format, equalities),
    st.builds("({} OR d.c = 2)".format, equalities),
)
hints = st.sampled_from(
    ["", "", "/*+ BROADCAST(d) */", "/*+ MERGE(d) */", "/*+ SHUFFLE_HASH(d) */"]
)
whole_joins = st.builds(
    "SELECT {0} f.n, f.s, d.c FROM {1} f {2} JOIN {3} d ON {4}".format,
    hints,
    facts,
    st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"]),
    dims,
    conditions,
)
one_sided = st.builds(
    "SELECT {0} f.n, f.s FROM {1} f {2} JOIN {3} d ON {4}".format,
    hints,
    facts,
    st.sampled_from(["LEFT SEMI", "LEFT ANTI"]),
    dims,
    conditions,
)
mirrored = st.builds(
    "SELECT {0} d.c, d.s FROM {1} d {2} JOIN {3} f ON {4}".format,
    hints,
    dims,
    st.sampled_from(["LEFT SEMI", "LEFT ANTI"]),
    facts,
    conditions,
)
subqueries = st.builds(
    "SELECT n, s FROM {0} f WHERE {1} (SELECT d.{2} FROM {3} d {4})".format,
    facts,
    st.sampled_from(["k IN", "k NOT IN", "n = 3 OR k IN", "NOT (k IN", "n < 8 AND k NOT IN"]),
    st.just("k"),
    dims,
    st.sampled_from(["", "WHERE d.c <> 10", "WHERE d.s = f.s"]),
).map(lambda query: query + ")" * (query.count("(") - query.count(")")))
existing = st.builds(
    "SELECT n, s FROM {0} f WHERE {1} EXISTS (SELECT 1 FROM {2} d WHERE {3})".format,
    facts,
    st.sampled_from(["", "NOT", "n = 3 OR"]),
    dims,
    conditions,
)
stars = st.builds(
    "SELECT f.n, d.c, e.c AS o FROM {0} f JOIN {1} d ON {2} {3} JOIN {4} e ON f.s = e.s".format,
    facts,
    dims,
    conditions,
    st.sampled_from(["", "LEFT", "FULL"]),
    dims,
)


pairs = st.builds("{} UNION ALL {}".format, whole_joins, whole_joins)


# A broadcast without rows, and keys that are texts.
@settings(max_examples=settings().max_examples // 4)
@given(
    query=st.one_of(
        whole_joins, whole_joins, one_sided, mirrored, subqueries, existing, stars, pairs
    ),
    adaptive=st.sampled_from(["true", "true", "false"]),
)
@example(
    query="SELECT /*+ BROADCAST(d) */ f.n, d.c FROM {f} f "
    "JOIN (SELECT * FROM {d} WHERE c > 20) d ON f.k = d.k",
    adaptive="false",
)
@example(
    query="SELECT /*+ MERGE(d) */ f.n FROM {f} f JOIN (SELECT * FROM {d} WHERE c < 2) d USING (s)",
    adaptive="true",
)
def test_any_join_gives_the_rows_of_plain_spark(
    spark: SparkSession, tables: Path, query: str, adaptive: str
) -> None:
    with conf(spark, spark__sql__adaptive__enabled=adaptive):
        found, plain, _ = answers(spark, query)
    assert found == plain
