"""Faults at every step of every verb that writes: ``python -m tests.faults``.

A step is a call of the process that changes a file. Steps are counted, not listed: a library that
is loaded before libc (``shim.c``) sees each call, and can end the process there, let the call fail,
or send a signal. ``cases.py`` and ``file_cases.py`` have the verbs, each over a small table whose
rows are known. After each fault (``trials.py``):

- the rows are the known ones, with the index and without;
- an error names a file, and what was not an error is whole;
- the same verb runs again, and its result is whole;
- then, and after ``vacuum``, nothing is left that a run without a fault does not leave.

``power.py`` drops what was not synced, ``together.py`` runs one verb as a whole between two steps
of another one (``with_spark.py``: a build by Spark), and ``object_store.py`` puts a proxy between a
verb and an S3 server, for the cases of ``store_cases.py``.
"""
