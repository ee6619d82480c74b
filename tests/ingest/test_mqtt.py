"""MQTT against a real broker: what is published is in the log, once, whatever breaks on the way."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.ingest_support import NumberProcessor, dead_letters, eventually, number, numbers_in
from tests.support.mqtt_support import Line, Mosquitto, free_port, make_certificates, mosquitto, tls_options
from tidewheel.errors import DefinitionError, FencedError, LogError, SetupError
from tidewheel.ingest.connector import Deliver, Delivered
from tidewheel.ingest.message import Message
from tidewheel.ingest.mqtt.client import check_filters
from tidewheel.ingest.mqtt.connector import Broker, MqttConnector, MqttPublisher, Tls, _Memory, _Received
from tidewheel.ingest.pipeline import Pipeline, read_reports
from tidewheel.transport.events.event_pb2 import IngestReport
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log

DYNAMIC_SECURITY = "mosquitto_dynamic_security.so"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "city.tw") as opened:
        yield opened


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path / "broker") as running:
        yield running


class Running:
    """A connector that runs in a thread until the block ends."""

    def __init__(self, connector: MqttConnector, deliver: Deliver) -> None:
        self.stop = threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(connector, deliver), daemon=True)
        self._thread.start()

    def _run(self, connector: MqttConnector, deliver: Deliver) -> None:
        try:
            connector.run(deliver, self.stop)
        except Exception as error:
            self.error = error

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        self.stop.set()
        self._thread.join(60)
        assert self.ended, "the connector does not stop"


@contextmanager
def running(connector: MqttConnector, deliver: Deliver) -> Iterator[Running]:
    run = Running(connector, deliver)
    try:
        yield run
    finally:
        run.end()
    if run.error is not None:
        raise run.error


def connector(port: int, *subscriptions: str, **options: object) -> MqttConnector:
    return MqttConnector(
        Broker("127.0.0.1", port),
        subscriptions or NumberProcessor.subscriptions,
        client_id="reader",
        **options,  # type: ignore[arg-type]
    )


def subscribed(port: int, pipeline: Pipeline) -> None:
    """Make the session, so that from now on nothing that is published is missed."""
    with running(connector(port), pipeline):
        eventually(lambda: pipeline.state != b"", "the connector has a session")


def publish(port: int, messages: Sequence[Message]) -> None:
    with MqttPublisher(Broker("127.0.0.1", port)) as publisher:
        assert publisher.publish(messages) == len(messages)


def test_what_is_published_is_in_the_log(broker: Mosquitto, log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    subscribed(broker.port, pipeline)
    with running(connector(broker.port), pipeline):
        publish(broker.port, [number(n) for n in range(500)])
        eventually(lambda: pipeline.report().received == 500, "all arrive")
    assert numbers_in(log) == list(range(500))


def test_wildcards_choose_what_comes(broker: Mosquitto, log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    with running(connector(broker.port, "/a/+/c", "/b/#"), pipeline):
        eventually(lambda: pipeline.state != b"", "connected")
        topics = ["/a/x/c", "/a/x/d", "/a/x/c/d", "/a//c", "/b", "/b/1/2/3", "/c", "a/x/c"]
        publish(broker.port, [number(n, topic=topic) for n, topic in enumerate(topics)])
        publish(broker.port, [number(99, topic="/b/last")])
        eventually(lambda: 99 in numbers_in(log), "the last arrives")
    assert numbers_in(log) == [0, 3, 4, 5, 99]


def test_repeats_that_were_published_are_kept(broker: Mosquitto, log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    with running(connector(broker.port, batch_size=1), pipeline):
        eventually(lambda: pipeline.state != b"", "connected")
        publish(broker.port, [number(7)] * 50)
        eventually(lambda: pipeline.report().received == 50, "all arrive")
    assert numbers_in(log) == [7] * 50
    assert pipeline.report().repeated == 0


def test_any_bytes_come_through_as_they_are(broker: Mosquitto, log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    payloads = [b"", b"\x00\xff" * 10, bytes(range(256)), "ä".encode("latin-1"), b"x" * 1_000_000]
    with running(connector(broker.port), pipeline):
        eventually(lambda: pipeline.state != b"", "connected")
        publish(broker.port, [Message("numbers/ä/€", payload, 0) for payload in payloads])
        eventually(lambda: pipeline.report().received == len(payloads), "all arrive")
    assert [letter.raw for letter in dead_letters(log)] == payloads
    assert {letter.topic for letter in dead_letters(log)} == {"numbers/ä/€"}


def test_qos_0_is_taken_too(broker: Mosquitto, log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    sender = Broker("127.0.0.1", broker.port).client("sender")
    with running(connector(broker.port), pipeline):
        eventually(lambda: pipeline.state != b"", "connected")
        sender.connect("127.0.0.1", broker.port)
        sender.loop_start()
        for n in range(20):
            sender.publish("numbers/x", number(n).payload, qos=0).wait_for_publish(30)
        eventually(lambda: pipeline.report().received == 20, "all arrive")
        sender.disconnect()
        sender.loop_stop()
    assert numbers_in(log) == list(range(20))


def test_what_is_published_while_the_connector_is_away_waits(broker: Mosquitto, log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    subscribed(broker.port, pipeline)
    publish(broker.port, [number(n) for n in range(3_000)])
    with running(connector(broker.port), pipeline):
        eventually(lambda: pipeline.report().received == 3_000, "all arrive")
    assert numbers_in(log) == list(range(3_000))


def test_after_a_graceful_stop_nothing_comes_again(broker: Mosquitto, log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    subscribed(broker.port, pipeline)
    sent = threading.Thread(target=publish, args=(broker.port, [number(n) for n in range(5_000)]))
    sent.start()
    while pipeline.report().received < 5_000:
        known = pipeline.report().received
        with running(connector(broker.port, batch_size=100), pipeline):
            eventually(lambda known=known: pipeline.report().received > known, "some arrive")  # type: ignore[misc]
    sent.join()
    assert numbers_in(log) == list(range(5_000))
    assert pipeline.report().repeated == 0


def test_a_broker_that_is_not_there_is_waited_for(tmp_path: Path, log: Log, caplog: pytest.LogCaptureFixture) -> None:
    late = Mosquitto(tmp_path / "broker")
    pipeline = Pipeline(log, NumberProcessor())
    with running(connector(late.port), pipeline):
        eventually(lambda: "cannot connect" in caplog.text, "the trouble is reported")
        late.start()
        eventually(lambda: pipeline.state != b"", "connected at last")
        publish(late.port, [number(1)])
        eventually(lambda: numbers_in(log) == [1], "it arrives")
    late.stop()


def test_a_line_that_is_cut_again_and_again_costs_nothing(broker: Mosquitto, log: Log) -> None:
    chance = random.Random(5)
    line = Line(broker.port)
    pipeline = Pipeline(log, NumberProcessor())
    subscribed(broker.port, pipeline)
    cuts = 0
    sent = threading.Thread(target=publish, args=(broker.port, [number(n) for n in range(8_000)]))
    sent.start()
    with running(connector(line.port, receive_maximum=200, batch_size=50, linger="5 ms"), pipeline):
        while pipeline.report().received < 8_000:
            wanted = min(8_000, pipeline.report().received + chance.randrange(1, 1_000))
            eventually(lambda wanted=wanted: pipeline.report().received >= wanted, "more arrive")  # type: ignore[misc]
            line.cut()
            cuts += 1
        sent.join()
    line.close()
    assert numbers_in(log) == list(range(8_000))
    assert cuts >= 8
    assert pipeline.report().repeated > 0, "no packet was ever sent again: the test shows nothing"


def test_a_broker_that_lost_the_session_is_reported_and_new_messages_come(
    tmp_path: Path, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tidewheel")
    pipeline = Pipeline(log, NumberProcessor())
    with mosquitto(tmp_path / "forgetful", persistence=False) as broker, running(connector(broker.port), pipeline):
        eventually(lambda: pipeline.state != b"", "connected")
        publish(broker.port, [number(n) for n in range(10)])
        eventually(lambda: pipeline.report().received == 10, "all arrive")
        broker.restart()
        eventually(lambda: caplog.text.count(": subscribed") == 2, "subscribed again")
        assert "no longer has the session" in caplog.text
        publish(broker.port, [number(n) for n in range(10, 20)])
        eventually(lambda: 19 in numbers_in(log), "new ones arrive")
    assert numbers_in(log) == list(range(20))


def test_a_subscription_given_up_is_left(broker: Mosquitto, log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    with running(connector(broker.port, "old/#", "kept/#"), pipeline):
        eventually(lambda: pipeline.state != b"", "connected")
    before = pipeline.state
    with running(connector(broker.port, "kept/#"), pipeline):
        eventually(lambda: pipeline.state != before, "connected")
        publish(broker.port, [number(1, topic="old/a"), number(2, topic="kept/a")])
        eventually(lambda: 2 in numbers_in(log), "it arrives")
    assert numbers_in(log) == [2]


STUCK = """
import sys, threading
from tidewheel.ingest.connector import Delivered
from tidewheel.ingest.mqtt.connector import Broker, MqttConnector
from tidewheel.transport.events.event_pb2 import IngestReport
from tidewheel.transport.log.log_types import Receipt

