"""Find jobs in installed packages and in files."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from tidewheel.engine.jobs.job import Job
from tidewheel.engine.spark.neighbour_modules import load_neighbours
from tidewheel.engine.spark.pickling import pickle_by_value
from tidewheel.errors import DefinitionError

__all__ = ["find_jobs", "installed_jobs", "jobs_of_file"]


def installed_jobs() -> dict[str, Job]:
    """All jobs of the installed packages (entry points of the group `tidewheel.jobs`, each naming a module)."""
    found: dict[str, Job] = {}
    for point in entry_points(group="tidewheel.jobs"):
        module = point.load()
        if not isinstance(module, ModuleType):
            raise DefinitionError(
                f"the entry point {point.name!r} of tidewheel.jobs must name a module, got {module!r}"
            )
        found |= _jobs_of(module)
    return dict(sorted(found.items()))


def jobs_of_file(path: str | Path) -> dict[str, Job]:
    """The jobs that a Python file defines. It may import modules and packages beside it; what else it imports must be
    installed."""
    file = Path(path).resolve()
    if not file.is_file():
        raise DefinitionError(f"there is no file {path}; a job is named by its name, or by the file that defines it")
    name = f"tidewheel_job_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{path} is no Python file: a job's file ends in .py")
    load_neighbours(file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's file may raise anything when it is run
        del sys.modules[name]
        if isinstance(error, DefinitionError):
            raise DefinitionError(f"{path}: {error}") from error
        raise DefinitionError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    pickle_by_value(module)
    found = _jobs_of(module)
    if not found:
        raise DefinitionError(f"{path} defines no job: it needs a function with @tidewheel.job(...)")
    return found


def find_jobs(names: Iterable[str]) -> list[Job]:
    """Find the jobs of these names, each once; one that ends in .py is a file, all jobs of which are meant."""
    found: dict[str, Job] = {}
    installed: dict[str, Job] | None = None
    for name in names:
        if name.endswith(".py"):
            more = jobs_of_file(name)
        else:
            installed = installed_jobs() if installed is None else installed
            if name not in installed:
                raise _unknown(name, installed)
            more = {name: installed[name]}
        twice = [each for each in more if each in found]
        if twice:
            raise DefinitionError(f"the job {twice[0]!r} is named twice; once is enough")
        found |= more
    return list(found.values())


def _unknown(name: str, installed: dict[str, Job]) -> DefinitionError:
    close = get_close_matches(name, installed, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return DefinitionError(f"no job {name!r}{hint} There are: {', '.join(installed) or 'none'}")


def _jobs_of(module: ModuleType) -> dict[str, Job]:
    return {value.name: value for value in vars(module).values() if isinstance(value, Job)}
