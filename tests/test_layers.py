"""The architecture, held by tests: who may import whom, and what the package offers."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import subprocess
import sys
import textwrap
import types
import typing
from collections import Counter
from enum import Enum
from pathlib import Path

import pytest

import tidewheel
import tidewheel_transit
from tests import ROOT
from tests.support.run_pages import code_blocks

SOURCE = Path(tidewheel.__file__).parent
LAYERS = ["model", "patterns", "match_recognize", "transport", "engine", "testing", "ingest", "serve", "cli"]
APPLICATION = Path(tidewheel_transit.__file__).parent
PUBLIC = {"tidewheel", "tidewheel.testing", "tidewheel.ingest", "tidewheel.serve", "tidewheel.cli"}
"""What the application may import, as any other package that is written outside Tidewheel."""
COMMON = {
    "atomic_file",
    "errors",
    "html",
    "java",
    "lazy_pandas",
    "plain_text",
    "process_identity",
    "threads",
    "topic_names",
    "user_folders",
    "__init__",
}  # below every layer
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
    if own != "testing":
        wrong += [name for name in imported if layer(name) == "testing"]
    wrong += [name for name in imported if name.partition(".")[0] == "tidewheel_transit"]
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
    assert forbidden("model", {"tidewheel.transport.log.log", "polars"}) == ["tidewheel.transport.log.log"]
    assert forbidden("ingest", {"tidewheel.engine.execution.running_query"}) == [
        "tidewheel.engine.execution.running_query"
    ]
    assert forbidden("serve", {"tidewheel.engine.execution.running_query", "tidewheel_transit.layers"}) == [
        "tidewheel.engine.execution.running_query",
        "tidewheel_transit.layers",
    ]
    assert forbidden("cli", {"tidewheel.testing"}) == ["tidewheel.testing"]
    assert forbidden("testing", {"tidewheel.engine.streams.result", "tidewheel.transport.log.log"}) == []
    assert forbidden("cli", {"tidewheel.engine.execution.running_query", "tidewheel.ingest.replay.replay"}) == []


OF_THE_APPLICATION = re.compile(
    r"tidewheel[_.]transit|hfp|\b(?:the demo|tidewheel (?:demo|simulate|ask)|the simulator)\b", re.I
)


def texts(*folders: Path) -> list[Path]:
    """What is written by hand in these folders: code, protobuf, Java, properties."""
    suffixes = {".css", ".html", ".java", ".properties", ".proto", ".py", ".ts"}
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in suffixes]
    return [path for path in found if "_pb2" not in path.name and SOURCE / "serve" / "page" not in path.parents]


@pytest.mark.parametrize("path", texts(SOURCE, ROOT / "web" / "src"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_names_nothing_of_the_application(path):
    assert OF_THE_APPLICATION.findall(path.read_text(encoding="utf-8")) == []


def test_core_texts_and_words_of_the_application_are_found():
    assert {".proto", ".java", ".ts"} <= {path.suffix for path in texts(SOURCE, ROOT / "web" / "src")}
    assert OF_THE_APPLICATION.findall("import tidewheel_transit, HFP: the demo, democratic") == [
        "tidewheel_transit",
        "HFP",
        "the demo",
    ]


def hidden(source: str) -> list[str]:
    """What a file imports of Tidewheel that is not public: modules from inside, and names that are not exported."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            public = importlib.import_module(node.module).__all__ if node.module in PUBLIC else []
            found |= {f"{node.module}.{alias.name}" for alias in node.names if alias.name not in public}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tw":
            found |= {f"tidewheel.{node.attr}"} - {f"tidewheel.{name}" for name in tidewheel.__all__}
    return sorted(name for name in found - PUBLIC if name.startswith("tidewheel."))


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(APPLICATION.rglob("*.py")) if not path.name.endswith("_pb2.py")],
    ids=lambda path: str(path.relative_to(APPLICATION)),
)
def test_the_application_imports_only_what_every_other_package_may(path):
    assert hidden(path.read_text(encoding="utf-8")) == []


DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def hidden_in_page(text: str) -> list[str]:
    """What a page names of Tidewheel that is not public: in its Python, and dotted in its prose."""
    found = {name for block in code_blocks(text) for name in hidden(block)}
    found |= {f"tidewheel.{name}" for name in re.findall(r"\btw\.(\w+)", text) if name not in tidewheel.__all__}
    for dotted in re.findall(r"(?<![\w.])tidewheel(?:\.\w+)+", text):
        module, _, name = dotted.rpartition(".")
        while module not in PUBLIC:  # of a name within what is public, such as a method, what is public
            module, _, name = module.rpartition(".")
        exported = name in importlib.import_module(module).__all__ or f"{module}.{name}" in PUBLIC
        there = (SOURCE.parent / module.replace(".", "/") / name).with_suffix(".py")
        if not exported and (
            there.is_file() or there.with_suffix("").is_dir()
        ):  # else a type, or a group of entry points
            found.add(dotted)
    return sorted(found)


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_a_page_names_only_what_is_public(page):
    assert hidden_in_page(page.read_text(encoding="utf-8")) == []


def test_what_is_hidden_is_found():
    assert hidden("import tidewheel as tw\nfrom tidewheel.ingest import Message\nimport tidewheel_transit.hfp") == []
    assert hidden("def f():\n    from tidewheel.model import windows") == ["tidewheel.model.windows"]
    assert hidden("import tidewheel.engine.jobs.job") == ["tidewheel.engine.jobs.job"]
    assert hidden("from tidewheel.ingest import pipeline, Pipeline") == ["tidewheel.ingest.pipeline"]
    assert hidden("tw.stream(tw.engine.x)") == ["tidewheel.engine"]
    assert hidden("from tidewheel import engine") == ["tidewheel.engine"]
    page = "`tidewheel.v1.Alias` in `tw.stream`, `tidewheel.serve.Layer.name`, the group `tidewheel.jobs`\n"
    assert hidden_in_page(page) == []
    assert hidden_in_page(
        "`tw.engine` or `tidewheel.serve.http.limits` or tidewheel.engine.jobs.archive.Archive(x)"
    ) == [
        "tidewheel.engine",
        "tidewheel.engine.jobs.archive.Archive",
        "tidewheel.serve.http.limits",
    ]
    assert hidden_in_page("```python\nimport tidewheel.model.time\n```\n") == ["tidewheel.model.time"]


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_what_a_public_package_exports_is_there(name):
    package = importlib.import_module(name)
    assert [each for each in package.__all__ if getattr(package, each, None) is None] == []


def test_every_exported_name_is_there_and_has_a_docstring():
    for name in tidewheel.__all__:
        assert getattr(tidewheel, name).__doc__, name
    with pytest.raises(AttributeError, match="sesion"):
        tidewheel.sesion  # noqa: B018


def undocumented(kind: type) -> list[str]:
    """The public methods and properties of a class without a docstring, their own or an inherited one."""
    methods = (property, staticmethod, classmethod, types.FunctionType)
    members = [vars(base) for base in kind.__mro__[:-1]]
    names = {name for some in members for name, value in some.items() if name[0] != "_" and isinstance(value, methods)}
    return sorted(name for name in names if not any(some[name].__doc__ for some in members if name in some))


def test_every_public_method_of_an_exported_class_has_a_docstring_its_own_or_inherited():
    classes = [value for name in tidewheel.__all__ if isinstance(value := getattr(tidewheel, name), type)]
    assert classes
    assert {kind.__name__: undocumented(kind) for kind in classes if undocumented(kind)} == {}


def test_a_method_without_a_docstring_is_found():
    class Base:
        def documented(self):
            """A docstring."""

    class Derived(Base):
        def documented(self):
            pass

        @property
        def silent(self):
            pass

    assert undocumented(Derived) == ["silent"]


def test_importing_the_package_does_not_import_spark():
    code = "import sys, tidewheel; tidewheel.open_log; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_process_that_only_plans_does_not_import_what_rows_are_computed_with():
    code = "import sys, tidewheel.engine.datasource.source; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_module_says_what_it_is_for():
    for path in (*MODULES, *APPLICATION.rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


ROOMS = ["checkpoint", "backup", "operators", "runtime", "spark", "datasource", "execution", "streams", "jobs", "sql"]
"""The rooms of the engine, lowest first."""
WITH_SPARK = ("datasource", "spark", "execution", "streams", "jobs", "sql")
"""The rooms of the engine that may import Spark; nothing else in the package may, but for these modules."""
WITH_SPARK_ALSO = {
    "tidewheel.testing.micro_batches": "runs a script over a streaming DataFrame: it makes one, and knows its errors",
    "tidewheel.testing.runner": "runs a script as a query, in the session that it is given, with functions by value",
    "tidewheel.testing.script": "`Script.run` takes a session",
}
"""With the reason. This list only becomes shorter."""


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in MODULES}


