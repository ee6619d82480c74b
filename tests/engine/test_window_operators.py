"""The operators in columns against the reference interpreter, on generated windowings and scripts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from windowing_cases import on_operator, on_reference, scripts, windowings

from tidewheel.model import triggers as tr
from tidewheel.model import windows as wn


@settings(max_examples=400, deadline=None)
@given(windowing=windowings(), script=scripts(), parts=st.integers(1, 3))
def test_every_window_and_trigger_gives_the_panes_of_the_reference(windowing, script, parts):
    assert on_operator(windowing, script, cut=lambda rows: parts) == on_reference(windowing, script)


@settings(max_examples=200, deadline=None)
@given(
    windowing=windowings(
        triggers=st.sampled_from([tr.default(), tr.after_watermark(late=tr.each_batch())]),
        windows=st.builds(
            lambda every, more: wn.sliding(every + more, every=every), st.integers(1, 6), st.integers(0, 20)
        ),
    ),
    script=scripts(odd_times=False),
)
def test_slices_give_the_panes_of_the_reference(windowing, script):
    assert on_operator(windowing, script) == on_reference(windowing, script)
