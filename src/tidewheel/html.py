"""HTML for notebooks, in the page's own colours, with all user text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = ["counted", "details", "fragment", "heading", "table"]

_STYLE = (
    ".tidewheel{font-size:13px;line-height:1.45;overflow-x:auto}"
    ".tidewheel table{border-collapse:collapse;margin:6px 0;color:inherit;font-size:inherit}"
    ".tidewheel th,.tidewheel td{border:1px solid rgba(128,128,128,.4);padding:3px 8px;text-align:left;"
    "vertical-align:top;background:none;color:inherit}"
    ".tidewheel th{font-weight:600;background:rgba(128,128,128,.12)}"
    ".tidewheel td.number{text-align:right;font-variant-numeric:tabular-nums}"
    ".tidewheel tr.retraction td{opacity:.65;text-decoration:line-through}"
    ".tidewheel pre{white-space:pre-wrap;color:inherit;background:none;margin:6px 0}"
    ".tidewheel summary{cursor:pointer}"
    ".tidewheel svg{display:block;margin:6px 0}"
)
_MOST = 200
"""Rows of a table that are shown."""


def fragment(*parts: str) -> str:
    """Parts that are HTML, as what a notebook shows."""
    return f'<div class="tidewheel"><style>{_STYLE}</style>{"".join(parts)}</div>'


def heading(kind: str, text: str) -> str:
    """A heading for the displayed object.

    >>> heading("Result", "<delays>")
    '<div><b>Result</b> &lt;delays&gt;</div>'
    """
    return f"<div><b>{escape(kind)}</b> {escape(text)}</div>"


def details(summary: str, inside: str, *, shown: bool = False) -> str:
    """HTML that is folded away until it is opened."""
    return f"<details{' open' if shown else ''}><summary>{escape(summary)}</summary>{inside}</details>"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, faint: Sequence[bool] = ()) -> str:
    """A table of values: the first rows of a long one, and their number. faint: rows that are crossed out.

    >>> table(["name"], [["<b>"]])
    '<table><thead><tr><th>name</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    held = list(rows)
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr{_RETRACTION if number < len(faint) and faint[number] else ''}>{''.join(map(_cell, row))}</tr>"
        for number, row in enumerate(held[:_MOST])
    )
    more = f"<div>… {len(held) - _MOST:,} more</div>" if len(held) > _MOST else ""
    headed = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<table>{headed}<tbody>{body}</tbody></table>{more}"


_RETRACTION = ' class="retraction"'


def _cell(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{'' if value is None else escape(str(value))}</td>"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number of things.

    >>> counted(1, "column"), counted(1_200, "column"), counted(0, "batch", "batches")
    ('1 column', '1,200 columns', '0 batches')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
