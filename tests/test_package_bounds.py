"""The lowest and the newest packages that pyproject.toml allows really do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

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


SETS = {
    "newest": lambda requirement: str(requirement).split(";")[0],
    "lowest": lowest,
}
"""What is installed for each set. That of the newest packages is ready first: most of them are here."""


class Environment:
    """A virtual environment into which packages are being installed."""

    def __init__(self, folder: Path, wanted: list[str]) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False, symlinks=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        # What is here and fits need not be fetched again; no path of an editable install comes along.
        (packages / "here.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
        pip = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", "--quiet"]
        self.installing = subprocess.Popen(
            [*pip, "install", "--no-compile", "--upgrade", "--upgrade-strategy", "only-if-needed", *wanted],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Environment]]:
    """All sets are fetched at the same time, since that is mostly waiting."""
    folder = tmp_path_factory.mktemp("environments")
    made = {name: Environment(folder / name, [*map(of, requirements())]) for name, of in SETS.items()}
    yield made
    for one in made.values():
        one.installing.kill()
        one.installing.wait()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("which", SETS)
def test_a_set_of_packages_does_what_it_must(environments, tmp_path, which):
    made = environments[which]
    said, _ = made.installing.communicate()
    assert made.installing.returncode == 0, said
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PYSPARK_PYTHON": str(made.python),
    }
    ran = subprocess.run(
        [made.python, "-m", "tests.support.package_smoke", tmp_path],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "all of it works" in ran.stdout
