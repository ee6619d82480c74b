import {expect, it} from "vitest";
import {isScattered, Series} from "../src/series";
import {describeLines} from "../src/ui/lineplot";
import {windowOf} from "../src/ui/resulttable";
import {isWindowed} from "../src/ui/tablecolumns";
import {layer} from "./layers";

const item = (k: string, t: number, n: number, more = {}): Parameters<Series["take"]>[0][number] => ({k, t, x: 0, v: n, f: {n, ...more}});

it("keeps results by key in the order of time, one for each, and forgets what is retracted", () => {
  const series = new Series();
  series.take([item("a", 2, 20), item("a", 1, 10), item("b", 2, 5)]);
  series.add("a", [{t: 1, f: {n: 11}}, {t: 0, f: {n: 1}}]);
  expect(series.aligned(["a", "b"], "n")).toEqual({times: [0, 1, 2], values: [[1, 11, 20], [null, null, 5]]});
  series.takeBack("a");
  expect(series.aligned(["a"], "n")).toEqual({times: [0, 1], values: [[1, 11]]});
  expect(series.aligned(["a"], "other")).toEqual({times: [0, 1], values: [[null, null]]});
});

it("chooses the keys whose last values are greatest", () => {
  const series = new Series();
  series.take([item("a", 1, 99), item("a", 2, 1), item("b", 1, 7), item("c", 1, 7), item("d", 1, 3)]);
  const all = new Set("abcd");
  expect(series.greatest("n", 3, all)).toEqual(["b", "c", "d"]);
  expect(series.greatest("n", 3, new Set("ad"))).toEqual(["d", "a"]);
  expect(series.greatest("missing", 3, all)).toEqual([]);
});

it("scatters sessions, whose windows have no period, and draws lines of everything else", () => {
  const window = {window_start: 1, window_end: 5};
  expect(isScattered(layer({period: null}), [item("a", 1, 1, window)])).toBe(true);
  expect(isScattered(layer({period: 5}), [item("a", 1, 1, window)])).toBe(false);
  expect(isScattered(layer({period: null}), [item("a", 1, 1)])).toBe(false);
  const series = new Series();
  series.take([item("a", 2, 20), item("b", 1, 5)]);
  expect(series.scattered("n", new Set("ab"))).toEqual({times: [1, 2], values: [[5, 20]]});
  expect(series.scattered("n", new Set("a"))).toEqual({times: [2], values: [[20]]});
});

it("says in words what lines show", () => {
  const options = {label: "revenue", unit: "€", names: ["DE", "FI"], colours: [], scattered: false};
  expect(describeLines({times: [0, 60_000], values: [[1, 2], [3, null]]}, options)).toMatch(/^revenue in €: DE 2; FI 3; from \S+ to \S+$/);
  expect(describeLines({times: [], values: []}, options)).toBe("revenue in €: nothing yet");
  expect(describeLines({times: [0], values: [[1]]}, {...options, scattered: true})).toMatch(/^revenue in €: 1 result from/);
});

it("tells the window of a result, unless its columns do", () => {
  const items = [item("a", 1, 1, {window_start: Date.UTC(2026, 0, 1, 12), window_end: Date.UTC(2026, 0, 1, 12, 5)})];
  expect(isWindowed(layer({}), items)).toBe(true);
  expect(isWindowed(layer({figures: [{field: "window_end", label: "to", unit: "time"}]}), items)).toBe(false);
  expect(isWindowed(layer({}), [item("a", 1, 1)])).toBe(false);
  expect(windowOf(items[0]!)).toMatch(/^\d\d:00:00 – \d\d:05:00$/);
});
