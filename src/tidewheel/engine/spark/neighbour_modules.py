"""Modules beside a job's file. They are imported as they were when the job was loaded, here and in Spark's workers:
edits while a job runs do not change it, and workers need not find the folder."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from tidewheel.errors import DefinitionError

__all__ = ["ModuleSource", "import_from", "known_modules", "load_neighbours"]


@dataclass(frozen=True)
class ModuleSource:
    """A module: its name, its file, its source, and whether it is a package."""

    name: str
    path: str
    code: str
    package: bool = False


_known: dict[str, ModuleSource] = {}


def known_modules() -> tuple[ModuleSource, ...]:
    """All modules beside job files that these import: workers need them."""
    return tuple(_known.values())


def import_from(sources: Iterable[ModuleSource]) -> None:
    """Let these modules be imported."""
    for source in sources:
        if _known.get(source.name) != source:
            _known[source.name] = source
            sys.modules.pop(source.name, None)
    if _known and _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def load_neighbours(file: Path) -> None:
    """Let a job's file import the modules and packages beside it: those that it names, and those that these name."""
    found: dict[str, ModuleSource] = {}
    waiting = [file]
    for path in waiting:
        for name in _imported(path):
            if name not in found:
                sources = _beside(file, name)
                found |= {source.name: source for source in sources}
                waiting += [Path(source.path) for source in sources if source.code]
    import_from(found.values())


def _imported(path: Path) -> Iterator[str]:
    """The modules that a file imports anywhere, not only at its top level."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError):
        return  # importing it is an error that says where
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _beside(file: Path, name: str) -> list[ModuleSource]:
    """The module of this name beside the file, or all modules of the package; nothing if there is none."""
    folder = file.parent
    if (folder / f"{name}.py").is_file() and not (folder / name / "__init__.py").is_file():
        sources = [_source(name, folder / f"{name}.py")]
    else:
        paths = sorted(path for path in (folder / name).rglob("*.py") if "__pycache__" not in path.parts)
        sources = [_source(_dotted(path.relative_to(folder)), path) for path in paths]
        named = {source.name for source in sources}
        folders = {parent for path in paths for parent in path.relative_to(folder).parents if parent.parts}
        plain = [part for part in sorted(folders) if ".".join(part.parts) not in named]
        sources += [ModuleSource(".".join(part.parts), str(folder / part), "", package=True) for part in plain]
    if not sources:
        return []
    other = _of_others(name, folder)
    if other is None:
        return sources
    if not any(source.name == name and source.code for source in sources) and (folder / name).is_dir():
        return []  # a folder that only happens to be called like a package
    there = f"{name}.py" if (folder / f"{name}.py").is_file() else f"the package {name}"
    if name in _known:
        raise DefinitionError(
            f"{file} imports {name}, and {there} is beside it; but another job's file has {other} beside it, and one "
            "process can have one module of a name. Rename one of them, or run the jobs apart"
        )
    raise DefinitionError(
        f"{file} imports {name}, and {there} is beside it; but that is also the name of {other}. Rename the one beside "
        "the job"
    )


def _of_others(name: str, folder: Path) -> str | None:
    """The file of a module of this name that is not in the folder; None if there is none."""
    if name in _known:
        path = Path(_known[name].path)
        return None if path.is_relative_to(folder) else str(path)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    if any(Path(place).resolve().is_relative_to(folder) for place in places):
        return None
    return f"a module of Python's ({places[0]})" if places[0] in ("built-in", "frozen") else str(places[0])


def _source(name: str, path: Path) -> ModuleSource:
    with open(path, "rb") as file:
        code = importlib.util.decode_source(file.read())
    return ModuleSource(name, str(path), code or "\n", package=path.name == "__init__.py")


def _dotted(path: Path) -> str:
    parts = path.parts[:-1] if path.name == "__init__.py" else (*path.parts[:-1], path.stem)
    return ".".join(parts)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        source = _known.get(fullname)
        if source is None:
            return None
        spec = ModuleSpec(fullname, _SourceLoader(source), origin=source.path, is_package=source.package)
        spec.has_location = True
        if source.package:
            place = Path(source.path)
            spec.submodule_search_locations = [str(place.parent if source.code else place)]
        return spec


class _SourceLoader(Loader):
    def __init__(self, source: ModuleSource) -> None:
        self._source = source

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source.code, self._source.path, "exec", dont_inherit=True), module.__dict__)

    def get_source(self, fullname: str) -> str:
        """Return the source, for tracebacks."""
        return self._source.code


_FINDER = _Finder()
