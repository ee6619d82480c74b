"""`topics` also limits what is kept, deletes topics, and forgets groups; what is still read is not deleted."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.command import COMMAND, PATIENCE, environment, lines
from tidewheel.model.time import now
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.aliases import Aliases


@pytest.fixture
def log_path(tmp_path):
    """Two topics, each with a record of two hours ago and one of now, and a compacted one."""
    clock = [now() - 7_200_000_000]
    with open_log(tmp_path / "log.tw", clock=lambda: clock[0]) as log:
        log.create_topic("notes", compact=True)
        for _ in range(2):
            log.append("input.a", records([b"x"]))
            log.append("input.b", records([b"x"]))
            clock[0] = now()
        log.append("notes", records([b"x"], keys=[b"k"]))
    return tmp_path / "log.tw"


def counts(path):
    with open_log(path) as log:
        return {info.name: info.count for info in log.topics()}


def retention(path, topic):
    with open_log(path) as log:
        return log.topic_info(topic).retention


def test_an_age_is_set_and_what_is_older_leaves_at_once(log_path, inside):
    said = inside("topics", "input.*", "--keep", "1h", "--log", log_path).stdout
    assert "input.a keeps 1 h: 1 of 2 records left" in said
    assert counts(log_path) == {"input.a": 1, "input.b": 1, "notes": 1}
    assert retention(log_path, "input.a") == retention(log_path, "input.b") == Retention(age=3_600_000_000)
    assert retention(log_path, "notes") == Retention()


def test_the_list_shows_what_is_kept(log_path, inside):
    inside("topics", "input.a", "--keep", "3h", "--keep", "1.5MB", "--log", log_path)
    assert retention(log_path, "input.a") == Retention(age=10_800_000_000, size=1_500_000)
    (found,) = lines(inside("topics", "--json", "--log", log_path))
    kept = {topic["topic"]: (topic["keep_seconds"], topic["keep_bytes"]) for topic in found["topics"]}
    assert kept == {"input.a": (10_800, 1_500_000), "input.b": (None, None), "notes": (None, None)}
    assert "3 h, 1.4 MiB" in inside("topics", "--log", log_path).stdout


def test_all_is_kept_again(log_path, inside):
    inside("topics", "notes", "--keep", "2GiB", "--log", log_path)
    assert retention(log_path, "notes") == Retention(size=2 << 30)
    assert "notes keeps all" in inside("topics", "notes", "--keep", "all", "--log", log_path).stdout
    with open_log(log_path) as log:
        assert (log.topic_info("notes").retention, log.topic_info("notes").compact) == (Retention(), True)


@pytest.mark.parametrize("limit", ["much", "0s", "-1h", "0MB", "5"])
def test_a_limit_that_makes_no_sense_is_refused(log_path, inside, limit):
    said = inside("topics", "input.a", "--keep", "1h", f"--keep={limit}", "--log", log_path, code=2).stderr
    assert "1h, 7d, 500MB, 2GiB or all" in " ".join(said.replace("│", " ").split())


@pytest.mark.parametrize("change", [["--delete", "--yes"], ["--keep", "1h"]])
def test_a_change_needs_to_know_of_which_topics(log_path, inside, change):
    said = inside("topics", *change, "--log", log_path, code=2).stderr
    assert "name the topics" in " ".join(said.split())
    said = inside("topics", "input.c", *change, "--log", log_path, code=2).stderr
    assert "no topic 'input.c'; did you mean" in said
    said = inside("topics", "analytics.*", *change, "--log", log_path, code=2).stderr
    assert "no topic 'analytics.*'" in said
    with open_log(log_path) as log:
        log.create_topic("__types", compact=True)
    said = inside("topics", "__types", *change, "--log", log_path, code=2).stderr
    assert "__types is the log's own" in said
    assert counts(log_path) == {"input.a": 2, "input.b": 2, "notes": 1, "__types": 0}


def test_names_choose_what_is_listed(log_path, inside):
    with open_log(log_path) as log:
        log.commit("reader", {("input.a", 0): 1})
        log.commit("other", {("input.b", 0): 1})
    (found,) = lines(inside("topics", "input.a", "not*", "--json", "--log", log_path))
    assert [topic["topic"] for topic in found["topics"]] == ["input.a", "notes"]
    assert [group["group"] for group in found["groups"]] == ["reader"]


def test_a_topic_is_deleted(log_path, inside):
    said = inside("topics", "input.a", "--delete", "--yes", "--log", log_path).stdout
    assert said == "deleted input.a: 2 records\n"
    assert counts(log_path) == {"input.b": 2, "notes": 1}
    assert lines(inside("topics", "notes", "--delete", "--yes", "--json", "--log", log_path)) == [{"deleted": "notes"}]


def test_nothing_is_deleted_unasked(log_path, inside):
    said = inside("topics", "input.*", "--delete", "--log", log_path, code=2).stderr
    assert "--yes" in said
    assert counts(log_path)["input.a"] == 2


@pytest.mark.parametrize(("answer", "left"), [("y", {"notes"}), ("n", {"input.a", "input.b", "notes"})])
def test_the_question_is_asked_once_for_all_and_respected(log_path, answer, left):
    here, there = os.openpty()
    arguments = ["topics", "input.*", "--delete", "--log", log_path]
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=environment(),
        stdin=there,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        os.write(here, f"{answer}\n".encode())
        said, _ = process.communicate(timeout=PATIENCE)
    os.close(here)
    os.close(there)
    assert "delete input.a and input.b with their 4 records?" in said
    assert process.returncode == (0 if answer == "y" else 1)
    assert {*counts(log_path)} == left


def test_what_a_group_reads_is_not_deleted_before_the_group_is_forgotten(log_path, inside):
    with open_log(log_path) as log:
        log.commit("counting", {("input.a", 0): 1})
    said = inside("topics", "input.*", "--delete", "--yes", "--log", log_path, code=2).stderr
    assert "input.a is read by the group counting" in said
    assert "tidewheel topics --forget counting" in said
    assert {"input.a", "input.b"} <= {*counts(log_path)}, "all or nothing"
    assert "forgot counting" in inside("topics", "--forget", "counting", "--yes", "--log", log_path).stdout
    inside("topics", "input.*", "--delete", "--yes", "--log", log_path)
    assert {*counts(log_path)} == {"notes"}


def test_what_a_name_stands_for_is_not_deleted(log_path, inside):
    with open_log(log_path) as log:
        Aliases(log).switch("analytics.x", "input.a")
    said = inside("topics", "input.a", "--delete", "--yes", "--log", log_path, code=2).stderr
    assert "input.a is what analytics.x stands for" in said
    assert "tidewheel switch analytics.x" in said


def test_a_group_that_is_not_there_is_reported(log_path, inside):
    with open_log(log_path) as log:
        log.commit("counting", {("input.a", 0): 1})
    said = inside("topics", "--forget", "countin", "--yes", "--log", log_path, code=2).stderr
    assert "no group 'countin'" in said
    assert "counting" in said


def test_changes_come_one_at_a_time(log_path, inside):
    said = inside("topics", "input.a", "--delete", "--keep", "1h", "--log", log_path, code=2).stderr
    assert "one of" in " ".join(said.split())
