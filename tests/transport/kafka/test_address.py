"""The address of a log on Kafka says where it is and how it is reached, and holds no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel.errors import DefinitionError, SetupError
from tidewheel.transport.kafka.address import parse_address


def test_servers_have_kafkas_port_unless_they_say_another() -> None:
    assert parse_address("kafka://one,two:19092,[::1]:9/").servers == "one:9092,two:19092,[::1]:9"
    assert parse_address("kafka://[::1]").servers == "[::1]:9092"


def test_topics_begin_with_the_prefix_and_a_dot() -> None:
    assert parse_address("kafka://one/city").prefix == "city."
    assert parse_address("kafka://one/").prefix == parse_address("kafka://one").prefix == ""


def test_options_say_how_topics_are_made() -> None:
    address = parse_address("kafka://one/city?format=events&replication=3")
    assert (address.format, address.replication) == ("events", 3)
    assert (parse_address("kafka://one").format, parse_address("kafka://one").replication) == ("blocks", None)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("kafka://", "host:port, such as kafka.example.org:9092; got ''"),
        ("kafka://one:port", "got 'one:port'"),
        ("kafka://one:70000", "got 'one:70000'"),
        ("kafka://one/a/b", "a topic's name is"),
        ("kafka://one?fromat=events", "no option 'fromat'; there are ca, certificate, format"),
        ("kafka://one?format=json", "format is one of blocks, events; got 'json'"),
        ("kafka://one?replication=0", "at least 1; got '0'"),
        ("kafka://one?tls=yes", "tls is one of true, false; got 'yes'"),
        ("kafka://one?format", "name=value&name=value, got"),
        ("kafka://anna@one?mechanism=GSSAPI", "mechanism is one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    ],
)
def test_what_makes_no_sense_is_refused(address: str, message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        parse_address(address)
    assert message in str(refused.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(SetupError, match=r"no file /nowhere/ca\.pem, which the log's address names as ca"):
        parse_address("kafka://one?tls=true&ca=/nowhere/ca.pem")


class TestPassword:
    def test_it_is_refused_in_the_address_and_not_repeated(self) -> None:
        with pytest.raises(DefinitionError, match="the password in TIDEWHEEL_KAFKA_PASSWORD") as refused:
            parse_address("kafka://anna:secret@one:9092/city")
        assert "secret" not in str(refused.value)
        assert "kafka://anna@one:9092/city" in str(refused.value)

    def test_it_comes_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TIDEWHEEL_KAFKA_PASSWORD", "secret")
        address = parse_address("kafka://anna@one?tls=true&mechanism=SCRAM-SHA-512")
        options = address.client_options()
        assert options["security.protocol"] == "SASL_SSL"
        assert (options["sasl.mechanism"], options["sasl.username"]) == ("SCRAM-SHA-512", "anna")
        assert options["sasl.password"] == "secret"
        assert "secret" not in repr(address)

    def test_or_from_a_file(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "password").write_text("secret\n")
        monkeypatch.delenv("TIDEWHEEL_KAFKA_PASSWORD", raising=False)
        monkeypatch.setenv("TIDEWHEEL_KAFKA_PASSWORD_FILE", str(tmp_path / "password"))
        assert parse_address("kafka://anna@one").client_options()["sasl.password"] == "secret"
        monkeypatch.setenv("TIDEWHEEL_KAFKA_PASSWORD_FILE", str(tmp_path / "nothing"))
        with pytest.raises(SetupError, match=r"nothing cannot be read"):
            parse_address("kafka://anna@one").client_options()

    def test_without_one_the_error_says_where_to_put_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("TIDEWHEEL_KAFKA_PASSWORD", "TIDEWHEEL_KAFKA_PASSWORD_FILE"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(SetupError, match="'anna' needs a password for the Kafka at one:9092: set TIDEWHEEL_KAFKA"):
            parse_address("kafka://anna@one").client_options()

    def test_without_a_user_none_is_needed(self) -> None:
        assert parse_address("kafka://one").client_options() == {
            "bootstrap.servers": "one:9092",
            "security.protocol": "PLAINTEXT",
        }
