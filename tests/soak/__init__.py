"""One differential fuzzer over all routes by which the rows of a table can be read.

The promise: a table has the same rows and the same schema whatever the order of its files, with an
index and without, on every route. A trial is one predicate on one route of one random table; its
answer is compared with the rows that the generator holds in memory, decided by ``tests/oracle.py``.

    shape.py       what tables may have, as named features; the known gaps
    values.py      columns and their random values
    generate.py    tables: files that differ, and their rows as the promise says
    writers.py     files by pyarrow, DuckDB, polars
    predicates.py  random conditions, their text, and the rows for which they are true
    life.py        index sets, and what happens to a table
    routes.py      the routes without Spark
    spark.py       the routes of a Spark session, many predicates in one query
    formats.py     lives of tables of table formats, against the formats' own readers
    trials.py      tables, lives and trials of one seed
    shrink.py      makes a finding small, and a script of it

``python -m tests.soak --seconds 600`` runs it; every seed is printed and decides everything.
"""
