import {cellToLatLng, gridDisk, latLngToCell} from "h3-js";
import {describe, expect, it} from "vitest";
import type {Item, Layer} from "../src/contract";
import {shapeOf, type Cells} from "../src/map/cells";
import {drawingOf} from "../src/map/drawing";
import type {Flows} from "../src/map/flows";
import {APPEAR, OUTLINE, VANISH} from "../src/map/instances";
import {pickArrow, pickCell, pickPoint} from "../src/map/pick";
import {NO_HEADING, type Points, type Segment} from "../src/map/points";
import {Colours} from "../src/scale";
import {layer} from "./layers";

const HELSINKI = latLngToCell(60.17, 24.94, 9);
const [NEAR, NEXT] = gridDisk(HELSINKI, 1).slice(1) as [string, string];
/** Black to white, so that a colour tells its value. */
const GREY = {kind: "sequential" as const, domain: [0, 10], colours: ["#000", "#fff"]};

function drawn<T>(described: Partial<Layer>): T {
  const whole = layer({scale: GREY, ...described});
  return drawingOf(whole, new Colours(whole, "light"), true)!.instances as T;
}

function item(k: string, extra: Partial<Item>): Item {
  return {k, t: 0, x: 1, v: 5, f: {}, ...extra};
}

function show(instances: Cells | Points | Flows, now: number, changed: Item[], gone: string[] = [], retracted: string[] = []): void {
  instances.apply({layer: "counts", changed, gone, retracted}, now);
}

describe("the description decides how a layer is drawn", () => {
  const colours = new Colours(layer(), "light");
  const kind = (described: Partial<Layer>): string | undefined => drawingOf(layer(described), colours, true)?.kind;

  it("cells as hexagons, edges as arrows, points as markers, alerts as pulses, the rest not at all", () => {
    const point = {kind: "point" as const, lat: "lat", lon: "lon"};
    expect(kind({})).toBe("cells");
    expect(kind({geometry: {kind: "edge", from: "a", to: "b"}, show: "arrows"})).toBe("arrows");
    expect(kind({geometry: point, show: "moving"})).toBe("markers");
    expect(kind({geometry: point, show: "points"})).toBe("markers");
    expect(kind({geometry: point, show: "alerts"})).toBe("pulses");
    expect(kind({geometry: {kind: "none"}, show: "table"})).toBeUndefined();
  });
});

