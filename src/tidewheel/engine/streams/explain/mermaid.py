"""A query's graph as Mermaid text, which GitHub, GitLab, wikis and notebooks draw."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from tidewheel.engine.streams.explain.graph import Graph, Step

__all__ = ["mermaid"]

_WIDTH = 60
_SPECIAL = re.compile(r"""["#&<>`%\\*~]|(?<!\w)_|_(?!\w)""")
"""What Mermaid, HTML, or the Markdown in Mermaid's labels would take as their own."""
_SHAPES = {"input": ('[("', '")]'), "step": ('["', '"]'), "stage": ('["', '"]'), "added": ('(["', '"])')}


def mermaid(graph: Graph) -> str:
    """The graph as a flow chart, from top to bottom: a subgraph for each operator of Spark's."""
    lines = ["flowchart TD"]
    links: list[str] = []
    before = ""
    number = 0
    for place, operator in enumerate(graph.operators):
        lines.append(f'  subgraph spark{place}["{_label(operator.title, [operator.parallelism])}"]')
        link = operator.link
        for step in operator.steps:
            name, number = f"step{number}", number + 1
            opened, closed = _SHAPES[step.kind]
            lines.append(f"    {name}{opened}{_label(step.title, step.lines)}{closed}")
            if before:
                links.append(f'  {before} -->|"{_text(link)}"| {name}' if link else f"  {before} --> {name}")
            links += _outputs(name, step)
            before, link = name, ""
        lines.append("  end")
    links += [f'  {before} --> out{place}(["{_text(name)}"])' for place, name in enumerate(graph.outputs)]
    return "\n".join([*lines, *links])


def _outputs(name: str, step: Step) -> list[str]:
    return [f'  {name} -.-> {name}out{place}(["{_text(output)}"])' for place, output in enumerate(step.outputs)]


def _label(title: str, lines: Iterable[str]) -> str:
    shown = [title, *lines]
    return "<br/>".join(_text(part) for line in shown for part in textwrap.wrap(line, _WIDTH) or [""])


def _text(text: str) -> str:
    """Text for use between quotes: characters with a meaning in Mermaid are replaced by their codes."""
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", " ".join(text.split()))
