import {expect, it} from "vitest";
import {glideTime, glideTo, placeAt, progress, turn} from "../src/map/motion";

it("is at the start, half way, and at the end", () => {
  expect([90, 100, 150, 200, 999].map((now) => progress(100, 100, now))).toEqual([0, 0, 0.5, 1, 1]);
  expect(progress(100, 0, 50)).toBe(1);
});

it("glides from where it is seen to where it is reported", () => {
  const first = glideTo(null, 24.9, 60.2, 0, 1000);
  expect(placeAt(first, 0)).toEqual([24.9, 60.2]);
  const second = glideTo(first, 24.901, 60.2, 1000, 1000);
  expect(placeAt(second, 1000)).toEqual([24.9, 60.2]);
  expect(placeAt(second, 1000 + second.duration)[0]).toBeCloseTo(24.901, 9);
  // Half way through comes the next: no jump.
  const middle = 1000 + second.duration / 2;
  const third = glideTo(second, 24.902, 60.2, middle, 1000);
  expect(placeAt(third, middle)[0]).toBeCloseTo(24.9005, 9);
});

it("keeps moving for a little longer than reports take to come", () => {
  expect(glideTime(1000)).toBeGreaterThan(1000);
  expect(glideTime(1)).toBeGreaterThan(100);
  expect(glideTime(60_000)).toBeLessThan(10_000);
});

it("appears at a place that nobody could have driven to", () => {
  const first = glideTo(null, 24.9, 60.2, 0, 1000);
  const far = glideTo(first, 25.4, 60.2, 1000, 1000);
  expect(placeAt(far, 1000)).toEqual([25.4, 60.2]);
});

it("turns the short way round", () => {
  expect(turn(350, 10)).toBe(20);
  expect(turn(10, 350)).toBe(-20);
  expect(turn(0, 90)).toBe(90);
  expect(Math.abs(turn(0, 180))).toBe(180);
});