def room(module: str) -> str | None:
    parts = module.split(".")
    return parts[2] if parts[:2] == ["tidewheel", "engine"] and len(parts) > 2 else None


@pytest.mark.parametrize("module", [name for name in NAMES if room(name) is not None])
def test_a_room_of_the_engine_imports_only_those_below_it(module):
    own = room(module)
    found = imports(NAMES[module])
    above = [name for name in found if room(name) is not None and ROOMS.index(room(name)) > ROOMS.index(own)]
    assert above == []


def of_spark(imported: set[str]) -> list[str]:
    return sorted(name for name in imported if name.partition(".")[0] in ("pyspark", "py4j"))


@pytest.mark.parametrize("module", [name for name in NAMES if room(name) not in WITH_SPARK])
def test_spark_is_imported_in_its_rooms_only(module):
    assert (of_spark(imports(NAMES[module])) != []) == (module in WITH_SPARK_ALSO)


def test_imports_of_spark_are_found():
    assert of_spark({"pyspark.sql", "py4j.java_gateway", "polars", "pysparkling"}) == [
        "py4j.java_gateway",
        "pyspark.sql",
    ]
    assert set(WITH_SPARK) < set(ROOMS)
    assert set(WITH_SPARK_ALSO) < set(NAMES)


def imported_modules(module: str) -> set[str]:
    """The modules of the package that one imports, wherever in it, for types, too; but not the packages it is in."""
    found = set()
    for node in ast.walk(ast.parse(NAMES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name in NAMES and name != module and not module.startswith(f"{name}.")}


CIRCLES = {
    ("tidewheel.transport.log.log", "tidewheel.transport.events.rows"): "Log.append_rows is a convenience of the log",
    ("tidewheel.transport.events.registry", "tidewheel.transport.topics.types"): "a type may be registered in a log",
    ("tidewheel.engine.streams.stream", "tidewheel.engine.streams.result"): "a stream makes results, which are streams",
    ("tidewheel.engine.streams.stream", "tidewheel.engine.streams.windowed_stream"): "a stream is cut into windows",
    ("tidewheel.engine.streams.stream", "tidewheel.engine.streams.keyed_stream"): "a stream is keyed",
}
"""Imports that close a circle, with the reason. This list only becomes shorter."""


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle: what is left when all are gone that import nothing left."""
    left = {name: set(others) for name, others in graph.items()}
    while done := [name for name, others in left.items() if not others]:
        left = {name: others - set(done) for name, others in left.items() if name not in done}
    while unused := set(left) - {other for others in left.values() for other in others}:
        left = {name: others for name, others in left.items() if name not in unused}
    return sorted(left)


def test_nothing_imports_in_a_circle():
    graph = {name: imported_modules(name) for name in NAMES}
    for importer, imported in CIRCLES:
        assert imported in graph[importer], f"{importer} no longer imports {imported}: take it off the list"

    def without(allowed: set[tuple[str, str]]) -> list[str]:
        return circles(
            {name: {other for other in found if (name, other) not in allowed} for name, found in graph.items()}
        )

    assert without(set(CIRCLES)) == []
    for pair in CIRCLES:
        assert without(set(CIRCLES) - {pair}), f"{pair} closes no circle any more: take it off the list"


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b", "c"]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


MOST_MODULES = 15
"""In a folder, without its `__init__`."""
MOST_LINES = 400
"""In a file."""
LONG_FUNCTIONS = {
    "tidewheel/match_recognize/matching/backtracking.py: match": "one loop for every row and instruction, where a call "
    "would take longer than most of them do",
}
"""Functions that may be longer than 60 lines, with the reason. This list only becomes shorter."""
ALL_MODULES = [*MODULES, *(path for path in sorted(APPLICATION.rglob("*.py")) if not path.name.endswith("_pb2.py"))]


def place_of(path: Path) -> str:
    return str(path.relative_to(SOURCE.parent))


def test_folders_and_files_are_of_a_size_that_is_read():
    folders: dict[str, int] = {}
    for path in ALL_MODULES:
        place = place_of(path)
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES, place
        if path.name != "__init__.py":
            folder = place_of(path.parent)
            folders[folder] = folders.get(folder, 0) + 1
    assert {folder: count for folder, count in folders.items() if count > MOST_MODULES} == {}


def test_folders_of_tests_are_packages_of_a_size_that_is_searched():
    folders = Counter(path.parent for path in (ROOT / "tests").rglob("*.py") if path.name != "__init__.py")
    crowded = {str(folder.relative_to(ROOT)): count for folder, count in folders.items() if count > 20}
    assert crowded == {}, "a folder of tests has at most 20 modules: give it rooms as the source has them"
    loose = [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()]
    assert loose == [], "a folder of tests needs an __init__.py, or modules of one name in two folders clash"


def functions(source: str) -> list[tuple[str, int, int]]:
    """Every function of a file with its lines, those of its docstring left out, and its arguments without self."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = int(node.end_lineno or 0) - node.lineno + 1
        if ast.get_docstring(node) is not None:
            lines -= int(node.body[0].end_lineno or 0) - node.body[0].lineno + 1
        given = node.args
        names = [
            each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if each
        ]
        found.append((node.name, lines, len([name for name in names if name not in ("self", "cls")])))
    return found


def test_functions_are_of_a_size_that_is_read():
    long, wide = set(), []
    for path in ALL_MODULES:
        for name, lines, arguments in functions(path.read_text(encoding="utf-8")):
            if lines > 60:
                long.add(f"{place_of(path)}: {name}")
            if arguments > 12:
                wide.append(f"{place_of(path)}: {name}")
    assert long - set(LONG_FUNCTIONS) == set(), "split them by concept"
    assert set(LONG_FUNCTIONS) - long == set(), "take them off the list"
    assert wide == [], "group the arguments that belong together"


def test_the_size_of_a_function_is_found():
    docstring = '        """One.\n\n        Two.\n        """\n'
    source = f"class A:\n    def f(self, a, /, b, *c, d=1, **e):\n{docstring}        return a\n"
    assert functions(source) == [("f", 2, 5)]


NOT_CONSTRUCTED = {"LookupReport", "Progress", "Result", "Run", "Server", "Stream", "WindowedStream"}
"""Classes whose objects users are given, and do not make."""


def public_modules() -> dict[str, types.ModuleType]:
    """The public packages, and the modules that they export, such as `tidewheel.windows`."""
    found = {name: importlib.import_module(name) for name in sorted(PUBLIC)}
    for package, module in list(found.items()):
        exported = {f"{package}.{name}": getattr(module, name) for name in module.__all__}
        found |= {name: each for name, each in exported.items() if isinstance(each, types.ModuleType)}
    return found


def public_functions() -> dict[str, tuple[list[str], str]]:
    """What is public and called, and its methods: the parameters, and where they are explained."""
    found = {}
    for package, module in public_modules().items():
        for name in module.__all__:
            each = getattr(module, name)
            if isinstance(each, type) and (each is int or issubclass(each, Exception)):
                continue  # instants are numbers; Tidewheel raises errors, nobody else makes them
            if inspect.isfunction(each):
                found[f"{package}.{name}"] = (list(inspect.signature(each).parameters), inspect.getdoc(each) or "")
            elif inspect.isclass(each) and not hasattr(each, "DESCRIPTOR"):
                if name not in NOT_CONSTRUCTED and not issubclass(each, Enum) and not typing.is_typeddict(each):
                    found[f"{package}.{name}"] = (list(inspect.signature(each).parameters), explained_fields(each))
                for method, function in vars(each).items():
                    if inspect.isfunction(function) and not method.startswith("_"):
                        names = list(inspect.signature(function).parameters)[1:]
                        found[f"{package}.{name}.{method}"] = (names, inspect.getdoc(function) or "")
    return found


def explained_fields(of: type) -> str:
    """What a class says of the parameters of its constructor: in its docstring, and below each field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(of))).body[0]
    assert isinstance(body, ast.ClassDef)
    lines = [inspect.getdoc(of) or ""]
    for field, after in itertools.pairwise(body.body):
        text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and text:
            lines.append(f"    {field.target.id}: {after.value.value}")
    return "\n".join(lines)


@pytest.mark.parametrize(("name", "names", "text"), [(name, *each) for name, each in public_functions().items()])
def test_a_public_function_with_many_parameters_explains_each(name, names, text):
    if len(names) > 4:
        assert [each for each in names if not re.search(rf"^ +{each}: \S", text, re.MULTILINE)] == []
