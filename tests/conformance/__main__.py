"""How many conformance cases pass, and what is wrong with the others."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests import ROOT
from tests.conformance.cases import Verdict, check_cases, load
from tests.conformance.match_recognize import QUERY_RUNNERS, QueryVerdict, check_queries, load_queries
from tests.conformance.pattern_runners import PATTERN_RUNNERS
from tests.conformance.patterns import PatternVerdict, check_patterns, load_patterns
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
    verdicts: dict[str, list[Verdict | PatternVerdict | QueryVerdict]] = {}
    for name in names:
        verdicts[name] = [*check_cases(cases, RUNNERS[name])] if cases else []
        if patterns:
            verdicts[name] += check_patterns(patterns, PATTERN_RUNNERS[name])
        if queries and name in QUERY_RUNNERS:
            verdicts[name] += check_queries(queries, QUERY_RUNNERS[name])
    for name, found in verdicts.items():
        for file in dict.fromkeys(verdict.case.file for verdict in found):
            own = [verdict for verdict in found if verdict.case.file == file]
            print(f"{name:10} {file:32} {sum(verdict.passed for verdict in own):4} / {len(own)}")
    for name, found in verdicts.items():
        for verdict in found:
            for complaint in verdict.complaints:
                print(f"\nFAILED {name}: {verdict.case.file}: {verdict.case.name}\n  {complaint}")
        for verdict in found:
            if verdict.passed and verdict.another_way:
                print(f"\nANOTHER WAY {name}: {verdict.case.file}: {verdict.case.name}\n  {verdict.another_way}")
    return int(any(not verdict.passed for found in verdicts.values() for verdict in found))


if __name__ == "__main__":
    sys.exit(main())
