"""A ``Plan`` in words: per index used or not and because of what, every count with its
denominator."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from skipstone.bounds import Cause, Level
from skipstone.human import duration, of_total, percent, plural, size

if TYPE_CHECKING:
    from .plan import Plan, Step

# The kind that comes with every indexed column, unasked.
IMPLICIT = "nulls"

__all__ = ["one_line", "render", "render_html"]


def one_line(plan: Plan) -> str:
    """``read 2 of 1,240 files, 11.2 MB of 6.9 GB (99.8 % skipped), planned in 38 ms``.

    Of one file by itself the rows: ``read 2,000 of 100,000 rows (98 % skipped), planned in 2 ms``.
    How many bytes those take depends on the columns that are read.
    """
    if _is_of_one_file(plan):
        kept, total = plan.rows_kept, plan.rows_total
        return (
            f"read {of_total(kept, total, 'rows')} ({percent(total - kept, total)} skipped), "
            f"planned in {duration(sum(plan.milliseconds.values()))}"
        )
    skipped = percent(plan.bytes_total - plan.bytes_kept, plan.bytes_total)
    planned = duration(sum(plan.milliseconds.values()))
    within = "" if plan.coverage is None else f" of {plan.coverage}"
    return (
        f"read {of_total(plan.files_kept, plan.files_total, 'files')}{within}, "
        f"{size(plan.bytes_kept)} of {size(plan.bytes_total)} ({skipped} skipped), "
        f"planned in {planned}"
    )


def _is_of_one_file(plan: Plan) -> bool:
    """True where no facts were asked: the plan is of the inside of one file (``ParquetFile``)."""
    facts = plan.facts_fresh + plan.facts_stale + plan.facts_missing
    return not facts and plan.files_total == 1 and plan.rows_total >= 0


def _freshness(plan: Plan) -> str:
    if _is_of_one_file(plan):
        return plural(plan.rows_total, "row")
    if plan.sidecars and not plan.facts_fresh + plan.facts_stale:
        return f"file indexes beside {of_total(plan.sidecars, plan.files_total, 'files')}"
    covered = of_total(plan.facts_fresh, plan.files_total, "files")
    if plan.facts_stale == 0 and plan.facts_missing == 0:
        return f"index covers {covered} (fresh)"
    lacking = []
    if plan.facts_missing:
        lacking.append(f"{plan.facts_missing:,} new")
    if plan.facts_stale:
        lacking.append(f"{plan.facts_stale:,} changed since")
    return f"index covers {covered}; {' and '.join(lacking)}: read in full, run `refresh`"


def _because(step: Step) -> str:
    if step.used:
        # That a kind says nothing of one leaf is no news where it spoke of another.
        return "; ".join(r.text for r in step.reasons if r.cause is not Cause.NOT_APPLICABLE)
    why = "; ".join(reason.text for reason in step.reasons) or "nothing left to ask about"
    return f"not used: {why}"


def _rows(plan: Plan) -> list[tuple[str, str, str, str]]:
    rows = []
    for step in plan.steps:
        if step.index == IMPLICIT and step.considered == step.kept:
            continue  # null counts stand behind every index; they are worth a line when they skip
        unit = Level(step.level).unit
        change = f"{step.considered:,} -> {step.kept:,} {unit}" if step.used else ""
        rows.append((step.column, step.index, change, _because(step)))
    return rows


def _notes(plan: Plan) -> list[str]:
    notes = [str(reason) for reason in plan.reasons]
    if plan.coverage is not None:
        lacking = plan.coverage.left_out
        more = f" and {len(lacking) - 3:,} more" if len(lacking) > 3 else ""
        without = f", without {', '.join(lacking[:3])}{more}: not Parquet" if lacking else ""
        notes.insert(0, f"these are {plan.coverage}{without}")
    return notes


def render(plan: Plan) -> str:
    """The whole explanation as text, ending with the line of ``one_line``."""
    files = "" if _is_of_one_file(plan) else f"{plural(plan.files_total, 'file')}   "
    head = f"{'table' if files else 'file'} {plan.table}   {files}{size(plan.bytes_total)}   "
    lines = [head + _freshness(plan), f"where {plan.predicate}"]
    rows = _rows(plan)
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    for row in rows:
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        lines.append(f"  {cells}  {row[3]}".rstrip())
    lines.extend(f"  note: {note}" for note in _notes(plan))
    if plan.residual is not None and plan.files_kept:
        lines.append(f"  still to be checked row by row: {plan.residual}")
    lines.append(one_line(plan))
    return "\n".join(lines)


def render_html(plan: Plan) -> str:
    """The same for notebooks: a table per plan, no script, no outside resource."""
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in _rows(plan)
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in _notes(plan))
    return (
        f"<div><p><b>{escape(plan.table)}</b> where <code>{escape(plan.predicate)}</code><br>"
        f"{escape(_freshness(plan))}</p><table><thead><tr><th>column</th><th>index</th>"
        f"<th>considered &rarr; kept</th><th>because</th></tr></thead><tbody>{body}</tbody></table>"
        f"{f'<ul>{notes}</ul>' if notes else ''}<p><b>{escape(one_line(plan))}</b></p></div>"
    )
