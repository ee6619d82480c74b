"""Certificates for tests, made by the `openssl` program."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make_authority(folder: Path, name: str) -> None:
    """An authority that signs others: its certificate and its key are files of this name."""
    _signed_by_itself(folder, name, "keyUsage=critical,keyCertSign")


def make_server_certificate(folder: Path, name: str) -> None:
    """A certificate of a server on this machine, signed by itself."""
    _signed_by_itself(folder, name, "subjectAltName=IP:127.0.0.1")


def make_signed_certificate(folder: Path, name: str, *, authority: str) -> None:
    """A certificate of somebody on this machine, signed by an authority in the same folder."""
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
    _openssl(folder, "req", *_CURVE, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    _openssl(
        folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key",
        "-CAcreateserial", "-out", f"{name}.crt", "-days", "2", "-extfile", "names",
    )  # fmt: skip


def _signed_by_itself(folder: Path, name: str, extension: str) -> None:
    _openssl(
        folder, "req", "-x509", *_CURVE, "-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "2",
        "-subj", f"/CN={name}", "-addext", extension,
    )  # fmt: skip


def _openssl(folder: Path, *arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("openssl is not installed, and CI must not do without these tests")
        pytest.skip("openssl is not installed (apt-get install openssl)")
    subprocess.run([program, *arguments], cwd=folder, check=True, capture_output=True)
