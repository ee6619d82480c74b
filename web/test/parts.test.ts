import {describe, expect, it} from "vitest";
import {AlertLog} from "../src/alerts";
import {subscriptionQuery} from "../src/api";
import {Clock} from "../src/clock";
import type {Item} from "../src/contract";
import {Columns} from "../src/map/columns";
import {tilesOf} from "../src/map/tiles";
import {TRAIL, Trails} from "../src/map/trails";
import {outgrown, widened} from "../src/region";
import {Signal} from "../src/signal";
import {Durations, Stats} from "../src/stats";
import {nameOf, summaryOf, timingOf, valueIn} from "../src/ui/describe";
import {layer} from "./layers";

function item(k: string, t: number, f: Item["f"] = {}): Item {
  return {k, t, x: t + 30_000, v: null, f};
}

describe("the server's clock", () => {
  it("is kept by its messages, and one that was slow to come does not set it back much", () => {
    let local = 1000;
    const clock = new Clock(() => local);
    clock.heard(5000);
    expect(clock.now()).toBe(5000);
    local = 2000;
    clock.heard(5500);
    expect(clock.now()).toBeGreaterThan(5900);
    clock.heard(6100);
    expect(clock.now()).toBe(6100);
  });
});

describe("the alerts", () => {
  it("are told newest first, each once", () => {
    const log = new AlertLog();
    expect(log.add("stops", item("a", 10))).toBe(true);
    expect(log.add("stops", item("a", 10))).toBe(false);
    expect(log.add("stops", item("a", 30))).toBe(true);
    expect(log.add("other", item("a", 20))).toBe(true);
    expect(log.list().map(({t}) => t)).toEqual([30, 20, 10]);
    expect(log.list(20).map(({t}) => t)).toEqual([20, 10]);
    expect(log.find("stops", "a", 10)).toMatchObject({layer: "stops", t: 10});
    expect(log.find("stops", "a", 20)).toBeUndefined();
  });

  it("are forgotten after an hour, and when there are too many", () => {
    const log = new AlertLog(100, 2);
    for (const t of [1, 150, 160, 170]) log.add("stops", item("a", t));
    expect(log.trim(200)).toBe(true);
    expect(log.list().map(({t}) => t)).toEqual([170, 160]);
    expect(log.trim(200)).toBe(false);
    expect(log.add("stops", item("a", 170))).toBe(false);
  });
});

describe("the region that is asked for", () => {
  it("is wider than what is seen, so that a little moving needs no asking", () => {
    const asked = widened([24, 60, 25, 61]);
    expect(asked).toEqual([23.5, 59.5, 25.5, 61.5]);
    expect(outgrown(asked, [24.3, 60.2, 25.3, 61.2])).toBe(false);
    expect(outgrown(asked, [25, 60, 26, 61])).toBe(true);
    expect(outgrown(asked, [24.5, 60.5, 24.6, 60.6])).toBe(true);
    expect(outgrown(null, [24, 60, 25, 61])).toBe(true);
  });

  it("stays on the globe", () => expect(widened([-180, -90, 180, 90])).toEqual([-180, -90, 180, 90]));
});

it("says a subscription as a query", () => {
  const query = subscriptionQuery({layers: ["a", "b"], region: [1, 2, 3, 4], filters: {mode: ["bus", "tram"], route: []}});
  expect(decodeURIComponent(query.toString())).toBe("layers=a,b&region=1,2,3,4&filter=mode:bus,tram");
  expect(subscriptionQuery({layers: [], region: null, filters: {stop: ["Espoo, Leppävaara", "b"]}}).getAll("filter")).toEqual(["stop:Espoo\\, Leppävaara,b"]);
});

describe("columns", () => {
  it("grow, and stay dense when a row goes", () => {
    const columns = new Columns(["getWeight"]);
    for (let i = 0; i < 1000; i++) columns.get("getWeight")[columns.add()] = i;
    expect(columns.get("getWeight")[999]).toBe(999);
    expect(columns.remove(3)).toBe(999);
    expect(columns.get("getWeight")[3]).toBe(999);
    expect(columns.remove(998)).toBeNull();
    expect(columns.length).toBe(998);
  });
});

