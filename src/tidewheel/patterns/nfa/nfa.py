"""The NFA that finds a key's matches, event by event.

It follows Agrawal, Diao, Gyllstrom and Immerman, "Efficient Pattern Matching over Event Streams" (SIGMOD 2008): a
nondeterministic automaton whose runs, the partial matches, share one buffer of the events they took. There, a node of
the buffer is an event at a stage, with versioned edges to the nodes before it. Here, a node leads to exactly one before
it: runs that branch share what they took until then, a path is read without comparing versions, and an event is freed
with the last run that holds it.

A run stands at a position and has a set of open edges. An event may take some of them, each giving a new run, and close
some; time closes others. A run without open edges is over: its time ran out if time closed the last one.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidewheel.model.time import Instant
from tidewheel.patterns.compile.bound_program import NEVER, BoundProgram, Predicate, Transition
from tidewheel.patterns.compile.program import FINAL
from tidewheel.patterns.nfa.partial_match import BY_TIME, Dropped, Match, PartialMatch, Path, TimedOut, steps_of, weight
from tidewheel.patterns.nfa.skip_strategies import SkipStrategy

__all__ = ["NFA"]


@dataclass
class NFA:
    """The runs of one key. Events have rising numbers; what they satisfy is asked of the bound program's conditions.

    limit: how much partial matches and matches held back may weigh; beyond it, those partial matches that began
    earliest are dropped, and reported. What is held back is so only while there are partial matches: so all is bounded.
    """

    bound: BoundProgram
    limit: int = 10_000
    matches: list[Match] = field(default_factory=list)
    timed_out: list[TimedOut] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    held: list[Match] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._fresh: list[PartialMatch] = []
        self._runs: dict[int, list[PartialMatch]] = {}
        self._wake: Instant = NEVER
        self._weight = 0  # at most: what is over since it was last weighed still counts
        self._independent = self.bound.program.policy.independent

    # What happens -------------------------------------------------------------------------------------------

    def event(self, event: int, time: Instant, bits: int, starts: int = -1) -> None:
        """Take the next event of the key. bits: the conditions that hold for it; starts: which starts to consider."""
        if time >= self._wake and not self._independent:
            self.advance(time)  # otherwise it is enough that each run looks at the time when it is looked at
        bound = self.bound
        before, self._fresh = self._fresh, []
        for position, runs in self._runs.items():
            if runs and bits & bound.later[position]:
                self._step_all(runs, event, time, bits)
        for run in before:
            self._step(run, event, time, bits)
            if not run.dead:
                self._runs.setdefault(run.position, []).append(run)
        for number, mask in enumerate(bound.start_masks):
            if bits & mask and starts >> number & 1:
                self._take(None, bound.starts[number], event, time)
        if self.held:
            self._release()
        if self._weight > self.limit:
            self.advance(time)
            self._bound(time)

    def pass_over(self, time: Instant) -> None:
        """Note an event that satisfies no condition: what waits only for the next event waits no longer."""
        if time >= self._wake:
            self.advance(time)
        died = False
        for run in self._fresh:
            run.fresh = False
            run.open &= ~self.bound.closed(run.position, time - run.last_time)
            if run.open:
                self._schedule(run)
                self._runs.setdefault(run.position, []).append(run)
            else:
                run.dead = died = True
        self._fresh = []
        if died and self.held:
            self._release()

    def advance(self, time: Instant) -> None:
        """Move time: all events before this time have come."""
        if time < self._wake:
            return
        due = sorted((run for run in self if run.due <= time), key=lambda run: (run.due, run.start))
        place = 0
        while place < len(due):
            at = due[place].due
            while place < len(due) and due[place].due == at:
                run = due[place]
                if not run.dead:
                    self._expire(run, at)
                    if not run.dead and run.due <= time:  # its end has come, the rest of it is due later, yet by now
                        due.insert(place + 1, run)
                        due[place + 1 :] = sorted(due[place + 1 :], key=lambda one: (one.due, one.start))
                place += 1
            if self.held:
                self._release()
                self._bound(at)
        self._sweep()

    # What there is ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._fresh) + sum(map(len, self._runs.values()))

    @property
    def empty(self) -> bool:
        """Whether there is no partial match."""
        return not self._fresh and not any(self._runs.values())

    def __iter__(self) -> Iterator[PartialMatch]:
        for runs in self._runs.values():
            yield from runs
        yield from self._fresh

    def add(self, run: PartialMatch) -> None:
        """Add a run that was kept from before."""
        self._weight += weight(run.size)
        self._schedule(run)
        if run.fresh:
            self._fresh.append(run)
        else:
            self._runs.setdefault(run.position, []).append(run)

    def hold(self, matches: list[Match]) -> None:
        """Add matches that were held back before."""
        self.held = sorted(matches, key=_order)
        self._weight += sum(weight(match.size) for match in matches)

    # One run ------------------------------------------------------------------------------------------------

    def _step_all(self, runs: list[PartialMatch], event: int, time: Instant, bits: int) -> None:
        gone = False
        for run in runs:
            self._step(run, event, time, bits)
            gone = gone or run.dead
        if gone:
            runs[:] = [run for run in runs if not run.dead]

    def _step(self, run: PartialMatch, event: int, time: Instant, bits: int) -> None:
        bound = self.bound
        while time >= run.due:
            self._expire(run, run.due)
            if run.dead:
                return
        opened = run.open
        for transition in bound.transitions[run.position]:
            if not transition.bit & opened:
                continue
            if transition.plain:
                test = transition.test
                holds = bits & test.mask and (test.function is None or test.function(event, run.taken) is True)
                if holds:
                    self._take(run, transition.target, event, time)
                if transition.strict or (holds and not transition.any):
                    opened ^= transition.bit
            elif self._closes(run, transition, event, time, bits):
                opened ^= transition.bit
        run.fresh = False
        if opened != run.open:
            run.open = opened
            if opened:
                self._schedule(run)
            else:
                run.dead = True

    def _closes(self, run: PartialMatch, transition: Transition, event: int, time: Instant, bits: int) -> bool:
        """Take the transition if the event allows; say whether it is closed from now on."""

        def holds(predicate: Predicate) -> bool:
            if not bits & predicate.mask:
                return False
            return predicate.function is None or predicate.function(event, run.taken) is True

        if run.fresh and transition.not_next and any(holds(predicate) for predicate in transition.not_next):
            return True
        if transition.target != FINAL and transition.gap is not None and time - run.last_time >= transition.gap:
            return True
        for guard, untils, lifted in transition.guards:
            if run.released & lifted:
                continue
            if any(holds(until) for until in untils):
                run.released |= lifted
            elif holds(guard):
                return True
        if transition.target == FINAL:
            if transition.strict:
                self._complete(run.path, run.start, time, event)
                return True
            return any(holds(predicate) for predicate in transition.stops)
        ended = [closes for until, closes in transition.untils if holds(until)]
        fits = holds(transition.test)
        if fits and not ended:
            self._take(run, transition.target, event, time)
        return (
            transition.strict
            or (fits and not transition.any)
            or any(ended)
            or (bool(transition.stops) and any(holds(predicate) for predicate in transition.stops))
        )

    def _take(self, run: PartialMatch | None, target: int, event: int, time: Instant) -> None:
        bound = self.bound
        if run is None:
            path: Path = (None, event, target)
            size, start, start_time, taken = 1, event, time, bound.accumulators.empty
        else:
            path = (run.path, event, target)
            size, start, start_time, taken = run.size + 1, run.start, run.start_time, run.taken
        if bound.accepts[target]:
            self._complete(path, start, time, event)
        opened = bound.everything[target]
        if opened:
            if bound.accumulates:
                taken = bound.accumulators.after(taken, target, event)
            new = PartialMatch(target, opened, path, size, start, start_time, time, taken)
            self._weight += 1 if run is None else weight(size)
            self._schedule(new)
            self._fresh.append(new)

    def _schedule(self, run: PartialMatch) -> None:
        """Schedule when time alone does something to the run."""
        due = run.start_time + self.bound.window
        wait = self.bound.wait(run.position, run.open)
        if wait < NEVER and run.last_time + wait < due:
            due = run.last_time + wait
        run.due = due
        if due < self._wake:
            self._wake = due

    def _expire(self, run: PartialMatch, at: Instant) -> None:
        bound = self.bound
        wait = bound.final_wait(run.position, run.open)
        if wait is not None:
            self._complete(run.path, run.start, at, BY_TIME)
            run.open &= ~(bound.final[run.position] | bound.outwaited(run.position, at - run.last_time))
            over = at >= run.start_time + bound.window or not run.open
            if not over:
                self._schedule(run)
                return
        elif not bound.accepts[run.position]:
            self.timed_out.append(TimedOut(run.path, at))
        run.dead = True

    def _complete(self, path: Path, start: int, time: Instant, event: int) -> None:
        match = Match(path, start, time, event)
        if self._independent:
            self.matches.append(match)
        else:
            bisect.insort(self.held, match, key=_order)
            self._weight += weight(match.size)

    def _sweep(self) -> None:
        for runs in self._runs.values():
            runs[:] = [run for run in runs if not run.dead]
        self._fresh = [run for run in self._fresh if not run.dead]
        self._wake = min((run.due for run in self), default=NEVER)

    # What matches mean for others ---------------------------------------------------------------------------

    def _release(self) -> None:
        """Give the completed matches that nothing older or better can come before."""
        policy = self.bound.program.policy
        skips, last = policy.after_match != "skip none", policy.select == "last"
        waiting, self.held = self.held, []
        starts = self._starts()
        while waiting:
            match = waiting[0]
            if (last and match.start in starts) or (skips and starts and min(starts) < match.start):
                if skips:
                    self.held = waiting
                    return
                self.held.append(waiting.pop(0))
                continue
            if last:
                same = [one for one in waiting if one.start == match.start]
                latest = max(map(_completion, same))
                match = next(one for one in same if _completion(one) == latest)
            self.matches.append(match)
            ends = SkipStrategy(self.bound, match)
            for run in self:
                run.dead = run.dead or ends(run.start, run.path)
            waiting = [one for one in waiting if one is not match and not ends(one.start, one.path)]
            self.held = [one for one in self.held if not ends(one.start, one.path)]
            self._sweep()
            starts = self._starts()

    def _starts(self) -> set[int]:
        return {run.start for run in self if not run.dead}

    # What there is room for ---------------------------------------------------------------------------------

    def _bound(self, time: Instant) -> None:
        """Drop partial matches beyond the limit, which releases the matches that they held back."""
        if self._weight <= self.limit or self._weighed() <= self.limit:
            return
        oldest_first = sorted((run for run in self if not run.dead), key=_start)
        for _, same in itertools.groupby(oldest_first, key=_start):
            for run in sorted(same, key=_events_then_positions):
                if not run.dead and self._weight > self.limit:
                    run.dead = True
                    self._weight -= weight(run.size)
                    self.dropped.append(Dropped(run.path, time))
            if self.held:
                self._release()
            if self._weighed() <= self.limit:
                break
        self._sweep()

    def _weighed(self) -> int:
        runs = sum(weight(run.size) for run in self if not run.dead)
        self._weight = runs + sum(weight(match.size) for match in self.held)
        return self._weight


def _start(run: PartialMatch) -> int:
    return run.start


def _events_then_positions(run: PartialMatch) -> tuple[list[int], list[int]]:
    steps = steps_of(run.path)
    return [event for event, _ in steps], [position for _, position in steps]


def _order(match: Match) -> tuple[object, ...]:
    return match.order


def _completion(match: Match) -> tuple[Instant, int]:
    return match.completed_at, match.completed_by
