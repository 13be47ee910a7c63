"""The real systems, run now: Paimon and QuestDB from their jars, Spark, and readers of Parquet.

Here belong exchanges of files with programs that other people wrote. Paimon and QuestDB come by
their coordinates (``pom.xml``) through Maven, once, into ``.interop/``; each is driven by one Java
source of ``java/``. Where Maven, Java or the network is missing, these tests are skipped and say
which. ``make interop`` runs them.
"""
