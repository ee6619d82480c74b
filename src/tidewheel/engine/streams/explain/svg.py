"""A query's graph as a picture: SVG in the colours of the page that it is in, light or dark."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from html import escape

from tidewheel.engine.streams.explain.graph import Graph, Operator, Step

__all__ = ["svg"]

_COLOURS = {"input": "#0d9488", "step": "#64748b", "stage": "#2563eb", "added": "#64748b", "output": "#c2680a"}
_MARGIN, _PAD, _GAP = 8, 12, 18
_INNER = 520
"""The width of a step."""
_OUTER = _INNER + 2 * _PAD
_SIDE = 150
"""The width of the outputs beside a step."""
_LINE, _TITLE = 12, 13
"""Sizes of letters."""
_HEIGHT = 16
"""The height of a line of text."""


def svg(graph: Graph) -> str:
    """The graph, from top to bottom."""
    drawing = _Drawing()
    for operator in graph.operators:
        drawing.operator(operator)
    drawing.end(graph.outputs)
    width = 2 * _MARGIN + _OUTER + (_GAP * 2 + _SIDE if drawing.beside else 0)
    height = drawing.y + _MARGIN
    title = escape(" → ".join(operator.title for operator in graph.operators))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" style="max-width:100%;height:auto" font-family="system-ui, sans-serif" font-size="{_LINE}" '
        f'fill="currentColor"><title>{title}</title>{"".join(drawing.parts)}</svg>'
    )


class _Drawing:
    """The elements drawn so far, and the current height."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.y = _MARGIN
        self.beside = False
        self._fed = False

    def operator(self, operator: Operator) -> None:
        """A frame around steps."""
        if self._fed:
            self._arrow(self.y, self.y + 2 * _GAP, operator.link)
            self.y += 2 * _GAP
        top = self.y
        place = len(self.parts)
        self.y += _PAD - 4
        heading = [(operator.title, True), (operator.parallelism, False)]
        for text, bold in heading:
            for line in _wrapped(text, _INNER, bold=bold):
                self._text(_MARGIN + _PAD, self.y, line, bold=bold, faint=not bold)
                self.y += _HEIGHT
        self.y += 6
        for number, step in enumerate(operator.steps):
            if number:
                self._arrow(self.y, self.y + _GAP)
                self.y += _GAP
            self._step(step)
        self.y += _PAD
        frame = _box(_MARGIN, top, _OUTER, self.y - top, "currentColor", dashed=False, fill=0.03, stroke=0.35)
        self.parts.insert(place, frame)
        self._fed = True

    def end(self, outputs: tuple[str, ...]) -> None:
        """Draw the outputs of the last operator, side by side."""
        if not outputs:
            return
        self._arrow(self.y, self.y + _GAP)
        self.y += _GAP
        height = _HEIGHT + 10
        rows: list[list[tuple[str, int]]] = [[]]
        for name in outputs:
            [shown] = _wrapped(name, _OUTER - 24, bold=True, most=1)
            pill = (shown, round(_width(shown, bold=True)) + 24)
            if rows[-1] and _row_width([*rows[-1], pill]) > _OUTER:
                rows.append([])
            rows[-1].append(pill)
        for row in rows:
            x = _MARGIN + (_OUTER - _row_width(row)) / 2
            for shown, width in row:
                self._pill(x, self.y, width, height, shown)
                x += width + 8
            self.y += height + 6
        self.y -= 6

    def _step(self, step: Step) -> None:
        x, top = _MARGIN + _PAD, self.y
        titles = _wrapped(step.title, _INNER - 2 * _PAD, bold=True)
        lines = [part for line in step.lines for part in _wrapped(line, _INNER - 2 * _PAD)]
        pill = _HEIGHT + 6
        height = max(_HEIGHT * (len(titles) + len(lines)) + 12, (pill + 6) * len(step.outputs) - 6)
        colour = _COLOURS[step.kind]
        self.parts.append(_box(x, top, _INNER, height, colour, dashed=step.kind == "added"))
        at = top + 6
        for number, line in enumerate([*titles, *lines]):
            self._text(x + _PAD, at, line, bold=number < len(titles))
            at += _HEIGHT
        for number, name in enumerate(step.outputs):
            self.beside = True
            y = top + number * (pill + 6)
            right = _MARGIN + _OUTER + 2 * _GAP
            self.parts.append(_line(x + _INNER, y + pill / 2, right - 7, y + pill / 2, dashed=True))
            self.parts.append(_head(right, y + pill / 2, down=False))
            self._pill(right, y, _SIDE, pill, _wrapped(name, _SIDE - 24, bold=True, most=1)[0])
        self.y = top + height

    def _pill(self, x: float, y: float, width: float, height: float, text: str) -> None:
        self.parts.append(_box(x, y, width, height, _COLOURS["output"], round_by=height / 2))
        self._text(x + 12, y + (height - _HEIGHT) / 2, text, bold=True)

    def _text(self, x: float, top: float, text: str, *, bold: bool = False, faint: bool = False) -> None:
        style = f' font-weight="600" font-size="{_TITLE}"' if bold else ""
        style += ' opacity="0.75"' if faint else ""
        self.parts.append(f'<text x="{x:g}" y="{top + 12.5:g}"{style}>{escape(text)}</text>')

    def _arrow(self, top: float, bottom: float, label: str = "") -> None:
        x = _MARGIN + _OUTER / 2
        self.parts += [_line(x, top, x, bottom - 7), _head(x, bottom, down=True)]
        if label:
            self._text(x + 10, (top + bottom - _HEIGHT) / 2, label, faint=True)