class Stuck:
    \"\"\"A log that takes nothing until a line comes in.\"\"\"
    state = b""
    sizes = []

    def report(self):
        return IngestReport()

    def __call__(self, messages, *, repeated=0, state=None):
        if messages:
            self.sizes.append(len(messages))
            if len(self.sizes) == 1:
                print("stuck", flush=True)
                sys.stdin.readline()
        if state is not None and not self.state:
            print("connected", flush=True)
        self.state = self.state if state is None else state
        if sum(self.sizes) == 600:
            print(max(self.sizes), flush=True)
            stop.set()
        return Delivered(Receipt(0))

stop = threading.Event()
broker = Broker("127.0.0.1", int(sys.argv[1]))
MqttConnector(broker, ["numbers/#"], client_id="reader", receive_maximum=20).run(Stuck(), stop)
"""


def most_memory(process: subprocess.Popen[str]) -> int:
    """The most that it has ever had, in kB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def test_a_slow_log_holds_the_broker_back(broker: Mosquitto) -> None:
    # A process of its own: this one may have had more memory before than it would take now.
    command = [sys.executable, "-c", STUCK, str(broker.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "connected\n"
        before = most_memory(process)
        with MqttPublisher(Broker("127.0.0.1", broker.port), max_in_flight=10) as publisher:
            payload = b"x" * 200_000
            publisher.publish(Message("numbers/x", payload, 0) for _ in range(600))
        assert process.stdout.readline() == "stuck\n"
        grown = most_memory(process) - before
        assert grown < 60_000, f"{grown} kB more: 120 MB wait at the broker, they must not be here"
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert int(process.stdout.readline()) <= 20, "all have arrived, few at a time"
        assert process.wait(60) == 0


class Failing:
    """A pipeline to a log that fails for as long as it is told to; it may take what it is given all the same."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.takes = False
        self.failing = threading.Event()
        self.failures = 0

    @property
    def state(self) -> bytes:
        if self.failing.is_set() and self.failures % 3 == 0:
            self.failures += 1
            raise LogError("the disk cannot be read")
        return self._pipeline.state

    def report(self) -> IngestReport:
        return self._pipeline.report()

    def __call__(self, messages: Sequence[Message], *, repeated: int = 0, state: bytes | None = None) -> Delivered:
        if not self.failing.is_set():
            return self._pipeline(messages, repeated=repeated, state=state)
        self.failures += 1
        if self.takes:
            self._pipeline(messages, repeated=repeated, state=state)
        raise LogError("the disk is full")


@pytest.mark.parametrize("takes", [False, True], ids=["and takes nothing", "and has taken it"])
def test_a_log_that_fails_for_a_while_costs_nothing(
    takes: bool, broker: Mosquitto, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    subscribed(broker.port, pipeline)
    failing = Failing(pipeline)
    failing.takes = takes
    with running(connector(broker.port, batch_size=50, receive_maximum=200, linger="5 ms"), failing) as run:
        for first in range(0, 3_000, 1_000):
            publish(broker.port, [number(n) for n in range(first, first + 500)])
            eventually(lambda first=first: pipeline.report().received > first, "some arrive")  # type: ignore[misc]
            failing.failures = 0
            failing.failing.set()
            publish(broker.port, [number(n) for n in range(first + 500, first + 1_000)])
            eventually(lambda: failing.failures >= 4, "the log fails again and again")
            assert not run.ended
            failing.failing.clear()
        eventually(lambda: pipeline.report().received >= 3_000, "all arrive")
    assert numbers_in(log) == list(range(3_000))
    assert pipeline.report().received == 3_000
    assert "the log does not take messages: the disk is full" in caplog.text
    if takes:
        assert pipeline.report().repeated > 0, "no packet was ever sent again: the test shows nothing"


def test_a_connector_that_was_taken_over_ends(broker: Mosquitto, log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    run = Running(connector(broker.port), pipeline)
    eventually(lambda: pipeline.state != b"", "connected")
    Pipeline(log, NumberProcessor())
    publish(broker.port, [number(1)])
    eventually(lambda: run.ended, "it ends")
    assert isinstance(run.error, FencedError)


CHILD = """
import signal, sys, threading
from tests.support.ingest_support import NumberProcessor
from tidewheel.ingest.mqtt.connector import Broker, MqttConnector
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.transport.open_log import open_log

stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
print("ready", flush=True)
pipeline = Pipeline(open_log(sys.argv[1]), NumberProcessor())
MqttConnector(
    Broker("127.0.0.1", int(sys.argv[2])), NumberProcessor.subscriptions, client_id="reader",
    receive_maximum=500, batch_size=100, linger="5 ms",
).run(pipeline, stop)
"""


@pytest.mark.slow
def test_killed_clients_and_a_restarted_broker_lose_nothing_and_repeat_nothing(broker: Mosquitto, log: Log) -> None:
    chance = random.Random(7)
    total, part = 20_000, 2_000
    subscribed(broker.port, Pipeline(log, NumberProcessor()))

    def written() -> int:
        return sum(topic.count for topic in log.topics() if topic.name.startswith("input."))

    def start() -> subprocess.Popen[bytes]:
        arguments = [log.address, str(broker.port)]
        process = subprocess.Popen([sys.executable, "-c", CHILD, *arguments], cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as said:
            assert said.readline() == b"ready\n"
        return process

    kills = 0
    child = start()
    with MqttPublisher(Broker("127.0.0.1", broker.port)) as publisher:
        for first in range(0, total, part):
            publisher.publish(number(n) for n in range(first, first + part))
            wanted = min(first + part, written() + chance.randrange(1, part))
            eventually(lambda wanted=wanted: written() >= wanted, "messages arrive")  # type: ignore[misc]
            if first // part % 3 == 2:
                broker.restart()
            else:
                child.send_signal(signal.SIGKILL)
                assert child.wait() == -signal.SIGKILL
                kills += 1
                child = start()
    eventually(lambda: written() >= total, "all arrive")
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0
    assert numbers_in(log) == list(range(total))
    (report,) = read_reports(log)
    assert report.received == total
    assert kills >= 6
    assert report.repeated > 0, "no packet was ever sent again: the test shows nothing"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_tls_with_an_authority_of_ones_own(tmp_path: Path, log: Log, certificates: Path) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    with mosquitto(tmp_path / "broker", *tls_options(certificates)) as broker:
        address = Broker("127.0.0.1", broker.port, tls=Tls(ca=certificates / "ca.crt"))
        with running(MqttConnector(address, ["numbers/#"], client_id="reader"), pipeline):
            eventually(lambda: pipeline.state != b"", "connected")
            with MqttPublisher(address) as publisher:
                publisher.publish([number(1)])
            eventually(lambda: numbers_in(log) == [1], "it arrives")


@pytest.mark.parametrize("tls", ["strange", "system", "insecure"])
def test_a_broker_that_is_not_trusted_is_refused(tmp_path: Path, log: Log, certificates: Path, tls: str) -> None:
    trust = {"strange": Tls(ca=certificates / "strange.crt"), "system": Tls(), "insecure": Tls(insecure=True)}[tls]
    with mosquitto(tmp_path / "broker", *tls_options(certificates)) as broker:
        pipeline = Pipeline(log, NumberProcessor())
        run = Running(
            MqttConnector(Broker("127.0.0.1", broker.port, tls=trust), ["numbers/#"], client_id="reader"), pipeline
        )
        eventually(lambda: run.ended or pipeline.state != b"", "connected or refused")
        run.end()
    if tls == "insecure":
        assert run.error is None
    else:
        assert isinstance(run.error, SetupError)
        assert "certificate that is not trusted" in str(run.error)


def test_a_client_shows_its_certificate(tmp_path: Path, log: Log, certificates: Path) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    trust = Tls(ca=certificates / "ca.crt", certificate=certificates / "client.crt", key=certificates / "client.key")
    with mosquitto(tmp_path / "broker", *tls_options(certificates), "require_certificate true") as broker:
        address = Broker("127.0.0.1", broker.port, tls=trust)
        with running(MqttConnector(address, ["numbers/#"], client_id="reader"), pipeline):
            eventually(lambda: pipeline.state != b"", "connected")


def test_a_file_of_certificates_that_is_missing_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no-such-file\.crt"):
        MqttConnector(Broker("localhost", tls=Tls(ca=tmp_path / "no-such-file.crt")), ["a"], client_id="reader")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker that knows one user, who may read `numbers/#` only."""
    if not Path("/usr/bin/mosquitto_passwd").exists():
        pytest.skip("mosquitto_passwd is not installed")
    passwords, rights = tmp_path / "passwords", tmp_path / "rights"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "anna", "secret"], check=True)
    passwords.chmod(0o600)
    rights.write_text("user anna\ntopic readwrite numbers/#\n")
    with mosquitto(tmp_path / "broker", f"password_file {passwords}", f"acl_file {rights}") as running_broker:
        yield running_broker


