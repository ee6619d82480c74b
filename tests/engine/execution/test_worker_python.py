"""Spark's workers run another Python, or do not find what they need: reported before the first batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from types import SimpleNamespace

import pytest

from tidewheel.engine.execution import worker_python
from tidewheel.engine.execution.worker_python import check_workers
from tidewheel.errors import SetupError
from tidewheel.java import find_java

PROGRAM = """
import json
from pyspark.sql import SparkSession
import tidewheel as tw

spark = SparkSession.builder.master("local[1]").getOrCreate()
table = spark.sql("SELECT timestamp_seconds(id) AS at FROM range(3)")
counts = tw.stream(table, time="at").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
try:
    counts.df()
    reported = None
except tw.errors.SetupError as error:
    reported = str(error)
print(json.dumps(reported))
"""


class Context:
    """What is asked of Spark's context."""

    master = "local[2]"
    _python_includes: tuple[str, ...] = ()

    def __init__(self, executable: str) -> None:
        self.pythonExec = executable
        self.applicationId = f"test of {executable}"

    def getConf(self) -> dict[str, str]:
        return {}


def session(executable: object) -> SimpleNamespace:
    return SimpleNamespace(_sc=Context(str(executable)))


@pytest.fixture
def other_python(tmp_path):
    """A Python of the same version in which nothing is installed."""
    venv.create(tmp_path / "bare", with_pip=False)
    return tmp_path / "bare" / "bin" / "python"


def test_a_python_without_the_packages_is_refused(other_python, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(SetupError) as refused:
        check_workers(session(other_python))
    reported = str(refused.value)
    assert f"Spark's workers run {other_python}, which does not find the package tidewheel" in reported
    assert f"export PYSPARK_PYTHON={sys.executable}" in reported


def test_a_python_of_another_version_is_refused(tmp_path):
    script = tmp_path / "python9.9"
    script.write_text("#!/bin/sh\necho 9.9\n")
    script.chmod(0o755)
    with pytest.raises(SetupError, match=r"python9\.9, which is Python 9\.9, and this is 3\.\d+"):
        check_workers(session(script))


def test_a_python_that_is_not_there_or_does_not_run_is_refused(tmp_path):
    with pytest.raises(SetupError, match="no-such-python, which is not there"):
        check_workers(session("no-such-python"))
    script = tmp_path / "broken"
    script.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    script.chmod(0o755)
    with pytest.raises(SetupError, match="which does not run: out of order"):
        check_workers(session(script))


def test_one_answer_is_enough_for_a_session(monkeypatch):
    asked = []
    monkeypatch.setattr(worker_python, "_looked_at", lambda context, executable: asked.append(executable) or True)
    for _ in range(3):
        check_workers(session("python-of-one-session"))
    assert asked == ["python-of-one-session"]


def test_a_worker_itself_can_be_asked(spark):
    worker_python._check_on_worker(spark, "python")


@pytest.mark.long
def test_a_session_of_ones_own_is_reported_before_the_first_batch(tmp_path, other_python):
    """That one with the packages is not reported is in `test_own_session.py`."""
    own = {"PYSPARK_PYTHON": str(other_python), "JAVA_HOME": str(find_java().home)}
    path = [os.path.dirname(os.path.dirname(sys.modules["tidewheel"].__file__ or "")), *sys.path]
    program = f"import sys; sys.path[:0] = {path!r}\n{PROGRAM}"
    environment = {**os.environ, **own}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout.splitlines()[-1])
    assert f"Spark's workers run {other_python}, which does not find the package" in reported
    assert "Traceback" not in done.stderr
