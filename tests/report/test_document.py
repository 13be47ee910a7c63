"""Pages load nothing from outside, and names in them are only text."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import ParquetFile, report
from skipstone.report.html_page import document
from tests.report.data import Parsed, parsed
from tests.report.layered import WHERE

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone import Table

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>{{data}}&quot;"


def test_a_page_names_nothing_outside(table: Table, tmp_path: Path) -> None:
    report.write(table.plan(WHERE), tmp_path / "report.html")
    found = parsed(tmp_path / "report.html")
    assert {tag for tag, _ in found.elements}.isdisjoint(
        {"link", "img", "iframe", "base", "object"}
    )
    for _, attributes in found.elements:
        assert attributes.keys().isdisjoint({"src", "href", "action", "style", "onclick"})
    text = (tmp_path / "report.html").read_text("utf-8")
    assert not re.search(r"https?://|@import|url\(", text)


def test_the_policy_lets_one_script_and_one_style_count(table: Table, tmp_path: Path) -> None:
    report.write(table.plan(WHERE), tmp_path / "report.html")
    found = parsed(tmp_path / "report.html")
    [policy] = [a["content"] for t, a in found.elements if t == "meta" and "http-equiv" in a]
    for name in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(found.texts[name].encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in str(policy)
    assert "default-src 'none'" in str(policy)
    runs = [a for tag, a in found.elements if tag == "script" and "type" not in a]
    assert len(runs) == 1


def test_hostile_text_is_text_everywhere() -> None:
    data = {"names": [EVIL], "predicate": EVIL, "odd": "\u2028\ud800"}
    text = document(data, {7: {"columns": [EVIL]}}, title=EVIL, explain=EVIL)
    page = Parsed()
    page.feed(text)
    assert page.data == data
    assert page.inside(7) == {"columns": [EVIL]}
    assert page.texts["title"] == page.texts["explain"] == EVIL
    assert sum(tag == "script" for tag, _ in page.elements) == 3
    assert not any(tag == "img" for tag, _ in page.elements)
    text.encode()


def test_hostile_files_columns_and_values(tmp_path: Path) -> None:
    """A file name cannot hold a slash, and everything else can."""
    path = tmp_path / "t" / f"{EVIL.replace('/', '')} é%=.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({EVIL: [EVIL, EVIL + "z"]}), path)
    quoted = "`" + EVIL.replace("`", "``") + "`"
    where = f"{quoted} = '</script><b>'"
    report.write_file(ParquetFile(path), tmp_path / "file.html", where)
    found = parsed(tmp_path / "file.html")
    assert found.inside(0)["columns"][0]["name"] == quoted
    assert found.data["predicate"] == where
    assert sum(tag == "script" for tag, _ in found.elements) == 3
    assert not any(tag == "img" for tag, _ in found.elements)
