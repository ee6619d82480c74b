"""The address of a log on Kafka: servers, prefix, security, and how its topics are made."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from tidewheel.errors import DefinitionError, SetupError
from tidewheel.topic_names import check_topic_name

__all__ = ["KafkaAddress", "TopicFormat", "parse_address"]

TopicFormat: TypeAlias = Literal["blocks", "events"]
"""How a topic holds records: `blocks` of many in one record of Kafka, or each of the `events` as one."""

_PORT = 9092
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_OPTIONS = ("ca", "certificate", "format", "key", "mechanism", "replication", "tls")
_PASSWORD = "TIDEWHEEL_KAFKA_PASSWORD"
_PASSWORD_FILE = "TIDEWHEEL_KAFKA_PASSWORD_FILE"


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """Where a log on Kafka is, and how it is reached. The password is not in it.

    Args:
        text: The address as it was given.
        servers: Some of the cluster's brokers, as `host:port`.
        prefix: What the names of the log's topics begin with in Kafka, with its dot; empty if with nothing.
        format: The format of topics that are made.
        replication: On how many brokers topics that are made are kept; None for the cluster's own default.
        user: Who authenticates with a password.
        mechanism: How, by SASL.
        tls: Whether connections are encrypted.
        ca: The file with the certificates that the brokers' certificates are signed by.
        certificate: The file with a certificate of one's own.
        key: The file with its key.
    """

    text: str
    servers: str
    prefix: str = ""
    format: TopicFormat = "blocks"
    replication: int | None = None
    user: str | None = None
    mechanism: str = "PLAIN"
    tls: bool = False
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def client_options(self) -> dict[str, Any]:
        """The options of a client of librdkafka. They hold the password: do not show them."""
        options: dict[str, Any] = {"bootstrap.servers": self.servers}
        encrypted = "SSL" if self.tls else "PLAINTEXT"
        options["security.protocol"] = encrypted if self.user is None else f"SASL_{encrypted}"
        named = {"ssl.ca.location": self.ca, "ssl.certificate.location": self.certificate, "ssl.key.location": self.key}
        options |= {name: value for name, value in named.items() if value is not None}
        if self.user is not None:
            options |= {"sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": _password(self)}
        return options


def parse_address(text: str) -> KafkaAddress:
    """Parse `kafka://[user@]host[:port][,host[:port]]...[/prefix][?option=value&...]`.

    Options: `format` (`blocks` or `events`) and `replication` of topics that are made; `tls=true`, `ca`, `certificate`
    and `key` (paths of files); `mechanism` (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512). The password of the user is in the
    environment variable `TIDEWHEEL_KAFKA_PASSWORD`, or in the file that `TIDEWHEEL_KAFKA_PASSWORD_FILE` names.

    >>> address = parse_address("kafka://one:9092,two/city?replication=3")
    >>> address.servers, address.prefix, address.replication
    ('one:9092,two:9092', 'city.', 3)
    """
    parts = urlsplit(text)
    user, _, hosts = parts.netloc.rpartition("@")
    if ":" in user:
        raise DefinitionError(
            f"the address of a log holds no password, since others see it (processes, logs, checkpoints): give "
            f"kafka://{user.partition(':')[0]}@{hosts}{parts.path} and the password in {_PASSWORD}"
        )
    prefix = parts.path.strip("/")
    if prefix:
        check_topic_name(prefix)
    try:
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise DefinitionError(f"options of an address are name=value&name=value, got ?{parts.query}") from None
    unknown = sorted(given.keys() - set(_OPTIONS))
    if unknown:
        raise DefinitionError(f"an address of Kafka has no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}")
    return KafkaAddress(
        text=text,
        servers=",".join(map(_server, hosts.split(","))),
        prefix=f"{prefix}." if prefix else "",
        format=_choice("format", given.get("format", "blocks"), get_args(TopicFormat)),
        replication=_count("replication", given["replication"]) if "replication" in given else None,
        user=unquote(user) or None,
        mechanism=_choice("mechanism", given.get("mechanism", "PLAIN"), _MECHANISMS),
        tls=_choice("tls", given.get("tls", "false"), ("true", "false")) == "true",
        ca=_file("ca", given.get("ca")),
        certificate=_file("certificate", given.get("certificate")),
        key=_file("key", given.get("key")),
    )


def _server(text: str) -> str:
    host, colon, port = text.strip().rpartition(":")
    if not colon or text.endswith("]"):  # an IPv6 address without a port
        host, port = text.strip(), str(_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise DefinitionError(f"a server of Kafka is host:port, such as kafka.example.org:{_PORT}; got {text!r}")
    return f"{host}:{port}"


def _choice(name: str, value: str, known: tuple[str, ...]) -> Any:
    if value not in known:
        raise DefinitionError(f"{name} is one of {', '.join(known)}; got {value!r}")
    return value


def _count(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise DefinitionError(f"{name} is a number of brokers, at least 1; got {value!r}")
    return int(value)


def _file(name: str, value: str | None) -> str | None:
    if value is not None and not Path(value).is_file():
        raise SetupError(f"there is no file {value}, which the log's address names as {name}")
    return value


def _password(address: KafkaAddress) -> str:
    if found := os.environ.get(_PASSWORD):
        return found
    path = os.environ.get(_PASSWORD_FILE)
    if path is None:
        raise SetupError(
            f"{address.user!r} needs a password for the Kafka at {address.servers}: set {_PASSWORD}, or "
            f"{_PASSWORD_FILE} to the path of a file that holds it"
        )
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"{_PASSWORD_FILE}={path} cannot be read: {error}") from None
