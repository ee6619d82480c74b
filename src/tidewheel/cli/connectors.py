"""Run connectors and report their progress, for the commands that bring messages into the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidewheel.cli.options import say
from tidewheel.cli.progress import Stop, print_json, run_with_progress
from tidewheel.model.rate import Rate
from tidewheel.model.time import Duration
from tidewheel.threads import reason_of

if TYPE_CHECKING:
    from tidewheel.ingest.connector import Connector, Deliver
    from tidewheel.transport.events.event_pb2 import IngestReport

__all__ = ["Account", "account_line", "run_connectors"]


class Account:
    """Counts the outcomes of messages since the command began: the totals in the log also count earlier processes."""

    def __init__(self, *reports: Callable[[], IngestReport]) -> None:
        self._reports = reports
        self._rate = Rate()
        self._before = self._totals()

    def __call__(self) -> dict[str, Any]:
        """Return the counts, and the recent rate in messages per second."""
        totals = {name: count - self._before[name] for name, count in self._totals().items()}
        return {**totals, "rate": round(self._rate(totals["received"]), 1)}

    def _totals(self) -> dict[str, int]:
        reports = [report() for report in self._reports]
        return {
            "received": sum(report.received for report in reports),
            "topics": sum(sum(report.topics.values()) for report in reports),
            "filtered": sum(sum(report.filtered.values()) for report in reports),
            "dead": sum(sum(report.dead.values()) for report in reports),
            "repeated": sum(report.repeated for report in reports),
        }


def account_line(status: Mapping[str, Any]) -> str:
    """Format the counts as a line of text."""
    repeated = f", {status['repeated']:,} repeated deliveries recognized" if status["repeated"] else ""
    return (
        f"{status['received']:,} messages = {status['topics']:,} in topics + {status['filtered']:,} filtered "
        f"+ {status['dead']:,} dead letters{repeated} ({status['rate']:,.0f}/s)"
    )


def run_connectors(
    pairs: Sequence[tuple[Connector, Deliver]],
    *,
    stop: Stop,
    length: Duration | None,
    as_json: bool,
) -> None:
    """Run connectors, each with its own pipeline, until all have ended or the command is stopped. Ends with the failure
    of one that failed, also if it was started again."""
    from tidewheel.ingest.connector import run_all

    account = Account(*(pipeline.report for _, pipeline in pairs))
    trouble: dict[str, str] = {}

    def note(connector: Connector, failure: Exception) -> None:
        trouble[connector.name] = f"{connector.name} stopped: {reason_of(failure)}"

    def status() -> dict[str, Any]:
        return {**account(), "trouble": list(trouble.values())}

    def line(status: Mapping[str, Any]) -> str:
        return "; ".join([account_line(status), *status["trouble"]])

    failures = run_with_progress(
        lambda: run_all(pairs, stop, on_failure=note),
        stop=stop,
        status=status,
        line=line,
        length=length,
        as_json=as_json,
    )
    if as_json:
        print_json(status())
    say(account_line(account()))
    if failures:
        raise failures[0][1]
