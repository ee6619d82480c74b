"""Other projects' MATCH_RECOGNIZE cases run here, if they are beside the checkout; and their check does find faults."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.conformance.match_recognize import check_queries, load_queries
from tests.conformance.match_recognize import spark as on_spark

FOLDER = ROOT.parent / "shared" / "conformance"
QUERIES = load_queries(FOLDER)


@pytest.mark.parametrize("query", QUERIES, ids=[f"{query.file}-{query.name}" for query in QUERIES])
def test_the_rows_are_as_the_case_says(query):
    [outcome] = check_queries([query])
    assert outcome.complaints == []


@pytest.mark.slow
@pytest.mark.long
def test_the_rows_are_the_same_on_spark(shared, spark):
    outcomes = check_queries(QUERIES, on_spark)
    assert [(outcome.case.name, outcome.complaints) for outcome in outcomes if not outcome.passed] == []


def test_there_are_cases(shared):
    assert QUERIES


CASE = """
name: mine
sql: SELECT a, b FROM (VALUES (1, 2), (2, 3)) t(v, w) MATCH_RECOGNIZE (ORDER BY v MEASURES v AS a, w AS b {skip}
  PATTERN (A) DEFINE A AS true)
{expected}
"""


@pytest.mark.parametrize(
    ("skip", "expected", "complaints"),
    [
        ("", "expected_rows: [[2, 3], [1, 2]]", 0),
        ("", "expected_rows: [[1, 2]]", 1),
        ("", "expected_rows: [[1, 2], [2, 3], [2, 3]]", 1),
        ("", "expected_error: 'AFTER MATCH SKIP failed: cannot skip to first row of match'", 1),
        ("AFTER MATCH SKIP TO A", "expected_error: 'AFTER MATCH SKIP failed: cannot skip to first row of match'", 0),
        ("AFTER MATCH SKIP TO A", "expected_error: 'AFTER MATCH SKIP failed: variable is not present in match'", 1),
        ("AFTER MATCH SKIP TO A", "expected_rows: []", 1),
        ("AFTER NOON", "expected_rows: [[1, 2], [2, 3]]", 1),
    ],
)
def test_a_query_is_compared_row_by_row_in_any_order(tmp_path, skip, expected, complaints):
    (tmp_path / "match_recognize").mkdir()
    (tmp_path / "match_recognize" / "mine.yaml").write_text(CASE.format(skip=skip, expected=expected))
    [outcome] = check_queries(load_queries(tmp_path))
    assert len(outcome.complaints) == complaints


@pytest.mark.long
def test_faults_are_found_on_spark_too(tmp_path, spark):
    (tmp_path / "match_recognize").mkdir()
    for number, (skip, expected) in enumerate(
        [
            ("", "expected_rows: [[1, 2]]"),
            ("", "expected_rows: [[2, 3], [1, 2]]"),
            ("AFTER MATCH SKIP TO A", "expected_error: 'AFTER MATCH SKIP failed: cannot skip to first row of match'"),
            ("AFTER MATCH SKIP TO A", "expected_rows: []"),
        ]
    ):
        (tmp_path / "match_recognize" / f"{number}.yaml").write_text(CASE.format(skip=skip, expected=expected))
    outcomes = check_queries(load_queries(tmp_path), on_spark)
    assert [len(outcome.complaints) for outcome in outcomes] == [1, 0, 0, 1]


def test_a_case_of_an_unknown_kind_is_refused(tmp_path):
    (tmp_path / "match_recognize").mkdir()
    (tmp_path / "match_recognize" / "strange.yaml").write_text("name: strange")
    with pytest.raises(ValueError, match="unknown kind"):
        load_queries(tmp_path)
