"""What `help(tw)` and completion show is the public API, all of it and nothing else."""

from __future__ import annotations

import pydoc
import re
from types import ModuleType

import pytest

import tidewheel as tw
import tidewheel.cli
import tidewheel.ingest
import tidewheel.serve
import tidewheel.testing

LISTED = re.compile(r"^    (\w+) {2,}\S", re.MULTILINE)


def test_the_docstring_lists_every_public_name_once():
    assert sorted(LISTED.findall(str(tw.__doc__))) == sorted(tw.__all__)


def test_help_lists_what_there_is():
    text = pydoc.render_doc(tw, renderer=pydoc.plaintext)
    assert "a stream over topics of a log, or over any DataFrame" in text
    assert "Start jobs and results of one log as one query" in text, "also of what is imported when it is asked for"


def test_completion_shows_public_names():
    assert [name for name in dir(tw) if not name.startswith("__")] == sorted(tw.__all__)


MODULES = [module for name in tw.__all__ if isinstance(module := getattr(tw, name), ModuleType)]


@pytest.mark.parametrize("module", [*MODULES, tw.cli, tw.ingest, tw.serve, tw.testing], ids=lambda each: each.__name__)
def test_completion_of_a_module_shows_public_names_and_no_imports(module):
    assert dir(module) == sorted(module.__all__)
    assert {"Any", "annotations", "dataclass", "pl", "re"}.isdisjoint(dir(module))
    assert "FUNCTIONS" in pydoc.render_doc(module, renderer=pydoc.plaintext)


def test_modules_are_among_the_public_names():
    assert {tw.windows, tw.triggers, tw.agg, tw.watermarks, tw.geo, tw.errors, tw.time, tw.codec} < {*MODULES}
