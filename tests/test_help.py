"""What `help(tw)` and completion show is the public API, all of it and nothing else."""

from __future__ import annotations

import pydoc
import re

import pytest

import tidewheel as tw

LISTED = re.compile(r"^    (\w+) {2,}\S", re.MULTILINE)


def test_the_docstring_lists_every_public_name_once():
    assert sorted(LISTED.findall(str(tw.__doc__))) == sorted(tw.__all__)


def test_help_tells_what_there_is():
    text = pydoc.render_doc(tw, renderer=pydoc.plaintext)
    assert "a stream over topics of a log, or over any DataFrame" in text
    assert "Start jobs and results of one log as one query" in text, "also of what is imported when it is asked for"


def test_completion_shows_public_names():
    assert [name for name in dir(tw) if not name.startswith("__")] == sorted(tw.__all__)


@pytest.mark.parametrize("module", [tw.windows, tw.triggers, tw.agg, tw.watermarks, tw.geo, tw.errors])
def test_completion_of_a_module_shows_public_names_and_no_imports(module):
    assert dir(module) == sorted(module.__all__)
    assert {"Any", "annotations", "dataclass", "duration", "pl"}.isdisjoint(dir(module))
    assert "FUNCTIONS" in pydoc.render_doc(module, renderer=pydoc.plaintext)