describe("trails", () => {
  it("last a minute, and a full chunk is not handed over again", () => {
    const trails = new Trails();
    const start = trails.base;
    const way = {from: [1, 1] as [number, number], to: [2, 2] as [number, number], start, duration: 1000};
    for (let i = 0; i < 8193; i++) trails.add(way, [1, 2, 3]);
    const before = trails.chunks(start);
    expect(before.map(({data}) => data.length)).toEqual([8192, 1]);
    trails.add({...way, start: start + 10}, [1, 2, 3]);
    const after = trails.chunks(start + 10);
    expect(after[0]!.data).toBe(before[0]!.data);
    expect(after[1]!.data).not.toBe(before[1]!.data);
    expect(trails.chunks(start + TRAIL + 20)).toEqual([]);
  });
});

it("covers what is seen with tiles", () => {
  const tiles = tilesOf("http://127.0.0.1/{z}/{x}/{y}.png", [24.9, 60.1, 25.0, 60.2], 10);
  expect(tiles[0]!.url).toBe("http://127.0.0.1/11/1165/592.png");
  expect(Math.min(...tiles.map(({bounds}) => bounds[0]))).toBeLessThanOrEqual(24.9);
  expect(Math.max(...tiles.map(({bounds}) => bounds[3]))).toBeGreaterThanOrEqual(60.2);
  expect(tilesOf("", [-180, -80, 180, 80], 10)).toHaveLength(96);
  // The server's policy allows this one: see security_headers in serve/security.py.
  expect(tilesOf("https://{s}.tile.example.org/{z}/{x}/{y}.png", [24.9, 60.1, 25.0, 60.2], 10)[0]!.url).toMatch(/^https:\/\/a\.tile\.example\.org\//);
});

it("tells of changes only", () => {
  const signal = new Signal(1);
  const heard: number[] = [];
  const end = signal.watch((value) => heard.push(value));
  signal.set(1);
  signal.set(2);
  end();
  signal.set(3);
  expect(heard).toEqual([1, 2]);
});

describe("the stats", () => {
  it("tell how long frames took, the last of them", () => {
    const stats = new Stats();
    expect(stats.p50).toBeNull();
    for (let ms = 1; ms <= 100; ms++) stats.drew(ms);
    expect([stats.frames, stats.p50, stats.p99]).toEqual([100, 50, 99]);
    stats.reset();
    expect(stats.frames).toBe(0);
    const few = new Durations(2);
    for (const ms of [9, 1, 2]) few.add(ms);
    expect([few.count, few.quantile(1)]).toEqual([3, 2]);
  });

  it("count what was prepared with its frame, and messages apart", () => {
    const stats = new Stats();
    const busy = (): void => {
      const until = performance.now() + 3;
      while (performance.now() < until);
    };
    stats.prepare(busy);
    stats.receive(busy);
    stats.drew(10);
    stats.drew(10);
    expect(stats.frame.quantile(1)).toBeGreaterThanOrEqual(13);
    expect(stats.frame.quantile(0.5)).toBe(10);
    expect(stats.message.count).toBe(1);
    expect(stats.message.quantile(1)).toBeGreaterThanOrEqual(3);
  });
});

describe("an item in words", () => {
  it("is named by its key", () => {
    const vehicles = layer({key: ["operator", "vehicle"], geometry: {kind: "point", lat: "lat", lon: "lon"}});
    expect(nameOf(item("18/1069", 0, {operator: 18, vehicle: 1069}), vehicles)).toBe("operator 18 · vehicle 1069");
    expect(nameOf(item("891126d0003ffff", 0, {cell: "891126d0003ffff"}), layer())).toBe("cell 891126d0003");
    expect(nameOf(item("left out", 0), vehicles)).toBe("left out");
  });

  it("is summed up by its first figures", () => {
    const described = layer({figures: [{field: "cell", label: "cell"}, {field: "n", label: "things"}, {field: "s", label: "speed", unit: "m/s"}]});
    expect(summaryOf(item("a", 0, {cell: "x", n: 3, s: 12.5}), described)).toBe("things 3 · speed 12.5 m/s");
  });

  it("tells its value with what it counts", () => {
    const value = (v: Item["v"], unit = ""): string | null => valueIn({...item("a", 0), v}, layer({value: {field: "n", label: "vehicles", unit}}));
    expect([value(7), value(3, "min"), value("bus"), value(null)]).toEqual(["7 vehicles", "3 min", "bus", null]);
  });

  it("says how sure it is", () => {
    expect(["EARLY", "ON_TIME", "LATE", undefined].map((timing) => timingOf({timing} as Item)?.label)).toEqual(["provisional", "final", "revised", undefined]);
  });
});
