import type {Region} from "../contract";

export type Ring = [number, number][];

/** From this zoom on corners are seen. */
const NEAR = 12;
/** Points of one piece of shore. */
const PIECE = 64;

interface Piece {
  path: Ring;
  box: Region;
}

/** The lines where land and water meet: only so many are drawn, and so finely, as can be seen. */
export class Shores {
  readonly #far: Piece[];
  readonly #near: Piece[];
  #found: {near: boolean; region: Region | null; paths: Ring[]} | null = null;

  /** From closed rings as they come, and with round corners. */
  constructor(rings: readonly Ring[], round: readonly Ring[], box: Region | undefined) {
    const pieces = (all: readonly Ring[]): Piece[] => all.flatMap((ring) => withoutFrame(ring, box)).flatMap(inPieces);
    this.#far = pieces(rings);
    this.#near = pieces(round);
  }

  /** Those in a region; the same object as long as the same is asked for, lest they are made anew for the graphics card. */
  within(region: Region | null, zoom: number): Ring[] {
    const near = zoom >= NEAR;
    if (this.#found?.near !== near || this.#found.region !== region) {
      const paths = (near ? this.#near : this.#far).filter(({box}) => !region || touch(box, region)).map(({path}) => path);
      this.#found = {near, region, paths};
    }
    return this.#found.paths;
  }
}

/** Each goes on where the one before ends. */
function inPieces(path: Ring): Piece[] {
  const pieces: Piece[] = [];
  for (let start = 0; start + 1 < path.length; start += PIECE) {
    const part = path.slice(start, start + PIECE + 1);
    const [xs, ys] = [part.map(([x]) => x), part.map(([, y]) => y)];
    pieces.push({path: part, box: [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)]});
  }
  return pieces;
}

function touch(one: Region, other: Region): boolean {
  return one[0] <= other[2] && one[2] >= other[0] && one[1] <= other[3] && one[3] >= other[1];
}

/** How far from a corner (degrees of latitude; 30 m) its rounding begins at most. */
const REACH = 30 / 111_320;
/** Corners that turn less (cosine; 20°) look round as they are. */
const STRAIGHT = Math.cos((20 * Math.PI) / 180);
/** How far toward the corner its middle is pulled: so a right angle becomes three turns of 30°. */
const BULGE = 0.27;

/**
 * A closed ring with round corners. Shores come as chords of some 50 m, which look like broken glass from near; nothing
 * is moved further than such a chord is off already. Corners where the data ends stay.
 */
export function rounded(ring: Ring, box?: Region): Ring {
  if (ring.length < 4) return ring;
  const points = ring.slice(0, -1);
  const narrow = Math.cos((points[0]![1] * Math.PI) / 180);
  const round: Ring = points.flatMap((corner, i) => {
    const before = points.at(i - 1)!;
    const after = points[(i + 1) % points.length]!;
    const [inX, inY] = [(corner[0] - before[0]) * narrow, corner[1] - before[1]];
    const [outX, outY] = [(after[0] - corner[0]) * narrow, after[1] - corner[1]];
    const [into, out] = [Math.hypot(inX, inY), Math.hypot(outX, outY)];
    if (inX * outX + inY * outY > STRAIGHT * into * out || onEdge(corner, box)) return [corner];
    const start = between(corner, before, Math.min(0.5, REACH / into));
    const end = between(corner, after, Math.min(0.5, REACH / out));
    return [start, between(between(start, end, 0.5), corner, BULGE), end];
  });
  return [...round, round[0]!];
}

/** The parts of a ring that are shore: not those where the data ends. */
export function withoutFrame(ring: Ring, box: Region | undefined): Ring[] {
  if (!box) return [ring];
  const onFrame = ([x, y]: [number, number], [u, v]: [number, number]): boolean =>
    (x === u && (x <= box[0] || x >= box[2])) || (y === v && (y <= box[1] || y >= box[3]));
  const parts: Ring[] = [];
  let part: Ring = [];
  for (let i = 0; i + 1 < ring.length; i++) {
    if (onFrame(ring[i]!, ring[i + 1]!)) {
      if (part.length > 1) parts.push(part);
      part = [];
    } else {
      if (part.length === 0) part.push(ring[i]!);
      part.push(ring[i + 1]!);
    }
  }
  if (part.length > 1) parts.push(part);
  return parts;
}

function onEdge([x, y]: [number, number], box: Region | undefined): boolean {
  return box !== undefined && (x <= box[0] || x >= box[2] || y <= box[1] || y >= box[3]);
}

function between([x, y]: [number, number], [u, v]: [number, number], amount: number): [number, number] {
  return [x + (u - x) * amount, y + (v - y) * amount];
}
