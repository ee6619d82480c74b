import {describe, expect, it} from "vitest";
import {rounded, Shores, withoutFrame, type Ring} from "../src/map/shores";

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

describe("the shores that are drawn", () => {
  const far: Ring = SQUARE.map(([x, y]) => [x + 10, y]);
  const shores = new Shores([SQUARE, far], [SQUARE, far].map((ring) => rounded(ring)), undefined);

  it("are those in the region", () => {
    expect(shores.within(null, 10)).toEqual([SQUARE, far]);
    expect(shores.within([9, -1, 11, 1], 10)).toEqual([far]);
  });

  it("have round corners from near", () => expect(shores.within([-1, -1, 1, 1], 13)).toEqual([rounded(SQUARE)]));

  it("are the same object while the same is asked for", () => {
    const region: [number, number, number, number] = [-1, -1, 1, 1];
    expect(shores.within(region, 13)).toBe(shores.within(region, 14.5));
    expect(shores.within(region, 11)).not.toBe(shores.within(region, 14.5));
  });

  it("hang together where a long one is in pieces", () => {
    const long: Ring = Array.from({length: 200}, (_, i) => [i, i % 2]);
    const pieces = new Shores([long], [], undefined).within(null, 10);
    expect(pieces.length).toBeGreaterThan(2);
    expect(pieces.flatMap((piece, i) => (i > 0 ? piece.slice(1) : piece))).toEqual(long);
    expect(new Shores([long], [], undefined).within([100, 0, 101, 1], 10)).toHaveLength(1);
  });
});
