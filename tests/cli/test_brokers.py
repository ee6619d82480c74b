"""Addresses and passwords of brokers on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel.cli.broker import make_broker
from tidewheel.errors import DefinitionError


def test_an_address_that_makes_no_sense_is_reported_without_its_password() -> None:
    with pytest.raises(DefinitionError, match=r"got 'http://anna:\*\*\*@host:1883'") as reported:
        make_broker("http://anna:secret@host:1883")
    assert "secret" not in str(reported.value)


def test_a_password_file_is_read_to_the_end_of_its_first_line(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(" with spaces : and @ \n\nmore")
    broker = make_broker("mqtts://anna@host", password_file=file)
    assert (broker.username, broker.password) == ("anna", " with spaces : and @ ")
    assert "spaces" not in repr(broker)


@pytest.mark.parametrize(
    ("address", "content", "reason"),
    [
        ("mqtt://anna:other@host", "x", "give it once"),
        ("mqtt://host", "x", "needs a user"),
        ("mqtt://anna@host", "\nx", "is empty"),
        ("mqtt://anna@host", None, "cannot be read"),
    ],
)
def test_a_password_file_that_makes_no_sense_is_refused(
    tmp_path: Path, address: str, content: str | None, reason: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DefinitionError, match=reason):
        make_broker(address, password_file=file)


def test_the_environments_password_is_for_addresses_with_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEWHEEL_MQTT_PASSWORD", "secret")
    assert make_broker("mqtt://anna@host").password == "secret"
    assert make_broker("mqtt://host").password is None
