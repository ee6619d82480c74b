"""How streams and results look: a line of text, the graph as a picture and as Mermaid, and HTML without surprises."""

from __future__ import annotations

import functools
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import polars as pl
import pytest

import tidewheel as tw
from tidewheel.engine.streams.explain.graph import Graph, Operator, Step
from tidewheel.engine.streams.explain.mermaid import mermaid
from tidewheel.engine.streams.explain.svg import svg
from tidewheel.errors import DefinitionError
from tidewheel_transit.transit_pb2 import VehiclePosition

EVIL = '<script>alert("x")</script> & <b>'
SVG = "{http://www.w3.org/2000/svg}"


class _Elements(HTMLParser):
    """The elements and the text of HTML."""

    def __init__(self, text):
        super().__init__()
        self.names, self.text = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def positions(log):
    return tw.stream(log, "input.vehicle-position", type=VehiclePosition)


@pytest.fixture
def chained(positions):
    return (
        positions.filter(pl.col("route") != EVIL)
        .with_columns(cell=tw.geo.cell("lat", "lon", resolution=9))
        .key_by("cell")
        .window(tw.windows.tumbling("10 s"), lateness="5 s")
        .accumulate("retracting")
        .aggregate(n=tw.agg.count())
        .window(tw.windows.tumbling("1 h"))
        .aggregate(n=tw.agg.sum("n"))
        .apart(many=pl.col("n") > 3)
        .named(EVIL)
    )


def test_a_line_says_what_it_is(positions):
    few = positions.select("vehicle", "speed")
    assert repr(few) == "<Stream over input.vehicle-position, 1 step: event_time, vehicle, speed>"
    assert repr(positions).endswith(" more>")
    assert len(repr(positions)) < 150
    keyed = few.key_by("vehicle")
    assert repr(keyed) == (
        "<KeyedStream over input.vehicle-position, 1 step, key_by(vehicle): event_time, vehicle, speed>"
    )
    windowed = keyed.window(tw.windows.tumbling("90 s"), lateness="5 s").accumulate("delta")
    assert repr(windowed) == (
        "<WindowedStream over input.vehicle-position, key_by(vehicle), window(tumbling('1 min 30 s'), lateness='5 s'), "
        "accumulate('delta'): event_time, vehicle, speed>"
    )
    result = keyed.each_row()
    assert repr(result) == "<Result over input.vehicle-position: event_time, vehicle, speed>"
    assert repr(result.named("all")) == "<Result all over input.vehicle-position: event_time, vehicle, speed>"


def test_a_notebook_shows_the_graph_and_what_comes_out_when(chained):
    shown = _Elements(chained._repr_html_())
    assert shown.names.count("svg") == 1
    assert "When: default(): a result in the batch" in shown.text
    assert "Outputs: results, many, late, late_2, metrics." in shown.text
    assert "bigint" in shown.text, "the types are those of a DataFrame"


def test_a_notebook_shows_what_a_stream_is_so_far(positions):
    keyed = positions.filter(pl.col("speed") > 3).key_by("route")
    windowed = keyed.window(tw.windows.session("30 s"))
    for what, last in [(positions, "watermark: "), (keyed, "key_by(route)"), (windowed, "window(session(gap='30 s'))")]:
        shown = _Elements(what._repr_html_())
        assert "nothing runs yet" in shown.text
        assert last in shown.text
        assert "headsign" in shown.text, "a column"


def test_what_comes_from_users_is_never_markup(chained):
    shown = _Elements(chained._repr_html_())
    assert {"script", "b"} & set(shown.names) == {"b"}
    assert shown.names.count("b") == 1, "our own"
    assert shown.text.count(EVIL) == 3, "in the heading, in the picture and in the text"
    ET.fromstring(chained.explain("svg"))


def texts(picture):
    return [element.text for element in ET.fromstring(picture).iter(f"{SVG}text")]


def test_the_picture_has_the_steps_what_spark_runs_and_the_outputs(chained):
    found = texts(chained.explain("svg"))
    operators = [text for text in found if text.startswith("Spark: ")]
    assert operators == [
        "Spark: the log's reader",
        "Spark: state operator 1 (transformWithState)",
        "Spark: state operator 2 (transformWithState)",
    ]
    assert found.count("shuffle by key group") == 2
    assert "key_by(cell)" in found
    assert found.index("key_by(cell)") < found.index(operators[1])
    assert {"results", "many", "late", "late_2", "metrics"} <= set(found)
    assert found.count("late") == 1


