"""Make a broker from an address and a password source."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tidewheel.cli.options import say
from tidewheel.errors import DefinitionError

if TYPE_CHECKING:
    from tidewheel.ingest.mqtt.client import Broker

__all__ = ["make_broker"]


def make_broker(
    address: str,
    *,
    ca: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    password_file: Path | None = None,
) -> Broker:
    """Make an MQTT broker from the options of a command.

    Args:
        address: mqtts://user@host:8883, mqtt://host:1883, or host:port alone, where port 8883 means TLS. A password in
            it is taken, and warned of, since every user of the machine can see it there.
        ca: The file of the authority that signed the broker's certificate; by default those that the system trusts.
        certificate: The file of the client's own certificate.
        key: The file of its key.
        password_file: The file of the user's password; by default it is in TIDEWHEEL_MQTT_PASSWORD.
    """
    from urllib.parse import unquote, urlsplit

    from tidewheel.ingest.mqtt.client import Broker, Tls

    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port or 0
    except ValueError:
        host, port = None, 0
    if not host or parts.scheme not in ("", "mqtt", "mqtts") or parts.path.strip("/") or parts.query:
        raise DefinitionError(
            f"an MQTT broker's address looks like mqtts://host:8883, mqtt://host:1883 or host:port, got "
            f"{_without_password(address)!r}"
        )
    if key is not None and certificate is None:
        raise DefinitionError("--certificate-key is the key of a certificate: give it too, with --certificate FILE")
    given = ca is not None or certificate is not None
    secure = parts.scheme == "mqtts" or (parts.scheme == "" and port == 8883) or given
    return Broker(
        host,
        port,
        tls=Tls(ca=ca, certificate=certificate, key=key) if secure else None,
        username=unquote(parts.username) if parts.username else None,
        password=_password(unquote(parts.password) if parts.password else None, parts.username, password_file),
    )


def _without_password(address: str) -> str:
    """An address without its password, for messages.

    >>> _without_password("mqtts://anna:secret@host:8883"), _without_password("host:1883")
    ('mqtts://anna:***@host:8883', 'host:1883')
    """
    before, at, host = address.rpartition("@")
    scheme, slashes, user = before.rpartition("//")
    name, colon, _ = user.partition(":")
    return f"{scheme}{slashes}{name}{':***' if colon else ''}{at}{host}"


def _password(given: str | None, user: str | None, file: Path | None) -> str | None:
    """The password for a broker, from where it is."""
    if file is not None:
        if given is not None:
            raise DefinitionError("the MQTT password is in the address and in --password-file; give it once")
        if not user:
            raise DefinitionError("--password-file needs a user in the broker's address: mqtts://USER@host:8883")
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DefinitionError(f"--password-file {file} cannot be read: {error}") from None
        if not lines or not lines[0]:
            raise DefinitionError(f"--password-file {file}: its first line should be the password, and is empty")
        return lines[0]
    if given is not None:
        say(
            "the MQTT password is on the command line, where every user of this machine can see it (ps); put it into "
            "TIDEWHEEL_MQTT_PASSWORD or a file (--password-file)",
            style="yellow",
        )
        return given
    return os.environ.get("TIDEWHEEL_MQTT_PASSWORD") or None if user else None
