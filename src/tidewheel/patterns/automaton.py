"""The automaton that finds a key's matches, event by event.

It follows Agrawal, Diao, Gyllstrom and Immerman, "Efficient Pattern Matching over Event Streams" (SIGMOD 2008): a
nondeterministic automaton whose runs, the partial matches, share one buffer of the events they took. There, a node of
the buffer is an event at a stage, with versioned edges to the nodes before it. Here, a node leads to exactly one before
it: runs that branch share what they took until then, a path is read without comparing versions, and an event is freed
with the last run that holds it.

A run stands at a position and has a set of open edges. An event may take some of them, each giving a new run, and close
some; time closes others. A run without open edges is over: its time ran out if time closed the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidewheel.model.time import Instant
from tidewheel.patterns.machine import NEVER, Machine, Question, Way
from tidewheel.patterns.program import FINAL
from tidewheel.patterns.run import BY_TIME, Dropped, Match, Path, Run, TimedOut, events_of
from tidewheel.patterns.skipping import Skipping

__all__ = ["Automaton"]


@dataclass
class Automaton:
    """The runs of one key. Events have rising numbers; what they satisfy is asked of the machine's conditions.

    limit: how many partial matches there may be; beyond it, those that began earliest are dropped, and told.
    """

    machine: Machine
    limit: int = 10_000
    matches: list[Match] = field(default_factory=list)
    timed_out: list[TimedOut] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    held: list[Match] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._fresh: list[Run] = []
        self._runs: dict[int, list[Run]] = {}
        self._wake: Instant = NEVER
        self._added = 0
        self._independent = self.machine.program.policy.independent

    # What happens -------------------------------------------------------------------------------------------

    def event(self, event: int, time: Instant, bits: int, starts: int = -1) -> None:
        """The next event of the key. bits: the conditions that hold for it; starts: which starts to consider."""
        if time >= self._wake and not self._independent:
            self.advance(time)  # otherwise it is enough that each run looks at the time when it is looked at
        machine = self.machine
        before, self._fresh = self._fresh, []
        for position, runs in self._runs.items():
            if runs and bits & machine.later[position]:
                self._step_all(runs, event, time, bits)
        for run in before:
            self._step(run, event, time, bits)
            if not run.dead:
                self._runs.setdefault(run.position, []).append(run)
        for number, mask in enumerate(machine.start_masks):
            if bits & mask and starts >> number & 1:
                self._take(None, machine.starts[number], event, time)
        if self.held:
            self._release()
        self._added += len(self._fresh)
        if self._added > self.limit:
            self.advance(time)
            self._added = len(self)
            if self._added > self.limit:
                self._drop(time)

    def pass_over(self, time: Instant) -> None:
        """An event came that satisfies nothing anyone asks: what waits for the next event only waits no longer."""
        if time >= self._wake:
            self.advance(time)
        died = False
        for run in self._fresh:
            run.fresh = False
            run.open &= ~self.machine.closed(run.position, time - run.last_time)
            if run.open:
                self._schedule(run)
                self._runs.setdefault(run.position, []).append(run)
            else:
                run.dead = died = True
        self._fresh = []
        if died and self.held:
            self._release()

    def advance(self, time: Instant) -> None:
        """All events before this time have come."""
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
        self._sweep()

    # What there is ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._fresh) + sum(map(len, self._runs.values()))

    @property
    def empty(self) -> bool:
        """Whether there is no partial match."""
        return not self._fresh and not any(self._runs.values())

    def __iter__(self) -> Iterator[Run]:
        for runs in self._runs.values():
            yield from runs
        yield from self._fresh

    def add(self, run: Run) -> None:
        """A run that was kept from before."""
        self._added += 1
        self._schedule(run)
        if run.fresh:
            self._fresh.append(run)
        else:
            self._runs.setdefault(run.position, []).append(run)

    # One run ------------------------------------------------------------------------------------------------

    def _step_all(self, runs: list[Run], event: int, time: Instant, bits: int) -> None:
        gone = False
        for run in runs:
            self._step(run, event, time, bits)
            gone = gone or run.dead
        if gone:
            runs[:] = [run for run in runs if not run.dead]

    def _step(self, run: Run, event: int, time: Instant, bits: int) -> None:
        machine = self.machine
        while time >= run.due:
            self._expire(run, run.due)
            if run.dead:
                return
        opened = run.open
        for way in machine.ways[run.position]:
            if not way.bit & opened:
                continue
            if way.plain:
                test = way.test
                holds = bits & test.mask and (test.function is None or test.function(event, run.taken) is True)
                if holds:
                    self._take(run, way.target, event, time)
                if way.strict or (holds and not way.any):
                    opened ^= way.bit
            elif self._closes(run, way, event, time, bits):
                opened ^= way.bit
        run.fresh = False
        if opened != run.open:
            run.open = opened
            if opened:
                self._schedule(run)
            else:
                run.dead = True

    def _closes(self, run: Run, way: Way, event: int, time: Instant, bits: int) -> bool:
        """Take the way if the event allows; say whether it is closed from now on."""

        def holds(question: Question) -> bool:
            if not bits & question.mask:
                return False
            return question.function is None or question.function(event, run.taken) is True

        if run.fresh and way.not_next and any(holds(question) for question in way.not_next):
            return True
        if way.target != FINAL and way.gap is not None and time - run.last_time >= way.gap:
            return True
        for guard, until, lifted in way.guards:
            if run.released & lifted:
                continue
            if until is not None and holds(until):
                run.released |= lifted
            elif holds(guard):
                return True
        if way.target == FINAL:
            if way.strict:
                self._complete(run.path, run.start, time, event)
                return True
            return any(holds(question) for question in way.stops)
        ended = way.until is not None and holds(way.until)
        fits = holds(way.test)
        if fits and not ended:
            self._take(run, way.target, event, time)
        return (
            way.strict
            or (fits and not way.any)
            or (ended and way.until_closes)
            or (bool(way.stops) and any(holds(question) for question in way.stops))
        )

    def _take(self, run: Run | None, target: int, event: int, time: Instant) -> None:
        machine = self.machine
        if run is None:
            path: Path = (None, event, target)
            start, start_time, taken = event, time, machine.memory.empty
        else:
            path = (run.path, event, target)
            start, start_time, taken = run.start, run.start_time, run.taken
        if machine.accepts[target]:
            self._complete(path, start, time, event)
        opened = machine.everything[target]
        if opened:
            if machine.remembers:
                taken = machine.memory.after(taken, target, event)
            new = Run(target, opened, path, start, start_time, time, taken)
            self._schedule(new)
            self._fresh.append(new)

    def _schedule(self, run: Run) -> None:
        """When time alone does something to the run."""
        due = run.start_time + self.machine.window
        wait = self.machine.wait(run.position, run.open)
        if wait < NEVER and run.last_time + wait < due:
            due = run.last_time + wait
        run.due = due
        if due < self._wake:
            self._wake = due

    def _expire(self, run: Run, at: Instant) -> None:
        machine = self.machine
        wait = machine.final_wait(run.position, run.open)
        if wait is not None:
            self._complete(run.path, run.start, at, BY_TIME)
            run.open &= ~(machine.final[run.position] | machine.outwaited(run.position, at - run.last_time))
            over = at >= run.start_time + machine.window or not run.open
            if not over:
                self._schedule(run)
                return
        elif not machine.accepts[run.position]:
            self.timed_out.append(TimedOut(run.path, at))
        run.dead = True

    def _complete(self, path: Path, start: int, time: Instant, event: int) -> None:
        match = Match(path, start, time, event)
        (self.matches if self._independent else self.held).append(match)

    def _sweep(self) -> None:
        for runs in self._runs.values():
            runs[:] = [run for run in runs if not run.dead]
        self._fresh = [run for run in self._fresh if not run.dead]
        self._wake = min((run.due for run in self), default=NEVER)

    # What matches mean for others ---------------------------------------------------------------------------

    def _release(self) -> None:
        """Give the completed matches that nothing older or better can come before."""
        policy = self.machine.program.policy
        waiting = sorted(self.held, key=lambda match: match.order)
        self.held = []
        while waiting:
            match = waiting.pop(0)
            alive = [run for run in self if not run.dead]
            if policy.after_match != "skip none" and any(run.start < match.start for run in alive):
                self.held = [match, *waiting]
                return
            if policy.select == "last":
                if any(run.start == match.start for run in alive):
                    self.held.append(match)
                    if policy.after_match != "skip none":
                        self.held += waiting
                        return
                    continue
                best = max([match, *(one for one in waiting if one.start == match.start)], key=_completion)
                same = [one for one in [match, *waiting] if one.start == match.start]
                match = next(one for one in same if _completion(one) == _completion(best))
            self.matches.append(match)
            ends = Skipping(self.machine, match)
            for run in alive:
                run.dead = ends(run.start, run.path)
            waiting = [one for one in waiting if one is not match and not ends(one.start, one.path)]
            self.held = [one for one in self.held if not ends(one.start, one.path)]
            self._sweep()

    def _drop(self, time: Instant) -> None:
        runs = sorted(self, key=lambda run: (run.start, events_of(run.path)))
        for run in runs[: len(runs) - self.limit]:
            run.dead = True
            self.dropped.append(Dropped(run.path, time))
        self._sweep()
        if self.held:
            self._release()


def _completion(match: Match) -> tuple[Instant, int]:
    return match.completed_at, match.completed_by