def test_the_right_password_opens(guarded: Mosquitto, log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    address = Broker("127.0.0.1", guarded.port, username="anna", password="secret")
    assert "secret" not in repr(address)
    with running(MqttConnector(address, ["numbers/#"], client_id="reader"), pipeline):
        eventually(lambda: pipeline.state != b"", "connected")
        with MqttPublisher(address) as publisher:
            publisher.publish([number(1)])
        eventually(lambda: numbers_in(log) == [1], "it arrives")


@pytest.mark.parametrize("place", ["file", "environment", "address", "nowhere"])
def test_the_command_line_takes_the_password_from_where_others_do_not_see_it(
    guarded: Mosquitto, tmp_path: Path, place: str
) -> None:
    file = tmp_path / "anna.secret"
    file.write_text("secret\n")
    user = "anna:secret" if place == "address" else "anna"
    options = ["--password-file", str(file)] if place == "file" else []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWHEEL_")}
    if place == "environment":
        environment["TIDEWHEEL_MQTT_PASSWORD"] = "secret"
    command = [sys.executable, "-m", "tidewheel.cli", "record", "--mqtt", f"mqtt://{user}@127.0.0.1:{guarded.port}"]
    command += ["--subscribe", "numbers/#", "--output", str(tmp_path / "a.jsonl"), "--for", "1s", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode == 0) is (place != "nowhere"), done.stderr
    assert ("every user of this machine can see it" in " ".join(done.stderr.split())) is (place == "address")
    assert "secret" not in (done.stdout + done.stderr).replace(str(file), "")


def test_a_subscription_that_is_not_allowed_is_a_clear_error(tmp_path: Path, log: Log) -> None:
    plugins = [path for folder in ("/usr/lib", "/usr/local/lib") for path in Path(folder).rglob(f"{DYNAMIC_SECURITY}*")]
    if not plugins:
        pytest.skip("mosquitto is installed without its plugin for dynamic security, which refuses subscriptions")
    rights = tmp_path / "rights.json"
    rights.write_text('{"defaultACLAccess": {"subscribe": false}, "clients": [], "groups": [], "roles": []}')
    options = [f"plugin {plugins[0]}", f"plugin_opt_config_file {rights}", "allow_anonymous true"]
    with mosquitto(tmp_path / "broker", *options) as broker:
        run = Running(connector(broker.port), Pipeline(log, NumberProcessor()))
        eventually(lambda: run.ended, "refused")
    assert isinstance(run.error, SetupError)
    assert "does not allow to subscribe to 'numbers/#'" in str(run.error)


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_wrong_password_is_a_clear_error(guarded: Mosquitto, log: Log, password: str | None) -> None:
    address = Broker("127.0.0.1", guarded.port, username="anna" if password else None, password=password)
    run = Running(MqttConnector(address, ["numbers/#"], client_id="reader"), Pipeline(log, NumberProcessor()))
    eventually(lambda: run.ended, "refused")
    assert isinstance(run.error, SetupError)
    assert "user" in str(run.error)
    with MqttPublisher(address) as publisher, pytest.raises(SetupError, match="refused"):
        publisher.publish([number(1)])


def test_a_message_that_the_broker_refuses_is_not_published(guarded: Mosquitto) -> None:
    address = Broker("127.0.0.1", guarded.port, username="anna", password="secret")
    with MqttPublisher(address) as publisher, pytest.raises(SetupError, match=r"refused a message.*Not authorized"):
        publisher.publish([number(1, topic="letters/x")])


def test_a_broker_that_promises_less_than_it_was_asked_for_is_reported(
    tmp_path: Path, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    with mosquitto(tmp_path / "broker", "max_qos 0") as broker:
        pipeline = Pipeline(log, NumberProcessor())
        with running(connector(broker.port), pipeline):
            eventually(lambda: pipeline.state != b"", "connected")
    assert "gives 'numbers/#' with QoS 0 only: what it sends while the connection is broken is lost" in caplog.text


def test_a_publisher_without_a_broker_says_so() -> None:
    with (
        MqttPublisher(Broker("127.0.0.1", free_port()), timeout="300 ms") as publisher,
        pytest.raises(SetupError, match="is it running"),
    ):
        publisher.publish([number(1)])


def packet(key: int, *, resent: bool = False) -> _Received:
    return _Received(number(0), packet_id=key, key=key, resent=resent)


def test_memory_forgets_what_the_broker_has_confirmed() -> None:
    memory = _Memory([])
    memory.add(1, [packet(1), packet(2)])
    memory.add(2, [packet(3)])
    memory.confirm(1)
    assert sorted(memory) == [3]
    memory.confirm(2)
    assert sorted(memory) == []


def test_memory_of_earlier_connections_stays_until_new_packets_are_confirmed() -> None:
    memory = _Memory([1, 2, 3])
    memory.add(1, [packet(2, resent=True)])
    memory.confirm(1)
    assert 1 in memory
    assert 3 in memory
    memory.add(2, [packet(3, resent=True), packet(4)])
    memory.disconnected()
    assert sorted(memory) == [1, 2, 3, 4]
    memory.add(3, [packet(5)])
    memory.confirm(3)
    assert sorted(memory) == []


def test_memory_is_bounded() -> None:
    memory = _Memory(range(60_000))
    for request in range(1, 100):
        memory.add(request, [packet(request * 100_000 + n) for n in range(1_000)])
        assert len(list(memory)) <= 65_535


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a/b/c", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("+/b", "a/+", True),
        ("#", "a", True),
        ("#", "$SYS/a", False),
        ("$SYS/#", "$SYS/a", True),
        ("$share/one/a/#", "a/b", True),
        ("a/b/#", "a", False),
    ],
)
def test_overlapping_filters_are_refused(one: str, other: str, overlap: bool) -> None:
    for pair in ([one, other], [other, one]):
        if overlap:
            with pytest.raises(DefinitionError, match="overlap"):
                check_filters(pair)
        else:
            check_filters(pair)


