"""A query in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tidewheel.engine.datasource.batch_limit import MAX_BYTES
from tidewheel.engine.execution.input import DataFrameInput, LogInput
from tidewheel.engine.operators.operator import LATE
from tidewheel.engine.runtime.flow import Flow, Stage
from tidewheel.engine.runtime.stage_runner import late_output
from tidewheel.engine.streams.step_text import step_texts

__all__ = ["about_stage", "explain", "output_names", "source_text"]

_BATCHES = (
    "Batches: as many blocks of the log as there are, up to a limit of events (max_events_per_batch) and of "
    f"bytes (max_bytes_per_batch, {MAX_BYTES >> 20} MiB by default)."
)


def explain(source: LogInput | DataFrameInput, flow: Flow, outputs: Sequence[str]) -> str:
    """What will come out when, what is kept for how long, and how it will run."""
    stages = flow.stages
    lines = [f"Reads {source_text(source)}.", f"Time: {source.time}; watermark {source.watermark!r}."]
    for number, stage in enumerate(stages, start=1):
        title = f"Stage {number}" if len(stages) > 1 else "Then"
        lines.append(f"{title}, {_about(stage, source if number == 1 else None)}:")
        lines += [f"  {word}: {text}" for word, text in about_stage(flow, number - 1).items()]
        if number < len(stages) and stage.operation.note is not None:
            lines.append(f"  {stage.operation.note}")
    if after := step_texts(flow.after):
        lines.append(f"Of each result: {'; '.join(after)}.")
    lines.append(f"Outputs: {', '.join(outputs)}.")
    lines.append(_how(source, flow))
    return "\n".join(lines)


def source_text(source: LogInput | DataFrameInput) -> str:
    """Describe the source, without the log's path."""
    if isinstance(source, LogInput):
        return f"{', '.join(source.topics)} of the log {Path(source.log.address).name}"
    return f"a {source!r}"


def output_names(flow: Flow, depth: int) -> dict[str, str]:
    """What the outputs of a stage besides its results are called in the DataFrame and in `start`, by their own
    names."""
    stage = flow.stages[depth]
    late = {LATE: late_output(depth)} if stage.operation.rejects_rows else {}
    return late | {name: flow.output(depth, name) for name in stage.others}


def about_stage(flow: Flow, depth: int) -> Mapping[str, str]:
    """What a stage gives, when, and what it keeps, each by the word that says which of these it is."""
    return flow.stages[depth].operation.about(output_names(flow, depth))


def _about(stage: Stage, source: LogInput | DataFrameInput | None) -> str:
    made = step_texts(stage.ops, source)
    after = f", after {'; '.join(made)}" if made else ""
    return (f"for each {', '.join(stage.keys)}" if stage.keys else "over all rows") + after


def _how(source: LogInput | DataFrameInput, flow: Flow) -> str:
    stages = flow.stages
    many = f"{len(stages)} stages one after the other, each with a shuffle by key group and a state operator"
    operators = "one shuffle by key group, one state operator" if len(stages) == 1 else many
    if isinstance(source, LogInput) and len(stages) == 1 and not flow.keeps_state:
        operators = (
            "each row becomes a result inside the log's reader, without a shuffle and without state, unless it runs "
            "beside results that keep some, or as df()"
        )
        return f"Runs as one Spark query: {operators}.\n{_BATCHES}"
    if isinstance(source, LogInput):
        rows = any(stage.operator().takes_rows for stage in stages[:1])
        first = "rows are" if rows else "rows are aggregated and"
        place = "partitioned by key group inside the log's reader"
        return f"Runs as one Spark query: {first} {place}; {operators}.\n{_BATCHES}"
    if source.frame.isStreaming:
        return (
            f"Runs as one Spark query: rows go to Python; {operators}. Spark's watermark is in "
            "force a batch later than it moves, so results come one batch later than from a log."
        )
    return f"Runs as one Spark job over all rows, after which time has ended: rows go to Python; {operators}."
