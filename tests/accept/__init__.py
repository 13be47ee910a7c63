"""The promises of the project, each tried as a user would try it.

A test belongs here if a user could try it by hand, on a table of their own, through the public API
or the command line, and would call Skipstone broken if it failed. Details of one module belong to
the tests of its package; attempts to break a promise belong to `tests/attack`.

`make accept` runs them all and prints one line each:

    ok    predicates: SQL text, Catalyst and DNF give one tree
    FAIL  facts: two builds at once lose nothing: 3 of 40 files have no fact

A point is a function in a file `points_*.py` here, marked with its promise in plain words:

    from tests.accept.registry import point

    @point("skipping: a needle reads one file of many")
    def needle(bench: Workbench) -> None:
        ...
        assert kept == 1, f"{kept} files read"

It gets a `Workbench` (an empty directory of its own, a Spark session when it asks for one, the
command line) and fails by any exception; an `AssertionError`'s text is the reason that is shown.
"""
