"""Pages of HTML that draw what a plan skips, or what a Parquet file contains.

>>> import skipstone.report
>>> skipstone.report.write(table.scan("user_id = 'u-8814'"), "report.html")
>>> skipstone.report.write_file(skipstone.ParquetFile("events.parquet"), "file.html")

A page is one file and needs no network: it can be mailed, and opened years later.

html_page     the files of a plan, by the level that skipped each; the page as text; writing it
file_page     the row groups, columns and pages of a file, and where their bounds lie
page/         skeleton, style and script
"""

from __future__ import annotations

from .html_page import PageReport, write, write_file

__all__ = ["PageReport", "write", "write_file"]
