"""Pictures: what a plan skips, and what a Parquet file is made of, as one page of HTML.

>>> import skipstone.report
>>> skipstone.report.write(table.scan("user_id = 'u-8814'"), "report.html")
>>> skipstone.report.write_file(skipstone.ParquetFile("events.parquet"), "file.html")

The page needs no network and nothing beside it; it may be mailed, and opened years later.

overview   a plan's files: which level skipped each, which have no fact
inside     a file's row groups, columns and pages
bands      bounds of values as places between the least and the greatest
document   the page: skeleton, style, script and data in one text
writing    plan or file -> page
page/      skeleton, style and script
"""

from __future__ import annotations

from .writing import Written, write, write_file

__all__ = ["Written", "write", "write_file"]
