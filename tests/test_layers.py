"""The architecture, held by tests: who may import whom, and what the package offers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tidewheel

SOURCE = Path(tidewheel.__file__).parent
LAYERS = ["model", "patterns", "transport", "engine", "testing", "ingest", "serve", "apps", "cli", "bench"]
COMMON = {"errors", "lazy_pandas", "threads", "__init__"}  # below every layer
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if not path.name.endswith("_pb2.py")]


def imports(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found.add(str(node.module))
            if node.module == "tidewheel":
                found |= {f"tidewheel.{alias.name}" for alias in node.names}
    return found


def layer(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else None


def forbidden(own: str, imported: set[str]) -> list[str]:
    allowed = LAYERS[: LAYERS.index(own) + 1]
    wrong = [name for name in imported if layer(name) is not None and layer(name) not in allowed]
    if own in ("model", "patterns", "transport"):
        wrong += [name for name in imported if name.partition(".")[0] == "pyspark"]
    if own != "testing":
        wrong += [name for name in imported if layer(name) == "testing"]
    if own in ("ingest", "serve"):
        wrong += [name for name in imported if layer(name) == "engine"]
    return sorted(wrong)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_layer_imports_only_those_below_it(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own in COMMON:
        return
    assert own in LAYERS
    assert forbidden(own, imports(path)) == []


def test_the_rule_finds_what_is_forbidden():
    assert forbidden("model", {"tidewheel.transport.log", "polars"}) == ["tidewheel.transport.log"]
    assert forbidden("transport", {"pyspark.sql"}) == ["pyspark.sql"]
    assert forbidden("ingest", {"tidewheel.engine.run"}) == ["tidewheel.engine.run"]
    assert forbidden("serve", {"tidewheel.engine.run", "tidewheel.apps.transit"}) == [
        "tidewheel.apps.transit",
        "tidewheel.engine.run",
    ]
    assert forbidden("apps", {"tidewheel.testing"}) == ["tidewheel.testing"]
    assert forbidden("testing", {"tidewheel.engine.result", "tidewheel.transport.log"}) == []
    assert forbidden("apps", {"tidewheel.engine.run", "tidewheel.ingest.replay"}) == []


def test_every_exported_name_is_there_and_has_a_docstring():
    for name in tidewheel.__all__:
        assert getattr(tidewheel, name).__doc__, name
    with pytest.raises(AttributeError, match="sesion"):
        tidewheel.sesion  # noqa: B018


def test_importing_the_package_does_not_import_spark():
    code = "import sys, tidewheel; tidewheel.open_log; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_process_that_only_plans_does_not_import_what_rows_are_computed_with():
    code = "import sys, tidewheel.engine.source; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_module_says_what_it_is_for():
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