describe("hexagons", () => {
  it("are at their cells, with six corners around", () => {
    const cells = drawn<Cells>({});
    show(cells, 0, [item("a", {c: HELSINKI})]);
    const [lat, lon] = cellToLatLng(HELSINKI);
    expect([...cells.columns.get("getPosition").slice(0, 2)]).toEqual([lon, lat]);
    const corners = ["getCorners01", "getCorners23", "getCorners45"].flatMap((name) => [...cells.columns.get(name as "getCorners01").slice(0, 4)]);
    const angles = Array.from({length: 6}, (_, i) => Math.atan2(corners[2 * i + 1]!, corners[2 * i]! / 2));
    expect(new Set(angles.map((angle) => Math.round(angle * 10))).size).toBe(6);
  });

  it("appear from nothing in the colour of their value", () => {
    const cells = drawn<Cells>({});
    const now = cells.base + 1000;
    show(cells, now, [item("a", {c: HELSINKI, v: 10})]);
    expect([...cells.columns.get("getColourTo").slice(0, 3)]).toEqual([255, 255, 255]);
    expect(cells.columns.get("getColourFrom")[3]).toBe(0);
    expect(cells.busyUntil).toBe(now + APPEAR);
  });

  it("are provisional while early, and firm up with the on-time pane", () => {
    const cells = drawn<Cells>({});
    show(cells, cells.base, [item("a", {c: HELSINKI, timing: "EARLY"})]);
    expect(cells.columns.get("getFade")[2]).toBe(1);
    show(cells, cells.base + 1, [item("a", {c: HELSINKI, timing: "ON_TIME"})]);
    expect(cells.columns.get("getFade")[2]).toBe(0);
  });

  it("fade when they are gone, and are swept away after", () => {
    const cells = drawn<Cells>({});
    const now = cells.base;
    show(cells, now, [item("a", {c: HELSINKI}), item("b", {c: NEAR})]);
    show(cells, now + 1000, [], ["a"]);
    expect(cells.dying(0)).toBe(true);
    expect(cells.row("a")).toBeUndefined();
    expect(cells.columns.get("getColourTo")[3]).toBe(0);
    cells.sweep(now + 1000 + VANISH - 1);
    expect(cells.size).toBe(2);
    cells.sweep(now + 1000 + VANISH);
    expect(cells.items.map(({k}) => k)).toEqual(["b"]);
    expect(cells.row("b")).toBe(0);
    const [lat, lon] = cellToLatLng(NEAR);
    expect([...cells.columns.get("getPosition").slice(0, 2)]).toEqual([lon, lat]);
  });

  it("keep an outline for a moment when they were retracted, and none when they expired", () => {
    const cells = drawn<Cells>({});
    const now = cells.base;
    show(cells, now, [item("over", {c: HELSINKI, timing: "EARLY"}), item("wrong", {c: NEAR})]);
    show(cells, now + 1000, [], ["over", "wrong"], ["wrong"]);
    const fade = cells.columns.get("getFade");
    expect([fade[2], fade[4 + 2]]).toEqual([1, 2]);
    cells.sweep(now + 1000 + VANISH);
    expect(cells.items.map(({k}) => k)).toEqual(["wrong"]);
    cells.sweep(now + 1000 + OUTLINE);
    expect(cells.size).toBe(0);
  });

  it("that were retracted and come again are firm", () => {
    const cells = drawn<Cells>({});
    show(cells, 0, [item("a", {c: HELSINKI})]);
    show(cells, 1, [], ["a"], ["a"]);
    show(cells, 2, [item("a", {c: HELSINKI})]);
    expect(cells.columns.get("getFade")[2]).toBe(0);
    expect(cells.row("a")).toBe(0);
  });

  it("come back to life when they are told of while fading", () => {
    const cells = drawn<Cells>({});
    show(cells, 0, [item("a", {c: HELSINKI, v: 10})]);
    show(cells, 1, [], ["a"]);
    show(cells, 2, [item("a", {c: HELSINKI, v: 10})]);
    cells.sweep(1e9);
    expect(cells.size).toBe(1);
    expect(cells.columns.get("getColourTo")[3]).toBeGreaterThan(0);
  });

  it("that are none are not drawn", () => {
    const cells = drawn<Cells>({});
    show(cells, 0, [item("0", {c: "0"}), item("x", {c: "nonsense"}), item("y", {})]);
    expect(cells.size).toBe(0);
  });

  it("hand over only what changed", () => {
    const cells = drawn<Cells>({});
    show(cells, 0, [item("a", {c: HELSINKI, v: 1})]);
    const before = cells.columns.data().attributes;
    show(cells, 1, [item("a", {c: HELSINKI, v: 9})]);
    const after = cells.columns.data().attributes;
    expect(after["getPosition"]).toBe(before["getPosition"]);
    expect(after["getColourTo"]).not.toBe(before["getColourTo"]);
    show(cells, 2, [item("a", {c: HELSINKI, v: 9, t: 5})]);
    expect(cells.columns.data().attributes["getColourTo"]).toBe(after["getColourTo"]);
  });

  it("stay exact for as long as the page is open", () => {
    const cells = drawn<Cells>({});
    const day = 86_400_000;
    show(cells, cells.base, [item("a", {c: HELSINKI, v: 1})]);
    const now = cells.base + day;
    show(cells, now, [item("a", {c: HELSINKI, v: 9})]);
    expect(cells.base).toBe(now);
    expect(cells.columns.get("getFade")[0]).toBe(0);
  });

  it("are found by place, at any resolution", () => {
    const cells = drawn<Cells>({});
    const large = latLngToCell(60.3, 25.1, 7);
    show(cells, 0, [item("a", {c: HELSINKI}), item("large", {c: large})]);
    expect(pickCell(cells, 24.94, 60.17)).toBe("a");
    expect(pickCell(cells, 25.1, 60.3)).toBe("large");
    expect(pickCell(cells, 20, 50)).toBeNull();
    show(cells, 1, [], ["a"]);
    expect(pickCell(cells, 24.94, 60.17)).toBeNull();
  });
});

