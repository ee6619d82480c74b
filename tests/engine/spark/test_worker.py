"""What Spark's Python worker keep between batches."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

_SCRIPT = """
import resource, sys
from tidewheel.engine.spark import worker

if sys.argv[1] == "keeps":
    worker._keep_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def batch():
    return [b"x" * (16 << 20) for _ in range(4)]

batch()
before = faults()
batch()
print(faults() - before)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library of Linux has mallopt, this has not"
)
def test_a_batch_takes_the_memory_that_the_one_before_it_needed():
    def pages(how):
        done = subprocess.run([sys.executable, "-c", _SCRIPT, how], check=True, capture_output=True, text=True)
        return int(done.stdout)

    whole = 4 * (16 << 20) // 4096
    assert pages("keeps") < whole / 10
    assert pages("lets go") > whole / 2, "what the C library does by itself has changed: is this still needed?"


def test_workers_settle_with_their_memory_kept(spark):
    def reported(batches):
        from tidewheel.engine.spark import worker

        kept = []
        worker._keep_memory = lambda: kept.append(True)
        worker._warm = False
        worker.warm_worker()
        worker.warm_worker()
        for batch in batches:
            yield batch.set_column(0, "id", [len(kept)])

    assert [row.id for row in spark.range(1).mapInArrow(reported, "id BIGINT").collect()] == [1]


def test_workers_do_not_import_pandas_by_themselves(spark):
    def reported(batches):
        import sys

        before = "pandas" in sys.modules  # a task of somebody else may have asked for it in this worker
        import pyarrow as pa

        import tidewheel.engine.spark.worker  # noqa: F401  (what every task of a query of ours imports)

        for batch in batches:
            pa.array([1])
            yield batch.set_column(0, "id", [int("pandas" in sys.modules and not before)])

    assert [row.id for row in spark.range(1).mapInArrow(reported, "id BIGINT").collect()] == [0]
