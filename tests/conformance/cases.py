"""Conformance cases of other projects, read from a folder beside the checkout.

A file is recognized by its folder and by the fields of its cases. A case becomes a windowing, steps, and a check that
tells what is wrong with the panes of each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.runners import SECOND, Panes, Runner, Step
from tests.conformance.texts import trigger_of, windows_of
from tidewheel.errors import DefinitionError
from tidewheel.model.aggregates import collect
from tidewheel.model.aggregates import sum as total
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME, Element, Pane, Timing
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import tumbling

MILLISECOND = 1_000
UNLIMITED = END_OF_TIME
# In some of the cases a window takes elements until the watermark is past its end and the lateness. Ours takes them
# until it is there, so that a pane can say that it is the last: a lateness that is longer by the least means the same.
STRICTLY = 1
MODES = {"accumulating": "value", "discarding": "delta", "accumulating_and_retracting": "retracting"}

Check = Callable[[Panes], list[str]]


@dataclass(frozen=True)
class Case:
    """must_fail: the case is wrong on purpose, so the check must find something. otherwise: what is asked of panes that
    the check refuses, and why such an answer is right too."""

    file: str
    name: str
    windowing: Windowing
    steps: list[Step]
    check: Check
    must_fail: bool = False
    otherwise: tuple[Check, str] | None = None


@dataclass
class Verdict:
    case: Case
    complaints: list[str] = field(default_factory=list)
    another_way: str | None = None

    @property
    def passed(self) -> bool:
        return not self.complaints


def check_cases(cases: Sequence[Case], runner: Runner) -> list[Verdict]:
    """Run the cases and say what is wrong, if anything."""
    readable = [case for case in cases if case.steps]
    answers = iter(runner([(case.windowing, case.steps) for case in readable]) if readable else [])
    return [_verdict(case, next(answers) if case.steps else []) for case in cases]


def _verdict(case: Case, panes: Panes) -> Verdict:
    complaints = case.check(panes)
    if case.must_fail:
        return Verdict(case, [] if complaints else ["this case is wrong on purpose, and that was not noticed"])
    if complaints and case.otherwise is not None:
        lenient, reason = case.otherwise
        return Verdict(case, lenient(panes), reason)
    return Verdict(case, complaints)


def files_in(folder: Path, part: str) -> list[Path]:
    """The files of a part of the folder, which may also be that part itself."""
    own = folder if folder.name == part and not (folder / part).is_dir() else folder / part
    return sorted(own.glob("*.yaml"))


def load(folder: Path) -> list[Case]:
    """All cases of the folder's `dataflow`."""
    return [case for path in files_in(folder, "dataflow") for case in load_file(path)]


def load_file(path: Path) -> list[Case]:
    with path.open(encoding="utf-8") as text:
        documents = [document for document in yaml.safe_load_all(text) if document]
    return [case for document in documents for case in _read(path.name, document)]


def _read(file: str, given: dict[str, Any]) -> list[Case]:
    """The cases of a document; one that cannot be read fails, and the others are run all the same."""
    try:
        return list(_cases(file, given))
    except (DefinitionError, LookupError, NameError, SyntaxError, TypeError, ValueError) as error:
        complaint = f"it cannot be read: {type(error).__name__}: {error}"
        name = str(given.get("name", "?")) if isinstance(given, dict) else "?"
        return [Case(file, name, Windowing(tumbling("1 s"), {"value": collect("value")}), [], lambda _: [complaint])]


def _cases(file: str, given: dict[str, Any]) -> Iterable[Case]:
    if "transcript" in given:
        return [_transcript(file, given)]
    if "bundle_sizes" in given:
        return [_bundled(file, given, size) for size in given["bundle_sizes"]]
    if "rows" in given:
        return [_table(file, given)]
    if "expect" in given:
        return [_timeline(file, given)]
    if "steps" in given:
        return [_stepwise(file, given)]
    raise ValueError(f"{file}: a case of an unknown kind: {sorted(given)}")


