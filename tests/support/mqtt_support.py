"""A real broker for the tests, and a line to it that can be cut."""

from __future__ import annotations

import getpass
import os
import select
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.certificates import make_authority, make_signed_certificate
from tests.support.ingest_support import eventually

MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Mosquitto:
    """A mosquitto on a free port, with its store in a folder, that can be stopped and started again."""

    def __init__(self, folder: Path, *options: str, persistence: bool = True) -> None:
        if MOSQUITTO is None:
            if os.environ.get("CI") == "true":
                pytest.fail("mosquitto is not installed, and CI must not do without these tests")
            pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._config = folder / "mosquitto.conf"
        self._messages = folder / "mosquitto.log"
        lines = [
            f"listener {self.port} 127.0.0.1",
            f"user {getpass.getuser()}",
            f"persistence {str(persistence).lower()}",
            f"persistence_location {folder}/",
            "max_queued_messages 0",
            *options,
        ]
        if not any(option.startswith(("password_file", "allow_anonymous")) for option in options):
            lines.append("allow_anonymous true")
        self._config.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Mosquitto:
        assert MOSQUITTO is not None
        with self._messages.open("ab") as messages:
            self._process = subprocess.Popen([MOSQUITTO, "-c", str(self._config)], stderr=messages, stdout=messages)
        eventually(self._listens, "mosquitto listens", timeout=240)
        return self

    def stop(self) -> None:
        """As an administrator would: it saves its store."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"mosquitto ended: {self._messages.read_text()}"
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def mosquitto(folder: Path, *options: str, persistence: bool = True) -> Iterator[Mosquitto]:
    broker = Mosquitto(folder, *options, persistence=persistence).start()
    try:
        yield broker
    finally:
        broker.stop()


class Line:
    """Passes bytes on to a port, until it is cut: then every connection over it breaks, with what is under way."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._pairs.append((near, far))
            threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()

    @staticmethod
    def _pass_on(near: socket.socket, far: socket.socket) -> None:
        with near, far, suppress(OSError):
            while True:
                for end in select.select([near, far], [], [])[0]:
                    data = end.recv(65_536)
                    if not data:
                        return
                    (far if end is near else near).sendall(data)


def make_certificates(folder: Path) -> Path:
    """An authority (ca), a broker's certificate and a client's, both signed by it, and a strange authority."""
    for name in ("ca", "strange"):
        make_authority(folder, name)
    for name in ("broker", "client"):
        make_signed_certificate(folder, name, authority="ca")
    return folder


def tls_options(certificates: Path) -> list[str]:
    return [
        f"cafile {certificates}/ca.crt",
        f"certfile {certificates}/broker.crt",
        f"keyfile {certificates}/broker.key",
    ]
