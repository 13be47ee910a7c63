"""QuestDB's ``_pm`` as an index: made when a file is indexed, asked about row groups."""
