"""``python -m skipstone.run SCRIPT ARGS``: runs a Python job whose sessions skip.

The job stays as it is. It runs as ``__main__`` with its own ``sys.argv``, after the methods of
PySpark are hooked (``spark/enable.py``). Every classic session of it skips, unless
``spark.skipstone.enabled`` is ``false``. ``spark-submit`` takes this file as the application:

    RUN=$(python -c 'import skipstone.run; print(skipstone.run.__file__)')
    spark-submit --conf spark.skipstone.enabled=true "$RUN" job.py --date 2026-01-01

If Skipstone cannot be loaded or finds no PySpark, the job runs without it, and the log says why.
"""

from __future__ import annotations

import os
import sys

_USAGE = "usage: python -m skipstone.run SCRIPT [ARGS]..."


def main(arguments: list[str]) -> None:
    """Run the script that ``arguments`` begin with; the rest are its own."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stdout if arguments else sys.stderr)
        sys.exit(0 if arguments else 2)
    # Python put the directory of this file, or the current one, first on the path. The modules here
    # would hide those of the standard library. A script expects its own directory there.
    script = arguments[0]
    sys.path[:1] = [os.path.dirname(os.path.abspath(script))]  # noqa: PTH100, PTH120 - no imports yet
    import logging
    import runpy

    try:
        from skipstone.spark.enable import hook

        hook(of_job=True)
    except Exception as error:
        logging.getLogger("skipstone").warning("the job runs without indexes: %s", error)
    sys.argv[:] = arguments
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
