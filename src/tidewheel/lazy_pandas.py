"""Keep pyarrow from importing pandas until it is needed.

The first `pa.array` of a process imports pandas, only to know its types if it should meet them: half a second of
processor time, more than polars and pyarrow together, in every worker that Spark starts and every command.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["defer_pandas"]


def defer_pandas() -> None:
    """Stop pyarrow from importing pandas in this process until pandas is imported elsewhere, or needed (`to_pandas`).
    For Tidewheel's own processes, not for a user's program.

    >>> import subprocess
    >>> program = '''
    ... from tidewheel.lazy_pandas import defer_pandas
    ... defer_pandas()
    ... import sys, pyarrow as pa
    ... numbers = pa.array([1, None])
    ... print("pandas" in sys.modules)
    ... print(numbers.to_pandas().sum(), "pandas" in sys.modules)
    ... '''
    >>> print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout)
    False
    1.0 True
    <BLANKLINE>
    """
    if "pandas" in sys.modules or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    import pyarrow as pa

    finder = _Finder()
    sys.meta_path.insert(0, finder)
    finder.refused_in = threading.get_ident()
    try:
        pa.array([])  # the one time that pyarrow looks for it by itself
    finally:
        finder.refused_in = None


class _Finder(MetaPathFinder):
    """Finds pandas as the other finders do, and lets pyarrow know when it has been imported."""

    refused_in: int | None = None
    """The thread that does not find pandas at the moment."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pandas":
            return None
        if self.refused_in == threading.get_ident():
            raise ModuleNotFoundError("pandas is imported when it is needed", name="pandas")
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader)
                    return spec
        return None


class _Loader(Loader):
    """Loads pandas, and then lets pyarrow look again."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader  # pandas reads its own files through it
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        import pyarrow as pa

        pa.table({}).to_pandas()
