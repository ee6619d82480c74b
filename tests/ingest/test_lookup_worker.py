"""The lookup worker on a log, with providers in this process."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.support.ingest_support import eventually
from tidewheel.errors import DamagedBlockError, DefinitionError, FencedError
from tidewheel.ingest.lookup import Limits, LookupWorker, ProviderError
from tidewheel.transport.events import codec
from tidewheel.transport.events.converter import Converter
from tidewheel.transport.events.event_pb2 import Event, LookupOutcome
from tidewheel.transport.log.log_types import Retention, records
from tidewheel_transit.transit_pb2 import VehiclePosition

S = 1_000_000
TOPIC = "input.vehicle-position"
DEPOT = tw.Lookup("depot", keys={"operator": pl.Int32, "vehicle": pl.Int32}, returns={"depot": pl.String})


def put(log, vehicles, *, at=0, topic=TOPIC):
    """A position of each vehicle, at this second."""
    numbers = np.array(list(vehicles))
    frame = pl.DataFrame({"mode": ["bus"] * len(numbers), "operator": numbers % 3, "vehicle": numbers})
    times = pa.array(np.full(len(numbers), at * S))
    log.append(topic, records(codec.encode_columns(VehiclePosition, frame, event_time=times), event_times=times))


class Depots:
    """Answers at once, but for vehicles that it does not know or cannot tell."""

    def __init__(self, *, unknown=(), broken=()):
        self.asked = []
        self.unknown, self.broken = set(unknown), set(broken)

    async def ask(self, key):
        self.asked.append(key[1])
        if key[1] in self.broken:
            raise ProviderError("broken", again=False, healthy=True)
        return None if key[1] in self.unknown else {"depot": f"depot {key[1]}"}


def worker(log, provider, *, clock=None, skip_damaged=False, **limits):
    options = {"skip_damaged": skip_damaged} if clock is None else {"clock": clock}
    return LookupWorker(log, DEPOT, provider, topics=TOPIC, type=VehiclePosition, limits=Limits(**limits), **options)


def outcomes(log):
    """Of each outcome: vehicle, answer or reason, event time in seconds."""
    found = []
    for batch in log.read(DEPOT.topic, 0, 0):
        for value in batch.records.column("value").to_pylist():
            event = codec.decode(value)
            message = codec.unpack(event)
            assert isinstance(message, LookupOutcome)
            said = DEPOT.read_answer(message.answer)["depot"] if message.answer else message.reason
            found.append((DEPOT.read_key(message.key)[1], said, event.event_time.seconds))
    return found


def test_each_key_is_asked_once_and_its_outcome_written_down(log):
    for second in range(3):
        put(log, [1, 2, 3, 4], at=second)
    provider = Depots(unknown=[3], broken=[4])
    report = worker(log, provider).run(until_idle=True)
    assert sorted(provider.asked) == [1, 2, 3, 4]
    assert sorted(outcomes(log)) == [
        (1, "depot 1", 2), (2, "depot 2", 2), (3, "the service knows no answer", 2), (4, "broken", 2)
    ]  # fmt: skip
    assert (report.events, report.settled, report.answered, report.unknown) == (12, 4, 2, 1)
    assert (dict(report.failed), report.open) == ({"broken": 1}, 0)


def test_the_next_worker_goes_on_where_the_last_one_stopped_and_asks_nothing_twice(log):
    put(log, range(10))
    worker(log, Depots()).run(until_idle=True)
    put(log, range(5, 15), at=1)
    provider = Depots()
    report = worker(log, provider).run(until_idle=True)
    assert sorted(provider.asked) == [10, 11, 12, 13, 14]
    assert report.events == 10, "what was settled is not read again"
    assert len(outcomes(log)) == 15


def test_after_a_crash_events_are_read_again_but_answers_that_are_written_are_not_asked_again(log):
    put(log, range(10))
    worker(log, Depots()).run(until_idle=True)
    log.forget(f"lookup.{DEPOT.name}")  # as if it had been killed before it could note how far it was
    provider = Depots()
    report = worker(log, provider).run(until_idle=True)
    assert (provider.asked, report.events) == ([], 10)


def test_what_retention_took_while_nobody_asked_is_counted_and_the_rest_asked(log):
    put(log, range(10))
    worker(log, Depots()).run(until_idle=True)
    for second in (1, 2, 3):
        put(log, [10 * second, 10 * second + 1], at=second)
    log.create_topic(TOPIC, retention=Retention(size=0))
    log.maintain()
    provider = Depots()
    report = worker(log, provider).run(until_idle=True)
    assert (sorted(provider.asked), report.events, report.lost) == ([30, 31], 2, 4)


def test_the_limits_that_a_user_gave_the_topic_of_outcomes_stay(log):
    put(log, [1])
    worker(log, Depots()).run(until_idle=True)
    assert log.topic_info(DEPOT.topic).compact
    log.create_topic(DEPOT.topic, retention=Retention(age=10**15), compact=True)
    put(log, [2])
    worker(log, Depots()).run(until_idle=True)
    assert log.topic_info(DEPOT.topic).retention == Retention(age=10**15)


def test_a_topic_that_comes_while_requests_are_open_is_not_read_again(log):
    asked = threading.Event()

    class Silent:
        async def ask(self, key):
            asked.set()
            await asyncio.sleep(3_600)

    put(log, [1])
    patient = Limits(timeout="60 s", attempt_timeout="60 s")
    two = LookupWorker(log, DEPOT, Silent(), topics=[TOPIC, "input.other"], type=VehiclePosition, limits=patient)
    thread = threading.Thread(target=two.run)
    thread.start()
    assert asked.wait(30)
    put(log, [1, 1, 1], at=1, topic="input.other")
    eventually(lambda: two.report.events == 4, "the new topic is read")
    two.stop()
    thread.join(30)
    assert log.committed(f"lookup.{DEPOT.name}") == {(TOPIC, 0): 0, ("input.other", 0): 3}


def test_a_failure_is_tried_again_when_its_time_is_over_and_an_event_needs_it(log):
    now = [0]
    put(log, [1, 2])
    worker(log, Depots(broken=[1]), clock=lambda: now[0], retry_failed="30 s").run(until_idle=True)
    now[0] = 29 * S
    put(log, [1, 2], at=1)
    provider = Depots()
    worker(log, provider, clock=lambda: now[0], retry_failed="30 s").run(until_idle=True)
    assert provider.asked == []
    now[0] = 30 * S
    put(log, [1, 2], at=2)
    worker(log, provider, clock=lambda: now[0], retry_failed="30 s").run(until_idle=True)
    assert provider.asked == [1]
    assert outcomes(log)[-1] == (1, "depot 1", 2)


def test_answers_are_asked_for_again_when_they_are_too_old_or_were_forgotten_for_want_of_room(log):
    now, provider = [0], Depots()

    def asked(vehicles, **limits):
        put(log, vehicles)
        before = len(provider.asked)
        worker(log, provider, clock=lambda: now[0], **limits).run(until_idle=True)
        return sorted(provider.asked[before:])

    assert asked([1, 2, 3, 4], cache_age="1 h") == [1, 2, 3, 4]
    now[0] = 3_599 * S
    assert asked([1, 2, 3, 4], cache_age="1 h") == []
    assert asked([1, 2, 3, 4], cache_age="1 h", cache_size=3) != []
    now[0] = 7_199 * S
    assert asked([1, 2, 3, 4], cache_age="1 h") == [1, 2, 3, 4]
    assert {said for _, said, _ in outcomes(log)} == {f"depot {vehicle}" for vehicle in (1, 2, 3, 4)}


def test_answers_and_failures_of_a_key_both_survive_compaction(log):
    now = [0]
    for broken, at in (([], 0), ([1], 1)):
        put(log, [1], at=at)
        worker(log, Depots(broken=broken), clock=lambda: now[0], cache_age="1 h").run(until_idle=True)
        now[0] += 3_600 * S
    put(log, [2], at=2)
    worker(log, Depots(), clock=lambda: now[0]).run(until_idle=True)
    log.maintain()
    assert {(vehicle, said) for vehicle, said, _ in outcomes(log)} == {
        (1, "depot 1"), (1, "broken"), (2, "depot 2")
    }  # fmt: skip


@pytest.mark.parametrize("most", [1, 7])
def test_no_more_requests_are_made_at_a_time_than_allowed(log, most):
    class Counting:
        running = highest = 0

        async def ask(self, key):
            self.running += 1
            self.highest = max(self.highest, self.running)
            for _ in range(5):
                await asyncio.sleep(0)
            self.running -= 1
            return {"depot": "north"}

    put(log, range(40))
    provider = Counting()
    assert worker(log, provider, concurrency=most).run(until_idle=True).answered == 40
    assert provider.highest == most


def test_events_are_not_read_while_too_many_requests_are_open(log, monkeypatch):
    monkeypatch.setattr("tidewheel.ingest.lookup.worker._READ_AT_ONCE", 6)
    opened = []

    class Slow:
        async def ask(self, key):
            opened.append(made.report.open)
            await asyncio.sleep(0.02)  # meanwhile all could be read
            return {"depot": "north"}

    put(log, range(60))
    made = worker(log, Slow(), concurrency=2, waiting=5)
    assert made.run(until_idle=True).answered == 60
    assert max(opened) < 5 + 6


def test_a_provider_with_a_fault_of_its_own_stops_nobody(log):
    class Faulty:
        async def ask(self, key):
            if key[1] == 1:
                raise KeyError("oops")
            return {"depot": "north"}

    put(log, [1, 2, 3])
    report = worker(log, Faulty(), attempts=2, backoff="1 ms").run(until_idle=True)
    assert report.answered == 2
    assert dict(report.failed) == {"KeyError: 'oops'": 1}


def test_of_two_workers_the_newer_one_goes_on(log):
    entered, release, failures = threading.Event(), threading.Event(), []

    class Held:
        async def ask(self, key):
            entered.set()
            while not release.is_set():
                await asyncio.sleep(0.001)  # looks at a condition
            return {"depot": "old"}

    def old():
        try:
            worker(log, Held()).run(until_idle=True)
        except FencedError as error:
            failures.append(error)

    put(log, [1])
    thread = threading.Thread(target=old)
    thread.start()
    entered.wait()
    assert worker(log, Depots()).run(until_idle=True).answered == 1
    release.set()
    thread.join()
    assert len(failures) == 1
    assert outcomes(log) == [(1, "depot 1", 0)]


def test_stop_leaves_open_requests_to_the_next_worker(log):
    class Silent:
        async def ask(self, key):
            await asyncio.Event().wait()

    put(log, [1, 2])
    made = worker(log, Silent())
    thread = threading.Thread(target=made.run)
    thread.start()
    while made.report.open < 2:
        time.sleep(0.001)  # looks at a condition
    made.stop()
    thread.join()
    provider = Depots()
    worker(log, provider).run(until_idle=True)
    assert sorted(provider.asked) == [1, 2]


def test_keys_can_be_made_of_other_columns(log):
    put(log, [7])
    line = tw.Lookup("line", keys={"name": pl.String}, returns={"colour": pl.String})
    asked = []

    class Colours:
        async def ask(self, key):
            asked.append(key)
            return {"colour": "blue"}

    name = pl.format("{}/{}", "operator", "vehicle")
    LookupWorker(log, line, Colours(), topics=TOPIC, type=VehiclePosition, columns={"name": name}).run(until_idle=True)
    assert asked == [("1/7",)]


def test_what_cannot_be_asked_is_refused_when_it_is_defined(log):
    line = tw.Lookup("line", keys={"name": pl.String}, returns={"colour": pl.String})
    with pytest.raises(DefinitionError, match="VehiclePosition has no field 'name'"):
        LookupWorker(log, line, Depots(), topics=TOPIC, type=VehiclePosition)
    with pytest.raises(DefinitionError, match=r"lookups\.depot"):
        LookupWorker(log, DEPOT, Depots(), topics=DEPOT.topic, type=VehiclePosition)


def test_a_provider_that_panics_fails_its_request_and_no_other(log):
    class Panicking(Depots):
        async def ask(self, key):
            if key[1] == 2:
                Converter(Event.DESCRIPTOR)._handler.array_to_record_batch(
                    pa.array([bytes.fromhex("1affffffffffffffffff01")])
                )
            return await super().ask(key)

    put(log, [1, 2, 3])
    report = worker(log, Panicking(), attempts=1).run(until_idle=True)
    assert (report.answered, report.open, sum(report.failed.values())) == (2, 0, 1)
    assert "PanicError" in next(iter(report.failed))


def test_a_worker_whose_part_died_ends_with_what_broke_it(log, monkeypatch):
    put(log, [1])
    made = worker(log, Depots())

    async def broken(key):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(made._attempts, "ask", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):  # not a request that stays open for ever
        made.run(until_idle=True)


def test_a_worker_goes_on_without_what_is_damaged_if_it_is_told_to(log):
    put(log, [1])
    put(log, [2])
    put(log, [3])
    connection = sqlite3.connect(log.address)
    connection.execute("UPDATE payload SET data = zeroblob(length(data)) WHERE id = 2")
    connection.commit()
    connection.close()
    with pytest.raises(DamagedBlockError, match="offsets 1 to 1 is damaged"):
        worker(log, Depots()).run(until_idle=True)
    provider = Depots()
    report = worker(log, provider, skip_damaged=True).run(until_idle=True)
    assert sorted(provider.asked) == [1, 3]
    assert (report.answered, report.damaged) == (2, 1)
    (letter,) = [
        codec.unpack(codec.decode(value))
        for batch in log.read("dead.lookup.depot", 0, 0)
        for value in batch.records.column("value").to_pylist()
    ]
    assert (letter.topic, letter.count) == (TOPIC, 1)
