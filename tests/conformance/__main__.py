"""How many conformance cases pass, and what is wrong with the others."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests import ROOT
from tests.conformance.cases import CaseResult, check_cases, load
from tests.conformance.match_recognize import QUERY_RUNNERS, QueryResult, check_queries, load_queries
from tests.conformance.pattern_runners import PATTERN_RUNNERS
from tests.conformance.patterns import PatternResult, check_patterns, load_patterns
from tests.conformance.runners import RUNNERS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument(
        "--cases", type=Path, default=ROOT.parent / "shared" / "conformance", help="the folder of cases"
    )
    parser.add_argument("--runner", default="reference", help=f"comma-separated, of {', '.join(RUNNERS)}")
    options = parser.parse_args()
    names = options.runner.split(",")
    if unknown := [name for name in names if name not in RUNNERS]:
        parser.error(f"unknown runner {unknown[0]!r}, use {', '.join(RUNNERS)}")
    cases, patterns, queries = load(options.cases), load_patterns(options.cases), load_queries(options.cases)
    if not cases and not patterns and not queries:
        parser.error(f"no cases in {options.cases}")
    outcomes: dict[str, list[CaseResult | PatternResult | QueryResult]] = {}
    for name in names:
        outcomes[name] = [*check_cases(cases, RUNNERS[name])] if cases else []
        if patterns:
            outcomes[name] += check_patterns(patterns, PATTERN_RUNNERS[name])
        if queries and name in QUERY_RUNNERS:
            outcomes[name] += check_queries(queries, QUERY_RUNNERS[name])
    for name, found in outcomes.items():
        for file in dict.fromkeys(outcome.case.file for outcome in found):
            own = [outcome for outcome in found if outcome.case.file == file]
            print(f"{name:10} {file:32} {sum(outcome.passed for outcome in own):4} / {len(own)}")
    for name, found in outcomes.items():
        for outcome in found:
            for complaint in outcome.complaints:
                print(f"\nFAILED {name}: {outcome.case.file}: {outcome.case.name}\n  {complaint}")
        for outcome in found:
            if outcome.passed and outcome.another_way:
                print(f"\nANOTHER WAY {name}: {outcome.case.file}: {outcome.case.name}\n  {outcome.another_way}")
    return int(any(not outcome.passed for found in outcomes.values() for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
