"""Other projects' cases run here, if they are beside the checkout; and the checks that judge them do find faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.cases import judge, load, load_file
from tests.conformance.runners import reference

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "conformance"
CASES = load(FOLDER) if FOLDER.is_dir() else []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file}-{case.name}")
def test_the_reference_answers_as_the_case_says(case):
    assert judge(case, reference).complaints == []


def test_a_runner_that_gives_nothing_is_found_out(shared):
    def silent(windowing, steps):
        return [[] for _ in steps]

    accused = [case for case in CASES if not case.must_fail and not judge(case, silent).passed]
    assert {case.file for case in accused} == {case.file for case in CASES}
    assert len(accused) > len(CASES) * 0.8


def test_only_cases_that_say_why_are_answered_another_way(shared):
    another = [judge(case, reference) for case in CASES]
    assert sorted(verdict.case.name for verdict in another if verdict.another_way) == [
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
    [case] = load_file(path)
    assert len(judge(case, reference).complaints) == complaints


def test_a_case_of_an_unknown_kind_is_refused(tmp_path):
    path = tmp_path / "strange.yaml"
    path.write_text("name: strange")
    with pytest.raises(ValueError, match="unknown kind"):
        load_file(path)
