"""A job goes on without what is damaged in the log, if it is told to, and tells what that was."""

from __future__ import annotations

import sqlite3

import pytest

from tests.engine.engine_data import positions
from tidewheel.engine.datasource.batch_planner import first_offset, plan_batch, split
from tidewheel.engine.datasource.batch_reader import read_ranges
from tidewheel.engine.datasource.options import ReadOptions
from tidewheel.engine.datasource.reader_function import ReadInfo
from tidewheel.engine.jobs.archive import Archive, Archiver
from tidewheel.engine.spark.arrow_schema import arrow_schema
from tidewheel.errors import DamagedBlockError, DefinitionError
from tidewheel.model import watermarks
from tidewheel.transport.events.codec import decode, unpack
from tidewheel.transport.log.damage import DamageCount, note_damage
from tidewheel.transport.topics.types import carried_type

TYPE = "tidewheel.transit.v1.VehiclePosition"
HEADER = "UPDATE block SET header = zeroblob(length(header)) WHERE first_offset = 100"
PAYLOAD = "UPDATE payload SET data = zeroblob(length(data)) WHERE id = 2"
STRATEGIES = {"a": watermarks.bounded("1 s", future=None)}


@pytest.fixture
def damaged(log):
    """Makes the second of three blocks of a hundred events unreadable."""

    def damage(statement):
        for first in (0, 100, 200):
            log.append("a", positions(range(first, first + 100)))
        connection = sqlite3.connect(log.address)
        connection.execute(statement)
        connection.commit()
        connection.close()
        return log

    return damage


def options(log, **given):
    return ReadOptions.of({"log": log.address, "topics": "a", "type": TYPE, "metadata": "_offset", **given})


def offsets_read(log, chosen, before, after, *, tasks=1):
    shares = split(log, before, after, tasks=tasks, worth=1, skip_damaged=chosen.skip_damaged)
    info = ReadInfo(None, None, after.clock, 0, 1)
    schema = arrow_schema(chosen.schema())
    return [
        offset
        for share in shares
        for batch in read_ranges(log, chosen, share, info, schema)
        for offset in batch.column("_offset").to_pylist()
    ]


def letters(log, topic):
    return [
        unpack(decode(value)) for batch in log.read(topic, 0, 0) for value in batch.records.column("value").to_pylist()
    ]


@pytest.mark.parametrize("damage", [HEADER, PAYLOAD], ids=["header", "payload"])
def test_a_batch_reports_it_or_goes_on_without(damaged, damage):
    log = damaged(damage)
    before = first_offset(log, ["a"], "earliest", clock=0)
    with pytest.raises(DamagedBlockError, match="'a' partition 0: the block of offsets 100 to 199 is damaged"):
        offsets_read(log, options(log), before, plan_batch(log, STRATEGIES, before, limit=None, clock=7, tick=0))

    skipping = options(log, skipDamaged="true", group="job")
    count = DamageCount(log, "job")
    after = plan_batch(log, STRATEGIES, before, limit=None, clock=7, tick=0, skip_damaged=True)
    assert after.positions == {("a", 0): 300}
    kept = [*range(100), *range(200, 300)]
    for tasks in (1, 3, 1):  # repeated with another number of tasks, it is still reported once
        assert offsets_read(log, skipping, before, after, tasks=tasks) == kept
    (letter,) = letters(log, "dead.job")
    assert (letter.source, letter.topic, letter.count, letter.raw) == ("job", "a", 100, b"")
    assert letter.reason.startswith("damaged: partition 0, offsets 100 to 199: ")
    assert count() == count() == 100


@pytest.mark.parametrize("damage", [HEADER, PAYLOAD], ids=["header", "payload"])
def test_batches_of_single_blocks_pass_over_it(damaged, damage):
    log = damaged(damage)
    offset, ends = first_offset(log, ["a"], "earliest", clock=0), []
    while True:
        after = plan_batch(log, STRATEGIES, offset, limit=10, clock=7, tick=0, skip_damaged=True)
        if after is offset:
            break
        offset = after
        ends.append(offset.positions["a", 0])
    assert ends == [100, 200, 300]


@pytest.mark.parametrize("damage", [HEADER, PAYLOAD], ids=["header", "payload"])
def test_an_archive_goes_on_without_it(damaged, damage, tmp_path):
    log = damaged(damage)
    with (
        pytest.raises(DamagedBlockError),
        Archiver.open(log, tmp_path / "archive", ["a"]) as archiver,
    ):
        archiver.step()
    with Archiver.open(log, tmp_path / "archive", ["a"], skip_damaged=True) as archiver:
        archiver.step()
        assert archiver.lag == 0
    assert Archive(tmp_path / "archive").files("a")
    assert [letter.count for letter in letters(log, "dead.archive")] == [100]


def test_the_option_needs_a_place_for_the_dead_letters(log):
    with pytest.raises(DefinitionError, match="'skipDamaged' needs the option 'group'"):
        options(log, skipDamaged="true")
    with pytest.raises(DefinitionError, match="'skipDamaged' must be true or false, got 'yes'"):
        options(log, skipDamaged="yes", group="job")


def test_letters_go_to_a_topic_that_was_made_anew(damaged):
    log = damaged(PAYLOAD)
    where = DamagedBlockError("a", 0, 100, 200, "it is missing")
    for _ in range(2):
        note_damage(log, "job", where, clock=7)
    assert len(letters(log, "dead.job")) == 1
    log.delete_topic("dead.job")
    note_damage(log, "job", where, clock=8)
    assert len(letters(log, "dead.job")) == 1


def test_the_newest_type_is_found_beside_what_is_damaged(damaged):
    assert carried_type(damaged(HEADER), "a") == TYPE
