"""A query in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel.engine.each_row import EachRow
from tidewheel.engine.flow import RowOp, Stage
from tidewheel.engine.input import FrameInput, LogInput
from tidewheel.engine.looked_up import LookedUp
from tidewheel.engine.matched import Matched
from tidewheel.engine.sliced import can_slice
from tidewheel.engine.window_columns import slice_length
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.process import Process
from tidewheel.model.repeats import Repeats
from tidewheel.model.time import Duration, format_duration
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Count, Session, Sliding

__all__ = ["explain"]

_BEHIND = "Late: rows behind the watermark go to the output late, with late_reason and late_by."


def explain(source: LogInput | FrameInput, stages: Sequence[Stage], after: Sequence[RowOp] = ()) -> str:
    """What will come out when, what is kept for how long, and how it will run."""
    lines = [f"Reads {source!r}.", f"Time: {source.time}; watermark {source.watermark!r}."]
    for number, stage in enumerate(stages, start=1):
        title = f"Stage {number}" if len(stages) > 1 else "Then"
        lines.append(f"{title}, {_about(stage)}:")
        lines += [f"  {line}" for line in _body(stage.what)]
        if number < len(stages) and isinstance(stage.what, Windowing) and _shows_again(stage.what):
            lines.append(
                "  Note: the next stage sees every result of a window, also those that others replace; use "
                'accumulate("retracting") or accumulate("delta") to have it count each row once.'
            )
    if after:
        lines.append(f"Of each result: {'; '.join(map(repr, after))}.")
    lines.append(_how(source, stages))
    return "\n".join(lines)


def _shows_again(spec: Windowing) -> bool:
    """Can a window show the same rows in several results, without taking any back?"""
    again = spec.trigger.fires_early or (spec.lateness > 0 and spec.trigger.fires_late)
    return spec.mode == "value" and again


def _about(stage: Stage) -> str:
    made = [repr(op) for op in stage.ops]
    after = f", after {'; '.join(made)}" if made else ""
    return (f"for each {', '.join(stage.keys)}" if stage.keys else "over all rows") + after


def _body(what: Windowing | Process | Matched | Repeats | EachRow | LookedUp) -> list[str]:
    if isinstance(what, Windowing):
        return _windows(what)
    if isinstance(what, Repeats):
        return _repeats(what)
    if isinstance(what, EachRow):
        return ["What: every row is a result.", "When: in the batch that reads it; none is late.", "Kept: nothing."]
    if isinstance(what, LookedUp):
        return what.about()
    return _process(what) if isinstance(what, Process) else _matched(what)


def _windows(spec: Windowing) -> list[str]:
    lines = [f"What: {', '.join(f'{name} = {aggregate!r}' for name, aggregate in spec.aggregates.items())}."]
    lines.append(f"Where: {spec.windows!r}.")
    if isinstance(spec.windows, Count):
        lines.append("When: once, when the watermark has passed a window's last element.")
    else:
        lines.append(f"When: {_when(spec)}")
    how = {
        "delta": "each result holds what came since the last one of its window",
        "value": "each result replaces the last one of its window",
        "retracting": "before each new result of a window the last one is taken back (retraction = true)",
    }
    lines.append(f"How: {how[spec.mode]}.")
    lines.append(f"Late: {_late(spec.lateness)}")
    lines.append(f"Kept: {_kept(spec)}")
    return lines


def _when(spec: Windowing) -> str:
    trigger = spec.trigger
    parts = [f"{trigger!r}:"]
    which = " (only the open window that ends next)" if spec.early_windows == "next" else ""
    if not trigger.fires_on_time:
        if trigger.fires_early:
            parts.append(f"results when it fires{which};")
        if trigger.finishes:
            parts.append("once it has finished, rows go to the output late;")
        parts.append(f"{'the rest' if trigger.fires_early else 'everything'} {_closing(spec.lateness)}.")
        return " ".join(parts)
    if trigger.fires_early:
        parts.append(f"early results before the watermark passes the window{which};")
    parts.append("a result in the batch in which the watermark passes the window's end;")
    if spec.lateness and trigger.fires_late:
        parts.append("later ones when late rows come.")
    else:
        parts.append("none after that.")
    return " ".join(parts)


def _closing(lateness: Duration) -> str:
    """When a window closes."""
    if lateness >= END_OF_TIME:
        return "when the input ends"
    past = f"is {format_duration(lateness)} past" if lateness else "passes"
    return f"in the batch in which the watermark {past} the window's end"


def _late(lateness: Duration) -> str:
    if lateness >= END_OF_TIME:
        return "rows are welcome however late they come."
    welcome = (
        f"rows are welcome until the watermark is {format_duration(lateness)} past their window's end; "
        if lateness
        else "rows are welcome until the watermark is past their window's end; "
    )
    return welcome + "after that they go to the output late, with late_reason and late_by."


def _kept(spec: Windowing) -> str:
    windows = spec.windows
    until = "for ever" if spec.lateness >= END_OF_TIME else f"until the watermark is {format_duration(spec.lateness)}"
    after = "" if spec.lateness >= END_OF_TIME else " past the end of the window"
    if can_slice(spec):
        assert isinstance(windows, Sliding)
        return f"one partial result for each key and slice of {format_duration(slice_length(windows))}, {until}{after}."
    if isinstance(windows, Count):
        return "the rows of windows that are not full, and how many rows each key had."
    what = "session" if isinstance(windows, Session) else "window"
    return f"one partial result for each key and {what}, {until}{after}."


def _process(process: Process) -> list[str]:
    ttl = "for ever" if process.ttl is None else f"until a key was silent for {format_duration(process.lifetime)}"
    return [
        f"What: {process.name}(events, state, clock), over each key's rows in the order of event time.",
        "When: in the batch in which the watermark passes the rows.",
        _BEHIND,
        f"Kept: rows until the watermark passes them; {', '.join(process.state) or 'nothing'} of each key, {ttl}.",
    ]


def _repeats(repeats: Repeats) -> list[str]:
    behind = "behind the watermark" + (f" by more than {format_duration(repeats.kept)}" if repeats.kept else "")
    return [
        "What: the first of equal rows; the others go to the output duplicates.",
        "When: in the batch that brings them.",
        f"Late: rows {behind} go to the output late, with late_reason and late_by.",
        f"Kept: rows, until the watermark is {format_duration(repeats.kept)} past them.",
    ]


def _matched(matched: Matched) -> list[str]:
    first, *rest = matched.about()
    return [first, *rest[:-1], _BEHIND, rest[-1]]


def _how(source: LogInput | FrameInput, stages: Sequence[Stage]) -> str:
    operators = "one state operator" if len(stages) == 1 else f"{len(stages)} state operators, one after the other"
    if isinstance(source, LogInput):
        rows = any(stage.operator().takes_rows for stage in stages[:1])
        first = "rows are" if rows else "rows are aggregated and"
        return f"Runs as one Spark query: {first} dealt to buckets inside the log's reader, one shuffle, {operators}."
    if source.frame.isStreaming:
        return (
            f"Runs as one Spark query: rows go to Python, one shuffle by bucket, {operators}. Spark's watermark is in "
            "force a batch later than it moves, so results come one batch later than from a log."
        )
    return f"Runs as one Spark job over all rows: one shuffle by bucket, then {operators}; all windows are closed."
