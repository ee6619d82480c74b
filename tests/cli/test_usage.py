"""A request that cannot be met is reported in one line, with an exit code that a script can use."""

from __future__ import annotations

import pytest

from tests.support.command import tidewheel

HFP = ["ingest", "--mqtt", "localhost", "--processor", "hfp"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["dmo"], 2, "No such command 'dmo'"),
        (["run", "vehicle-cel"], 2, "no job 'vehicle-cel'; did you mean 'vehicle-cell'? There are: bunching"),
        (["run", "vehicle-cell", "--resolutoin", "8"], 2, "--resolutoin"),
        (["run", "vehicle-cell", "--resolution", "fine"], 2, "Invalid value for '--resolution'"),
        (["run", "vehicle-cell", "--from", "yesterday"], 2, "must be ISO text"),
        (["run", "vehicle-cell", "vehicle-cell"], 2, "the job 'vehicle-cell' is named twice"),
        (["run", "none.py"], 2, "there is no file none.py"),
        (["run", "vehicle-cell", "--config", "none.toml"], 2, "the configuration none.toml cannot be read"),
        (
            ["run", "vehicle-cell", "--input", "city.archive"],
            2,
            "archives and recordings are read as a batch: add --batch",
        ),
        (["run", "vehicle-cell", "--batch", "--input", "no.jsonl"], 2, "nor a recording (a file) no.jsonl"),
        (
            ["run", "vehicle-cell", "--batch", "--input", "notes.txt"],
            2,
            "notes.txt is no recording: notes.txt:1 not a line",
        ),
        (
            ["run", "vehicle-cell", "--batch", "--input", ".", "--input", "notes.txt"],
            2,
            "name one archive, or one or more",
        ),
        (
            ["run", "vehicle-cell", "--batch", "--processor", "hfp"],
            2,
            "reads the messages of recordings: name one with",
        ),
        (["run", "vehicle-cell", "--batch", "--available-now"], 2, "makes no sense with --batch"),
        (["run", "vehicle-cell", "--results", "cells"], 2, "results go to a topic analytics.NAME"),
        (["run", "--al"], 2, "No such option: --al"),
        (["compare", "a", "b", "--log", "none.tw"], 2, "there is no log none.tw"),
        (["switch", "a", "--log", "tidewheel.tw"], 2, "there is no log tidewheel.tw"),
        (["archive", "--to", "city.archive", "--log", "none.tw"], 2, "there is no log none.tw"),
        (["demo", "--for", "soon"], 2, "duration must be text like"),
        (["demo", "--for", "0s"], 2, "must be longer than 0 s"),
        (["simulate", "--speed", "fast"], 2, 'must be a number above 0, or "max"'),
        (["simulate", "--rate", "1000000", "--for", "1s"], 2, "rate must be between 1 and"),
        (["simulate", "--mqtt", "http://x"], 2, "an MQTT broker's address looks like"),
        (["simulate", "--speed", "max"], 2, "at speed max the simulation overtakes the clock"),
        (["simulate", "--speed", "2.5"], 2, "at speed 2.5 the simulation overtakes the clock"),
        (
            ["replay", "notes.txt", "--processor", "hfp", "--now", "--speed", "max"],
            2,
            "runs at speed max overtakes the clock",
        ),
        (["replay", "missing.jsonl", "--processor", "hfp"], 2, "there is no recording missing.jsonl"),
        (["replay", "missing.jsonl"], 2, "which processor reads the messages? Name it: --processor events|hfp|json"),
        (["ingest", "--http", "127.0.0.1:0"], 2, "which processor reads the messages? Name it: --processor events|hfp"),
        (["record", "--mqtt", "localhost", "--output", "x.jsonl"], 2, "which processor reads the messages?"),
        (
            ["replay", "x.jsonl", "--processor", "hpf"],
            2,
            "no processor 'hpf'; did you mean 'hfp'? There are: events, hfp",
        ),
        (["ingest"], 2, "nothing to bring messages from: give --mqtt ADDRESS, --http HOST:PORT, or both"),
        (
            ["ingest", "--http", "8090", "--processor", "hfp"],
            2,
            "--http needs an address such as 127.0.0.1:8090, got '8090'",
        ),
        (
            ["ingest", "--http", "0.0.0.0:0", "--processor", "hfp"],
            2,
            "listen on 127.0.0.1, or say that all may write (--without-token)",
        ),
        (
            ["ingest", "--http", "127.0.0.1:0", "--processor", "events", "--option", "modes=bus"],
            2,
            "processor events has no option 'modes'; there are: subscriptions, max_topics",
        ),
        (["ingest", "--http", "127.0.0.1:0", "--processor", "json"], 2, "processor json needs --topic and --time"),
        (["ingest", "--http", "127.0.0.1:0", "--processor", "hfp", "--time", "ts"], 2, "processor hfp takes no --time"),
        (
            ["ingest", "--http", "127.0.0.1:0", "--processor", "json", "--field", "x"],
            2,
            "such as amount=double, got 'x'",
        ),
        (
            ["ingest", "--mqtt", "localhost", "--processor", "hfp", "--certificate-key", "x.key"],
            2,
            "give it too, with --certificate FILE",
        ),
        ([*HFP, "--option", "modes=boat"], 2, "unknown mode 'boat'"),
        ([*HFP, "--option", "modes"], 2, "--option needs a name and a value, such as part=north, got 'modes'"),
        ([*HFP, "--option", "speed=3"], 2, "processor hfp has no option 'speed'; there are: modes, operators, events"),
        ([*HFP, "--option", "operators=x"], 2, "--option operators=x: the processor hfp wants a whole number there"),
        ([*HFP, "--option", "deadruns=perhaps"], 2, "the processor hfp wants yes or no there"),
        ([*HFP, *2 * ["--option", "deadruns=no"]], 2, "--option deadruns is given twice; the processor hfp takes one"),
        (["record", "--mqtt", "localhost", "--output", "no/where.jsonl"], 2, "the folder no of the recording"),
        (["topics", "--log", "none.tw"], 2, "there is no log none.tw"),
        (["tail", "input.arrival", "--log", "none.tw"], 2, "there is no log none.tw"),
        (["simulate", "--for", "1s", "--log", "no/where.tw"], 1, "the folder"),
        (["simulate", "--for", "1s", "--log", "notes.txt"], 1, "is not a Tidewheel log"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_reported_in_one_line(arguments, code, text, tmp_path, inside, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("milk, bread, and a second line\n" * 10)
    done = inside(*arguments, code=code)
    said = " ".join(done.stderr.replace("│", " ").split())
    assert text in said
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert {path.name for path in tmp_path.iterdir()} <= {"notes.txt", "tidewheel.tw"}


def test_a_missing_topic_comes_with_a_guess(small_log):
    said = tidewheel("tail", "input.arival", "--log", small_log, code=2).stderr
    assert "no topic 'input.arival'; did you mean 'input.arrival'?" in said
    assert len(said.splitlines()) == 1


def test_debug_shows_where_an_error_comes_from(small_log):
    said = tidewheel("--debug", "tail", "input.arival", "--log", small_log, code=2).stderr
    assert "Traceback" in said
    assert "did you mean 'input.arrival'?" in said


def test_the_log_is_that_of_the_environment_or_of_the_folder(small_log, tmp_path):
    assert "input.arrival" in tidewheel("topics", cwd=tmp_path, TIDEWHEEL_LOG=str(small_log)).stdout
    assert "no log tidewheel.tw" in tidewheel("topics", cwd=tmp_path, code=2).stderr
    small_log.rename(tmp_path / "tidewheel.tw")
    assert "input.arrival" in tidewheel("topics", cwd=tmp_path).stdout


def test_a_spark_that_was_there_before_is_there_after_a_command(spark, tmp_path, inside, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside("run", "vehicle-cell", "--results", "cells", code=2)
    assert spark.range(3).count() == 3
