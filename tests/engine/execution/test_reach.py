"""A log in a file is for Spark on the same machine."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from tests.engine.engine_data import positions
from tidewheel.engine.execution.session import check_reach
from tidewheel.errors import SetupError
from tidewheel.java import find_java

PROGRAM = """
import json, sys
import tidewheel as tw
from tidewheel_transit.transit_pb2 import VehiclePosition
from tidewheel.engine.jobs.batch import run_batch
from tidewheel.errors import SetupError

spark = tw.session(master=sys.argv[2])
log = tw.open_log(sys.argv[1])
counts = tw.stream(log, "input.vehicle-position").key_by("mode").window(tw.windows.tumbling("10 s"))
counts = counts.aggregate(n=tw.agg.count()).named("counts")

def refusal(what):
    try:
        what()
    except SetupError as error:
        return str(error)

common = {"log": log, "spark": spark}
frame = {"name": "copy", "reads": {"input.vehicle-position": VehiclePosition}, "writes": VehiclePosition}
print(json.dumps([
    refusal(lambda: tw.run(counts, checkpoint=sys.argv[3], **common)),
    refusal(lambda: counts.df(spark=spark)),
    refusal(lambda: run_batch(counts, **common)),
    refusal(lambda: tw.run_dataframe(lambda rows: rows, checkpoint=sys.argv[3], **frame, **common)),
]))
"""


@pytest.fixture
def master(tmp_path):
    """The address of a master that is known by the name of this machine, as workers elsewhere would know it."""
    command = [Path(pyspark.__path__[0]) / "bin" / "spark-class", "org.apache.spark.deploy.master.Master"]
    where = ["--host", socket.gethostname(), "--port", "0", "--webui-port", "0"]
    own = {"JAVA_HOME": str(find_java().home), "SPARK_LOG_DIR": str(tmp_path)}
    with subprocess.Popen(
        [*command, *where], env={**os.environ, **own}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stderr is not None
            said = iter(process.stderr.readline, "")
            yield next(found[0] for line in said if (found := re.search(r"spark://\S+:\d+", line)))
        finally:
            process.kill()


@pytest.mark.long
def test_a_file_is_refused_where_tasks_run_on_other_machines(master, log, tmp_path):
    log.append("input.vehicle-position", positions(range(3)))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, log.address, master, str(tmp_path / "checkpoint")],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for refusal in json.loads(done.stdout.splitlines()[-1]):
        assert f"the log {log.address} is a file on this machine" in refusal
        assert f"Spark's master {master} runs tasks on others" in refusal
    assert not (tmp_path / "checkpoint" / "spark").exists()


@pytest.mark.parametrize(
    ("master", "here"),
    [
        *((master, True) for master in ("local", "local[2]", "local[*]", "local-cluster[2,1,1024]")),
        *((master, True) for master in ("spark://localhost:7077", "spark://127.0.0.1:7077")),
        *((master, False) for master in ("spark://localhost.example:7077", "yarn", "k8s://https://10.0.0.1:6443")),
    ],
)
def test_masters_are_distinguished_by_where_their_tasks_run(master, here, log):
    spark = SimpleNamespace(conf={"spark.master": master})
    if here:
        check_reach(spark, log)
    else:
        with pytest.raises(SetupError, match="runs tasks on others"):
            check_reach(spark, log)