describe("points", () => {
  const POINT: Partial<Layer> = {geometry: {kind: "point", lat: "lat", lon: "lon", heading: "heading"}, show: "moving"};
  const flat = (place: [number, number]): number[] => [place[0] * 1000, place[1] * 1000];

  it("glide to where they are reported next", () => {
    const points = drawn<Points>(POINT);
    const start = points.base;
    show(points, start, [item("a", {p: [24.9, 60.2], h: 350})]);
    show(points, start + 1000, [item("a", {p: [24.901, 60.2], h: 10})]);
    expect(points.seenAt(0, start + 1000)).toEqual([24.9, 60.2]);
    const half = points.columns.get("getGlide")[3]! / 2;
    expect(points.seenAt(0, start + 1000 + half)[0]).toBeCloseTo(24.9005, 6);
    expect([...points.columns.get("getGlide").slice(0, 2)]).toEqual([350, 20]);
  });

  it("jump where motion is not wanted", () => {
    const points = drawn<Points>(POINT);
    points.gliding = false;
    show(points, points.base, [item("a", {p: [24.9, 60.2]})]);
    show(points, points.base + 1000, [item("a", {p: [24.901, 60.2]})]);
    expect(points.seenAt(0, points.base + 1000)).toEqual([24.901, 60.2]);
  });

  it.each([true, false])("tell of the way they travel, whether they glide or jump (%s)", (gliding) => {
    const points = drawn<Points>(POINT);
    const ways: Segment[] = [];
    points.gliding = gliding;
    points.onTravel = (segment) => ways.push(segment);
    show(points, points.base, [item("a", {p: [24.9, 60.2]})]);
    show(points, points.base + 1000, [item("a", {p: [24.901, 60.2]})]);
    show(points, points.base + 2000, [item("a", {p: [24.901, 60.2]})]);
    show(points, points.base + 9000, [item("a", {p: [25.9, 60.2]})]);
    expect(ways).toMatchObject([{key: "a", row: 0, from: [24.9, 60.2], to: [24.901, 60.2], start: points.base + 1000}]);
    expect(ways[0]!.duration > 0).toBe(gliding);
  });

  it("need no heading, but a place", () => {
    const points = drawn<Points>(POINT);
    show(points, 0, [item("a", {p: [24.9, 60.2]}), item("b", {}), item("c", {p: [NaN, 60]})]);
    expect(points.size).toBe(1);
    expect(points.columns.get("getGlide")[0]).toBe(NO_HEADING);
  });

  it("are found near the pointer, the nearest of them", () => {
    const points = drawn<Points>(POINT);
    show(points, points.base, [item("a", {p: [1, 1]}), item("b", {p: [1.005, 1]})]);
    expect(pickPoint(points, flat, 1004, 1000, 12, points.base)).toBe("b");
    expect(pickPoint(points, flat, 1001, 1000, 12, points.base)).toBe("a");
    expect(pickPoint(points, flat, 1100, 1000, 12, points.base)).toBeNull();
  });

  it("show which is selected, also after rows have moved", () => {
    const points = drawn<Points>(POINT);
    show(points, 0, [item("a", {p: [1, 1]}), item("b", {p: [2, 2]})]);
    points.emphasise("b", 1);
    show(points, 1, [], ["a"]);
    points.sweep(1e9);
    expect(points.columns.get("getFade")[3]).toBe(1);
    points.emphasise("b", 0);
    expect(points.columns.get("getFade")[3]).toBe(0);
  });
});

describe("arrows", () => {
  const EDGE: Partial<Layer> = {geometry: {kind: "edge", from: "cell", to: "neighbour"}, show: "arrows"};

  it("go from cell to cell, as wide as their value", () => {
    const flows = drawn<Flows>(EDGE);
    show(flows, 0, [item("a", {e: [HELSINKI, NEAR], v: 10}), item("b", {e: [NEAR, NEXT], v: 0}), item("c", {e: [HELSINKI, "0"]})]);
    expect(flows.size).toBe(2);
    expect([...flows.columns.get("getWeight").slice(0, 2)]).toEqual([1, 0]);
    show(flows, 1, [item("a", {e: [HELSINKI, NEXT], v: 5})]);
    expect([...flows.columns.get("getTarget").slice(0, 2)]).toEqual([shapeOf(NEXT)!.lon, shapeOf(NEXT)!.lat]);
  });

  it("are found by their shaft", () => {
    const flows = drawn<Flows>(EDGE);
    show(flows, 0, [item("a", {e: [HELSINKI, NEAR]})]);
    const far = 100_000;
    const project = ([lon, lat]: [number, number]): number[] => [lon * far, lat * far];
    const a = shapeOf(HELSINKI)!;
    const b = shapeOf(NEAR)!;
    const [x, y] = project([(a.lon + b.lon) / 2, (a.lat + b.lat) / 2]) as [number, number];
    expect(pickArrow(flows, project, x, y, 6)).toBe("a");
    expect(pickArrow(flows, project, x + 900, y + 900, 6)).toBeNull();
  });
});
