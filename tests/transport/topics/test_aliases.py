"""Names that stand for topics."""

from __future__ import annotations

import pytest

from tidewheel.errors import DefinitionError, TopicNotFoundError
from tidewheel.topic_names import ALIASES_TOPIC
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.aliases import Aliases


@pytest.fixture
def log(tmp_path):
    with open_log(tmp_path / "test.tw") as log:
        for topic in ("analytics.x", "analytics.x.v2"):
            log.append(topic, records([b"..."]))
        yield log


def test_a_name_stands_for_its_own_topic_until_it_is_switched(log):
    aliases = Aliases(log)
    assert aliases.topic("analytics.x") == "analytics.x"
    assert aliases.switch("analytics.x", "analytics.x.v2") == "analytics.x"
    assert aliases.topic("analytics.x") == "analytics.x.v2"
    assert aliases.all() == {"analytics.x": "analytics.x.v2"}
    assert aliases.switch("analytics.x", "analytics.x") == "analytics.x.v2"
    assert aliases.topic("analytics.x") == "analytics.x"
    assert aliases.all() == {}


def test_every_process_sees_a_switch_which_is_one_record(log):
    Aliases(log).switch("live", "analytics.x.v2")
    Aliases(log).switch("live", "analytics.x.v2")  # nothing changes, nothing is written
    assert log.topic_info(ALIASES_TOPIC).count == 1
    with open_log(log.address) as other:
        assert Aliases(other).topic("live") == "analytics.x.v2"


def test_after_compaction_the_last_switch_counts(log):
    for topic in ("analytics.x.v2", "analytics.x", "analytics.x.v2"):
        Aliases(log).switch("live", topic)
    log.append(ALIASES_TOPIC, records([b"no event"]))
    log.maintain()
    assert Aliases(log).topic("live") == "analytics.x.v2"


def test_what_makes_no_sense_is_refused(log):
    with pytest.raises(TopicNotFoundError, match=r"analytics.x.v3"):
        Aliases(log).switch("analytics.x", "analytics.x.v3")
    with pytest.raises(DefinitionError, match="a topic's name is"):
        Aliases(log).switch("a b", "analytics.x")
