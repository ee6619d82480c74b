"""A query in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tidewheel.engine.batch_limit import MAX_BYTES
from tidewheel.engine.each_row import EachRow
from tidewheel.engine.flow import Flow, Stage
from tidewheel.engine.halves import late_port
from tidewheel.engine.input import FrameInput, LogInput
from tidewheel.engine.looked_up import LookedUp
from tidewheel.engine.matched import Matched
from tidewheel.engine.operator import LATE
from tidewheel.engine.sliced import can_slice
from tidewheel.engine.step_text import aggregate_text, function_name, plain, step_texts
from tidewheel.engine.window_columns import slice_length
from tidewheel.model.deduplicate import DUPLICATES
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.process import Process
from tidewheel.model.repeats import Repeats
from tidewheel.model.time import Duration, format_duration
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Count, Global, Session, Sliding

__all__ = ["explain", "output_names", "source_text", "stage_lines"]

_BATCHES = (
    "Batches: as many blocks of the log as there are, up to a limit of events (max_events_per_batch) and of "
    f"bytes (max_bytes_per_batch, {MAX_BYTES >> 20} MiB unless told otherwise)."
)


def explain(source: LogInput | FrameInput, flow: Flow, outputs: Sequence[str]) -> str:
    """What will come out when, what is kept for how long, and how it will run."""
    stages = flow.stages
    lines = [f"Reads {source_text(source)}.", f"Time: {source.time}; watermark {source.watermark!r}."]
    for number, stage in enumerate(stages, start=1):
        title = f"Stage {number}" if len(stages) > 1 else "Then"
        lines.append(f"{title}, {_about(stage, source if number == 1 else None)}:")
        lines += [f"  {line}" for line in stage_lines(flow, number - 1)]
        if number < len(stages) and isinstance(stage.what, Windowing) and _shows_again(stage.what):
            lines.append(
                "  Note: the next stage sees every result of a window, also those that others replace; use "
                'accumulate("retracting") or accumulate("delta") to have it count each row once.'
            )
    if after := step_texts(flow.after):
        lines.append(f"Of each result: {'; '.join(after)}.")
    lines.append(f"Outputs: {', '.join(outputs)}.")
    lines.append(_how(source, flow))
    return "\n".join(lines)


def source_text(source: LogInput | FrameInput) -> str:
    """What is read. Where a log's file is, is nobody's business that reads this."""
    if isinstance(source, LogInput):
        return f"{', '.join(source.topics)} of the log {Path(source.log.address).name}"
    return f"a {source!r}"


def output_names(flow: Flow, depth: int) -> dict[str, str]:
    """What the outputs of a stage besides its results are called in the DataFrame and in `start`, by their own
    names."""
    stage = flow.stages[depth]
    late = {} if isinstance(stage.what, EachRow) else {LATE: late_port(depth)}
    return late | {name: flow.output(depth, name) for name in (*stage.streams, *stage.others)}


def stage_lines(flow: Flow, depth: int) -> list[str]:
    """What a stage gives, when, and what it keeps, each line with a word in front that says which of these it is."""
    return _body(flow.stages[depth].what, output_names(flow, depth))


def _shows_again(spec: Windowing) -> bool:
    """Can a window show the same rows in several results, without taking any back?"""
    again = spec.trigger.fires_early or (spec.lateness > 0 and spec.trigger.fires_late)
    return spec.mode == "value" and again


def _about(stage: Stage, source: LogInput | FrameInput | None) -> str:
    made = step_texts(stage.ops, source)
    after = f", after {'; '.join(made)}" if made else ""
    return (f"for each {', '.join(stage.keys)}" if stage.keys else "over all rows") + after


def _body(what: Windowing | Process | Matched | Repeats | EachRow | LookedUp, outputs: Mapping[str, str]) -> list[str]:
    if isinstance(what, Windowing):
        return _windows(what, outputs[LATE])
    if isinstance(what, Repeats):
        return _repeats(what, outputs)
    if isinstance(what, EachRow):
        return ["What: every row is a result.", "When: in the batch that reads it; none is late.", "Kept: nothing."]
    if isinstance(what, LookedUp):
        return what.about(outputs)
    return _process(what, outputs[LATE]) if isinstance(what, Process) else _matched(what, outputs)


def _behind(late: str) -> str:
    return f"Late: rows behind the watermark go to the output {late}, with late_reason and late_by."


def _windows(spec: Windowing, late: str) -> list[str]:
    computed = [f"{name} = {aggregate_text(aggregate)}" for name, aggregate in spec.aggregates.items()]
    lines = [f"What: {', '.join(computed)}.", f"Where: {plain(repr(spec.windows))}."]
    if isinstance(spec.windows, Count):
        return [
            *lines,
            "When: once for each window, in the batch in which the watermark passes its last row.",
            _behind(late),
            "Kept: rows, until the watermark has passed them and their windows are full; how many rows each key had, "
            "for ever.",
        ]
    lines.append(f"When: {_when(spec, late)}")
    how = {
        "delta": "each result holds what came since the last one of its window",
        "value": "each result replaces the last one of its window",
        "retracting": "before each new result of a window the last one is retracted (retraction = true)",
    }
    gone = "; when all rows of a window were retracted, so is its last result"
    if spec.mode == "value":
        gone += " (retraction = true)"
    lines.append(f"How: {how[spec.mode]}{gone if spec.weighted and spec.retracts else ''}.")
    lines.append(f"Late: {_late(spec, late)}")
    lines.append(f"Kept: {_kept(spec)}")
    return lines


def _when(spec: Windowing, late: str) -> str:
    trigger = spec.trigger
    parts = [f"{trigger!r}:"]
    which = " (only the open window that ends next)" if spec.early_windows == "next" else ""
    if not trigger.fires_on_time:
        if trigger.fires_early:
            parts.append(f"results when it fires{which};")
        if trigger.finishes:
            parts.append(f"once it has finished, rows go to the output {late};")
        parts.append(f"{'the rest' if trigger.fires_early else 'everything'} {_closing(spec)}.")
        return " ".join(parts)
    if trigger.fires_early:
        before = "before the input ends" if _endless(spec) else "before the watermark passes the window"
        parts.append(f"early results {before}{which};")
    if _endless(spec):
        parts.append("a result when the input ends.")
        return " ".join(parts)
    parts.append("a result in the batch in which the watermark passes the window's end;")
    if spec.lateness and trigger.fires_late:
        parts.append("later ones when late rows come.")
    else:
        parts.append("none after that.")
    return " ".join(parts)


def _endless(spec: Windowing) -> bool:
    """Does only the end of the input end a window?"""
    return isinstance(spec.windows, Global)


def _closing(spec: Windowing) -> str:
    """When a window closes."""
    if _endless(spec) or spec.lateness >= END_OF_TIME:
        return "when the input ends"
    return f"in the batch in which the watermark {_passes(spec.lateness)} the window's end"


def _passes(lateness: Duration) -> str:
    return f"is {format_duration(lateness)} past" if lateness else "passes"


def _late(spec: Windowing, late: str) -> str:
    if _endless(spec) or spec.lateness >= END_OF_TIME:
        return "rows are welcome however late they come."
    return (
        f"rows are welcome until the watermark {_passes(spec.lateness)} their window's end; after that they go to the "
        f"output {late}, with late_reason and late_by."
    )


def _kept(spec: Windowing) -> str:
    windows = spec.windows
    if can_slice(spec):
        assert isinstance(windows, Sliding)
        what, end = f"slice of {format_duration(slice_length(windows))}", "end of the last window that it is in"
    elif isinstance(windows, Session):
        what, end = "session", "end of the session"
    else:
        what, end = "window", "end of the window"
    if _endless(spec) or spec.lateness >= END_OF_TIME:
        until = "until the input ends"
    else:
        until = f"until the watermark {_passes(spec.lateness)} the {end}"
    shown = ", and what it showed last" if spec.retracts and not can_slice(spec) else ""
    return f"one partial result for each key and {what}{shown}, {until}."


def _process(process: Process, late: str) -> list[str]:
    about = getattr(process.function, "about", None) or f"{function_name(process.function)}(events, state, clock)"
    ttl = "for ever" if process.ttl is None else f"until a key was silent for {format_duration(process.lifetime)}"
    timers = [f"when the watermark reaches a key's {name}" for name in process.timers]
    timers += [f"when the clock reaches a key's {name}" for name in process.processing_timers]
    state = f"; {', '.join(process.state)} of each key, {ttl}" if process.state else ""
    return [
        f"What: {about}, over each key's rows in the order of event time.",
        f"When: {', and '.join(['in the batch in which the watermark passes the rows', *timers])}.",
        _corrected(process.lateness, late) if process.lateness else _behind(late),
        f"Kept: rows until the watermark passes them{state}.",
    ]


def _corrected(lateness: Duration, late: str) -> str:
    by = format_duration(lateness)
    return (
        f"Late: rows up to {by} behind the watermark change results in the batch that brings them: they are retracted "
        f"(retraction = true) and come again; later ones go to the output {late}, with late_reason and late_by."
    )


def _repeats(repeats: Repeats, outputs: Mapping[str, str]) -> list[str]:
    behind = "behind the watermark" + (f" by more than {format_duration(repeats.kept)}" if repeats.kept else "")
    return [
        f"What: the first of equal rows; the others go to the output {outputs[DUPLICATES]}.",
        "When: in the batch that brings them.",
        f"Late: rows {behind} go to the output {outputs[LATE]}, with late_reason and late_by.",
        f"Kept: rows, until the watermark {_passes(repeats.kept)} them.",
    ]


def _matched(matched: Matched, outputs: Mapping[str, str]) -> list[str]:
    *first, kept = map(plain, matched.about(outputs))
    return [*first, _behind(outputs[LATE]), kept]


def _how(source: LogInput | FrameInput, flow: Flow) -> str:
    stages = flow.stages
    many = f"{len(stages)} stages one after the other, each with a shuffle by bucket and a state operator"
    operators = "one shuffle by bucket, one state operator" if len(stages) == 1 else many
    if isinstance(source, LogInput) and len(stages) == 1 and not flow.keeps_state:
        operators = (
            "each row becomes a result inside the log's reader, without a shuffle and without state, unless it runs "
            "beside results that keep some, or as df()"
        )
        return f"Runs as one Spark query: {operators}.\n{_BATCHES}"
    if isinstance(source, LogInput):
        rows = any(stage.operator().takes_rows for stage in stages[:1])
        first = "rows are" if rows else "rows are aggregated and"
        return f"Runs as one Spark query: {first} dealt to buckets inside the log's reader; {operators}.\n{_BATCHES}"
    if source.frame.isStreaming:
        return (
            f"Runs as one Spark query: rows go to Python; {operators}. Spark's watermark is in "
            "force a batch later than it moves, so results come one batch later than from a log."
        )
    return f"Runs as one Spark job over all rows, after which time has ended: rows go to Python; {operators}."