def _row_width(pills: Sequence[tuple[str, int]]) -> int:
    return sum(width for _, width in pills) + 8 * (len(pills) - 1)


def _box(
    x: float,
    y: float,
    width: float,
    height: float,
    colour: str,
    *,
    dashed: bool = False,
    fill: float = 0.1,
    stroke: float = 1,
    round_by: float = 6,
) -> str:
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by:g}" fill="{colour}" '
        f'fill-opacity="{fill:g}" stroke="{colour}" stroke-opacity="{stroke:g}"{dashes}/>'
    )


def _line(x: float, y: float, to_x: float, to_y: float, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}" stroke="currentColor" stroke-opacity="0.6" fill="none"{dashes}/>'


def _head(x: float, y: float, *, down: bool) -> str:
    corners = f"{x:g},{y:g} {x - 4:g},{y - 8:g} {x + 4:g},{y - 8:g}" if down else ""
    corners = corners or f"{x:g},{y:g} {x - 8:g},{y - 4:g} {x - 8:g},{y + 4:g}"
    return f'<polygon points="{corners}" fill-opacity="0.6"/>'


def _wrapped(text: str, width: float, *, bold: bool = False, most: int | None = None) -> list[str]:
    """Wrap text to a width and a number of lines."""
    lines = list(_lines(" ".join(text.split()), width, bold=bold)) or [""]
    if most is not None and len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1][:-1] + "…"]
    return lines


def _lines(text: str, width: float, *, bold: bool) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        tried = f"{line} {word}" if line else word
        if _width(tried, bold=bold) <= width:
            line = tried
            continue
        if line:
            yield line
        line = word
        while _width(line, bold=bold) > width:  # a word by itself
            end = next(end for end in range(1, len(line) + 1) if _width(line[: end + 1], bold=bold) > width)
            yield line[:end]
            line = line[end:]
    if line:
        yield line


def _width(text: str, *, bold: bool = False) -> float:
    """About how wide the text is, rather too much than too little: the page's font is not known here."""
    return sum(map(_letter, text)) * (_TITLE * 1.08 if bold else _LINE)


def _letter(letter: str) -> float:
    if letter in "iljtfr.,:;'|!()[] ":
        return 0.36
    if letter in "mwMW@—…" or unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    return 0.72 if letter.isupper() else 0.6
