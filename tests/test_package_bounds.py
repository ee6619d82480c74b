"""The lowest and the newest packages that pyproject.toml allows really do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WITHOUT = {"dev"}
# Those whose newest one was tried: what comes next may break what they were tried for.
PARSERS = (
    *("pyspark", "polars", "pyarrow", "protobuf", "ptars", "msgspec", "sqlglot", "zstandard", "h11", "httpx"),
    *("uvicorn", "starlette", "websockets", "paho-mqtt", "polars-h3", "polars-hash", "datasketches"),
    "confluent-kafka",
)


def requirements() -> list[Requirement]:
    """All that is installed with Tidewheel and its extras."""
    extras = (some for name, some in PROJECT["optional-dependencies"].items() if name not in WITHOUT)
    texts = [*PROJECT["dependencies"], *(text for some in extras for text in some)]
    found = [Requirement(text) for text in texts]
    return [one for one in found if one.marker is None or one.marker.evaluate()]


def lowest(requirement: Requirement) -> str:
    (bound,) = [one.version for one in requirement.specifier if one.operator == ">="]
    return f"{requirement.name}=={bound}"


def test_every_package_has_a_lowest_and_a_highest_version():
    for one in requirements():
        assert {bound.operator for bound in one.specifier} == {">=", "<"}, f"{one} is open"
    assert {one.name for one in requirements()} >= {*PARSERS}


def pins(text: str) -> list[Requirement]:
    """What a file of versions pins; every line has hashes."""
    blocks = re.findall(r"^(\S[^\n]*?) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", " "))]
    assert len(blocks) == len(lines), "a line has no hashes; make lock"
    assert "://" not in text, "where files are is the index's to say"
    return [Requirement(line) for line, _ in blocks]


def test_what_is_tested_is_allowed_and_known_by_its_hashes():
    runs, further = (pins((ROOT / name).read_text()) for name in ("constraints.txt", "constraints-dev.txt"))
    for wanted in requirements():
        found = [one for one in (*runs, *further) if one.name == wanted.name]
        assert found, f"{wanted} is not pinned"
        for one in found:
            (version,) = [bound.version for bound in one.specifier]
            assert wanted.specifier.contains(version), f"{one} is not what {wanted} allows"


def test_the_demo_gets_all_that_it_imports_and_no_package_of_developers():
    runs, further = (
        {canonicalize_name(one.name) for one in pins((ROOT / name).read_text())}
        for name in ("constraints.txt", "constraints-dev.txt")
    )
    assert not runs & further
    extras = PROJECT["optional-dependencies"]
    used = ("serve", "java", "mqtt", "lookup", "kafka")
    direct = [*PROJECT["dependencies"], *(text for extra in used for text in extras[extra])]
    wanted = [Requirement(text) for text in direct]
    needed: set[str] = set()
    while wanted:
        one = wanted.pop()
        name = canonicalize_name(one.name)
        applies = one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *one.extras))
        if applies and name not in needed:
            needed.add(name)
            wanted += [Requirement(text) for text in requires(name) or []]
    assert needed <= runs, f"these are missing: {sorted(needed - runs)}"
    assert not runs & {canonicalize_name(Requirement(text).name) for text in extras["dev"]}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("which", ["lowest", "newest"])
def test_a_set_of_packages_does_what_it_must(tmp_path, which):
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    wanted = [lowest(one) if which == "lowest" else str(one).split(";")[0] for one in requirements()]
    # What is here and fits need not be fetched again; no path of an editable install comes along.
    (packages / "here.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run(
        [*pip, "install", "--no-compile", "--upgrade", "--upgrade-strategy", "only-if-needed", *wanted],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PYSPARK_PYTHON": str(folder / "bin" / "python"),
    }
    ran = subprocess.run(
        [folder / "bin" / "python", "-m", "tests.support.package_smoke", tmp_path],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "all of it works" in ran.stdout