def test_the_picture_stays_in_its_frame():
    long = "word" * 100 + " " + "喝水" * 100
    graph = Graph((Operator("one", long, (Step(long, (long, ""), outputs=(long, "b")),)),), (long, "c" * 70, "d" * 70))
    picture = ET.fromstring(svg(graph))
    width, height = float(picture.get("width")), float(picture.get("height"))
    for box in picture.iter(f"{SVG}rect"):
        assert float(box.get("x")) + float(box.get("width")) <= width
        assert float(box.get("y")) + float(box.get("height")) <= height
    for text in picture.iter(f"{SVG}text"):
        assert len(text.text or "") < 100


def test_mermaid_has_the_same_graph_with_every_label_quoted(chained):
    lines = chained.explain("mermaid").splitlines()
    assert lines[0] == "flowchart TD"
    assert sum(line.startswith("  subgraph ") for line in lines) == lines.count("  end") == 3
    node = r"\w+(\[\(|\[|\(\[)\"[^\"]*\"(\)\]|\]|\]\))"
    link = r"\w+ (-->|-\.->)(\|\"[^\"]*\"\|)? \w+(\(\[\"[^\"]*\"\]\))?"
    subgraph = r"subgraph \w+\[\"[^\"]*\"\]"
    strange = [line for line in lines[1:] if not re.fullmatch(rf" *({node}|{link}|{subgraph}|end)", line)]
    assert strange == []
    assert sum("-->" in line for line in lines) == 8 + 3, "between nine steps, and to three outputs"
    assert [line for line in lines if "-.->" in line] == [
        '  step5 -.-> step5out0(["late"])',
        '  step7 -.-> step7out0(["late_2"])',
    ]
    assert "<script" not in "".join(lines)


def test_mermaid_takes_nothing_in_a_label_as_its_own():
    graph = Graph((Operator("a", "b", (Step('"`x` *y* _z_ a_b %%{init}%% #1; \\'),)),))
    [line] = [line for line in mermaid(graph).splitlines() if "step0" in line]
    reported = line.partition('["')[2].removesuffix('"]')
    assert not set('"`*%\\') & set(reported)
    assert re.sub(r"#(\d+);", lambda found: chr(int(found[1])), reported) == '"`x` *y* _z_ a_b %%{init}%% #1; \\'
    assert "a_b" in reported, "what is harmless stays readable"


def test_parallelism_is_reported_where_it_is_known(spark, chained, positions):
    assert any(re.match("\\d+ key groups?, a task each", text) for text in texts(chained.explain("svg")))
    rows = positions.key_by("vehicle").each_row()
    assert [text for text in texts(rows.explain("svg")) if text.startswith("Spark: ")] == ["Spark: the log's reader"]
    table = spark.range(3).selectExpr("id", "timestamp_seconds(id) AS at")
    counted = tw.stream(table, time="at").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
    found = texts(counted.explain("svg"))
    assert "a static DataFrame by at" in found
    assert "Spark: grouped by key group (applyInArrow)" in found
    key_groups = int(spark.conf.get("spark.sql.shuffle.partitions"))
    reported = "1 key group" if key_groups == 1 else f"{key_groups} key groups"
    assert f"{reported}, a task each (key_groups=); in memory, all rows at once" in found
    assert not any("with_columns" in text for text in found), "the user did not write it"
    endless = spark.readStream.format("rate").load()
    streaming = tw.stream(endless, time="timestamp").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
    assert "Spark: state operator (transformWithState)" in texts(streaming.explain("svg"))


def test_another_format_is_refused(chained):
    with pytest.raises(DefinitionError, match='the format is "text", "mermaid" or "svg", got \'png\''):
        chained.explain("png")


def passed_on(events, state, clock):
    """Each row as it is."""
    return events, state


class Passing:
    """The same as an object."""

    def __call__(self, events, state, clock):
        return events, state


@pytest.mark.parametrize("format", ["text", "mermaid", "svg"])
def test_nothing_internal_is_reported(log, positions, chained, format):
    keyed = positions.key_by("vehicle")
    python = pl.col("speed").map_batches(lambda values: values, return_dtype=pl.Float32)
    output = {"vehicle": pl.Int32, "event_time": pl.Datetime("us", "UTC")}
    made = [
        chained,
        keyed.process(functools.partial(passed_on), state={"n": pl.Int64}, schema=output),
        keyed.process(Passing(), state={"n": pl.Int64}, schema=output),
        keyed.window(tw.windows.custom(functools.partial(int, base=10))).aggregate(n=tw.agg.count()),
        positions.with_columns(x=python, y=tw.geo.cell("lat", "lon", resolution=9)).each_row(),
        keyed.match(tw.pattern("a", pl.col("speed") > 1).next("b", tw.geo.cell("lat", "lon", resolution=3) > 0)),
    ]
    for result in made:
        text = result.explain(format)
        assert not re.search(r"0x[0-9a-f]{4}|site-packages|\.so\b|__weight|retractable|dyn int", text), text
        assert log.address.rpartition("/")[0] not in text, "where the log is"
        assert "the log test.tw" in text
