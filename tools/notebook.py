"""Writes docs/notebook.ipynb and docs/notebook.md with its pictures: `python -m tools.notebook`.

The page has the cells of the notebook, with what they returned. Tests run the examples of the page,
and compare its code with that of the notebook.
"""

from __future__ import annotations

import ast
import json
import os
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["CELLS", "DOCS", "code_of"]

DOCS = Path(__file__).resolve().parent.parent / "docs"

#: texts and code in turn; a picture has the name in its last line
CELLS = [
    """# A notebook with pictures

[Download it](notebook.ipynb), and run it with Jupyter; it needs no Spark. It makes a table of 60
files, and shows which of them queries read:
orange files are read, blue ones are skipped.""",
    """import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone

rng = np.random.default_rng(1)
orders = rng.permutation(300_000)
pathlib.Path("shop/orders").mkdir(parents=True)
for part in range(60):
    rows = slice(part * 5_000, part * 5_000 + 5_000)
    columns = {
        "day": np.datetime64("2026-01-01") + np.arange(300_000)[rows] // 5_000,
        "order_id": orders[rows],
        "country": ["IS" if part % 17 == 4 and n < 9 else "SE" for n in range(5_000)],
        "amount": rng.gamma(2, 60, 5_000).round(2),
    }
    pq.write_table(pa.table(columns), f"shop/orders/part-{part:02}.parquet")

table = skipstone.Table("shop/orders")
table.advise()""",
    """`advise` reads a sample. `day` ascends from file to file, so the least and the largest
value of each file say enough (`minmax`). An `order_id`
may be anywhere, and is in one file: a Bloom filter says where it is not. For `country` a list of
the values of each file (`valuelist`) costs
little more than `minmax` and answers `!=` and `IN`, too.""",
    """table.build(indexes=["day:minmax", "order_id:bloom", "country:valuelist"])""",
    """The picture comes from the plan: `plan.paths` are the files that a query must read.""",
    """class Picture:
    \"\"\"The files of a plan as cells, as an SVG picture.\"\"\"

    def __init__(self, plan):
        self.plan = plan

    def _repr_svg_(self):
        read, cells = set(self.plan.paths), []
        for at, path in enumerate(self.plan.listing.paths):
            colour = "#e8590c" if path in read else "#a5d8ff"
            x, y = 4 + at % 20 * 24, 4 + at // 20 * 24
            cells.append(f'<rect x="{x}" y="{y}" width="20" height="20" fill="{colour}"/>')
        text = f"{self.plan.predicate}: {self.plan.files_kept} of {self.plan.files_total} files"
        text = text.replace("<", "&lt;").replace(">", "&gt;")
        cells.append(f'<text x="4" y="118" font-size="14" font-family="sans-serif">{text}</text>')
        size = 'width="488" height="126"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(cells)}</svg>'


Picture(table.plan("order_id = 4242"))  # needle""",
    """One file has it. The other one is a false positive, as one file in a hundred is.
A range of days reads the files of these days:""",
    """Picture(table.plan("day between date'2026-01-20' and date'2026-01-24'"))  # days""",
    """Orders from Iceland are in a few files:""",
    """Picture(table.plan("country = 'IS'"))  # rare""",
    """Large amounts are in every file, and no index of whole files can skip any. That is not
a failure of the index: the rows are everywhere.
[Is it for me?](is-it-for-me.md) says what helps then.""",
    """Picture(table.plan("amount > 300"))  # everywhere""",
    """The explanation has the same in words: which index left how many files, and what the
read will cost.""",
    """table.explain("order_id = 4242")""",
    """New files are read in full until a refresh indexes them, so an answer is never wrong:""",
    """day = np.array(["2026-03-02"], "datetime64[D]")
late = pa.table({"day": day, "order_id": [4242], "country": ["SE"], "amount": [1.0]})
pq.write_table(late, "shop/orders/part-60.parquet")
assert table.query("order_id = 4242").num_rows == 2
Picture(table.plan("order_id = 4242"))  # new""",
]


def is_code(at: int) -> bool:
    """Texts and code alternate."""
    return at % 2 == 1


def code_of(cells: list[str]) -> list[str]:
    """The cells with code."""
    return cells[1::2]


def _run(code: str, names: dict[str, Any]) -> Any:
    """The value of the last expression."""
    tree = ast.parse(code)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(code, names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "notebook", "exec"), names)
    return eval(compile(ast.Expression(last.value), "notebook", "eval"), names)


def _written(pictures: Path) -> tuple[dict[str, Any], str]:
    """The notebook and the page; pictures are written below ``pictures``."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells: list[dict[str, Any]] = []
    page: list[str] = []
    for at, text in enumerate(CELLS):
        if not is_code(at):
            cells.append({"cell_type": "markdown", "metadata": {}, "source": text})
            page.append(text)
            continue
        value = _run(text, names)
        data = {"text/plain": str(value)}
        page.append(f"```python\n{text}\n```")
        if hasattr(value, "_repr_svg_"):
            data["image/svg+xml"] = value._repr_svg_()
            name = text.rpartition("# ")[2]
            (pictures / f"{name}.svg").write_text(data["image/svg+xml"], encoding="utf-8")
            page.append(
                f"![{value.plan.files_kept} of {value.plan.files_total} files](images/{name}.svg)"
            )
        else:
            data["text/html"] = value._repr_html_()
            page.append(f"```text\n{value}\n```")
        output = {
            "output_type": "execute_result",
            "execution_count": at // 2 + 1,
            "data": data,
            "metadata": {},
        }
        cells.append(
            {
                "cell_type": "code",
                "execution_count": at // 2 + 1,
                "metadata": {},
                "outputs": [output],
                "source": text,
            }
        )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return notebook, "\n\n".join(page) + "\n"


if __name__ == "__main__":
    images = DOCS / "images"
    images.mkdir(exist_ok=True)
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        made, markdown = _written(images)
        os.chdir(here)
    text = json.dumps(made, indent=1, ensure_ascii=False).replace(f"{home}/", "")
    (DOCS / "notebook.ipynb").write_text(text + "\n", encoding="utf-8")
    (DOCS / "notebook.md").write_text(markdown.replace(f"{home}/", ""), encoding="utf-8")
