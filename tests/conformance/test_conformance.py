"""Other projects' cases run here, if they are beside the checkout; and the checks do find faults."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

import pytest

from tests import ROOT
from tests.conformance.__main__ import main
from tests.conformance.cases import CaseResult, check_cases, load, load_file
from tests.conformance.pattern_runners import COPIES, PATTERN_RUNNERS, nfa
from tests.conformance.patterns import Outcome, PatternResult, check_patterns, load_pattern_file, load_patterns
from tests.conformance.runners import RUNNERS, reference

FOLDER = ROOT.parent / "shared" / "conformance"
CASES = load(FOLDER) if FOLDER.is_dir() else []
PATTERNS = load_patterns(FOLDER) if FOLDER.is_dir() else []


def each(runners: Mapping[str, object]) -> list[object]:
    """Their names; Spark takes its time."""
    return [pytest.param(name, marks=pytest.mark.long if name == "spark" else ()) for name in runners]


@pytest.fixture(scope="module")
def outcomes() -> Callable[[str], list[CaseResult]]:
    """What a runner makes of all cases: they run together, once."""
    return functools.cache(lambda name: check_cases(CASES, RUNNERS[name]))


@pytest.mark.parametrize("runner", each(RUNNERS))
@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{case.file}-{case.name}" for case in CASES])
def test_the_answer_is_as_the_case_says(number, runner, outcomes):
    assert outcomes(runner)[number].complaints == []


def test_a_runner_that_gives_nothing_is_found_out(shared):
    def silent(questions):
        return [[[] for _ in steps] for _, steps in questions]

    accused = [
        outcome.case for outcome in check_cases(CASES, silent) if not outcome.case.must_fail and not outcome.passed
    ]
    assert {case.file for case in accused} == {case.file for case in CASES}
    assert len(accused) > len(CASES) * 0.8


@pytest.mark.parametrize("runner", each(RUNNERS))
def test_only_cases_that_say_why_are_answered_another_way(runner, shared, outcomes):
    assert sorted(outcome.case.name for outcome in outcomes(runner) if outcome.another_way) == [
        "aligned_delay",
        "unaligned_delay",
    ]


TRANSCRIPT = """
name: mine
window_fn: FixedWindows(10)
transcript:
  - input: [3, 1]
  - watermark: 10
  - expect:
      - {{window: [0, {end}], values: [1, {value}], index: 0, late: false}}
{more}
"""


@pytest.mark.parametrize(
    ("fields", "complaints"),
    [
        ({}, 0),
        ({"end": 19}, 2),
        ({"value": 4}, 2),
        ({"more": "      - {window: [10, 19]}"}, 1),
        ({"more": "error: Unmatched output"}, 1),
        ({"value": 4, "more": "error: Unmatched output"}, 0),
    ],
)
def test_a_transcript_is_compared_pane_by_pane(tmp_path, fields, complaints):
    path = tmp_path / "transcripts.yaml"
    path.write_text(TRANSCRIPT.format(**{"end": 9, "value": 3, "more": "", **fields}))
    [outcome] = check_cases(load_file(path), reference)
    assert len(outcome.complaints) == complaints


@pytest.mark.parametrize(("watermark", "accepted"), [(14, True), (15, True), (16, False)])
def test_in_a_transcript_elements_are_accepted_until_the_watermark_is_past_the_lateness(tmp_path, watermark, accepted):
    late = "\n  - expect:\n      - {window: [0, 9], values: [1, 2, 3], late: true}" if accepted else ""
    more = f"  - watermark: {watermark}\n  - input: [2]{late}\nallowed_lateness: 5"
    path = tmp_path / "transcripts.yaml"
    path.write_text(TRANSCRIPT.format(end=9, value=3, more=more))
    [outcome] = check_cases(load_file(path), reference)
    assert outcome.complaints == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name: strange", "a case of an unknown kind"),
        ("name: strange\nwindow_fn: MoonWindows(10)\ntranscript: [{input: [1]}]", "MoonWindows"),
        ("name: strange\ntrigger_fn: AfterMoon(3)\ntranscript: [{input: [1]}]", "AfterMoon"),
    ],
)
def test_a_case_that_cannot_be_read_fails_and_the_others_are_run(tmp_path, text, reason):
    path = tmp_path / "strange.yaml"
    path.write_text(f"{text}\n---{TRANSCRIPT.format(end=9, value=3, more='')}")
    strange, good = check_cases(load_file(path), reference)
    assert [reason in complaint for complaint in strange.complaints] == [True]
    assert good.passed


@pytest.mark.parametrize("named", ["", "dataflow"])
def test_the_command_runs_another_folder_and_reports_what_failed(tmp_path, monkeypatch, capsys, named):
    folder = tmp_path / "dataflow"
    folder.mkdir()
    (folder / "other_name.yaml").write_text(TRANSCRIPT.format(end=9, value=3, more=""))
    (folder / "wrong.yaml").write_text(TRANSCRIPT.format(end=9, value=4, more=""))
    monkeypatch.setattr("sys.argv", ["conformance", "--cases", str(tmp_path / named)])
    assert main() == 1
    said = capsys.readouterr().out
    assert re.search(r"reference +other_name.yaml +1 / 1", said)
    assert re.search(r"reference +wrong.yaml +0 / 1", said)
    assert "FAILED reference: wrong.yaml: mine" in said
    (folder / "wrong.yaml").unlink()
    assert main() == 0


def test_a_folder_without_cases_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["conformance", "--cases", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert "no cases in" in capsys.readouterr().err


# Patterns ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pattern_results() -> Callable[[str], list[PatternResult]]:
    """What a runner makes of all cases: they run together, once."""
    return functools.cache(lambda name: check_patterns(PATTERNS, PATTERN_RUNNERS[name]))


@pytest.mark.parametrize("runner", each(PATTERN_RUNNERS))
@pytest.mark.parametrize("number", range(len(PATTERNS)), ids=[f"{case.file}-{case.name}" for case in PATTERNS])
def test_a_pattern_matches_as_the_case_says(number, runner, pattern_results):
    assert pattern_results(runner)[number].complaints == []


def test_a_matcher_that_finds_nothing_is_found_out(shared):
    def silent(cases):
        return [[Outcome([[] for _ in case.steps], [[] for _ in case.steps])] for case in cases]

    accused = [outcome.case for outcome in check_patterns(PATTERNS, silent) if not outcome.passed]
    assert {case.file for case in accused} == {case.file for case in PATTERNS}
    assert len(accused) > len(PATTERNS) * 0.7


STAGES = """
name: mine
events:
  - {{key: e1, id: 1, name: a, price: 1.0, ts: 1}}
  - {{key: e2, id: 2, name: b, price: 2.0, ts: 2}}
