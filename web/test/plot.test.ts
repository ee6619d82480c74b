// @vitest-environment happy-dom
import {describe, expect, it} from "vitest";
import {describe as inWords, shortTime, timeRange, valueRange} from "../src/ui/plot";

const NOON = Date.UTC(2026, 4, 4, 12) / 1000;

describe("the time that a plot covers", () => {
  const range = (...times: number[]): [number, number] => timeRange(times.map((t) => ({t: t * 1000, v: 1})));

  it("is a minute around a single moment", () => {
    const [first, last] = range(NOON);
    expect([first, last]).toEqual([NOON - 30, NOON + 30]);
    const ticks = [first, NOON, last].map((time) => shortTime(time * 1000, last - first));
    expect(new Set(ticks).size).toBe(3);
  });

  it("is a minute around less than that", () => expect(range(NOON, NOON + 10)).toEqual([NOON - 25, NOON + 35]));

  it("is that of the points where they span more", () => expect(range(NOON, NOON + 300, NOON + 900)).toEqual([NOON, NOON + 900]));

  it("is about now where there are none", () => {
    const [first, last] = timeRange([]);
    expect(last - first).toBeGreaterThanOrEqual(60);
    expect(Math.abs((first + last) / 2 - Date.now() / 1000)).toBeLessThan(5);
  });
});

describe("the values that a plot covers", () => {
  it("start at zero where they are not far from it, and leave room above", () => {
    const [low, high] = valueRange(1, 10);
    expect(low).toBe(0);
    expect(high).toBeGreaterThan(10);
  });

  it("have room around a single one", () => {
    expect(valueRange(7, 7)).toEqual([6, 8]);
    expect(valueRange(0, 0)).toEqual([0, 1]);
    expect(valueRange(-200, -200)).toEqual([-220, -180]);
  });
});

it("says in words what a plot shows", () => {
  const points = [{t: NOON * 1000, v: 3}, {t: NOON * 1000 + 5000, v: 12.5}];
  expect(inWords(points, {label: "speed", unit: "m/s"})).toMatch(/^speed, 3 to 12.5 m\/s from .* to .*; last 12.5 m\/s$/);
  expect(inWords([], {label: "speed"})).toBe("speed: nothing yet");
});
