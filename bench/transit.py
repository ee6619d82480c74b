"""The figures of the transit application: all ten jobs together, in real time.

The simulator sends what a fleet sends, in a process of its own, into the log; the lookup worker asks for final stops;
the jobs follow as one query in a third process. All of them share this machine. What is measured comes after a warm-up,
in which Python workers start and Java compiles. Growth is the slope of a robust line (Theil-Sen) through the samples
from the second third on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.figures import Figure, percentiles, with_aim
from bench.parts import Part, run_parts
from bench.transit_jobs import Sample
from bench.transit_soak import RATE, Outcome, Soak, Stretch

__all__ = [
    "MINUTES",
    "PARTS",
    "Bench",
    "highest_factor",
    "keeps_up",
    "measure",
    "memory_figures",
    "outcome_figures",
    "stretch_figures",
]

MINUTES: Final = 10.0

_WARM_UP_SECONDS: Final = 75.0
_FACTOR_SECONDS: Final = 75.0
_DRAIN_SECONDS: Final = 300.0
_LAG_GROWTH: Final = 0.02
"""Of what comes in, at most so much may be left undone for good; of a short run more, since a batch more or less counts
for more in it."""
_SHORT_LAG_GROWTH: Final = 0.05
_MEMORY_GROWTH: Final = 1.0
"""Percent a minute."""
_LEAST_REACHED: Final = 0.95


@dataclass(frozen=True)
class Bench:
    """Where to work, whom to tell, and for how long."""

    folder: Path
    say: Callable[[str], object]
    minutes: float = MINUTES


def measure(
    minutes: float, folder: Path, say: Callable[[str], object], *, only: Sequence[str] = ()
) -> Iterator[list[Figure]]:
    """The figures of these parts, or of all, part by part."""
    return run_parts(PARTS, Bench(folder, say, minutes), only)


def _soak(bench: Bench) -> list[Figure]:
    folder = bench.folder / "soak"
    folder.mkdir()
    with Soak(folder, bench.say) as chain:
        found = chain.stretch(60 * bench.minutes, warm_up=_WARM_UP_SECONDS)
        return [*stretch_figures(found), *memory_figures(found), *outcome_figures(chain.finish(_DRAIN_SECONDS))]


def stretch_figures(found: Stretch) -> list[Figure]:
    """How the jobs kept up."""
    group = f"All ten jobs as one query at {found.rate:,.0f} events/s for {found.seconds / 60:.1f} min"
    batch = percentiles([sample.batch_ms for sample in found.settled])
    waited = percentiles([sample.waited for sample in found.settled])
    behind = percentiles([sample.behind for sample in found.settled])
    return [
        with_aim(group, "events that came in", found.reached, "events/s", least=_LEAST_REACHED * found.rate),
        Figure(group, "batches", found.samples[-1].batches - found.samples[0].batches, ""),
        Figure(group, "a batch, p50", batch[0] / 1_000, "s"),
        Figure(group, "a batch, p99", batch[1] / 1_000, "s"),
        *(
            Figure(group, f"lag in the {name} third, median", found.third(number, lambda sample: sample.lag), "events")
            for number, name in enumerate(("first", "middle", "last"))
        ),
        with_aim(
            group, "lag grows by", found.slope(lambda sample: sample.lag), "events/s", most=_LAG_GROWTH * found.rate
        ),
        Figure(group, "the oldest event has waited, p50", waited[0], "s"),
        Figure(group, "the oldest event has waited, p99", waited[1], "s"),
        Figure(group, "the watermark is behind the clock, p50", behind[0], "s"),
        Figure(group, "the watermark is behind the clock, p99", behind[1], "s"),
    ]


def memory_figures(found: Stretch) -> list[Figure]:
    """What the processes took."""
    group = "Memory meanwhile"
    parts: dict[str, Callable[[Sample], float]] = {
        "driver": lambda sample: sample.driver / 1e6,
        "Java": lambda sample: sample.java / 1e6,
        "Python workers": lambda sample: sample.workers / 1e6,
        "all": lambda sample: sample.memory / 1e6,
        "state, as Spark tells it": lambda sample: sample.state / 1e6,
        "checkpoint on disk": lambda sample: sample.stored / 1e6,
    }
    figures = []
    for name, of in parts.items():
        figures += [
            Figure(group, f"{name}, middle third", found.third(1, of), "MB"),
            Figure(group, f"{name}, last third", found.third(2, of), "MB"),
        ]
    middle = found.third(1, parts["all"])
    growth = 100 * 60 * found.slope(parts["all"]) / middle
    return [*figures, with_aim(group, "all grow by", growth, "%/min", most=_MEMORY_GROWTH)]


def outcome_figures(found: Outcome) -> list[Figure]:
    """Whether everything was done once."""
    group = "Exactly once, from what is in the log"
    accounts = found.accounts
    missing, twice = sum(each.missing for each in accounts), sum(each.twice for each in accounts)
    return [
        Figure(group, "events that came in, all topics", found.came, ""),
        *(Figure(group, f"{each.job}: events for it", each.came, "") for each in accounts),
        *(Figure(group, f"{each.job}: late", each.late, "") for each in accounts),
        *(Figure(group, f"{each.job}: results", each.written, "") for each in accounts),
        with_aim(group, "events and results that do not add up", missing, "", most=0),
        with_aim(group, "results that are there twice", twice, "", most=0),
        with_aim(group, "dead letters", found.dead, "", most=0),
        with_aim(group, "final stops without an answer", found.unanswered, "", most=0),
    ]


def keeps_up(found: Stretch) -> bool:
    """Does the lag of a short run not grow, at a rate that was reached?

    It must not grow from the second third on, nor be much higher in the end than when it began: what grows in steps of
    long batches has no slope that could be found from so few.
    """
    grows = found.slope(lambda sample: sample.lag) > _SHORT_LAG_GROWTH * found.rate
    left = found.third(2, lambda sample: sample.lag) - found.samples[0].lag
    grew = left > _SHORT_LAG_GROWTH * found.rate * found.seconds
    return not grows and not grew and found.reached >= _LEAST_REACHED * found.rate


def highest_factor(run: Callable[[float], bool]) -> float:
    """The highest factor that `run` says of that it keeps up: doubled until one does not, and once between these two;
    halved if not even 1 does; 0 if an eighth does not.

    >>> highest_factor(lambda factor: factor <= 6.5), highest_factor(lambda factor: factor < 0.4)
    (6.0, 0.25)
    """
    factor = 1.0
    if not run(factor):
        while factor > 0.125:
            factor /= 2
            if run(factor):
                return factor
        return 0.0
    while run(2 * factor):
        factor *= 2
    return 1.5 * factor if run(1.5 * factor) else factor


def _factors(bench: Bench) -> list[Figure]:
    group = f"Volume factors (1 = {RATE} events/s), {_FACTOR_SECONDS:.0f} s each, one after the other"
    folder = bench.folder / "factors"
    folder.mkdir()
    with Soak(folder, bench.say) as chain:
        figures: list[Figure] = []

        def run(factor: float) -> bool:
            chain.catch_up(_DRAIN_SECONDS)
            warm_up = 0.0 if figures else _WARM_UP_SECONDS
            found = chain.stretch(_FACTOR_SECONDS, rate=factor * RATE, warm_up=warm_up)
            batch, _ = percentiles([sample.batch_ms for sample in found.settled])
            lag = found.third(2, lambda sample: sample.lag)
            grows = found.slope(lambda sample: sample.lag)
            figures.extend(
                [
                    Figure(group, f"{factor:g}x: events that came in", found.reached, "events/s"),
                    Figure(group, f"{factor:g}x: a batch, p50", batch / 1_000, "s"),
                    Figure(group, f"{factor:g}x: lag in the last third, median", lag, "events"),
                    Figure(group, f"{factor:g}x: lag grows by", grows, "events/s"),
                ]
            )
            return keeps_up(found)

        highest = highest_factor(run)
        return [*figures, with_aim(group, "the highest that keeps up", highest, "x", least=1)]


PARTS: Mapping[str, Part[Bench]] = {
    "a": Part("ten jobs in real time", _soak),
    "b": Part("the highest volume that keeps up", _factors),
}