pattern:
  - {{name: start, contiguity: begin, quantifier: {{min: 1, max: 1}}, condition: name == "a"}}
  - {{name: end, contiguity: next, quantifier: {{min: 1, max: 1}}, condition: name == "{end}" and {more}}}
within: null
skip: {{strategy: no_skip}}
expected:
  - [e1, e2]
"""


@pytest.mark.parametrize(
    ("fields", "complaints"),
    [
        ({}, 0),
        ({"more": 'first_price("start") + 1 == price'}, 0),
        ({"more": 'count("start") == 2'}, 1),
        ({"end": "c"}, 1),
        ({"more": "price"}, 1),
    ],
)
def test_a_case_of_a_pattern_is_compared_match_by_match(tmp_path, fields, complaints):
    path = tmp_path / "patterns.yaml"
    path.write_text(STAGES.format(**{"end": "b", "more": "price > 1", **fields}))
    [outcome] = check_patterns(load_pattern_file(path), nfa)
    assert len(outcome.complaints) == complaints


def test_a_key_that_gets_other_matches_than_the_others_is_found_out(tmp_path):
    path = tmp_path / "patterns.yaml"
    path.write_text(STAGES.format(end="b", more="price > 1"))

    def forgetful(cases):
        return [[*found * (COPIES - 1), Outcome([[]], [[]])] for found in nfa(cases)]

    [outcome] = check_patterns(load_pattern_file(path), forgetful)
    assert len(outcome.complaints) == 1


def test_a_pattern_of_an_unknown_kind_is_refused(tmp_path):
    path = tmp_path / "strange.yaml"
    path.write_text("name: strange")
    with pytest.raises(ValueError, match="unknown kind"):
        load_pattern_file(path)
