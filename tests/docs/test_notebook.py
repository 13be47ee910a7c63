"""The notebook has the code of its page, whose examples the tests run; and its pictures."""

from __future__ import annotations

import json

from tests.docs.pages import python_examples
from tools.notebook import CELLS, DOCS, code_of


def test_the_notebook_the_page_and_the_tool_have_one_code() -> None:
    notebook = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells == code_of(CELLS), "run `python -m tools.notebook`"
    assert [text.rstrip("\n") for text in python_examples("docs/notebook.md")] == cells


def test_the_notebook_has_its_outputs() -> None:
    notebook = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))
    shown = [
        kind
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        for kind in output["data"]
    ]
    assert shown.count("image/svg+xml") == 5
    assert "<td>minmax</td>" in json.dumps(notebook)
