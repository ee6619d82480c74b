import type {Region} from "./contract";

/** The region to ask for so that a little moving about needs no asking again; null for all when `seen` is unbounded. */
export function widened(seen: Region, by = 0.5): Region {
  const [west, south, east, north] = seen;
  const width = (east - west) * by;
  const height = (north - south) * by;
  return [
    round(Math.max(-180, west - width)),
    round(Math.max(-90, south - height)),
    round(Math.min(180, east + width)),
    round(Math.min(90, north + height)),
  ];
}

/** Must another region be asked for? When what is seen is not in it, or it is far too large for what is seen. */
export function outgrown(asked: Region | null, seen: Region): boolean {
  if (!asked) return true;
  const inside = seen[0] >= asked[0] && seen[1] >= asked[1] && seen[2] <= asked[2] && seen[3] <= asked[3];
  return !inside || asked[2] - asked[0] > 5 * (seen[2] - seen[0]);
}

function round(degrees: number): number {
  return Math.round(degrees * 1e4) / 1e4;
}
