import {describe, expect, it} from "vitest";
import {formatAge, formatDate, formatDuration, formatNumber, formatPlace, formatRate, formatTime, formatValue, scaleBar} from "../src/format";

it.each([
  [0, "0"],
  [-3, "−3"],
  [1234, "1,234"],
  [250_000, "250K"],
  [3.14159, "3.14"],
  [31.4159, "31.4"],
  [-0.5, "−0.5"],
  [Infinity, "–"],
])("writes %d as %s", (value, text) => expect(formatNumber(value)).toBe(text));

it.each([
  [null, "–"],
  [240, "240 ms"],
  [1_200, "1.2 s"],
  [45_000, "45 s"],
  [180_000, "3 min"],
  [7_200_000, "2.0 h"],
  [-1_500, "−1.5 s"],
])("writes %d ms as %s", (ms, text) => expect(formatDuration(ms)).toBe(text));

it("writes rates with as much as matters", () => {
  expect([0, 0.4, 42.6, 12_345].map(formatRate)).toEqual(["0", "0.4", "43", "12.3K"]);
  expect(formatRate(undefined)).toBe("–");
});

it("writes times in the given zone", () => {
  expect(formatTime(1_700_000_000_000, "UTC")).toBe("22:13:20");
  expect(formatTime(1_700_000_000_000, "Europe/Helsinki")).toBe("00:13:20");
  expect(formatDate(1_700_000_000_000, "UTC")).toBe("Tue 14 Nov");
});

it("says how long ago something was", () => {
  expect([500, 3_400, 150_000].map(formatAge)).toEqual(["just now", "3 s ago", "3 min ago"]);
});

describe("a figure", () => {
  it("has its unit", () => {
    expect(formatValue(12.34, "m/s")).toBe("12.3 m/s");
    expect(formatValue(4, "°")).toBe("4°");
  });
  it("that is a time is written as one", () => {
    expect(formatValue(1_700_000_000_000)).toBe(formatTime(1_700_000_000_000));
    expect(formatValue(0, "time")).toBe(formatTime(0));
  });
  it("may be text, truth, or nothing", () => {
    expect(formatValue("bus")).toBe("bus");
    expect(formatValue(true)).toBe("yes");
    expect([null, undefined, ""].map((value) => formatValue(value))).toEqual(["–", "–", "–"]);
  });
});

it("writes a place", () => expect(formatPlace(-24.5, 60.123456)).toBe("60.1235° N, 24.5000° W"));

it("has a scale bar of a round length that fits", () => {
  expect(scaleBar(10, 110)).toEqual({label: "1 km", width: 100});
  expect(scaleBar(3, 110)).toEqual({label: "200 m", width: 200 / 3});
  for (const metres of [0.3, 1, 7, 42, 999]) expect(scaleBar(metres, 110).width).toBeLessThanOrEqual(110);
});
