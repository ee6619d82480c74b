"""What others on the machine may read: nothing, unless somebody made it so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.errors import SetupError
from tidewheel.transport.log.log_types import records
from tidewheel.transport.log.private_files import make_private_folder
from tidewheel.transport.open_log import open_log


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


def test_a_new_log_and_its_journal_are_the_users_alone(tmp_path: Path) -> None:
    with open_log(tmp_path / "city.tw") as log:
        log.append("news", records([b"x"]))
        assert modes(tmp_path) == {"city.tw": 0o600, "city.tw-shm": 0o600, "city.tw-wal": 0o600}


def test_the_reserve_of_a_log_has_the_permissions_of_the_log(tmp_path: Path) -> None:
    with open_log(tmp_path / "city.tw") as log:
        for _ in range(10):
            log.append("news", records([os.urandom(1 << 21)]))
        log.maintain()
        assert modes(tmp_path)["city.tw-reserve"] == 0o600


def test_a_log_that_is_there_keeps_its_permissions_and_an_empty_file_may_give_them(tmp_path: Path) -> None:
    """The way to share a log with a group."""
    path = tmp_path / "city.tw"
    path.touch()
    path.chmod(0o660)
    with open_log(path) as log:
        log.append("news", records([b"x"]))
        assert modes(tmp_path) == {"city.tw": 0o660, "city.tw-shm": 0o660, "city.tw-wal": 0o660}


def test_a_new_checkpoint_is_the_users_alone_and_one_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    for folder in (tmp_path / "state" / "job", shared):
        checkpoint = Checkpoint(folder)
        checkpoint.acquire({"job": "x", "log": "y"})
        checkpoint.release()
    assert modes(tmp_path / "state") == {"job": 0o700}
    assert modes(tmp_path)["shared"] == 0o770


def test_a_folder_of_ones_own_is_made_and_closed_to_others(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "new", use="for a test")
    (tmp_path / "open").mkdir(mode=0o777)
    make_private_folder(tmp_path / "open", use="for a test")
    assert modes(tmp_path) == {"new": 0o700, "open": 0o700}


def test_a_folder_that_somebody_else_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    for name, reason in (("link", "is a link"), ("file", "is no folder")):
        with pytest.raises(SetupError, match=f"{name}, for a test, {reason}; remove it, or set TMPDIR"):
            make_private_folder(tmp_path / name, use="for a test")
    if os.getuid() != 0:
        pytest.skip("only root can make a folder of another user")
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 12_345, 12_345)
    with pytest.raises(SetupError, match=r"belongs to another user \(number 12345\)"):
        make_private_folder(tmp_path / "theirs", use="for a test")


def test_the_demo_refuses_a_folder_that_another_user_made(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"tidewheel-demo-{os.getuid()}").symlink_to(elsewhere)
    done = subprocess.run(
        [sys.executable, "-m", "tidewheel.cli", "demo", "--for", "1s", "--no-open"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "where the demo keeps its logs, is a link; remove it" in " ".join(done.stderr.split())
    assert list(elsewhere.iterdir()) == []