def _element(time: int, value: Any, key: str = "k") -> Element:
    return Element(time, (key,), {"value": value})


# Transcripts: steps with the panes that must follow each ----------------------------------------------------


def _transcript(file: str, given: dict[str, Any]) -> Case:
    stamps = given.get("timestamp_combiner", "OUTPUT_AT_EOW")
    names = {"OUTPUT_AT_EOW": "end", "OUTPUT_AT_LATEST": "latest"}
    windowing = Windowing(
        windows_of(given.get("window_fn", "global"), transformed=stamps.endswith("TRANSFORMED")),
        {"value": collect("value")},
        trigger=trigger_of(given.get("trigger_fn", "Default")),
        mode=MODES[given.get("accumulation_mode", "accumulating")],
        lateness=given.get("allowed_lateness", 0) * SECOND + STRICTLY,
        timestamp=names.get(stamps, "earliest"),
        allow_loss=True,
    )
    steps: list[Step] = []
    expected: list[list[dict[str, Any]]] = []
    clock = 0
    for entry in given["transcript"]:
        ((kind, what),) = entry.items()
        if kind == "expect":
            expected[-1].extend(what)
            continue
        if kind == "state":
            continue
        clock += what * SECOND if kind == "clock" else 0
        elements = tuple(_element(value * SECOND, value) for value in what) if kind == "input" else ()
        steps.append(Step(elements, what * SECOND if kind == "watermark" else None, clock))
        expected.append([])

    def check(panes: Panes) -> list[str]:
        complaints: list[str] = []
        not_early: Counter[Any] = Counter()
        for number, (came, wanted) in enumerate(zip(panes, expected, strict=True)):
            got = [_transcribed(pane, not_early) for pane in came]
            complaints += _match(f"step {number}", wanted, got)
        return complaints

    return Case(file, given["name"], windowing, steps, check, must_fail="error" in given)


