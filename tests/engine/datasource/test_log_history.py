"""A checkpoint goes on only with the log that it was made on, not with an older copy that has gone on without it."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest

from tests.engine.engine_data import positions
from tidewheel.engine.datasource.batch_planner import first_offset, plan_batch, split
from tidewheel.engine.datasource.offset import Offset
from tidewheel.engine.jobs.archive import Archiver
from tidewheel.errors import CheckpointError
from tidewheel.model import watermarks
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.open_log import open_log

OLDER = "is older than the checkpoint"


def plan(log, before, **options):
    strategy = watermarks.bounded("1 s", future=None)
    after = plan_batch(log, {"a": strategy}, before, limit=None, clock=10, tick=0, **options)
    return Offset.from_json(json.loads(json.dumps(after.to_json())))


def begin(log):
    return first_offset(log, ["a"], "earliest", clock=0)


def append(log, *counts, first=0):
    for count in counts:
        log.append("a", positions(range(first, first + count)))
        first += count


def copy(log, target):
    """A log as a backup has it."""
    source = sqlite3.connect(log.address)
    backup = sqlite3.connect(target)
    source.backup(backup)
    backup.close()
    source.close()
    return open_log(target)


@pytest.fixture
def older(log, tmp_path):
    """A log from before the last 40 events of the other."""
    append(log, 30, 30)
    with copy(log, tmp_path / "backup.tw") as found:
        append(log, 40, first=60)
        yield found


def test_a_log_that_ends_before_the_position_is_refused(log, older):
    done = plan(log, begin(log))
    message = rf"{OLDER}.*'a' partition 0 was read up to offset 100 and ends at 60, so that 40 events.*Restore"
    for until in (None, {("a", 0): 60}):
        with pytest.raises(CheckpointError, match=message):
            plan(older, done, until=until)
    with pytest.raises(CheckpointError, match=message):
        split(older, begin(log), done, tasks=1, worth=1)


@pytest.mark.parametrize("counts", [(40,), (10, 30), (70,), (10, 70), (40, 40)], ids=str)
def test_a_log_that_has_gone_on_beyond_the_position_is_refused(log, older, counts):
    done = plan(log, begin(log))
    append(older, *counts, first=60)
    message = rf"{OLDER}.*gone on since: 'a' partition 0 was read up to offset 100.*other events before that"
    with pytest.raises(CheckpointError, match=message):
        plan(older, done)
    with pytest.raises(CheckpointError, match=message):
        split(older, begin(log), done, tasks=1, worth=1)


def test_the_number_of_events_that_would_be_passed_over_is_reported_where_it_is_known(log, older):
    done = plan(log, begin(log))
    append(older, 70, first=60)
    with pytest.raises(CheckpointError, match="at least 40 of them came later"):
        plan(older, Offset.from_json({**done.to_json(), "clock": log.topic_info("a").last_append}))


def test_a_position_that_both_have_in_common_is_good_in_both(log, older):
    middle = plan(log, begin(log), until={("a", 0): 60})
    append(older, 5, first=60)
    assert plan(older, middle).positions == {("a", 0): 65}
    assert plan(log, middle).positions == {("a", 0): 100}


def test_the_same_log_is_accepted_whatever_maintenance_takes_away(log):
    log.create_topic("a", compact=True)
    done = [begin(log)]
    for keys in ([b"a", b"b", b"c"] * 10, [b"a"] * 10, [b"b"] * 10, [b"a"] * 10, [b"c"] * 10, [b"d"] * 10):
        log.append("a", records([b"x"] * len(keys), keys=keys))
        done.append(plan(log, done[-1]))
    log.maintain()
    assert log.topic_info("a").count == 13  # the newest block is left as it is, and of others only the last of each key
    for offset in done:  # of some of them it is not known any more what lay before
        assert plan(log, offset).positions == {("a", 0): 80}
    log.create_topic("a", retention=Retention(age=0))
    log.maintain()
    assert plan(log, done[-2]).positions == {("a", 0): 80}
    assert plan(log, done[-2]).fingerprints == done[-1].fingerprints


def test_offsets_from_before_there_were_fingerprints_are_accepted(log):
    append(log, 30)
    old = plan(log, begin(log)).to_json()
    del old["fingerprints"]
    append(log, 10, first=30)
    after = plan(log, Offset.from_json(old))
    assert after.positions == {("a", 0): 40}
    assert after.fingerprints


def test_a_copy_without_its_journal_is_refused(tmp_path):
    with open_log(tmp_path / "city.tw") as log:
        append(log, 30)  # closing it moves the journal into the file
    with open_log(tmp_path / "city.tw") as log:
        append(log, 30, first=30)
        done = plan(log, begin(log))
        shutil.copy(log.address, tmp_path / "copy.tw")
        with open_log(tmp_path / "copy.tw") as other:
            with pytest.raises(CheckpointError, match=rf"{OLDER}.*copied without its journal.*ends at 30"):
                plan(other, done)
            append(other, 50, first=30)
            with pytest.raises(CheckpointError, match=rf"{OLDER}.*copied without its journal.*gone on since"):
                plan(other, done)


def test_an_archive_is_not_continued_from_an_older_log(log, older, tmp_path):
    with Archiver.open(log, tmp_path / "archive", ["a"]) as archiver:
        assert archiver.step() == 100
    with (
        pytest.raises(CheckpointError, match=r"older than its archive.*ends at 60"),
        Archiver.open(older, tmp_path / "archive", ["a"]) as archiver,
    ):
        archiver.step()
    append(older, 50, first=60)
    with (
        pytest.raises(CheckpointError, match=r"older than its archive.*gone on since.*another folder"),
        Archiver.open(older, tmp_path / "archive", ["a"]) as archiver,
    ):
        archiver.step()
