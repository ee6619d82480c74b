"""Jobs' files may import modules and packages beside them, and so may Spark's workers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap

import pytest
from pyspark import cloudpickle

import tidewheel as tw
from tests.engine.engine_data import positions
from tests.engine.topic_frames import values
from tidewheel.engine.execution.map_side_reader import MapSideReader
from tidewheel.engine.jobs.batch import run_batch
from tidewheel.engine.jobs.discovery import find_jobs, jobs_of_file
from tidewheel.engine.spark import neighbour_modules
from tidewheel.errors import DefinitionError
from tidewheel.transport.events import codec, event_pb2
from tidewheel.transport.events.event_pb2 import Punctuation
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.topics.types import load_types

INPUT = "input.vehicle-position"


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    for source in neighbour_modules.known_modules():
        sys.modules.pop(source.name, None)
    neighbour_modules._known.clear()


def written(folder, **files):
    for name, text in files.items():
        path = folder / (name.replace("__in__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder / "my_jobs.py"


JOBS = """
    import polars as pl
    import tw_helpers
    from tw_shapes.round import doubled
    import tidewheel as tw
    from tidewheel_transit.transit_pb2 import VehiclePosition

    def scored(events, state, clock):
        from tw_lazy import FACTOR                     # not before a worker has rows
        return events.select("vehicle", "event_time", score=pl.lit(tw_helpers.score(FACTOR), pl.Int64)), state

    @tw.job("scores", reads={"input.vehicle-position": VehiclePosition})
    def scores(rows: tw.Stream) -> tw.Result:
        reported = {"vehicle": pl.Int32, "event_time": pl.Datetime("us", "UTC"), "score": pl.Int64}
        return rows.key_by("vehicle").process(scored, schema=reported)

    @tw.job("pairs", reads={"input.vehicle-position": VehiclePosition})
    def pairs(rows: tw.Stream) -> tw.Result:
        return rows.window(tw.windows.custom(doubled, name="doubled")).aggregate(n=tw.agg.count())
    """
NEIGHBOURS = {
    "tw_helpers": """
        import threading
        from tw_shapes import SIDE
        LOCK = threading.Lock()                        # nothing that could be sent to a worker

        def score(factor):
            with LOCK:
                return 7 * factor * SIDE
        """,
    "tw_lazy": "FACTOR = 3",
    "tw_shapes__in____init__": "SIDE = 2",
    "tw_shapes__in__round": """
        from . import SIDE
        from .deep.length import TEN

        def doubled(time):
            start = time - time % (SIDE * TEN)
            return [(start, start + SIDE * TEN)]
        """,
    "tw_shapes__in__deep__in__length": "TEN = 10_000_000",
}


def results(log, topic):
    known = TypeRegistry()  # the types of the results are the log's own
    known.register(event_pb2)
    load_types(log, known)
    messages = [codec.unpack(codec.decode(value), registry=known) for value in values(log, topic)]
    return [message for message in messages if not isinstance(message, Punctuation)]


def test_jobs_import_what_is_beside_their_file_also_in_workers(spark, log, tmp_path):
    found = jobs_of_file(written(tmp_path, my_jobs=JOBS, **NEIGHBOURS))
    # What is edited while it runs is not the job that was started.
    written(tmp_path, tw_helpers="def score(factor): return -1", tw_lazy="FACTOR = 'changed'")
    log.append(INPUT, positions(range(40)))
    mine = [found["scores"], found["pairs"]]
    tw.run(*mine, log=log, checkpoint=tmp_path / "c", spark=spark, available_now=True).wait()
    # The watermark is a second behind the last one.
    assert {message.score for message in results(log, "analytics.scores")} == {7 * 3 * 2}
    assert len(results(log, "analytics.scores")) == 38
    assert [message.n for message in results(log, "analytics.pairs")] == [20]
    run_batch(*(job.on(log).named(f"{job.name}.batch") for job in mine), log=log, spark=spark)
    assert [message.score for message in results(log, "analytics.scores.batch")] == [42] * 40
    assert sum(message.n for message in results(log, "analytics.pairs.batch")) == 40


def test_who_gets_a_job_s_functions_needs_neither_the_folder_nor_what_was_imported(log, tmp_path):
    found = jobs_of_file(written(tmp_path / "jobs", my_jobs=JOBS, **NEIGHBOURS))
    reader = MapSideReader([found["scores"].on(log).flow()], 1)
    (tmp_path / "reader").write_bytes(cloudpickle.dumps(reader))
    shutil.rmtree(tmp_path / "jobs")
    code = f"""if True:
        import pickle, sys
        import polars as pl
        reader = pickle.load(open({str(tmp_path / "reader")!r}, "rb"))
        (function,) = (flow.stages[0].operation.process.function for flow in reader._flows)
        rows, _ = function(pl.DataFrame({{"vehicle": [1], "event_time": [2]}}), None, None)
        print(rows["score"].to_list(), sys.modules["tw_lazy"].__file__)
        """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"[42] {tmp_path / 'jobs' / 'tw_lazy.py'}\n", done.stderr


ONE = """
    import tidewheel as tw
    from {module} import NAME

    @tw.job(NAME, reads="input.arrival")
    def mine(rows: tw.Stream) -> tw.Result:
        return rows.each_row()
    """


def test_two_folders_with_modules_of_one_name_are_refused(tmp_path):
    text = ONE.format(module="tw_names")
    one = written(tmp_path / "one", my_jobs=text, tw_names="NAME = 'one'")
    two = written(tmp_path / "two", my_jobs=text, tw_names="NAME = 'two'")
    assert [job.name for job in find_jobs([str(one)])] == ["one"]
    with pytest.raises(DefinitionError, match=r"two/my_jobs.py imports tw_names.* has .*one/tw_names.py beside it"):
        find_jobs([str(one), str(two)])
    assert [job.name for job in find_jobs([str(one)])] == ["one"]


def test_a_file_that_was_edited_is_loaded_anew(tmp_path):
    file = written(tmp_path, my_jobs=ONE.format(module="tw_names"), tw_names="NAME = 'one'")
    assert [*jobs_of_file(file)] == ["one"]
    written(tmp_path, tw_names="NAME = 'two'")
    assert [*jobs_of_file(file)] == ["two"]


@pytest.mark.parametrize("module", ["statistics", "msgspec", "sys"])
def test_a_neighbour_is_not_called_like_another_module(tmp_path, module):
    file = written(tmp_path, my_jobs=ONE.format(module=module), **{module: "NAME = 'mine'"})
    with pytest.raises(DefinitionError, match=rf"imports {module}, and {module}.py is beside it; .*also the name of"):
        jobs_of_file(file)


def test_what_nobody_imports_is_left_alone_and_folders_hide_no_packages(tmp_path):
    files = {"statistics": "broken = 1 / 0", "tidewheel__in__hatch_build": "1 / 0", "tw_names": "NAME = 'mine'"}
    assert [*jobs_of_file(written(tmp_path, my_jobs=ONE.format(module="tw_names"), **files))] == ["mine"]
    assert [source.name for source in neighbour_modules.known_modules()] == ["tw_names"]


def test_a_fault_in_a_neighbour_is_reported(tmp_path):
    file = written(tmp_path, my_jobs=ONE.format(module="tw_names"), tw_names="NAME = 1 / 0")
    with pytest.raises(DefinitionError, match=r"my_jobs.py cannot be loaded: ZeroDivisionError") as reported:
        jobs_of_file(file)
    trace = reported.value.__cause__.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    assert trace.tb_frame.f_code.co_filename == str(tmp_path / "tw_names.py")
    written(tmp_path, tw_names="NAME = (")
    with pytest.raises(DefinitionError, match=r"my_jobs.py cannot be loaded: SyntaxError: .*tw_names.py"):
        jobs_of_file(file)
