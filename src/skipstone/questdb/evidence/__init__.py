"""QuestDB's ``_pm`` as evidence of the row group level: a plan that reads no Parquet footer.

``opened_pm`` holds an opened snapshot with its data file, and says which columns can answer a
predicate; ``row_groups`` is the level of the plan.
"""
