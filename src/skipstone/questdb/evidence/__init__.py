"""QuestDB's ``_pm`` as evidence of the row group level: a plan that reads no Parquet footer.

``columns`` says which columns of a ``_pm`` can answer a predicate, ``opened_pm`` holds an opened
snapshot with its data file, and ``row_groups`` is the level of the plan.
"""
