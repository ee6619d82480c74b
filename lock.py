"""Renew the hashes in constraints.txt, constraints-dev.txt and web/constraints.txt: `make lock`.

The versions are chosen by hand, one `name==version` a line, with a marker where Python 3.10 gets another one. To add a
package or to take another version, write that line without hashes. Each gets those that the package index tells of the
release's files that Linux or macOS could install. Nothing is said of where a file is: only what it must be.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

from pip._internal.models.index import PyPI  # where packages are looked for unless pip is told otherwise

PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)\s*(?:;\s*(?P<marker>[^\\]*?))?\s*\\?$")
FILE = re.compile(r"#sha256=([0-9a-f]{64})[^>]*>\s*([^<\s]+)\s*<")
# Wheels for other systems and interpreters than those that Tidewheel is made for.
ELSEWHERE = re.compile(
    r"win32|win_amd64|win_arm64|i686|i386|armv[67]l|ppc64|s390x|riscv|loongarch|ios_|android|wasm|pyodide|emscripten"
    r"|-pp\d|-graalpy|-cp3[6-9]-cp3[6-9]|-cp\d+-cp\d+t-|-cp2"
)


def main() -> None:
    """Write the files anew: those that are named, or all."""
    root = Path(__file__).resolve().parent
    files = [root / "constraints.txt", root / "constraints-dev.txt", root / "web" / "constraints.txt"]
    for path in map(Path, sys.argv[1:] or files):
        renew(path)


def renew(path: Path) -> None:
    """Write a file anew."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    comments = [line for line in lines if line.startswith("#")]
    pins = [found for line in lines if (found := PINNED.match(line))]
    strange = [line for line in lines if line and not line.startswith(("#", "--hash=")) and not PINNED.match(line)]
    if strange:
        raise SystemExit(f"{path}: a line must be name==version or name==version; marker, got {strange[0]!r}")
    pins.sort(key=lambda found: (normal(found["name"]), found["marker"] or ""))
    with ThreadPoolExecutor(8) as pool:
        hashes = list(pool.map(lambda found: hashes_of(found["name"], found["version"]), pins))
    blocks = [block(found, some) for found, some in zip(pins, hashes, strict=True)]
    path.write_text("\n".join([*comments, *blocks, ""]))
    print(f"{path}: {len(blocks)} packages, {sum(map(len, hashes))} files")


def block(found: re.Match[str], hashes: list[str]) -> str:
    """A package as pip reads it."""
    marker = f"; {found['marker']}" if found["marker"] else ""
    return " \\\n".join(
        [f"{found['name']}=={found['version']}{marker}", *(f"    --hash=sha256:{one}" for one in hashes)]
    )


def hashes_of(name: str, version: str) -> list[str]:
    """Of the files of a release that can be installed here or on a machine of its kind."""
    with urlopen(Request(f"{PyPI.simple_url}/{normal(name)}/", headers={"Accept": "text/html"}), timeout=60) as answer:
        files = FILE.findall(answer.read().decode())
    stems = {f"{normal(name)}-{version}", f"{normal(name).replace('-', '_')}-{version}"}
    mine = [
        sha256
        for sha256, file in files
        if any(normal_file(file).startswith((f"{stem}-", f"{stem}.tar", f"{stem}.zip")) for stem in stems)
        and not ELSEWHERE.search(file)
    ]
    if not mine:
        raise SystemExit(f"the index has no file of {name} {version} that Linux or macOS could install")
    return sorted(set(mine))


def normal(name: str) -> str:
    """A package's name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def normal_file(name: str) -> str:
    """A file's name with its package's name in small letters."""
    package, _, rest = name.partition("-")
    return f"{package.lower().replace('.', '_')}-{rest}"


if __name__ == "__main__":
    main()