@pytest.mark.parametrize("bad", [[], [""], ["a/#/b"], ["a#"], ["a/b+"], ["+a/b"]])
def test_filters_that_are_none_are_refused(bad: list[str]) -> None:
    with pytest.raises(DefinitionError):
        check_filters(bad)


def test_settings_that_make_no_sense_are_refused() -> None:
    good = Broker("localhost")
    for wrong in (
        lambda: Broker(""),
        lambda: Broker("localhost", 70_000),
        lambda: Broker("localhost", password="x"),
        lambda: Broker("localhost", keepalive="1 ms"),
        lambda: MqttConnector(good, ["a"], client_id=""),
        lambda: MqttConnector(good, ["a"], client_id="x", receive_maximum=0),
        lambda: MqttConnector(good, ["a"], client_id="x", batch_size=0),
        lambda: MqttPublisher(good, max_in_flight=0),
    ):
        with pytest.raises(DefinitionError):
            wrong()


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [("tidewheel.ingest.mqtt.connector", "paho", "mqtt"), ("tidewheel.ingest.http.connector", "uvicorn", "serve")],
)
def test_a_missing_package_is_reported_with_how_to_get_it(module: str, missing: str, extra: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import {module}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert f"SetupError: {'MQTT' if extra == 'mqtt' else 'HTTP'} needs" in run.stderr
    assert f"pip install 'tidewheel[{extra}]'" in run.stderr
