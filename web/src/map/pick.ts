import {getResolution, latLngToCell} from "h3-js";
import type {Points} from "./points";
import type {Cells} from "./cells";
import {shapeOf} from "./cells";
import type {Flows} from "./flows";

/** Finds what is under the pointer by reckoning: no read-back from the graphics card, and fingers may miss a little. */

export type Project = (lonLat: [number, number]) => number[];

export function pickPoint(points: Points, project: Project, x: number, y: number, within: number, now: number): string | null {
  let best: string | null = null;
  let least = within * within;
  for (let row = 0; row < points.size; row++) {
    if (points.dying(row)) continue;
    const [px, py] = project(points.seenAt(row, now));
    const distance = (px! - x) ** 2 + (py! - y) ** 2;
    if (distance <= least) {
      least = distance;
      best = points.items[row]!.k;
    }
  }
  return best;
}

interface CellIndex {
  version: number;
  byCell: Map<string, string>;
  /** The finest first. */
  resolutions: number[];
}
const indexes = new WeakMap<Cells, CellIndex>();

/** The item whose cell holds the place, whatever the resolutions in the layer. */
export function pickCell(cells: Cells, lon: number, lat: number): string | null {
  const {byCell, resolutions} = indexOf(cells);
  for (const resolution of resolutions) {
    const key = byCell.get(latLngToCell(lat, lon, resolution));
    if (key !== undefined) return key;
  }
  return null;
}

function indexOf(cells: Cells): CellIndex {
  let index = indexes.get(cells);
  if (index?.version === cells.version) return index;
  const byCell = new Map<string, string>();
  const prefixes = new Map<string, string>();
  for (let row = 0; row < cells.size; row++) {
    const {c, k} = cells.items[row]!;
    if (cells.dying(row)) continue;
    byCell.set(c!, k);
    // The second digit of a cell's name tells its resolution.
    prefixes.set(c!.slice(0, 2), c!);
  }
  const resolutions = [...prefixes.values()].map((cell) => getResolution(cell)).sort((a, b) => b - a);
  indexes.set(cells, (index = {version: cells.version, byCell, resolutions}));
  return index;
}

export function pickArrow(flows: Flows, project: Project, x: number, y: number, within: number): string | null {
  let best: string | null = null;
  let least = within;
  for (let row = 0; row < flows.size; row++) {
    if (flows.dying(row)) continue;
    const [from, to] = flows.items[row]!.e!;
    const a = shapeOf(from)!;
    const b = shapeOf(to)!;
    const distance = toSegment([x, y], project([a.lon, a.lat]), project([b.lon, b.lat]));
    if (distance < least) {
      least = distance;
      best = flows.items[row]!.k;
    }
  }
  return best;
}

function toSegment([x, y]: [number, number], [ax, ay]: number[], [bx, by]: number[]): number {
  const [dx, dy] = [bx! - ax!, by! - ay!];
  const along = Math.min(1, Math.max(0, ((x - ax!) * dx + (y - ay!) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x - ax! - dx * along, y - ay! - dy * along);
}
