"""Start one query for several results of a log."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidewheel.engine.checkpoint.batch_identity import has_written
from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.engine.datasource.backfill import SuspendedFlows
from tidewheel.engine.datasource.result_topics import refuse_others_results
from tidewheel.engine.execution.computation import C, definition_of
from tidewheel.engine.execution.map_side_reader import needs_no_state
from tidewheel.engine.execution.run_options import RunSettings
from tidewheel.engine.execution.targets import Target, check, prepared_targets, written_topics
from tidewheel.transport.log.damage import DamageCount
from tidewheel.transport.log.log import Log

if TYPE_CHECKING:
    from tidewheel.engine.execution.running_query import Run

__all__ = ["refuse_shared_topics", "start_query"]


def start_query(
    results: Mapping[C, Mapping[str, Target]], log: Log, *, checkpoint: str | Path, name: str, settings: RunSettings
) -> Run:
    """Start one query for all these results of one log, each with its outputs' targets."""
    topics = check(results, log)
    held = Checkpoint(checkpoint)
    key_groups = settings.key_groups
    if key_groups is None:  # those of another machine are as good
        key_groups = (held.purpose() or {}).get("key_groups")
    flows = {str(result.name): definition_of(result) for result in results}
    purpose = json.loads(json.dumps({"job": name, "log": log.identity, "flows": flows}))
    given = {} if key_groups is None else {"key_groups": key_groups}
    held.check({**purpose, **given}, accept_changes=settings.accept_changes)
    exclusive = refuse_shared_topics(log, held, written_topics(results), settings)
    # What is refused so far does not wait for PySpark to be imported.
    from tidewheel.engine.execution.running_query import Run, java_pid
    from tidewheel.engine.execution.shared_query import (
        SharedQuery,
        check_unbroken,
        reader_options,
        released_on_error,
        session_for,
    )
    from tidewheel.engine.execution.state_settings import check_state_store, key_group_count

    spark = session_for(log, settings)
    if not needs_no_state([result.flow() for result in results]):
        check_state_store(spark)
    number = key_group_count(spark, key_groups)
    held.acquire({**purpose, "key_groups": number}, accept_changes=settings.accept_changes)
    with released_on_error(held, name):
        check_unbroken(held, log)
        targets = prepared_targets(results, log, topics)
        held.note_helper(java_pid(spark))
        resumed = SuspendedFlows.read(held.backfill_file).resume()
        resumed.write(held.backfill_file)
        ticking = settings.clock == "wall" and any(result.flow().waits_for_clock for result in results)
        options = {
            **reader_options(held, name, settings),
            "backfillFile": str(held.backfill_file),
            "firstFile": str(held.first_file),
            "clock": settings.clock,
            "ticking": str(ticking).lower(),
        }
        damaged = DamageCount(log, name) if settings.skip_damaged else None
        shared = SharedQuery(
            spark, log, held, list(results), targets, number, name, options, settings.available_now, exclusive
        )
        query = shared.start()
    return Run(
        name,
        topics,
        log,
        query,
        held,
        restart_without_failed=shared.restart_without_failed if len(results) > 1 else None,
        live=not settings.available_now and settings.clock == "wall",
        damaged=damaged,
    )


def refuse_shared_topics(log: Log, held: Checkpoint, topics: Collection[str], settings: RunSettings) -> bool:
    """Refuse a new checkpoint whose topics hold results of another run. Returns whether they must still be empty when
    its first results are written."""
    exclusive = not settings.append_to_existing and not has_written(log, held.spark_folder)
    if exclusive:
        refuse_others_results(log, topics, held.folder)
    return exclusive
