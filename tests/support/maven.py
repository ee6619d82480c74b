"""Java archives that tests need and Python's package index does not have: got by Maven, once, into the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tidewheel-tests"
_EVERYTHING = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def jars(name: str, *artifacts: str, alone: bool = False) -> list[Path]:
    """These archives (`group:artifact:version`) and, unless they are to stay `alone`, all that they need. Where they
    is not available, the test is skipped with the reason."""
    folder = _CACHE / name
    _CACHE.mkdir(parents=True, exist_ok=True)
    with open(_CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may want them at once
        if not folder.is_dir():
            _get(folder, artifacts, alone=alone)
    return sorted(folder.glob("*.jar"))


def _get(folder: Path, artifacts: tuple[str, ...], *, alone: bool) -> None:
    if shutil.which("mvn") is None:
        pytest.skip("no Maven (mvn), and so no archives of Java: install it to run this test")
    wanted = []
    for artifact in artifacts:
        group, own, version = artifact.split(":")
        wanted.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{own}</artifactId><version>{version}</version>"
            f"{_EVERYTHING if alone else ''}</dependency>"
        )
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    (part / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>tests</groupId>'
        f"<artifactId>jars</artifactId><version>1</version><dependencies>{''.join(wanted)}</dependencies></project>"
    )
    done = subprocess.run(
        ["mvn", "--quiet", "--batch-mode", "--file", part / "pom.xml", _COPY, f"-DoutputDirectory={part}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"Maven could not get {', '.join(artifacts)}: {done.stdout[-500:]}")
    part.rename(folder)
