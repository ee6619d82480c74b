from __future__ import annotations

from tidewheel_transit.topics import EVENTS, TOPICS

STOPS = {"due", "arr", "ars", "pde", "dep", "pas", "wait"}
SIGN_INS = {"da", "dout", "ba", "bout", "vja", "vjout"}


def test_every_event_type_of_hfp_has_one_home() -> None:
    assert set(EVENTS) == {"vp", "doo", "doc", "tlr", "tla"} | STOPS | SIGN_INS
    assert {home.topic for home in EVENTS.values()} == set(TOPICS)
    assert all(TOPICS[home.topic] is home.message for home in EVENTS.values())


def test_every_topic_has_a_message_type_of_its_own() -> None:
    assert len(set(TOPICS.values())) == len(TOPICS) == 6
