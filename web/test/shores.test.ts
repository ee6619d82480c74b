import {describe, expect, it} from "vitest";
import {rounded, withoutFrame, type Ring} from "../src/map/shores";

const METRE = 1 / 111_320;
/** A square island of 100 m on the equator, where a degree is as long in all directions. */
const SQUARE: Ring = [[0, 0], [100, 0], [100, 100], [0, 100], [0, 0]].map(([x, y]) => [x! * METRE, y! * METRE]);

/** The sharpest turn of a closed ring, in degrees. */
function sharpest(ring: Ring): number {
  const points = ring.slice(0, -1);
  const turns = points.map(([x, y], i) => {
    const [u, v] = points.at(i - 1)!;
    const [s, t] = points[(i + 1) % points.length]!;
    const turn = Math.atan2(t - y, s - x) - Math.atan2(y - v, x - u);
    return Math.abs(Math.atan2(Math.sin(turn), Math.cos(turn)));
  });
  return (Math.max(...turns) * 180) / Math.PI;
}

describe("a shore with round corners", () => {
  it("turns a little at a time, and stays closed", () => {
    const round = rounded(SQUARE);
    expect(sharpest(SQUARE)).toBeCloseTo(90);
    expect(sharpest(round)).toBeLessThan(31);
    expect(round.at(-1)).toEqual(round[0]);
  });

  it("is nowhere far from where it was", () => {
    const corners = rounded(SQUARE).map(([x, y]) => Math.min(...SQUARE.map(([u, v]) => Math.hypot(x - u, y - v))) / METRE);
    expect(Math.max(...corners)).toBeCloseTo(30, 0);
    expect(Math.min(...corners)).toBeGreaterThan(10);
  });

  it("keeps the corners where the data ends", () => {
    const [west, south] = SQUARE[0]!;
    expect(rounded(SQUARE, [west, south, 1, 1])).toEqual(expect.arrayContaining([SQUARE[0], SQUARE[1], SQUARE[3]]));
    expect(rounded(SQUARE, [west, south, 1, 1])).not.toEqual(expect.arrayContaining([SQUARE[2]]));
  });

  it("leaves alone what is round, and what is no ring", () => {
    const circle: Ring = Array.from({length: 37}, (_, i) => [Math.cos((i % 36) * (Math.PI / 18)) * METRE, Math.sin((i % 36) * (Math.PI / 18)) * METRE]);
    expect(rounded(circle)).toEqual(circle);
    expect(rounded([[0, 0], [1, 1]])).toEqual([[0, 0], [1, 1]]);
  });
});

it("draws no shore where the data ends", () => {
  const ring: Ring = [[0, 0], [10, 0], [10, 5], [5, 6], [0, 5], [0, 0]];
  expect(withoutFrame(ring, [0, 0, 10, 10])).toEqual([[[10, 5], [5, 6], [0, 5]]]);
  expect(withoutFrame(ring, undefined)).toEqual([ring]);
});
