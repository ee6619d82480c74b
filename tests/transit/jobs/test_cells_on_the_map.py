"""What the live map shows of cells that lose their last vehicle."""

from __future__ import annotations

import pytest

from tests.transit.jobs.job_cases import BEGIN, run_job
from tests.transit.jobs.job_oracles import SECOND
from tidewheel.serve.view.decode import Decoder, prepared
from tidewheel.serve.view.view import LayerView
from tidewheel.transport.events.codec import encode_columns
from tidewheel.transport.events.registry import types
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel_transit import jobs
from tidewheel_transit.layers import LAYERS
from tidewheel_transit.transit_pb2 import VehicleCount

LAYER = next(layer for layer in LAYERS if layer.topic == jobs.vehicle_distribution.topic)
HERE = {"operator": 1, "vehicle": 7, "lat": 60.1700, "lon": 24.9400, "journey": "journey"}
THERE = HERE | {"lat": 60.1800}


@pytest.mark.parametrize("mode", ["value", "retracting"])
def test_a_cell_that_a_late_position_leaves_without_vehicles_is_gone(tmp_path, mode):
    mark = BEGIN + 12 * SECOND
    batches = [
        ([HERE | {"event_time": BEGIN + 2 * SECOND}], mark),
        ([THERE | {"event_time": BEGIN + 8 * SECOND}], mark),
    ]
    found = run_job(jobs.vehicle_distribution, batches, size="10 s", every="10 s", mode=mode)["results"]
    names = list(VehicleCount.DESCRIPTOR.fields_by_name)
    view, decode, shown = LayerView(LAYER), Decoder(types), []
    with open_log(tmp_path / "city.tw", clock=lambda: mark) as log:
        for row in found.iter_slices(1):
            times = row["event_time"].to_arrow()
            values = encode_columns(VehicleCount, row.select(names), event_time=times)
            log.append(LAYER.topic, records(values, keys=[str(row["cell"][0]).encode()], event_times=times))
        for batch in log.read(LAYER.topic, 0, 0):
            for frame in decode(batch).frames:
                for row in prepared(LAYER, frame).iter_slices(1):
                    view.apply(row, now=mark)
                    shown.append({*view.items})
    assert [len(keys) for keys in shown] in ([1, 0, 1], [1, 2, 1])
    assert shown[0] != shown[-1], "the vehicle is in the other cell now"
