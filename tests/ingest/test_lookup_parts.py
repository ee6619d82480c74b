"""Cache, breaker and requests, each by itself, with a clock that is moved by hand."""

from __future__ import annotations

import asyncio

import polars as pl
import pytest

import tidewheel as tw
from tidewheel.errors import DefinitionError
from tidewheel.ingest.lookup import Limits, ProviderError
from tidewheel.ingest.lookup.attempt import BREAKER_OPEN, UNKNOWN, LookupAttempts
from tidewheel.ingest.lookup.breaker import Breaker
from tidewheel.ingest.lookup.cache import Cache

S = 1_000_000
DEPOT = tw.Lookup("depot", keys={"line": pl.String}, returns={"depot": pl.String})
NORTH = {"depot": "north"}
A = ("a",)


class Time:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now = 0.0
        self.slept = []

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class Scripted:
    """A provider with a script: it gives an answer or raises, as each step says."""

    def __init__(self, *does, time=None, takes=0.0):
        self.does = list(does)
        self.asked = 0
        self.time = time
        self.takes = takes

    async def ask(self, key):
        self.asked += 1
        if self.time is not None:
            self.time.now += self.takes
        what = self.does.pop(0) if len(self.does) > 1 else self.does[0]
        if isinstance(what, BaseException):
            raise what
        return what


def ask(provider, *, time=None, times=1, chance=0.0, **limits):
    time = time or Time()
    attempts = LookupAttempts(DEPOT, provider, Limits(**limits), clock=time, sleep=time.sleep, chance=lambda: chance)

    async def run():
        return [await attempts.ask(A) for _ in range(times)]

    return asyncio.run(run())


# Cache ----------------------------------------------------------------------------------------------------------


def test_an_outcome_is_remembered_for_as_long_as_its_kind_says():
    cache = Cache(Limits(cache_age="1 h", retry_unknown="10 min", retry_failed="30 s"))
    for key, kind, age in ((("a",), "answer", 3_600), (("u",), "unknown", 600), (("f",), "failed", 30)):
        cache.put(key, kind, now=0, seen=0)
        assert cache.is_known(key, now=age * S - 1, seen=0)
        assert not cache.is_known(key, now=age * S, seen=0), kind
        assert not cache.is_known(key, now=0, seen=0), "what was too old is forgotten"


def test_event_time_ages_it_too():
    cache = Cache(Limits(cache_age="1 h"))
    cache.put(A, "answer", now=0, seen=100 * S)
    assert cache.is_known(A, now=1, seen=3_699 * S)
    assert not cache.is_known(A, now=1, seen=3_700 * S)


def test_beyond_its_size_what_was_not_asked_for_the_longest_goes():
    cache = Cache(Limits(cache_size=3))
    for name in "abc":
        cache.put((name,), "answer", now=0, seen=0)
    assert cache.is_known(("a",), now=1, seen=0)
    cache.put(("d",), "answer", now=2, seen=0)
    assert len(cache) == 3
    assert [name for name in "abcd" if cache.is_known((name,), now=3, seen=0)] == ["a", "c", "d"]


def test_a_newer_outcome_takes_the_place_of_the_older():
    cache = Cache(Limits(retry_failed="30 s", cache_age="1 h"))
    cache.put(A, "failed", now=0, seen=0)
    cache.put(A, "answer", now=20 * S, seen=0)
    assert cache.is_known(A, now=100 * S, seen=0)


# Breaker --------------------------------------------------------------------------------------------------------


def test_it_opens_after_so_many_failures_in_a_row():
    time = Time()
    breaker = Breaker(Limits(breaker_failures=3), clock=time)
    for _ in range(2):
        breaker.failed()
    breaker.worked()
    for _ in range(2):
        breaker.failed()
    assert breaker.allows()
    breaker.failed()
    assert breaker.is_open
    assert not breaker.allows()


def test_after_a_pause_one_may_try_and_pauses_grow_until_one_works():
    time = Time()
    breaker = Breaker(Limits(breaker_failures=1, breaker_pause="5 s"), clock=time)
    breaker.failed()
    allowed = []
    for second in range(300):
        time.now = float(second)
        if breaker.allows():
            allowed.append(second)
            assert not breaker.allows(), "only one"
            breaker.failed()
    assert allowed == [5, 15, 35, 75, 135, 195, 255]
    breaker.worked()
    assert not breaker.is_open
    breaker.failed()
    time.now += 5.0
    assert breaker.allows(), "pauses are short again"


# Requests -------------------------------------------------------------------------------------------------------


def test_an_answer_is_the_outcome():
    [outcome] = ask(Scripted(NORTH))
    assert (outcome.kind, outcome.answer, outcome.attempts) == ("answer", '{"depot":"north"}', 1)


def test_that_there_is_no_answer_is_an_outcome_too_and_not_asked_again():
    provider = Scripted(None)
    [outcome] = ask(provider)
    assert (outcome.kind, outcome.reason, provider.asked) == ("unknown", UNKNOWN, 1)