def _transcribed(pane: Pane, not_early: Counter[Any]) -> dict[str, Any]:
    """A pane in the words of the transcripts."""
    if pane.timing != Timing.EARLY:
        not_early[pane.key, pane.window] += 1
    return {
        "window": [pane.window.start // SECOND, (pane.window.end - 1) // SECOND],
        "values": sorted(pane.values["value"]),
        "timestamp": pane.event_time // SECOND,
        "early": pane.timing == Timing.EARLY,
        "late": pane.timing == Timing.LATE,
        "final": pane.last,
        "index": pane.index,
        "nonspeculative_index": not_early[pane.key, pane.window] - 1,
    }


def _match(where: str, wanted: list[dict[str, Any]], got: list[dict[str, Any]]) -> list[str]:
    """Each wanted pane must be there, with at least its fields, and no others."""
    left = list(got)
    complaints = []
    for one in wanted:
        fields = {name: sorted(value) if name == "values" else value for name, value in one.items()}
        found = next((pane for pane in left if fields == {name: pane.get(name) for name in fields}), None)
        if found is None:
            complaints.append(f"{where}: expected {one}, got {left}")
        else:
            left.remove(found)
    return complaints + [f"{where}: expected nothing more, got {pane}" for pane in left]


# Bundled data: the sets of values in the panes of each window -----------------------------------------------


def _bundled(file: str, given: dict[str, Any], size: int) -> Case:
    windowing = Windowing(
        windows_of(given["window"]),
        {"value": collect("value")},
        trigger=trigger_of(given["trigger"]),
        mode=MODES[given["accumulation"]],
        lateness=UNLIMITED,
        allow_loss=True,
    )
    steps = [Step(bundle) for bundle in _bundles(given["data"], size)]
    end = END_OF_TIME - 1  # everything was seen, yet nothing closes
    steps.append(Step(watermark=end))
    steps += [Step(bundle, watermark=end) for bundle in _bundles(given["late_data"], size)]
    wanted = {tuple(entry["window"]): [sorted(pane) for pane in entry["panes"]] for entry in given["expected_panes"]}

    def check(panes: Panes) -> list[str]:
        got: dict[tuple[int, int], list[list[str]]] = {}
        for pane in (pane for came in panes for pane in came):
            window = (pane.window.start // SECOND, pane.window.end // SECOND)
            got.setdefault(window, []).append(sorted(set(pane.values["value"])))
        return [] if got == wanted else [f"expected {wanted}, got {got}"]

    return Case(file, f"{given['name']} by {size}", windowing, steps, check)


def _bundles(data: list[tuple[int, str]], size: int) -> Iterator[tuple[Element, ...]]:
    ordered = data if size > 0 else data[::-1]
    for start in range(0, len(ordered), abs(size)):
        yield tuple(_element(time * SECOND, value) for time, value in ordered[start : start + abs(size)])


# Tables: does the trigger fire after each row ---------------------------------------------------------------


def _table(file: str, given: dict[str, Any]) -> Case:
    """Rows by the clock alone are checked first, then an element arrives. Where the case's own runner gives the pane
    for the watermark apart from the trigger, that pane is not asked for."""
    size = 1_000 * SECOND
    # Where elements and clock go together, the case's runner arms such a trigger by its firing, not by an element.
    again_at_once = any("clock_ms" in row and "new_elements" in row for row in given["rows"])
    windowing = Windowing(
        tumbling(f"{size} us"),
        {"value": collect("value")},
        trigger=trigger_of(given["trigger"], again_at_once=again_at_once),
        lateness=UNLIMITED,
        allow_loss=True,
    )
    steps: list[Step] = []
    asserted: dict[int, bool] = {}
    start, over = 0, False

    def bundle(count: int) -> tuple[Element, ...]:
        return tuple(_element(start, "x") for _ in range(count))

    for row in given["rows"]:
        clock = row.get("clock_ms", 0) * MILLISECOND
        ends = row.get("end_of_window", False) and not over
        if ends and "Prism convention" in given.get("note", ""):
            steps.append(Step(watermark=start + size))
            ends, over = False, True
        watermark = start + size if ends else None
        over = over or ends
        asserted[len(steps)] = row["fire"]
        steps.append(Step(bundle(row.get("new_elements", 0)), watermark, clock))
        if "new_elements" not in row:
            if ends:
                start, over = start + size, False
            else:
                steps.append(Step(bundle(1), None, clock))

    def check(panes: Panes) -> list[str]:
        got = "".join("T" if panes[number] else "F" for number in asserted)
        wanted = "".join("T" if fire else "F" for fire in asserted.values())
        return [] if got == wanted else [f"expected {wanted}, got {got}"]

    return Case(file, given["name"], windowing, steps, check)


# Timelines: all panes of the whole run ----------------------------------------------------------------------


def _timeline(file: str, given: dict[str, Any]) -> Case:
    windowing = Windowing(
        windows_of(given["window"]),
        {"value": total("value")},
        trigger=trigger_of(given["trigger"]),
        mode=MODES[given["accumulation"]],
        lateness=given["allowed_lateness"] * SECOND,
        allow_loss=True,
    )
    steps: list[Step] = []
    clock = 0
    entries = list(given["steps"])
    for place, entry in enumerate(entries):
        if "clock" in entry:
            clock = entry["clock"] * SECOND
            if place + 1 < len(entries) and "input" in entries[place + 1]:
                continue  # what arrives at a clock is a step with it
        mark = entry.get("watermark")
        elements = tuple(_element(one["ts"] * SECOND, one["value"], one["key"]) for one in entry.get("input", []))
        watermark = END_OF_TIME if mark == "max" else None if mark is None else mark * SECOND
        steps.append(Step(elements, watermark, clock))
    wanted = [_bounds_as_text(pane) for pane in given["expect"]]

    def check(panes: Panes) -> list[str]:
        return _match("the run", wanted, _reported(panes))

    def lenient(panes: Panes) -> list[str]:
        got = _reported(panes)
        missing = [pane for pane in wanted if pane["timing"] == "EARLY" and pane not in got]
        results = [(pane["window"], pane["sum"]) for pane in wanted]
        wrong = [pane for pane in got if (pane["window"], pane["sum"]) not in results]
        return [f"expected {pane}, got {got}" for pane in missing] + [f"nobody expects {pane}" for pane in wrong]

    otherwise = None
    if "closing behaviour" in given.get("note", ""):
        reason = (
            "all early panes of the case are there and no other results; but when a window closes, only elements that "
            "no pane has shown yet give another pane, and a processing-time trigger that is due first shows them early"
        )
        otherwise = (lenient, reason)
    return Case(file, given["name"], windowing, steps, check, otherwise=otherwise)


def _reported(panes: Panes) -> list[dict[str, Any]]:
    """The panes of a run in the words of the timelines."""
    on_time: Counter[Any] = Counter()
    reported = []
    for pane in (pane for came in panes for pane in came):
        early = pane.timing == Timing.EARLY
        on_time[pane.key, pane.window] += not early
        reported.append(
            {
                "window": f"{_instant(pane.window.start)} {_instant(pane.window.end)}",
                "key": pane.key[0],
                "sum": pane.values["value"],
                "timestamp": _instant(pane.event_time),
                "timing": pane.timing.value,
                "index": pane.index,
                "on_time_index": None if early else on_time[pane.key, pane.window] - 1,
                "first": pane.first,
                "last": pane.last,
            }
        )
    return reported


def _instant(time: int) -> str:
    if time >= END_OF_TIME - 1:
        return "end"
    return "start" if time == START_OF_TIME else str(time // SECOND)


def _bounds_as_text(pane: dict[str, Any]) -> dict[str, Any]:
    def text(value: Any) -> str:
        return "end" if str(value).lower() == "end_of_global_window" else str(value)

    window = pane["window"]
    bounds = "start end" if window == "global" else " ".join(text(bound) for bound in window)
    return {**pane, "window": bounds, "timestamp": text(pane["timestamp"])}


# Steps with values, with the state that must be there, or with the windows of an element --------------------


def _stepwise(file: str, given: dict[str, Any]) -> Case:
    """State is looked at by a pane for each bundle; the windows of an element by the panes at the end of the input."""
    looks_at_state = any("state" in step for step in given["steps"])
    looks_at_windows = any("windows" in step for step in given["steps"])
    written = given.get("trigger", "Always()" if looks_at_state else "Default")
    windowing = Windowing(
        windows_of(given["window"]),
        {"value": total("value")},
        trigger=trigger_of(written, unchanged=given.get("firing_only_updated_panes") is False),
        mode=MODES[given.get("accumulation", "accumulating")],
        lateness=given.get("allowed_lateness_ms", 0) * MILLISECOND + STRICTLY,
        allow_loss=True,
    )
    steps, wanted = [], []
    for step in given["steps"]:
        elements = tuple(_element(one["ts"] * MILLISECOND, one["value"]) for one in step.get("input", []))
        mark = step.get("watermark")
        watermark = END_OF_TIME if looks_at_windows else None if mark is None else mark * MILLISECOND
        steps.append(Step(elements, watermark, step.get("clock_ms", 0) * MILLISECOND))
        wanted.append(step)

    def check(panes: Panes) -> list[str]:
        complaints = []
        for number, (came, step) in enumerate(zip(panes, wanted, strict=True)):
            bounds = [[pane.window.start // MILLISECOND, pane.window.end // MILLISECOND] for pane in came]
            signed = [-pane.values["value"] if pane.retraction else pane.values["value"] for pane in came]
            state = {f"[{start},{end})": value for (start, end), value in zip(bounds, signed, strict=True)}
            got = {"expect": signed, "state": state, "windows": bounds}
            complaints += [
                f"step {number}: expected {name} {step[name]}, got {got[name]}"
                for name in got
                if name in step and step[name] != got[name]
            ]
        return complaints

    return Case(file, given["name"], windowing, steps, check)
