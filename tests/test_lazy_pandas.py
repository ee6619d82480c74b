"""pyarrow does without pandas until somebody needs it, and then knows it as always."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import sys, threading
from tidewheel.lazy_pandas import defer_pandas
defer_pandas()
import pyarrow as pa
assert pa.array([1, None]).null_count == 1
assert "pandas" not in sys.modules
"""
LATER = """
import numpy as np
import pandas as pd
assert pa.array(pd.Series([1.0, np.nan])).null_count == 1  # a list of floats would have none
assert pa.Table.from_pandas(pd.DataFrame({"x": [1, 2]})).to_pandas()["x"].sum() == 3
assert pd.__spec__.loader is pd.__loader__ and type(pd.__loader__).__name__ == "SourceFileLoader"
"""


def run(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    "then",
    [
        LATER,
        'assert pa.table({"x": [1]}).to_pandas()["x"].sum() == 1\n' + LATER,
        "defer_pandas()\n" + LATER,
    ],
    ids=["imported by another", "asked for by name", "deferred twice"],
)
def test_pandas_is_known_from_its_import_on(then):
    run(BEGIN + then)


def test_a_program_that_has_pandas_already_is_left_alone():
    run(
        "import pandas\nimport sys\nbefore = list(sys.meta_path)\n"
        + BEGIN.splitlines()[2]
        + """
defer_pandas()
assert sys.meta_path == before
import pyarrow as pa
"""
        + LATER
    )


def test_a_program_without_pandas_does_without():
    run("""
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError("it is not installed", name=name)
sys.meta_path.insert(0, Without())
from tidewheel.lazy_pandas import defer_pandas
defer_pandas()
import pyarrow as pa
assert pa.array([1]).to_pylist() == [1]
try:
    import pandas
except ModuleNotFoundError as error:
    assert "it is not installed" in str(error)
else:
    raise AssertionError("pandas was found")
""")
