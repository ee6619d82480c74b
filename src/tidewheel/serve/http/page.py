"""The built page: its files, read once. A path is looked up among their names, so no path leads anywhere else."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NOT_BUILT", "Page", "PageFile"]

FOLDER = Path(__file__).parent.parent / "page"
NOT_BUILT = "The page is not built here: run make web. The API is at /api/layers and /api/openapi.json.\n"

_HASHED = "/assets/"
_TEXT = ("text/", "application/javascript", "application/json", "image/svg")
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".json": "application/json", ".wasm": "application/wasm"}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it is sent; `packed` is its compressed form, if that is smaller."""

    content: bytes
    packed: bytes | None
    headers: dict[str, str]


class Page:
    """The files of a folder, by the paths under which they are asked for."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._files: dict[str, PageFile] = {}
        self._read()

    def find(self, path: str) -> PageFile | None:
        """Find the file of a path; / is index.html."""
        if not self._files:  # built while the server runs
            self._read()
        return self._files.get("/index.html" if path == "/" else path)

    @property
    def built(self) -> bool:
        """Whether the page has been built."""
        return "/index.html" in self._files

    def _read(self) -> None:
        if self._folder.is_dir():
            files = (path for path in sorted(self._folder.rglob("*")) if path.is_file() and path.name[0] != ".")
            self._files = {f"/{path.relative_to(self._folder).as_posix()}": _file(path, self._folder) for path in files}


def _file(path: Path, folder: Path) -> PageFile:
    content = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    text = kind.startswith(_TEXT)
    packed = gzip.compress(content, 6, mtime=0) if text and len(content) > 1_000 else None
    # Names of assets hold a hash of what is in them: those never change.
    forever = f"/{path.relative_to(folder).as_posix()}".startswith(_HASHED)
    headers = {
        "content-type": f"{kind}; charset=utf-8" if text else kind,
        "cache-control": "public, max-age=31536000, immutable" if forever else "no-cache",
        "etag": f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"',
        "vary": "accept-encoding",
    }
    return PageFile(content, packed if packed is not None and len(packed) < len(content) else None, headers)