def test_after_failures_it_is_asked_again_with_growing_pauses():
    time = Time()
    provider = Scripted(ProviderError("busy"), OSError("gone"), ProviderError("busy"), NORTH)
    [outcome] = ask(provider, time=time, attempts=4, backoff="100 ms")
    assert (outcome.kind, outcome.attempts) == ("answer", 4)
    assert time.slept == pytest.approx([0.1, 0.2, 0.4])


def test_chance_shortens_pauses_by_up_to_half():
    time = Time()
    ask(Scripted(ProviderError("busy")), time=time, chance=1.0, attempts=3, backoff="100 ms")
    assert time.slept == pytest.approx([0.05, 0.1])


def test_it_gives_up_after_so_many_attempts_and_says_why():
    [outcome] = ask(Scripted(ProviderError("no"), ProviderError("never")), attempts=3)
    assert (outcome.kind, outcome.reason, outcome.attempts) == ("failed", "never", 3)


def test_it_does_not_try_again_when_the_timeout_would_be_over():
    time = Time()
    [outcome] = ask(
        Scripted(ProviderError("busy"), time=time, takes=0.5), time=time, attempts=100, timeout="2 s", backoff="400 ms"
    )
    assert (outcome.kind, outcome.attempts) == ("failed", 2)
    assert time.now <= 2.0, "a third attempt would have begun after 2.2 s"


def test_it_waits_as_the_service_asks_but_not_beyond_the_timeout():
    time = Time()
    ask(Scripted(ProviderError("busy", after=1.5), NORTH), time=time)
    assert time.slept == [1.5]
    [outcome] = ask(Scripted(ProviderError("busy", after=60.0)), timeout="5 s")
    assert (outcome.reason, outcome.attempts) == ("busy", 1)


def test_a_wrong_request_is_not_repeated_and_no_fault_of_the_service():
    provider = Scripted(ProviderError("no such day", again=False, healthy=True))
    outcomes = ask(provider, times=5, breaker_failures=2)
    assert [outcome.reason for outcome in outcomes] == ["no such day"] * 5
    assert provider.asked == 5


@pytest.mark.parametrize("answer", [{"depot": 7}, {"other": "north"}, "north"])
def test_an_answer_that_makes_no_sense_is_a_failure(answer):
    [outcome] = ask(Scripted(answer), attempts=2)
    assert outcome.kind == "failed"


def test_a_provider_that_never_answers_is_given_up():
    class Silent:
        cancelled = 0

        async def ask(self, key):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                Silent.cancelled += 1
                raise

    attempts = LookupAttempts(
        DEPOT, Silent(), Limits(timeout="1 min", attempt_timeout="20 ms", attempts=2, backoff="1 ms")
    )
    outcome = asyncio.run(attempts.ask(A))
    assert (outcome.kind, outcome.reason.split(" within")[0]) == ("failed", "no answer")
    assert Silent.cancelled == outcome.attempts == 2


def test_when_the_service_fails_all_the_time_it_is_left_alone():
    time = Time()
    provider = Scripted(ProviderError("gone"))
    outcomes = ask(provider, time=time, times=10, attempts=1, breaker_failures=4, breaker_pause="5 s")
    assert provider.asked == 4
    assert [outcome.reason for outcome in outcomes] == ["gone"] * 4 + [BREAKER_OPEN] * 6
    assert {outcome.attempts for outcome in outcomes[4:]} == {0}


# Limits and definitions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency must be a whole number from 1 on, got 0"),
        ({"attempts": True}, "attempts must be a whole number"),
        ({"timeout": "0 s"}, "timeout must be greater than 0"),
        ({"concurrency": 9, "waiting": 8}, r"waiting \(8\) must be at least concurrency \(9\)"),
    ],
)
def test_limits_that_make_no_sense_are_refused(options, message):
    with pytest.raises(DefinitionError, match=message):
        Limits(**options)


@pytest.mark.parametrize(
    ("name", "keys", "returns", "message"),
    [
        ("final stop", {"a": pl.String}, {"b": pl.String}, "name is 1 to 200 letters"),
        ("x", {}, {"b": pl.String}, "keys must name at least one column"),
        ("x", {"a": pl.Date}, {"b": pl.String}, "'a' of keys is Date"),
        ("x", {"a": pl.String}, {"a": pl.String}, "of the key and of the answer"),
        ("x", {"a": pl.String}, {"event_time": pl.String}, "cannot be called 'event_time'"),
    ],
)
def test_lookups_that_make_no_sense_are_refused(name, keys, returns, message):
    with pytest.raises(DefinitionError, match=message):
        tw.Lookup(name, keys=keys, returns=returns)


def test_keys_and_answers_survive_being_text():
    lookup = tw.Lookup(
        "x", keys={"a": pl.String, "b": pl.Int32, "c": pl.Boolean}, returns={"d": pl.Float64, "e": pl.String}
    )
    key, answer = ('Mäki "2"', -7, True), {"d": 1.5, "e": None}
    assert lookup.read_key(lookup.key_text(key)) == key
    assert lookup.read_answer(lookup.answer_text(answer)) == answer
